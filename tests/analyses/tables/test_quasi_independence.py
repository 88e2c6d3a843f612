"""Independence where cells cannot occur, beside the loglinear model of the possible cells."""

import itertools

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import linalg, stats

import dpstats as dps
from dpstats.analyses.tables.score_statistic import degrees_of_freedom

ROWS, COLUMNS = ["r0", "r1", "r2", "r3"], ["c0", "c1", "c2"]
RULES = [
    dps.Never("a == 'r0' and b != 'c0'", set={"b": "c0"}),
    dps.Never("a == 'r1' and b == 'c2'", set={"b": "c1"}),
]
SCHEMA = dps.Schema(
    [dps.Category("a", ROWS), dps.Category("b", COLUMNS), dps.Boolean("s")], rules=RULES
)
POSSIBLE = np.ones((4, 3), bool)
POSSIBLE[0, 1:] = POSSIBLE[1, 2] = False
EXACT = dps.PureDP(10**6)


def table_of_rows(seed=0, n=3_000):
    rng = np.random.default_rng(seed)
    cells = np.flatnonzero(POSSIBLE)
    drawn = rng.choice(cells, n, p=rng.dirichlet(np.full(len(cells), 5.0)))
    return pd.DataFrame({
        "a": np.array(ROWS)[drawn // 3], "b": np.array(COLUMNS)[drawn % 3],
        "s": rng.random(n) < 0.4,
    })  # fmt: skip


def loglinear(counts, possible):
    """Fitted counts and degrees of freedom of a factor of the row times one of the column."""
    design = np.array([
        [*(r == i for i in range(4)), *(c == j for j in range(3))]
        for r, c in itertools.product(range(4), range(3))
    ], dtype=float)[possible.ravel()]  # fmt: skip
    triangle, order = linalg.qr(design, mode="r", pivoting=True)
    rank = np.linalg.matrix_rank(triangle)
    fit = sm.GLM(counts[possible], design[:, order[:rank]], family=sm.families.Poisson()).fit(
        tol=1e-13
    )
    return fit.fittedvalues, possible.sum() - rank


def test_without_noise_it_is_the_loglinear_model_of_the_possible_cells():
    rows = table_of_rows()
    release = dps.release(dps.plan(SCHEMA, {"t": dps.Independence("a", "b")}, budget=EXACT), rows)
    result = release.infer("t")
    counts = pd.crosstab(rows.a, rows.b).to_numpy().astype(float)
    fitted, df = loglinear(counts, POSSIBLE)
    pearson = np.sum((counts[POSSIBLE] - fitted) ** 2 / fitted)
    assert result.df == df == 3
    assert result.pearson == pytest.approx(pearson, rel=1e-7)
    np.testing.assert_allclose(result.expected.reshape(4, 3)[POSSIBLE], fitted, rtol=1e-7)
    assert result.pearson_pvalue == pytest.approx(stats.chi2.sf(pearson, df), rel=1e-6)
    assert result.pvalue <= 1 / 1_000  # rows are drawn from unequal shares
    assert np.isnan(result.effect)
    assert "quasi-independent" in result.summary()
    assert result.certified.verdict == "inconclusive"


def test_residuals_have_the_variance_that_the_fit_leaves():
    """Of quasi-independent tables, standardised residuals have variance 1."""
    rng = np.random.default_rng(3)
    p = np.outer([0.1, 0.2, 0.3, 0.4], [0.5, 0.3, 0.2]) * POSSIBLE
    p /= p.sum()
    squares = []
    plan = dps.plan(SCHEMA, {"t": dps.Independence("a", "b", simulations=99)}, budget=EXACT)
    for _ in range(12):
        drawn = rng.choice(12, 2_000, p=p.ravel())
        rows = pd.DataFrame({"a": np.array(ROWS)[drawn // 3], "b": np.array(COLUMNS)[drawn % 3]})
        release = dps.release(plan, rows.assign(s=True), m=20, k=5)
        squares.append(release.infer("t").residuals ** 2)
    means = np.mean(squares, axis=0).reshape(4, 3)
    assert np.isnan(means[~POSSIBLE]).all()
    assert np.isnan(means[0, 0])  # its row determines it
    rest = means[1:][POSSIBLE[1:]]
    # Five standard deviations of a mean of 12 squares of normal variables.
    assert np.all(np.abs(rest - 1) < 5 * np.sqrt(2 / 12))


def test_strata_without_noise():
    rows = table_of_rows(1)
    analysis = dps.Independence("a", "b", given="s", simulations=99)
    release = dps.release(dps.plan(SCHEMA, {"t": analysis}, budget=EXACT), rows)
    result = release.infer("t")
    assert result.df == 3
    fits = []
    for some in (rows[rows.s], rows[~rows.s]):
        counts = pd.crosstab(some.a, some.b).to_numpy().astype(float)
        fits.append(loglinear(counts, POSSIBLE)[0].sum())
    assert np.nansum(result.expected) == pytest.approx(sum(fits), rel=1e-6)


def test_degrees_of_freedom_are_the_rank_of_the_possible_cells():
    rng = np.random.default_rng(0)
    for _ in range(20):
        possible = rng.random((1, 4, 5)) < 0.6
        design = np.array([
            [*(r == i for i in range(4)), *(c == j for j in range(5))]
            for r, c in itertools.product(range(4), range(5))
        ], dtype=float)[possible.ravel()]  # fmt: skip
        assert degrees_of_freedom(possible) == possible.sum() - np.linalg.matrix_rank(design)
    assert degrees_of_freedom(np.ones((3, 4, 5), bool)) == 12


def test_columns_that_follow_leave_no_test():
    schema = dps.Schema(
        [dps.Category("town", ["a", "b", "c"]), dps.Category("area", ["n", "s"])],
        rules=[dps.Determines("area", by="town", mapping={"a": "n", "b": "n", "c": "s"})],
    )
    plan = dps.plan(schema, {"t": dps.Independence("town", "area")}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"town": list("abc") * 100, "area": list("nns") * 100})
    result = dps.release(plan, rows).infer("t")
    assert (result.df, result.pvalue) == (0, 1.0)
    assert "no test" in result.summary()


@pytest.mark.parametrize("given", ["s", "s == True"])
def test_strata_and_subgroups_without_noise(given):
    rows = table_of_rows(1)
    analysis = dps.Independence("a", "b", given=given, simulations=99)
    release = dps.release(dps.plan(SCHEMA, {"t": analysis}, budget=EXACT), rows)
    result = release.infer("t")
    assert result.df == 3
    of_s = [rows[rows.s], rows[~rows.s]] if given == "s" else [rows[rows.s]]
    fits = []
    for some in of_s:
        counts = pd.crosstab(some.a, some.b).to_numpy().astype(float)
        fits.append(loglinear(counts, POSSIBLE)[0].sum())
    assert np.nansum(result.expected) == pytest.approx(sum(fits), rel=1e-6)
