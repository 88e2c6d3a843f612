"""How the cost of every step grows, one size at a time: CPU seconds and peak memory.

    python tests/benchmarks/scaling.py [--only rows] [--figure docs/figures/scaling.svg]

Rows are made up: categories that depend on a common factor, or numbers with four factors. Every
size is a process of its own; its peak memory is that of all steps together. Printed as Markdown.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

SIZES = {
    "rows": ("rows n", (10_000, 100_000, 1_000_000, 10_000_000)),
    "cells": ("cells of the 28 tables of 8 columns", (112, 1_008, 10_108, 100_800)),
    "tables": ("columns p, all two-way tables of 4 x 4 cells", (5, 10, 20, 50)),
    "numbers": ("numeric columns p, all second moments", (5, 10, 20, 50)),
    "candidates": ("candidates m", (10_000, 100_000, 1_000_000)),
    "drawn": ("synthetic rows k", (10_000, 100_000, 1_000_000)),
}
N, M, K = 50_000, 20_000, 10_000


class Clock:
    """CPU seconds by step."""

    def __init__(self):
        self.seconds = {}

    def __call__(self, step, work):
        started = time.process_time()
        result = work()
        self.seconds[step] = time.process_time() - started
        return result


def tables(levels, n=N):
    """How to plan all two-way tables of columns with these levels, and rows with one factor."""
    import numpy as np
    import pandas as pd

    import dpstats as dps

    schema = dps.Schema([dps.Category(f"c{i}", list(range(k))) for i, k in enumerate(levels)])
    rng = np.random.default_rng(0)
    factor = rng.random(n)
    rows = pd.DataFrame({
        column.name: np.minimum(
            (k * (0.6 * factor + 0.4 * rng.random(n)) ** 2).astype(int), k - 1
        )
        for column, k in zip(schema, levels, strict=True)
    })  # fmt: skip
    asked = {"tables": dps.Marginals(schema.names)}
    return lambda: dps.plan(schema, asked, budget=dps.PureDP(2)), rows


def numbers(p, n=N):
    """How to plan a regression and components of p columns, and rows with four factors."""
    from moment_rows import numbers

    import dpstats as dps

    schema, rows = numbers(p, n)
    first, *others = schema.names
    asked = {"pca": dps.PCA(schema.names), "ols": dps.OLS(f"{first} ~ {' + '.join(others)}")}
    return lambda: dps.plan(schema, asked, budget=dps.PureDP(10)), rows


def whole(clock, plan, rows, m=M, k=K):
    """Plan, preview, measure, synthesise, save and load."""
    import dpstats as dps

    plan = clock("plan", plan)
    clock("preview", lambda: str(plan.preview(len(rows))))
    measured = clock("measure", lambda: dps.measure(plan, rows))
    release = clock("synthesise", lambda: dps.synthesize(measured, m=m, k=k, rng=0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release.zip"
        clock("save and load", lambda: (release.save(path), dps.load(path)))
    return release


def of_tables(clock, release):
    """Intervals of all cells."""
    result = clock("infer", lambda: release.infer("tables"))
    clock("intervals", result.conf_int)
    clock("certified", lambda: result.conf_int(method="certified"))
    clock("simultaneous", lambda: result.conf_int(simultaneous=True))


def work(factor, size):
    """CPU seconds by step at one size."""
    import dpstats as dps

    clock = Clock()
    if factor == "rows":
        import pyarrow as pa
        import pyarrow.parquet as pq

        plan, rows = tables((4,) * 8, min(size, 1_000_000))
        some = pa.Table.from_pandas(rows)
        del rows
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            with pq.ParquetWriter(path, some.schema) as writer:
                for _ in range(-(-size // 1_000_000)):
                    writer.write_table(some)
            plan = plan()
            clock("measure a Parquet file", lambda: dps.measure(plan, path))
            measured = dps.measure(plan, path)
        release = clock("synthesise", lambda: dps.synthesize(measured, m=M, k=K, rng=0))
        of_tables(clock, release)
    elif factor in ("cells", "tables"):
        levels = (4,) * size if factor == "tables" else (round((size / 28) ** 0.5),) * 8
        of_tables(clock, whole(clock, *tables(levels)))
    elif factor == "numbers":
        release = whole(clock, *numbers(size), m=2_000)
        clock("components", lambda: release.infer("pca").summary())
        clock("regression", lambda: release.infer("ols").summary())
    else:
        plan, rows = tables((6,) * 8)
        measured = dps.measure(plan(), rows)
        sizes = {"m": size} if factor == "candidates" else {"k": size}
        for fit in ("entropy", "minimax"):
            clock(
                f"synthesise, {fit}",
                lambda fit=fit: dps.synthesize(measured, **{"m": M, "k": K, **sizes}, fit=fit),
            )
    return clock.seconds


def show(factor, found):
    """A table: steps by sizes, and the power of the size with which the last step of it grows."""
    import math

    title, sizes = SIZES[factor]
    print(f"\n| {title} | " + " | ".join(f"{size:,}" for size in sizes) + " | last power |")
    print("|---" * (len(sizes) + 2) + "|")
    for step in found[sizes[-1]][0]:
        seconds = [found[size][0][step] for size in sizes]
        power = math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2])
        figures = " | ".join(f"{s:.3g}" for s in seconds)
        print(f"| {step} | {figures} | {round(power, 1) + 0.0:.1f} |")
    print("| peak memory, MB | " + " | ".join(f"{found[s][1]:.0f}" for s in sizes) + " | |")


def draw(found, path):
    """One panel per factor, both axes logarithmic."""
    from measuring import sized, svg

    with svg(path, 2, 3, (13, 8)) as axes:
        for axis, (factor, by_size) in zip(axes.flat, found.items(), strict=False):
            title, sizes = SIZES[factor]
            for step in by_size[sizes[-1]][0]:
                axis.plot(sizes, [by_size[s][0][step] for s in sizes], marker="o", ms=3, label=step)
            axis.set(xscale="log", yscale="log")
            above = {
                "loc": "lower center",
                "bbox_to_anchor": (0.5, 1),
                "ncols": 3,
                "frameon": False,
            }
            sized(axis, sizes, above, xlabel=title, ylabel="CPU seconds")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(SIZES))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--do", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.do:
        import scipy.optimize
        import scipy.stats  # noqa: F401

        seconds = work(options.do[0], int(options.do[1]))
        print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return
    print(f"CPU seconds; load {os.getloadavg()[0]:.1f}", flush=True)
    found = {}
    for factor in [options.only] if options.only else SIZES:
        found[factor] = {}
        for size in SIZES[factor][1]:
            command = [sys.executable, __file__, "--do", factor, str(size)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[factor][size] = json.loads(done.stdout.splitlines()[-1])
        show(factor, found[factor])
        sys.stdout.flush()
    if options.figure:
        draw(found, options.figure)


if __name__ == "__main__":
    main()
