import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpstats as dps
from dpstats.analyses import analysis_from_dict, analysis_to_dict
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Number("a", 0, 10, points=101, missing=5), dps.Number("b", -1, 4, points=101, missing=0),
    dps.Number("y", -5, 8, points=1301, missing=0), dps.Category("g", ["n", "s", "w"]),
    dps.Boolean("t"),
])  # fmt: skip
FORMULAS = ["y ~ a + b", "y ~ a + C(g) + t", "y ~ a*b", "y ~ a*C(g) + b", "y ~ C(g)*t",
            "y ~ a + a:b - 1", "y ~ a + b + g - 1", "y ~ a:C(g)", "t ~ a + b",
            "y ~ a + I(a**2) + b"]  # fmt: skip


def rows(n=400):
    """Data on the declared grids."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "a": rng.integers(0, 101, n) / 10, "b": -1 + rng.integers(0, 101, n) / 20,
        "g": rng.choice(["n", "s", "w"], n), "t": rng.random(n) < 0.4,
    })  # fmt: skip
    y = 0.3 * frame["a"] - 0.4 * frame["b"] + 0.7 * (frame["g"] == "s") + rng.normal(0, 1, n)
    return frame.assign(y=y.clip(-5, 8).round(2))


def released(analysis, budget=None, unit="replace", frame=None):
    budget = dps.PureDP(1e6) if budget is None else budget
    plan = dps.plan(
        SCHEMA, {"o": analysis}, budget=budget, unit=unit, reference=dps.Uniform()
    )  # fmt: skip
    return dps.release(plan, rows() if frame is None else frame, rng=0, m=200)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_without_noise_it_is_statsmodels(formula, unit, no_noise):
    found = released(dps.OLS(formula), unit=unit).infer("o")
    frame = rows()
    fit = smf.ols(formula, frame.assign(t=frame["t"] * 1.0) if formula[0] == "t" else frame).fit()
    order = [list(fit.params.index).index(term) for term in found.terms]
    expected = {
        "params": fit.params, "bse": fit.bse, "tvalues": fit.tvalues,
        "conf_int": fit.conf_int().to_numpy(),
    }  # fmt: skip
    for name, value in expected.items():
        ours = getattr(found, name)
        ours = ours() if callable(ours) else ours
        np.testing.assert_allclose(ours, np.asarray(value)[order], rtol=1e-8, atol=1e-10)
    # The law of the noise is not quite nothing at this budget: p-values stop at 1e-11 or so.
    np.testing.assert_allclose(found.pvalues, fit.pvalues.iloc[order], rtol=1e-7, atol=1e-10)
    for name in ("rsquared", "rsquared_adj", "scale", "df_model", "df_resid", "nobs", "ssr",
                 "mse_resid"):  # fmt: skip
        np.testing.assert_allclose(getattr(found, name), getattr(fit, name), rtol=1e-8)
    np.testing.assert_allclose(found.fvalue, fit.fvalue, rtol=1e-8)
    np.testing.assert_allclose(found.f_pvalue, fit.f_pvalue, atol=1e-10)
    theirs = fit.cov_params().to_numpy()[np.ix_(order, order)]
    np.testing.assert_allclose(found.cov_params(), theirs, rtol=1e-8, atol=1e-12)
    assert list(found.cov_params().columns) == found.terms
    np.testing.assert_allclose(found.predict(frame[:5]), fit.predict(frame[:5]), rtol=1e-8)
    two = np.eye(len(order))[-2:]
    test, theirs = found.f_test(two), fit.f_test(two[:, np.argsort(order)])
    np.testing.assert_allclose([test.fvalue, test.pvalue], [theirs.fvalue, theirs.pvalue],
                               rtol=1e-8, atol=1e-10)  # fmt: skip
    assert (test.df_num, test.df_denom) == (theirs.df_num, theirs.df_denom)
    assert f"F = {test.fvalue:.4g} on 2 and {theirs.df_denom:g} df, p-value" in str(test)
    ours = found.get_prediction(frame[:5]).summary_frame(alpha=0.1)
    theirs = fit.get_prediction(frame[:5]).summary_frame(alpha=0.1)
    np.testing.assert_allclose(ours, theirs[list(ours.columns)], rtol=1e-8)
    table = found.conf_int(target="table", method="certified")
    np.testing.assert_allclose(table, np.repeat(found.params[:, None], 2, axis=1), atol=1e-4)


def test_contrasts_as_text_and_as_matrix(no_noise):
    found, fit = released(dps.OLS("y ~ a + C(g)")).infer("o"), smf.ols("y ~ a + C(g)", rows()).fit()
    contrast = found.t_test("a = 0.1, C(g)[T.s] - 2*`C(g)[T.w]` = Intercept")
    assert contrast.terms == ["a", "-1 Intercept + C(g)[T.s] - 2 C(g)[T.w]"]
    theirs = fit.t_test("a = 0.1, C(g)[T.s] - 2*C(g)[T.w] = Intercept")
    for name, value in [("params", theirs.effect), ("bse", theirs.sd), ("tvalues", theirs.tvalue),
                        ("pvalues", theirs.pvalue), ("conf_int", theirs.conf_int())]:  # fmt: skip
        ours = getattr(contrast, name)
        ours = ours() if callable(ours) else ours
        np.testing.assert_allclose(ours, np.squeeze(value), rtol=1e-8, atol=1e-10)
    same = found.t_test([[0, 1, 0, 0]])
    np.testing.assert_allclose(same.pvalues, found.pvalues[1:2])
    np.testing.assert_allclose(found.wald_test("a").pvalue, found.pvalues[1], atol=1e-10)
    for wanted in ("z = 0", "a = ", [[1, 2]], "a*a"):
        with pytest.raises(dps.RequestError, match=r"coefficient|cannot be read"):
            found.t_test(wanted)


def test_ridge_is_that_of_unit_scale(no_noise):
    found, frame = released(dps.OLS("y ~ a + b", ridge=0.2)).infer("o"), rows()
    x = np.column_stack([np.ones(400), (frame["a"] - 5) / 5, (frame["b"] - 1.5) / 2.5])
    unit = np.linalg.solve(x.T @ x / 400 + 0.2 * np.diag([0, 1, 1]), x.T @ frame["y"] / 400)
    slopes = unit[1:] / [5, 2.5]
    np.testing.assert_allclose(found.params[1:], slopes, rtol=1e-8)
    np.testing.assert_allclose(found.params[0], unit[0] - slopes @ [5, 1.5], rtol=1e-8)
    assert "penalised" in found.summary()


@pytest.mark.parametrize("budget", [dps.PureDP(20), dps.ZCDP(5)], ids=str)
@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_noise_widens_and_the_two_methods_and_targets_nest(budget, unit):
    found = released(dps.OLS("y ~ a + C(g)"), budget, unit).infer("o")
    classical = smf.ols("y ~ a + C(g)", rows()).fit()
    assert np.all(found.bse > 0.8 * classical.bse[found.terms])
    aware, certified = found.conf_int(), found.conf_int(method="certified")
    assert np.all((certified[:, 0] < aware[:, 0]) & (aware[:, 1] < certified[:, 1]))
    table = found.conf_int(target="table")
    assert np.all(np.diff(table) < np.diff(aware))
    joint = found.conf_int(simultaneous=True)
    assert np.all(np.diff(joint) > np.diff(aware))
    assert np.all(np.diff(joint) <= np.diff(found.conf_int(alpha=0.05 / 4)) + 1e-9)
    # An end of an interval is where the test is at alpha.
    for i, term in enumerate(found.terms):
        for end in aware[i]:
            assert found.t_test(f"{term} = {float(end)!r}").pvalues[0] == pytest.approx(0.05)
    frame = found.to_frame()
    np.testing.assert_array_equal(frame["p_value"], found.pvalues)
    assert np.all((found.privacy_share > 0) & (found.privacy_share < 1))


def test_certified_holds_the_tables_own_coefficients():
    params = smf.ols("y ~ a + C(g)", rows()).fit().params.to_numpy()[[0, 3, 1, 2]]
    held = 0
    for _ in range(20):  # misses once in 10^6 by the size of alpha
        found = released(dps.OLS("y ~ a + C(g)"), dps.PureDP(20)).infer("o")
        ends = found.conf_int(alpha=1e-6, method="certified", target="table")
        assert np.all((ends[:, 0] <= params) & (params <= ends[:, 1]))
        held += np.isfinite(ends).all()
    assert held > 10


def test_where_noise_drowns_everything_it_says_so(seeded_noise):
    with _noise_from(seeded_noise(1)):
        found = released(dps.OLS("y ~ a + C(g)"), dps.PureDP(0.01)).infer("o")
    assert np.all(np.isinf(found.conf_int(alpha=0.01)))
    assert np.all(np.isinf(found.conf_int(method="certified")))
    assert "unbounded" in found.summary()
    assert "collinear or constant, or a level is empty" in found.summary()
    assert np.all(found.pvalues > 0.01)


def test_collinear_regressors_and_too_few_rows(no_noise):
    frame = rows().assign(b=lambda d: -1 + d["a"] / 2)
    found = released(dps.OLS("y ~ a + b"), frame=frame).infer("o")
    assert np.all(np.isinf(found.conf_int()))
    assert np.all(found.pvalues == 1)
    assert "nan" not in found.summary()
    assert "collinear or constant" in found.summary()
    few = released(dps.OLS("y ~ a + C(g)"), frame=rows()[:4]).infer("o")
    assert np.all(np.isinf(few.conf_int()))
    assert "more rows than" in few.summary()


def test_plain_form_pickle_and_arguments():
    for analysis in (dps.OLS("y ~ a"), dps.OLS("y ~ a*g", ridge=0.1)):
        assert analysis_from_dict(analysis_to_dict(analysis)) == analysis
    for ridge in (-1, np.nan, np.inf, True, "1"):
        with pytest.raises(dps.RequestError, match="ridge"):
            dps.OLS("y ~ a", ridge=ridge)
    found = released(dps.OLS("y ~ a + C(g)"), dps.PureDP(5)).infer("o")
    fresh = len(pickle.dumps(found))
    text = found.summary()
    assert pickle.loads(pickle.dumps(found)).summary() == text
    assert len(pickle.dumps(found)) < fresh + 1_000  # the draws are not in it


def test_two_regressions_share_what_they_measure(no_noise):
    analyses = {"one": dps.OLS("y ~ a + b"), "two": dps.OLS("b ~ a + y"), "w": dps.OLS("y ~ a*b")}
    plan = dps.plan(SCHEMA, analyses, budget=dps.PureDP(1e6), reference=dps.Uniform())
    assert plan.family.size == 13
    release = dps.release(plan, rows(), rng=0, m=200)
    fit = sm.OLS(rows()["b"], sm.add_constant(rows()[["a", "y"]])).fit()
    np.testing.assert_allclose(release.infer("two").params, fit.params, rtol=1e-8)
    release.infer(dps.OLS("a ~ b"))
    with pytest.raises(dps.NotMeasuredError):
        release.infer(dps.OLS("a ~ g"))
