"""What `paper_simulation.py` runs: sizes, private rows, references, and ways to a density."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from measuring import timed

import dpstats as dps
from dpstats.families.tables.cells import Cells, Table
from dpstats.families.tables.lattice import MAX_COLUMNS
from dpstats.measured.measurements import NoisyBlock
from dpstats.rows.candidates import merged, seen_by
from dpstats.rows.drawing import draw_counts
from dpstats.rows.entropy import fit_entropy
from dpstats.rows.minimax import (
    TOLERANCE,
    feasible,
    minimax_columns,
    minimax_highs,
    minimax_pulp,
)

EPSILON, DELTA, GAMMA, DEGREE = 0.2, 0.5, 0.25, 2
BERNSTEIN = dps.BernsteinKDE(k=1, order=1)  # what the corrected theorem takes for uniform rows
COUNTED = 2**20  # rows of which the cost of the pass is measured
LEVEL = 0.05  # of promises that are to hold


@cache
def schema(p):
    return dps.Schema([dps.Boolean(f"x{j}") for j in range(1, p + 1)])


@cache
def family(p):
    """The monomials without the constant, whose mean is known."""
    return dps.Family(tuple(Cells.monomials(schema(p), schema(p).names, DEGREE)))


def functions(p):
    """|F|, with the constant, as the paper counts."""
    return family(p).size + 1


def theorem(reference, p, printed=True, gamma=GAMMA, **sensitivity):
    """The theorem on a reference, for uniform rows."""
    about = {"epsilon": EPSILON, "gamma": gamma, "functions": functions(p), **sensitivity}
    if reference == "uniform":
        return dps.theory.UniformSampling(**about, cells=2**p)
    if reference == "histogram":
        return dps.theory.HistogramSampling(**about, cells=2**p, printed=printed)
    return dps.theory.KernelSampling(**about, columns=p, printed=printed)


def sizes(reference, p):
    """N, k, m and the scale of the noise of a run."""
    printed = theorem(reference, p).sizes(DELTA)
    n = printed.n if reference != "Bernstein" else theorem(reference, p, False).sizes(DELTA).n
    return n, printed.k, printed.m, printed.sigma


def promised(reference, p, n):
    """The error that holds with probability .95 for n rows; k and m as large as it takes."""
    gamma = LEVEL / (4 if reference == "uniform" else 6)
    proved = theorem(reference, p, False, gamma, sensitivity=functions(p) - 1)
    return 8 * proved.delta(n)


def references(p):
    return ("uniform", "histogram", "Bernstein")[: 3 if p <= MAX_COLUMNS else 2]


def lattice(p, n):
    """The schema of numbers that the lattice covers, and the block of its kernel sums."""
    numbers = dps.Schema([dps.Number(f"x{j}", 0, 1, edges=[0.5], missing=0) for j in range(p)])
    return numbers, BERNSTEIN.block(numbers, n)


def private(reference, p, n, rng):
    """The means of F over n rows, and the sums that the reference measures."""
    if reference != "Bernstein":
        counts = rng.multinomial(n, np.full(2**p, 2.0**-p))
        cells = schema(p).draw_inside(np.arange(2**p), rng)
        return family(p).evaluate(cells).average(counts / n), counts
    numbers, block = lattice(p, n)
    rows = rng.random((p, n))
    held = dict(zip(schema(p).names, (rows > 0.5).astype(np.int64), strict=True))
    coded = dict(zip(numbers.names, np.rint(1024 * rows - 512).astype(np.int64), strict=True))
    return np.concatenate(family(p).sums(held)) / n, block.sums(coded)


def noisy(block, sums, scale, rng):
    """Sums of a block with Laplace noise of a simulation: never for private rows."""
    sums = np.rint(sums + rng.laplace(0, scale, block.size)).astype(np.int64)
    return NoisyBlock(block, np.full(block.size, scale), sums, np.zeros(block.size))


def candidates(reference, p, n, sums, m, rng):
    """M independent points of the reference, column name -> (m,) codes."""
    if reference == "uniform":
        return dps.Uniform().draw(m, schema(p), None, rng)
    if reference == "histogram":
        measured = noisy(Table(tuple(schema(p))), sums, 2 / EPSILON, rng)
        return dps.PerturbedHistogram().draw(m, schema(p), measured, rng)
    numbers, block = lattice(p, n)
    moved = float(block.sensitivity("replace").l1) * int(block.ranges[1][0])
    points = BERNSTEIN.draw(m, numbers, noisy(block, sums, moved / EPSILON, rng), rng)
    halves = [column.bins_of(points[column.name]) for column in numbers]
    return dict(zip(schema(p).names, halves, strict=True))


def refused(p):
    """Why this library's own lattice is not measured at the printed n, from public numbers."""
    numbers, _ = lattice(p, COUNTED)
    n = theorem("Bernstein", p).sizes(DELTA).n
    asked = {"marginals": dps.Marginals(numbers.names)}
    about = {"budget": dps.PureDP(2 * EPSILON), "n": n, "reference": dps.BernsteinKDE()}
    try:
        dps.plan(numbers, asked, **about)
    except dps.RequestError as error:
        return str(error)
    return None


