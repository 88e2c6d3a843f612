"""What a billion rows take, by calculation from the cost of a row, a column and a function.

    python tests/benchmarks/at_size.py
    python tests/benchmarks/at_size.py --engines [--rows 10_000_000]
    python tests/benchmarks/at_size.py --ibis [--rows 10_000_000]
    python tests/benchmarks/at_size.py --memory
    python tests/benchmarks/at_size.py --written [--rows 10_000_000]

One thread runs the kernel on batches that are in memory; the cost of reading them is that of a
Parquet file of the same columns. Costs are the least of three runs, in CPU nanoseconds per row.
The plans have half numbers and half levels (4 each): means and shares of each column; all two-way
tables of the levels; and first and second moments of the numbers.

With `--engines`, what ten million rows of 16 columns do take: all two-way tables of the 8 columns
of levels and the covariance of the 8 numbers, in a file of 20 row groups. CPU seconds of a process
and all those it has started, such as Java and the workers of Spark, after a pass over few rows:
medians of three passes.

With `--ibis`, what a table of Ibis on DuckDB takes, by each of its two queries, beside the file
itself: CPU seconds and peak memory, medians of three processes each, for the tables of 4 columns of
9 levels alone, and with the covariance of 8 numbers, which are read as rows.

With `--memory`, what a million, ten and thirty million rows of 12 columns take in the end: all
two-way tables of 4 columns of 9 levels and the least squares of 8 numbers, in a file for each ten
million rows, read by name and by queries of DuckDB and polars. Every reading is a process of its
own.

With `--written`, what as many synthetic rows of 16 columns of levels take on their way to a Parquet
file, and the peak memory of the process.
"""

import argparse
import os
import resource
import subprocess
import sys
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
QUERIES = ("by name", "DuckDB", "polars")
WAREHOUSE = ("rows", "distinct rows", "the file")
ENGINES = ("the file", "Dask", "Spark")


