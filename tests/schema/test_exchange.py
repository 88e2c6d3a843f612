"""Schemas and guesses from and to files and other formats; what these do not say is asked for."""

import json
import sys
from datetime import date

import pytest

import dpstats as dps

EVERY = dps.Schema(
    [
        dps.Boolean("b", missing=True), dps.Boolean("b2", allow_missing=True, note="since 2020"),
        dps.Category("c", ["x", "y"], other="y"), dps.Category("f", [0.5, 1.5]),
        dps.Category("l", {"no": 1, "yes": 2}, allow_missing=True, note="code book"),
        dps.Category("t", {"no": "n", "yes": "y"}, missing="no"), dps.Category("tf", [True, False]),
        dps.Number("n", 0, 120, edges=[18], missing=3),
        dps.Number("w", 0, 120, points=121, allow_missing=True),
        dps.Number("v", values=[17.5, 22, 27], allow_missing=True),
        dps.Number("d", "2020-01-01", "2020-12-31", edges=["2020-06-01"], missing="2020-02-01"),
        dps.Number("odd", -7, 5, points=2, closed="right", allow_missing=True),
        dps.Number("lg", 1, 1000, scale="log", closed="right", edges=[10]),
        dps.Number("lg whole", 1, 1000, points=1000, scale="log"),
        dps.Number("nc", 1, 5, points=5, missing=3, missing_values=[8, 9.5]),
        dps.Category("tc", ["a", "b"], other="b", allow_missing=True, missing_values=["x", "9"]),
        dps.Category('é "q" \\n', ["...", '"', "it's", "a\\", "\U0001f600 #"], note="=[]"),
        dps.Category("i", [2**40, -1, 7], missing=7, other=-1),
        dps.Category("m", {"ä": -0.01, "...": 1e4, "2": 3}, missing="2", note='"'),
        dps.Number("awkward", -0.1, 0.1 + 0.2, points=11, edges=[1e-9, 0.1], missing=-0.1),
        dps.Number("log n", 1, 120, scale="log", source="`n`"),
        dps.Number("days", 0, 9, missing=0, source="  `last seen`-`diagnosed` "),
    ],
    rules=[dps.Never("n < 18 and c == 'y'", set={"c": "x"}), dps.Order("lg >= nc", change="lg")],
    totals=[dps.Total("n < 18", 50, of="table")],
)  # fmt: skip
PUMS = """\
# of 2020
PUMS:
  PUMS:
    PUMS:
      row_privacy: True
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


def toml(value):
    """The escapes of JSON are those of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)
    return '"\\u002e.."' if value == "..." else text  # "..." is still to be decided


def test_plain_data_files_and_frictionless_give_back_every_column(tmp_path):
    assert (EVERY["log n"].view_of, EVERY["days"].source) == ("n", "`last seen` - diagnosed")
    plain, between = json.loads(json.dumps([EVERY.to_dict(), EVERY.between_columns]))
    assert (len(between["rules"]), len(between["totals"])) == (2, 1)
    lines = []
    for name, tables in {"columns": plain, **between}.items():
        for table in tables:
            lines += [f"[[{name[:-1]}]]", *(f"{key} = {toml(v)}" for key, v in table.items())]
    (tmp_path / "s.toml").write_text("\n".join(lines), encoding="utf-8")
    for wrong, words in [("when = 'a'", "one of the keys"), ("never = 'n < 18'", "needs set")]:
        (tmp_path / "w.toml").write_text("\n".join([*lines, "[[rule]]", wrong]), encoding="utf-8")
        with pytest.raises(dps.SchemaError, match=words):
            dps.Schema.load(tmp_path / "w.toml")
    document = json.loads(json.dumps(EVERY.to_frictionless()))
    types = {field["name"]: field["type"] for field in document["fields"]}
    assert (types["w"], types["lg whole"]) == ("integer", "number")
    for again in (
        dps.Schema.from_dict(plain, **between),
        dps.Schema.load(tmp_path / "s.toml"),
        dps.Schema.from_frictionless(document),
    ):
        assert again == EVERY
        assert (again.to_dict(), again.between_columns) == (EVERY.to_dict(), EVERY.between_columns)
        for a, b in zip(EVERY, again, strict=True):
            assert (type(a), a.note, a.code_range) == (type(b), b.note, b.code_range)
            assert (a.bin_labels, a.missing_rule()) == (b.bin_labels, b.missing_rule())
            if isinstance(a, dps.Number):
                assert a.grid.tolist() == b.grid.tolist()
            else:
                assert (a.stored, a.other_code) == (b.stored, b.other_code)
                assert [type(v) for v in a.labels] == [type(v) for v in b.labels]


