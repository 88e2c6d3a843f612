"""Files of a schema hold rules, views, differences and totals, and so do those made with it."""

import json

import pandas as pd
import pytest

import dpstats as dps
from dpstats.verifying.arguing import verify

TEXT = """
    [[column]]
    name = "age"
    low = 0
    high = 99
    points = 100
    edges = [15, 65]
    [[column]]
    name = "marital"
    levels = ["never", "married"]
    [[column]]
    name = "spouse age"
    low = 0
    high = 99
    points = 100
    [[column]]
    name = "cost"
    low = 0
    high = 1000
    missing = 0
    [[column]]
    name = "log_cost"
    low = 1
    high = 1000
    scale = "log"
    source = "cost"
    [[column]]
    name = "days"
    low = 0
    high = 2000
    missing = 0
    source = "  `last seen`-`diagnosed` "
    [[rule]]
    never = "age < 15 and marital == 'married'"
    set = { marital = "never" }
    [[rule]]
    order = "age <= `spouse age`"
    change = "spouse age"
    [[total]]
    condition = "age < 15"
    count = 50
    of = "table"
"""


@pytest.fixture
def schema(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    return dps.Schema.load(tmp_path / "s.toml")


def test_a_file_holds_what_is_between_columns(schema, tmp_path):
    assert [rule.kind for rule in schema.rules] == ["never", "order"]
    assert schema.totals == (dps.Total("age < 15", 50, of="table"),)
    assert schema["log_cost"].source == schema["log_cost"].view_of == "cost"
    assert schema["days"].source == "`last seen` - diagnosed"
    again = dps.Schema.from_dict(json.loads(json.dumps(schema.to_dict())),
                                 **json.loads(json.dumps(schema.between_columns)))  # fmt: skip
    assert again == schema == dps.Schema.from_frictionless(schema.to_frictionless())
    assert "days" not in schema.to_smartnoise("t")[""][""]["t"]
    for wrong, words in [("when = 'a'", "one of the keys"), ("never = 'age < 15'", "needs set")]:
        (tmp_path / "w.toml").write_text(f"{TEXT}\n[[rule]]\n{wrong}")
        with pytest.raises(dps.SchemaError, match=words):
            dps.Schema.load(tmp_path / "w.toml")


def test_plans_and_releases_hold_it_too(schema, tmp_path):
    asked = {"m": dps.Marginals(["age", "marital"]), "o": dps.Mean("log(log_cost)"),
             "d": dps.Mean("days")}  # fmt: skip
    plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    plan.save(tmp_path / "plan.json")
    assert dps.Plan.load(tmp_path / "plan.json").schema == schema
    columns = [column.to_dict() for column in schema]
    others = [
        dps.Schema.from_dict(columns, rules=schema.between_columns["rules"]),
        dps.Schema.from_dict(columns, totals=schema.between_columns["totals"]),
        dps.Schema.from_dict(
            [{**c, "source": "diagnosed - `last seen`"} if c["name"] == "days" else c
             for c in columns], **schema.between_columns
        ),
    ]  # fmt: skip
    digests = {dps.plan(other, asked, budget=dps.PureDP(1)).digest for other in others}
    assert len(digests | {plan.digest}) == 4
    rows = pd.DataFrame({
        "age": [3, 30] * 50, "marital": "married", "spouse age": 30, "cost": [20.0, 400] * 50,
        "diagnosed": "2020-01-01", "last seen": "2020-03-01",
    })  # fmt: skip
    dps.release(plan, rows, rng=0).save(tmp_path / "r.zip")
    assert dps.load(tmp_path / "r.zip").schema == schema
    verdict = verify(tmp_path / "r.zip")
    assert verdict.agrees
    assert "2 rules between columns" in verdict.text
