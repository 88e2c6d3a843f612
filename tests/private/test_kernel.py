"""The kernel: exact sums whatever the batches, the blocks, their order and the parts of a table."""

import itertools
import pickle
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.private import kernel as summing
from dpstats.private import sources
from dpstats.private.kernel import SAFE_TOTAL, Kernel
from dpstats.private.partial_sums import PartialSums, sum_on_worker

FINE = dps.Schema([dps.Number("x", -1, 1, points=2**20 + 1, missing=0)])
LARGEST = 2**19


def listed(totals):
    return [total.tolist() for total in totals]


def part_of(kernel, value, times):
    batch = pa.RecordBatch.from_pydict({"x": [value], "times": [times]})
    return sum_on_worker(kernel, [batch], "times")


@pytest.fixture
def fine():
    """A kernel of whose sums few rows reach the largest, and how many."""
    kernel = Kernel(FINE, [dps.Moments.of(FINE, ["x"], degree=1)])
    return kernel, SAFE_TOTAL // kernel.largest - 1


def test_the_blocks_may_come_in_any_order_and_without_a_joint_histogram(loop, sums_of, monkeypatch):
    rng, table = np.random.default_rng(0), loop.rows(40)
    expected, _ = loop.of(table)
    for most, tables in ((summing.MOST_CELLS, {1}), (500, {2, 3, 4}), (100, {2, 3, 4}), (1, {0})):
        monkeypatch.setattr(summing, "MOST_CELLS", most)
        assert len(Kernel(loop.schema, loop.blocks)._tables) in tables
        for kept in (2, 9, len(expected)):
            order = rng.permutation(len(expected))[:kept]
            found, _ = sums_of(table, loop.schema, [loop.blocks[i] for i in order])
            assert found == [expected[i] for i in order]


def test_the_finest_grid_sums_exactly_over_many_batches(sums_of, monkeypatch):
    # 38-bit squares: adding 100,000 of them passes 2^53, where floats lose the last bits.
    odd, n = 2**19 - 1, 100_001
    table = pa.table({"x": np.full(n, FINE["x"].decode(np.array([odd]))[0])})
    for rows in (n, 2**15 - 1):
        monkeypatch.setattr(sources, "BATCH_ROWS", rows)
        found = sums_of(table, FINE, [dps.Moments.of(FINE, ["x"])])
        assert found == ([[n * odd, n * odd**2]], n)


# Partial sums: any cut into parts, added in any order, is the whole.


def test_a_row_that_stands_for_several_counts_as_often(loop, fine):
    table, kernel = loop.rows(8), pickle.loads(pickle.dumps(Kernel(loop.schema, loop.blocks)))
    times = [0, 20, 1, 3, 0, 7, 1, 12]
    weighted = table.append_column("times", pa.array(times))
    totals, n = PartialSums.of(kernel, weighted.to_batches(), "times").exact(kernel)
    assert (listed(totals), n) == loop.of(table.take(np.repeat(range(8), times)))
    kernel, most = fine  # sums of both signs, up to the largest
    for value, times in ((1.0, most), (-1.0, most), (-1.0, 1), (1.0, 2**32 + 1)):
        totals, rows = part_of(kernel, value, times).exact(kernel)
        assert (listed(totals), rows) == ([[int(value) * LARGEST * times]], times)


def test_parts_that_wrap_around_add_up_and_too_many_rows_are_refused_as_part_of_the_sums(fine):
    kernel, most = fine
    parts = [part_of(kernel, value, most) for value in [1.0] * 9 + [-1.0] * 9]
    total = reduce(add, [*parts, part_of(kernel, 0.5, 3)])
    assert total.rows == 18 * most + 3
    assert total.sums.tolist() == [3 * LARGEST // 2]
    assert abs(int(reduce(add, parts[:9]).sums[0])) < 9 * most * LARGEST  # it has wrapped
    parts = [part_of(kernel, 1.0, times) for times in (1, most + 1, 1)]
    assert [bool(part.refused) for part in parts] == [False, True, False]
    half = part_of(kernel, 1.0, most)
    assert not half.refused
    for order in (*itertools.permutations(parts), [half, half]):
        with pytest.raises(dps.DataError, match="could overflow exact sums; declare fewer points"):
            reduce(add, order).exact(kernel)