def printed(p, points, means, sigma):
    """The program of Algorithm 1, step 3, on all candidates through PuLP, as the paper solves it.

    Noisy means are not clipped to the range of their function.
    """
    values = family(p).evaluate(points)
    return values, minimax_pulp(values.matrix(), means)[0]


def on_merged(solve, clip=True):
    """The same after equal candidates are merged and noisy means clipped, by another solver."""

    def way(p, points, means, sigma):
        seen = seen_by(family(p), merged(schema(p), points, np.ones(len(points["x1"]))))
        target = feasible(family(p), means) if clip else means
        return seen.values, solve(seen, target, np.sqrt(2) * sigma)

    return way


def columns(seen, target, deviation):
    """Column generation to within a thousandth of the noise, the default of this library."""
    return minimax_columns(seen.values, target, TOLERANCE * deviation).density


def entropy(seen, means, deviation):
    """The default fit of this library."""
    deviations = np.full(len(means), deviation)
    return fit_entropy(seen.values, seen.reference, means, deviations).density


WAYS = {
    "PuLP": printed,
    "PuLP, merged": on_merged(lambda seen, b, _: minimax_pulp(seen.values.matrix(), b)[0]),
    "HiGHS, merged": on_merged(lambda seen, b, _: minimax_highs(seen.values.matrix(), b)[0]),
    "columns": on_merged(columns),
    "entropy": on_merged(entropy, clip=False),
}


@dataclass(frozen=True)
class Run:
    """CPU seconds, and the largest errors over F of the density and of the synthetic rows."""

    seconds: float
    density: float
    rows: float

    @property
    def milliseconds(self):
        return 1000 * self.seconds


def run(reference, way, p, seed, m=None):
    """One run at the sizes of the theorem, or with another m; noise depends on p and seed only."""
    n, k, printed_m, sigma = sizes(reference, p)
    means, sums = private(reference, p, n, np.random.default_rng([seed, p, 0]))
    answers = means + np.random.default_rng([seed, p, 1]).laplace(0, sigma, len(means))
    rng = np.random.default_rng([seed, p, 2])

    def work():
        points = candidates(reference, p, n, sums, m or printed_m, rng)
        values, density = WAYS[way](p, points, answers, sigma)
        return values, density, draw_counts(density, k, "iid", values, rng)

    (values, density, counts), seconds = timed(work)
    errors = (np.abs(values.average(w) - means).max() for w in (density, counts / k))
    return Run(seconds, *errors)


def released(p, n, epsilon, seed):
    """This library's defaults on the same rows and budget: entropy, exact sensitivity, k = n."""
    rng = np.random.default_rng([seed, p, 0])
    counts = rng.multinomial(n, np.full(2**p, 2.0**-p))
    rows = schema(p).draw_inside(np.repeat(np.arange(2**p), counts), rng)
    asked = {"marginals": dps.Marginals(schema(p).names, DEGREE, "monomials")}
    plan = dps.plan(schema(p), asked, budget=dps.PureDP(epsilon), n=n)
    measured = dps.measure(plan, schema(p).to_frame(rows))
    release, seconds = timed(lambda: dps.synthesize(measured, rng=seed))
    exact = np.concatenate(family(p).sums(rows)) / n
    values = family(p).evaluate(release.candidates)
    errors = (
        np.abs(values.average(w) - exact).max() for w in (release.weights, release.counts / n)
    )
    return Run(seconds, *errors)


def pass_seconds(p, n):
    """CPU seconds to count n rows in the 2^p cells, from the cost of a row."""
    cells = np.random.default_rng(0).integers(2**p, size=COUNTED)
    rows = schema(p).draw_inside(cells, np.random.default_rng(0))
    _, seconds = timed(lambda: Table(tuple(schema(p))).sums(rows), 3)
    return seconds * n / COUNTED
