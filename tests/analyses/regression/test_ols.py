from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats

import dpstats as dps
from dpstats.analyses.regression.least_squares import EqualVariances, LeastSquares, LinearIntervals
from dpstats.corrected.least_squares import combination_bounds
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.joint_coverage import root_of
from dpstats.inference.simulation import calibration_generator

SCHEMA = dps.Schema([
    dps.Number("a", 0, 10, points=101, missing=5), dps.Number("b", -1, 1, points=101, missing=0),
    dps.Number("y", -5, 7, points=121, missing=0), dps.Category("g", ["n", "s", "w"]),
    dps.Boolean("t"),
])  # fmt: skip


def rows(n=400):
    """Data on the declared grids; errors vary with a."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "a": rng.integers(0, 101, n) / 10, "b": (-1 + rng.integers(0, 101, n) / 50).round(2),
        "g": rng.choice(["n", "s", "w"], n), "t": rng.random(n) < 0.4,
    })  # fmt: skip
    y = 0.3 * frame["a"] - frame["b"] + 0.7 * (frame["g"] == "s")
    return frame.assign(y=(y + rng.normal(0, 0.3 + 0.15 * frame["a"])).clip(-5, 7).round(1))


LINE = dps.OLS("y ~ a + b + g")


@pytest.fixture
def fitted(inferred):
    return partial(inferred, SCHEMA, rows())


def check_same(ours, theirs, order, *names, atol=1e-10):
    """Attributes, or what methods return, against those of statsmodels."""
    for name in names:
        found, wanted = getattr(ours, name), getattr(theirs, name)
        found, wanted = (np.asarray(v() if callable(v) else v) for v in (found, wanted))
        wanted = wanted[order] if wanted.ndim else wanted
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=atol, err_msg=name)


def check_predictions(found, fit, order, frame):
    two = np.eye(len(order))[-2:]
    test, theirs = found.f_test(two), fit.f_test(two[:, np.argsort(order)])
    np.testing.assert_allclose(test.fvalue, theirs.fvalue, rtol=1e-8)
    np.testing.assert_allclose(test.pvalue, theirs.pvalue, atol=1e-8)
    np.testing.assert_allclose((test.df_num, test.df_denom), (theirs.df_num, theirs.df_denom))
    ours = found.get_prediction(frame[:2]).summary_frame(alpha=0.1)
    theirs = fit.get_prediction(frame[:2]).summary_frame(alpha=0.1)
    np.testing.assert_allclose(ours, theirs[list(ours.columns)], rtol=1e-8, atol=1e-9)


def of_statsmodels(formula, found, frame, **options):
    """Its fit, and the order of our terms in it."""
    data = frame.assign(t=frame["t"] * 1.0) if formula[0] == "t" else frame
    fit = smf.ols(formula, data).fit(**options)
    return fit, [list(fit.params.index).index(term) for term in found.terms]


@pytest.mark.parametrize(("formula", "unit"), [
    ("y ~ a*C(g) + b", "replace"), ("y ~ a + a:b - 1", "add_remove"), ("t ~ a + b", "replace"),
    ("y ~ a + I(a**2) + b", "add_remove"),
    ("y ~ a*C(g, Treatment(reference='w')) + C(t,Treatment(True))", "add_remove"),
])  # fmt: skip
def test_without_noise_it_is_statsmodels(formula, unit, no_noise, fitted):
    found, frame = fitted(dps.OLS(formula), unit=unit), rows()
    fit, order = of_statsmodels(formula, found, frame)
    check_same(found, fit, order, "params", "bse", "tvalues", "conf_int", "rsquared",
               "rsquared_adj", "scale", "df_model", "df_resid", "nobs", "ssr", "mse_resid",
               "fvalue", "f_pvalue")  # fmt: skip
    # The law of the noise is not quite nothing at this budget: p-values stop at 1e-11 or so.
    np.testing.assert_allclose(found.pvalues, fit.pvalues.iloc[order], rtol=1e-7, atol=1e-10)
    theirs = fit.cov_params().to_numpy()[np.ix_(order, order)]
    np.testing.assert_allclose(found.cov_params(), theirs, rtol=1e-8, atol=1e-12)
    assert list(found.cov_params().columns) == found.terms
    np.testing.assert_allclose(found.predict(frame[:5]), fit.predict(frame[:5]), rtol=1e-8)
    check_predictions(found, fit, order, frame)
    table = found.conf_int(target="table", method="certified")
    np.testing.assert_allclose(table, np.repeat(found.params[:, None], 2, axis=1), atol=1e-4)


def test_contrasts_as_text_and_as_matrix(no_noise, fitted):
    found, fit = fitted(dps.OLS("y ~ a + C(g)")), smf.ols("y ~ a + C(g)", rows()).fit()
    contrast = found.t_test("a = 0.1, C(g)[T.s] - 2*`C(g)[T.w]` = Intercept")
    assert contrast.terms == ["a = 0.1", "-1 Intercept + C(g)[T.s] - 2 C(g)[T.w]"]
    theirs = fit.t_test("a = 0.1, C(g)[T.s] - 2*C(g)[T.w] = Intercept")
    for name in ("effect", "sd", "tvalue", "pvalue"):
        ours, value = getattr(contrast, name), np.squeeze(getattr(theirs, name))
        np.testing.assert_allclose(ours, value, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(contrast.conf_int(), theirs.conf_int(), rtol=1e-8, atol=1e-10)
    assert found.t_test("a = 1234567, a = 1234568").terms == ["a = 1234567", "a = 1234568"]
    np.testing.assert_allclose(found.t_test([[0, 1, 0, 0]]).pvalues, found.pvalues[1:2])
    np.testing.assert_allclose(found.wald_test("a").pvalue, found.pvalues[1], atol=1e-10)


def test_a_plan_of_any_reference_answers_all_of_them(no_noise):
    asked, frame = 'y ~ a + C(g, Treatment("w"))', rows()
    plan = dps.plan(SCHEMA, {"o": dps.OLS("y ~ a + C(g)")}, budget=dps.PureDP(1e6))
    found = dps.release(plan, frame, rng=0, m=50, k=10).infer(dps.OLS(asked))
    fit = smf.ols(asked, frame).fit()
    np.testing.assert_allclose(found.params, fit.params[found.terms], rtol=1e-8)
    assert found.params['C(g, Treatment("w"))[T.s]'] == found.params[-1]
    contrast = 'C(g, Treatment("w"))[T.s] - C(g, Treatment("w"))[T.n] = 0, a = 1'
    ours, theirs = found.t_test(contrast), fit.t_test(contrast)
    np.testing.assert_allclose(ours.params, theirs.effect, rtol=1e-8)
    at = {"a": [3, 4], "g": ["w", "n"]}
    np.testing.assert_allclose(found.predict(at), fit.predict(pd.DataFrame(at)), rtol=1e-8)


LOGS = dps.Schema([
    dps.Number("pay", 1, 1e4, points=401, scale="log", missing=10), dps.Boolean("t"),
    dps.Number("x", 0, 10, points=101, missing=5),
])  # fmt: skip


def test_regressions_and_means_of_logarithms_are_those_of_the_coded_rows(no_noise):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.integers(0, 101, 500) / 10, "t": rng.random(500) < 0.4})
    frame["pay"] = np.exp(3 + 0.3 * frame["x"] + frame["t"] + rng.normal(size=500))
    grid = np.linspace(0, np.log(1e4), 401)
    logs = np.log(frame["pay"].clip(1, 1e4)).to_numpy()
    coded = frame.assign(pay=np.exp(grid[np.argmin(np.abs(logs[:, None] - grid), 1)]))
    asked = {"of": dps.OLS("np.log(pay) ~ x + t"), "on": dps.OLS("x ~ np.log(pay)*t"),
             "gap": dps.MeanDifference("log(pay)", by="t")}  # fmt: skip
    plan = dps.plan(LOGS, asked, budget=dps.PureDP(1e6), reference=dps.Uniform())
    release = dps.release(plan, frame, rng=0, m=200)
    for name in ("of", "on"):
        found, fit = release.infer(name), smf.ols(asked[name].formula, coded).fit()
        np.testing.assert_allclose(found.params, fit.params[found.terms], rtol=1e-8)
        np.testing.assert_allclose(found.bse, fit.bse[found.terms], rtol=1e-8)
    at = {"pay": [3, 50], "t": [True, False]}
    np.testing.assert_allclose(found.predict(at), fit.predict(pd.DataFrame(at)))
    means = np.log(coded["pay"]).groupby(coded["t"]).mean()
    np.testing.assert_allclose(float(release.infer("gap")), means[True] - means[False])


def test_ridge_is_that_of_unit_scale(no_noise, fitted):
    found, frame = fitted(dps.OLS("y ~ a + b", ridge=0.2)), rows()
    x = np.column_stack([np.ones(400), (frame["a"] - 5) / 5, frame["b"]])
    unit = np.linalg.solve(x.T @ x / 400 + 0.2 * np.diag([0, 1, 1]), x.T @ frame["y"] / 400)
    slopes = unit[1:] / [5, 1]
    np.testing.assert_allclose(found.params[1:], slopes, rtol=1e-8)
    np.testing.assert_allclose(found.params[0], unit[0] - slopes @ [5, 0], rtol=1e-8)


def test_redundant_constraints_count_once_and_contradictions_are_refused(fitted):
    found = fitted(dps.OLS("y ~ a + C(g)"), dps.PureDP(20))
    assert "-0" not in found.f_test("2*a = 0").title + found.f_test("2*a = 0").null
    once, twice = found.f_test("a = 0.1"), found.f_test("a = 0.1, 2*a = 0.2")
    assert twice.statistic == pytest.approx(once.statistic, rel=1e-8)
    assert twice.pvalue == pytest.approx(once.pvalue, rel=1e-8)
    assert twice.notes == once.notes == ()
    for independent in ("a = 0, a + Intercept = 1", "a = 1, a + 1e11 * Intercept = 2"):
        assert found.f_test(independent).df_num == 2
    for text in ("a = 0, a = 1", "a = 0.1, Intercept = 1, a + Intercept = 3"):
        with pytest.raises(dps.RequestError, match="contradict each other"):
            found.f_test(text)


def test_certified_intervals_know_that_rows_were_counted_with_noise(seeded_noise, inferred):
    # z and u run over [-1, 1]: no other moment is the count.
    schema = dps.Schema([dps.Number(x, -1, 1, points=21, missing=0) for x in "uz"])
    drawn = rows(100)
    frame = pd.DataFrame({"u": (drawn["a"] / 5 - 1).round(1), "z": drawn["y"].round() / 8})
    options = {"unit": "add_remove", "noise_from": seeded_noise(2)}
    found = inferred(schema, frame, dps.OLS("z ~ u - 1"), dps.PureDP(8), **options)
    model, matrix = found.intervals.model, found.intervals.model.matrix
    fewest = matrix.fewest_rows(0.025)
    assert len(found.params) < fewest < matrix.answers.sums[-1]
    radius = np.abs(model.rows) @ matrix.radius(0.025) @ np.abs(model.rows).T
    moments, scale = model.second_moments, found.intervals.combinations
    by_rows = [
        combination_bounds(moments, radius, scale, rows=(matrix.n, n), error=0.025)
        for n in (fewest, matrix.n)
    ]
    ends = found.conf_int(method="certified").T - found.moments.shift
    np.testing.assert_allclose(ends, by_rows[0])
    assert np.all(np.diff(ends, axis=0) > 1.005 * np.diff(by_rows[1], axis=0))


@pytest.mark.parametrize(("formula", "unit"), [
    ("y ~ a*C(g) + b", "replace"), ("t ~ a + b", "add_remove"), ("y ~ a + b + g - 1", "replace"),
])  # fmt: skip
def test_robust_errors_are_those_of_statsmodels(formula, unit, no_noise, fitted):
    found, frame = fitted(dps.OLS(formula, cov_type="HC1"), dps.PureDP(5e6), unit=unit), rows()
    fit, order = of_statsmodels(formula, found, frame, cov_type="HC1", use_t=True)
    check_same(found, fit, order, "params", "bse", "tvalues", "pvalues", "conf_int", atol=1e-8)
    if "g - 1" not in formula:  # statsmodels has none without an intercept
        check_same(found, fit, order, "fvalue", "f_pvalue")
    check_predictions(found, fit, order, frame)


@pytest.mark.parametrize(
    ("ridge", "cov_type"), [(0.01, "nonrobust"), (2.0, "nonrobust"), (0.2, "HC1")]
)
def test_with_ridge_residuals_vary_with_the_regressors(ridge, cov_type, no_noise, inferred):
    # A steep line, little error, and x that is mostly 0: the penalty's own misfit is at x = +-1.
    numbers = [dps.Number(name, -1, 1, points=101, missing=0) for name in "xz"]
    schema = dps.Schema([*numbers, dps.Number("y", -4, 4, points=81, missing=0)])
    x = np.repeat([-1.0, 0.0, 1.0], [50, 1900, 50])
    error, z = np.tile([-0.1, 0.1], 1_000), np.tile(np.repeat(np.arange(-5, 5) / 10, 2), 100)
    y = (3 * x + 0.2 * np.round(5 * z) + error).round(1)
    asked = dps.OLS("y ~ x + z", ridge=ridge, cov_type=cov_type)
    found = inferred(schema, pd.DataFrame({"x": x, "z": z, "y": y}), asked)
    design = np.column_stack([np.ones(2_000), x, z])
    gram = design.T @ design / 2_000 + np.diag([0, ridge, ridge])
    params = np.linalg.solve(gram, design.T @ y / 2_000)
    np.testing.assert_allclose(found.params, params, rtol=1e-8)
    scores = design @ np.linalg.inv(gram) * (y - design @ params)[:, None]
    exact = scores.T @ scores / 2_000 / 1_997
    ratio = found.sampling_variance / np.diag(exact)
    if cov_type == "HC1":
        np.testing.assert_allclose(ratio, 1, rtol=1e-8)
    else:
        assert np.all(ratio >= 1 - 1e-9)
        assert ratio[1] < 1.5  # sharp for the slope of x
        basis, model = found.intervals.combinations, found.intervals.model
        covariance = basis @ model.sampling.matrix @ basis.T
        assert np.linalg.eigvalsh(covariance - exact)[0] >= -1e-12
    reach = np.diff(found.conf_int(method="certified"))[:, 0] / 2
    assert np.all(reach >= stats.t.isf(0.0125, 1_997) * np.sqrt(np.diag(exact)))


def test_robust_errors_must_be_asked_for_and_can_be_too_many():
    plain, both = dps.OLS("y ~ a"), dps.OLS("y ~ a + b", cov_type="HC1")
    plans = [dps.plan(SCHEMA, {"o": asked}, budget=dps.PureDP(5)) for asked in (plain, both)]
    alone, robust = (dps.release(plan, rows(), rng=0, m=50, k=10) for plan in plans)
    with pytest.raises(dps.NotMeasuredError, match=r"the plan must ask.*cov_type='HC1'"):
        alone.infer(dps.OLS("y ~ a", cov_type="HC1"))
    for smaller in (plain, dps.OLS("y ~ b", cov_type="HC1")):
        assert np.all(np.isfinite(robust.infer(smaller).bse))
    many = dps.Schema([dps.Number(f"x{i}", 0, 1, missing=0) for i in range(16)])
    with pytest.raises(dps.RequestError, match=r"need [0-9]+ mean products"):
        dps.OLS("x0 ~ " + " + ".join(f"x{i}" for i in range(1, 16)), cov_type="HC1").family(many)


def test_the_noise_on_a_robust_variance_is_what_it_is_said_to_be(seeded_noise, fitted):
    robust, noise = dps.OLS("y ~ a + C(g)", cov_type="HC1"), seeded_noise(5)
    found = fitted(robust, dps.PureDP(20), noise_from=noise)
    model = found.intervals.model
    fourth, rng = model.sampling.measured, np.random.default_rng(0)
    scores, residual = rng.normal(size=(2, len(model.rows[0]))), model.residual
    scores[:, model.rows[:-1].sum(axis=0) == 0] = 0  # not of the response
    sums, drawn = fourth.answers.sums, []
    sd = np.sqrt([fourth.answers.law(f).variance for f in range(len(sums))])
    for _ in range(400):
        shifted = replace(fourth.answers, sums=sums + rng.normal(0, sd))
        moved = replace(fourth, answers=shifted).matrix(residual)
        drawn.append(np.einsum("ij,jk,ik->i", scores, moved, scores))
    np.testing.assert_allclose(fourth.noise_sd(scores, residual), np.std(drawn, axis=0), rtol=0.15)
    np.testing.assert_allclose(
        fourth.noise(scores, residual).diagonal(axis1=1, axis2=2).std(axis=0),
        fourth.noise_sd(scores, residual), rtol=0.1,
    )  # fmt: skip
    for far in (1.5, 3):  # an F test of one coefficient is its t test, with the same noise
        value = found.params["a"] + far * found.bse["a"]
        one, other = (test(f"a = {value}").pvalue for test in (found.t_test, found.f_test))
        np.testing.assert_allclose(one, other, rtol=0.15, atol=0.002)


# Rows shrunk to a public norm: as statsmodels has it on rows shrunk one by one.

CLIPPED = {"clip_norm": 2.1, "center": {"a": 4, "y": 2}, "scale": {"a": 2, "b": 0.5, "y": 2.5}}


def shrunk(frame, clip_norm, center=None, scale=None):
    """Rows in floats, in original units."""
    middle = pd.Series({"a": 5, "b": 0, "y": 1} | (center or {}))
    unit = pd.Series({"a": 5, "b": 1, "y": 6} | (scale or {})) * clip_norm
    z = ((frame[[*"aby"]] - middle) / unit * 8_192).round()
    return middle + z.div(np.maximum(8_192, np.linalg.norm(z, axis=1)), axis=0) * unit


@pytest.mark.parametrize(("formula", "unit", "options"), [
    ("y ~ b + a", "replace", CLIPPED), ("y ~ a - 1", "add_remove", {"clip_norm": 0.5}),
])  # fmt: skip
def test_without_noise_it_is_statsmodels_on_shrunk_rows(formula, unit, options, no_noise, fitted):
    whole = rows() if "b" in formula else rows().assign(b=0.0)  # b does not count
    found = fitted(dps.OLS(formula, **options), unit=unit)
    fit, raw = smf.ols(formula, shrunk(whole, **options)).fit(), smf.ols(formula, rows()).fit()
    assert np.abs(raw.params / fit.params - 1).max() > 0.01  # shrinking changes them
    for name in ("params", "bse"):
        theirs = getattr(fit, name)[found.terms]
        np.testing.assert_allclose(getattr(found, name), theirs, rtol=2e-3, atol=2e-4)
    ours, theirs = (found.rsquared, found.scale), (fit.rsquared, fit.scale)
    np.testing.assert_allclose(ours, theirs, rtol=2e-3)
    np.testing.assert_allclose(found.conf_int(), fit.conf_int().loc[found.terms], atol=3e-3)
    at = pd.DataFrame({"a": [3, 9], "b": [0, 1]})
    np.testing.assert_allclose(found.predict(at), fit.predict(at), rtol=2e-3, atol=2e-3)


def test_the_privacy_variance_is_that_of_estimates(redrawn):
    """40 releases of one table: standard deviations to within a factor of 1.4 (3 errors)."""
    analysis, budget = dps.OLS("y ~ a + b", **CLIPPED), dps.PureDP(40)
    found = list(redrawn(SCHEMA, rows(), analysis, budget, 40, unit="add_remove"))
    claimed = np.sqrt(np.mean([f.privacy_variance for f in found], axis=0))
    ratio = np.std([f.params for f in found], axis=0) / claimed
    assert np.all((ratio > 1 / 1.4) & (ratio < 1.4))


def test_analyses_of_the_same_shrunk_rows_share_them_whatever_the_order_of_the_columns():
    analysis = dps.OLS("y ~ a + b", **CLIPPED)
    both = {"o": analysis, "c": dps.PCA(["y", "b", "a"], **CLIPPED)}
    plan = dps.plan(SCHEMA, both, budget=dps.PureDP(2), n=400)
    assert len(plan.blocks) == 1
    release = dps.release(plan, rows(), rng=0, m=300)
    np.testing.assert_allclose(release.infer("c").spread, [2.5, 0.5, 2])
    with pytest.raises(dps.NotMeasuredError):
        release.infer(dps.OLS("y ~ a + b"))
    with pytest.raises(dps.NotMeasuredError, match=r"clipped moments of .* with clip_norm=2\.1, "):
        release.infer(dps.PCA(["y", "b", "a"], clip_norm=2.1))
    text = release.infer("o").summary()
    assert "of the private rows were shrunk (certified at 95%); the bias that this gives" in text
    radius = release.radius("o")
    found = dps.corrected.infer(analysis, release.to_frame(), radius=radius, schema=SCHEMA)
    ends = found.conf_int(target="table")
    truth = smf.ols("y ~ a + b", shrunk(rows(), **CLIPPED)).fit().params
    assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))


# The law of the noise, and results with little information.


def test_the_law_is_that_of_the_noise_in_the_normal_equations(fitted):
    model = fitted(LINE, dps.PureDP(5), unit="add_remove").intervals.model
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


def test_a_limit_beyond_the_draws_leaves_those_of_other_coefficients(fitted, monkeypatch):
    target = "population"
    model = fitted(LINE, dps.PureDP(5)).intervals.model
    intervals = LinearIntervals(model, np.eye(5), np.zeros(5))
    plain, certified = (
        np.array(intervals.conf_int(0.05, m, target)) for m in ("noise_aware", "certified")
    )
    law = intervals._law(1, target)
    monkeypatch.setattr(ConfidenceLaw, "reaches", lambda self, alpha: self is not law)
    ends = np.array(intervals.conf_int(0.05, "noise_aware", target))
    np.testing.assert_array_equal(np.delete(ends, 1, 1), np.delete(plain, 1, 1))
    assert ends[0, 1] == min(plain[0, 1], certified[0, 1]) < plain[0, 1]
    assert ends[1, 1] == max(plain[1, 1], certified[1, 1]) > plain[1, 1]


def test_no_end_where_the_noise_may_hide_a_singular_matrix(fitted):
    """A matrix that is positive definite, with two noise deviations to spare at most."""
    model, noisy = (fitted(LINE, dps.PureDP(e)).intervals.model for e in (1e6, 0.1))
    kept = {name: getattr(model.matrix, name) for name in ("matrix", "place", "n", "units")}
    noisier = SimpleNamespace(**kept, answers=noisy.matrix.answers)
    law = LeastSquares(noisier, model.rows, model.ridge, EqualVariances).law(np.eye(5)[1])
    assert np.isfinite(law.error).any()
    assert law.unbounded(0.05)


def test_a_joint_test_allows_for_the_law_of_the_noise(seeded_noise, inferred):
    """Statistic and p-value against 30,000 errors drawn at the hypothesis; noise is most of them.

    The F distribution alone gives 0.032 and 0.0012 where shares of 0.05 and 0.009 are drawn.
    At 40 deviations the noise grows with the coefficients of the hypothesis.
    """
    options = {"noise_from": seeded_noise(0)}
    model = inferred(SCHEMA, rows(20_000), LINE, dps.PureDP(0.3), **options).intervals.model
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
def found(inferred):
    return inferred(SCHEMA, rows(2_000), LINE, dps.PureDP(50))


@pytest.mark.parametrize(("epsilon", "ridge"), [(0.5, 0), (1e5, 0.1)])
def test_an_empty_table_has_a_summary_that_claims_nothing(epsilon, ridge, inferred):
    asked, budget = dps.OLS("y ~ a + g", ridge=ridge), dps.PureDP(epsilon)
    result = inferred(SCHEMA, rows(0), asked, budget, unit="add_remove")
    assert "nan" not in result.summary() + result.summary(target="table")
    if not np.isfinite(result.bse).any():
        assert np.isnan([result.rsquared, result.rsquared_adj, result.scale]).all()
        assert np.isnan(result.privacy_share).all()
        assert (result.fvalue, result.f_pvalue) == (0, 1)


def test_new_responses_hold_together_with_independent_errors(found):
    at = {"a": np.linspace(1, 9, 10), "b": 0.5, "g": "s"}
    new, model = found.get_prediction(at).new, found.intervals.model
    half = np.diff(new.conf_int(simultaneous=True))[:, 0] / 2
    own = new.intervals.combinations @ root_of(model.sampling.matrix + model.noise_covariance)
    rng = np.random.default_rng(0)
    errors = rng.standard_normal((20_000, len(own[0]))) @ own.T
    errors += rng.normal(0, np.sqrt(new.intervals.extra * model.error_variance), (20_000, 10))
    assert 0.945 < np.mean(np.all(np.abs(errors) <= half, axis=1)) < 0.97


def test_predictions_of_single_values_and_for_the_table(found):
    wanted = found.get_prediction({"a": [0.2, 0.3], "b": [0.5, 0.5], "g": ["s", "s"]})
    for a, mean in (([0.2, 0.3], wanted.predicted_mean), (0.2, wanted.predicted_mean[:1])):
        given = found.get_prediction({"a": a, "b": 0.5, "g": "s"})
        np.testing.assert_allclose(given.predicted_mean, mean, rtol=1e-9)
    with pytest.raises(dps.RequestError, match="at least one value"):
        found.predict({"a": [], "b": [], "g": []})
    table = wanted.conf_int(target="table")
    np.testing.assert_array_equal(table, wanted.mean.conf_int(target="table"))
    assert np.all(np.diff(table) < np.diff(wanted.conf_int()))
    for asked in ({}, {"method": "certified"}, {"simultaneous": True}):
        with pytest.raises(dps.RequestError, match="not in the private table"):
            wanted.new.conf_int(target="table", **asked)
    for exog, words in [(([[1, 2]],), "by column"), ((), "keeps no rows")]:
        with pytest.raises(dps.RequestError, match=words):
            found.get_prediction(*exog)
