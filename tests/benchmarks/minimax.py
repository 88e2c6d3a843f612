"""The simulation of Bojkovic & Loh (2024, "Performance evaluation"), model and solve.

    python tests/benchmarks/minimax.py [--largest 8] [--seconds 300] [--repeats 5]
    python tests/benchmarks/minimax.py --large

X is uniform on {0,1}^p, F the monomials to degree d = 2, and n, k, m are the lower bounds of the
theorem on uniform sampling at eps = .2, delta = .5, gamma = .25, with |F| counting the constant.
Three ways from the m candidates, as drawn, to a density: the program of Algorithm 1, step 3, on
all of them through PuLP and CBC, as the paper does; the same after equal candidates are merged;
and HiGHS after merging. Every time includes all that lies between, merging too. The CPU time is
that of this process and of its children, so it includes CBC's. Nothing is extrapolated.

With --large, the density fits at sizes beyond the paper's, each in its own process: CPU seconds of
the fit, peak memory of the process, and what the minimax fit certifies, in standard deviations of
the noise. HiGHS solves the whole program where that takes less than a minute.
"""

import argparse
import math
import os
import resource
import subprocess
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse  # noqa: F401  else their import would be timed

import dpstats as dps
from dpstats.density.candidates import merged, seen_by
from dpstats.density.entropy import fit_entropy
from dpstats.density.minimax import feasible, minimax_columns, minimax_highs, minimax_pulp
from dpstats.families.cells import Cells
from dpstats.families.moments import Moments
from dpstats.references.uniform import Uniform

EPSILON, DELTA, GAMMA = 0.2, 0.5, 0.25


class Drawn(Uniform):
    """Candidates that were drawn before, so that all three ways start from the same ones."""

    def __init__(self, points):
        object.__setattr__(self, "points", points)

    def cells(self, schema, measured):
        return 0, None

    def draw(self, m, schema, measured, rng):
        return self.points


def instance(p, seed):
    """Schema, family, target b, the candidates as drawn, and |F|, n, k, m of the theorem."""
    schema = dps.Schema([dps.Boolean(f"x{i}") for i in range(1, p + 1)])
    family = dps.Family(tuple(Cells.monomials(schema, schema.names, 2)))
    functions = family.size + 1  # the paper counts the constant
    log = math.log(functions / GAMMA)
    n = math.ceil(2 * functions / (EPSILON * DELTA) * log)
    k = math.ceil(log / DELTA**2)
    m = math.ceil(2**p * functions / (DELTA**2 * GAMMA))
    rng = np.random.default_rng(seed)
    rows = {name: rng.integers(2, size=n) for name in schema.names}
    means = np.concatenate(family.sums(rows)) / n + rng.laplace(0, DELTA / log, family.size)
    points = Uniform().draw(m, schema, None, rng)
    return schema, family, feasible(family, means), points, (functions, n, k, m)


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


def cpu_seconds():
    """CPU time of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work, repeats=1):
    """What `work` returns, and its median wall and CPU seconds."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter(), cpu_seconds()
        result = work()
        taken.append((time.perf_counter() - start[0], cpu_seconds() - start[1]))
    return result, *np.median(taken, axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=8, help="largest p")
    parser.add_argument("--seconds", type=float, default=300, help="PuLP unmerged ends beyond")
    parser.add_argument("--repeats", type=int, default=5, help="runs of the merged programs")
    parser.add_argument("--seed", type=int, default=1, help="of the rows, noise and candidates")
    parser.add_argument("--large", nargs="?", const="all", choices=["all", *LARGE])
    options = parser.parse_args()
    if options.large == "all":
        print(
            f"{'':>22} {'|F|':>5} {'classes':>7} | {'CPU s':>7} {'MB':>5} | value, bound, gap "
            "in sigma | HiGHS: CPU s, MB, optimum, ratio",
            flush=True,
        )
        for name in LARGE:
            again = [sys.executable, __file__, "--large", name, "--seed", str(options.seed)]
            subprocess.run(again, check=True)
        return
    if options.large:
        large(options.large, options.seed)
        return

    print(f"seconds, wall (CPU); merged: medians of {options.repeats} runs, unmerged: one run")
    print(
        f"{'p':>2} {'|F|':>4} {'n':>5} {'k':>3} {'m':>7} {'classes':>7} | "
        f"{'PuLP unmerged':>18} | {'PuLP merged':>16} | {'HiGHS merged':>16} | "
        f"{'optimum':>9} {'difference':>10} | {'ratio wall':>10} {'CPU':>6}"
    )
    unmerged_runs = True
    for p in [2, *range(3, options.largest + 1)]:  # p = 2 only loads the solvers
        schema, family, target, points, (functions, n, k, m) = instance(p, options.seed)

        def merged(solve, schema=schema, family=family, target=target, points=points, m=m):
            candidates = Drawn(points).draw_candidates(m, schema, None, None, stratified=False)
            return solve(seen_by(family, candidates).values.matrix(), target)

        def unmerged(family=family, target=target, points=points):
            return minimax_pulp(family.evaluate(points).matrix(), target)

        (density, optimum), *highs = timed(lambda: merged(minimax_highs), options.repeats)
        (_, other), *pulp = timed(lambda: merged(minimax_pulp), options.repeats)
        paper, ratio, difference = "not run", ("", ""), abs(other - optimum)
        if unmerged_runs:
            (_, printed), *paper_times = timed(unmerged)
            paper = "{:9.3f} ({:7.2f})".format(*paper_times)
            unmerged_runs = paper_times[0] <= options.seconds
            ratio = tuple(f"{a / b:.0f}" for a, b in zip(paper_times, highs, strict=True))
            difference = max(difference, abs(printed - optimum))
        if p > 2:
            print(
                f"{p:>2} {functions:>4} {n:>5} {k:>3} {m:>7} {len(density):>7} | {paper:>18} | "
                f"{pulp[0]:7.4f} ({pulp[1]:6.4f}) | {highs[0]:7.4f} ({highs[1]:6.4f}) | "
                f"{optimum:9.6f} {difference:10.1e} | {ratio[0]:>10} {ratio[1]:>6}",
                flush=True,
            )


if __name__ == "__main__":
    main()
