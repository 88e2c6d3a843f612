"""Cells of every kind have a code: Python objects, numbers of any type, text in CSV."""

import math

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.families.tables.cells import Cells
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import Boolean, Category, Schema, arrow
from dpstats.schema.arrow import numbers_from_text


def test_text_that_spells_numbers_is_read_as_numbers():
    texts = ["1.", ".5", " +3 ", "-2e-1", "1e400", "Infinity", "-inf", "TRUE", "False",
             "", "nan", "1,5", "0x10", "1_000", "two", "--1", "+", "."]  # fmt: skip
    numbers = numbers_from_text(pa.array([t.encode() for t in texts], pa.large_binary()))
    known = [1, 0.5, 3, -0.2, math.inf, math.inf, -math.inf, 1, 0]
    assert numbers[:9].tolist() == known
    assert np.all(np.isnan(numbers[9:]))


@given(
    texts=st.lists(
        st.none()
        | st.text("0123456789+-.eEinfatrufls \té\0_,x", max_size=9)
        | st.floats().map(repr)
        | st.sampled_from(["1e400", "-nan", "nan(1)", "-infinity", "5.", "-.5", "1 ", " 1", "1e"]),
        max_size=8,
    ),
    broken=st.booleans(),
    start=st.integers(0, 3),
)
@settings(max_examples=250)
def test_texts_read_at_once_have_the_numbers_of_the_pattern(texts, broken, start):
    cells = [None if text is None else text.encode() for text in texts]
    cells += [b"1\xff"] * broken
    stored = pa.array(cells, pa.large_binary()).slice(start)
    array = arrow.plain(stored)
    by_pattern = arrow._numbers_by_pattern(array)
    np.testing.assert_array_equal(numbers_from_text(array), by_pattern)
    np.testing.assert_array_equal(arrow.floats(stored), by_pattern)
    for text, number in zip(array, by_pattern, strict=True):
        one = pa.array([text.as_py()], pa.large_binary())
        np.testing.assert_array_equal(numbers_from_text(one), [number])
        np.testing.assert_array_equal(arrow.floats(one), [number])


def test_numbers_in_text_are_read_to_the_last_bit():
    values = np.random.default_rng(2).normal(size=500) * 10.0 ** np.arange(-250, 250)
    texts = [repr(float(value)).encode() for value in values]
    read = numbers_from_text(pa.array(texts, pa.large_binary()))
    np.testing.assert_array_equal(read, values)


def read_csv(text, schema, folder):
    path = folder / "cells.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    blocks = [Cells.table(schema, [name]) for name in schema.names]
    sums, n = exact_sums(open_source(path, schema), schema, blocks)
    return [block.tolist() for block in sums], n


def test_a_csv_cell_is_read_as_its_column_declares(tmp_path):
    schema = Schema([
        Category("code", ["01", "1", "NA"], allow_missing=True),
        Category("grade", [1, 2, 3], missing=2, other=3),
        Boolean("flag"),
    ])  # fmt: skip
    text = (
        "\ufeffgrade,extra,flag,code\n1.0,,true,01\n+1,x,1,1\nfour,,FALSE,NA\n,,yes,\nnan,,,1.0\n"
    )
    sums, n = read_csv(text, schema, tmp_path)
    assert n == 5
    assert sums == [[1, 2, 1, 1], [2, 2, 1], [3, 2]]
