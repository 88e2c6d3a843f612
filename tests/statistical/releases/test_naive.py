"""What happens to those who take synthetic rows for data; the documentation quotes this table.

Independent rows add the sampling variance of k rows to that of the private ones: with k = n the
variance doubles and a naive 95% interval covers .83, even without privacy noise. Systematic rows
follow the noisy answers, so it lacks the noise only: it covers badly where the noise matters, and
nearly as it says where the budget is ample (epsilon = 10 here).
"""

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.privacy.noise import _noise_from

SIZES = [2, 3, 4, 4]
N = 1_000
SCHEMA = dps.Schema([dps.Category(f"c{i}", list("abcd")[:s]) for i, s in enumerate(SIZES)])
ASKED = dps.Marginals(SCHEMA.names)


def population(rng):
    """Probabilities of all cells: a mixture of four independent laws."""
    shape = tuple(SIZES)
    cells = np.zeros(shape)
    for weight in rng.dirichlet(np.full(4, 3.0)):
        piece = np.array(weight)
        for size in SIZES:
            piece = np.multiply.outer(piece, rng.dirichlet(np.full(size, 0.8)))
        cells += piece
    return cells


def coverage(epsilon, draw, runs, tools, seed=60):
    """Naive, noise-aware and certified coverage of all cells of all pairs, and mean widths."""
    rng, source = np.random.default_rng(seed), tools.Laplace(seed + 1)
    cells = population(rng)
    family = ASKED.family(SCHEMA)
    everywhere = dict(zip(SCHEMA.names, (i.ravel() for i in np.indices(SIZES)), strict=True))
    truth = family.evaluate(everywhere).average(cells.ravel())
    plan = dps.plan(SCHEMA, {"pairs": ASKED}, budget=dps.PureDP(epsilon), n=N)
    found = {}
    for run in range(runs):
        flat = rng.choice(cells.size, size=N, p=cells.ravel())
        rows = SCHEMA.to_frame({name: codes[flat] for name, codes in everywhere.items()})
        with _noise_from(source):
            release = dps.release(plan, rows, draw=draw, m=500, rng=run)
        p = release.accuracy().synthetic
        half = 1.959964 * np.sqrt(p * (1 - p) / release.k)  # Wald, as if the rows were data
        intervals = ProportionIntervals(release.answers(family))
        ends = {
            "naive on synthetic rows": (p - half, p + half),
            "noise_aware": intervals.conf_int(0.05, "noise_aware", "population"),
            "certified": intervals.conf_int(0.05, "certified", "population"),
        }
        for method, (low, high) in ends.items():
            inside = np.mean((low <= truth) & (truth <= high))
            found.setdefault(method, []).append((inside, np.mean(high - low)))
    return {method: np.array(values) for method, values in found.items()}


@pytest.mark.simulate(
    [(epsilon, draw) for draw in ("systematic", "iid") for epsilon in (0.5, 1, 3, 10)],
    few=(1,), runs=(25, 300),
)  # fmt: skip
def test_naive_intervals_cover_badly(setting, runs, table, tools):
    """25 releases of 62 cells each."""
    epsilon, draw = setting
    setting = f"epsilon = {epsilon}, k = n = {N}, {draw} rows"
    ample = (epsilon, draw) == (10, "systematic")
    for method, values in coverage(epsilon, draw, runs, tools).items():
        # A release's share of covered cells is the unit: five standard errors.
        slack = 5 * values[:, 0].std(ddof=1) / np.sqrt(runs)
        reference, limits = {
            "naive on synthetic rows": ("must not be used", (0, 1 if ample else 0.93 - slack)),
            "noise_aware": ("0.95", (0.95 - slack, 0.95 + slack)),
            "certified": (">= 0.95", (0.95 - slack, 1)),
        }[method]
        rate, width = map(float, values.mean(axis=0))
        table.check(
            setting, method, rate, width, reference, runs, least=limits[0], most=limits[1]
        )  # fmt: skip
