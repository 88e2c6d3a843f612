"""The log-linear reference: rows near the truth of what was measured, and never a failure."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.moments import Moments
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements
from dpstats.privacy.noise import _noise_from
from dpstats.rows import default_reference, loglinear
from dpstats.rows.entropy import targets
from dpstats.rows.loglinear import LogLinear, own_density
from dpstats.rows.uniform import Uniform

SIZES = [4, 3, 5, 2, 6]
SCHEMA = dps.Schema([dps.Category(f"c{i}", list(range(s))) for i, s in enumerate(SIZES)])


def table(n=4000, seed=0, sizes=SIZES):
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    frame = {}
    for i, size in enumerate(sizes):
        edges = rng.dirichlet(np.full(size, 0.8), 3).cumsum(axis=1)[group]
        frame[f"c{i}"] = np.minimum((rng.random((n, 1)) > edges).sum(axis=1), size - 1)
    return pd.DataFrame(frame)


def measured(frame, schema, analyses, epsilon=1.0, seed=1, **options):
    rng = np.random.default_rng(seed)

    def noise(scale, size):
        return np.rint(rng.laplace(0, scale, size)).astype(np.int64)

    plan = dps.plan(schema, analyses, budget=dps.PureDP(epsilon), **options)
    with _noise_from(noise):
        return dps.measure(plan, frame)


@pytest.fixture(scope="module")
def pairs():
    return measured(table(), SCHEMA, {"pairs": dps.Marginals(SCHEMA.names)}, reference=LogLinear())


def truth_of(family, frame):
    """Means of a family over the private rows."""
    sums = np.concatenate(family.sums({name: frame[name].to_numpy() for name in frame}))
    return sums / (len(frame) * family.bounds)


def test_rows_are_closer_to_the_truth_than_the_answers_are(pairs):
    truth = truth_of(pairs.family, table())
    proposal = LogLinear().candidates(pairs, 8_000, np.random.default_rng(0), stratified=True)
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
    assert release.k == 4000


def mixed(n=5000, seed=0):
    """Fifteen columns: eight categories, four binned numbers, three numbers with moments."""
    rng = np.random.default_rng(seed)
    frame = table(n, seed, [3, 2, 6, 9, 12, 5, 2, 7])
    schema = [
        dps.Category(f"c{i}", list(range(s))) for i, s in enumerate([3, 2, 6, 9, 12, 5, 2, 7])
    ]
    factor = rng.normal(size=n) + (frame["c1"] == 1)
    for i in range(4):
        frame[f"b{i}"] = np.clip(50 + 15 * factor + 10 * rng.normal(size=n), 0, 100)
        schema.append(dps.Number(f"b{i}", 0, 100, edges=[20, 40, 60, 80]))
    for i in range(3):
        frame[f"u{i}"] = np.clip(10 * factor + 5 * rng.normal(size=n), -50, 50)
        schema.append(dps.Number(f"u{i}", -50, 50, missing=0))
    return frame, dps.Schema(schema)


def test_a_mixed_table_of_fifteen_columns_end_to_end():
    frame, schema = mixed()
    people, scores = ([name for name in schema.names if name[0] == kind] for kind in "cb")
    numbers = [name for name in schema.names if name[0] == "u"]
    plan = dps.plan(
        schema,
        {"people": dps.Marginals(people), "scores": dps.Marginals(scores),
         "moments": MomentsOf(tuple(numbers), ("c1",)),
         "old": dps.Proportion("b0 >= 80 and c1 == 1")},
        budget=dps.PureDP(20),
    )  # fmt: skip
    assert isinstance(plan.reference, LogLinear)  # nobody can enumerate it
    release = dps.synthesize(dps.measure(plan, frame), m=3000, rng=0)
    rows = release.to_frame()
    assert rows.shape == (5000, 15)
    for name in numbers:  # sd about 11; noise far below
        assert rows[name].mean() == pytest.approx(frame[name].mean(), abs=1)
        assert rows[name].std() == pytest.approx(frame[name].std(), rel=0.1)
    # about .8, drawn towards zero by the penalty
    assert rows[numbers].corr().to_numpy() == pytest.approx(frame[numbers].corr(), abs=0.2)
    uniform = dps.synthesize(
        dps.measure(dps.plan(schema, plan.analyses, budget=dps.PureDP(20), reference=Uniform()),
                    frame), m=3000, rng=0,
    )  # fmt: skip
    misfit, blind = (
        np.abs(r.accuracy().synthetic - r.measurements.means) for r in (release, uniform)
    )
    assert misfit.max() < 0.5 * blind.max()


@dps.register
@dataclass(frozen=True)
class MomentsOf:
    """All moments of some numbers and groups, for the test: it draws no conclusions."""

    numbers: tuple
    groups: tuple
    kind: ClassVar[str] = "moments_of"

    def family(self, schema):
        return dps.Family((Moments.of(schema, self.numbers, self.groups),))

    def infer(self, release):
        return None


def test_a_family_it_does_not_know_is_refused_or_gets_uniform():
    class Strange:
        columns = (SCHEMA["c0"],)
        coded = ()
        size = 1

    family = dps.Family((Strange(),))
    many = dps.Schema([dps.Category(f"c{i}", list(range(30))) for i in range(5)])
    assert isinstance(default_reference(many, family), Uniform)
    with pytest.raises(RequestError, match="takes tables, conditions, moments and products only"):
        LogLinear().check_family(family)


def test_the_base_of_a_clipped_number_is_that_of_the_number_where_few_rows_are_shrunk():
    rng = np.random.default_rng(0)
    schema = dps.Schema([dps.Number(name, 0, 10, points=101, missing=0) for name in ("u", "v")])
    frame = pd.DataFrame({name: np.clip(rng.normal(7, 1, 3_000), 0, 10) for name in ("u", "v")})
    clipped = dps.PCA(["u", "v"], clip_norm=5.0, center={"u": 6.5, "v": 8}, scale={"u": 2, "v": 1})
    for name in ("u", "v"):
        ours, plain = (
            own_density(
                Sources(measured(frame, schema, {"a": analysis}, epsilon=1e4)), schema[name]
            )
            for analysis in (clipped, dps.PCA(["u", "v"]))
        )
        np.testing.assert_allclose(ours.sum(), 1, atol=1e-6)
        values = schema[name].grid
        mean, sd = ours @ values, np.sqrt(ours @ values**2 - (ours @ values) ** 2)
        assert abs(mean - frame[name].mean()) < 0.03
        assert abs(sd / frame[name].std() - 1) < 0.05
        assert np.abs(ours - plain).sum() < 0.05


def strong_pair(seed):
    """Measurements by residuals of a table in which two rare levels always go together."""
    rng = np.random.default_rng(seed)
    sizes = (9, 11, 7, 8, 6)
    schema = dps.Schema([dps.Category(f"c{i}", list(range(size))) for i, size in enumerate(sizes)])
    frame = table(30_000, 5, sizes)
    together = rng.random(len(frame)) < 0.06
    other = (frame["c0"] == 8) | (frame["c1"] == 10)
    frame.loc[other, ["c0", "c1"]] = [0, 0]
    frame.loc[together, ["c0", "c1"]] = [8, 10]
    asked = dps.Marginals(schema.names)
    plan = dps.plan(schema, {"m": asked}, budget=dps.ZCDP(Fraction(1, 50)), n=len(frame))
    sums = np.concatenate([
        block.block.sums({name: frame[name].to_numpy() for name in schema.names})
        for block in plan.strategy.blocks
    ])  # fmt: skip
    scales = np.concatenate(plan.strategy.block_scales)
    sums = sums + np.rint(rng.normal(size=len(sums)) * scales).astype(np.int64)
    zeros, reference = np.zeros(len(sums)), LogLinear().to_dict()
    measurements = Measurements(plan.strategy, sums, zeros, reference, not_private=True)
    return measurements, frame


def test_an_association_beyond_noise_is_not_shrunk():
    """The strongest cell of a table of weak associations, by edited and by exchanged rows."""
    measurements, frame = strong_pair(3)
    assert measurements.strategy.tables
    family, _, deviations = targets(measurements)
    assert family == measurements.published
    truth, cell = truth_of(family, frame), family.names.index("c0=8, c1=10")
    release = dps.synthesize(measurements, rng=0)
    rows = family.evaluate(release.candidates).average(release.counts / release.k)
    other = LogLinear()._exchanged(
        measurements, 8_000, np.random.default_rng(0), for_inference=True
    )
    exchanged = family.evaluate(other.candidates.codes).average(other.density)
    for found in (rows, exchanged):
        assert abs(found - truth)[cell] < 4 * deviations[cell]
        assert np.mean((found - truth) ** 2) < 0.95 * np.mean(deviations**2)


def test_an_empty_level_stays_empty_where_the_answers_say_so():
    frame = table()
    frame["c4"] = np.minimum(frame["c4"], 2)
    asked = {"pairs": dps.Marginals(SCHEMA.names)}
    release = dps.synthesize(measured(frame, SCHEMA, asked, 1e4, reference=LogLinear()), rng=0)
    assert release.to_frame()["c4"].max() <= 2


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("triple", [False, True])
def test_one_private_row_gives_rows(unit, triple):
    asked = {"t": dps.Marginals(SCHEMA.names, degree=3 if triple else 2)}
    given = {"n": 1} if unit == "replace" else {}
    alone = measured(table().head(1), SCHEMA, asked, 1, reference=LogLinear(), unit=unit, **given)
    release = dps.synthesize(alone, rng=0)
    assert release.k == Sources(alone).rows.value
    assert np.isfinite(release.weights).all()


def test_rows_of_too_many_levels_are_exchanged_and_not_edited(monkeypatch, pairs):
    assert loglinear.edits(pairs)
    monkeypatch.setattr(loglinear, "MOST_LEVELS", 19)
    assert not loglinear.edits(pairs)
    release = dps.synthesize(pairs, m=2_000, rng=0)
    assert release.notes == ()
    assert release.k == 4_000


def test_more_tables_than_can_be_fitted_are_edited_all_the_same(monkeypatch, pairs):
    asked, truth = dps.Marginals(SCHEMA.names), truth_of(pairs.family, table())
    monkeypatch.setattr(loglinear, "MOST_FITTED", 0)
    proposal = LogLinear().candidates(pairs, 8_000, np.random.default_rng(0), stratified=True)
    found = asked.family(SCHEMA).evaluate(proposal.candidates.codes).average(proposal.density)
    assert np.abs(found - truth).mean() < np.abs(pairs.means - truth).mean()


def test_rows_are_edited_to_conditions_and_larger_tables_too():
    first, second, third = SCHEMA.names[:3]
    asked = {
        "pairs": dps.Marginals(SCHEMA.names[:4]),
        "share": dps.Proportion(f"{first} == 1 and {second} == 1 and {third} == 0"),
        "triple": dps.Marginals([first, second, third], degree=3),
    }
    noisy = measured(table(), SCHEMA, asked, 50, reference=LogLinear())
    assert loglinear.edits(noisy)
    release = dps.synthesize(noisy, rng=0)
    family = noisy.published
    rows = family.evaluate(release.candidates).average(release.counts / release.k)
    error = np.abs(rows - truth_of(family, table()))
    assert np.all(release.counts >= 1)  # edited, not drawn from candidates with weights
    for block, start in zip(
        family.blocks, np.cumsum([0, *(b.size for b in family.blocks)]), strict=False
    ):
        assert error[start : start + block.size].sum() / 2 < 0.006, block


def test_a_condition_alone_is_met_by_rows_of_equal_weight():
    noisy = measured(table(), SCHEMA, {"p": dps.Proportion("c0 == 1")}, reference=LogLinear())
    assert not loglinear.edits(noisy)
    proposal = LogLinear().candidates(noisy, 5_000, np.random.default_rng(0), stratified=True)
    copies = proposal.density * 5_000
    np.testing.assert_allclose(copies, np.rint(copies), atol=1e-9)
    release = dps.synthesize(noisy, rng=0)
    assert release.notes == ()
    assert release.accuracy().synthetic == pytest.approx(noisy.means, abs=1.01 / 4_000)
