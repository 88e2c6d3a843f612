"""Time and memory of the pass over private rows, relative to reading the file alone.

    python tests/benchmarks/data_pass.py [--rows 1000000] [--csv-rows 200000]

Rows are made up, in a temporary folder: Parquet with 8 columns of text, stored as dictionaries, and
8 of numbers; CSV with the 8 numbers. Sums are those of the 28 tables of two columns and the 44
first and second moments, then also of 16 third and fourth powers. Every line is a process of its
own, which has read a few rows before the clock starts: seconds are those of all processors together
(CPU) and elapsed (wall). Beside the least CPU of three runs stands its ratio to the bare reader's.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LEVELS = (2, 3, 4, 5, 6, 8, 12, 16)
TEXTS, NUMBERS = [f"c{i}" for i in range(8)], [f"x{i}" for i in range(8)]
RUNS = 3
BARE = {"parquet": "decode", "csv": "typed reader"}
WORK = {
    "decode": "Parquet, row group by row group",
    "tables": "  tables and second moments",
    "powers": "  and third and fourth powers",
    "typed reader": "CSV, as numbers",
    "moments": "  second moments",
}


def make(folder, rows, csv_rows):
    """Write the two files, a row group of the first at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)

    def numbers(n):
        return [pa.array(rng.normal(50, 20, n).round(2 * (i % 2))) for i in range(8)]

    text = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([(c, text) for c in TEXTS] + [(x, pa.float64()) for x in NUMBERS])
    with pq.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for start in range(0, rows, 2**20):
            n = min(2**20, rows - start)
            codes = (pa.array(rng.integers(levels, size=n).astype(np.int8)) for levels in LEVELS)
            labels = [pa.array([f"level {j}" for j in range(levels)]) for levels in LEVELS]
            texts = map(pa.DictionaryArray.from_arrays, codes, labels)
            writer.write_table(pa.table([*texts, *numbers(n)], schema=schema), row_group_size=2**20)
    pacsv.write_csv(pa.table(numbers(csv_rows), names=NUMBERS), folder / "rows.csv")


def read_alone(path):
    """Read a file in one thread, with the types of its columns."""
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    if path.suffix == ".csv":
        batches = pacsv.open_csv(
            path,
            read_options=pacsv.ReadOptions(use_threads=False, block_size=2**23),
            convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(NUMBERS, pa.float64())),
        )
    else:
        file = pq.ParquetFile(path)
        batches = itertools.chain.from_iterable(
            file.iter_batches(2**17, row_groups=[group], use_threads=False)
            for group in range(file.metadata.num_row_groups)
        )
    return sum(batch.num_rows for batch in batches)


def pass_over(what, path):
    """Sum what dpstats measures; the number of rows."""
    import dpstats as dps
    from dpstats.families.coarse_moments import third_and_fourth_powers
    from dpstats.families.moments import Moments
    from dpstats.private.tables import exact_sums, open_source

    texts = [
        dps.Category(name, [f"level {j}" for j in range(levels)])
        for name, levels in zip(TEXTS, LEVELS, strict=True)
    ]
    grids = [
        dps.Number(name, 0, 100, points=1025 if i % 2 else 101, missing=50)
        for i, name in enumerate(NUMBERS)
    ]
    schema = dps.Schema([*texts, *grids])
    blocks = [Moments.of(schema, NUMBERS)]
    if what != "moments":
        blocks += [dps.Cells.table(schema, pair) for pair in itertools.combinations(TEXTS, 2)]
    if what == "powers":
        blocks.append(third_and_fourth_powers(schema, NUMBERS))
    used = schema.select({column.name for block in blocks for column in block.columns})
    return exact_sums(open_source(path, used), used, blocks)[1]


def timed(what, folder):
    """Print the CPU, wall and peak memory of one piece of work, after a small one of its kind."""
    csv = what in ("typed reader", "moments")
    work = read_alone if what in BARE.values() else lambda path: pass_over(what, path)
    name = "rows.csv" if csv else "rows.parquet"
    work(folder / "few" / name)
    cpu, wall = time.process_time(), time.perf_counter()
    work(folder / name)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    taken = time.process_time() - cpu, time.perf_counter() - wall, peak
    print(json.dumps(taken))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--csv-rows", type=int, default=200_000)
    parser.add_argument("--do", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.do:
        what, folder = options.do[0], Path(options.do[1])
        if what != "make":
            return timed(what, folder)
        make(folder, options.rows, options.csv_rows)
        return make(folder / "few", 100, 100)
    sizes = ["--rows", str(options.rows), "--csv-rows", str(options.csv_rows)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def run(what, folder):
        command = [sys.executable, __file__, *sizes, "--do", what, folder]
        return subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "few").mkdir()
        run("make", folder)  # elsewhere: a process starts with the peak memory of its parent
        best = {}
        for what in list(WORK) * RUNS:
            taken = tuple(json.loads(run(what, folder)))
            best[what] = min(taken, best.get(what, taken))
    print(f"{options.rows:,} rows of Parquet, {options.csv_rows:,} of CSV, {os.cpu_count()} cores")
    print(f"{'':<34} {'CPU s':>7} {'wall s':>7} {'ratio':>6} {'peak MB':>8}")
    for what, described in WORK.items():
        cpu, wall, peak = best[what]
        bare = best[BARE["csv" if what in ("typed reader", "moments") else "parquet"]][0]
        print(f"{described:<34} {cpu:7.2f} {wall:7.2f} {cpu / bare:6.2f} {peak / 2**20:8.0f}")
    return None


if __name__ == "__main__":
    main()
