"""The second opinion on files of sample surveys: weights, sets of cells, contrasts of units."""

import json

import pytest

import dpstats as dps
from dpstats.verifying import blocks
from dpstats.verifying.arguing import verify
from dpstats.verifying.design import count_pairs
from dpstats.verifying.shapes import NotReadError

BUDGETS = {"pure": dps.PureDP(2), "zcdp": dps.ZCDP(0.5), "approx": dps.ApproxDP(2, 1e-6)}
LISTED = {
    "odd and even": {"north": [1, 2, 3, 4, 5], "south": [11, 12]},
    "three of one": {"a": [1, 2, 3]},
    "one lonely": {"a": [1, 2], "b": [3], "c": [4, 5, 6]},
    "two lonely": {"a": [1, 2, 3], "b": [4], "c": [5]},
    "only one": {"a": [1]},
    "lonely ones": {"a": [1], "b": [2], "c": [3]},
}


@pytest.mark.parametrize("every_budget", BUDGETS.values(), ids=BUDGETS)
def test_every_block_of_a_plan(weighted, unit, every_budget, reread, differences):
    plan = weighted(every_budget, unit)
    held = {(one.block.kind, one.role) for one in reread(plan).blocks}
    assert {("partition", "family"), ("contrasts", "contrasts"), ("table", "count")} <= held
    assert differences(plan) == []
    rotated = [p.block.rotated for p in plan.strategy.blocks if p.block.kind == "partition"]
    assert any(rotated) == (unit == "replace" and every_budget == BUDGETS["pure"])


@pytest.mark.parametrize("every_budget", BUDGETS.values(), ids=BUDGETS)
def test_the_whole_budget_is_found_to_be_spent(weighted, unit, every_budget, tmp_path):
    plan = weighted(every_budget, unit)
    plan.save(tmp_path / "plan.json")
    verdict = verify(tmp_path / "plan.json")
    assert verdict.agrees, verdict.text
    assert verdict.reached == verdict.bound == plan.budget.total
    assert "weighted by 'weight', at most 2500, in 4,096 steps" in verdict.text


def test_contrasts_cost_twice_as_much_as_an_added_row(weighted, reread):
    for one in reread(weighted(BUDGETS["zcdp"], "replace")).blocks:
        found = blocks.find_weighted(one.block, "replace", 2).bound
        if one.role == "contrasts":
            assert found == 4
            assert one.block.base.plain["kind"] in (
                "partition",
                "table",
                "group_moments",
                "pair_moments",
            )
        assert blocks.find_weighted(one.block, "add_remove", 2).bound == 1


@pytest.mark.parametrize("every_budget", BUDGETS.values(), ids=BUDGETS)
def test_contrasts_of_scores(weighted, unit, every_budget, reread, differences):
    schema = weighted(every_budget, unit).schema
    asked = {"line": dps.OLS("smoker ~ age + level"), "old": dps.OLS("age ~ level*smoker")}
    plan = dps.plan(schema, asked, budget=every_budget, unit=unit, n=500)
    (one, _) = (each for each in reread(plan).blocks if each.role == "contrasts")
    assert one.block.base.plain["link"] == "identity"
    assert differences(plan) == []
    assert blocks.find_weighted(one.block, "add_remove", 2).bound == 3
    assert blocks.find_weighted(one.block, "replace", 2).bound == 12


@pytest.mark.parametrize("every_budget", BUDGETS.values(), ids=BUDGETS)
def test_splines_and_contrasts_of_their_scores(
    weighted, unit, every_budget, reread, differences, tmp_path
):
    schema = weighted(every_budget, unit).schema
    asked = {
        "odds": dps.Logistic("smoker ~ age + level"),
        "rate": dps.Poisson("age ~ smoker", given="level != 'a'"),
        "odds of some": dps.Logistic("smoker ~ age", given="level == 'a'"),
    }
    plan = dps.plan(schema, asked, budget=every_budget, unit=unit, n=500)
    held = reread(plan).blocks
    assert [one.block.kind for one in held if one.role == "family"].count("spline_table") == 2
    assert differences(plan) == []
    for one in held:
        if one.block.kind == "spline_table":
            found = [blocks.find_weighted(one.block, unit, power).bound for power in (1, 2)]
            assert found == [2 if unit == "replace" else 1] * 2
    plan.save(tmp_path / "plan.json")
    verdict = verify(tmp_path / "plan.json")
    assert verdict.agrees, verdict.text
    assert verdict.bound == plan.budget.total


