"""Schemas from and to other formats; what these do not say is asked for, never guessed."""

import json

import pytest

import dpstats as dps
from dpstats.schema.plain_yaml import read_yaml

EVERY = dps.Schema(
    [
        dps.Boolean("b", missing=True),
        dps.Boolean("b2", allow_missing=True),
        dps.Boolean("b3", note="asked since 2020"),
        dps.Category("c", ["x", "y"], other="y"),
        dps.Category("l", {"no": 1, "yes": 2}, allow_missing=True, note="code book"),
        dps.Category("t", {"no": "n", "yes": "y"}, missing="no"),
        dps.Category("f", [0.5, 1.5]),
        dps.Category("tf", [True, False]),
        dps.Number("n", 0, 120, edges=[18], missing=3),
        dps.Number("w", 0, 120, points=121, allow_missing=True),
        dps.Number("v", values=[17.5, 22, 27], allow_missing=True),
        dps.Number("i", values=[1, 2, 5]),
        dps.Number("d", "2020-01-01", "2020-12-31", edges=["2020-06-01"], missing="2020-02-01"),
        dps.Number("odd", -7, 5, points=2, closed="right", allow_missing=True),
        dps.Number("lg", 1, 1000, scale="log", closed="right", edges=[10]),
        dps.Number("nc", 1, 5, points=5, missing=3, missing_values=[8, 9.5]),
        dps.Category("tc", ["a", "b"], other="b", allow_missing=True, missing_values=["x", "9"]),
    ]
)
PUMS = """\
# of 2020
PUMS:
  PUMS:
    PUMS:
      row_privacy: True
      rows: 1000
      age:
        type: int
        lower: 0
        upper: 100
      'sex':
        type: string
        nullable: false   # asked of all
      income:
        type: float
        lower: 0
        upper: 1.5e5
        missing_value: 0
      pid:
        type: int
        private_id: True
"""


def test_frictionless_gives_back_every_column():
    document = json.loads(json.dumps(EVERY.to_frictionless()))
    again = dps.Schema.from_frictionless(document)
    assert again.to_dict() == EVERY.to_dict()


def test_frictionless_of_others(tmp_path):
    fields = [
        {"name": "sex", "type": "string", "categories": ["f", "m"]},
        {"name": "year", "type": "year", "constraints": {"minimum": 2000, "maximum": 2020}},
        {"name": "when", "type": "date",
         "constraints": {"minimum": "2020-01-01", "maximum": "2020-01-31", "required": True}},
        {"name": "ok", "type": "boolean", "description": "as stated"},
    ]  # fmt: skip
    package = {"name": "p", "resources": [{"name": "r", "schema": {"fields": fields}}]}
    (tmp_path / "datapackage.json").write_text(json.dumps(package))
    schema = dps.Schema.from_frictionless(tmp_path / "datapackage.json")
    assert schema.to_dict() == [
        {"kind": "category", "name": "sex", "levels": ["f", "m"], "allow_missing": True},
        {"kind": "number", "name": "year", "low": 2000, "high": 2020, "points": 21,
         "allow_missing": True},
        {"kind": "number", "name": "when", "low": "2020-01-01", "high": "2020-01-31"},
        {"kind": "boolean", "name": "ok", "allow_missing": True, "note": "as stated"},
    ]  # fmt: skip
    package["resources"] *= 2
    with pytest.raises(dps.SchemaError, match="several resources"):
        dps.Schema.from_frictionless(package)


LACKING = {
    "levels (constraints.enum": {"type": "string"},
    "low (constraints.minimum); high (constraints.maximum)": {"type": "number"},
    "x: high (constraints.maximum)": {"type": "integer", "constraints": {"minimum": 0}},
    "the type 'geopoint' has no counterpart": {"type": "geopoint"},
    "it has trueValues of its own": {"type": "boolean", "trueValues": ["ja"]},
}


