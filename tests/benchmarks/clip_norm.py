"""When shrinking rows to a norm pays: noise, width and bias against columns clamped to a box.

    python tests/benchmarks/clip_norm.py [--runs 5] [--rows 10000] [--p 5 10 20 50]

Rows are normal with three factors, in columns with bounds -1 and 1, mean 0.2, and sd 0.3 ("narrow")
or 0.5 ("wide"), clamped. The norm R is set by R^2 = f E|z|^2; the box is without. Averages over
runs: the share of shrunk rows; the width of the 95% noise-aware interval of the largest eigenvalue;
the error of the covariance matrix against that of the private rows before they are shrunk, in
Frobenius norm, all of it and the part that shrinking causes (bias); the bias of the largest
eigenvalue. The rows themselves stand for the fitted density, which tells sampling: as if the fit
were perfect.
"""

import argparse

import numpy as np
import pandas as pd

import dpstats as dps
from dpstats.measured.answers import answer

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


class Measured:
    """What an analysis sees of measurements, with the rows themselves as the fitted density."""

    def __init__(self, measurements, rows):
        self.measurements, self.schema = measurements, measurements.schema
        self.n, self.budget = measurements.n, measurements.budget
        codes = np.round(rows * 512).astype(np.int64)
        self.candidates = dict(zip(self.schema.names, codes.T, strict=True))
        self.weights = np.full(len(rows), 1 / len(rows))

    def answers(self, wanted, **options):
        """Noisy sums."""
        return answer(self.measurements, wanted, **options)


def one(rows, budget, clip_norm):
    """Width and Frobenius error of one release, in unit scale."""
    names = [f"x{i}" for i in range(rows.shape[1])]
    schema = dps.Schema([dps.Number(name, -1, 1, missing=0) for name in names])
    analyses = {
        "pca": dps.PCA(names, n_components=1, clip_norm=clip_norm),
        "cov": dps.Covariance(names, clip_norm=clip_norm),
    }
    plan = dps.plan(schema, analyses, budget=budget, n=len(rows))
    seen = Measured(dps.measure(plan, pd.DataFrame(rows, columns=names)), rows)
    low, high = analyses["pca"].infer(seen).conf_int()[0]
    error = analyses["cov"].infer(seen).covariance_ - np.cov(rows.T)
    return high - low, np.linalg.norm(error)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--p", type=int, nargs="+", default=[5, 10, 20, 50])
    given = parser.parse_args()
    print("columns     p  budget     R^2/E   R^2  shrunk    width   error    bias  top bias")
    for (kind, sd), p in ((s, p) for s in SPREADS.items() for p in given.p):
        rng = np.random.default_rng(p)
        rows = rows_of(p, given.rows, sd, rng)
        square = np.sum(rows**2, axis=1)
        matrix = np.cov(rows.T)
        top = np.linalg.eigvalsh(matrix)[-1]
        for (name, budget), factor in ((b, f) for b in BUDGETS.items() for f in FACTORS):
            norm = None if factor is None else float(np.sqrt(factor * square.mean()))
            found = [one(rows, budget, norm) for _ in range(given.runs)]
            width, error = np.mean(found, axis=0)
            shrunk = rows if norm is None else rows / np.maximum(1, np.sqrt(square) / norm)[:, None]
            clipped = np.cov(shrunk.T)
            print(
                f"{kind:<7} {p:>5}  {name:<10} {'box' if factor is None else f'{factor:.1f}':>5}"
                f" {'' if norm is None else f'{norm**2:.2f}':>5}"
                f"  {0 if norm is None else np.mean(square > norm**2):>6.1%}  {width:>7.4f}"
                f" {error:>7.4f} {np.linalg.norm(clipped - matrix):>7.4f}"
                f"  {np.linalg.eigvalsh(clipped)[-1] / top - 1:>7.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
