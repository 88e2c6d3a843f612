"""What a billion rows take, by calculation from the cost of a row, a column and a function.

    python tests/benchmarks/at_size.py

One thread runs the kernel on batches that are in memory; the cost of reading them is that of a
Parquet file of the same columns. Costs are the least of three runs, in CPU nanoseconds per row.
The plans have half numbers and half levels (4 each): means and shares of each column; all two-way
tables of the levels; and first and second moments of the numbers.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpstats as dps
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums

ROWS, LEVELS, BILLION = 2**17, 4, 10**9
WIDTHS = (20, 50, 100)


def table(columns):
    rng = np.random.default_rng(0)
    half = columns // 2
    numbers = {f"x{i}": rng.normal(size=ROWS) for i in range(half)}
    levels = {f"c{i}": rng.integers(0, LEVELS, ROWS).astype(np.int8) for i in range(half)}
    return pa.table(numbers | levels)


def plans(columns):
    names = range(columns // 2)
    numbers, levels = [f"x{i}" for i in names], [f"c{i}" for i in names]
    schema = dps.Schema([
        *(dps.Number(x, -4, 4, missing=0, points=1001) for x in numbers),
        *(dps.Category(c, list(range(LEVELS))) for c in levels),
    ])  # fmt: skip
    each = {x: dps.Mean(x) for x in numbers} | {c: dps.Marginals([c], degree=1) for c in levels}
    asked = {
        "one by one": each,
        "and tables": each | {"tables": dps.Marginals(levels)},
        "and moments": each | {"tables": dps.Marginals(levels), "moments": dps.Covariance(numbers)},
    }
    return {name: (schema, analyses) for name, analyses in asked.items()}


def cost(work):
    """CPU seconds, the least of three runs."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def main():
    print("columns  plan           functions  ns a row: read   kernel   of 10^9 rows: CPU h, "
          "100 workers min, limbs MB a part, noise s")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for columns in WIDTHS:
            rows, path = table(columns), Path(folder) / "rows.parquet"
            pq.write_table(rows, path)
            read = cost(lambda path=path: pq.ParquetFile(path).read(use_threads=False))
            for name, (schema, analyses) in plans(columns).items():
                plan = dps.plan(schema, analyses, budget=dps.ZCDP(1), n=BILLION)
                blocks = [p.block for p in plan.strategy.blocks if p.role != "count"]
                kernel = Kernel(plan.columns, blocks)
                batches = rows.to_batches()
                PartialSums.of(kernel, batches)  # BLAS and caches are warm
                many = [batch for batch in batches for _ in range(3)]
                summed = cost(lambda kernel=kernel, many=many: PartialSums.of(kernel, many)) / 3
                functions = sum(block.size for block in blocks)
                whole = BILLION * (read + summed) / ROWS
                print(f"{columns:7}  {name:13} {functions:10,}  {1e9 * read / ROWS:14.0f} "
                      f"{1e9 * summed / ROWS:8.0f} {whole / 3600:22.2f} {whole / 6000:17.1f} "
                      f"{16 * functions / 1e6:17.2f} {15e-6 * functions:9.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
