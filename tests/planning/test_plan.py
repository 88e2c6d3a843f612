"""Plans: how the budget is divided, what a file may hold, what a preview promises."""

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.families.tables.cells import ROWS
from dpstats.inference.simulation import draw_from
from dpstats.planning.plan import Plan

SMOKING = dps.Proportion("smoker == 'yes'")
REGION = dps.Marginals(["region"], 1)
NORTH = dps.Proportion("region == 'north'")


def small_plan(schema, **options):
    analyses = {
        "smoking": SMOKING,
        "old": dps.Proportion("smoker == 'yes'", given="age >= 65"),
        "tables": dps.Marginals(["smoker", "region"]),
    }
    return dps.plan(schema, analyses, **{"budget": dps.PureDP(1), **options})


def numbers(names):
    return [dps.Number(name, 0, 1, points=65, missing=0) for name in names]


def spent(plan, blocks=None):
    """The part of the budget of each block."""
    of = plan.blocks if blocks is None else blocks
    parts = [p.block.cost(plan.budget, plan.neighbours, p.multiplier) for p in of]
    return [part / plan.budget.total for part in parts]


def share_of_count(plan):
    return ROWS.cost(plan.budget, plan.neighbours, plan.count.multiplier) / plan.budget.total


def test_equal_noise_or_shares_spend_the_budget_exactly(schema):
    plan = small_plan(schema, budget=dps.PureDP(0.1))
    multipliers = {planned.multiplier for planned in plan.blocks}
    # The table (2), two disjoint conditions (1 each) and one condition that costs less measured.
    assert multipliers == {Fraction(5 * 10)}
    assert plan.cost() == Fraction(1, 10)
    plan = small_plan(schema, shares={"smoking": 1, "old": 1, "tables": 2})
    assert sum(spent(plan)) == 1
    assert dict(zip((p.block.size for p in plan.blocks), spent(plan), strict=True))[6] == 1 / 2
    asked = {"a": dps.Proportion("age >= 65"), "c": NORTH}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), unit="add_remove")
    assert {p.multiplier for p in plan.strategy.measured} == {Fraction(200, 99)}
    plan = dps.plan(schema, {"m": dps.Mean("age")}, budget=dps.PureDP(1), unit="add_remove")
    assert share_of_count(plan) == Fraction(1, 3)  # as much as for each of two sums
    plan = small_plan(schema, reference=dps.PerturbedHistogram(share=0.25), n=2000)
    assert plan.reference_block.multiplier == 8  # L1 of 2 at a quarter of epsilon = 1
    assert plan.cost() == 1
    assert all(p.block is not plan.reference_block.block for p in plan.blocks)


def test_coarse_functions_cost_at_most_three_per_cent():
    """They have at least 16 times the noise; all still spend the budget exactly."""
    for p, analysis, unit, (budget, power) in itertools.product(
        (2, 10), (dps.Covariance, dps.PCA), ("replace", "add_remove"),
        ((dps.PureDP(1), 1), (dps.ZCDP(0.1), 2)),
    ):  # fmt: skip
        names = [f"x{i}" for i in range(p)]
        asked = {"c": analysis(names)}
        plan = dps.plan(dps.Schema(numbers(names)), asked, budget=budget, unit=unit)
        fine, coarse = plan.blocks
        assert coarse.block.calibrates
        factor = coarse.block.noise_factor(budget, unit)
        assert factor >= 16
        assert coarse.multiplier == fine.multiplier * factor**power
        assert plan.cost() == budget.total
        assert 0 < spent(plan)[1] <= Fraction(3, 100)


def test_a_shared_block_takes_its_largest_share(schema):
    analyses = {
        "a": dps.Proportion("age >= 65"), "b": dps.Proportion("not (age < 65)"), "c": NORTH,
    }  # fmt: skip
    shares = {"a": 0.1, "b": 0.4, "c": 0.6}
    for order in ("abc", "bca"):
        asked = {name: analyses[name] for name in order}
        plan = dps.plan(schema, asked, budget=dps.PureDP(1), shares=shares)
        amounts = {p.block.columns[0].name: 1 / p.multiplier for p in plan.blocks}
        assert amounts == {"age": Fraction(2, 5), "region": Fraction(3, 5)}


