"""Declared levels of which no row, or hardly one, has been seen."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from numpy.testing import assert_allclose
from scipy import linalg

import dpstats as dps

LEVELS, EFFECTS = list("abcdef"), dict(zip("abcdef", (0.0, 1, -1, 2, -2, 1), strict=True))
SCHEMA = dps.Schema([
    dps.Number("x", 0, 10, points=101, missing=0),
    dps.Number("y", -10, 10, points=201, missing=0),
    dps.Category("g", LEVELS), dps.Category("h", list("pqr")),
])  # fmt: skip


def rows(n, without, without_h=""):
    rng = np.random.default_rng(0)
    g = rng.choice([level for level in LEVELS if level not in without], n)
    h = rng.choice([level for level in "pqr" if level not in without_h], n)
    effects = np.vectorize(EFFECTS.get)(g)
    x = np.clip(np.round(rng.normal(5 + 0.7 * effects, 1.5), 1), 0, 10)  # which leaving out biases
    y = 0.4 * (x - 5) + effects + 0.5 * (h == "q") + rng.normal(0, 1, n)
    return pd.DataFrame({"x": x, "y": np.clip(y.round(1), -10, 10), "g": g, "h": h})


@pytest.mark.parametrize(("formula", "without", "without_h"), [
    ("y ~ x + g", "d", ""), ("y ~ x + C(g, Treatment('c'))", "c", ""),
    ("y ~ x + g - 1", "a", ""), ("y ~ x:g", "b", ""), ("y ~ x*g + h:g", "a", "p"),
])  # fmt: skip
def test_without_noise_the_rest_is_statsmodels(formula, without, without_h, no_noise, inferred):
    frame = rows(600, without, without_h)
    unit = ("replace", "add_remove")[len(formula) % 2]
    found = inferred(SCHEMA, frame, dps.OLS(formula), unit=unit)
    own = next(iter(set("abcdef") - set(without)))
    reference = smf.ols(formula.replace("Treatment('c')", f"Treatment('{own}')"), frame).fit()
    for name in ("df_model", "df_resid", "rsquared", "rsquared_adj", "fvalue", "scale", "f_pvalue"):
        assert getattr(found, name) == pytest.approx(getattr(reference, name), rel=1e-7, abs=1e-12)
    new = frame.iloc[:20]
    predicted, expected = found.get_prediction(new), reference.get_prediction(new)
    assert_allclose(predicted.predicted_mean, expected.predicted_mean, rtol=1e-8, atol=1e-8)
    assert_allclose(predicted.se_mean, expected.se_mean, rtol=1e-6)
    known = np.isfinite(np.asarray(found.bse))
    assert_allclose(np.isnan(np.asarray(found.params)), ~known)
    assert np.isinf(found.conf_int()[~known]).all()
    for term, estimate, error in zip(found.terms, found.params, found.bse, strict=True):
        if np.isfinite(error) and "Treatment" not in formula:
            assert estimate == pytest.approx(reference.params[term], rel=1e-8, abs=1e-8)
            assert error == pytest.approx(reference.bse[term], rel=1e-6)
    assert np.isnan(found.predict({"x": [5], "g": [without], "h": ["q"]})).all()
    assert any("left out" in note and f"g={without}" in note for note in found.notes)
    assert np.isinf(found.cov_params().to_numpy()[~known]).all()


@pytest.mark.parametrize(("formula", "given", "without", "without_h"), [
    ("y ~ x*h", "g == 'b'", "", "p"), ("y ~ g:h - 1", None, "c", "q"),
    ("y ~ x + g + g:h", None, "a", "p"), ("y ~ g + x:h", None, "", "p"),
])  # fmt: skip
def test_singular_designs_leave_terms_open(formula, given, without, without_h, no_noise, inferred):
    frame = rows(1_000, without, without_h)
    found = inferred(SCHEMA, frame, dps.OLS(formula, given=given))
    some = frame if given is None else frame.query(given)
    levels = {"g": pd.Categorical(some["g"], LEVELS), "h": pd.Categorical(some["h"], list("pqr"))}
    model = smf.ols(formula, some.assign(**levels))
    changes = np.abs(linalg.null_space(model.exog, rcond=1e-9)).max(axis=1) > 1e-7
    open_terms = {name for name, open_ in zip(model.exog_names, changes, strict=True) if open_}
    assert {t for t, p in zip(found.terms, found.params, strict=True) if np.isnan(p)} == open_terms
    predicted = found.get_prediction(some.iloc[:20])
    fitted = model.exog @ np.linalg.lstsq(model.exog, model.endog, rcond=1e-9)[0]
    assert_allclose(predicted.predicted_mean, fitted[:20], rtol=1e-8, atol=1e-8)
    assert np.isfinite(predicted.conf_int()).all()


def test_contrasts_and_joint_tests_of_what_is_determined(no_noise, inferred):
    frame = rows(600, "a")
    found = inferred(SCHEMA, frame, dps.OLS("y ~ x + g"))
    reference = smf.ols("y ~ x + C(g, Treatment('b'))", frame).fit()
    contrast = found.t_test("g[T.c] - g[T.b]")
    assert contrast.effect == pytest.approx(reference.params["C(g, Treatment('b'))[T.c]"], rel=1e-8)
    assert contrast.sd == pytest.approx(reference.bse["C(g, Treatment('b'))[T.c]"], rel=1e-7)
    assert np.isnan(found.t_test("g[T.c]").effect)
    assert found.t_test("g[T.c]").pvalue == 1
    every = ", ".join(f"g[T.{level}] = 0" for level in "bcdef")
    together = found.f_test(every)  # of which differences are tested
    expected = reference.f_test(np.eye(6)[1:5])
    assert together.statistic == pytest.approx(float(expected.fvalue), rel=1e-7)
    assert (together.df_num, together.df_denom) == (4, pytest.approx(594))
    redundant = found.f_test(f"{every}, 2 * g[T.c] = 0")
    assert redundant.pvalue == together.pvalue
    nothing = found.f_test("g[T.c] = 0")
    assert (nothing.pvalue, nothing.df_num) == (1, 0)
    certified = found.conf_int(method="certified")
    assert np.isfinite(certified[1]).all()
    assert np.isinf(certified[2:]).all()


def test_all_levels_stay_where_the_noise_hides_all_of_them(inferred):
    found = inferred(SCHEMA, rows(50, ""), dps.OLS("y ~ x + g"), dps.ZCDP(1e-4))
    assert found.intervals.left.names == ()
    assert found.df_model == 6
