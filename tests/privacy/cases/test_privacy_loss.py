"""Sections E and F: no row costs more than the budget, in rationals; planted bugs are seen."""

import itertools
import os
from dataclasses import replace
from fractions import Fraction
from functools import partial
from operator import truediv

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.auditing import pairs
from dpstats.families.ball_moments import BallMoments
from dpstats.families.tables.cells import Indicator, Table
from dpstats.families.tables.lattice import KernelLattice
from dpstats.planning import division
from dpstats.privacy import noise
from dpstats.privacy.neighbours import Sensitivity
from dpstats.private import measure as measuring
from dpstats.releases import pilots as second

CELLS = {
    "c": ["a", "b", None], "b": [False, True], "d": [False, True],
    "x": [-1.0, 0.0, 1.0], "y": [0.0, 1.0, 2.0], "z": [17.5, 22.0, 27.0],
}  # fmt: skip
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
    blocks = [*measured.measured, *measured.scores, *measured.of_persons]
    blocks += [block for block in (measured.reference, measured.count) if block is not None]
    marked = np.concatenate([block.sums for block in blocks])
    sums = (marked + HALF) % COORDINATE - HALF
    marks = marked - sums
    calls = marks // CALL
    assert calls.min() >= 1, "a sum without noise"
    assert len(np.unique(marks)) == len(marks), "noise shared by two sums"
    return sums, [Fraction(source.scales[call - 1]) for call in calls]


def largest_loss(plan):
    """Largest privacy loss over all tables of one person with all rows that it may have, exactly.

    Between all pairs of them, or between each and the empty one: the sum of changes over scales, or
    under Gaussian noise of their squares over two.
    """
    gaussian, replaced = plan.budget.noise == "gaussian", plan.unit == "replace"
    names = plan.columns.names
    every = list(itertools.product(*map(CELLS.get, names)))
    persons = itertools.combinations_with_replacement(every, plan.rows_per_person)
    tables = [tuple(zip(*rows, strict=True)) for rows in persons]
    if not replaced:
        tables.insert(0, ((),) * len(names))
    results = []
    for cells in tables:
        columns = zip(names, cells, strict=True)
        arrays = {n: pa.array(held, TYPES.get(n, pa.float64())) for n, held in columns}
        if plan.person is not None:
            arrays[plan.person] = pa.array(["one person"] * len(cells[0]))
        results.append(sums_and_scales(plan, pa.table(arrays)))
    scales = results[0][1]
    assert all(other == scales for _, other in results), "the noise depends on the data"
    sums = np.stack([total for total, _ in results])
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