def test_a_share_is_for_the_blocks_that_answer(schema):
    """Those on the same columns that do not answer get none of it."""
    asked = {
        "p": dps.Proportion("age >= 65"), "t": dps.Marginals(["age"], 1), "m": dps.Mean("age"),
    }  # fmt: skip
    plan = dps.plan(schema, asked, budget=dps.ZCDP(1), shares={"p": 3, "t": 5, "m": 1})
    table, mean = spent(plan)
    assert table == 5 * mean


def test_the_first_stage_of_an_analysis_has_what_its_second_one_leaves(schema):
    asked = {"l": dps.Logistic("smoker ~ age", stages=2), "p": NORTH}
    plan = dps.plan(schema, asked, budget=dps.ZCDP(1), shares={"l": 3, "p": 1})
    blocks, found = plan.strategy.blocks, {"score": 0, "region": 0, "others": 0}
    for p, part in zip(blocks, spent(plan, blocks), strict=True):
        own = "region" if p.block.columns[0].name == "region" else "others"
        found["score" if p.role == "score" else own] += part
    assert found == {"score": Fraction(3, 8), "region": Fraction(1, 4), "others": Fraction(3, 8)}


def test_beside_a_table_the_count_of_rows_has_less_than_its_fair_part(schema, monkeypatch):
    """Cells of a table add up to the rows; what is saved goes to what was asked for."""
    asked = {"t": REGION, "m": dps.Mean("age")}
    for budget in (dps.PureDP(Fraction(3, 7)), dps.ZCDP(Fraction(1, 9))):
        with monkeypatch.context() as patch:
            least = dps.plan(schema, asked, budget=budget, unit="add_remove")
            patch.setattr("dpstats.planning.division._least_count", lambda rule, blocks, part: part)
            fair = dps.plan(schema, asked, budget=budget, unit="add_remove")
        assert Fraction(1, 100) <= share_of_count(least) < share_of_count(fair)
        assert least.cost() == fair.cost() == budget.total
        for one, other in zip(least.strategy.measured, fair.strategy.measured, strict=True):
            assert one.multiplier < other.multiplier
    gap = {"d": dps.Difference("smoker == 'yes'", by="region", groups=("north", "south"))}
    for options in ({"allocation": "optimal"}, {"shares": {"d": 1}}, {}):
        plan = dps.plan(schema, gap, budget=dps.PureDP(3), unit="add_remove", **options)
        assert share_of_count(plan) == Fraction(1, 100)


def test_a_condition_is_measured_with_all_other_rows_where_the_number_of_rows_is_hidden(schema):
    """At half the noise: the sensitivity is one, and the sets add up to the rows."""
    for given, sets in ((None, 2), ("region == 'north'", 3)):
        asked = {"p": dps.Proportion("smoker == 'yes'", given=given)}
        plan = dps.plan(schema, asked, budget=dps.PureDP(1), unit="add_remove")
        [planned] = plan.strategy.measured
        assert (planned.block.kind, planned.block.size) == ("partition", sets)
        assert planned.block.sensitivity("add_remove").l1 == 1
        assert share_of_count(plan) == Fraction(1, 100)
        assert Plan.from_dict(plan.to_dict()) == plan
        assert plan.published.size == sets - 1
    asked = {"old": dps.Proportion("age >= 65"), "young": dps.Proportion("age < 18")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), unit="add_remove")
    assert plan.family.names == ["age >= 65", "age < 18", "all other rows"]
    assert plan.published.names == ["age >= 65", "age < 18"]
    assert plan.strategy.measured[0].multiplier == Fraction(100, 99)


def test_a_share_is_for_the_sets_that_a_condition_is_among(schema):
    """Though it follows from those of a group too."""
    asked = {"a": NORTH, "b": dps.Proportion("smoker == 'yes'", given="region == 'north'")}
    shares = {"a": 3, "b": 1}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), unit="add_remove", shares=shares)
    parts = dict(zip((p.block.size for p in plan.strategy.measured),
                     spent(plan, plan.strategy.measured), strict=True))  # fmt: skip
    assert parts[2] == 3 * parts[3]