def test_what_frictionless_does_not_say_is_asked_for():
    for part in LACKING:
        fine = {"name": "fine", "type": "boolean"}
        document = {"fields": [{"name": "x", **LACKING[part]}, fine]}
        with pytest.raises(dps.SchemaError, match="never learns it from data") as error:
            dps.Schema.from_frictionless(document)
        assert part in str(error.value)
        assert "fine" not in str(error.value)
        assert dps.Schema.from_frictionless(document, columns=["fine"]).names == ("fine",)
        added = {"x": {"levels": ["ja", "nein"]}}
        schema = dps.Schema.from_frictionless(document, add=added)
        assert schema["x"] == dps.Category("x", ["ja", "nein"], allow_missing=True)


def test_missing_values_of_a_field_are_those_that_it_can_hold():
    bounds = {"minimum": 0, "maximum": 9}
    days = {"minimum": "2020-01-01", "maximum": "2020-12-31"}
    fields = [
        {"name": "x", "type": "integer", "constraints": bounds},
        {"name": "all", "type": "integer", "constraints": {"required": True, **bounds}},
        {"name": "own", "type": "integer", "constraints": bounds, "missingValues": ["-1"]},
        {"name": "day", "type": "date", "constraints": days},
        {"name": "text", "type": "string", "constraints": {"enum": ["a", "b"]}},
        {"name": "coded", "type": "string"},
    ]
    document = {"fields": fields, "missingValues": ["", "NA", "-9", {"value": "9999-12-31"}]}
    add = {"x": {"missing": 0}, "coded": {"levels": [1, 2]}}
    schema = dps.Schema.from_frictionless(document, add=add)
    assert schema["x"] == dps.Number("x", 0, 9, points=10, missing=0, missing_values=[-9])
    assert schema["all"] == dps.Number("all", 0, 9, points=10)
    codes = {name: schema[name].missing_values for name in ("own", "day", "text", "coded")}
    end = schema["day"].missing_values[0]
    assert schema["day"].text(end) == "9999-12-31"
    assert codes == {
        "own": (-1,),
        "day": (end,),
        "text": ("NA", "-9", "9999-12-31"),
        "coded": (-9,),
    }


def test_smartnoise(tmp_path):
    (tmp_path / "PUMS.yaml").write_text(PUMS)
    with pytest.raises(dps.SchemaError, match="Add for\n  sex: levels\nwith"):
        dps.Schema.from_smartnoise(tmp_path / "PUMS.yaml")
    schema = dps.Schema.from_smartnoise(tmp_path / "PUMS.yaml", add={"sex": {"levels": [0, 1]}})
    assert schema.to_dict() == [
        {"kind": "number", "name": "age", "low": 0, "high": 100, "points": 101,
         "allow_missing": True},
        {"kind": "category", "name": "sex", "levels": [0, 1]},
        {"kind": "number", "name": "income", "low": 0, "high": 150000.0, "points": 1025,
         "missing": 0},
    ]  # fmt: skip


def test_smartnoise_gives_back_what_it_can_say():
    kept = EVERY.select(["b", "b2", "n", "w"])
    again = dps.Schema.from_smartnoise(kept.to_smartnoise("t"), add={"n": {"edges": [18]}})
    assert again == kept
    document = EVERY.to_smartnoise("t")
    labelled = document[""][""]["t"]["t"]
    assert labelled == {"type": "string", "cardinality": 2, "missing_value": "n"}
    with pytest.raises(dps.SchemaError) as error:
        dps.Schema.from_smartnoise(document)
    for part in ("c: levels", "d: low and high, as dates"):
        assert part in str(error.value)


def test_yaml_beyond_mappings_is_refused():
    for line in ["- age", "age: [1, 2]", "age: &a", "age: |", "  age: 1\n b: 2"]:
        with pytest.raises(dps.SchemaError, match="YAML library"):
            read_yaml(f"a:\n  b: 1\n{line}", "x.yaml")
