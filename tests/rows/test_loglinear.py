"""The log-linear reference: rows near the truth of what was measured, and never a failure."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.measured.combining import Sources
from dpstats.rows import default_reference, loglinear
from dpstats.rows.entropy import targets
from dpstats.rows.loglinear import LogLinear, own_density
from dpstats.rows.uniform import Uniform

SIZES = [4, 3, 5, 2, 6]
SCHEMA = dps.Schema([dps.Category(f"c{i}", list(range(s))) for i, s in enumerate(SIZES)])


def table(n=1_000, seed=0, sizes=SIZES):
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    frame = {}
    for i, size in enumerate(sizes):
        edges = rng.dirichlet(np.full(size, 0.8), 3).cumsum(axis=1)[group]
        frame[f"c{i}"] = np.minimum((rng.random((n, 1)) > edges).sum(axis=1), size - 1)
    return pd.DataFrame(frame)


def measured(frame, schema, analyses, epsilon=1.0, **options):
    return dps.measure(dps.plan(schema, analyses, budget=dps.PureDP(epsilon), **options), frame)


@pytest.fixture(scope="module")
def pairs():
    asked = {"pairs": dps.Marginals(SCHEMA.names)}
    return measured(table(), SCHEMA, asked, epsilon=4, reference=LogLinear())


def truth_of(family, frame):
    """Means of a family over the private rows."""
    sums = np.concatenate(family.sums({name: frame[name].to_numpy() for name in frame}))
    return sums / (len(frame) * family.bounds)


@pytest.mark.parametrize(("limit", "value"), [("MOST_FITTED", 0), ("MOST_LEVELS", 19)])
def test_rows_are_closer_to_the_truth_than_the_answers_are(pairs, monkeypatch, limit, value):
    """Also if the model is not fitted before rows are edited, or they are exchanged."""
    assert loglinear.edits(pairs)
    monkeypatch.setattr(loglinear, limit, value)
    assert loglinear.edits(pairs) == (limit == "MOST_FITTED")
    truth = truth_of(pairs.family, table())
    proposal = LogLinear().candidates(pairs, 1_000, np.random.default_rng(0), stratified=True)
    found = pairs.family.evaluate(proposal.candidates.codes).average(proposal.density)
    ours, answers = np.abs(found - truth), np.abs(pairs.means - truth)
    assert ours.mean() < 0.9 * answers.mean()
    assert ours.max() < answers.max()


@pytest.mark.parametrize("step", ["fit_loglinear", "edited", "blend"])
def test_a_failure_falls_back_to_uniform_candidates_and_says_so(pairs, monkeypatch, step):
    def fails(*arguments, **options):
        raise np.linalg.LinAlgError("no")

    monkeypatch.setattr(loglinear, step, fails)
    release = dps.synthesize(pairs, m=1000, rng=0)
    assert "the log-linear reference failed" in release.notes[0]
    assert release.k == 1_000


def test_a_mixed_table_end_to_end():
    """Categories, binned numbers and numbers with moments; far better than uniform candidates."""
    n, rng = 3_000, np.random.default_rng(0)
    frame, binned, numbers = table(n), ["b0", "b1"], ["u0", "u1", "u2"]
    factor = rng.normal(size=(n, 1)) + (frame[["c1"]] == 1).to_numpy()
    frame[binned] = np.clip(50 + 15 * factor + 10 * rng.normal(size=(n, 2)), 0, 100)
    frame[numbers] = np.clip(10 * factor + 5 * rng.normal(size=(n, 3)), -50, 50)
    schema = dps.Schema([
        *SCHEMA, *(dps.Number(name, 0, 100, edges=[20, 40, 60, 80]) for name in binned),
        *(dps.Number(name, -50, 50, missing=0) for name in numbers),
    ])  # fmt: skip
    asked = {
        "people": dps.Marginals(SCHEMA.names), "scores": dps.Marginals(binned),
        "moments": dps.PCA(numbers), "old": dps.Proportion("b0 >= 80 and c1 == 1"),
    }  # fmt: skip
    plan = dps.plan(schema, asked, budget=dps.PureDP(20))
    assert isinstance(plan.reference, LogLinear)  # nobody can enumerate it
    release = dps.synthesize(dps.measure(plan, frame), m=1_000, rng=0)
    rows = release.to_frame()
    assert rows.shape == (n, 10)
    for name in numbers:  # sd about 11; noise far below
        assert rows[name].mean() == pytest.approx(frame[name].mean(), abs=1)
        assert rows[name].std() == pytest.approx(frame[name].std(), rel=0.1)
    # about .8, drawn towards zero by the penalty
    assert rows[numbers].corr().to_numpy() == pytest.approx(frame[numbers].corr(), abs=0.2)
    answers = release.answers(release.measurements.published.answering)
    assert np.abs(release.accuracy().synthetic - answers.means).max() < 0.03


def test_a_family_it_does_not_know_is_refused_or_gets_uniform():
    family = dps.Family((SimpleNamespace(columns=(SCHEMA["c0"],), coded=(), size=1),))
    many = dps.Schema([dps.Category(f"c{i}", list(range(30))) for i in range(5)])
    assert isinstance(default_reference(many, family), Uniform)
    with pytest.raises(RequestError, match="takes tables, conditions, moments and products only"):
        LogLinear().check_family(family)


def test_the_base_of_a_clipped_number_is_that_of_the_number_where_few_rows_are_shrunk():
    rng = np.random.default_rng(0)
    schema = dps.Schema([dps.Number(name, 0, 10, points=101, missing=0) for name in ("u", "v")])
    frame = pd.DataFrame({name: np.clip(rng.normal(7, 1, 3_000), 0, 10) for name in ("u", "v")})
    clipped = dps.PCA(["u", "v"], clip_norm=5.0, center={"u": 6.5, "v": 8}, scale={"u": 2, "v": 1})
    sources = [
        Sources(measured(frame, schema, {"a": analysis}, epsilon=1e4))
        for analysis in (clipped, dps.PCA(["u", "v"]))
    ]
    for name in ("u", "v"):
        ours, plain = (own_density(each, schema[name]) for each in sources)
        np.testing.assert_allclose(ours.sum(), 1, atol=1e-6)
        values = schema[name].grid
        mean, sd = ours @ values, np.sqrt(ours @ values**2 - (ours @ values) ** 2)
        assert abs(mean - frame[name].mean()) < 0.03
        assert abs(sd / frame[name].std() - 1) < 0.05
        assert np.abs(ours - plain).sum() < 0.05


def test_an_association_beyond_noise_is_not_shrunk():
    """Two rare levels that always go together, by edited and by exchanged rows."""
    sizes = (9, 11, 7, 6)
    schema = dps.Schema([dps.Category(f"c{i}", list(range(size))) for i, size in enumerate(sizes)])
    frame = table(10_000, 5, sizes)
    frame.loc[(frame["c0"] == 8) | (frame["c1"] == 10), ["c0", "c1"]] = [0, 0]
    frame.loc[np.random.default_rng(3).random(len(frame)) < 0.06, ["c0", "c1"]] = [8, 10]
    asked = {"m": dps.Marginals(schema.names)}
    budget, n = dps.ZCDP(Fraction(1, 20)), len(frame)
    plan = dps.plan(schema, asked, budget=budget, n=n, reference=LogLinear())
    measurements = dps.measure(plan, frame)
    assert measurements.strategy.tables
    family, answers, deviations = targets(measurements)
    assert family == measurements.published
    truth, cell = truth_of(family, frame), family.names.index("c0=8, c1=10")
    release = dps.synthesize(measurements, rng=0)
    rows = family.evaluate(release.candidates).average(release.counts / release.k)
    other = LogLinear()._exchanged(
        measurements, 5_000, np.random.default_rng(0), for_inference=True
    )
    exchanged = family.evaluate(other.candidates.codes).average(other.density)
    for found in (rows, exchanged):
        assert abs(found - truth)[cell] < 4 * deviations[cell]
        assert np.mean((found - truth) ** 2) < 0.95 * np.mean((answers - truth) ** 2)


def test_rows_are_edited_to_conditions_and_larger_tables_too():
    """And a level that they show to be empty stays empty, and no row takes over."""
    frame = table(400)
    frame["c2"] = np.minimum(frame["c2"], 2)
    asked = {
        "pairs": dps.Marginals(SCHEMA.names[:3]),
        "share": dps.Proportion("c0 == 1 and c1 == 1 and c2 == 0"),
        "triple": dps.Marginals(SCHEMA.names[:3], degree=3),
    }
    noisy = measured(frame, SCHEMA, asked, 500, reference=LogLinear())
    assert loglinear.edits(noisy)
    release = dps.synthesize(noisy, rng=0)
    assert np.all(release.counts >= 1)  # edited, not drawn from candidates with weights
    assert release.counts.max() < 1.5 * frame[["c0", "c1", "c2"]].value_counts().max() + 20
    assert release.to_frame()["c2"].max() <= 2
    for block in noisy.published.blocks:  # within a row of every cell, on average
        family = dps.Family((block,))
        rows = family.evaluate(release.candidates).average(release.counts / release.k)
        assert np.abs(rows - truth_of(family, frame)).mean() <= 1.01 / len(frame), block


def test_a_condition_alone_is_met_by_rows_of_equal_weight():
    noisy = measured(table(), SCHEMA, {"p": dps.Proportion("c0 == 1")}, reference=LogLinear())
    assert not loglinear.edits(noisy)
    proposal = LogLinear().candidates(noisy, 5_000, np.random.default_rng(0), stratified=True)
    copies = proposal.density * 5_000
    np.testing.assert_allclose(copies, np.rint(copies), atol=1e-9)
    release = dps.synthesize(noisy, rng=0)
    assert release.notes == ()
    assert release.accuracy().synthetic == pytest.approx(noisy.means, abs=1.01 / 1_000)