def test_an_optimal_split_follows_the_rule_of_lagrange(schema):
    """A condition (d = 1, D = 1) and a table of three cells (d = 3, D1 = D2 = 2)."""
    asked = {"c": dps.Proportion("age >= 65"), "t": REGION}
    for budget, ratio in ((dps.PureDP(1), 12 ** (1 / 3)), (dps.ZCDP(1), 6 ** (1 / 2))):
        plan = dps.plan(schema, asked, budget=budget, allocation="optimal")
        costs = dict(zip((p.block.size for p in plan.blocks), spent(plan), strict=True))
        assert float(costs[3] / costs[1]) == pytest.approx(ratio, rel=1e-4)
    for budget, ratio in ((dps.PureDP(1), 3 ** (1 / 3)), (dps.ZCDP(1), 3 ** (1 / 2))):
        plan = dps.plan(schema, asked, budget=budget, allocation="optimal", unit="add_remove")
        table, condition = spent(plan, plan.strategy.measured)  # beside all other rows: D = 1 each
        assert float(table / condition) == pytest.approx(ratio, rel=1e-4)


def test_an_edited_plan_that_does_not_measure_what_its_reference_needs_is_refused(schema):
    """The rows could not be drawn once the budget is spent."""
    reference = dps.PerturbedHistogram(Fraction(1, 2))
    plain = dps.plan(schema, {"p": SMOKING}, budget=dps.PureDP(1), reference=reference).to_dict()
    assert Plan.from_dict(plain).reference_block is not None
    family, own = plain["blocks"]
    whole = {**family, "multiplier": str(Fraction(family["multiplier"]) / 2)}
    other = {**own, "kind": "condition", "label": "smoker", "cells": [1]}
    other["multiplier"] = family["multiplier"]
    for edited in (
        {"blocks": [whole]}, {"blocks": [family, other]}, {"reference": dps.Uniform().to_dict()}
    ):  # fmt: skip
        with pytest.raises(dps.RequestError, match="what its reference needs"):
            Plan.from_dict(plain | edited)


def test_a_block_listed_twice_pays_twice_and_is_refused(schema):
    budget = dps.ApproxDP(1, 1e-6)
    asked = {"tables": dps.Marginals(["smoker", "region"])}
    plain = dps.plan(schema, asked, budget=budget).to_dict()
    (once,) = plain["blocks"]
    with pytest.raises(dps.BudgetError, match=f"spends {2 * budget.total} and"):
        Plan.from_dict({**plain, "blocks": [once, once]})
    half = {**once, "multiplier": str(2 * Fraction(once["multiplier"]))}
    with pytest.raises(dps.RequestError, match="measures 'smoker=no, region=north' twice"):
        Plan.from_dict({**plain, "blocks": [half, half]})


def test_impossible_plans_and_previews_are_refused(schema):
    for change, message in (
        ({"budget": 1.0}, "PureDP"),
        ({"allocation": "best"}, "allocation must be one of"),
        ({"allocation": "optimal", "shares": {"smoking": 1, "old": 1, "tables": 1}}, "not both"),
        ({"unit": "person"}, "unit must be"),
        ({"reference": dps.Uniform}, "reference must be a density such as"),
        (
            {"reference": dps.PerturbedHistogram(), "n": 10},
            "48 rows of pure noise, more than n = 10",
        ),
    ):
        with pytest.raises(dps.RequestError, match=message):
            small_plan(schema, **change)
    for analyses, message in (
        ({"a": dps.Mean}, r"the class dps\.Mean; .* dps\.Mean\(\.\.\.\)"),
        ({"a": "smoker == 'yes'"}, "not an analysis"),
    ):
        with pytest.raises(dps.RequestError, match=message):
            dps.plan(schema, analyses, budget=dps.PureDP(1))
    with pytest.raises(dps.RequestError, match="number of rows"):
        small_plan(schema).preview()
    with pytest.raises(dps.RequestError, match="progress must be a function"):
        small_plan(schema).preview(1_000, progress="yes")
    with pytest.raises(dps.RequestError, match="rows of pure noise"):
        small_plan(schema, reference=dps.PerturbedHistogram()).preview(10)


@pytest.mark.parametrize(("analysis", "points"), [
    (dps.OLS("y ~ a*b"), 363), (dps.GroupMeans("a", by="old"), 32767),
])  # fmt: skip
def test_grids_too_fine_for_a_hidden_number_of_rows_are_named_with_what_would_do(analysis, points):
    def planned(points):
        fine = [dps.Number(name, 0, 1, points=points, missing=0) for name in "ab"]
        schema = dps.Schema([*fine, *numbers("y"), dps.Boolean("old")])
        options = {"unit": "add_remove", "reference": dps.Uniform()}
        return dps.plan(schema, {"o": analysis}, budget=dps.PureDP(1), **options)

    with pytest.raises(dps.RequestError, match=rf"\['a'.*at most points={points};"):
        planned(50_001)
    with pytest.raises(dps.RequestError, match="too fine"):
        planned(points + 2)
    assert planned(points).family.size > 2