def test_knots_that_are_not_of_a_table_of_splines_are_refused(weighted, tmp_path):
    schema = weighted(BUDGETS["pure"], "replace").schema
    plan = dps.plan(
        schema, {"odds": dps.Logistic("smoker ~ age")}, budget=BUDGETS["pure"], n=500
    ).to_dict()
    (at,) = (block for block in plan["blocks"] if block["kind"] == "spline_table")
    for knots in ([None], [[-12, 12], None, None], [[-12, 0, 0, 12], None], [[-12, 11], None],
                  [[12], None], [[-12, "0", 12], None], [[], None]):  # fmt: skip
        (tmp_path / "plan.json").write_text(json.dumps(plan | {"blocks": [at | {"knots": knots}]}))
        with pytest.raises(NotReadError):
            verify(tmp_path / "plan.json")


def test_a_row_whose_weight_changes_counts_where_replaced_rows_cancel(weighted, reread):
    (count,) = (
        one for one in reread(weighted(BUDGETS["pure"], "replace")).blocks if one.role == "count"
    )
    assert blocks.find(count.block, "replace", 1).bound == 0
    assert blocks.find_weighted(count.block, "replace", 1).bound == 1


def test_the_file_of_a_release(weighted, survey, unit, tmp_path):
    for number, budget in enumerate(BUDGETS.values()):
        release = dps.release(weighted(budget, unit), survey, m=60, k=40, rng=1)
        release.save(tmp_path / f"{number}.zip")
        verdict = verify(tmp_path / f"{number}.zip")
        assert verdict.agrees, verdict.text
        assert "Certificate: delta" in verdict.text


def test_measurements_without_rows(weighted, unit, survey, tmp_path):
    dps.measure(weighted(BUDGETS["approx"], unit), survey).save(tmp_path / "m.zip")
    assert verify(tmp_path / "m.zip").agrees


@pytest.mark.parametrize("lonely", ["certainty", "adjust", "collapse"])
@pytest.mark.parametrize("name", LISTED)
def test_it_counts_pairs_as_the_package_does(name, lonely):
    design = dps.Design("w", mean=1, cap=2, strata="s", unit="u", units=LISTED[name], lonely=lonely)
    assert count_pairs(design.to_dict()) == (design.pairs.plain, design.pairs.triples)


def test_units_that_are_not_listed(weighted, tmp_path, unit):
    for units in (None, 40):
        design = dps.Design("w", mean=1, cap=2, unit="u", units=units)
        assert count_pairs(design.to_dict()) == (design.pairs.plain, 0)
        weighted(BUDGETS["pure"], unit, design).save(tmp_path / "plan.json", overwrite=True)
        assert verify(tmp_path / "plan.json").agrees


def test_a_design_effect_in_place_of_units(weighted, tmp_path, unit):
    weighted(BUDGETS["pure"], unit, dps.Design("w", mean=1, cap=2, deff=1.5)).save(
        tmp_path / "plan.json"
    )
    assert verify(tmp_path / "plan.json").agrees


def test_persons_beside_a_design(weighted, tmp_path, unit):
    for budget, times in [("pure", 3), ("zcdp", 9)]:
        plan = weighted(BUDGETS[budget], unit, person="id", rows_per_person=3)
        plan.save(tmp_path / "plan.json", overwrite=True)
        verdict = verify(tmp_path / "plan.json")
        assert verdict.agrees, verdict.text
        assert verdict.reached == plan.budget.total
        assert f"each block costs {times} times" in verdict.text
        assert "not measured; their weights are scaled to 3 caps in all" in verdict.text


def test_the_key_of_persons_is_not_measured(weighted, tmp_path):
    path = tmp_path / "plan.json"
    weighted(BUDGETS["pure"], "replace", person="id", rows_per_person=2).save(path)
    plain = json.loads(path.read_text())
    for key in ("weight", "region"):
        path.write_text(json.dumps({**plain, "person_key": key}))
        with pytest.raises(NotReadError, match="tells persons apart"):
            verify(path)
