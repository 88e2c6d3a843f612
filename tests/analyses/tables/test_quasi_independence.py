"""Independence where cells cannot occur, beside the loglinear model of the possible cells."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

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


def table_of_rows(seed=0, n=3_000):
    rng = np.random.default_rng(seed)
    cells = np.flatnonzero(POSSIBLE)
    drawn = rng.choice(cells, n, p=rng.dirichlet(np.full(len(cells), 5.0)))
    return pd.DataFrame({
        "a": np.array(ROWS)[drawn // 3], "b": np.array(COLUMNS)[drawn % 3],
        "s": rng.random(n) < 0.4,
    })  # fmt: skip


def effects(possible):
    """Dummies of the rows and of the columns at the possible cells."""
    cells, (r, c) = np.argwhere(possible), possible.shape
    return np.hstack([cells[:, :1] == range(r), cells[:, 1:] == range(c)]).astype(float)


def loglinear(counts):
    """Fitted counts and degrees of freedom of a factor of the row times one of the column."""
    family = sm.families.Poisson()
    fit = sm.GLM(counts[POSSIBLE], effects(POSSIBLE)[:, 1:], family=family).fit(tol=1e-13)
    return fit.fittedvalues, fit.df_resid


def counts_of(rows):
    return pd.crosstab(rows.a, rows.b).to_numpy().astype(float)


def test_without_noise_it_is_the_loglinear_model_of_the_possible_cells(inferred):
    rows = table_of_rows()
    result, counts = inferred(SCHEMA, rows, dps.Independence("a", "b")), counts_of(rows)
    fitted, df = loglinear(counts)
    pearson = np.sum((counts[POSSIBLE] - fitted) ** 2 / fitted)
    assert result.df == df == 3
    assert result.pearson == pytest.approx(pearson, rel=1e-7)
    np.testing.assert_allclose(result.expected.reshape(4, 3)[POSSIBLE], fitted, rtol=1e-7)
    assert result.pearson_pvalue == pytest.approx(stats.chi2.sf(pearson, df), rel=1e-6)
    assert result.pvalue <= 1 / 1_000  # rows are drawn from unequal shares
    assert np.isnan(result.effect)
    assert result.certified.verdict == "inconclusive"


def test_residuals_have_the_variance_that_the_fit_leaves(inferred):
    """Of quasi-independent tables, standardised residuals have variance 1."""
    rng = np.random.default_rng(3)
    p = np.outer([0.1, 0.2, 0.3, 0.4], [0.5, 0.3, 0.2]) * POSSIBLE
    p /= p.sum()
    squares, test = [], dps.Independence("a", "b", simulations=99)
    for _ in range(12):
        drawn = rng.choice(12, 2_000, p=p.ravel())
        rows = pd.DataFrame({"a": np.array(ROWS)[drawn // 3], "b": np.array(COLUMNS)[drawn % 3]})
        squares.append(inferred(SCHEMA, rows.assign(s=True), test).residuals ** 2)
    means = np.mean(squares, axis=0).reshape(4, 3)
    assert np.isnan(means[~POSSIBLE]).all()
    assert np.isnan(means[0, 0])  # its row determines it
    rest = means[1:][POSSIBLE[1:]]
    # Five standard deviations of a mean of 12 squares of normal variables.
    assert np.all(np.abs(rest - 1) < 5 * np.sqrt(2 / 12))


def test_degrees_of_freedom_are_the_rank_of_the_possible_cells():
    rng = np.random.default_rng(0)
    for _ in range(20):
        possible = rng.random((4, 5)) < 0.6
        expected = possible.sum() - np.linalg.matrix_rank(effects(possible))
        assert degrees_of_freedom(possible[np.newaxis]) == expected
    assert degrees_of_freedom(np.ones((3, 4, 5), bool)) == 12


def test_columns_that_follow_leave_no_test(inferred):
    schema = dps.Schema(
        [dps.Category("town", ["a", "b", "c"]), dps.Category("area", ["n", "s"])],
        rules=[dps.Determines("area", by="town", mapping={"a": "n", "b": "n", "c": "s"})],
    )
    rows = pd.DataFrame({"town": list("abc") * 100, "area": list("nns") * 100})
    result = inferred(schema, rows, dps.Independence("town", "area"), dps.PureDP(1))
    assert (result.df, result.pvalue) == (0, 1.0)


@pytest.mark.parametrize("given", ["s", "s == True"])
def test_strata_and_subgroups_without_noise(given, inferred):
    rows = table_of_rows(1)
    result = inferred(SCHEMA, rows, dps.Independence("a", "b", given=given, simulations=99))
    assert result.df == 3
    of_s = [rows[rows.s], rows[~rows.s]] if given == "s" else [rows[rows.s]]
    fitted = sum(loglinear(counts_of(some))[0].sum() for some in of_s)
    assert np.nansum(result.expected) == pytest.approx(fitted, rel=1e-6)
