"""Guesses: what is allowed, what is refused, and that they decide nothing that is measured."""

from datetime import date

import pytest

import dpstats as dps

COLUMNS = [
    dps.Number("age", 0, 120, edges=[18, 65]),
    dps.Number("pay", 1, 1000, scale="log", missing=10),
    dps.Number("day", "2020-01-01", "2020-12-31"),
    dps.Number("score", values=[0, 1], missing=0),
    dps.Category("region", ["north", "south", "east"], allow_missing=True),
    dps.Category("rank", [1, 2, 3]),
    dps.Boolean("smoker"),
]


def schema(**guesses):
    return dps.Schema(COLUMNS, dps.Guesses(**guesses))


def test_shares_of_levels_left_out_divide_the_rest():
    found = schema(shares={"region": {"south": 0.4}, "rank": {1: 0.5, 2: 0.25}, "smoker": 0.3})
    assert [found.guesses.shares_of(c) for c in (*COLUMNS[4:], COLUMNS[0])] == [
        pytest.approx([0.3, 0.4, 0.3]), pytest.approx([0.5, 0.25, 0.25]), pytest.approx([0.7, 0.3]),
        None,
    ]  # fmt: skip
    shares = {"rank": {1: 0.33, 2: 0.33, 3: 0.33}, "smoker": {"true": 0.3}, "age": {"[0, 18)": 0.2}}
    found = schema(shares=shares).guesses
    assert found.shares_of(COLUMNS[5]) == pytest.approx([1 / 3] * 3)  # rounded ones
    assert (found.shares_of(COLUMNS[6])[1], found.shares_of(COLUMNS[0])[0]) == (0.3, 0.2)


def test_guesses_that_do_not_fit_are_refused():
    for guesses in [
        {"typical": {"weight": {"mean": 1, "sd": 1}}},
        {"typical": {"smoker": {"mean": 1, "sd": 1}}}, {"typical": {"age": 45}},
        {"typical": {"age": {"mean": 120, "sd": 9}}}, {"typical": {"pay": {"mean": 5, "sd": 500}}},
        {"typical": {"score": {"mean": 0.5, "sd": 0.6}}},
        {"shares": {"region": {"west": 0.2}}}, {"shares": {"region": {"north": 0.7, "south": 0.5}}},
        {"shares": {"rank": {1: 0.1, 2: 0.1, 3: 0.1}}}, {"shares": {"rank": {1: -0.1}}},
        {"shares": {"rank": 0.3}}, {"shares": {"smoker": 30}}, {"missing": {"age": 1}},
        {"correlations": [("age", "pay")]}, {"correlations": "age"},
        {"correlations": [("age", "pay", 1)]}, {"correlations": [("age", "age", 0.1)]},
        {"correlations": [("age", "pay", 0.1), ("pay", "age", 0.1)]},
        {"correlations": [("age", "weight", 0.1)]}, {"typical": [1]},
    ]:  # fmt: skip
        with pytest.raises(dps.SchemaError):
            schema(**guesses)


def test_a_schema_file_may_state_guesses_and_its_selection_keeps_them(tmp_path):
    (tmp_path / "a.toml").write_text(
        '[[column]]\nname = "age"\nlow = 0\nhigh = 120\n'
        '[[column]]\nname = "sex"\nlevels = ["f", "m"]\n'
        '[guesses]\ncorrelations = [["age", "sex", -0.1]]\n'
        "[guesses.typical]\nage = { mean = 45, sd = 17 }\n"
        "[guesses.shares]\nsex = { f = 0.6 }\n[guesses.missing]\nsex = 0.1\n"
    )
    found = dps.Schema.load(tmp_path / "a.toml")
    expected = dps.Guesses(
        typical={"age": {"mean": 45, "sd": 17}}, shares={"sex": {"f": 0.6}}, missing={"sex": 0.1},
        correlations={("age", "sex"): -0.1},
    )  # fmt: skip
    assert found.guesses == expected == dps.Guesses.load(tmp_path / "a.toml")
    assert dps.Guesses.from_dict(expected.to_dict()) == expected
    assert found.select(["age"]).guesses == dps.Guesses(typical=expected.typical)
    for text, says in [
        ("[guesses]\ntypicall = {}\n", r"unknown keys \['typicall'\] in \[guesses\]"),
        ("rows = 1\n", r"there is no \[guesses\] table"),
        ("[typical]\nx = { mean = 1, sd = 1 }\n", r"put the keys under it, such as \[guesses.typ"),
    ]:
        (tmp_path / "b.toml").write_text(text)
        with pytest.raises(dps.SchemaError, match=says):
            dps.Guesses.load(tmp_path / "b.toml")


def test_guesses_decide_nothing_that_is_measured(tmp_path):
    guesses = dps.Guesses(
        typical={"age": {"mean": 45, "sd": 17}, "day": {"mean": date(2020, 5, 1), "sd": 30}},
        shares={"rank": {1: 0.6}},
    )
    asked = {"r": dps.Marginals(["rank", "age"])}
    plan, without = (
        dps.plan(dps.Schema(COLUMNS, given), asked, budget=dps.PureDP(1), n=100)
        for given in (guesses, None)
    )
    plan.save(tmp_path / "plan.json")
    loaded = dps.Plan.load(tmp_path / "plan.json")
    assert plan == without
    assert plan.digest == without.digest == loaded.digest
    assert loaded.schema.guesses == dps.Guesses.from_dict(guesses.to_dict())
