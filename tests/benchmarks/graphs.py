"""Edges of a graph by several methods, side by side: false ones, and the share of true ones found.

    python tests/benchmarks/graphs.py [--runs 20] [--rows 20000] [--graph chain] [--p 8]
    python tests/benchmarks/graphs.py --write FOLDER          # the private tables, as 0.csv, ...
    python tests/benchmarks/graphs.py --others MST=FOLDER     # rows of another generator, likewise

Normal rows whose graph is known, in columns with bounds at three standard deviations, at
(1, 1e-6)-differential privacy. All methods look at one release; the last ones at synthetic rows, as
if they were private ones.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.covariance import graphical_lasso

import dpstats as dps

HALF = 300
BUDGET = dps.ZCDP.from_epsilon_delta(1, 1e-6)
PENALTIES = np.geomspace(0.003, 0.5, 12)


def tables(graph, p, n, runs):
    """Private rows of every run, and which pairs are edges."""
    precision = np.eye(p)
    for i in range(p - 1) if graph == "chain" else ():
        precision[i, i + 1] = precision[i + 1, i] = -0.4
    covariance = np.linalg.inv(precision)
    root = np.sqrt(np.diag(covariance))
    names = [f"x{i}" for i in range(p)]
    for run in range(runs):
        rng = np.random.default_rng(run)
        rows = rng.multivariate_normal(np.zeros(p), covariance / np.outer(root, root), n)
        yield pd.DataFrame(np.clip(np.rint(rows * HALF / 3), -HALF, HALF) * 3 / HALF, columns=names)


def partials(correlation):
    """Partial correlations (pairs,), row by row of the upper triangle."""
    precision = np.linalg.inv(correlation)
    root = np.sqrt(np.diag(precision))
    return (-precision / np.outer(root, root))[np.triu_indices(len(root), 1)]


def fisher(correlation, n):
    """Edges by Fisher's z and Holm's method, as for rows without noise."""
    if np.linalg.eigvalsh(correlation)[0] <= 0:
        return np.ones(len(partials(np.eye(len(correlation)))), dtype=bool)
    z = np.arctanh(np.clip(partials(correlation), -1 + 1e-12, 1 - 1e-12))
    pvalues = 2 * stats.norm.sf(np.abs(z) * np.sqrt(n - len(correlation) - 1))
    order = np.argsort(pvalues)
    steps = np.maximum.accumulate(pvalues[order] * np.arange(len(order), 0, -1))
    found = np.zeros(len(order), dtype=bool)
    found[order] = steps <= 0.05
    return found


def lasso_by_bic(correlation, n):
    """Edges of the graphical lasso whose penalty minimises BIC, as for rows without noise."""
    best, found = np.inf, None
    lifted = correlation + max(0, 1e-3 - np.linalg.eigvalsh(correlation)[0]) * np.eye(
        len(correlation)
    )
    for penalty in PENALTIES:
        precision = graphical_lasso(lifted, penalty, max_iter=500)[1]
        edges = np.abs(precision[np.triu_indices(len(precision), 1)]) > 1e-8
        fit = np.sum(lifted * precision) - np.linalg.slogdet(precision)[1]
        if (score := n * fit + np.log(n) * edges.sum()) < best:
            best, found = score, edges
    return found


def correlation_of(covariance):
    root = np.sqrt(np.maximum(np.diag(covariance), 1e-9))
    return covariance / np.outer(root, root)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--p", type=int, default=8)
    parser.add_argument("--graph", choices=("chain", "empty"), default="chain")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--others", nargs="*", default=[])
    options = parser.parse_args()
    private = tables(options.graph, options.p, options.rows, options.runs)
    if options.write:
        for run, rows in enumerate(private):
            rows.to_csv(options.write / f"{run}.csv", index=False)
        return
    names = [f"x{i}" for i in range(options.p)]
    first, second = np.triu_indices(options.p, 1)
    edge = (second == first + 1) & (options.graph == "chain")
    schema = dps.Schema([dps.Number(x, -3, 3, points=2 * HALF + 1, missing=0) for x in names])
    others = dict(pair.split("=") for pair in options.others)
    found = {}
    for run, rows in enumerate(private):
        norm = float(stats.chi2.isf(0.001, options.p) ** 0.5 / 3)
        models = {
            "box": dps.GraphicalModel(names),
            "ball": dps.GraphicalModel(names, clip_norm=norm),
        }
        for kind, model in models.items():
            plan = dps.plan(schema, {"g": model}, budget=BUDGET, n=len(rows))
            release = dps.release(plan, rows, rng=run)
            result = release.infer("g")
            noisy = correlation_of(result.covariance_)
            sparse = dps.GraphicalModel(
                names, estimator="glasso", clip_norm=model.clip_norm, penalties=None
            )
            edges = {
                "noise-aware, Holm": np.asarray(result.pvalues) <= 0.05,
                "certified, table": np.array(result.verdicts(target="table")) == "present",
                "Fisher's z, noise ignored": fisher(noisy, len(rows)),
                "glasso, usual penalty": _picture(release.infer(sparse), first, second),
                "glasso by BIC, noise ignored": lasso_by_bic(noisy, len(rows)),
                "Fisher's z on synthetic rows": fisher(
                    np.corrcoef(release.to_frame().T), len(rows)
                ),
            }
            for method, seen in edges.items():
                found.setdefault(f"{kind}: {method}", []).append(seen)
        for name, folder in others.items():
            path = Path(folder) / f"{run}.csv"
            if path.exists():
                synthetic = pd.read_csv(path)[names]
                found.setdefault(f"Fisher's z on rows of {name}", []).append(
                    fisher(np.corrcoef(synthetic.T), len(synthetic))
                )
    print(f"{options.graph}, p = {options.p}, n = {options.rows}, {BUDGET}")
    print(f"{'method':<42}{'runs':>5}{'any false':>11}{'false edges':>13}{'true found':>12}")
    for method, runs in found.items():
        seen = np.array(runs)
        false = seen[:, ~edge].sum(axis=1)
        true = seen[:, edge].mean() if edge.any() else np.nan
        figures = f"{np.mean(false > 0):>11.2f}{false.mean():>13.2f}{true:>12.2f}"
        print(f"{method:<42}{len(seen):>5}{figures}")


def _picture(result, first, second):
    matrix = result.precision_[np.argmin(np.abs(np.log(result.penalties / result.usual)))]
    return np.abs(matrix[first, second]) > 1e-8


if __name__ == "__main__":
    main()
