"""The kernel: exact sums whatever the batches, the blocks and their order."""

import numpy as np
import pyarrow as pa

from dpstats.families.moments import Moments
from dpstats.private import kernel as summing
from dpstats.private.kernel import Kernel
from dpstats.private.sources import one_by_one
from dpstats.private.threads import sum_parts
from dpstats.schema import Number, Schema


def sums_of(schema, blocks, table, rows=None):
    batches = table.to_batches(max_chunksize=rows)
    return [total.tolist() for total in sum_parts(Kernel(schema, blocks), one_by_one(batches))[0]]


def test_the_blocks_may_come_in_any_order(loop):
    rng, table = np.random.default_rng(0), loop.random_rows(40, 7)
    expected = loop.sums(loop.schema, loop.blocks, table.to_pylist())
    for kept in (1, 2, 5, 9, len(expected)):
        order = rng.permutation(len(expected))[:kept]
        found = sums_of(loop.schema, [loop.blocks[i] for i in order], table)
        assert found == [expected[i] for i in order]


def test_without_a_joint_histogram_the_sums_are_the_same(loop, monkeypatch):
    table = loop.random_rows(300, 1)
    assert len(Kernel(loop.schema, loop.blocks)._tables) == 1
    with_it = sums_of(loop.schema, loop.blocks, table)
    for most, several in ((500, True), (100, True), (1, False)):
        monkeypatch.setattr(summing, "MOST_CELLS", most)
        assert (len(Kernel(loop.schema, loop.blocks)._tables) > 1) == several
        assert sums_of(loop.schema, loop.blocks, table) == with_it


class Halves:
    """A block the kernel has never heard of: counts rows with an even level."""

    def __init__(self, column):
        self.columns, self.size, self.needs_codes = (column,), 1, True
        self.bounds = np.ones(1, np.int64)

    def sums(self, codes):
        return np.array([np.sum(codes[self.columns[0].name] % 2 == 0)], dtype=np.int64)


def test_a_block_it_does_not_know_is_summed_by_itself(loop):
    table, grade = loop.random_rows(50, 2), loop.schema["grade"]
    found = sums_of(loop.schema, [Halves(grade), loop.blocks[0]], table, 7)
    assert found[0] == [sum(loop.code(grade, row["grade"]) % 2 == 0 for row in table.to_pylist())]


def test_the_finest_grid_sums_exactly_over_many_batches():
    # 38-bit squares: adding 100,000 of them passes 2^53, where floats lose the last bits.
    schema = Schema([Number("x", -1, 1, points=2**20 + 1, missing=0)])
    odd, n = 2**19 - 1, 100_001
    table = pa.table({"x": np.full(n, schema["x"].decode(np.array([odd]))[0])})
    for rows in (n, 2**15 - 1):
        found = sums_of(schema, [Moments.of(schema, ["x"])], table, rows)
        assert found == [[n * odd, n * odd**2]]