@pytest.fixture
def guard(monkeypatch):
    """Asserts that no row costs more than a plan's budget; the share of it that one row costs."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # tables of a row, thousands of them

    def check(plan):
        loss = largest_loss(plan)
        assert loss <= plan.budget.total, "a row costs more than the budget"
        return loss / plan.budget.total

    return check


SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b"], allow_missing=True), dps.Boolean("b"), dps.Boolean("d"),
    dps.Number("x", -1, 1, points=5, edges=[0, 0.75], missing=0),
    dps.Number("y", 0, 2, points=3, edges=[1], missing=1),
    dps.Number("z", values=[17.5, 22, 27], missing=22),
])  # fmt: skip


table = partial(dps.Cells.table, SCHEMA)
moments = partial(dps.Moments.of, SCHEMA)
PLANS = {
    "group": ({"p": dps.Proportion("b", given="c == 'a'"), "q": dps.Proportion("d")}, {}),
    "cells": ({"m": dps.Marginals(["c", "b", "x"]), "p": dps.Proportion("x < 0")}, {}),
    "pairs": ({"m": dps.Marginals(["c", "b", "d"])}, {}),
    "triples": ({"m": dps.Marginals(["c", "b", "d"], degree=3)}, {"weights": "max"}),
    "monomials": ({"m": dps.Marginals(["b", "d"], 2, "monomials")}, {}),
    "numbers": ({"m": [moments(["x", "z"])]}, {}),
    "overlapping": ({"m": [moments(["x"], ["c"])], "k": [moments(["x"]), table(["x", "c"])]}, {}),
    "shares": ({"m": [moments(["y"]), table(["c"])], "p": dps.Proportion("b and y < 1")},
               {"shares": {"m": 0.3, "p": Fraction(1, 7)}}),
    "shares of one block": ({"t": dps.Marginals(["c", "b"]), "u": dps.Marginals(["c", "b"]),
                             "p": dps.Proportion("d")}, {"shares": {"t": 1, "u": 3, "p": 0.1}}),
    "reference and shares": (
        {"m": [moments(["y"], degree=2)], "p": dps.Proportion("c == 'b'")},
        {"reference": dps.PerturbedHistogram(0.1), "shares": {"m": 1, "p": 2}, "epsilon": 1000}),
    "lattice": ({"m": [table(["x", "y"])]}, {"reference": dps.BernsteinKDE(
        ["x", "y"], k=2, share=0.9), "n": 1, "epsilon": 1000}),
}  # fmt: skip
GRID = {"Intercept": (0, 2, 3), "x": (-1, 1, 3)}
KINDS = {
    "moments of a subgroup": dps.Moments.of(SCHEMA, ["x", "y"], given="b"),
    "ratio": dps.Ratio("x", "y").family(SCHEMA).blocks[0],
    "clipped moments": BallMoments.of(SCHEMA, ["x", "y"], 0.8),
    "robust errors": dps.OLS("y ~ x + b", cov_type="HC1").family(SCHEMA).blocks[1],
    "losses": dps.LossGrid(dps.HuberLoss(1.5), "y ~ x", GRID).family(SCHEMA).blocks[0],
}
PLANS |= {name: ({"m": [block]}, {"epsilon": 1000}) for name, block in KINDS.items()}
BUDGETS = [(dps.PureDP, "replace"), (dps.ZCDP, "add_remove")]
OTHERS = [(dps.PureDP, "add_remove"), (dps.ZCDP, "replace")]
CASES = [
    *((name, *budget, 1) for name in PLANS for budget in BUDGETS),
    *((name, *budget, 1) for name in ("group", "cells", "numbers", "reference and shares")
      for budget in OTHERS),
    *((name, *budget, 2) for name in ("pairs", "numbers") for budget in BUDGETS),
]  # fmt: skip


@pytest.fixture
def make_plan(asking):
    def make(name, amount=None, kind=dps.PureDP, unit="replace", rows_per_person=1):
        asked, options = PLANS[name]
        options = {"epsilon": Fraction(1, 3), "rows_per_person": rows_per_person} | options
        budget = kind(amount or options.pop("epsilon"))
        analyses = {n: asking(*a) if isinstance(a, list) else a for n, a in asked.items()}
        options.pop("epsilon", None)
        return dps.plan(SCHEMA, analyses, budget=budget, unit=unit, **options)

    return make


@pytest.mark.parametrize("case", CASES, ids=str)
def test_p46_p49_p51_the_loss_of_a_whole_plan_is_at_most_its_budget(guard, case, make_plan):
    """And every sum has a noise of its own, where most cells of a table are empty."""
    name, kind, unit, rows = case
    used = guard(make_plan(name, kind=kind, unit=unit, rows_per_person=rows))
    # Not vacuous: a budget that is mostly unused would hide a planted bug. Residuals spend all.
    assert used > (0.999 if name in ("pairs", "triples") and kind is dps.ZCDP else 0.3)


@pytest.mark.parametrize("pilot", [(100, -256, 3), (0.4, 1.3, -0.8)], ids=str)
@pytest.mark.parametrize(("kind", "unit"), BUDGETS)
def test_p49_the_loss_of_both_stages_is_at_most_the_budget(guard, pilot, unit, kind, monkeypatch):
    """The pilot is planted: it may be anything that the first stage's answers give."""
    monkeypatch.setattr(second, "pilots", lambda first, blocks, analyses: tuple(
        replace(p, block=p.block.at(np.array(pilot))) if p.pending else p for p in blocks
    ))  # fmt: skip
    asked = {"l": dps.Logistic("b ~ x + d", stages=2)}
    guard(dps.plan(SCHEMA, asked, budget=kind(Fraction(1, 3)), unit=unit))


def unchecked(monkeypatch):
    """A library that does not check its own plans, so that only the guard is left."""
    monkeypatch.setattr(dps.Plan, "check", lambda self, n=None: None)
    monkeypatch.setattr(dps.Plan, "check_kept", lambda self, *, not_private: None)


COSTS = "costs more than the budget"


def test_p63_planted_count_that_is_not_paid_for_fails_the_guard(guard, monkeypatch, make_plan):
    plan = make_plan("monomials", unit="add_remove")
    planted = replace(plan.count, multiplier=plan.count.multiplier * Fraction(9, 10))
    strategy = replace(plan.strategy, blocks=(*plan.blocks, planted))
    unchecked(monkeypatch)
    with pytest.raises(AssertionError, match=COSTS):
        guard(replace(plan, strategy=strategy))