def test_promised_noise_and_widths_are_those_of_releases(schema, survey):
    """Of noise and of sampling, from guesses of about the right size."""
    guesses = dps.Guesses(
        typical={"age": {"mean": 45, "sd": 20}}, shares={"smoker": {"no": 0.7, "yes": 0.3}}
    )
    guessed = dps.Schema(schema.columns, guesses)
    asked = {"line": dps.OLS("age ~ C(smoker)"), "smoking": SMOKING}
    for epsilon in (0.2, 20):
        plan = dps.plan(guessed, asked, budget=dps.PureDP(epsilon), n=len(survey))
        preview = plan.preview()
        promised = preview.widths().set_index("term")["width"]
        release = dps.release(plan, survey, m=200, k=1, rng=0)
        for name in asked:
            found = release.infer(name).intervals_frame().set_index("term")
            ratio = (found["conf_high"] - found["conf_low"]) / promised[found.index]
            assert ratio.between(1 / 1.8, 1.8).all(), (epsilon, ratio)
        frame = preview.to_frame().set_index("name")
        assert frame.loc["line", "of"].startswith("coefficient of C(smoker)[T.yes]")
        assert frame.loc["line", "width"] == promised["C(smoker)[T.yes]"]
        (noise,) = release.answers(SMOKING.family(schema)).noise_variances
        assert frame.loc["smoking", "noise"] == pytest.approx(np.sqrt(noise))
        assert (frame["certified_width"] > frame["width"]).all()
    assert "no data were read" in " ".join(str(preview).split())


def test_expected_delta_is_the_median_of_the_largest_noise(schema):
    """The median of 4,000 draws, seeded."""
    n, asked = 2_000, {"one": dps.Marginals(["smoker", "region"]), "two": dps.Marginals(["age"], 1)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(0.5), n=n, weights="equal")
    expected = plan.preview().accuracy
    assert expected.functions == plan.family.size == 10
    law = plan.budget.law(float(plan.strategy.scales[0]))
    noise = draw_from(law, 40_000, np.random.default_rng(0)).reshape(-1, 10)
    assert abs(np.median(np.abs(noise).max(axis=1)) / n - expected.delta) <= 1 / n


def crowded(n):
    """A regressor and a response that vary little within their bounds, and a rare level."""
    rng = np.random.default_rng(8)
    x = rng.normal(20, 8, n).clip(0, 100)
    y = 0.2 * x + rng.normal(5, 3, n)
    return pd.DataFrame({"x": x, "y": y.clip(0, 100), "g": rng.choice(["a", "b"], n, p=[0.9, 0.1])})


def test_preview_like_a_release_tells_the_widths_of_its_rows(schema):
    declared = [*(dps.Number(name, 0, 100, missing=0) for name in "xy"),
                dps.Category("g", ["a", "b"])]  # fmt: skip
    analyses = {"line": dps.OLS("y ~ x + C(g)"), "even": dps.GoodnessOfFit("g", [0.5, 0.5])}
    n = 10_000
    rich = dps.plan(dps.Schema(declared), analyses, budget=dps.PureDP(100), reference=dps.Uniform())
    like = dps.release(rich, crowded(n), m=3_000, rng=1)
    plan = dps.plan(dps.Schema(declared), analyses, budget=dps.ZCDP(0.2), unit="add_remove")
    shown = plan.preview(n, like=like).widths()
    assert shown["analysis"].tolist() == ["line"] * 3  # a test has no intervals
    released = dps.release(plan, crowded(n), m=200, rng=0).infer("line")
    assert shown["term"].tolist() == released.terms
    actual = np.diff(released.conf_int()).ravel()
    assert shown["width"].to_numpy() == pytest.approx(actual, rel=0.2)
    even = plan.preview(n).widths()["width"]
    assert even[1] < 0.8 * actual[1]  # what even rows promise for x
    # A pattern declares the columns as the plan does.
    wider = dps.Schema([dps.Number("x", 0, 200, missing=0), *declared[1:]])
    for other, asked, column in (
        (schema, {"a": dps.Proportion("age >= 65")}, "age"), (wider, analyses, "x"),
    ):  # fmt: skip
        with pytest.raises(dps.RequestError, match=f"no column '{column}' declared as in the plan"):
            dps.plan(other, asked, budget=dps.PureDP(1)).preview(n, like=like)
