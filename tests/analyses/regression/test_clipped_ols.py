"""Least squares of rows shrunk to a public norm: statsmodels' on rows shrunk one by one."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dps

N, GRAIN = 600, 8_192
SCHEMA = dps.Schema([
    dps.Number("a", 0, 10, points=101, missing=5), dps.Number("b", -1, 4, points=101, missing=0),
    dps.Number("y", -5, 8, points=131, missing=0),
])  # fmt: skip
OPTIONS = {"clip_norm": 2.1, "center": {"a": 4, "y": 1}, "scale": {"a": 2, "b": 1.25, "y": 2.5}}


def rows():
    rng = np.random.default_rng(0)
    a = np.clip(np.round(rng.normal(4, 2, N), 1), 0, 10)
    b = np.clip(-1 + rng.integers(0, 101, N) / 20, -1, 4)
    y = np.clip(np.round(0.3 * a - 0.4 * b + rng.normal(0, 1, N), 1), -5, 8)
    return pd.DataFrame({"a": a, "b": b, "y": y})


def shrunk(frame, clip_norm, center=None, scale=None):
    """Rows in floats, in original units."""
    middle = pd.Series({"a": 5, "b": 1.5, "y": 1.5} | (center or {}))
    unit = pd.Series({"a": 5, "b": 2.5, "y": 6.5} | (scale or {})) * clip_norm
    z = ((frame[[*"aby"]] - middle) / unit * GRAIN).round()
    return middle + z.div(np.maximum(GRAIN, np.linalg.norm(z, axis=1)), axis=0) * unit


@pytest.mark.parametrize(("formula", "unit", "options"), [
    ("y ~ a + b", "replace", OPTIONS), ("y ~ b + a - 1", "add_remove", {"clip_norm": 0.6}),
    ("y ~ a", "replace", {"clip_norm": 0.5}),
])  # fmt: skip
def test_without_noise_it_is_statsmodels_on_shrunk_rows(formula, unit, options, no_noise, inferred):
    whole = rows() if "b" in formula else rows().assign(b=1.5)  # b does not count
    found = inferred(SCHEMA, rows(), dps.OLS(formula, **options), unit=unit)
    fit, raw = smf.ols(formula, shrunk(whole, **options)).fit(), smf.ols(formula, rows()).fit()
    assert np.abs(raw.params / fit.params - 1).max() > 0.01  # shrinking changes them
    for name in ("params", "bse"):
        theirs = getattr(fit, name)[found.terms]
        np.testing.assert_allclose(getattr(found, name), theirs, rtol=2e-3, atol=2e-4)
    ours, theirs = (found.rsquared, found.scale), (fit.rsquared, fit.scale)
    np.testing.assert_allclose(ours, theirs, rtol=2e-3)
    np.testing.assert_allclose(found.conf_int(), fit.conf_int().loc[found.terms], atol=3e-3)
    at = pd.DataFrame({"a": [3, 9], "b": [0, 2]})
    np.testing.assert_allclose(found.predict(at), fit.predict(at), rtol=2e-3, atol=2e-3)


def test_the_privacy_variance_is_that_of_estimates(inferred_anew):
    """40 releases of one table: standard deviations to within a factor of 1.4 (3 errors)."""
    analysis = dps.OLS("y ~ a + b", **OPTIONS)
    plan = dps.plan(SCHEMA, {"o": analysis}, budget=dps.PureDP(40), unit="add_remove")
    found = inferred_anew(plan, rows(), analysis, 40)
    claimed = np.sqrt(np.mean([f.privacy_variance for f in found], axis=0))
    ratio = np.std([f.params for f in found], axis=0) / claimed
    assert np.all((ratio > 1 / 1.4) & (ratio < 1.4))


def test_a_regression_and_a_correlation_share_their_shrunk_rows():
    analysis = dps.OLS("y ~ a + b", **OPTIONS)
    both = {"o": analysis, "c": dps.Correlation(["y", "b", "a"], **OPTIONS)}
    plan = dps.plan(SCHEMA, both, budget=dps.PureDP(2), n=N)
    assert len(plan.blocks) == 1
    release = dps.release(plan, rows(), rng=0, m=300)
    with pytest.raises(dps.NotMeasuredError):
        release.infer(dps.OLS("y ~ a + b"))
    text = release.infer("o").summary()
    assert "rows shrunk to norm 2.1 at most, in columns (a - 4) / 2" in text
    assert "of the private rows were shrunk (certified at 95%); the bias that this gives" in text
    radius = release.radius("o")
    found = dps.corrected.infer(analysis, release.to_frame(), radius=radius, schema=SCHEMA)
    ends = found.conf_int(target="table")
    truth = smf.ols("y ~ a + b", shrunk(rows(), **OPTIONS)).fit().params
    assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
