"""Answers: exact at zero noise, and with the exact law of their noise otherwise."""

from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dps
from dpstats.families.block import Family
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import ROWS, Cells
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.privacy import noise
from dpstats.privacy.budget import PureDP

SCHEMA = dps.Schema([
    dps.Category("smoker", ["no", "yes"]),
    dps.Category("region", ["north", "south", "east", "west"]),
    dps.Boolean("tall"),
    dps.Number("age", 0, 100, points=201, edges=[18, 40, 65], missing=40),
    dps.Number("pay", -10, 10, points=41, missing=0),
])  # fmt: skip
N = 400


def frame(seed=1, n=N):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "smoker": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
        "region": rng.choice(["north", "south", "east", "west"], n),
        "tall": rng.random(n) < 0.4,
        "age": rng.integers(0, 201, n) / 2,
        "pay": rng.integers(-20, 21, n) / 2,
    })  # fmt: skip


class Recording:
    """Injected noise that records its draws; the uniforms come from the same generator."""

    def __init__(self, seed=0):
        self.rng, self.draws = np.random.default_rng(seed), []

    def __call__(self, scale, size):
        drawn = self.rng.integers(-50, 51, size=size)
        self.draws.append(drawn)
        return drawn

    def uniforms(self, d):
        return self.rng.uniform(-0.5, 0.5, size=d)


def no_noise(scale, size):
    return np.zeros(size, dtype=np.int64)


@cache
def exact(block):
    return block.sums(SCHEMA.encode(pa.RecordBatch.from_pandas(frame())))


def measured(blocks, source=no_noise, multipliers=None):
    """Measurements of some blocks as `measure` makes them, without merging."""
    multipliers = multipliers or [Fraction(2)] * len(blocks)
    strategy = strategy_of(SCHEMA, blocks, multipliers)
    noisy, uniforms = [], []
    with noise._noise_from(source):
        for planned in strategy.blocks:
            sums, scales = exact(planned.block).copy(), strategy.scales_of(planned)
            for scale in np.unique(scales):
                sums[scales == scale] = noise.add_noise(sums[scales == scale], float(scale))
            noisy.append(sums)
            uniforms.append(noise.draw_uniforms(len(sums)))
    sums, uniforms = np.concatenate(noisy), np.concatenate(uniforms)
    return Measurements(strategy, sums, uniforms, not_private=True)


def strategy_of(schema, blocks, multipliers):
    planned = tuple(PlannedBlock(b, m) for b, m in zip(blocks, multipliers, strict=True))
    return Strategy(schema, planned, PureDP(1), n=N)


def table(*names):
    return Cells.table(SCHEMA, names)


def condition(text):
    return Cells.condition(SCHEMA, text)


# At zero noise, whatever is asked equals what pandas counts


@pytest.fixture(scope="module")
def silent():
    """Zero-noise measurements of a plan, made by the public functions."""
    plan = dps.plan(
        SCHEMA,
        {
            "tables": dps.Marginals(["smoker", "region", "age"], degree=2),
            "all": dps.Marginals(["smoker", "region", "tall"], degree=3),
            "some": dps.Proportion("tall and age >= 65 or region in ['north', 'east'] & age < 18"),
        },
        budget=dps.PureDP(1),
    )
    with noise._noise_from(no_noise):
        measurements = dps.measure(plan, frame())
    assert measurements.not_private
    return measurements


def test_tables_equal_the_crosstab(silent):
    edges = [0, 18, 40, 65, np.inf]
    data = frame()
    data["age"] = pd.cut(data["age"], edges, right=False, labels=False)
    levels = {"smoker": ["no", "yes"], "region": list(SCHEMA["region"].labels), "age": range(4),
              "tall": [False, True]}  # fmt: skip
    for names in [("smoker", "region"), ("region", "age"), ("region", "tall"), ("age",), ("tall",)]:
        wanted = pd.MultiIndex.from_product([levels[name] for name in names], names=names)
        counts = data.groupby(list(names)).size()
        counts = counts.reindex(wanted if len(names) > 1 else levels[names[0]], fill_value=0)
        answers = answer(silent, table(*names))
        np.testing.assert_allclose(answers.sums, counts, atol=1e-9)
        np.testing.assert_allclose(answers.means, counts / N, atol=1e-12)
        assert answers.names == table(*names).names