def table(columns, rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    half = columns // 2
    numbers = {f"x{i}": rng.normal(size=rows) for i in range(half)}
    levels = {f"c{i}": rng.integers(0, LEVELS, rows).astype(np.int8) for i in range(half)}
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


def opened(engine, path):
    """The table of an engine."""
    if engine == "the file":
        return path
    if engine == "Dask":
        import dask.dataframe as dd

        return dd.read_parquet(path, split_row_groups=1)
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return session.getOrCreate().read.parquet(str(path))


def of_engine(engine, folder):
    """CPU seconds of three passes, printed."""
    schema, analyses = plans(16)["and moments"]
    asked = {name: analyses[name] for name in ("tables", "moments")}
    plan = dps.plan(schema, asked, budget=dps.ZCDP(1))
    few, many = (opened(engine, folder / name) for name in ("few.parquet", "many.parquet"))
    dps.measure(plan, few, progress=False)
    for _ in range(3):
        start = cpu_of_tree()
        dps.measure(plan, many, progress=False)
        print(cpu_of_tree() - start)


def of_engines(rows):
    """Write the file, and let every engine read it in a process of its own."""
    groups = 20
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(table(16, 2_000), folder / "few.parquet", row_group_size=1_000)
        with pq.ParquetWriter(folder / "many.parquet", table(16, 1).schema) as writer:
            for seed in range(groups):
                writer.write_table(table(16, rows // groups, seed))
        print(f"CPU s of {rows:,} rows of 16 columns; load {os.getloadavg()[0]:.1f}")
        for engine in ENGINES:
            command = [sys.executable, __file__, "--engines", "--of", engine, name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            spent = list(map(float, done.stdout.split()))
            low, middle, high = sorted(spent)
            print(f"{engine:20} {middle:6.2f}, from {low:.2f} to {high:.2f}", flush=True)


def of_query(query, folder):
    """CPU seconds and the peak memory of one pass, printed."""
    numbers, levels = [f"x{i}" for i in range(8)], [f"c{i}" for i in range(4)]
    schema = dps.Schema([
        *(dps.Number(x, -4, 4, missing=0) for x in numbers),
        *(dps.Category(c, list(range(9))) for c in levels),
    ])  # fmt: skip
    asked = {"tables": dps.Marginals(levels), "ols": dps.OLS("x0 ~ " + " + ".join(numbers[1:]))}
    plan = dps.plan(schema, asked, budget=dps.ZCDP(1))
    data = folder
    if query == "DuckDB":
        import duckdb

        data = duckdb.sql(f"select * from '{folder}/*.parquet'")
    elif query == "polars":
        import polars as pl

        data = pl.scan_parquet(f"{folder}/*.parquet")
    start = time.process_time()
    dps.measure(plan, data, progress=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.process_time() - start:.2f} CPU s, peak {peak:.0f} MB")


def of_ibis(way, path):
    """CPU seconds and the peak memory of one pass, printed."""
    way, asked = way.split(", ")
    numbers, levels = [f"x{i}" for i in range(8)], [f"c{i}" for i in range(4)]
    analyses = {"tables": dps.Marginals(levels)}
    columns = [dps.Category(c, list(range(9))) for c in levels]
    if asked == "numbers":
        analyses["moments"] = dps.Covariance(numbers)
        columns += [dps.Number(x, -4, 4, missing=0) for x in numbers]
    plan = dps.plan(dps.Schema(columns), analyses, budget=dps.ZCDP(1))
    data = path
    if way != "the file":
        import ibis

        from dpstats.private.engines import ibis as engine

        data = ibis.duckdb.connect().read_parquet(path)
        if way == "rows":
            engine._AS_BYTES = {}
    start = time.process_time()
    dps.measure(plan, data, progress=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(time.process_time() - start, peak)


def warehouse(rows):
    """Write a file, and read it in processes of their own."""
    print(f"{rows:,} rows on Ibis; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        with pq.ParquetWriter(path, wide(1, 0).schema) as writer:
            for seed in range(20):
                writer.write_table(wide(rows // 20, seed))
        for asked in ("tables", "numbers"):
            for way in WAREHOUSE:
                if (way, asked) == ("distinct rows", "numbers"):
                    continue  # floats are read as rows
                command = [sys.executable, __file__, "--ibis", "--of", f"{way}, {asked}", str(path)]
                runs = [subprocess.run(command, capture_output=True, text=True, check=True)
                        for _ in range(3)]  # fmt: skip
                passes = np.array([run.stdout.split() for run in runs], dtype=float)
                spent, peak = np.median(passes, axis=0)
                print(f"{asked:8} {way:14} {spent:5.2f} CPU s (from {passes[:, 0].min():.2f} to "
                      f"{passes[:, 0].max():.2f}), peak {peak:.0f} MB", flush=True)  # fmt: skip


def memory():
    """Write files in this process, a row group at a time, and read them in others."""
    print(f"load {os.getloadavg()[0]:.1f}; peak before a row is read: "
          f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")  # fmt: skip
    for rows in (10**6, 10**7, 3 * 10**7):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(-(-rows // 10**7)):
                place = Path(folder) / f"{number}.parquet"
                with pq.ParquetWriter(place, wide(1, 0).schema) as writer:
                    for seed in range(min(rows, 10**7) // 500_000):
                        writer.write_table(wide(500_000, seed))
            for query in QUERIES:
                command = [sys.executable, __file__, "--memory", "--of", query, folder]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                print(f"{rows:10,} rows, {query:8} {done.stdout}", end="", flush=True)


def wide(rows, seed):
    rng = np.random.default_rng(seed)
    numbers = {f"x{i}": rng.normal(size=rows) for i in range(8)}
    return pa.table(numbers | {f"c{i}": rng.integers(0, 9, rows).astype(np.int8) for i in range(4)})


def written(rows):
    """Write synthetic rows to a Parquet file."""
    schema, analyses = plans(32)["and tables"]
    levels = schema.select(name for name in schema.names if name.startswith("c"))
    plan = dps.plan(levels, {"tables": analyses["tables"]}, budget=dps.ZCDP(1))
    release = dps.release(plan, table(32, 50_000), k=rows, rng=0, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        release.to_parquet(path)
        spent = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = pq.ParquetFile(path).metadata
    print(f"{found.num_rows:,} rows of {found.num_columns} columns: {spent:.1f} CPU s, peak "
          f"{peak / 1024:.0f} MB, {before / 1024:.0f} MB before")  # fmt: skip


def by_calculation():
    print("columns  plan           functions  ns a row: read   kernel   of 10^9 rows: CPU h, "
          "100 workers min, sums MB a part, noise s")  # fmt: skip
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
                      f"{8 * functions / 1e6:17.2f} {15e-6 * functions:9.1f}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--ibis", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--written", action="store_true")
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.of and options.memory:
        of_query(options.of[0], options.of[1])
    elif options.of and options.ibis:
        of_ibis(*options.of)
    elif options.of:
        of_engine(options.of[0], Path(options.of[1]))
    elif options.engines:
        of_engines(options.rows)
    elif options.ibis:
        warehouse(options.rows)
    elif options.memory:
        memory()
    elif options.written:
        written(options.rows)
    else:
        by_calculation()


if __name__ == "__main__":
    main()
