"""Guesses: what is allowed, what is refused, and that they decide nothing that is measured."""

import re
import tomllib
from datetime import date
from pathlib import Path

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
    shares = {c.name: found.guesses.shares_of(c) for c in COLUMNS}
    assert shares["region"] == pytest.approx([0.3, 0.4, 0.3])
    assert shares["rank"] == pytest.approx([0.5, 0.25, 0.25])
    assert shares["smoker"] == pytest.approx([0.7, 0.3])
    assert shares["age"] is None
    whole = schema(shares={"rank": {1: 0.33, 2: 0.33, 3: 0.33}})
    assert whole.guesses.shares_of(COLUMNS[5]) == pytest.approx([1 / 3] * 3)  # rounded ones
    assert schema(shares={"smoker": {"true": 0.3}}).guesses.shares_of(COLUMNS[6])[1] == 0.3
    assert schema(shares={"age": {"[0, 18)": 0.2}}).guesses.shares_of(COLUMNS[0])[0] == 0.2


def test_guesses_that_do_not_fit_are_refused():
    for guesses, message in [
        ({"typical": {"weight": {"mean": 1, "sd": 1}}}, r"\['weight'\] that the schema does not"),
        ({"typical": {"smoker": {"mean": 1, "sd": 1}}}, "it is a boolean, not a number; give shar"),
        ({"typical": {"age": 45}}, "must be {mean = ..., sd = ...}, got 45"),
        ({"typical": {"age": {"mean": 45}}}, "must be {mean = ..., sd = ...}"),
        ({"typical": {"age": {"mean": 120, "sd": 9}}}, "above 0 and below 120; got 120"),
        ({"typical": {"age": {"mean": 45, "sd": 0}}}, "sd must be a number above 0, got 0"),
        ({"typical": {"age": {"mean": 60, "sd": 61}}}, "the bounds allow at most 60; use a small"),
        ({"typical": {"score": {"mean": 0.5, "sd": 0.6}}}, "the bounds allow at most 0.5"),
        ({"typical": {"pay": {"mean": 5, "sd": 500}}}, "too large for amounts above 1"),
        ({"typical": {"day": {"mean": "2021-02-01", "sd": 9}}}, "below 2020-12-31"),
        ({"shares": {"region": {"west": 0.2}}}, "name 'west', which is not one of"),
        ({"shares": {"region": {"north": 0.7, "south": 0.5}}}, "add up to 1.2; they must add up t"),
        ({"shares": {"rank": {1: 0.1, 2: 0.1, 3: 0.1}}}, "add up to 0.3; they must add up to 1"),
        ({"shares": {"rank": {1: -0.1}}}, r"must be a share in \[0, 1\], got -0.1"),
        ({"shares": {"rank": 0.3}}, "must be a mapping of levels to shares"),
        ({"shares": {"smoker": 30}}, r"must be a share in \[0, 1\], got 30"),
        ({"missing": {"age": 1}}, r"must be a share in \[0, 1\), got 1"),
        ({"correlations": [("age", "pay")]}, "lists of two columns and a number"),
        ({"correlations": "age"}, "lists of two columns and a number"),
        ({"correlations": [("age", "pay", 1)]}, "must be between -1 and 1, got 1"),
        ({"correlations": [("age", "age", 0.1)]}, "lists of two columns and a number"),
        ({"correlations": [("age", "pay", 0.1), ("pay", "age", 0.1)]}, "is guessed twice"),
        ({"correlations": [("age", "weight", 0.1)]}, r"\['weight'\] that the schema does not"),
        ({"typical": [1]}, "typical of the guesses must map names of columns"),
    ]:
        with pytest.raises(dps.SchemaError, match=message):
            schema(**guesses)


def test_guesses_of_another_type_are_refused():
    with pytest.raises(dps.SchemaError, match=r"guesses must be dps\.Guesses"):
        dps.Schema(COLUMNS, {"typical": {}})


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
    (tmp_path / "b.toml").write_text("[guesses]\ntypicall = {}\n")
    with pytest.raises(
        dps.SchemaError, match=r"b\.toml: unknown keys \['typicall'\] in \[guesses\]"
    ):
        dps.Guesses.load(tmp_path / "b.toml")
    (tmp_path / "c.toml").write_text("rows = 1\n")
    with pytest.raises(dps.SchemaError, match=r"c\.toml: there is no \[guesses\] table"):
        dps.Guesses.load(tmp_path / "c.toml")
    (tmp_path / "d.toml").write_text("[typical]\nx = { mean = 1, sd = 1 }\n")
    with pytest.raises(
        dps.SchemaError, match=r"put the keys under it, such as \[guesses.typical\]"
    ):
        dps.Guesses.load(tmp_path / "d.toml")


def test_guesses_decide_nothing_that_is_measured(tmp_path):
    guesses = dps.Guesses(
        typical={"age": {"mean": 45, "sd": 17}, "day": {"mean": date(2020, 5, 1), "sd": 30}},
        shares={"rank": {1: 0.6}},
    )
    asked = {"r": dps.Marginals(["rank", "age"])}
    with_guesses, without = (
        dps.plan(dps.Schema(COLUMNS, given), asked, budget=dps.PureDP(1), n=100)
        for given in (guesses, None)
    )
    assert with_guesses == without
    assert with_guesses.digest == without.digest
    with_guesses.save(tmp_path / "plan.json")
    loaded = dps.Plan.load(tmp_path / "plan.json")
    assert loaded.digest == without.digest
    assert str(loaded.preview()) == str(with_guesses.preview())
    assert "invented from guesses of age, rank" not in str(without.preview())
    assert "guesses" not in without.to_dict()
    plain = with_guesses.to_dict()
    plain["guesses"]["typical"]["age"]["mean"] = 500
    with pytest.raises(dps.RequestError, match="the mean must lie between the bounds"):
        dps.Plan.from_dict(plain)


def test_guesses_are_found_in_the_schema_that_a_request_names(tmp_path):
    (tmp_path / "survey.toml").write_text("[guesses.typical]\nage = {mean = 45, sd = 17}\n")
    (tmp_path / "request.toml").write_text('schema = "survey.toml"\n[budget]\nepsilon = 1\n')
    found = dps.Guesses.load(tmp_path / "request.toml")
    assert found == dps.Guesses.load(tmp_path / "survey.toml")
    (tmp_path / "circle.toml").write_text('schema = "circle.toml"\n')
    with pytest.raises(dps.SchemaError, match=r"no \[guesses\] table"):
        dps.Guesses.load(tmp_path / "circle.toml")


def test_the_guesses_of_the_page_on_schemas_fit_its_schema():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "plan" / "write-a-schema.md").read_text(
        "utf-8"
    )
    declared, guessed = (
        next(text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if start in text)
        for start in ("# survey.toml", "# guesses.toml")
    )
    guesses = dps.Guesses.from_dict(tomllib.loads(guessed)["guesses"])
    guesses.check(dps.Schema.from_dict(tomllib.loads(declared)["column"]))
