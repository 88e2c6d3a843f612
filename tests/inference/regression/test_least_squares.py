"""Least squares on noisy moments: the law of the noise, and results with little information."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.regression.least_squares import EqualVariances, LeastSquares, LinearIntervals
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.simulation import calibration_generator
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Number("a", -1, 1, points=21, missing=0), dps.Number("b", 0, 4, points=21, missing=0),
    dps.Number("y", -3, 3, points=61, missing=0), dps.Category("g", ["n", "s", "w"]),
])  # fmt: skip


def fitted(formula="y ~ a + b + g", n=400, epsilon=5.0, unit="replace", **options):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-10, 11, n) / 10, rng.integers(0, 21, n) / 5
    frame = pd.DataFrame({"a": a, "b": b, "g": rng.choice(["n", "s", "w"], n).astype(object)})
    frame["y"] = np.clip(a - 0.2 * b + rng.normal(0, 1, n), -3, 3).round(1)
    plan = dps.plan(SCHEMA, {"o": dps.OLS(formula, **options)}, budget=dps.PureDP(epsilon),
                    unit=unit, reference=dps.Uniform())  # fmt: skip
    return dps.release(plan, frame, rng=0, m=100, k=20).infer("o")


def model_of(**options):
    return fitted(**options).intervals.model


def test_the_law_is_that_of_the_noise_in_the_normal_equations():
    model = model_of(unit="add_remove")
    combination = np.array([1.0, -2, 0.5, 0, 1])
    fixed, moving = model.noise(combination), model.moving(combination)
    rng = calibration_generator(model.matrix.answers)
    half = model.matrix.noise(DRAWS, rng)[: DRAWS // 2]
    noise = model.rows @ np.concatenate([half, -half]) @ model.rows.T
    covariance = model.sampling.matrix + model.noise_covariance
    slope = covariance @ combination / (combination @ covariance @ combination)
    for t in (-0.4, 0.0, 0.7):
        b = model.params + t * slope
        assert combination @ b - combination @ model.params == pytest.approx(t)
        errors = noise[:, :-1, -1] - noise[:, :-1, :-1] @ b
        wanted = errors @ np.linalg.solve(model.gram, combination)
        np.testing.assert_allclose(fixed + t * moving, wanted, atol=1e-12)
        exact = combination @ model.noise_covariance_at(b) @ combination
        assert np.var(wanted) == pytest.approx(exact, rel=0.3)  # 6 standard errors


def test_a_limit_beyond_the_draws_leaves_those_of_other_coefficients(monkeypatch):
    target = "population"
    intervals = LinearIntervals(model_of(), np.eye(5), np.zeros(5))
    plain, certified = (
        np.array(intervals.conf_int(0.05, m, target)) for m in ("noise_aware", "certified")
    )
    law = intervals._law(1, target)
    monkeypatch.setattr(ConfidenceLaw, "reaches", lambda self, alpha: self is not law)
    ends = np.array(intervals.conf_int(0.05, "noise_aware", target))
    np.testing.assert_array_equal(np.delete(ends, 1, 1), np.delete(plain, 1, 1))
    assert ends[0, 1] == min(plain[0, 1], certified[0, 1]) < plain[0, 1]
    assert ends[1, 1] == max(plain[1, 1], certified[1, 1]) > plain[1, 1]


def test_no_end_where_the_noise_may_hide_a_singular_matrix():
    """A matrix that is positive definite, with two noise deviations to spare at most."""
    model = model_of(epsilon=1e6)
    names, answers = ("matrix", "place", "n", "units"), model_of(epsilon=0.1).matrix.answers
    kept = {name: getattr(model.matrix, name) for name in names}
    noisier = SimpleNamespace(**kept, answers=answers)
    law = LeastSquares(noisier, model.rows, model.ridge, EqualVariances).law(np.eye(5)[1])
    assert np.isfinite(law.error).any()
    assert law.unbounded(0.05)


def test_a_joint_test_allows_for_the_law_of_the_noise(seeded_noise):
    """Statistic and p-value against 30,000 errors drawn at the hypothesis; noise is most of them.

    The F distribution alone gives 0.032 and 0.0012 where shares of 0.05 and 0.009 are drawn.
    At 40 deviations the noise grows with the coefficients of the hypothesis.
    """
    with _noise_from(seeded_noise(0)):
        model = model_of(epsilon=0.3, n=20_000)
    two, size, rng = np.eye(5)[1:3], 30_000, np.random.default_rng(5)
    covariance = model.sampling.matrix + model.noise_covariance
    along = covariance @ two.T
    noise = model.matrix.noise(size, calibration_generator(model.matrix.answers))
    noise = model.rows @ noise @ model.rows.T
    sampled = rng.multivariate_normal(np.zeros(2), two @ model.sampling.matrix @ two.T, size)
    for deviations in (2.5, 40):
        apart = deviations * np.sqrt(np.diag(covariance)[1:3]) * [1, 0.3]
        statistic, pvalue, *_ = model.wald(two, model.params[1:3] + apart)
        under = model.params + along @ np.linalg.solve(two @ along, apart)
        errors = (noise[:, :-1, -1] - noise[:, :-1, :-1] @ under) @ model.inverse @ two.T + sampled
        precision = np.linalg.inv(np.cov(errors.T))
        assert statistic == pytest.approx(apart @ precision @ apart / 2, rel=0.03)
        drawn = np.einsum("ij,jk,ik->i", errors, precision, errors) / 2
        assert pvalue == pytest.approx(np.mean(drawn >= statistic), abs=0.006)


@pytest.fixture(scope="module")
def found():
    return fitted(n=2_000, epsilon=50.0)


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
    two = found.t_test((np.eye(5)[1:3], [0.1, 0.2]))
    np.testing.assert_array_equal(two.pvalue, two.pvalues)
    assert two.pvalue[0] == pytest.approx(one.pvalue)
    assert two.null.tolist() == [0.1, 0.2]
    assert found.test(term=found.terms[-1]).pvalue == found.pvalues[-1]
    with pytest.raises(dps.RequestError, match="no chi-square form"):
        found.wald_test("a = 0", use_f=False)
    with pytest.raises(dps.RequestError, match="single parameter; this one has 5"):
        float(found)


def test_joint_tests_allow_for_the_noise(seeded_noise):
    """One coefficient far out in the tail, and the overall test of a model with one regressor."""
    with _noise_from(seeded_noise(0)):
        found = fitted("y ~ b", 20_000, 0.15)
    far = found.params[1] + 3.5 * found.bse[1]
    single, joint = found.t_test(f"b = {far}").pvalue, found.f_test(f"b = {far}")
    assert found.privacy_share[1] > 0.5
    assert joint.pvalue == pytest.approx(single, abs=0.002)
    assert single > 3 * stats.f.sf(joint.statistic, joint.df_num, joint.df_denom)
    overall = found.f_test("b = 0")
    assert (found.fvalue, found.f_pvalue) == (overall.statistic, overall.pvalue)
    assert found.f_pvalue == pytest.approx(found.pvalues[1], abs=0.02)


def test_predictions_of_single_values_and_for_the_table(found):
    wanted = found.get_prediction({"a": [0.2, 0.3], "b": [0.5, 0.5], "g": ["s", "s"]})
    for a, mean in (([0.2, 0.3], wanted.predicted_mean), (0.2, wanted.predicted_mean[:1])):
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
    (({"a": [None], "b": [0], "g": ["n"]},), "between -1 and 1"),
    (({"a": [1], "b": 0},), "need values of"),
])  # fmt: skip
def test_predictions_that_cannot_be_made_are_refused_with_a_sentence(found, exog, words):
    with pytest.raises(dps.RequestError, match=words):
        found.get_prediction(*exog)
