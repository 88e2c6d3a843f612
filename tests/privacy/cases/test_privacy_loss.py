"""Sections E and F: no row costs more than the budget; planted bugs are seen.

A source in place of the noise marks every draw, so that the scale on every sum is the one that
reached the source; the loss between two tables is then exact: the sum over functions of
abs(S_f - S'_f) / scale_f, in rationals, at most epsilon.
"""

import itertools
import os
from dataclasses import replace
from fractions import Fraction
from operator import truediv

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.families import block_from_dict
from dpstats.families.ball_moments import BallMoments
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import fourth_moments_of_pairs, third_and_fourth_powers
from dpstats.families.tables.cells import Indicator, Table
from dpstats.families.tables.inside_bins import BinOffsets
from dpstats.families.tables.lattice import KernelLattice
from dpstats.measured.strategy import PlannedBlock
from dpstats.planning import division
from dpstats.privacy import noise
from dpstats.privacy.neighbours import Sensitivity
from dpstats.private import measure as measuring
from dpstats.releases import pilots as second

CELLS = {
    "c": ["a", "b", None],
    "b": [False, True],
    "d": [False, True],
    "x": [-1.0, -0.5, 0.0, 0.5, 1.0],
    "y": [0.0, 1.0, 2.0],
    "z": [17.5, 22.0, 27.0],
}
TYPES = {"c": pa.string(), "b": pa.bool_(), "d": pa.bool_()}

CALL, COORDINATE, HALF = 2**42, 2**28, 2**27


class Marked:
    """Noise that tells which call and which coordinate it came from; sums are below 2^27."""

    def __init__(self):
        self.scales = []

    def __call__(self, scale, size):
        self.scales.append(scale)
        return len(self.scales) * CALL + np.arange(size) * COORDINATE


def sums_and_scales(plan, table):
    """Sums of all functions, and the scale of the noise that was really drawn for each."""
    source = Marked()
    with noise._noise_from(source):
        measured = dps.measure(plan, table)
    others = [*measured.scores, *measured.of_persons, measured.reference, measured.count]
    others = [block for block in others if block is not None]
    blocks = [*measured.measured, *others]
    marked = np.concatenate([block.sums for block in blocks])
    sums = (marked + HALF) % COORDINATE - HALF
    marks = marked - sums
    calls = marks // CALL
    assert calls.min() >= 1, "a sum without noise"
    assert len(np.unique(marks)) == len(marks), "noise shared by two sums"
    return sums, [Fraction(source.scales[call - 1]) for call in calls]


AGAIN = 4  # tables measured anew under another budget: sums do not depend on it


def largest_loss(plan, known_sums):
    """Largest privacy loss over all tables of one row of the columns in use, exactly.

    Where the plan knows persons: of one person, with as many rows as one may have. Between all
    pairs of them where neighbours replace a row, else between each and the empty one. Laplace
    noise: sum of changes over scales. Gaussian: rho, the sum of their squares over two.
    """
    gaussian = plan.budget.noise == "gaussian"
    names = plan.columns.names
    replaced = plan.unit == "replace"
    every, k = list(itertools.product(*map(CELLS.get, names))), 1
    if plan.person is not None:
        k = plan.rows_per_person
    persons = itertools.combinations_with_replacement(range(len(every)), k)
    tables = [tuple(zip(*(every[i] for i in rows), strict=True)) for rows in persons]
    if not replaced:
        tables.insert(0, ((),) * len(names))
    asked = (tuple(planned.block for planned in plan.strategy.blocks), names, k)
    known = known_sums.get(asked)
    results = []
    for cells in tables if known is None else tables[-AGAIN:]:
        columns = zip(names, cells, strict=True)
        arrays = {n: pa.array(held, TYPES.get(n, pa.float64())) for n, held in columns}
        if plan.person is not None:
            arrays[plan.person] = pa.array(["one person"] * len(cells[0]))
        results.append(sums_and_scales(plan, pa.table(arrays)))
    scales = results[0][1]
    assert all(other == scales for _, other in results), "the noise depends on the data"
    sums = np.stack([total for total, _ in results])
    if known is not None:
        assert np.array_equal(sums, known[-AGAIN:]), "the sums depend on the budget"
        sums = known
    known_sums[asked] = sums
    distinct = sorted(set(scales))
    groups = [np.flatnonzero([s == scale for s in scales]) for scale in distinct]
    changes = set()
    for i in range(len(sums) if replaced else 1):
        moved = np.abs(sums[i + 1 :] - sums[i]) ** (2 if gaussian else 1)
        per_scale = np.stack([moved[:, group].sum(axis=1) for group in groups], axis=1)
        changes |= set(map(tuple, per_scale.tolist()))
    costs = [2 * s**2 if gaussian else s for s in distinct]
    losses = (map(truediv, change, costs) for change in changes)
    return max((sum(loss, Fraction(0)) for loss in losses), default=Fraction(0))


