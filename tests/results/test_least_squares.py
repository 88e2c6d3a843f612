"""Least-squares results with little or no information, and their further methods."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Number("a", 0, 10, points=101, missing=5), dps.Number("b", 0, 1, points=101, missing=0),
    dps.Number("y", -5, 8, points=1301, missing=0), dps.Category("g", ["n", "s"]),
])  # fmt: skip


def rows(n):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({
        "a": rng.integers(0, 101, n) / 10, "b": rng.integers(0, 101, n) / 100,
        "g": pd.Series(rng.choice(["n", "s"], n), dtype=object),
    })  # fmt: skip
    return frame.assign(y=(0.2 * frame["a"] + rng.normal(0, 1, n)).round(2))


def fitted(formula="y ~ a + b + g", n=2000, epsilon=50.0, unit="replace", **options):
    plan = dps.plan(
        SCHEMA, {"o": dps.OLS(formula, **options)}, budget=dps.PureDP(epsilon), unit=unit,
        reference=dps.Uniform(),
    )  # fmt: skip
    return dps.release(plan, rows(n), rng=0, m=100, k=20).infer("o")


@pytest.fixture(scope="module")
def found():
    return fitted()


@pytest.mark.parametrize(("n", "epsilon", "ridge"), [(0, 0.5, 0), (0, 1e5, 0.1)])
def test_an_empty_table_has_a_summary_that_claims_nothing(n, epsilon, ridge):
    result = fitted("y ~ a + g", n, epsilon, "add_remove", ridge=ridge)
    text = result.summary() + result.summary(target="table") + result._repr_html_()
    assert "nan" not in text
    if not np.isfinite(result.bse).any():
        assert "R-squared, residual sd and F test: not available" in text
        assert np.isnan([result.rsquared, result.rsquared_adj, result.scale]).all()
        assert np.isnan(result.privacy_share).all()
        assert (result.fvalue, result.f_pvalue) == (0, 1)


def test_one_contrast_has_single_numbers_as_in_statsmodels(found):
    one = found.t_test("a = 0.1")
    for name, values in {"effect": one.params, "sd": one.bse, "tvalue": one.tvalues,
                         "statistic": one.tvalues, "pvalue": one.pvalues}.items():  # fmt: skip
        assert isinstance(getattr(one, name), float)
        assert getattr(one, name) == values[0]
    two = found.t_test((np.eye(4)[1:3], [0.1, 0.2]))
    np.testing.assert_array_equal(two.pvalue, two.pvalues)
    assert two.pvalue[0] == pytest.approx(one.pvalue)
    assert two.null.tolist() == [0.1, 0.2]
    assert found.test(term=found.terms[-1]).pvalue == found.pvalues[-1]
    with pytest.raises(dps.RequestError, match="no chi-square form"):
        found.wald_test("a = 0", use_f=False)
    with pytest.raises(dps.RequestError, match="single parameter; this one has 4"):
        float(found)


def test_joint_tests_allow_for_the_noise(seeded_noise):
    """One coefficient far out in the tail, and the overall test of a model with one regressor."""
    with _noise_from(seeded_noise(0)):
        found = fitted("y ~ b", 20_000, 0.3)
    far = found.params[1] + 3.5 * found.bse[1]
    single, joint = found.t_test(f"b = {far}").pvalue, found.f_test(f"b = {far}")
    assert found.privacy_share[1] > 0.5
    assert joint.pvalue == pytest.approx(single, abs=0.002)
    assert single > 3 * stats.f.sf(joint.statistic, joint.df_num, joint.df_denom)
    overall = found.f_test("b = 0")
    assert (found.fvalue, found.f_pvalue) == (overall.statistic, overall.pvalue)
    assert found.f_pvalue == pytest.approx(found.pvalues[1], abs=0.02)


def test_predictions_of_single_values_and_for_the_table(found):
    wanted = found.get_prediction({"a": [2, 3], "b": [0.5, 0.5], "g": ["s", "s"]})
    for a, mean in (([2, 3], wanted.predicted_mean), (2, wanted.predicted_mean[:1])):
        given = found.get_prediction({"a": a, "b": 0.5, "g": "s"})
        np.testing.assert_allclose(given.predicted_mean, mean, rtol=1e-9)
    table = wanted.conf_int(target="table")
    np.testing.assert_array_equal(table, wanted.mean.conf_int(target="table"))
    assert np.all(np.diff(table) < np.diff(wanted.conf_int()))
    with pytest.raises(dps.RequestError, match="not in the private table"):
        wanted.conf_int(obs=True, target="table")


@pytest.mark.parametrize(("exog", "words"), [
    (([[1, 2]],), "by column"), ((), "keeps no rows"),
    (({"a": ["x"], "b": [0], "g": ["n"]},), "need numbers for 'a'"),
    (({"a": [[1, 2]], "b": [0], "g": ["n"]},), "not a list"),
    (({"a": [None], "b": [0], "g": ["n"]},), "between 0 and 10"),
    (({"a": [1], "b": 0},), "need values of"),
])  # fmt: skip
def test_predictions_that_cannot_be_made_are_refused_with_a_sentence(found, exog, words):
    with pytest.raises(dps.RequestError, match=words):
        found.get_prediction(*exog)
