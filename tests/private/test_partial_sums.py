"""Partial sums: any cut into parts, added in any order, is the whole."""

import itertools
import pickle
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pytest

from dpstats.errors import DataError
from dpstats.families.moments import Moments
from dpstats.private.kernel import SAFE_TOTAL, Kernel
from dpstats.private.partial_sums import PartialSums, sum_on_worker
from dpstats.schema import Number, Schema

FINE = Schema([Number("x", -1, 1, points=2**20 + 1, missing=0)])
LARGEST = 2**19


def listed(totals):
    return [total.tolist() for total in totals]


def part_of(kernel, value, times):
    batch = pa.RecordBatch.from_pydict({"x": [value], "times": [times]})
    return sum_on_worker(kernel, [batch], "times")


def test_parts_in_any_order_give_the_sums_of_the_loop(loop):
    rng, table = np.random.default_rng(0), loop.random_rows(50, 3)
    kernel = pickle.loads(pickle.dumps(Kernel(loop.schema, loop.blocks)))  # as it travels
    expected = loop.sums(loop.schema, loop.blocks, table.to_pylist())
    for cuts in (0, 1, 4, 9):
        ends = [0, *sorted(rng.integers(0, 51, cuts).tolist()), 50]  # a part may be empty
        parts = [table.slice(a, b - a).to_batches() for a, b in itertools.pairwise(ends)]
        sums = [sum_on_worker(kernel, parts[i]) for i in rng.permutation(len(parts))]
        totals, rows = reduce(add, sums).exact(kernel)
        assert rows == 50
        assert listed(totals) == expected


def test_a_row_that_stands_for_several_counts_as_often(loop):
    table, kernel = loop.random_rows(8, 3), Kernel(loop.schema, loop.blocks)
    times = [0, 20, 1, 3, 0, 7, 1, 12]
    rows = [row for row, k in zip(table.to_pylist(), times, strict=True) for _ in range(k)]
    weighted = table.append_column("times", pa.array(times))
    totals, n = PartialSums.of(kernel, weighted.to_batches(), "times").exact(kernel)
    assert n == sum(times)
    assert listed(totals) == loop.sums(loop.schema, loop.blocks, rows)


def test_sums_of_both_signs_up_to_the_largest():
    kernel = Kernel(FINE, [Moments.of(FINE, ["x"], degree=1)])
    most = SAFE_TOTAL // kernel.largest - 1
    for value, times in ((1.0, most), (-1.0, most), (-1.0, 1), (1.0, 2**32 + 1)):
        totals, rows = part_of(kernel, value, times).exact(kernel)
        assert rows == times
        assert listed(totals) == [[int(value) * LARGEST * times]]


def test_parts_that_wrap_around_add_up_to_the_whole():
    kernel = Kernel(FINE, [Moments.of(FINE, ["x"], degree=1)])
    most = SAFE_TOTAL // kernel.largest - 1
    parts = [part_of(kernel, value, most) for value in [1.0] * 9 + [-1.0] * 9]
    total = reduce(add, [*parts, part_of(kernel, 0.5, 3)])
    assert total.rows == 18 * most + 3
    assert total.sums.tolist() == [3 * LARGEST // 2]
    assert abs(int(reduce(add, parts[:9]).sums[0])) < 9 * most * LARGEST  # it has wrapped


def test_too_many_rows_are_refused_as_part_of_the_sums():
    kernel = Kernel(FINE, [Moments.of(FINE, ["x"])])
    parts = [part_of(kernel, 1.0, times) for times in (1, 2**30, 1)]
    assert [bool(part.refused) for part in parts] == [False, True, False]
    for order in itertools.permutations(parts):
        with pytest.raises(DataError, match="could overflow exact sums; declare fewer points"):
            reduce(add, order).exact(kernel)
    half = part_of(kernel, 1.0, SAFE_TOTAL // kernel.largest - 1)
    assert not half.refused
    with pytest.raises(DataError, match="could overflow exact sums"):
        (half + half).exact(kernel)


def test_a_failure_of_the_kernel_is_not_quoted(monkeypatch):
    def fail(*_):
        raise ValueError("secret 31.7")

    monkeypatch.setattr(Kernel, "add", fail)
    part = part_of(Kernel(FINE, [Moments.of(FINE, ["x"])]), 1.0, 1)
    assert part.refused == "reading the rows failed (ValueError)"
