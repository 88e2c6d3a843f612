"""The part of the budget for the number of rows, where tables count all rows too."""

from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.tables.cells import ROWS

BUDGETS = [dps.PureDP(Fraction(3, 7)), dps.ZCDP(Fraction(1, 9))]
FEW, MANY, HUGE = dps.Marginals(["few"], 1), dps.Marginals(["many"], 1), dps.Marginals(["huge"], 1)
SCHEMA = dps.Schema([
    dps.Category("few", ["a", "b"]),
    dps.Category("many", list("abcdefg")),
    dps.Category("huge", [f"{i}" for i in range(40)]),
    dps.Boolean("y"),
    dps.Number("x", -1, 1, missing=0),
])  # fmt: skip
ASKED = {
    "few": {"m": FEW},
    "many": {"m": MANY},
    "huge": {"m": HUGE},
    "two tables": {"m": MANY, "n": FEW},
    "table, condition": {"m": FEW, "p": dps.Proportion("y")},
    "table, moments": {"m": HUGE, "x": dps.Mean("x")},
}


def made(asked, budget, **options):
    return dps.plan(SCHEMA, asked, budget=budget, unit="add_remove", **options)


def share(plan):
    return ROWS.cost(plan.budget, plan.neighbours, plan.count.multiplier) / plan.budget.total


def noise(plan):
    """Largest sd of (sum - N) over functions of mean one, by least squares on all unknown sums.

    Continuous laws, whose ratios are the same at every budget.
    """
    blocks = [one for one in plan.strategy.blocks if not one.block.calibrates]
    sizes = [one.block.size for one in blocks if one.role == "family"]
    design, variances, at = [], [], 0
    for one, size in zip(blocks, sizes, strict=False):
        own = np.zeros((size, sum(sizes) + 1))
        own[:, at : at + size] = np.eye(size)
        design.append(own)
        power = 2 if plan.budget.noise == "laplace" else 1
        variances += [float(one.multiplier) ** power] * size
        if one.block.kind == "table":  # its cells add up to the number of rows, the last unknown
            total = np.zeros((1, sum(sizes) + 1))
            total[0, at : at + size], total[0, -1] = 1, -1
            design.append(total)
            variances.append(1e-9)
        at += size
    own = np.zeros((1, sum(sizes) + 1))
    own[0, -1] = 1
    design.append(own)
    variances.append(float(plan.count.multiplier) ** power)
    matrix = np.concatenate(design)
    law = np.linalg.inv(matrix.T / np.array(variances) @ matrix)
    return np.sqrt(np.diag(law)[:-1] - 2 * law[:-1, -1] + law[-1, -1])


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp"])
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_no_share_of_rows_has_more_than_1_03_times_its_noise(asked, budget, monkeypatch):
    least = made(asked, budget)
    monkeypatch.setattr("dpstats.planning.division._least_count", lambda rule, planned, fair: fair)
    fair = made(asked, budget)
    monkeypatch.setattr(
        "dpstats.planning.division._least_count",
        lambda rule, planned, fair: budget.total * (share(least) - Fraction(1, 100)),
    )
    assert Fraction(1, 100) <= share(least) < share(fair)
    assert least.cost() == fair.cost() == budget.total
    assert all(a.multiplier < b.multiplier for a, b in
               zip(least.strategy.measured, fair.strategy.measured, strict=True))  # fmt: skip
    assert np.all(noise(least) <= 1.03 * noise(fair) * (1 + 1e-6))
    if share(least) > Fraction(1, 100):  # and it is the least
        assert np.any(noise(made(asked, budget)) > 1.03 * noise(fair))


def test_the_share_does_not_depend_on_the_budget_or_the_rows_of_a_person():
    for asked in ASKED.values():
        shares = [
            {share(made(asked, kind(size), rows_per_person=k))
             for size in (Fraction(1, 1000), 50) for k in (1, 3)}
            for kind in (dps.PureDP, dps.ZCDP)
        ]  # fmt: skip
        assert [len(some) for some in shares] == [1, 1]


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp"])
def test_without_a_table_the_number_of_rows_keeps_its_fair_part(budget):
    assert share(made({"p": dps.Proportion("y")}, budget)) == Fraction(1, 2)
    assert share(made({"p": dps.Proportion("y"), "q": dps.Proportion("few == 'a'")}, budget)) == (
        Fraction(1, 3)
    )


@pytest.mark.parametrize("options", [{"allocation": "optimal"}, {"shares": {"d": 1}}, {}])
def test_a_difference_has_nearly_all_of_its_budget(options):
    plan = made({"d": dps.Difference("y", by="few")}, dps.PureDP(3), **options)
    assert share(plan) == Fraction(1, 100)
    assert [one.multiplier for one in plan.strategy.measured] == [Fraction(100, 3 * 99)]
