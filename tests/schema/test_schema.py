"""Schemas: files that give back the same coding, and refusals that say what to write."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import SchemaError
from dpstats.schema import Boolean, Category, Design, Number, Schema

printed = st.characters(exclude_categories=["Cc", "Cs"])
names = st.text(printed, min_size=1, max_size=8).filter(
    lambda name: name.strip() and "`" not in name
)
labels = st.text(printed, min_size=1, max_size=6)
whole = st.integers(-(2**40), 2**40)
decimals = st.integers(-(10**6), 10**6).map(lambda v: v / 100)


def distinct(values, most=5):
    return st.lists(values, min_size=2, max_size=most, unique=True)


@st.composite
def columns(draw, name):
    kind = draw(st.sampled_from(["levels", "mapping", "bounds", "values"]))
    note = draw(st.text(max_size=6))
    if kind in ("levels", "mapping"):
        levels = draw(st.one_of(map(distinct, (labels, whole, decimals))))
        if kind == "mapping":
            keys = draw(st.lists(labels, min_size=len(levels), max_size=len(levels), unique=True))
            levels = dict(zip(keys, levels, strict=True))
        missing, other = draw(st.tuples(*2 * [st.none() | st.sampled_from(list(levels))]))
        return Category(name, levels, missing=missing, other=other, note=note)
    closed = draw(st.sampled_from(["left", "right"]))
    if kind == "values":
        values = sorted(draw(distinct(st.integers(-500, 500).map(lambda v: v / 10))))
        return Number(name, values=values, closed=closed, allow_missing=True)
    low, high = sorted(draw(distinct(decimals | whole, most=2)))
    missing = draw(st.none() | st.sampled_from([low, high]))
    points = draw(st.sampled_from([3, 11, 1025]))
    edges = [low + (high - low) / 2] if draw(st.booleans()) else []
    return Number(name, low, high, points, edges, closed, missing=missing, note=note)


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


@given(schema=schemas)
@settings(max_examples=25)
def test_plain_data_and_a_toml_file_give_back_the_same_coding(schema, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "schema.toml"
    path.write_text(to_toml(schema), encoding="utf-8")
    plain = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    for again in (plain, Schema.load(path)):
        assert again == schema
        for a, b in zip(schema, again, strict=True):
            assert type(a) is type(b)
            assert a.note == b.note
            assert (a.bins, a.code_range, a.bin_labels) == (b.bins, b.code_range, b.bin_labels)
            assert (a.missing_code, a.missing_rule()) == (b.missing_code, b.missing_rule())
            if isinstance(a, Category):
                assert (a.labels, a.stored, a.other_code) == (b.labels, b.stored, b.other_code)
                assert [type(v) for v in a.labels] == [type(v) for v in b.labels]
            else:
                np.testing.assert_array_equal(a.grid, b.grid)


def test_columns_that_cannot_be_read_say_what_to_write():
    levels = {"name": "x", "levels": ["a", "b"]}
    for column in [
        {"name": "x"}, {"name": "x", "kind": "text"}, {"name": "x", "kind": ["number"]},
        levels | {"level": 3}, {"name": "x", "low": 0, "high": 1, "bounds": "auto"},
        levels | {"kind": "boolean"}, {"levels": ["a", "b"]}, {"name": "x", "kind": "category"},
        {"name": "x", "low": 0}, {"name": "x", "low": "min", "high": 1}, "x",
    ]:  # fmt: skip
        with pytest.raises(SchemaError):
            Schema.from_dict([column])


def test_files_and_schemas_that_cannot_be_are_refused(tmp_path):
    for text, says in [
        ("", "survey.toml: there are no .*column.* tables"),
        ("[column]\nname = 'x'", "columns must be a list of tables"),
        ("[[column]]\nname = ", "survey.toml is not valid TOML"),
        ("column = []", "a schema needs at least one column"),
    ]:
        path = tmp_path / "survey.toml"
        path.write_text(text)
        with pytest.raises(SchemaError, match=says) as refused:
            Schema.load(path)
        assert str(tmp_path) not in str(refused.value)
    for columns, says in [
        ([], "a schema needs at least one column"),
        ([Boolean("x"), Number("x", 0, 1), Boolean("y")], r"declared more than once: \['x'\]"),
        (["x"], "columns of a schema are dps.Boolean, dps.Category and dps.Number, got str"),
        ("xy", "columns of a schema are a list of dps.Boolean"),
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


def test_a_selection_keeps_the_order_of_the_schema():
    assert SCHEMA.select(["score", "smoker"]).names == ("smoker", "score")
    with pytest.raises(SchemaError, match="no column 'pay'"):
        SCHEMA.select(["score", "pay"])


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
    assert Schema([Boolean("x")]).to_frame({"x": np.array([1, 0])})["x"].dtype == np.bool_


def test_text_that_no_file_can_hold_is_refused():
    for options in [
        {"note": 3}, {"note": "\ud800"}, {"name": "a\ud800"}, {"name": "a\r"},
        {"name": "a" * 1_001}, {"levels": ["x\r", "y"]}, {"levels": ["x", "y" * 200_000]},
        {"levels": {"x": "1", "y": "\ud800"}},
    ]:  # fmt: skip
        with pytest.raises(SchemaError):
            Category(**{"name": "a", "levels": ["x", "y"]} | options)
    for make in (lambda: Number("a", 0, 1, note=3), lambda: Boolean("a", note=None)):
        with pytest.raises(SchemaError, match="note must be text"):
            make()


@pytest.mark.parametrize(("plain", "named"), [
    ({"weights": "w"}, "lacks 'mean'"), ({"mean": 2}, "lacks 'weights'"),
    ({"weight": "w", "mean": 2}, "did you mean 'weights'"),
    ({"weights": "w", "mean": 2, "cap": 3, "unit": "w"}, "different names"),
])  # fmt: skip
def test_a_design_of_wrong_keys_says_which(plain, named):
    with pytest.raises(SchemaError, match=named):
        Design.from_dict(plain)
