"""Arrays of any cells are coded without an error: one that depends on a cell would disclose it."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.schema import Category, Number

PIECES = st.sampled_from([b"2024-02-30", b"2024-05-01", b"T", b" ", b"\xff", b"1", b".", b"e9",
                          b"-", b"inf", b"nan", b"true", b"\xc5\xbf", b",", b"\n",
                          b"\x00"])  # fmt: skip
texts = st.binary(max_size=12) | st.lists(PIECES, max_size=5).map(b"".join)
COLUMNS = [Category("v", ["1", "true"], other="true"),
           Category("v", ["01", "2024-05-01", "1e9", "TRUE", "inf", "nan"], other="nan"),
           Category("v", [1, 2.5], missing=2.5),
           Number("v", 0, 9, points=10), Number("v", "2020-01-01", "2024-12-31")]  # fmt: skip


@given(cells=st.lists(st.none() | texts, max_size=6))
@settings(max_examples=12)
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
