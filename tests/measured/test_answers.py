"""Answers: exact at zero noise, and with the exact law of their noise otherwise."""

import pickle
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dps
from dpstats.errors import NotMeasuredError
from dpstats.families.block import Family
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import ROWS, Cells
from dpstats.measured.answers import answer
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, Strategy
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
        "smoker": rng.choice(["no", "yes"], n, p=[0.7, 0.3]), "tall": rng.random(n) < 0.4,
        "region": rng.choice(["north", "south", "east", "west"], n),
        "age": rng.integers(0, 201, n) / 2, "pay": rng.integers(-20, 21, n) / 2,
    })  # fmt: skip


@cache
def exact(block):
    return block.sums(SCHEMA.encode(pa.RecordBatch.from_pandas(frame())))


def measured(blocks, seed, multipliers):
    """Measurements of some blocks, with any noise."""
    planned = tuple(PlannedBlock(b, m) for b, m in zip(blocks, multipliers, strict=True))
    sums, rng = np.concatenate([exact(block) for block in blocks]), np.random.default_rng(seed)
    noise, uniforms = rng.integers(-50, 51, len(sums)), rng.uniform(-0.5, 0.5, len(sums))
    strategy = Strategy(SCHEMA, planned, PureDP(1), n=N)
    return Measurements(strategy, sums + noise, uniforms, not_private=True)


def table(*names):
    return Cells.table(SCHEMA, names)


def condition(text):
    return Cells.condition(SCHEMA, text)


BLOCKS = [
    table("smoker", "region"), table("region", "age"), condition("tall"),
    Moments.of(SCHEMA, ["age", "pay"], ["smoker"]),
]  # fmt: skip
WANTED = [
    *map(table, ["region", "smoker", "age"]), table("region", "age"), condition("not tall"),
    condition("smoker == 'yes' or region != 'west'"), condition("region == 'west'"),
    Moments.of(SCHEMA, ["pay"]),
]  # fmt: skip


@given(
    seed=st.integers(0, 2**32),
    asked=st.lists(st.sampled_from(WANTED), min_size=1, max_size=4),
    count=st.sampled_from([2, 4, 5]),
)
@settings(max_examples=20)
def test_the_weights_say_which_noise_is_in_an_answer(seed, asked, count):
    """And the law is that of the noise with these weights."""
    blocks = [*BLOCKS, condition("region == 'west'")][:count]
    if count == 2:
        blocks, asked = BLOCKS[2:], [condition("not tall"), WANTED[-1]]
    multipliers = [Fraction(3, 2), Fraction(5), Fraction(7, 3), Fraction(2), Fraction(1)][:count]
    noisy = measured(blocks, seed, multipliers)
    drawn = np.concatenate([own.sums - exact(own.block) for own in noisy.measured])
    answers, truth = answer(noisy, Family(tuple(asked))), np.concatenate([*map(exact, asked)])
    weights = answers.weights
    assert weights.shape == (len(answers.sums), noisy.family.size)
    np.testing.assert_allclose(answers.sums, truth + weights @ drawn, atol=1e-8)
    of_one = np.array([PureDP(1).law(float(scale)).variance for scale in noisy.scales])
    laws = [answers.law(f) for f in range(len(answers.sums))]
    np.testing.assert_allclose([law.variance for law in laws], weights**2 @ of_one)
    covariance = answers.noise_covariance
    np.testing.assert_allclose(covariance, (weights * of_one) @ weights.T, atol=1e-9)
    groups = [np.outer(w, w) * law.variance for w, law in answers.noise_groups]
    np.testing.assert_allclose(sum(groups), covariance, atol=1e-6)
    for law, row in zip(laws, weights, strict=True):
        if law.lattice:
            assert set(np.abs(row[row != 0])) == {1}
            assert law.terms == np.abs(row).sum()
    assert np.all((answers.uniforms != 0) & (abs(answers.uniforms) <= 0.5))
    assert len(set(answers.law_table)) == len(answers.law_table)


