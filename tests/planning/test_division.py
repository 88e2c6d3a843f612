"""Second stages in a plan: their part of the budget, files and previews."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps

SCHEMA = dps.Schema([
    dps.Number("x", -2, 2, points=33, edges=[-1, -0.5, 0, 0.5, 1], missing=0),
    *map(dps.Boolean, "uvyz"),
])  # fmt: skip
TWO = dps.Logistic("y ~ x + u + v", stages=2)


def spent(plan, role):
    """The part of the budget of the blocks of a role."""
    blocks = [p for p in plan.strategy.blocks if p.role == role]
    costs = [p.block.cost(plan.budget, plan.neighbours, p.multiplier) for p in blocks]
    return sum(costs) / plan.budget.total


def plan(analyses=None, **options):
    return dps.plan(SCHEMA, analyses or {"it": TWO}, **{"budget": dps.PureDP(1), **options})


def test_an_analysis_alone_gives_half_to_each_stage():
    for budget, allocation, unit in itertools.product(
        (dps.PureDP(0.1), dps.ApproxDP(1, 1e-6)), ("equal", "optimal"), ("replace", "add_remove")
    ):
        made = plan(budget=budget, unit=unit, allocation=allocation)
        assert spent(made, "score") == Fraction(1, 2)
        assert made.cost() == budget.total
        assert made.in_two_stages
    assert plan({"it": dps.Logistic("y ~ x + u + v")}).in_two_stages is False


def test_beside_others_the_second_stage_gets_as_much_as_the_first():
    both = {"it": TWO, "other": dps.OLS("x ~ z", cov_type="HC1")}
    made = plan(both, budget=dps.ZCDP(1))
    assert 0.3 < spent(made, "score") < 0.5
    shared = plan(both, shares={"it": 3, "other": 1})
    assert spent(shared, "score") == Fraction(3, 8)
    assert shared.cost() == 1
    same = {"it": TWO, "again": dps.Logistic("y ~ x + u + v", stages=2)}
    assert len(plan(same).strategy.scores) == 1
    assert spent(plan(same, shares={"it": 1, "again": 1}), "score") == Fraction(1, 2)
    reference = dps.PerturbedHistogram(Fraction(1, 5))
    assert spent(plan(reference=reference, budget=dps.PureDP(99)), "score") == Fraction(2, 5)


def test_a_plan_file_whose_second_stage_was_edited_is_refused():
    made = plan()
    text = json.dumps(made.to_dict())
    assert dps.Plan.from_dict(json.loads(text)) == made
    for edit in (
        lambda blocks: blocks.pop(),
        lambda blocks: blocks[-1].update(role="family"),
        lambda blocks: blocks[0].update(role="score"),
        lambda blocks: blocks[-1].update(pilot=[0] * 4),
        lambda blocks: blocks[-1].update(link="log"),
        lambda blocks: blocks[-1]["terms"].pop(),
        lambda blocks: blocks.append(blocks[-1]),
    ):
        plain = json.loads(text)
        edit(plain["blocks"])
        with pytest.raises(dps.DpstatsError):
            dps.Plan.from_dict(plain)


def test_previews_show_two_stages(fast):
    made = plan(budget=dps.ApproxDP(1, 1e-6))
    guesses = dps.Guesses(shares={"y": 0.3}, correlations={("x", "y"): 0.3})
    even, guessed = made.preview(4_000), made.preview(4_000, like=guesses)
    for shown in (even, guessed):
        assert np.isfinite(shown.widths()["width"]).all()
    pilots = [p.pretended[0].measurements.scores[0].block.pilot for p in (even, guessed)]
    assert pilots[0] is None  # zero, where rows are even
    assert any(pilots[1])


def test_the_count_has_the_part_that_the_page_on_privacy_states():
    """Of the budget, in docs/explanation/privacy/privacy.md."""
    for budget, cells, percent in (
        (dps.PureDP(1), 7, 1), (dps.PureDP(1), 12, 38), (dps.PureDP(1), 1000, 43),
        (dps.ZCDP(1), 3, 1), (dps.ZCDP(1), 4, 11), (dps.ZCDP(1), 7, 26),
    ):  # fmt: skip
        schema = dps.Schema([dps.Category("c", list(range(cells)))])
        asked = {"m": dps.Marginals(["c"], 1)}
        made = dps.plan(schema, asked, budget=budget, unit="add_remove")
        assert spent(made, "count") == Fraction(percent, 100)
