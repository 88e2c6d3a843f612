"""Schemas: rows that are coded and decoded, and refusals that say what to write."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import SchemaError
from dpstats.schema import Boolean, Category, Design, Number, Schema


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
        ([Boolean("x"), Number("x", 0, 1), Boolean("y")], r"declared more than once: \['x'\]"),
        ([Boolean("x"), Number("_weight", 0, 1)], "no column may be named '_weight'"),
        ([Boolean("_count")], "no column may be named '_count'"),
        (["x"], "columns of a schema are dps.Boolean, dps.Category and dps.Number, got str"),
        ("xy", "columns of a schema are a list of dps.Boolean"),
    ]:
        with pytest.raises(SchemaError, match=says):
            Schema(columns)


SCHEMA = Schema([
    Category("smoker", ["no", "yes"]), Number("age", 0, 120, edges=[18, 65], missing=40),
    Boolean("tall", allow_missing=True), Number("score", values=[17.5, 22, 27]),
    Category("wave", [1, 2]),
])  # fmt: skip


def test_rows_are_coded_and_decoded_in_the_order_of_the_schema():
    assert SCHEMA.select(["score", "smoker"]).names == ("smoker", "score")
    with pytest.raises(SchemaError, match="no column 'pay'"):
        SCHEMA.select(["score", "pay"])
    batch = pa.RecordBatch.from_pydict({
        "wave": [2, 1, None], "unused": ["?", "?", "?"], "smoker": ["yes", "maybe", None],
        "age": [18, 300, None], "tall": [True, False, None], "score": [17.5, 25, None],
    })  # fmt: skip
    codes = SCHEMA.encode(batch)
    assert list(codes) == list(SCHEMA.names)
    frame = SCHEMA.to_frame(codes)
    assert frame.pop("age").tolist() == pytest.approx([18, 120, 40], abs=0.2)
    assert frame.to_dict("list") == {
        "smoker": ["yes", "no", "no"], "tall": [True, False, "(missing)"],
        "score": [17.5, 27, 22], "wave": [2, 1, 1],
    }  # fmt: skip
    assert isinstance(frame["smoker"].dtype, pd.CategoricalDtype)
    assert frame["smoker"].cat.categories.tolist() == ["no", "yes"]
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


def test_a_design_of_wrong_keys_says_which():
    for plain, named in [
        ({"weights": "w"}, "lacks 'mean'"),
        ({"mean": 2}, "lacks 'weights'"),
        ({"weight": "w", "mean": 2}, "did you mean 'weights'"),
        ({"weights": "w", "mean": 2, "cap": 3, "unit": "w"}, "different names"),
    ]:
        with pytest.raises(SchemaError, match=named):
            Design.from_dict(plain)


# Arrays of any cells are coded without an error: one that depends on a cell would disclose it

PIECES = st.sampled_from([b"2024-02-30", b"2024-05-01", b"T", b" ", b"\xff", b"1", b".", b"e9",
                          b"-", b"inf", b"nan", b"true", b"\xc5\xbf", b",", b"\n",
                          b"\x00"])  # fmt: skip
texts = st.binary(max_size=12) | st.lists(PIECES, max_size=5).map(b"".join)
COLUMNS = [Category("v", ["1", "true"], other="true"),
           Category("v", ["01", "2024-05-01", "1e9", "TRUE", "inf", "nan"], other="nan"),
           Category("v", [1, 2.5], missing=2.5),
           Number("v", 0, 9, points=10), Number("v", "2020-01-01", "2024-12-31")]  # fmt: skip


@given(cells=st.lists(st.none() | texts, max_size=6))
@settings(max_examples=8)
def test_bytes_of_any_kind_have_a_code(cells):
    for kind in (pa.binary(), pa.large_binary()):
        values = pa.array(cells, kind)
        for column in COLUMNS:
            low, high = column.code_range
            for array in (values, values.dictionary_encode()):
                codes = column.encode(array)
                assert codes.shape == (len(cells),)
                assert np.all((codes >= low) & (codes <= high))


def test_an_index_outside_a_dictionary_has_a_code():
    column = Category("v", ["a", "b", "c"], missing="c")
    for kind in (pa.int8(), pa.uint16(), pa.int64()):
        indices = pa.array([0, 1, None, 2, 100], kind)
        cells = pa.DictionaryArray.from_arrays(indices, pa.array(["b", "a"]), safe=False)
        assert column.encode(cells).tolist() == [1, 0, 2, 2, 2]
    low = pa.array([-100], pa.int8())
    below = pa.DictionaryArray.from_arrays(low, cells.dictionary, safe=False)
    assert column.encode(below).tolist() == [1]
