"""How the cost of every step grows, one size at a time: CPU seconds and peak memory.

    python tests/benchmarks/scaling.py [--only rows] [--figure docs/figures/scaling.svg]

Rows are made up: categories that depend on a common factor, or numbers with four factors. Every
size is a process of its own; its peak memory is that of all steps together. Printed as Markdown.
"""

import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.optimize
import scipy.stats  # noqa: F401
from measuring import apart, markdown, parsed, peak, sized, svg, timed
from moment_rows import numbers

import dpstats as dps

SIZES = {
    "rows": ("rows n", (10_000, 100_000, 1_000_000, 10_000_000)),
    "cells": ("cells of the 28 tables of 8 columns", (112, 1_008, 10_108, 100_800)),
    "tables": ("columns p, all two-way tables of 4 x 4 cells", (5, 10, 20, 50)),
    "numbers": ("numeric columns p, all second moments", (5, 10, 20, 50)),
    "candidates": ("candidates m", (10_000, 100_000, 1_000_000)),
    "drawn": ("synthetic rows k", (10_000, 100_000, 1_000_000)),
}
N, M, K = 50_000, 20_000, 10_000


class Clock(dict):
    """CPU seconds by step."""

    def __call__(self, step, work):
        result, self[step] = timed(work)
        return result


def tables(levels, n=N):
    """How to plan all two-way tables of columns with these levels, and rows with one factor."""
    schema = dps.Schema([dps.Category(f"c{i}", list(range(k))) for i, k in enumerate(levels)])
    rng = np.random.default_rng(0)
    factor = rng.random(n)
    rows = pd.DataFrame({
        column.name: np.minimum((k * (0.6 * factor + 0.4 * rng.random(n)) ** 2).astype(int), k - 1)
        for column, k in zip(schema, levels, strict=True)
    })  # fmt: skip
    asked = {"tables": dps.Marginals(schema.names)}
    return lambda: dps.plan(schema, asked, budget=dps.PureDP(2)), rows


def moments(p):
    """How to plan a regression and components of p columns, and rows with four factors."""
    schema, rows = numbers(p, N)
    first, *others = schema.names
    asked = {"pca": dps.PCA(schema.names), "ols": dps.OLS(f"{first} ~ {' + '.join(others)}")}
    return lambda: dps.plan(schema, asked, budget=dps.PureDP(10)), rows


def whole(clock, plan, rows, m=M):
    plan = clock("plan", plan)
    clock("preview", lambda: str(plan.preview(len(rows))))
    measured = clock("measure", lambda: dps.measure(plan, rows))
    release = clock("synthesise", lambda: dps.synthesize(measured, m=m, k=K, rng=0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release.zip"
        clock("save and load", lambda: (release.save(path), dps.load(path)))
    return release


def of_file(clock, size):
    plan, rows = tables((4,) * 8, min(size, 1_000_000))
    some, plan = pa.Table.from_pandas(rows), plan()
    del rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        with pq.ParquetWriter(path, some.schema) as writer:
            for _ in range(-(-size // 1_000_000)):
                writer.write_table(some)
        measured = clock("measure a Parquet file", lambda: dps.measure(plan, path))
    return clock("synthesise", lambda: dps.synthesize(measured, m=M, k=K, rng=0))


def work(factor, size):
    """Print CPU seconds by step at one size, and the peak memory."""
    clock = Clock()
    if factor == "numbers":
        release = whole(clock, *moments(size), m=2_000)
        clock("components", lambda: release.infer("pca").summary())
        clock("regression", lambda: release.infer("ols").summary())
    elif factor in ("candidates", "drawn"):
        plan, rows = tables((6,) * 8)
        measured = dps.measure(plan(), rows)
        sizes = {"m": M, "k": K} | {"m" if factor == "candidates" else "k": size}
        for fit in ("entropy", "minimax"):
            asked = {**sizes, "fit": fit}
            clock(f"synthesise, {fit}", lambda asked=asked: dps.synthesize(measured, **asked))
    else:
        levels = (4,) * size if factor == "tables" else (round((size / 28) ** 0.5),) * 8
        release = of_file(clock, size) if factor == "rows" else whole(clock, *tables(levels))
        result = clock("infer", lambda: release.infer("tables"))
        clock("intervals", result.conf_int)
        clock("certified", lambda: result.conf_int(method="certified"))
        clock("simultaneous", lambda: result.conf_int(simultaneous=True))
    print(json.dumps([clock, peak()]))


def show(factor, found):
    """A table: steps by sizes, and the power of the size with which the last step of it grows."""
    title, sizes = SIZES[factor]
    lines = []
    for step in found[sizes[-1]][0]:
        seconds = [found[size][0][step] for size in sizes]
        power = np.log(seconds[-1] / seconds[-2]) / np.log(sizes[-1] / sizes[-2])
        lines.append([step, *(f"{s:.3g}" for s in seconds), f"{round(power, 1) + 0.0:.1f}"])
    lines.append(["peak memory, MB", *(f"{found[size][1]:.0f}" for size in sizes), ""])
    print("", markdown([title, *(f"{size:,}" for size in sizes), "last power"], lines), sep="\n")


def draw(found, path):
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3, "frameon": False}
    with svg(path, 2, 3, (13, 8)) as axes:
        for axis, (factor, by_size) in zip(axes.flat, found.items(), strict=False):
            title, sizes = SIZES[factor]
            for step in by_size[sizes[-1]][0]:
                axis.plot(sizes, [by_size[s][0][step] for s in sizes], marker="o", ms=3, label=step)
            axis.set(xscale="log", yscale="log")
            sized(axis, sizes, above, xlabel=title, ylabel="CPU seconds")


def main():
    given = parsed(__doc__, only=[str], figure=Path, do=[str])
    if given.do:
        work(given.do[0], int(given.do[1]))
        return
    print(f"CPU seconds; load {os.getloadavg()[0]:.1f}", flush=True)
    found = {}
    for factor in given.only or SIZES:
        sizes = SIZES[factor][1]
        found[factor] = {size: apart(__file__, "--do", factor, size) for size in sizes}
        show(factor, found[factor])
    if given.figure:
        draw(found, given.figure)


if __name__ == "__main__":
    main()
