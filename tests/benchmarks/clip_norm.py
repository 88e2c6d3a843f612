"""When shrinking rows to a norm pays: noise, width and bias against columns clamped to a box.

    python tests/benchmarks/clip_norm.py [--runs 5] [--rows 10000] [--p 5 10 20 50]

The table of docs/explanation/inference/moments.md. Errors are against the private rows before they
are shrunk. The rows themselves stand for the fitted density, which tells sampling: as if the fit
were perfect.
"""

import itertools

import numpy as np
import pandas as pd
from measuring import markdown, parsed

import dpstats as dps
from dpstats.measured.combining import Sources
from dpstats.measured.view import View

BUDGETS = {"eps 1": dps.PureDP(1), "(1, 1e-6)": dps.ZCDP.from_epsilon_delta(1, 1e-6)}
FACTORS = (None, 1.0, 1.5, 2.0, 3.0)
SPREADS = {"narrow": 0.3, "wide": 0.5}


def rows_of(p, n, sd, rng):
    """Rows (n, p) on the grid of 1,025 points: three factors explain 70% of the variance."""
    loadings = rng.standard_normal((3, p))
    loadings *= sd * np.sqrt(0.7) / np.linalg.norm(loadings, axis=0)
    rows = 0.2 + rng.standard_normal((n, 3)) @ loadings
    rows += sd * np.sqrt(0.3) * rng.standard_normal((n, p))
    return np.round(np.clip(rows, -1, 1) * 512) / 512


def one(rows, budget, clip_norm):
    """Width and Frobenius error of one release, in unit scale."""
    names = [f"x{i}" for i in range(rows.shape[1])]
    schema = dps.Schema([dps.Number(name, -1, 1, missing=0) for name in names])
    analyses = {
        "pca": dps.PCA(names, n_components=1, clip_norm=clip_norm),
        "cov": dps.Covariance(names, clip_norm=clip_norm),
    }
    plan = dps.plan(schema, analyses, budget=budget, n=len(rows))
    held = dps.measure(plan, pd.DataFrame(rows, columns=names))
    view = View(Sources(held), held.n)
    view.candidates = dict(zip(names, np.round(rows.T * 512).astype(np.int64), strict=True))
    view.weights = np.full(len(rows), 1 / len(rows))
    low, high = analyses["pca"].infer(view).conf_int()[0]
    error = analyses["cov"].infer(view).covariance_ - np.cov(rows.T)
    return high - low, np.linalg.norm(error)


def lines(kind, p, n, runs):
    rows = rows_of(p, n, SPREADS[kind], np.random.default_rng(p))
    square, matrix = np.sum(rows**2, axis=1), np.cov(rows.T)
    for (name, budget), factor in itertools.product(BUDGETS.items(), FACTORS):
        norm = None if factor is None else float(np.sqrt(factor * square.mean()))
        width, error = np.mean([one(rows, budget, norm) for _ in range(runs)], axis=0)
        radius = norm or np.inf
        clipped = np.cov((rows / np.maximum(1, np.sqrt(square) / radius)[:, None]).T)
        top = np.linalg.eigvalsh(clipped)[-1] / np.linalg.eigvalsh(matrix)[-1] - 1
        kept = ["box", ""] if norm is None else [factor, norm**2]
        shrunk, bias = np.mean(square > radius**2), np.linalg.norm(clipped - matrix)
        yield [kind, p, name, *kept, shrunk, width, error, bias, top]


if __name__ == "__main__":
    given = parsed(__doc__, runs=5, rows=10_000, p=[5, 10, 20, 50])
    head = ["columns", "p", "budget", "f", "R^2", "shrunk", "width", "error", "bias", "top"]
    for kind, p in itertools.product(SPREADS, given.p):
        print(markdown(head, lines(kind, p, given.rows, given.runs)), flush=True)
