"""Cells of every kind have a code: Python objects, numbers of any type, text in CSV."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.schema import arrow
from dpstats.schema.arrow import numbers_from_text


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