def test_frictionless_of_others(tmp_path):
    fields = [
        {"name": "sex", "type": "string", "categories": ["f", "m"]},
        {"name": "year", "type": "year", "constraints": {"minimum": 2000, "maximum": 2020}},
        {"name": "when", "type": "date",
         "constraints": {"minimum": "2020-01-01", "maximum": "2020-01-31", "required": True}},
        {"name": "ok", "type": "boolean", "description": "as stated"},
    ]  # fmt: skip
    package = {"resources": [{"name": "r", "schema": {"fields": fields}}]}
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
    # Missing values of a field are those that it can hold.
    number = {"type": "integer", "constraints": {"minimum": 0, "maximum": 9}}
    fields = [
        {"name": "x", **number}, {"name": "own", **number, "missingValues": ["-1"]},
        {"name": "text", "type": "string", "constraints": {"enum": ["a", "b"]}},
        {"name": "coded", "type": "string"},
    ]  # fmt: skip
    document = {"fields": fields, "missingValues": ["", "NA", "-9", {"value": "9999-12-31"}]}
    schema = dps.Schema.from_frictionless(document, add={"coded": {"levels": [1, 2], "missing": 1}})
    missing = [(-9,), (-1,), ("NA", "-9", "9999-12-31"), (-9,)]
    assert [column.missing_values for column in schema] == missing


def test_what_frictionless_does_not_say_is_asked_for():
    bounds = {"constraints": {"minimum": "2024-01-01", "maximum": "2024-12-31"}}
    same = [{"value": 1, "label": "no"}, {"value": 9, "label": "no"}]
    for field, part in [
        ({"type": "string"}, "levels (constraints.enum"),
        ({"type": "integer", "constraints": {"minimum": 0}}, "x: high (constraints.maximum)"),
        ({"type": "geopoint"}, "the type 'geopoint' has no counterpart"),
        ({"type": "boolean", "trueValues": ["ja"]}, "it has trueValues of its own"),
        ({"type": "date", "format": "%d/%m/%Y", **bounds}, "of a table with dates such as"),
        ({"type": "number", "decimalChar": ",", **bounds}, "plain numbers: it has decimalChar ','"),
        ({"type": "integer", "groupChar": " ", "categories": [1]}, "it has groupChar ' '"),
        ({"type": "integer", "bareNumber": False, **bounds}, "it has bareNumber False"),
        ({"type": "integer", "categories": same}, "two of its categories have the same label"),
    ]:
        document = {"fields": [{"name": "x", **field}, {"name": "fine", "type": "boolean"}]}
        with pytest.raises(dps.SchemaError, match="never learns it from data") as error:
            dps.Schema.from_frictionless(document)
        assert part in str(error.value)
        assert dps.Schema.from_frictionless(document, columns=["fine"]).names == ("fine",)
        schema = dps.Schema.from_frictionless(document, add={"x": {"levels": ["ja", "nein"]}})
        assert schema["x"] == dps.Category("x", ["ja", "nein"], allow_missing=True)


def test_null_is_absent_and_parts_of_another_kind_are_refused():
    bounds = {"minimum": 0, "maximum": 9, "required": None}
    fields = [
        {"name": "x", "type": "integer", "constraints": bounds, "missingValues": None,
         "groupChar": None, "categories": None, "description": None, "dpstats": {"edges": None}},
        {"name": "ok", "type": "boolean", "trueValues": None, "constraints": None,
         "dpstats": None, "example": {"enum": "of another standard"}},
        {"name": "c", "type": "integer", "missingValues": ["", None],
         "categories": [{"value": 1, "label": "a"}, {"value": 2, "label": None}]},
    ]  # fmt: skip
    document = {"resources": None, "fields": fields, "missingValues": None, "dpstats": None}
    assert list(dps.Schema.from_frictionless(document)) == [
        dps.Number("x", 0, 9, points=10, allow_missing=True),
        dps.Boolean("ok", allow_missing=True),
        dps.Category("c", {"a": 1, "2": 2}, allow_missing=True),
    ]
    for key, wrong, what in [
        ("constraints", [], "mapping"), ("dpstats", "x", "mapping"), ("trueValues", "ja", "list"),
        ("missingValues", 9, "list"), ("categories", True, "list"),
        ("constraints", {"enum": 1}, "list"),
    ]:  # fmt: skip
        with pytest.raises(dps.SchemaError, match=f"of a Table Schema must be a {what}, got"):
            dps.Schema.from_frictionless({"fields": [{"name": "x", key: wrong}]})
    with pytest.raises(dps.SchemaError, match="add= a mapping of names to keys"):
        dps.Schema.from_frictionless(document, add={"x": None})
    table = {"max_ids": None, "b": {"type": "boolean", "nullable": None, "missing_value": None}}
    found = dps.Schema.from_smartnoise({"": {"": {"t": table}}})
    assert list(found) == [dps.Boolean("b", allow_missing=True)]