def test_conditions_equal_the_query(silent):
    for text in [
        "tall and age >= 65 or region in ['north', 'east'] & age < 18",
        "smoker == 'yes'",
        "smoker == 'yes' or region != 'west'",
        "region not in ['north', 'south'] and age >= 40",
        "tall and smoker == 'no' or region == 'west'",
        "not tall",
    ]:
        expected = len(frame().query(text, engine="python"))
        assert answer(silent, condition(text)).sums == pytest.approx(expected, abs=1e-9)
        assert answer(silent, condition(text), disjoint=True).sums == expected
    some = "tall and age >= 65 or region in ['north', 'east'] & age < 18"  # measured by itself
    rest = answer(silent, condition(f"not ({some})")).sums
    assert rest == pytest.approx(N - answer(silent, condition(some)).sums)


def test_moments_equal_the_sums_of_codes():
    wide = Moments.of(SCHEMA, ["age", "pay"], ["smoker"])
    answers = answer(measured([wide]), Moments.of(SCHEMA, ["pay"], ["smoker"]))
    data = frame()
    half_units = data["pay"] * 2
    yes = data["smoker"] == "yes"
    assert answers.names == [
        "pay", "smoker=no", "smoker=yes", "pay^2", "pay*smoker=no", "pay*smoker=yes",
    ]  # fmt: skip
    assert answers.sums.tolist() == [
        half_units.sum(), N - yes.sum(), yes.sum(), (half_units**2).sum(),
        half_units[~yes].sum(), half_units[yes].sum(),
    ]  # fmt: skip
    assert answers.bounds.tolist() == [20, 1, 1, 400, 20, 20]
    np.testing.assert_allclose(answers.means[0], data["pay"].mean() / 10)


# The noise: its combination, its law, its uniforms

BLOCKS = [
    table("smoker", "region"),
    table("region", "age"),
    condition("tall"),
    Moments.of(SCHEMA, ["age", "pay"], ["smoker"]),
]
WANTED = [
    table("region"),
    table("smoker"),
    table("age"),
    table("region", "age"),
    condition("not tall"),
    condition("smoker == 'yes' or region != 'west'"),
    condition("region == 'west'"),
    Moments.of(SCHEMA, ["pay"]),
]


@given(
    seed=st.integers(0, 2**32),
    asked=st.lists(st.sampled_from(WANTED), min_size=1, max_size=4),
    blocks=st.sampled_from([BLOCKS, [*BLOCKS, condition("region == 'west'")], BLOCKS[2:]]),
)
@settings(max_examples=40)
def test_the_weights_say_which_noise_is_in_an_answer(seed, asked, blocks):
    noisy, silent = measured(blocks, Recording(seed)), measured(blocks)
    if blocks == BLOCKS[2:]:
        asked = [condition("not tall"), WANTED[-1]]
    drawn = np.concatenate(
        [n.sums - e.sums for n, e in zip(noisy.measured, silent.measured, strict=True)]
    )
    answers, truth = answer(noisy, Family(tuple(asked))), answer(silent, asked)
    assert answers.weights.shape == (len(answers.sums), noisy.family.size)
    np.testing.assert_allclose(answers.sums - truth.sums, answers.weights @ drawn, atol=1e-8)


