"""What a billion rows take, by calculation from the cost of a row, a column and a function.

    python tests/benchmarks/at_size.py [--engines|--ibis|--memory|--written] [--rows 10_000_000]

One thread runs the kernel on batches that are in memory; the cost of reading them is that of a
Parquet file of the same columns. Costs are the least of three runs, in CPU nanoseconds per row.

`--engines`, `--ibis` and `--memory`: CPU seconds and peak memory of passes over files, each way in
processes of its own, medians of three passes; of a million, ten and thirty million rows with
`--memory`, once each. CPU seconds are those of all processes that were started, such as Java; the
process of an engine has made a pass over few rows before. `--written`: what synthetic rows of 16
columns take on their way to a Parquet file.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import apart, markdown, parsed, peak, timed

import dpstats as dps
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums

ROWS, BILLION = 2**17, 10**9
WIDE = (8, 4, 9)
READINGS = {  # shape of the table, what is asked
    "engines": ((8, 8, 4), ("tables", "moments")),
    "ibis, tables": ((0, 4, 9), ("tables",)),
    "ibis, numbers": (WIDE, ("tables", "moments")),
    "memory": (WIDE, ("tables", "line")),
}


def table(shape, rows=ROWS, seed=0):
    """Normal numbers x0, .. and equally likely levels c0, ..: a shape is how many, and levels."""
    rng, (numbers, columns, levels) = np.random.default_rng(seed), shape
    made = {f"x{i}": rng.normal(size=rows) for i in range(numbers)}
    codes = {f"c{i}": rng.integers(0, levels, rows).astype(np.int8) for i in range(columns)}
    return pa.table(made | codes)


def plan_of(shape, asked, n=None):
    numbers, columns, levels = shape
    x, c = [f"x{i}" for i in range(numbers)], [f"c{i}" for i in range(columns)]
    schema = [dps.Number(name, -4, 4, missing=0, points=1001) for name in x]
    schema += [dps.Category(name, list(range(levels))) for name in c]
    every = {
        "one by one": lambda: (
            {name: dps.Mean(name) for name in x}
            | {name: dps.Marginals([name], degree=1) for name in c}
        ),
        "tables": lambda: {"tables": dps.Marginals(c)},
        "moments": lambda: {"moments": dps.Covariance(x)},
        "line": lambda: {"line": dps.OLS(f"x0 ~ {' + '.join(x[1:])}")},
    }
    analyses = {name: analysis for kind in asked for name, analysis in every[kind]().items()}
    return dps.plan(dps.Schema(schema), analyses, budget=dps.ZCDP(1), n=n)


def write(path, shape, rows, groups=20):
    with pq.ParquetWriter(path, table(shape, 1).schema) as writer:
        for seed in range(groups):
            writer.write_table(table(shape, rows // groups, seed))


def opened(way, path):
    """A file, or those of a folder, as the table of an engine."""
    if way == "Dask":
        import dask.dataframe as dd

        return dd.read_parquet(path, split_row_groups=1)
    if way == "Spark":
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        return session.getOrCreate().read.parquet(str(path))
    if way == "DuckDB":
        import duckdb

        return duckdb.sql(f"select * from '{path}/*.parquet'")
    if way == "polars":
        import polars as pl

        return pl.scan_parquet(f"{path}/*.parquet")
    if way in ("rows", "distinct rows"):
        import ibis

        from dpstats.private.engines import ibis as engine

        if way == "rows":
            engine._AS_BYTES = {}
        return ibis.duckdb.connect().read_parquet(path)
    return path


def cpu_of_tree():
    """CPU seconds of this process and its descendants, those that have ended included (Linux)."""
    used, parents = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(place.parent.name)
        parents[process], used[process] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = [os.getpid()]
    for process in ours:
        ours += [child for child, parent in parents.items() if parent == process]
    return sum(used[process] for process in ours) / os.sysconf("SC_CLK_TCK")


def read(reading, way, path):
    plan, path, found = plan_of(*READINGS[reading]), Path(path), []
    if reading == "engines":
        dps.measure(plan, opened(way, path.with_name("few.parquet")), progress=False)
    data = opened(way, path)
    for _ in range(3 if reading == "engines" else 1):
        start = cpu_of_tree()
        dps.measure(plan, data, progress=False)
        found.append((cpu_of_tree() - start, peak()))
    print(json.dumps(found))


def compare(reading, ways, path, processes=1):
    for way in ways:
        runs = [apart(__file__, "--of", reading, way, path) for _ in range(processes)]
        seconds, memory = np.concatenate(runs).T
        print(f"{reading:14} {way:14} {np.median(seconds):6.2f} CPU s, from {seconds.min():.2f} to "
              f"{seconds.max():.2f}, peak {np.median(memory):.0f} MB", flush=True)  # fmt: skip


def written(rows, path):
    plan = plan_of((0, 16, 4), ["tables"])
    release = dps.release(plan, table((0, 16, 4), 50_000), k=rows, rng=0, progress=False)
    before, (_, used) = peak(), timed(lambda: release.to_parquet(path))
    print(f"{rows:,} rows of 16 columns: {used:.1f} CPU s, peak {peak():.0f} MB, "
          f"{before:.0f} MB before")  # fmt: skip


def least_cost(work):
    """CPU seconds, the least of three runs."""
    return min(timed(work)[1] for _ in range(3))


def by_calculation(path):
    lines = []
    for columns in (20, 50, 100):
        shape, asked = (columns // 2, columns // 2, 4), []
        rows = table(shape)
        pq.write_table(rows, path)
        read = least_cost(lambda: pq.ParquetFile(path).read(use_threads=False))
        for kind in ("one by one", "tables", "moments"):
            asked.append(kind)
            plan = plan_of(shape, asked, BILLION)
            blocks = [p.block for p in plan.strategy.blocks if p.role != "count"]
            kernel, batches = Kernel(plan.columns, blocks), rows.to_batches()
            PartialSums.of(kernel, batches)  # BLAS and caches are warm
            many = [batch for batch in batches for _ in range(3)]
            summed = least_cost(lambda kernel=kernel, many=many: PartialSums.of(kernel, many)) / 3
            functions = sum(block.size for block in blocks)
            hours = BILLION * (read + summed) / ROWS / 3600
            each = (round(1e9 * seconds / ROWS) for seconds in (read, summed))
            lines.append([columns, kind, functions, *each, hours, hours * 36, 8e-6 * functions,
                          15e-6 * functions])  # fmt: skip
    head = ["columns", "plan", "functions", "ns a row: read", "sum", "10^9 rows: CPU h"]
    print(markdown([*head, "100 workers, s", "sums, MB a part", "noise, s"], lines))


def main():
    given = parsed(__doc__, engines=False, ibis=False, memory=False, written=False, rows=10**7,
                   of=[str])  # fmt: skip
    if given.of:
        read(*given.of)
        return
    print(f"load {os.getloadavg()[0]:.1f}; peak before a row is read: {peak():.0f} MB")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.parquet"
        if given.engines:
            write(path, READINGS["engines"][0], given.rows)
            pq.write_table(table(READINGS["engines"][0], 2_000), path.with_name("few.parquet"))
            compare("engines", ("the file", "Dask", "Spark"), path)
        elif given.ibis:
            write(path, WIDE, given.rows)
            compare("ibis, tables", ("rows", "distinct rows", "the file"), path, 3)
            compare("ibis, numbers", ("rows", "the file"), path, 3)  # floats are read as rows
        elif given.memory:
            for files, rows in ((1, 10**6), (1, 10**7), (3, 10**7)):
                for number in range(files):
                    write(path.with_name(f"{number}.parquet"), WIDE, rows, rows // 500_000)
                print(f"{files * rows:,} rows")
                compare("memory", ("by name", "DuckDB", "polars"), name)
        elif given.written:
            written(given.rows, path)
        else:
            by_calculation(path)


if __name__ == "__main__":
    main()