def test_smartnoise(tmp_path, monkeypatch):
    (tmp_path / "PUMS.yaml").write_text(PUMS)
    with pytest.raises(dps.SchemaError, match="Add for\n  sex: levels\nwith"):
        dps.Schema.from_smartnoise(tmp_path / "PUMS.yaml")
    schema = dps.Schema.from_smartnoise(tmp_path / "PUMS.yaml", add={"sex": {"levels": [0, 1]}})
    assert list(schema) == [
        dps.Number("age", 0, 100, points=101, allow_missing=True),
        dps.Category("sex", [0, 1]),
        dps.Number("income", 0, 150_000, points=1025, missing=0),
    ]
    kept = EVERY.select(["b", "b2", "n", "w"])
    again = dps.Schema.from_smartnoise(kept.to_smartnoise("t"), add={"n": {"edges": [18]}})
    assert list(again) == list(kept)
    exported = EVERY.to_smartnoise("t")[""][""]["t"]
    assert "days" not in exported
    assert (exported["w"]["type"], exported["lg whole"]["type"]) == ("int", "float")
    with pytest.raises(dps.SchemaError, match="c: levels"):
        dps.Schema.from_smartnoise(EVERY.to_smartnoise("t"))
    with pytest.raises(dps.SchemaError, match=r"3 rows .* plan with rows_per_person="):
        dps.Schema.from_smartnoise({"": {"": {"t": {"max_ids": 3}}}})
    table = "1: {2: {3: {no: {type: int, lower: 010, upper: 1e2, nullable: false}}}}"
    (tmp_path / "plain.yml").write_text(table)  # no octal numbers, and keys are text
    with pytest.raises(dps.SchemaError, match="'no': low must be a finite number, got '010'"):
        dps.Schema.from_smartnoise(tmp_path / "plain.yml", table="3")
    found = dps.Schema.from_smartnoise(tmp_path / "plain.yml", table="3", add={"no": {"low": 8}})
    assert list(found) == [dps.Number("no", 8, 100)]
    for text, what in [
        ("a:\n  b: 1\n - c", "not valid YAML"), ("- a", "a mapping of names"),
        ("max_ids: 3\nmax_ids: 1", "a key occurs twice"),
    ]:  # fmt: skip
        (tmp_path / "wrong.yml").write_text(text)
        with pytest.raises(dps.SchemaError, match=f"wrong.yml .*{what}"):
            dps.Schema.from_smartnoise(tmp_path / "wrong.yml")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(dps.SchemaError, match="pip install pyyaml"):
        dps.Schema.from_smartnoise(tmp_path / "PUMS.yaml")


# Guesses: what is allowed, and that they decide nothing that is measured

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
    columns = [dps.Category("large", [1234567, 2]), dps.Category("whole", [1.0, 2.0]),
               dps.Number("values", values=[2.0, 1234567.5])]  # fmt: skip
    shares = {"large": {1234567: 0.3}, "whole": {1.0: 0.3}, "values": {1234567.5: 0.3, 2: 0.7}}
    numbers = dps.Guesses(shares=shares)
    for given in (numbers, dps.Guesses.from_dict(json.loads(json.dumps(numbers.to_dict())))):
        found = dps.Schema(columns, given).guesses
        first, second, third = (found.shares_of(column) for column in columns)
        assert first == second == third[::-1] == pytest.approx([0.3, 0.7])
    shares = {"rank": {1: 0.33, 2: 0.33, 3: 0.33}, "smoker": {"true": 0.3}, "age": {"[0, 18)": 0.2}}
    found = schema(shares=shares).guesses
    assert found.shares_of(COLUMNS[5]) == pytest.approx([1 / 3] * 3)  # rounded ones
    assert (found.shares_of(COLUMNS[6])[1], found.shares_of(COLUMNS[0])[0]) == (0.3, 0.2)


def test_guesses_that_do_not_fit_are_refused():
    for guesses in [
        {"typical": {"weight": {"mean": 1, "sd": 1}}},
        {"typical": {"smoker": {"mean": 1, "sd": 1}}}, {"typical": {"age": 45}},
        {"typical": {"age": {"mean": 60, "sd": 0}}},
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
