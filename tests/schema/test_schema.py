"""Schemas: files that give back the same coding, and refusals that say what to write."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dps
from dpstats.errors import DataError, SchemaError
from dpstats.schema import Boolean, Category, Number, Schema

printed = st.characters(exclude_categories=["Cc", "Cs"])
names = st.text(printed, min_size=1, max_size=8).filter(
    lambda name: name.strip() and "`" not in name
)
labels = st.text(printed, min_size=1, max_size=6)
notes = st.text(max_size=6)
whole = st.integers(-(2**40), 2**40)
decimals = st.integers(-(10**6), 10**6).map(lambda v: v / 100)


def distinct(values, most=5):
    return st.lists(values, min_size=2, max_size=most, unique=True)


@st.composite
def categories(draw, name):
    levels = draw(st.one_of(distinct(labels), distinct(whole), distinct(decimals),
                            st.permutations([False, True])))  # fmt: skip
    options = {"note": draw(notes)}
    if draw(st.booleans()) and not isinstance(levels[0], bool):
        keys = draw(st.lists(labels, min_size=len(levels), max_size=len(levels), unique=True))
        levels = dict(zip(keys, levels, strict=True))
    known = list(levels)
    if draw(st.booleans()):
        options["missing"] = draw(st.sampled_from(known))
    elif "(missing)" not in known:
        options["allow_missing"] = draw(st.booleans())
    if draw(st.booleans()):
        options["other"] = draw(st.sampled_from(known))
    return Category(name, levels, **options)


@st.composite
def columns(draw, name):
    kind = draw(st.sampled_from(["category", "boolean", "bounds", "values"]))
    if kind == "category":
        return draw(categories(name))
    if kind == "boolean":
        allow = draw(st.booleans())
        missing = None if allow else draw(st.sampled_from([None, False, True]))
        return Boolean(name, missing=missing, allow_missing=allow, note=draw(notes))
    closed = draw(st.sampled_from(["left", "right"]))
    if kind == "values":
        values = sorted(draw(distinct(st.integers(-500, 500).map(lambda v: v / 10))))
        return Number(name, values=values, closed=closed, missing=draw(st.sampled_from(values)))
    low, high = sorted(draw(st.lists(decimals | whole, min_size=2, max_size=2, unique=True)))
    missing = draw(st.none() | st.sampled_from([low, high]))
    points = draw(st.sampled_from([3, 11, 1025]))
    edges = [low + (high - low) / 2] if draw(st.booleans()) else []
    return Number(name, low, high, points, edges, closed, missing=missing, note=draw(notes))


schemas = st.lists(names, min_size=1, max_size=4, unique=True).flatmap(
    lambda chosen: st.tuples(*(columns(name) for name in chosen)).map(Schema)
)


def toml_text(text):
    """Quoted text: the escapes of JSON are those of TOML, but for the control character 127."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def toml_value(value):
    if isinstance(value, dict):
        pairs = (f"{toml_text(key)} = {toml_value(v)}" for key, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return toml_text(value) if isinstance(value, str) else json.dumps(value)


def to_toml(schema):
    lines = []
    for column in schema.to_dict():
        lines += ["[[column]]", *(f"{key} = {toml_value(v)}" for key, v in column.items())]
    return "\n".join(lines).replace('"..."', '"\\u002e.."')  # "..." is still to be decided


def codes_alike(one, other):
    assert one == other
    for a, b in zip(one, other, strict=True):
        assert type(a) is type(b)
        assert a.note == b.note
        assert (a.bins, a.code_range, a.bin_labels) == (b.bins, b.code_range, b.bin_labels)
        assert (a.missing_code, a.missing_rule()) == (b.missing_code, b.missing_rule())
        if isinstance(a, Category):
            assert (a.labels, a.stored, a.other_code) == (b.labels, b.stored, b.other_code)
            assert [type(v) for v in a.labels] == [type(v) for v in b.labels]
        else:
            np.testing.assert_array_equal(a.grid, b.grid)


@given(schema=schemas)
def test_plain_data_gives_back_the_same_coding(schema):
    codes_alike(schema, Schema.from_dict(schema.to_dict()))
    codes_alike(schema, Schema.from_dict(json.loads(json.dumps(schema.to_dict()))))


@given(schema=schemas)
@settings(max_examples=30)
def test_a_toml_file_gives_back_the_same_coding(schema, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "schema.toml"
    path.write_text(to_toml(schema), encoding="utf-8")
    codes_alike(schema, Schema.load(path))


def test_plain_data_leaves_out_what_is_default():
    schema = Schema([
        Category("a", ["no", "yes"]),
        Category("b", [True, False], missing=False, other=True),
        Boolean("c", allow_missing=True),
        Number("d", 0, 10, edges=[5], closed="right", missing=0),
        Number("e", values=[1, 2.5]),
    ])  # fmt: skip
    assert schema.to_dict() == [
        {"kind": "category", "name": "a", "levels": ["no", "yes"]},
        {"kind": "category", "name": "b", "levels": [True, False], "missing": False, "other": True},
        {"kind": "boolean", "name": "c", "allow_missing": True},
        {"kind": "number", "name": "d", "low": 0, "high": 10, "points": 1025, "edges": [5],
         "closed": "right", "missing": 0},
        {"kind": "number", "name": "e", "values": [1, 2.5]},
    ]  # fmt: skip


def test_the_kind_may_be_left_out_where_the_keys_tell_it(tmp_path):
    path = tmp_path / "survey.toml"
    path.write_text(
        """
        [[column]]
        name = "smoker"
        levels = ["no", "yes"]
        [[column]]
        name = "happy"
        levels = {not = 1, mildly = 2}
        other = "not"
        [[column]]
        name = "age"
        low = 0
        high = 120
        edges = [18, 65]
        [[column]]
        name = "score"
        values = [17.5, 22, 27]
        [[column]]
        name = "tall"
        kind = "boolean"
        """
    )
    assert Schema.load(path) == Schema([
        Category("smoker", ["no", "yes"]),
        Category("happy", {"not": 1, "mildly": 2}, other="not"),
        Number("age", 0, 120, edges=[18, 65]),
        Number("score", values=[17.5, 22, 27]),
        Boolean("tall"),
    ])  # fmt: skip


def test_columns_that_cannot_be_read_say_what_to_write():
    levels = {"name": "x", "levels": ["a", "b"]}
    for column, says in [
        ({"name": "x"}, r"column 'x': give levels, or low and high, or values, or kind"),
        (
            {"name": "x", "kind": "text"},
            r"one of \['boolean', 'category', 'number'\]; got .*'text'",
        ),
        ({"name": "x", "kind": ["number"]}, r"got a list of length 1"),
        (levels | {"level": 3}, r"column 'x': unknown keys \['level'\] \(did you mean 'levels'"),
        ({"name": "x", "low": 0, "high": 1, "bounds": "auto"}, r"unknown keys \['bounds'\]; a n"),
        (levels | {"kind": "boolean"}, r"unknown keys \['levels'\]; a boolean"),
        ({"levels": ["a", "b"]}, "column None: a category needs a name and levels"),
        ({"name": "x", "kind": "category"}, "column 'x': a category needs a name and levels"),
        ({"low": 0, "high": 1}, "column None: a number needs a name"),
        ({"name": "x", "low": 0}, "high is missing here: the largest value that is possible"),
        ({"name": "x", "high": 0}, "low is missing here: the smallest value that is possible"),
        ({"name": "x", "low": "min", "high": 1}, "low must be a finite number, got 'min'"),
        ("x", "a column must be a table of keys, got 'x'"),
    ]:
        with pytest.raises(SchemaError, match=says):
            Schema.from_dict([column])


def test_files_that_cannot_be_read_are_refused(tmp_path):
    for text, says in [
        ("", "survey.toml: there are no .*column.* tables"),
        ("[column]\nname = 'x'", "columns must be a list of tables"),
        ("column = 'x'", "columns must be a list of tables"),
        ("[[column]]\nname = ", "survey.toml is not valid TOML"),
        ("column = []", "a schema needs at least one column"),
    ]:
        path = tmp_path / "survey.toml"
        path.write_text(text)
        with pytest.raises(SchemaError, match=says) as refused:
            Schema.load(path)
        assert str(tmp_path) not in str(refused.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path):
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name, says in (("none", "cannot read none.toml: No such"), ("bytes", "is not valid TOML")):
        with pytest.raises(SchemaError, match=says):
            Schema.load(tmp_path / f"{name}.toml")


def test_impossible_schemas_are_refused():
    for columns, says in [
        ([], "a schema needs at least one column"),
        ([Boolean("x"), Number("x", 0, 1), Boolean("y")], r"declared more than once: \['x'\]"),
        (["x"], "a schema holds dps.Boolean, dps.Category and dps.Number, got str"),
        ("xy", "a schema is a list of dps.Boolean"),
        (3, "a schema is a list of dps.Boolean"),
    ]:
        with pytest.raises(SchemaError, match=says):
            Schema(columns)


SCHEMA = Schema([
    Category("smoker", ["no", "yes"], note="question 7"),
    Number("age", 0, 120, edges=[18, 65], missing=40),
    Boolean("tall", allow_missing=True),
    Number("score", values=[17.5, 22, 27]),
    Category("wave", [1, 2]),
])  # fmt: skip


def test_columns_by_name():
    assert SCHEMA.names == ("smoker", "age", "tall", "score", "wave")
    assert SCHEMA["age"].bins == 3
    assert "age" in SCHEMA
    assert "pay" not in SCHEMA
    with pytest.raises(SchemaError, match=r"no column 'pay'; columns: \['smoker', 'age'"):
        SCHEMA["pay"]


def test_a_selection_keeps_the_order_of_the_schema():
    assert SCHEMA.select(["score", "smoker"]).names == ("smoker", "score")
    with pytest.raises(SchemaError, match="no column 'pay'"):
        SCHEMA.select(["score", "pay"])


def test_the_summary_states_every_rule():
    assert str(SCHEMA).splitlines() == [
        "smoker  category, 2 levels: no, yes; missing or undeclared: counted as 'no' [question 7]",
        "age     number, 0 to 120, 1025 points, bins [0, 18) [18, 65) [65, 120]; "
        "missing or not a number: counted as "
        f"{SCHEMA['age'].grid[SCHEMA['age'].missing_code + 512]:g} (the grid "
        "point nearest 40); outside: clamped to the bounds",
        "tall    boolean, 3 levels: False, True, (missing); "
        "missing or undeclared: counted as '(missing)'",
        "score   number, values 17.5, 22, 27; missing or not a number: counted as 22; "
        "outside: nearest declared value",
        "wave    category, 2 levels: 1, 2; missing or undeclared: counted as 1",
    ]


def test_rows_are_coded_and_decoded():
    batch = pa.RecordBatch.from_pydict({
        "wave": [2, 1, None],
        "unused": ["?", "?", "?"],
        "smoker": ["yes", "maybe", None],
        "age": [18, 300, None],
        "tall": [True, False, None],
        "score": [17.5, 25, None],
    })  # fmt: skip
    codes = SCHEMA.encode(batch)
    assert list(codes) == list(SCHEMA.names)
    frame = SCHEMA.to_frame(codes)
    assert list(frame.columns) == list(SCHEMA.names)
    assert frame["smoker"].tolist() == ["yes", "no", "no"]
    assert isinstance(frame["smoker"].dtype, pd.CategoricalDtype)
    assert frame["smoker"].cat.categories.tolist() == ["no", "yes"]
    assert frame["age"].tolist() == pytest.approx([18, 120, 40], abs=0.2)
    assert frame["tall"].tolist() == [True, False, "(missing)"]
    assert frame["score"].tolist() == [17.5, 27, 22]
    assert frame["wave"].tolist() == [2, 1, 1]
    assert frame["wave"].dtype == np.int64
    some = SCHEMA.decode({"wave": np.array([1]), "smoker": np.array([0])})
    assert {name: v.tolist() for name, v in some.items()} == {"smoker": ["no"], "wave": [2]}
    assert Schema([Boolean("x")]).to_frame({"x": np.array([1, 0])})["x"].dtype == np.bool_


def test_tables_without_a_column_or_with_two_are_refused():
    for names, says in [
        ([], r"the table has no columns 'smoker' and 'age'; the plan needs \['smoker', 'age'\]"),
        (["age"], r"the table has no column 'smoker'; the plan needs \['smoker', 'age'\]"),
        (["smoker", "age", "age"], r"more than one column named \['age'\]"),
    ]:
        chosen = SCHEMA.select(["smoker", "age"])
        chosen.check_names(["extra", "age", "smoker", "extra"])
        with pytest.raises(DataError, match=says):
            chosen.check_names(names)


def test_the_rules_for_missing_cells_are_told_in_a_short_line():
    numbers = [Number(f"x{i}", 0, 100, points=1025, missing=0) for i in range(15)]
    line = Schema([*numbers, Number("age", 0, 100, missing=27)]).missing_rules()
    assert "x0, x1, x2" in line
    assert "x14: missing or not a number: counted as 0; outside: clamped" in line
    assert "age: missing or not a number: counted as 26.9531 (the grid point nearest 27)" in line
    assert len(line) < 300
    different = [Number(f"x{i}", 0, 100, points=101, missing=i) for i in range(20)]
    line = Schema(different).missing_rules()
    assert line.endswith("x5: missing or not a number: counted as 5; outside: clamped to the "
                         "bounds. 14 more columns: see the schema")  # fmt: skip
    assert len(line) < 550


def test_bounds_that_are_dates_are_read_from_a_file(tmp_path):
    path = tmp_path / "dates.toml"
    path.write_text(
        "[[column]]\nname = 'admitted'\nlow = 2020-01-01\nhigh = '2024-12-31'\n"
        "edges = [2022-01-01]\nmissing = 2021-06-01\n"
        "[[column]]\nname = 'children'\nlow = 0\nhigh = 11\npoints = 12\n"
    )
    schema = Schema.load(path)
    assert schema["admitted"] == Number(
        "admitted", "2020-01-01", "2024-12-31", edges=["2022-01-01"], missing="2021-06-01"
    )
    assert schema["children"].codes_in_use.tolist() == list(range(-11, 12, 2))
    assert schema.to_dict()[0]["low"] == "2020-01-01"
    path.write_text("[[column]]\nname = 'x'\nlow = 2020-01-01T12:00:00\nhigh = 2021-01-01\n")
    with pytest.raises(SchemaError, match=r"low must be a date .*, as high is; got datetime"):
        Schema.load(path)


def test_text_that_no_file_can_hold_is_refused():
    for options, sentence in [
        ({"note": 3}, "note must be text, got int"),
        ({"note": None}, "note must be text, got NoneType"),
        ({"note": "\ud800"}, "note holds half a surrogate pair"),
        ({"name": "a\ud800"}, "a column name holds half a surrogate pair"),
        ({"name": "a\r"}, "a column name holds a carriage return"),
        ({"name": "a" * 1_001}, "a column name has 1001 characters; at most 1000"),
        ({"levels": ["x\r", "y"]}, "a label holds a carriage return"),
        ({"levels": ["x", "\udfff"]}, "holds half a surrogate pair"),
        ({"levels": ["x", "y" * 200_000]}, "a label has 200000 characters"),
        ({"levels": {"x": "1", "y": "\ud800"}}, "a stored text holds half"),
    ]:
        with pytest.raises(SchemaError, match=sentence):
            Category(**{"name": "a", "levels": ["x", "y"]} | options)
    for make in (lambda: Number("a", 0, 1, note=3), lambda: Boolean("a", note=None)):
        with pytest.raises(SchemaError, match="note must be text"):
            make()


def test_stored_text_may_hold_a_carriage_return(tmp_path):
    schema = Schema([Category("a", {"x": "1\r", "y": "2"})])
    plan = dps.plan(schema, {"t": dps.Marginals(["a"], 1)}, budget=dps.PureDP(1))
    release = dps.release(plan, pd.DataFrame({"a": ["1\r"] * 30}), m=10, k=10)
    release.save(tmp_path / "r.zip")
    assert dps.load(tmp_path / "r.zip") == release


def test_names_and_conditions_that_no_file_can_hold_are_refused():
    schema = Schema([Category("a", ["x", "y"]), Boolean("b")])
    for name in ("b\r", "\ud800", "b" * 1_001):
        with pytest.raises(dps.RequestError, match="the name of an analysis h"):
            dps.plan(schema, {name: dps.Proportion("b")}, budget=dps.PureDP(1))
    for text in ("b and a == '\ud800'", "b or " * 5_000 + "b"):
        with pytest.raises(dps.ConditionError):
            dps.plan(schema, {"p": dps.Proportion(text)}, budget=dps.PureDP(1))