@given(
    asked=st.lists(st.sampled_from(WANTED), min_size=1, max_size=4),
    extra=st.booleans(),
)
@settings(max_examples=30)
def test_the_law_is_that_of_the_weighted_noise(asked, extra):
    blocks = [*BLOCKS, condition("region == 'west'")] if extra else BLOCKS
    multipliers = [Fraction(3, 2), Fraction(5), Fraction(7, 3), Fraction(2), Fraction(1)]
    noisy = measured(blocks, Recording(), multipliers[: len(blocks)])
    answers = answer(noisy, asked)
    of_one = np.array([PureDP(1).law(float(scale)).variance for scale in noisy.scales])
    np.testing.assert_allclose(
        [answers.law(f).variance for f in range(len(answers.sums))], answers.weights**2 @ of_one
    )
    np.testing.assert_allclose(
        answers.noise_covariance, (answers.weights * of_one) @ answers.weights.T, atol=1e-9
    )
    rebuilt = sum(
        np.outer(weights, weights) * law.variance for weights, law in answers.noise_groups
    )
    np.testing.assert_allclose(rebuilt, answers.noise_covariance, atol=1e-6)
    for f, row in enumerate(answers.weights):
        law = answers.law(f)
        if law.lattice:
            assert set(np.abs(row[row != 0])) == {1}
            assert law.terms == np.abs(row).sum()
        assert 0 < abs(answers.uniforms[f]) <= 0.5  # also where the noise is not an integer
    assert len(set(answers.law_table)) == len(answers.law_table)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_sum_of_cells_takes_the_fractional_part_of_its_uniforms(seed):
    noisy = measured(BLOCKS, Recording(seed))
    stored = np.concatenate([block.uniforms for block in noisy.measured])
    answers = answer(noisy, [w for w in WANTED if w.names != ["not tall"]], disjoint=True)
    assert np.all(abs(answers.uniforms) <= 0.5)
    turns = answers.uniforms - answers.weights @ stored
    np.testing.assert_allclose(turns, np.rint(turns), atol=1e-9)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_answers_come_with_the_number_of_rows_where_it_is_not_public(unit):
    plan = dps.plan(SCHEMA, {"t": dps.Marginals(["tall"], 1)}, budget=PureDP(1), unit=unit)
    noisy = dps.measure(plan, frame())
    plain = answer(noisy, table("tall"))
    both = answer(noisy, table("tall"), with_count=True)
    if unit == "replace":
        assert both.names == plain.names
        np.testing.assert_array_equal(both.sums, plain.sums)
        return
    assert len(both.names) == 3
    np.testing.assert_array_equal(both.subset(slice(0, 2)).sums, plain.sums)
    np.testing.assert_array_equal(both.sums, answer(noisy, [table("tall"), ROWS]).sums)
    assert both.sums[2] == pytest.approx(both.rows.estimate, rel=1e-12)
    assert both.law(2).variance == both.rows.law.variance
    combined = noisy.sums.sum(), noisy.count.sums[0]  # two sources of the same number
    assert min(combined) - 1e-9 <= both.sums[2] <= max(combined) + 1e-9


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_counts_of_persons_are_those_of_rows_over_the_most_of_one(unit):
    """With their noise, on them and on the number of rows; whole persons where rows are public."""
    k, rows = 3, frame().assign(id=np.arange(N) // 3)
    asked = {"t": dps.Marginals(["tall", "age"]), "p": dps.Proportion("tall")}
    plan = dps.plan(
        SCHEMA, asked, budget=PureDP(1), unit=unit, rows_per_person=k, person="id"
    )  # fmt: skip
    of_rows = answer(dps.measure(plan, rows), Cells.condition(SCHEMA, "tall or age >= 40"))
    persons, of = of_rows.of_persons, N / (N // k) if unit == "replace" else k
    assert persons.of_persons is persons
    np.testing.assert_allclose(persons.sums * of, of_rows.sums)
    np.testing.assert_allclose(persons.rows.estimate * of, of_rows.rows.estimate)
    assert persons.law(0).variance * of**2 == pytest.approx(of_rows.law(0).variance)
    np.testing.assert_allclose(persons.noise_covariance * of**2, of_rows.noise_covariance)
    np.testing.assert_allclose(persons.means, of_rows.means, rtol=1 / 100)
    if unit == "replace":
        assert persons.n == N // k
        return
    (joint, _), (divided, _) = of_rows.with_count, persons.with_count
    assert joint[0].moments[1] > 0  # the count of rows has noise of these cells
    np.testing.assert_allclose(np.array(divided[0].moments) * of**2, joint[0].moments)
    noises = [one.noise_of_shares(np.array([0.3])) for one in (persons, of_rows)]
    np.testing.assert_allclose(*noises, rtol=0.02)


# What cannot be answered
