"""The Bernstein density on its way: plans and what they refuse, files, releases."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import DataError, RequestError
from dpstats.privacy.noise import _noise_from
from dpstats.rows.bernstein import BernsteinKDE

SCHEMA = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Number("age", 0, 100, points=1001, edges=[20, 40, 60, 80], missing=50),
    dps.Number("income", -10, 90, points=2**18 + 1, edges=[0, 30], missing=0),
    dps.Number("score", values=[1, 4, 5, 17]),
])  # fmt: skip
ANALYSES = {
    "colour": dps.Marginals(["colour", "age"]),
    "income": dps.Proportion("income >= 30"),
    "score": dps.Proportion("score > 4"),
}
N = 3000


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "colour": rng.choice(["red", "green", "blue"], n, p=[0.6, 0.3, 0.1]),
        "age": 100 * rng.beta(2, 5, n),
        "income": 90 * rng.beta(5, 2, n) - 10,
        "score": rng.choice([1, 4, 5, 17], n),
    })  # fmt: skip


def planned(*columns, n=N, epsilon=1, **options):
    reference = BernsteinKDE(columns or None, **options)
    return dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(epsilon), n=n, reference=reference)


def checked_at(n):
    made = planned("age")
    made.reference.check(made.reference_block.block, n, made.budget.law(1.0))


def wild(scale, size):
    return np.full(size, -(10**15))


# Plans and refusals


@pytest.mark.parametrize("share", [Fraction(1, 10), 0.75])
def test_it_pays_its_own_share(share):
    made = planned("age", share=share)
    exact = Fraction(str(share)) if isinstance(share, float) else share
    assert made.cost() == 1
    own = made.reference_block
    assert own.block.sensitivity("replace").l1 / own.multiplier == exact
    without = dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(1))
    assert without.family.names == made.family.names
    assert "bernstein_kde, share of the budget" in str(made)
    assert "for 33 sums" in str(made)
    assert "bernstein_kde" in str(made.preview())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: planned("age", n=None), r"depends on the public number of rows; .* n=\.\.\."),
        (lambda: planned("age", n=2, C=3), r"at n = 2 rows .* smaller C \(now 3\)"),
        (lambda: planned("colour"), r"cannot cover \['colour'\].*\['age', 'income'\]"),
        (lambda: planned("age", "score"), r"cannot cover \['score'\]"),
        (lambda: planned("height"), r"cannot cover \['height'\]"),
        (lambda: planned("age", "income", k=400, n=100), r"times as much noise .* smaller k"),
        (lambda: planned("age", "income", epsilon=0.001), r"times as much noise .* budget"),
        (lambda: planned("age", "income", order=16), r"times as much noise .* order"),
        (lambda: checked_at(2**53), r"rows over \['age'\] could overflow"),
        (lambda: planned("age", k=511), None),
    ],
)
def test_requests_that_cannot_work_are_refused_from_public_numbers(make, text):
    if text is None:
        assert make().reference_block.block.size == 512
        return
    with pytest.raises(RequestError, match=text):
        make()


# Files, requests, releases


def test_a_plan_and_its_measurements_come_back(tmp_path):
    made = planned("age", "income")
    made.save(tmp_path / "plan.json")
    again = dps.Plan.load(tmp_path / "plan.json")
    assert again.to_dict() == made.to_dict()
    assert again.reference_block == made.reference_block
    held = dps.measure(again, people())
    held.save(tmp_path / "measured.zip")
    loaded = dps.Measurements.load(tmp_path / "measured.zip")
    assert loaded.reference.block == held.reference.block
    np.testing.assert_array_equal(loaded.reference.sums, held.reference.sums)
    first, second = (dps.synthesize(m, m=500, k=200, rng=3).to_frame() for m in (held, loaded))
    pd.testing.assert_frame_equal(first, second)
    with pytest.raises(DataError, match="n = 3000"):
        dps.measure(made, people(N - 1))


def test_noise_is_drawn_once_at_one_scale():
    asked = []

    def source(scale, size):
        asked.append((scale, size))
        return np.zeros(size, np.int64)

    made = planned("age", "income", k=7)
    with _noise_from(source):
        held = dps.measure(made, people())
    scale, size = asked[-1]
    own = made.reference_block
    assert size == 64
    assert len(asked) == len(made.blocks) + 1
    l1 = own.block.sensitivity("replace").l1 * int(own.block.ranges[1][0])
    assert Fraction(1, 2) * (1 - Fraction(1, 10**12)) <= l1 / Fraction(scale) <= Fraction(1, 2)
    codes = {c.name: c.encode(pa.array(people()[c.name])) for c in own.block.columns}
    np.testing.assert_array_equal(held.reference.sums, own.block.sums(codes))


def columns_of(release):
    frame = release.to_frame()
    assert set(frame) == {"colour", "age", "income", "score"}
    return frame


def test_candidates_follow_the_numbers_and_the_rest_is_uniform(no_noise):
    """No noise: ages and incomes of 20,000 draws follow the private ones, inside bins as well."""
    made, data = planned("age", "income", k=30, epsilon=10), people()
    held = dps.measure(made, data)
    points = made.reference.draw(20_000, made.columns, held.reference, np.random.default_rng(0))
    assert list(points) == list(made.columns.names)
    for name, sd in (("age", 100), ("income", 100)):
        values = made.columns[name].decode(points[name])
        assert stats.ks_2samp(values, data[name]).statistic < 0.05
        assert abs(values.mean() - data[name].mean()) < 0.02 * sd
    for name, size in (("colour", 3), ("score", 4)):
        bins = made.columns[name].bins_of(points[name])
        assert stats.chisquare(np.bincount(bins, minlength=size)).pvalue > 1e-6
    assert made.reference.cells(made.columns, held.reference) == (0, None)


def test_wild_noise_falls_back_to_uniform_and_says_so(tmp_path):
    made = planned("age", "income")
    with _noise_from(wild):
        held = dps.measure(made, people())
    assert made.reference.density(held.reference) is None
    points = made.reference.draw(36_000, made.columns, held.reference, np.random.default_rng(0))
    bins = made.columns["age"].bins_of(points["age"])
    assert stats.chisquare(np.bincount(bins, minlength=5)).pvalue > 1e-6
    release = dps.synthesize(held, m=500, k=100, rng=0)
    assert len(columns_of(release)) == 100
    assert "no coefficient of the Bernstein density is positive" in release.notes[0]
    release.save(tmp_path / "release.zip")
    assert dps.load(tmp_path / "release.zip").notes == release.notes
    assert "drawn uniformly instead" in str(release)


def test_an_even_number_of_points_keeps_whole_numbers():
    schema = dps.Schema([dps.Number("children", 0, 11, points=12, missing=0)])
    plan = dps.plan(schema, {"m": dps.Mean("children")}, budget=dps.PureDP(2), n=300,
                    reference=BernsteinKDE())  # fmt: skip
    rows = pd.DataFrame({"children": np.arange(300) % 12})
    release = dps.release(plan, rows, m=300, rng=0)
    assert set(release.candidates["children"].tolist()) == set(range(-11, 12, 2))
    assert set(release.to_frame()["children"]) == set(range(12))