class Guard:
    """Asserts that no row costs more than a plan's budget; the share of it that one row costs.

    Attributes
    ----------
    sums : dict
        Of every table, by blocks; to be cleared where a test plants other sums.
    """

    def __init__(self):
        self.sums = {}

    def largest_loss(self, plan):
        return largest_loss(plan, self.sums)

    def __call__(self, plan):
        loss = self.largest_loss(plan)
        assert loss <= plan.budget.total, "a row costs more than the budget"
        return loss / plan.budget.total


KEPT = Guard()


@pytest.fixture
def guard(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # tables of a row, thousands of them
    return KEPT


SCHEMA = dps.Schema(
    [
        dps.Category("c", ["a", "b"], allow_missing=True),
        dps.Boolean("b"),
        dps.Boolean("d"),
        dps.Number("x", -1, 1, points=5, edges=[0, 0.75], missing=0),
        dps.Number("y", 0, 2, points=3, edges=[1], missing=1),
        dps.Number("z", values=[17.5, 22, 27], missing=22),
    ]
)


def table(*columns):
    return dps.Cells.table(SCHEMA, list(columns))


def moments(numbers, groups=(), degree=2):
    return dps.Moments.of(SCHEMA, numbers, groups, degree)


PLANS = {
    "proportion": ({"p": dps.Proportion("c == 'a'")}, {}),
    "group": ({"p": dps.Proportion("b", given="c == 'a'"), "q": dps.Proportion("d")}, {}),
    "cells": ({"m": dps.Marginals(["c", "b", "x"]), "p": dps.Proportion("y < 1")}, {}),
    "pairs": ({"m": dps.Marginals(["c", "b", "d"])}, {}),
    "triples": ({"m": dps.Marginals(["c", "b", "d", "x"], degree=3)}, {"weights": "max"}),
    "monomials": ({"m": dps.Marginals(["b", "d"], 2, "monomials")}, {}),
    "numbers": ({"m": [moments(["x", "y", "z"])]}, {}),
    "overlapping": (
        {"m": [moments(["x"], ["c"])], "k": [moments(["x", "y"]), table("x", "c")]},
        {},
    ),
    "shares": (
        {"m": [moments(["x", "y"]), table("c")], "p": dps.Proportion("b and x < 0")},
        {"shares": {"m": 0.3, "p": Fraction(1, 7)}},
    ),
    "shares of one block": (
        {"t": dps.Marginals(["c", "b"]), "u": dps.Marginals(["c", "b"]), "p": dps.Proportion("d")},
        {"shares": {"t": 1, "u": 3, "p": 0.1}},
    ),
    "reference and shares": (
        {"m": [moments(["y"], degree=2)], "p": dps.Proportion("c == 'b'")},
        {
            "reference": dps.PerturbedHistogram(0.1),
            "shares": {"m": 1, "p": 2},
            "epsilon": 1000,
        },
    ),
    "lattice": (
        {"m": [table("x", "y")]},
        {"reference": dps.BernsteinKDE(["x", "y"], k=2, share=0.9), "n": 1, "epsilon": 1000},
    ),
}
GRID, GRID_OF_M = {"Intercept": (0, 2, 3), "x": (-1, 1, 3)}, {"m": (-1, 1, 3)}


def absolute(row, at):
    return np.abs(row["x"] - at["m"]) * (1 + (row["b"] == "true"))


KINDS = {
    "signs": dps.Moments.of(SCHEMA, ["x"], signs=["b", "d"]),
    "moments of a subgroup": dps.Moments.of(SCHEMA, ["x", "y"], given="b"),
    "products of several groups": dps.Moments.of_terms(
        SCHEMA, [(("x", None), ("y", None), (name, 1)) for name in ("b", "d")]
    ),
    "means of groups": GroupMoments.by(SCHEMA["x"], SCHEMA["c"], (0, 1)),
    "ratio": dps.Ratio("x", "y").family(SCHEMA).blocks[0],
    "clipped moments": BallMoments.of(SCHEMA, ["x", "y"], 0.8),
    "fourth powers": third_and_fourth_powers(SCHEMA, ["x", "y"]),
    "fourth moments of pairs": fourth_moments_of_pairs(SCHEMA, ["x", "y"]),
    "robust errors": dps.OLS("y ~ x + b", cov_type="HC1").family(SCHEMA).blocks[1],
    "offsets in bins": BinOffsets.of(SCHEMA, ["c", "x"], "x"),
    "losses": dps.LossGrid(dps.HuberLoss(1.5), "y ~ x", GRID).family(SCHEMA).blocks[0],
    "tabulated losses": dps.TabulatedLoss.of(SCHEMA, ["x", "b"], GRID_OF_M, absolute).losses,
}
PLANS |= {name: ({"m": [block]}, {"epsilon": 1000}) for name, block in KINDS.items()}
BUDGETS = [(kind, unit) for kind in (dps.PureDP, dps.ZCDP) for unit in ("replace", "add_remove")]


@pytest.fixture
def make_plan(asking):
    def make(name, amount=None, kind=dps.PureDP, unit="replace"):
        asked, options = PLANS[name]
        options = {"epsilon": Fraction(1, 3)} | options
        usual = options.pop("epsilon")
        analyses = {n: asking(*a) if isinstance(a, list) else a for n, a in asked.items()}
        return dps.plan(SCHEMA, analyses, budget=kind(amount or usual), unit=unit, **options)

    return make


@pytest.mark.parametrize("name", PLANS)
def test_p49_p51_the_loss_of_a_whole_plan_is_at_most_its_budget(guard, name, make_plan):
    for kind, unit in BUDGETS:
        used = guard(make_plan(name, kind=kind, unit=unit))
        # Not vacuous: a budget that is mostly unused would hide a planted bug.
        assert used > 0.3, (kind, unit, float(used))


def test_p49_for_budgets_that_are_no_short_binary_numbers(guard, make_plan):
    for epsilon in [1 / 3, 0.1, 5, 1e-3]:
        assert guard(make_plan("monomials", epsilon)) > 0.999
    for kind in (dps.ZCDP, lambda epsilon: dps.ApproxDP(epsilon, 1e-6)):
        assert guard(make_plan("pairs", 0.1, kind)) > 0.999


def test_p49_residuals_spend_all_of_rho_for_some_pair_of_rows(guard, make_plan):
    for unit in ["replace", "add_remove"]:
        for name in ["pairs", "triples"]:
            assert guard(make_plan(name, kind=dps.ZCDP, unit=unit)) > 0.999


STEEP = [(0, 0, 0), (100, -256, 3), (-100, 256, 0), (0.4, 1.3, -0.8)]


def in_two_stages(guard, monkeypatch, pilot, kind, unit):
    """A plan whose pilot is planted: it may be anything that the first stage's answers give."""
    planned = dps.plan(SCHEMA, {"l": dps.Logistic("b ~ x + d", stages=2)},
                       budget=kind(Fraction(1, 3)), unit=unit)  # fmt: skip
    monkeypatch.setattr(second, "pilots", lambda first, blocks, analyses: tuple(
        replace(p, block=p.block.at(np.array(pilot))) if p.pending else p for p in blocks
    ))  # fmt: skip
    guard.sums.clear()  # by plans, which do not have the pilot
    return planned


@pytest.mark.parametrize("pilot", STEEP, ids=str)
@pytest.mark.parametrize(("kind", "unit"), BUDGETS)
def test_p49_the_loss_of_both_stages_is_at_most_the_budget(guard, pilot, unit, kind, monkeypatch):
    guard(in_two_stages(guard, monkeypatch, pilot, kind, unit))


def test_p49_a_plan_read_from_a_file_costs_the_same(guard, tmp_path, make_plan):
    plan = make_plan("cells")
    plan.save(tmp_path / "plan.json")
    assert guard.largest_loss(dps.Plan.load(tmp_path / "plan.json")) == guard.largest_loss(plan)


def with_blocks(plan, blocks):
    return replace(plan, strategy=replace(plan.strategy, blocks=tuple(blocks)))


def test_p49_a_block_listed_twice_is_measured_and_paid_twice(guard, make_plan):
    for kind in [dps.PureDP, dps.ZCDP]:
        plan = make_plan("numbers", kind=kind)
        with pytest.raises(dps.BudgetError, match="spends"):
            guard(with_blocks(plan, 2 * plan.blocks))
        halves = tuple(PlannedBlock(p.block, 2 * p.multiplier) for p in plan.blocks)
        used = guard(with_blocks(plan, 2 * halves))
        assert float(used) == pytest.approx(float(guard(plan)))  # scales are rounded to floats


def unchecked(monkeypatch):
    """A library that does not check its own plans, so that only the guard is left."""
    monkeypatch.setattr(dps.Plan, "check", lambda self, n=None: None)
    monkeypatch.setattr(dps.Plan, "check_kept", lambda self, *, not_private: None)


def test_p61_planted_halved_sensitivity_fails_the_guard(guard, monkeypatch, make_plan):
    for kind in (Table, Indicator, dps.Moments):
        real = kind.sensitivity
        monkeypatch.setattr(
            kind,
            "sensitivity",
            lambda self, unit, real=real: Sensitivity(
                real(self, unit).l1 / 2, real(self, unit).l2_squared / 4
            ),
        )
    for name in ("cells", "monomials", "numbers", "reference and shares"):
        with pytest.raises(AssertionError, match="costs more than the budget"):
            guard(make_plan(name))


def test_p62_planted_double_epsilon_fails_the_guard(guard, monkeypatch, make_plan):
    real = dps.PureDP.multiplier
    monkeypatch.setattr(dps.PureDP, "multiplier", lambda *args: real(*args) / 2)
    with pytest.raises(dps.BudgetError, match="spends"):  # the plan recomputes its own cost
        make_plan("cells")
    unchecked(monkeypatch)
    for name in ("cells", "numbers", "shares of one block"):
        with pytest.raises(AssertionError, match="costs more than the budget"):
            guard(make_plan(name))


def test_p63_planted_block_left_out_of_the_sensitivity_fails_the_guard(
    guard, monkeypatch, make_plan
):
    real = division.relative_price
    monkeypatch.setattr(
        division,
        "relative_price",
        lambda blocks, *rest: real(blocks[1:] or blocks, *rest),
    )
    with pytest.raises(dps.BudgetError, match="spends"):
        make_plan("overlapping")
    unchecked(monkeypatch)
    with pytest.raises(AssertionError, match="costs more than the budget"):
        guard(make_plan("monomials"))


def test_p63_planted_count_that_is_not_paid_for_fails_the_guard(guard, monkeypatch, make_plan):
    plan = make_plan("monomials", unit="add_remove")
    planted = replace(plan.count, multiplier=plan.count.multiplier * Fraction(9, 10))
    plan = with_blocks(plan, (*plan.blocks, planted))
    unchecked(monkeypatch)
    with pytest.raises(AssertionError, match="costs more than the budget"):
        guard(plan)


def test_p64_planted_shared_noise_fails_the_guard(guard, monkeypatch, make_plan):
    real = measuring.add_noise
    monkeypatch.setattr(
        measuring,
        "add_noise",
        lambda sums, scale, noise: sums + real(np.zeros(1, np.int64), scale, noise),
    )
    for name in ("cells", "numbers"):
        with pytest.raises(AssertionError, match="noise shared"):
            guard(make_plan(name))


def test_p64_planted_missing_noise_fails_the_guard(guard, monkeypatch, make_plan):
    real = measuring.add_noise

    def only_the_first(sums, scale, noise):
        noisy = real(sums, scale, noise)
        noisy[1:] = sums[1:]
        return noisy

    monkeypatch.setattr(measuring, "add_noise", only_the_first)
    with pytest.raises(AssertionError, match="a sum without noise"):
        guard(make_plan("cells"))


def test_p69_planted_printed_bernstein_scale_fails_the_guard(guard, monkeypatch, make_plan):
    """BL24 Algorithm 3 prints S(F) (k + 1), with S(F) the sensitivity at one lattice point."""

    def printed(self, unit):
        at_one_point = 1  # in units of the largest kernel value
        return Sensitivity(Fraction(at_one_point * (self.k + 1)), Fraction(self.k + 1))

    assert guard(make_plan("lattice")) > 0.9
    monkeypatch.setattr(KernelLattice, "sensitivity", printed)
    with pytest.raises(AssertionError, match="costs more than the budget"):
        guard(make_plan("lattice"))


PERSONS = {
    "mean": dps.Mean("y"),
    "share": dps.Proportion("b"),
    "difference": dps.Difference("b", by="d"),
    "gap": dps.MeanDifference("y", by="b"),
    "ols": dps.OLS("y ~ b"),
}


@pytest.mark.parametrize("name", PERSONS)
def test_p49_p51_products_of_person_totals_cost_at_most_the_budget(guard, name, monkeypatch):
    """All persons of two rows; and a smaller claim for products, as if they grew like sums."""
    options = {"rows_per_person": 2, "person": "id", "person_totals": True}

    def planned(kind, unit):
        return dps.plan(SCHEMA, {name: PERSONS[name]}, budget=kind(1000), unit=unit, **options)

    plans = [planned(kind, unit) for kind, unit in BUDGETS]
    assert min(guard(plan) for plan in plans) > 0.5
    (block,) = [planned.block for planned in plans[0].strategy.of_persons]
    real = type(block).sensitivity

    def smaller(self, unit):
        claimed = real(self, unit)
        return Sensitivity(claimed.l1 / 4, claimed.l2_squared / 16)

    monkeypatch.setattr(type(block), "sensitivity", smaller)
    for kind, unit in BUDGETS:
        with pytest.raises(AssertionError, match="costs more than the budget"):
            guard(planned(kind, unit))


@pytest.mark.parametrize(("p", "groups"), [(6, 0), (4, 2), (10, 1)])
def test_p50_random_and_coordinate_ascent_search_for_larger_p(p, groups):
    rng = np.random.default_rng(0)
    numbers = [dps.Number(f"x{i}", 0, 1, points=9, missing=0) for i in range(p)]
    others = [dps.Category(f"g{i}", ["a", "b", "c"]) for i in range(groups)]
    schema = dps.Schema([*numbers, *others])
    block = dps.Moments.of(schema, [c.name for c in numbers], [c.name for c in others])
    low, high = block.ranges
    bounds = np.maximum(abs(low), abs(high))
    claimed = block.sensitivity("replace")

    def difference(pair):
        sums = [block.sums({c.name: row[[i]] for i, c in enumerate(schema)}) for row in pair]
        return (sums[0] - sums[1]) / bounds

    best = [0.0, 0.0]
    for power in (1, 2):
        for _ in range(6):
            pair = np.array([[rng.integers(c.code_range[0], c.code_range[1], endpoint=True)
                              for c in schema] for _ in range(2)])  # fmt: skip
            size = np.sum(np.abs(difference(pair)) ** power)
            improved = True
            while improved:
                improved = False
                for side, (i, column) in itertools.product((0, 1), enumerate(schema)):
                    for code in range(column.code_range[0], column.code_range[1] + 1):
                        before, pair[side, i] = pair[side, i], code
                        new = np.sum(np.abs(difference(pair)) ** power)
                        if new > size + 1e-12:
                            size, improved = new, True
                        else:
                            pair[side, i] = before
            best[power - 1] = max(best[power - 1], size)
    assert best[0] <= float(claimed.l1) + 1e-9
    assert best[1] <= float(claimed.l2_squared) + 1e-9
    assert best[0] > 0.75 * claimed.l1  # the search comes near, so it would notice a bug
    assert best[1] > 0.6 * claimed.l2_squared


def test_p63_a_plan_file_that_repeats_functions_is_refused(asking):
    plain = dps.plan(
        SCHEMA, {"m": asking(moments(["x", "y"]))}, budget=dps.PureDP(1)
    ).blocks[0].block.to_dict()  # fmt: skip
    assert block_from_dict(plain, SCHEMA) == moments(["x", "y"])
    x, y, a = ["x", None], ["y", None], ["c", 0]
    for terms in (
        [*plain["terms"], [x]],  # one function twice
        [*plain["terms"], [y, x]],  # a product in another order
        [[x, y, y], [y, x, y]],  # of three numbers too
        [[x, y, y], [x, y, y]],
        [[["c", None]]],  # a category is not a number
        [[["c", 7]]],
        [[["x", 7]]],
        [[["x", 0], ["x", 1]]],  # two bins of one number
        [[]],
        [],
    ):
        with pytest.raises(dps.RequestError, match="distinct terms"):
            block_from_dict(plain | {"terms": terms}, SCHEMA)
    for terms in ([[a, a]], [[a, ["c", 1]]]):
        with pytest.raises(dps.RequestError, match="distinct terms"):
            block_from_dict({"kind": "moments", "terms": terms}, SCHEMA)
    longer = block_from_dict(plain | {"terms": [*plain["terms"], [x, y, y]]}, SCHEMA)
    claimed, whole = (b.sensitivity("replace") for b in (longer, moments(["x", "y"])))
    assert (claimed.l1, claimed.l2_squared) == (whole.l1 + 2, whole.l2_squared + 4)
