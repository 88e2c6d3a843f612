"""Edges of a graph by several methods, side by side: false ones, and the share of true ones found.

    python tests/benchmarks/graphs.py [--runs 20] [--rows 20000]

Normal rows whose graph is a chain, in eight columns with bounds at three standard deviations, at
(1, 1e-6)-differential privacy. All methods look at one release.
"""

from collections import defaultdict

import numpy as np
import pandas as pd
from measuring import markdown, parsed
from scipy import stats
from sklearn.covariance import graphical_lasso
from statsmodels.stats.multitest import multipletests

import dpstats as dps

P, HALF = 8, 300
BUDGET = dps.ZCDP.from_epsilon_delta(1, 1e-6)
PENALTIES = np.geomspace(0.003, 0.5, 12)


def correlation_of(covariance):
    root = np.sqrt(np.maximum(np.diag(covariance), 1e-9))
    return covariance / np.outer(root, root)


def upper(matrix):
    """Entries (pairs,), row by row of the upper triangle."""
    return matrix[np.triu_indices(len(matrix), 1)]


def tables(n, runs):
    precision = np.eye(P) - 0.4 * (np.eye(P, k=1) + np.eye(P, k=-1))
    correlation = correlation_of(np.linalg.inv(precision))
    for run in range(runs):
        rows = np.random.default_rng(run).multivariate_normal(np.zeros(P), correlation, n)
        rows = np.clip(np.rint(rows * HALF / 3), -HALF, HALF) * 3 / HALF
        yield pd.DataFrame(rows, columns=[f"x{i}" for i in range(P)])


def fisher(correlation, n):
    """Edges by Fisher's z and Holm's method, as for rows without noise."""
    p = len(correlation)
    if np.linalg.eigvalsh(correlation)[0] <= 0:
        return np.ones(p * (p - 1) // 2, dtype=bool)
    partial = -upper(correlation_of(np.linalg.inv(correlation)))
    z = np.arctanh(np.clip(partial, -1 + 1e-12, 1 - 1e-12))
    pvalues = 2 * stats.norm.sf(np.abs(z) * np.sqrt(n - p - 1))
    return multipletests(pvalues, 0.05, "holm")[0]


def lasso_by_bic(correlation, n):
    """Edges of the graphical lasso whose penalty minimises BIC, as for rows without noise."""
    best, found = np.inf, None
    lift = max(0, 1e-3 - np.linalg.eigvalsh(correlation)[0])
    lifted = correlation + lift * np.eye(len(correlation))
    for penalty in PENALTIES:
        precision = graphical_lasso(lifted, penalty, max_iter=500)[1]
        edges = np.abs(upper(precision)) > 1e-8
        fit = np.sum(lifted * precision) - np.linalg.slogdet(precision)[1]
        if (score := n * fit + np.log(n) * edges.sum()) < best:
            best, found = score, edges
    return found


def usual_lasso(result):
    """Edges at the penalty nearest to the usual one."""
    nearest = np.argmin(np.abs(np.log(result.penalties / result.usual)))
    return np.abs(upper(result.precision_[nearest])) > 1e-8


def methods(rows, clip_norm, seed):
    names, n = list(rows), len(rows)
    schema = dps.Schema([dps.Number(x, -3, 3, points=2 * HALF + 1, missing=0) for x in names])
    model = dps.GraphicalModel(names, clip_norm=clip_norm)
    plan = dps.plan(schema, {"g": model}, budget=BUDGET, n=n)
    release = dps.release(plan, rows, rng=seed)
    result = release.infer("g")
    noisy = correlation_of(result.covariance_)
    sparse = dps.GraphicalModel(names, estimator="glasso", clip_norm=clip_norm, penalties=None)
    return {
        "noise-aware, Holm": np.asarray(result.pvalues) <= 0.05,
        "certified, table": np.array(result.verdicts(target="table")) == "present",
        "Fisher's z, noise ignored": fisher(noisy, n),
        "glasso, usual penalty": usual_lasso(release.infer(sparse)),
        "glasso by BIC, noise ignored": lasso_by_bic(noisy, n),
        "Fisher's z on synthetic rows": fisher(np.corrcoef(release.to_frame().T), n),
    }


def main():
    given = parsed(__doc__, runs=20, rows=20_000)
    edge = upper(np.eye(P, k=1)).astype(bool)
    norm = float(stats.chi2.isf(0.001, P) ** 0.5 / 3)
    found = defaultdict(list)
    for run, rows in enumerate(tables(given.rows, given.runs)):
        for kind, clip_norm in (("box", None), ("ball", norm)):
            for method, seen in methods(rows, clip_norm, run).items():
                found[f"{kind}: {method}"].append(seen)
    lines = []
    for method, seen in found.items():
        false, true = np.array(seen)[:, ~edge].sum(axis=1), np.array(seen)[:, edge].mean()
        lines.append([method, len(seen), np.mean(false > 0), false.mean(), true])
    print(f"chain, p = {P}, n = {given.rows}, {BUDGET}")
    print(markdown(["method", "runs", "any false", "false edges", "true found"], lines))


if __name__ == "__main__":
    main()
