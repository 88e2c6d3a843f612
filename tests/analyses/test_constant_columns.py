"""Columns that do not vary, and columns that follow from others, at budgets without noise."""

import itertools

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy.noise import _noise_from

BUDGETS = [dps.PureDP(1e5), dps.ZCDP(1e6)]


def numbers(*names):
    return [dps.Number(name, 0, 100, points=101, missing=0) for name in names]


SCHEMA = dps.Schema([*numbers("a", "b", "k", "y"), dps.Category("g", list("abc"))])


def rows(value=37.0, n=1_000):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 101, n).astype(float)
    y = np.clip(np.round(0.5 * a + rng.normal(0, 10, n)), 0, 100)
    g = rng.choice(list("abc"), n)
    return pd.DataFrame({"a": a, "b": 100 - a, "k": value, "y": y, "g": g})


def released(analysis, budget, value=37.0):
    plan = dps.plan(SCHEMA, {"o": analysis}, budget=budget, reference=dps.Uniform())
    rng = np.random.default_rng(7)

    def noise(scale, size):
        if budget.noise == "laplace":
            return np.rint(rng.laplace(0, scale, size)).astype(np.int64)
        return np.rint(rng.normal(0, scale, size)).astype(np.int64)

    with _noise_from(noise):
        return dps.release(plan, rows(value), rng=0, m=200).infer("o")


@pytest.mark.parametrize(("budget", "value", "cov_type"), [
    (BUDGETS[0], 37.0, "nonrobust"), (BUDGETS[1], 50.0, "HC1"),
    (BUDGETS[0], 50.0, "HC1"), (BUDGETS[1], 37.0, "nonrobust"),
], ids=str)  # fmt: skip
def test_a_constant_response_has_slopes_of_zero(budget, value, cov_type):
    found = released(dps.OLS("k ~ a + g", cov_type=cov_type), budget, value)
    assert found.predict({"a": [3.0], "g": ["b"]}) == pytest.approx([value], abs=0.02)
    assert np.asarray(found.params)[1:] == pytest.approx(0, abs=0.02)
    assert (np.asarray(found.bse) > 0).all()
    assert (np.asarray(found.pvalues)[1:] > 1e-3).all()
    assert found.f_pvalue > 1e-3
    assert found.f_test("g[T.b] = 0, g[T.c] = 0").pvalue > 1e-3
    assert np.isfinite(found.fvalue)
    assert str(found.summary())
    if budget.noise == "laplace":  # at most a single unit of noise
        assert "R-squared and residual sd: none" in found.summary()
        assert np.isnan(found.rsquared)
        assert np.isnan(found.rsquared_adj)


@pytest.mark.parametrize(("budget", "columns"), [(BUDGETS[0], "aky"), (BUDGETS[1], "aby")], ids=str)
def test_partial_correlations_of_a_singular_matrix_are_undefined(budget, columns):
    found = released(dps.GraphicalModel([*columns]), budget)
    assert np.isnan(np.asarray(found.params)).all()
    for method in ("noise_aware", "certified"):
        for target in ("population", "table"):
            ends = found.conf_int(method=method, target=target)
            np.testing.assert_array_equal(ends, [[-1, 1]] * 3)
    assert str(found.summary())


@pytest.mark.parametrize(("budget", "value"), [(BUDGETS[0], 37.0), (BUDGETS[1], 50.0)], ids=str)
@pytest.mark.parametrize("analysis", [
    dps.Correlation(["a", "k", "y"]), dps.GraphicalModel(["a", "k", "y"], structure="tree"),
], ids=["correlation", "tree"])  # fmt: skip
def test_a_column_that_does_not_vary_has_no_correlation(budget, value, analysis):
    found = released(analysis, budget, value)
    own = [term for term in found.terms if "k" in term]
    assert len(own) == 2
    for method in ("noise_aware", "certified"):
        for target in ("population", "table"):
            ends = found.intervals_frame(method=method, target=target).set_index("term")
            assert (ends.loc[own, ["conf_low", "conf_high"]].to_numpy() == [-1, 1]).all()


@pytest.mark.parametrize(("analysis", "budget"), list(zip([
    dps.OLS("y ~ a + k"), dps.OLS("y ~ a + b"), dps.OLS("y ~ a + k", ridge=0.1),
    dps.OLS("b ~ a"), dps.Lasso("y ~ a + k"), dps.Lasso("y ~ a + b"), dps.Lasso("k ~ a"),
    dps.PCA(["a", "k", "y"]), dps.PCA(["a", "k"], standardize=True), dps.GroupMeans("k", "g"),
    dps.Covariance(["a", "k"]), dps.Mean("k"), dps.MeanDifference("k", "g", ("a", "b")),
    dps.GraphicalModel(["a", "k", "y"], estimator="glasso"),
], itertools.cycle(BUDGETS), strict=False)), ids=str)  # fmt: skip
def test_every_analysis_has_a_summary(budget, analysis):
    found = released(analysis, budget)
    assert str(found.summary())
    if isinstance(analysis, dps.OLS) and analysis.formula.endswith(("+ k", "+ b")):
        if analysis.ridge:
            assert np.asarray(found.pvalues)[2] > 1e-3  # of the constant column
        else:
            assert np.isinf(found.conf_int()).all()