def part_of(share, real):
    """A claim of a part of the right sensitivity."""

    def sensitivity(self, unit):
        claimed = real(self, unit)
        return Sensitivity(claimed.l1 * share, claimed.l2_squared * share**2)

    return sensitivity


def printed(real):
    """BL24 Algorithm 3 prints S(F) (k + 1), with S(F) the sensitivity at one lattice point, 1."""
    return lambda self, unit: Sensitivity(Fraction(self.k + 1), Fraction(self.k + 1))


# Plans; what is replaced, by what; what the guard says; and a plan that the library refuses itself.
PLANTED = {
    "halved sensitivity": (
        ["group", "monomials", "numbers"],
        [(kind, "sensitivity") for kind in (Table, Indicator, dps.Moments)],
        partial(part_of, Fraction(1, 2)), COSTS, None,
    ),
    "double epsilon": (
        ["pairs"], [(dps.PureDP, "multiplier")],
        lambda real: lambda *args: real(*args) / 2, COSTS, "pairs",
    ),
    "a block left out": (
        ["monomials"], [(division, "relative_price")],
        lambda real: lambda blocks, *rest: real(blocks[1:] or blocks, *rest), COSTS, "overlapping",
    ),
    "shared noise": (
        ["pairs"], [(measuring, "add_noise")],
        lambda real: lambda sums, *rest: sums + real(np.zeros(1, np.int64), *rest),
        "noise shared", None,
    ),
    "missing noise": (
        ["cells"], [(measuring, "add_noise")],
        lambda real: lambda sums, *rest: np.concatenate([real(sums[:1], *rest), sums[1:]]),
        "a sum without noise", None,
    ),
    "printed Bernstein scale": (
        ["lattice"], [(KernelLattice, "sensitivity")], printed, COSTS, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_p61_p62_p63_p64_p69_planted_bugs_fail_the_guard(guard, name, monkeypatch, make_plan):
    plans, replaced, bug, said, refused = PLANTED[name]
    for owner, attribute in replaced:
        monkeypatch.setattr(owner, attribute, bug(getattr(owner, attribute)))
    if refused is not None:
        with pytest.raises(dps.BudgetError, match="spends"):  # a plan recomputes its own cost
            make_plan(refused)
    unchecked(monkeypatch)
    for plan in plans:
        with pytest.raises(AssertionError, match=said):
            guard(make_plan(plan))


@pytest.mark.parametrize("asked", [dps.MeanDifference("y", by="b"), dps.OLS("y ~ b")], ids=type)
def test_p49_p51_products_of_person_totals_cost_at_most_the_budget(guard, asked, monkeypatch):
    """All persons of two rows; and a smaller claim for products, as if they grew like sums."""
    options = {"rows_per_person": 2, "person": "id", "person_totals": True}

    def planned(kind, unit):
        return dps.plan(SCHEMA, {"a": asked}, budget=kind(1000), unit=unit, **options)

    for budget in BUDGETS:
        assert guard(planned(*budget)) > 0.5
    (block,) = [planned.block for planned in planned(*BUDGETS[0]).strategy.of_persons]
    smaller = part_of(Fraction(1, 4), type(block).sensitivity)
    monkeypatch.setattr(type(block), "sensitivity", smaller)
    for budget in BUDGETS:
        with pytest.raises(AssertionError, match=COSTS):
            guard(planned(*budget))


@pytest.mark.parametrize(("p", "groups"), [(4, 2), (10, 1)])
def test_p50_random_and_coordinate_ascent_search_for_larger_p(p, groups, monkeypatch):
    monkeypatch.setattr(pairs, "_MOST_ROWS", 200)
    numbers = [dps.Number(f"x{i}", 0, 1, points=9, missing=0) for i in range(p)]
    others = [dps.Category(f"g{i}", ["a", "b", "c"]) for i in range(groups)]
    schema = dps.Schema([*numbers, *others])
    block = dps.Moments.of(schema, [c.name for c in numbers], [c.name for c in others])
    claimed, rng = block.sensitivity("replace"), np.random.default_rng(0)
    for power, most in ((1, claimed.l1), (2, claimed.l2_squared)):
        search = pairs.Search(schema, [block], [block.bounds], power, True, rng)
        # It comes near, so it would notice a bug.
        assert 0.99 * most < search.change(search.farthest()) <= most
