"""How overlapping tables share their part of the budget, against published and direct optima."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.tables.cells import ROWS, Table, tables_of_degree
from dpstats.families.tables.residuals import Residual
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.planning.table_split import TableSplit

EIGHT = (9, 16, 7, 15, 6, 5, 2, 2)  # levels of eight columns of Adult
RHO = 0.014973


def tables(levels, *degrees):
    schema = dps.Schema([dps.Category(f"c{i}", list(range(n))) for i, n in enumerate(levels)])
    return [t for d in degrees for t in tables_of_degree(schema, schema.names, d)]


def test_the_noise_is_that_of_residual_planner():
    """Errors in counts at rho .014973; Xiao et al. (2023) in closed form, adding or removing."""
    for levels, degrees, unit, published in (
        (EIGHT, (2,), "add_remove", 22.28),
        (EIGHT, (3,), "add_remove", 27.68),
        (EIGHT, (2,), "replace", 31.77),
    ):
        split = TableSplit(tables(levels, *degrees), unit, "cells")
        variances = split.spread @ (split.shrinkage / (2 * RHO * split.precisions))  # of all cells
        if unit == "add_remove":
            closed = np.sqrt(split.shrinkage * split.spread.sum(axis=0)).sum() ** 2 / (2 * RHO)
            assert variances.sum() == pytest.approx(closed)
        assert np.sqrt(variances.sum() / split.cells.sum()) == pytest.approx(published, abs=0.006)


@pytest.mark.parametrize(("unit", "weights"), [("add_remove", "balanced"), ("replace", "max")])
def test_a_general_solver_finds_nothing_better(unit, weights):
    """SLSQP from two starts on the convex program in r, all sets of differing columns."""
    split = TableSplit(tables((3, 4, 2, 2), 2), unit, weights)
    size = len(split.sets)

    def value(r):
        own = split.spread @ (split.shrinkage / (2 * np.maximum(r, 1e-9))) * split._first_weights
        return float(np.log(np.sum(own**40)) / 40 if weights == "max" else np.log(own.sum()))

    found = [
        minimize(value, np.full(size, start / size), method="SLSQP", bounds=[(1e-6, 1)] * size,
                 constraints=[{"type": "ineq", "fun": lambda r: 1 - split.changes @ r}],
                 options={"maxiter": 500, "ftol": 1e-10}).x
        for start in (0.3, 0.1)
    ]  # fmt: skip
    mine, *others = (split.value(split.shrinkage / (2 * r)) for r in (split.precisions, *found))
    assert (split.changes @ split.precisions).max() <= 1 + 1e-9
    assert mine <= 1.002 * min(others)


@pytest.mark.parametrize(("columns", "residual"), [(16, True), (17, False)])
def test_whole_tables_are_measured_where_the_cost_of_residuals_is_only_bounded(columns, residual):
    names = [f"c{i}" for i in range(columns)]
    schema = dps.Schema([dps.Category(name, list(range(5))) for name in names])
    chain = {one: dps.Marginals([one, other]) for one, other in itertools.pairwise(names)}
    made = dps.plan(schema, chain, budget=dps.ZCDP(1), reference=dps.LogLinear())
    assert bool(made.strategy.tables) is residual
    assert made.cost() == 1


SCHEMA = dps.Schema([
    dps.Category("a", list("pqr")), dps.Category("b", list("stuv")), dps.Boolean("c"),
    dps.Number("x", 0, 1, missing=0),
])  # fmt: skip


THREE = dps.Marginals(["a", "b", "c"])


def plan(analyses, budget=None, **options):
    return dps.plan(SCHEMA, analyses, budget=budget or dps.ZCDP(Fraction(1, 7)), **options)


@pytest.mark.parametrize("budget", [dps.ZCDP(Fraction(1, 7)), dps.PureDP(Fraction(1, 7))], ids=str)
def test_a_plan_spends_its_budget_exactly_and_comes_back(budget):
    asked = {"m": THREE, "x": dps.Mean("x")}
    for unit, weights in (("replace", "balanced"), ("add_remove", "max"), ("replace", "equal")):
        made = plan(asked, budget, unit=unit, weights=weights)
        assert made.cost() == budget.total
        assert dps.Plan.from_dict(made.to_dict()).digest == made.digest
        residual = weights != "equal" and budget.noise == "gaussian"
        assert bool(made.strategy.tables) is residual
        assert [len(b.columns) for b in made.published.blocks][:3] == [2, 2, 2]


def test_tables_that_are_needed_as_measured_or_overlap_with_none_stay_whole():
    made = plan({"m": THREE, "d": dps.Difference("c", by="a", groups=("p", "q"))})
    a, b, c, _ = SCHEMA.columns
    assert (a, c) in [of.columns for of in made.family.blocks if not isinstance(of, Residual)]
    assert [t.columns for t in made.strategy.tables] == [(a, b), (b, c)]
    apart = plan({"one": dps.Marginals(["a", "b"]), "two": dps.Marginals(["c"], degree=1)})
    assert not apart.strategy.tables


def test_shares_and_weights_exclude_each_other():
    asked, shares = {"m": THREE, "p": dps.Proportion("c")}, {"m": 1, "p": 1}
    assert not plan(asked, shares=shares).strategy.tables
    with pytest.raises(RequestError, match="not both"):
        plan(asked, shares=shares, weights="max")
    with pytest.raises(RequestError, match="weights must be"):
        plan(asked, weights="optimal")


@pytest.mark.parametrize(("budget", "unit", "weights"), [
    (dps.ZCDP(0.1), "add_remove", "cells"), (dps.PureDP(1), "replace", "balanced"),
], ids=str)  # fmt: skip
def test_no_other_share_of_the_tables_has_less_noise(budget, unit, weights):
    """`allocation="optimal"` beside a condition and moments: the weighted sum of all variances."""
    n = 5_000 if unit == "replace" else None
    asked = {
        "m": THREE, "condition": dps.Proportion("a == 'p' and b == 's' and c"), "x": dps.Mean("x"),
    }  # fmt: skip
    made = plan(asked, budget, unit=unit, allocation="optimal", weights=weights, n=n)
    strategy, published = made.strategy, made.published
    tables = [isinstance(one.block, Table | Residual) for one in strategy.blocks]
    others = sum(
        one.block.cost(budget, strategy.neighbours, one.multiplier)
        for one, table in zip(strategy.blocks, tables, strict=True)
        if not table and one.role == "family"
    )
    rest = 0 if made.count is None else ROWS.cost(budget, made.neighbours, made.count.multiplier)
    spent = budget.total - others - rest  # on the tables; their residuals cost jointly

    def weighted(moved):
        """With so much of the budget moved from the other blocks to the tables."""
        times = [1 + moved / spent if table else 1 - moved / others for table in tables]
        blocks = tuple(
            replace(one, multiplier=one.multiplier / (by if one.role == "family" else 1))
            for one, by in zip(strategy.blocks, times, strict=True)
        )
        sums = np.full(sum(one.block.size for one in blocks), 5_000.0)  # the last is their number
        held = Measurements(replace(strategy, blocks=blocks), sums, 0 * sums, not_private=True)
        sizes = np.array([block.size for block in published.blocks])
        weight = np.repeat(sizes ** (-0.5 if weights == "balanced" else 0.0), sizes)
        return float(weight @ answer(held, published).noise_variances)

    moves = [min(spent, others) * Fraction(i, 20) for i in range(-16, 17, 4)]
    assert weighted(Fraction(0)) <= 1.003 * min(map(weighted, moves))
    assert made.cost() == budget.total
