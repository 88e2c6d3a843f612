"""Columns that do not vary, and columns that follow from others, at budgets without noise."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

NUMBERS = [dps.Number(name, 0, 100, points=101, missing=0) for name in "abky"]
SCHEMA = dps.Schema([*NUMBERS, dps.Category("g", list("abc"))])
VALUES = {"laplace": 37.0, "gaussian": 50.0}  # of the constant column, by the law of the noise
ASKED = {
    "constant response": dps.OLS("k ~ a + g"), "robust": dps.OLS("k ~ a + g", cov_type="HC1"),
    "constant regressor": dps.OLS("y ~ a + k"),
    "line": dps.OLS("y ~ a + b"), "ridge": dps.OLS("y ~ a + k", ridge=0.1),
    "exact line": dps.OLS("b ~ a"), "lasso": dps.Lasso("y ~ a + k"),
    "lasso of a constant": dps.Lasso("k ~ a"), "components": dps.PCA(["a", "k", "y"]),
    "standardized": dps.PCA(["a", "k"], standardize=True),
    "group means": dps.GroupMeans("k", "g"), "covariance": dps.Covariance(["a", "k"]),
    "difference": dps.MeanDifference("k", "g", ("a", "b")),
    "correlation": dps.Correlation(["a", "k", "y"]),
    "tree": dps.GraphicalModel(["a", "k", "y"], structure="tree"),
    "glasso": dps.GraphicalModel(["a", "k", "y"], estimator="glasso"),
    "graph": dps.GraphicalModel(["a", "k", "y"]),
    "singular graph": dps.GraphicalModel(["a", "b", "y"]),
}  # fmt: skip
OPTIONS = [
    {"method": method, "target": target}
    for method in ("noise_aware", "certified") for target in ("population", "table")
]  # fmt: skip


@pytest.fixture(scope="module", params=VALUES)
def release(request):
    rng, n, value = np.random.default_rng(0), 1_000, VALUES[request.param]
    a = rng.integers(0, 101, n).astype(float)
    y = np.clip(np.round(0.5 * a + rng.normal(0, 10, n)), 0, 100)
    rows = pd.DataFrame({"a": a, "b": 100 - a, "k": value, "y": y, "g": rng.choice([*"abc"], n)})
    budget = dps.PureDP(2e6) if request.param == "laplace" else dps.ZCDP(2e7)
    plan = dps.plan(SCHEMA, ASKED, budget=budget, reference=dps.Uniform())
    return dps.release(plan, rows, rng=0, m=200)


@pytest.mark.parametrize("name", ["constant response", "robust"])
def test_a_constant_response_has_slopes_of_zero(name, release):
    found, value = release.infer(name), VALUES[release.budget.noise]
    assert found.predict({"a": [3.0], "g": ["b"]}) == pytest.approx([value], abs=0.02)
    assert np.asarray(found.params)[1:] == pytest.approx(0, abs=0.02)
    assert (np.asarray(found.bse) > 0).all()
    joint = found.f_test("g[T.b] = 0, g[T.c] = 0").pvalue
    assert min(*np.asarray(found.pvalues)[1:], found.f_pvalue, joint) > 1e-3
    assert np.isfinite(found.fvalue)
    if release.budget.noise == "laplace":  # at most a single unit of noise
        assert "R-squared and residual sd: none" in found.summary()
        assert np.isnan([found.rsquared, found.rsquared_adj]).all()


def test_correlations_of_a_column_that_does_not_vary_are_not_known(release):
    """And all partial ones, since the matrix is singular."""
    for name in ("correlation", "tree", "graph", "singular graph"):
        found, partial = release.infer(name), "graph" in name
        own = [partial or "k" in term for term in found.terms]
        assert sum(own) == 2 + partial
        assert np.isnan(np.asarray(found.params)).all() or not partial
        for options in OPTIONS:
            assert (np.asarray(found.conf_int(**options))[own] == [-1, 1]).all(), name


def test_every_analysis_has_a_summary(release):
    for name in [*ASKED][release.budget.noise == "laplace" :: 2]:
        assert str(release.infer(name).summary()), name
    for name in ("constant regressor", "line"):
        assert np.isinf(release.infer(name).conf_int()).all()
    assert np.asarray(release.infer("ridge").pvalues)[2] > 1e-3  # of the constant column


@pytest.mark.parametrize("cov_type", ["nonrobust", "HC1"])
def test_certain_coefficients_are_what_they_are(cov_type, no_noise, inferred):
    """A response of zero on levels leaves no error at all: other values are false."""
    schema = dps.Schema([dps.Category("g", list("abc")), dps.Boolean("ill")])
    rows = pd.DataFrame({"g": list("abc") * 10, "ill": False})
    found = inferred(schema, rows, dps.OLS("ill ~ g", cov_type=cov_type))
    assert np.asarray(found.bse).tolist() == [0, 0, 0]
    assert "F statistic 0 on 0 and 27 df" in found.summary()
    right, wrong = found.f_test("g[T.b] = 0, g[T.c] = 0"), found.f_test("g[T.b] = 0, g[T.c] = 1")
    assert (right.pvalue, right.df_num) == (1, 0)
    assert (wrong.pvalue, wrong.df_num) == (found.t_test("g[T.c] = 1").pvalue, 2)
    assert wrong.pvalue == 0
