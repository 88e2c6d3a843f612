"""The second opinion on files of sample surveys: weights, sets of cells, contrasts of units."""

import itertools

import pytest

import dpstats as dps
from dpstats.verifying import blocks
from dpstats.verifying.design import count_pairs
from dpstats.verifying.shapes import NotReadError

PURE = dps.PureDP(2)
LISTED = [
    {"north": [1, 2, 3, 4, 5], "south": [11, 12]},
    {"a": [1, 2, 3], "b": [4], "c": [5]},
    {"a": [1]},
    {"a": [1], "b": [2], "c": [3]},
]


def test_every_block_of_a_plan(weighted, unit, budget, reread, differences, judge):
    plan = weighted(budget, unit)
    blocks_of_plan = reread(plan).blocks
    held = {(one.block.kind, one.role) for one in blocks_of_plan}
    assert {("partition", "family"), ("contrasts", "contrasts"), ("table", "count")} <= held
    assert differences(plan) == []
    rotated = [p.block.rotated for p in plan.strategy.blocks if p.block.kind == "partition"]
    assert any(rotated) == (unit == "replace")
    for one in blocks_of_plan:
        if one.role == "contrasts":  # a row that stays and changes its unit moves them twice
            added = blocks.find_weighted(one.block, "add_remove", 2).bound
            assert blocks.find_weighted(one.block, "replace", 2).bound == 4 * added
        if one.role == "count" and unit == "replace":  # a weight changes; a row does not
            assert blocks.find(one.block, "replace", 1).bound == 0
            assert blocks.find_weighted(one.block, "replace", 1).bound == 1
    verdict = judge(plan)
    assert verdict.agrees, verdict.text
    assert verdict.reached == verdict.bound == plan.budget.total
    assert "weighted by 'weight', at most 2500, in 4,096 steps" in verdict.text


def test_splines_and_contrasts_of_their_scores(weighted, reread, differences, judge):
    asked = {"odds of some": dps.Logistic("smoker ~ age", given="level == 'a'")}
    plan = dps.plan(weighted(PURE, "replace").schema, asked, budget=PURE, n=500)
    (splines,) = (o.block for o in reread(plan).blocks if o.block.kind == "spline_table")
    assert differences(plan) == []
    for unit, power in itertools.product(("replace", "add_remove"), (1, 2)):
        assert blocks.find_weighted(splines, unit, power).bound == 1 + (unit == "replace")
    verdict = judge(plan)
    assert verdict.agrees, verdict.text
    assert verdict.bound == plan.budget.total


def test_it_counts_pairs_as_the_package_does_and_knows_units_that_are_not_listed(weighted, judge):
    for units, lonely in itertools.product(LISTED, ["certainty", "adjust", "collapse"]):
        design = dps.Design("w", mean=1, cap=2, strata="s", unit="u", units=units, lonely=lonely)
        counted = design.pairs.plain, design.pairs.triples
        assert count_pairs(design.to_dict()) == counted, (units, lonely)
    for options in ({"unit": "u", "units": 40}, {"deff": 1.5}):
        design = dps.Design("w", mean=1, cap=2, **options)
        assert "deff" in options or count_pairs(design.to_dict()) == (design.pairs.plain, 0)
        assert judge(weighted(PURE, "replace", design)).agrees, options


def test_persons_beside_a_design(weighted, judge, unit, budget):
    plan = weighted(budget, unit, person="id", rows_per_person=3)
    verdict = judge(plan)
    assert verdict.agrees, verdict.text
    assert verdict.reached == plan.budget.total
    assert f"each block costs {3 if budget.kind == 'pure' else 9} times" in verdict.text
    assert "not measured; their weights are scaled to 3 caps in all" in verdict.text


def test_odd_knots_keys_of_persons_and_units_that_are_named_twice_are_refused(weighted, judge):
    persons = weighted(PURE, "replace", person="id", rows_per_person=2)
    splines = dps.plan(persons.schema, {"odds": dps.Logistic("smoker ~ age")}, budget=PURE, n=500)
    plain = splines.to_dict()
    (at,) = (block for block in plain["blocks"] if block["kind"] == "spline_table")
    for knots in ([[-12, 0, 0, 12], None], [[-12, 11], None], [[12], None]):
        with pytest.raises(NotReadError):
            judge(plain | {"blocks": [at | {"knots": knots}]})
    for key in ("weight", "region"):
        with pytest.raises(NotReadError, match="tells persons apart"):
            judge(persons.to_dict() | {"person_key": key})
    plain = persons.to_dict()
    for units in ([["a", [1, 2]], ["b", [3, 3.0]]], [["a", [1, 2]], ["a", [3, 4]]]):
        with pytest.raises(NotReadError, match="names a stratum or a unit twice"):
            judge(plain | {"design": plain["design"] | {"units": units}})