def test_a_sum_of_cells_takes_the_fractional_part_of_its_uniforms():
    noisy = measured(BLOCKS, 0, [Fraction(2)] * len(BLOCKS))
    stored = np.concatenate([block.uniforms for block in noisy.measured])
    drawn = np.concatenate([own.sums - exact(own.block) for own in noisy.measured])
    asked = [block for block in WANTED if block.names != ["not tall"]]
    answers, truth = answer(noisy, asked, disjoint=True), np.concatenate([*map(exact, asked)])
    assert answers.sums.tolist() == (truth + answers.weights @ drawn).tolist()
    assert np.all(abs(answers.uniforms) <= 0.5)
    turns = answers.uniforms - answers.weights @ stored
    np.testing.assert_allclose(turns, np.rint(turns), atol=1e-9)


def test_cells_of_overlapping_tables_have_uniforms_of_their_own():
    """So that simulated draws, which they seed, differ between releases.

    Also where a total makes the cells one sum of all measured noises.
    """
    asked = {"pairs": dps.Marginals(["smoker", "region", "tall"], 2)}
    smokers = int(np.sum(frame()["smoker"] == "yes"))
    total = dps.Total("smoker == 'yes'", smokers, of="table")
    for schema in (SCHEMA, dps.Schema(list(SCHEMA), totals=[total])):
        noisy = dps.measure(dps.plan(schema, asked, budget=dps.ZCDP(1)), frame())
        sources = Sources(noisy, "totals")
        stored = {own.block.columns: own.uniforms for own in noisy.measured}
        for wanted in (table("smoker", "region"), table("region")):
            uniforms = sources.best(wanted, disjoint=False).uniforms
            assert uniforms.tolist() == stored[wanted.columns].tolist()
        assert sources.best(ROWS, disjoint=False).uniforms != 0


def test_answers_come_with_the_number_of_rows_where_it_is_not_public():
    """And a complement follows from a condition and it only where it is public."""
    asked = {"t": dps.Marginals(["tall"], 1), "p": dps.Proportion("region == 'east'")}
    public, private = (
        dps.measure(dps.plan(SCHEMA, asked, budget=PureDP(1), unit=unit), frame())
        for unit in ("replace", "add_remove")
    )
    yes, no = condition("region == 'east'"), condition("region != 'east'")
    assert answer(public, no).sums == N - answer(public, yes).sums
    whole = Sources(private).best(ROWS, disjoint=False).sums
    np.testing.assert_allclose(answer(private, yes).sums + answer(private, no).sums, whole)
    alone = Strategy(SCHEMA, (PlannedBlock(yes, 2), PlannedBlock(ROWS, 2, "count")), PureDP(1),
                     "add_remove")  # fmt: skip
    with pytest.raises(NotMeasuredError):
        answer(Measurements(alone, np.array([9, N]), np.zeros(2), not_private=True), no)
    plain, both = answer(public, table("tall")), answer(public, table("tall"), with_count=True)
    assert both.names == plain.names
    np.testing.assert_array_equal(both.sums, plain.sums)
    plain, both = answer(private, table("tall")), answer(private, table("tall"), with_count=True)
    assert len(both.names) == 3
    np.testing.assert_array_equal(both.subset(slice(0, 2)).sums, plain.sums)
    np.testing.assert_array_equal(both.sums, answer(private, [table("tall"), ROWS]).sums)
    assert both.sums[2] == pytest.approx(both.rows.estimate, rel=1e-12)
    assert both.law(2).variance == both.rows.law.variance
    combined = plain.sums.sum(), private.count.sums[0]
    assert min(combined) - 1e-9 <= both.sums[2] <= max(combined) + 1e-9


@pytest.mark.parametrize("k", [1, 3])
def test_the_joint_law_with_the_number_of_rows_survives_a_pickle(k):
    """And a subgroup's count has none, even if it has the value and the law of that number."""
    asked = {"t": dps.Marginals(["tall"], 1)}
    plan = dps.plan(SCHEMA, asked, budget=PureDP(1), unit="add_remove", rows_per_person=k)
    answers = answer(dps.measure(plan, frame()), [table("tall"), ROWS])
    for about in (answers, answers.of_persons):
        again = pickle.loads(pickle.dumps(about))
        assert again.with_count is not None
        assert again.with_count[0] == about.with_count[0]
        np.testing.assert_array_equal(again.with_count[1], about.with_count[1])
    of_group = answers.of_counted_rows()
    assert replace(of_group.rows, of_group=False) == answers.rows
    assert of_group.with_count is None
    assert of_group.of_persons.with_count is None
