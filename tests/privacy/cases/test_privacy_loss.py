"""Sections E and F: the exact guard of conftest.py on whole plans; planted bugs that it sees."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.tables.cells import Indicator, Table
from dpstats.families.tables.lattice import KernelLattice
from dpstats.measured.strategy import PlannedBlock
from dpstats.planning import allocation
from dpstats.privacy.neighbours import Sensitivity
from dpstats.private import measure as measuring
from dpstats.releases import pilots as second

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


@pytest.fixture
def make_plan(asking):
    def make(name, amount=None, kind=dps.PureDP, unit="replace"):
        asked, options = PLANS[name]
        options = {"epsilon": Fraction(1, 3)} | options
        usual = options.pop("epsilon")
        analyses = {n: asking(*a) if isinstance(a, list) else a for n, a in asked.items()}
        return dps.plan(SCHEMA, analyses, budget=kind(amount or usual), unit=unit, **options)

    return make


def test_p49_the_loss_of_a_whole_plan_is_at_most_epsilon(guard, make_plan):
    for name in PLANS:
        used = guard(make_plan(name))
        # Not vacuous: a budget that is mostly unused would hide a planted bug.
        assert used > 0.5, float(used)


def test_p49_for_budgets_that_are_no_short_binary_numbers(guard, make_plan):
    for epsilon in [1 / 3, 0.1, 5, 1e-3]:
        assert guard(make_plan("monomials", epsilon)) > 0.999


def test_p49_the_loss_of_a_whole_plan_is_at_most_rho(guard, make_plan):
    for name in PLANS:
        assert (
            guard(make_plan(name, kind=dps.ZCDP)) > 0.3
        )  # bounds of groups are not sharp everywhere


def test_p49_residuals_spend_all_of_rho_for_some_pair_of_rows(guard, make_plan):
    for unit in ["replace", "add_remove"]:
        for name in ["pairs", "triples"]:
            assert guard(make_plan(name, kind=dps.ZCDP, unit=unit)) > 0.999


def test_p51_the_loss_of_an_added_row_is_at_most_the_budget(guard, make_plan):
    for kind in [dps.PureDP, dps.ZCDP]:
        for name in PLANS:
            assert guard(make_plan(name, kind=kind, unit="add_remove")) > 0.3


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
@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", [dps.PureDP, dps.ZCDP])
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
    real = allocation.relative_price
    monkeypatch.setattr(
        allocation,
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
