"""Coverage of components, covariances and correlations of rows shrunk to a public norm.

Rows are drawn, with replacement, from a table of 50,000 that represents the population; its
shrunk rows, in floats, have the values that intervals are about.
"""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy.noise import _noise_from

POPULATION, P = 50_000, 6
NAMES = [f"x{i}" for i in range(P)]
SCHEMA = dps.Schema([dps.Number(name, -1, 1, points=201, missing=0) for name in NAMES])
CENTER = dict.fromkeys(NAMES, 0.2)
CASES = [(method, target) for method in ("noise_aware", "certified")
         for target in ("population", "table")]  # fmt: skip


def population():
    """Two factors, off the middle; the second half of the columns with heavy tails."""
    rng = np.random.default_rng(5)
    loadings = np.array([[0.3, 0.25, 0.2, 0.2, 0.1, 0.1], [0.1, -0.1, 0.2, -0.1, 0.2, -0.05]])
    rows = rng.standard_normal((POPULATION, 2)) @ loadings
    tails = rng.standard_t(4, rows.shape) * np.where(np.arange(P) < 3, 0, 0.1)
    rows += 0.25 + 0.1 * rng.standard_normal(rows.shape) + tails
    return np.round(np.clip(rows, -1, 1), 2)


def shrunk(rows, norm):
    z = rows - 0.2
    return z / np.maximum(1, np.linalg.norm(z, axis=1) / norm)[:, np.newaxis]


def truth_of(rows, norm):
    matrix = np.cov(shrunk(rows, norm).T)
    values = np.linalg.eigvalsh(matrix)[::-1]
    return {
        "pca": np.concatenate([values, values / values.sum()]),
        "cov": matrix[np.triu_indices(P)],
        "corr": np.corrcoef(shrunk(rows, norm).T)[np.triu_indices(P, 1)],
    }


def check(n, budget, norm, runs, table, tools, unit="replace", seed=3, m=2_000):
    rows, rng = population(), np.random.default_rng(seed)
    options = {"clip_norm": norm, "center": CENTER, "scale": dict.fromkeys(NAMES, 1.0)}
    made = {"pca": dps.PCA, "cov": dps.Covariance, "corr": dps.Correlation}
    analyses = {name: make(NAMES, **options) for name, make in made.items()}
    count = n if unit == "replace" else None
    plan = dps.plan(SCHEMA, analyses, budget=budget, n=count, unit=unit, reference=dps.Uniform())
    laplace = isinstance(budget, dps.PureDP)
    source = tools.Laplace(seed + 1) if laplace else tools.Gaussian(seed + 1)
    whole = truth_of(rows, norm)
    hits, widths = {}, {}
    for _ in range(runs):
        drawn = rows[rng.integers(0, POPULATION, n)]
        with _noise_from(source):
            measured = dps.measure(plan, pd.DataFrame(drawn, columns=NAMES))
        release = dps.synthesize(measured, m=m, k=10, rng=rng)
        own = truth_of(drawn, norm)
        for name in analyses:
            result = release.infer(name)
            for method, target in CASES:
                truth = (whole if target == "population" else own)[name]
                low, high = result.conf_int(method=method, target=target)[: len(truth)].T
                slack = 2e-3 * np.abs(truth) + 1e-5  # rows are rounded to 1/8192 of the norm
                inside = (low <= truth + slack) & (truth <= high + slack)
                hits.setdefault((name, method, target), []).append(inside)
                widths.setdefault((name, method, target), []).append(high - low)
    setting = f"{unit}, n = {n}, {budget}, norm {norm:g}"
    for key, found in hits.items():
        rates = np.mean(found, axis=0)
        worst, width = int(rates.argmin()), float(np.mean(widths[key]))
        what = f"{key[0]}, worst, {key[1]}, {key[2]}"
        table.covers(setting, what, np.sum(found, axis=0)[worst], runs, width=width)


def test_a_few_releases(table, tools):
    """6 runs: sees intervals of wrong units or forgotten scales, which miss always."""
    check(4_000, dps.PureDP(1), 0.6, 6, table, tools, m=500)


def test_a_few_releases_with_a_measured_count(table, tools):
    """5 runs, Gaussian noise."""
    check(4_000, dps.ZCDP(0.02), 0.6, 5, table, tools, unit="add_remove", m=500)


SETTINGS = [
    (2_000, dps.PureDP(1), 0.5),
    (20_000, dps.PureDP(2), 0.7),
    (20_000, dps.ZCDP(0.03), 0.4),
    (1_000, dps.PureDP(0.3), 0.6),
    (5_000, dps.PureDP(1), 2.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_components_and_covariances(setting, table, tools):
    check(*setting, 200, table, tools)
