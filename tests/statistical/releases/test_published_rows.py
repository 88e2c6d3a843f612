"""Coverage of what is inferred from published rows, a radius and n alone, rows of real releases.

Noise is the larger error, so that intervals that left it out would miss often.
"""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Boolean("ill"),
    dps.Category("region", ["n", "s", "w"]),
    dps.Number("x", -1, 1, points=21, missing=0),
    dps.Number("y", -1, 1, points=21, missing=0),
])  # fmt: skip
ASKED = {
    "share": dps.Proportion("ill"),
    "spread": dps.Covariance(["x", "y"]),
    "shape": dps.PCA(["x", "y"]),
    "line": dps.OLS("y ~ x"),
    "link": dps.Independence("ill", "region", simulations=99),
    "fit": dps.GoodnessOfFit("region", [0.5, 0.3, 0.2], simulations=99),
}
ALPHA, BETA = 0.1, 0.05
N, ILL, SLOPE = 600, 0.3, 0.5
SETTINGS = [("replace", dps.PureDP(2)), ("add_remove", dps.PureDP(2))]


def population(n, rng):
    """Rows on the grid: y = x / 2 plus an error of two values, ill and region independent."""
    x = rng.integers(-10, 11, n)
    x = np.where(x % 2 == 0, x, x - np.sign(x))  # even, so that x / 2 is on the grid
    y = x // 2 + rng.choice([-4, 4], n)
    return {
        "ill": (rng.random(n) < ILL).astype(np.int64),
        "region": rng.choice(3, n, p=[0.5, 0.3, 0.2]),
        "x": x,
        "y": y,
    }


def values_of(matrix, share, line):
    """What is inferred, from the covariance matrix of x and y."""
    roots = np.linalg.eigvalsh(matrix)[::-1]
    shape = np.concatenate([roots, roots / roots.sum()])
    return {"share": share, "spread": matrix[np.triu_indices(2)], "shape": shape, "line": line}


def truths():
    """Values of the population, from its exact law."""
    values = np.arange(-10, 11)
    variance = np.var(np.where(values % 2 == 0, values, values - np.sign(values)) / 10)
    matrix = np.array([[variance, SLOPE * variance], [SLOPE * variance, variance / 4 + 0.16]])
    return values_of(matrix, np.array([ILL]), np.array([0.0, SLOPE]))


def table_truths(codes):
    x, y = codes["x"] / 10, codes["y"] / 10
    design = np.column_stack([np.ones(len(x)), x])
    line = np.linalg.lstsq(design, y, rcond=None)[0]
    return values_of(np.cov(x, y), np.array([codes["ill"].mean()]), line)


def covers(found, truth, **options):
    ends = np.asarray(found.conf_int(simultaneous=True, **options)).reshape(-1, 2)[: len(truth)]
    return bool(np.all((ends[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ends[:, 1])))


# Of 8 runs at least 2 must hold for the population, and 3 for the table.
@pytest.mark.simulate(SETTINGS, few=(1,), runs=(8, 300))
def test_coverage_from_rows_alone(setting, runs, seeded_noise):
    """By name, target and kind of radius; rejections of what is true by name."""
    unit, budget = setting
    plan, source = dps.plan(SCHEMA, ASKED, budget=budget, unit=unit), seeded_noise(3)
    rng, held, wrong = np.random.default_rng(4), Counter(), Counter()
    about = ("population", ALPHA, truths()), ("table", BETA, None)
    for _ in range(runs):
        codes = population(N, rng)
        with _noise_from(source):
            measured = dps.measure(plan, SCHEMA.to_frame(codes))
        release = dps.synthesize(measured, m=200, k=N, rng=1)
        rows, own = release.to_frame(), table_truths(codes)
        for name, analysis in ASKED.items():
            radius = release.radius(name, alpha=BETA)
            kinds = {
                "of each function": {"radius": radius},
                "one number": {"radius": radius.max, "n": radius.n, "beta": BETA},
                "ignored": {"radius": 0.0, "n": release.n, "beta": BETA},
            }
            for kind, options in kinds.items():
                if kind == "ignored" and name not in own:
                    continue
                found = dps.corrected.infer(analysis, rows, schema=SCHEMA, **options)
                if name not in own:
                    wrong[name] += found.verdict(alpha=ALPHA).verdict == "reject"
                    continue
                for target, level, truth in about[kind == "ignored" :]:
                    value = (truth or own)[name]
                    held[name, target, kind] += covers(found, value, alpha=level, target=target)
    for name in own:
        for target, level, _ in about:
            for kind in ("of each function", "one number"):
                count = held[name, target, kind]
                assert count >= stats.binom.ppf(1e-6, runs, 1 - level), (name, target, kind, count)
        # The test can fail: for the table, rows without a radius miss nearly always.
        assert held[name, "table", "ignored"] < runs / 2, name
    for name, count in wrong.items():
        assert count <= stats.binom.isf(1e-6, 2 * runs, ALPHA), (name, count)
