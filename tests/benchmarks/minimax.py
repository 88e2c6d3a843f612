"""Density fits at sizes beyond the paper's, each in its own process.

    python tests/benchmarks/minimax.py [--only "pairs, large"]

CPU seconds of the fit, peak memory of the process, and what the minimax fit certifies, in standard
deviations of the noise. HiGHS solves the whole program where that takes less than a minute. The
paper's own sizes, and its solver, are those of `paper_simulation.py`.
"""

import argparse
import math
import os
import resource
import subprocess
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse  # noqa: F401  else their import would be timed
from measuring import timed

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells
from dpstats.rows.candidates import merged, seen_by
from dpstats.rows.entropy import fit_entropy
from dpstats.rows.minimax import feasible, minimax_columns, minimax_highs

ROWS, LATENT = 50_000, 6  # of the large instances: rows, and their hidden classes
LARGE = {  # fit, levels of the columns (or number of numeric columns), m, whether HiGHS can
    "pairs of 8 columns": ("minimax", [4] * 8, 100_000, True),
    "pairs, large": ("minimax", [11, 11, 13, 14, 14, 14, 15, 15], 1_000_000, False),
    "moments of 20 numbers": ("minimax", 20, 10_000, True),
    "entropy, pairs, large": ("entropy", [12, 12, 13, 13, 13, 13, 13, 14], 1_000_000, False),
}


def large_tables(levels, m, rng):
    """Pair tables of categories, dependent through hidden classes; epsilon = 1."""
    schema = dps.Schema([dps.Category(f"c{i}", list(range(s))) for i, s in enumerate(levels)])
    pairs = [(a, b) for i, a in enumerate(schema.names) for b in schema.names[i + 1 :]]
    family = dps.Family(tuple(Cells.table(schema, pair) for pair in pairs))
    hidden, rows, points = rng.integers(LATENT, size=ROWS), {}, {}
    for name, size in zip(schema.names, levels, strict=True):
        upper = rng.dirichlet(np.full(size, 0.6), LATENT).cumsum(axis=1)[hidden]
        rows[name] = np.minimum((rng.random((ROWS, 1)) > upper).sum(axis=1), size - 1)
        share = 0.9 * np.bincount(rows[name], minlength=size) / ROWS + 0.1 / size
        points[name] = rng.choice(size, m, p=share)
    return schema, family, rows, points, 2 * len(pairs) / ROWS


def large_moments(columns, m, rng):
    """First and second moments of numbers that follow four factors; half of the points do too."""
    names = [f"x{i}" for i in range(columns)]
    schema = dps.Schema([dps.Number(name, -1, 1, points=129, missing=0) for name in names])
    loadings = rng.normal(size=(4, columns)) / 2
    values = rng.normal(size=(ROWS, 4)) @ loadings + 0.6 * rng.normal(size=(ROWS, columns))
    codes = np.rint(64 * np.tanh(0.7 * values - 0.1)).astype(np.int64)
    points = rng.integers(-64, 65, size=(m, columns))
    points[: m // 2] = np.take_along_axis(codes, rng.integers(ROWS, size=(m // 2, columns)), 0)
    family = dps.Family((Moments.of(schema, names),))
    return (
        schema,
        family,
        dict(zip(names, codes.T, strict=True)),
        dict(zip(names, points.T, strict=True)),
        0.005,
    )


def large(name, seed):
    """Print one line: a fit of one of the large instances, in a process of its own."""
    fit, columns, m, feasible_for_highs = LARGE[name]
    rng = np.random.default_rng(seed)
    make = large_tables if isinstance(columns, list) else large_moments
    schema, family, rows, points, scale = make(columns, m, rng)
    means = np.concatenate(family.sums(rows)) / (ROWS * family.bounds)
    means += rng.laplace(0, scale, family.size)
    sigma = math.sqrt(2) * scale
    candidates = merged(schema, points, np.full(m, 1 / m))

    def fitted():
        seen = seen_by(family, candidates)
        if fit == "minimax":
            return minimax_columns(seen.values, feasible(family, means), 1e-3 * sigma)
        return fit_entropy(seen.values, seen.reference, means, np.full(family.size, sigma))

    result, _, seconds = timed(fitted)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = f"{name:>22} {family.size:>5} {candidates.size:>7} | {seconds:7.2f} {peak:5.0f} | "
    if fit == "entropy":
        print(f"{line}risk {result.risk:.0f}, converged: {result.converged}")
        return
    line += f"{result.value / sigma:.5f} {result.bound / sigma:.5f} {result.gap / sigma:.1e} | "
    if feasible_for_highs:
        seen = seen_by(family, candidates)
        matrix, target = seen.values.matrix(), feasible(family, means)
        (_, optimum), _, whole = timed(lambda: minimax_highs(matrix, target))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        line += f"{whole:7.2f} {peak:5.0f} {optimum / sigma:.5f} {whole / seconds:6.0f}"
    print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(LARGE))
    parser.add_argument("--seed", type=int, default=1, help="of the rows, noise and candidates")
    options = parser.parse_args()
    if options.only:
        large(options.only, options.seed)
        return
    print(
        f"{'':>22} {'|F|':>5} {'classes':>7} | {'CPU s':>7} {'MB':>5} | value, bound, gap "
        "in sigma | HiGHS: CPU s, MB, optimum, ratio",
        flush=True,
    )
    for name in LARGE:
        again = [sys.executable, __file__, "--only", name, "--seed", str(options.seed)]
        subprocess.run(again, check=True)


if __name__ == "__main__":
    main()
