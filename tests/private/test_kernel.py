"""The kernel: exact sums whatever the batches, the blocks and their order."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells
from dpstats.private import kernel as summing
from dpstats.private.kernel import MOST_CELLS, Kernel
from dpstats.private.sources import one_by_one
from dpstats.private.threads import sum_parts
from dpstats.schema import Category, Number, Schema


def listed(totals):
    return [total.tolist() for total in totals]


@given(order=st.permutations(range(12)), kept=st.integers(1, 12))
@settings(max_examples=25)
def test_the_blocks_may_come_in_any_order(order, kept, loop):
    blocks = [loop.blocks[i] for i in order[:kept]]
    table = loop.random_rows(40, 7)
    expected = loop.sums(loop.schema, blocks, table.to_pylist())
    assert (
        listed(sum_parts(Kernel(loop.schema, blocks), one_by_one(table.to_batches()))[0])
        == expected
    )


def test_without_a_joint_histogram_the_sums_are_the_same(loop, monkeypatch):
    table = loop.random_rows(300, 1)
    joint = Kernel(loop.schema, loop.blocks)
    assert len(joint._tables) == 1
    with_it = listed(sum_parts(joint, one_by_one(table.to_batches()))[0])
    for most, several in ((500, True), (100, True), (1, False)):
        monkeypatch.setattr(summing, "MOST_CELLS", most)
        apart = Kernel(loop.schema, loop.blocks)
        assert (len(apart._tables) > 1) == several
        assert listed(sum_parts(apart, one_by_one(table.to_batches()))[0]) == with_it


def test_many_columns_pass_the_joint_histogram():
    schema = Schema([Category(f"c{i}", list(range(10))) for i in range(6)])
    assert MOST_CELLS < 10**6
    tables = [Cells.table(schema, [f"c{i}", f"c{j}"]) for i in range(6) for j in range(i)]
    rng = np.random.default_rng(3)
    cells = {name: rng.integers(10, size=500) for name in schema.names}
    totals, _ = sum_parts(Kernel(schema, tables), one_by_one([pa.RecordBatch.from_pydict(cells)]))
    for table, total in zip(tables, totals, strict=True):
        one, other = (cells[c.name] for c in table.columns)
        expected = np.histogram2d(one, other, bins=[np.arange(11)] * 2)[0]
        np.testing.assert_array_equal(total.reshape(10, 10), expected)


class Halves:
    """A block the kernel has never heard of: counts rows with an even level."""

    def __init__(self, column):
        self.columns, self.size, self.needs_codes = (column,), 1, True
        self.bounds = np.ones(1, np.int64)

    def sums(self, codes):
        return np.array([np.sum(codes[self.columns[0].name] % 2 == 0)], dtype=np.int64)


def test_a_block_it_does_not_know_is_summed_by_itself(loop):
    table = loop.random_rows(50, 2)
    blocks = [Halves(loop.schema["grade"]), loop.blocks[0]]
    totals, _ = sum_parts(
        Kernel(loop.schema, blocks), one_by_one(table.to_batches(max_chunksize=7))
    )
    even = sum(loop.code(loop.schema["grade"], row["grade"]) % 2 == 0 for row in table.to_pylist())
    assert totals[0].tolist() == [even]


def test_the_finest_grid_sums_exactly_over_many_batches():
    # 38-bit squares: adding 100,000 of them passes 2^53, where floats lose the last bits.
    schema = Schema([Number("x", -1, 1, points=2**20 + 1, missing=0)])
    block, odd, n = Moments.of(schema, ["x"]), 2**19 - 1, 100_001
    cells = np.full(n, schema["x"].decode(np.array([odd]))[0])
    for size in (n, 2**15 - 1, 40_000):
        batches = pa.table({"x": cells}).to_batches(max_chunksize=size)
        totals, _ = sum_parts(Kernel(schema, [block]), one_by_one(batches))
        assert totals[0].tolist() == [n * odd, n * odd**2]
