"""Partial sums: any cut into parts, added in any order, is the whole."""

import itertools
import pickle
from functools import reduce
from operator import add

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import DataError
from dpstats.families.moments import Moments
from dpstats.private.kernel import SAFE_TOTAL, Kernel
from dpstats.private.partial_sums import PartialSums, sum_on_worker
from dpstats.schema import Number, Schema

FINE = Schema([Number("x", -1, 1, points=2**20 + 1, missing=0)])
LARGEST = 2**19


def listed(totals):
    return [total.tolist() for total in totals]


def cut(table, edges):
    """Record batches of the parts between some rows; a part may be empty."""
    ends = [0, *sorted(edges), table.num_rows]
    return [table.slice(a, b - a).to_batches() for a, b in itertools.pairwise(ends)]


@given(edges=st.lists(st.integers(0, 50), max_size=9), seed=st.integers(0, 9), order=st.randoms())
@settings(max_examples=20)
def test_parts_in_any_order_give_the_sums_of_the_loop(edges, seed, order, loop):
    table = loop.random_rows(50, seed)
    kernel = pickle.loads(pickle.dumps(Kernel(loop.schema, loop.blocks)))  # as it travels
    parts = [sum_on_worker(kernel, part) for part in cut(table, edges)]
    order.shuffle(parts)
    totals, rows = reduce(add, parts).exact(kernel)
    assert rows == 50
    assert listed(totals) == loop.sums(loop.schema, loop.blocks, table.to_pylist())


@given(times=st.lists(st.integers(0, 20), min_size=8, max_size=8))
@settings(max_examples=8)
def test_a_row_that_stands_for_several_counts_as_often(times, loop):
    table = loop.random_rows(8, 3)
    rows = [row for row, k in zip(table.to_pylist(), times, strict=True) for _ in range(k)]
    kernel = Kernel(loop.schema, loop.blocks)
    weighted = table.append_column("times", pa.array(times))
    totals, n = PartialSums.of(kernel, weighted.to_batches(), "times").exact(kernel)
    assert n == sum(times)
    assert listed(totals) == loop.sums(loop.schema, loop.blocks, rows)


def test_sums_of_both_signs_up_to_the_largest():
    block = Moments.of(FINE, ["x"], degree=1)
    kernel = Kernel(FINE, [block])
    most = SAFE_TOTAL // kernel.largest - 1
    for value, times in ((1.0, most), (-1.0, most), (-1.0, 1), (1.0, 2**32 + 1)):
        batch = pa.RecordBatch.from_pydict({"x": [value], "times": [times]})
        totals, rows = PartialSums.of(kernel, [batch], "times").exact(kernel)
        assert rows == times
        assert listed(totals) == [[int(value) * LARGEST * times]]


def test_parts_that_wrap_around_add_up_to_the_whole():
    kernel = Kernel(FINE, [Moments.of(FINE, ["x"], degree=1)])
    most = SAFE_TOTAL // kernel.largest - 1
    values, times = [1.0] * 9 + [-1.0] * 9 + [0.5], [most] * 18 + [3]
    parts = [
        PartialSums.of(kernel, [pa.RecordBatch.from_pydict({"x": [v], "times": [k]})], "times")
        for v, k in zip(values, times, strict=True)
    ]
    total = reduce(add, parts)
    assert total.rows == 18 * most + 3
    assert total.sums.tolist() == [3 * LARGEST // 2]
    assert abs(int(reduce(add, parts[:9]).sums[0])) < 9 * most * LARGEST  # it has wrapped


def test_too_many_rows_are_refused_as_part_of_the_sums():
    kernel = Kernel(FINE, [Moments.of(FINE, ["x"])])
    good = pa.RecordBatch.from_pydict({"x": [1.0], "times": [1]})
    many = pa.RecordBatch.from_pydict({"x": [1.0], "times": [2**30]})
    parts = [sum_on_worker(kernel, [batch], "times") for batch in (good, many, good)]
    assert [bool(part.refused) for part in parts] == [False, True, False]
    for order in itertools.permutations(parts):
        with pytest.raises(DataError, match="could overflow exact sums; declare fewer points"):
            reduce(add, order).exact(kernel)


def test_parts_that_are_too_many_rows_only_together():
    kernel = Kernel(FINE, [Moments.of(FINE, ["x"])])
    half = pa.RecordBatch.from_pydict({"x": [1.0], "times": [SAFE_TOTAL // kernel.largest - 1]})
    part = sum_on_worker(kernel, [half], "times")
    assert not part.refused
    with pytest.raises(DataError, match="could overflow exact sums"):
        (part + part).exact(kernel)


def test_a_failure_of_the_kernel_is_not_quoted(monkeypatch):
    kernel = Kernel(FINE, [Moments.of(FINE, ["x"])])

    def fail(*_):
        raise ValueError("secret 31.7")

    monkeypatch.setattr(Kernel, "add", fail)
    part = sum_on_worker(kernel, [pa.RecordBatch.from_pydict({"x": [1.0]})])
    assert part.refused == "reading the rows failed (ValueError)"
