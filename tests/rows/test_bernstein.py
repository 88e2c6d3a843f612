"""The Bernstein density: its operator, mixture, estimate, refusals, files and candidates."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.measured.measurements import NoisyBlock
from dpstats.privacy.noise import _noise_from
from dpstats.rows.bernstein import BernsteinDensity, BernsteinKDE, _bernstein

UNIT = [dps.Number(f"x{j}", 0, 1, points=1025, edges=[0.25, 0.5, 0.75], missing=0.5)
        for j in range(4)]  # fmt: skip


def lattice(steps, p):
    """All points of a product of p grids, (points, p)."""
    return np.stack(np.meshgrid(*[steps] * p), axis=-1).reshape(-1, p)


def test_pdf_is_a_mixture_of_betas_and_integrates_to_one():
    weights = np.random.default_rng(0).dirichlet(np.full(343, 0.2)).reshape(7, 7, 7)
    density = BernsteinDensity(weights)
    middle = lattice((np.arange(30) + 0.5) / 30, 3)
    assert np.mean(density.pdf(middle)) == pytest.approx(1, abs=2e-3)
    some = np.random.default_rng(1).random((30, 3))
    ell = np.arange(7)
    a, b, c = (stats.beta.pdf(some[:, [j]], ell + 1, 7 - ell) for j in range(3))
    expected = np.einsum("abc,na,nb,nc->n", weights, a, b, c)
    np.testing.assert_allclose(density.pdf(some), expected, rtol=1e-9)


@pytest.mark.parametrize(("p", "options"), [(1, {"C": 30}), (2, {"k": 4, "order": 1})])
def test_no_bias_at_the_faces(p, options, no_noise):
    """Even rows: a kernel that is not reflected would have half the height on a face."""
    size = 2000 if p == 1 else 120
    data = pd.DataFrame(lattice((np.arange(size) + 0.5) / size, p), columns=["x0", "x1"][:p])
    asked = {name: dps.Proportion(f"{name} < 0.5") for name in data}
    plan = dps.plan(
        dps.Schema(UNIT[:p]), asked, budget=dps.PureDP(1), n=len(data),
        reference=BernsteinKDE(**options),
    )  # fmt: skip
    density = plan.reference.density(dps.measure(plan, data).reference)
    corners = lattice([0.0, 0.01, 0.5, 0.99, 1.0], p)
    np.testing.assert_allclose(density.pdf(corners), 1, atol=0.03)


def test_coefficients_along_every_axis():
    """Clipped coefficients of noisy sums of every sign, by sums over the lattice."""
    reference = BernsteinKDE(k=3, order=2)
    block = reference.block(dps.Schema(UNIT[:3]), 100)
    sums = np.random.default_rng(3).integers(-900, 1000, block.size)
    density = reference.density(NoisyBlock(block, np.ones(block.size), sums, np.zeros(block.size)))
    # sum_i C(2, i) (-1)^(i-1) M^(i-1); points of the faces stand for half a cell
    along = (2 * np.eye(4) - _bernstein(3, np.arange(4) / 3)) / [0.5, 1, 1, 0.5]
    expected = np.einsum("ai,bj,ck,ijk->abc", along, along, along, sums.reshape(block.shape))
    assert expected.min() < 0
    expected = np.clip(expected, 0, None)
    np.testing.assert_allclose(density.weights, expected / expected.sum(), atol=1e-12)


def test_bandwidth_and_lattice_come_from_public_numbers():
    schema = dps.Schema(UNIT)
    for p, k in ((1, 32), (2, 12), (3, 6), (4, 4)):
        block = BernsteinKDE(C=1.5).block(dps.Schema(UNIT[:p]), 1000)
        assert block.k == k
        wanted = max(1.5 * (math.log(1000) / 1000) ** (1 / p), 1 / (2 * k))
        assert block.bandwidth == pytest.approx(wanted, rel=1e-12)
    assert BernsteinKDE(["x1"]).block(schema, 10**6).bandwidth == 1 / 64
    assert BernsteinKDE(["x2", "x0"], k=9).block(schema, 100).columns == (UNIT[0], UNIT[2])
    coarse = dps.Schema([dps.Number("x", 0, 4, points=5)])
    assert BernsteinKDE().block(coarse, 100).k == 4


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


def people():
    rng = np.random.default_rng(0)
    return pd.DataFrame({
        "colour": rng.choice(["red", "green", "blue"], N, p=[0.6, 0.3, 0.1]),
        "age": 100 * rng.beta(2, 5, N),
        "income": 90 * rng.beta(5, 2, N) - 10,
        "score": rng.choice([1, 4, 5, 17], N),
    })  # fmt: skip


def planned(*columns, n=N, epsilon=1, **options):
    reference = BernsteinKDE(columns or None, **options)
    return dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(epsilon), n=n, reference=reference)


def test_requests_that_cannot_work_are_refused_from_public_numbers():
    for columns, options, text in (
        (["age"], {"n": None}, r"depends on the public number of rows; .* n=\.\.\."),
        (["age"], {"n": 2, "C": 3}, r"at n = 2 rows .* smaller C \(now 3\)"),
        (["colour"], {}, r"cannot cover \['colour'\].*\['age', 'income'\]"),
        (["age", "score"], {}, r"cannot cover \['score'\]"),
        (["age", "income"], {"k": 150, "n": 100}, r"times as much noise .* smaller k"),
        (["age", "income"], {"epsilon": 0.001}, r"times as much noise .* budget"),
        (["age", "income"], {"order": 16}, r"times as much noise .* order"),
    ):
        with pytest.raises(RequestError, match=text):
            planned(*columns, **options)
    made = planned("age", k=20)
    with pytest.raises(RequestError, match=r"rows over \['age'\] could overflow"):
        made.reference.check(made.reference_block.block, 2**53, made.budget.law(1.0))


def test_candidates_follow_the_numbers_and_the_rest_is_uniform(no_noise):
    """No noise: ages and incomes of 20,000 draws follow the private ones, inside bins as well."""
    made, data = planned("age", "income", k=30, epsilon=10), people()
    held = dps.measure(made, data)
    points = made.reference.draw(20_000, made.columns, held.reference, np.random.default_rng(0))
    assert list(points) == list(made.columns.names)
    for name in ("age", "income"):
        values = made.columns[name].decode(points[name])
        assert stats.ks_2samp(values, data[name]).statistic < 0.05
        assert abs(values.mean() - data[name].mean()) < 2
    for name in ("colour", "score"):
        bins = made.columns[name].bins_of(points[name])
        assert stats.chisquare(np.bincount(bins)).pvalue > 1e-6
    assert made.reference.cells(made.columns, held.reference) == (0, None)


def test_wild_noise_falls_back_to_uniform_and_says_so(tmp_path):
    made = planned("age", "income")
    with _noise_from(lambda scale, size: np.full(size, -(10**15))):
        held = dps.measure(made, people())
    assert made.reference.density(held.reference) is None
    points = made.reference.draw(9_000, made.columns, held.reference, np.random.default_rng(0))
    bins = made.columns["age"].bins_of(points["age"])
    assert stats.chisquare(np.bincount(bins, minlength=5)).pvalue > 1e-6
    release = dps.synthesize(held, m=500, k=100, rng=0)
    assert "no coefficient of the Bernstein density is positive" in release.notes[0]
    release.save(tmp_path / "release.zip")
    assert dps.load(tmp_path / "release.zip") == release


def test_an_even_number_of_points_keeps_whole_numbers():
    schema = dps.Schema([dps.Number("children", 0, 11, points=12, missing=0)])
    plan = dps.plan(schema, {"m": dps.Mean("children")}, budget=dps.PureDP(2), n=300,
                    reference=BernsteinKDE())  # fmt: skip
    rows = pd.DataFrame({"children": np.arange(300) % 12})
    release = dps.release(plan, rows, m=300, rng=0)
    assert set(release.to_frame()["children"]) == set(range(12))
