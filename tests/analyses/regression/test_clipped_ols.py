"""Least squares of rows shrunk to a public norm: statsmodels' on rows shrunk one by one."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dps
from dpstats.measured.answers import answer
from dpstats.privacy.noise import _noise_from

N, GRAIN = 600, 8_192
SCHEMA = dps.Schema([
    dps.Number("a", 0, 10, points=101, missing=5), dps.Number("b", -1, 4, points=101, missing=0),
    dps.Number("y", -5, 8, points=131, missing=0), dps.Category("g", ["n", "s", "w"]),
    dps.Boolean("t"), dps.Number("maybe", 0, 1, allow_missing=True),
])  # fmt: skip
OPTIONS = {"clip_norm": 2.1, "center": {"a": 4, "y": 1}, "scale": {"a": 2, "b": 1.25, "y": 2.5}}
CENTER = {"a": 5, "b": 1.5, "y": 1.5}
SCALE = {"a": 5, "b": 2.5, "y": 6.5}


def rows():
    rng = np.random.default_rng(0)
    a = np.clip(np.round(rng.normal(4, 2, N), 1), 0, 10)
    b = np.clip(-1 + rng.integers(0, 101, N) / 20, -1, 4)
    y = np.clip(np.round(0.3 * a - 0.4 * b + rng.normal(0, 1, N), 1), -5, 8)
    more = {"g": "n", "t": False, "maybe": 0.5}
    return pd.DataFrame({"a": a, "b": b, "y": y, **more})


def shrunk(frame, clip_norm, center=None, scale=None):
    """Rows in floats, in original units."""
    names = ["a", "b", "y"]
    centers, scales = CENTER | (center or {}), SCALE | (scale or {})
    middle, unit = (np.array([float(of[name]) for name in names]) for of in (centers, scales))
    z = np.round((frame[names].to_numpy() - middle) / unit / clip_norm * GRAIN)
    z /= np.maximum(GRAIN, np.linalg.norm(z, axis=1))[:, None]
    return pd.DataFrame(middle + z * unit * clip_norm, columns=names)


def released(analysis, budget=None, unit="replace"):
    budget = dps.PureDP(1e6) if budget is None else budget
    plan = dps.plan(SCHEMA, {"o": analysis}, budget=budget, unit=unit, reference=dps.Uniform())
    return dps.release(plan, rows(), rng=0, m=200)


@pytest.mark.parametrize(("formula", "unit", "options"), [
    ("y ~ a + b", "replace", OPTIONS), ("y ~ b + a - 1", "add_remove", {"clip_norm": 0.6}),
    ("y ~ a", "replace", {"clip_norm": 0.5}),
])  # fmt: skip
def test_without_noise_it_is_statsmodels_on_shrunk_rows(formula, unit, options, no_noise):
    whole = rows() if "b" in formula else rows().assign(b=1.5)  # b does not count
    found = released(dps.OLS(formula, **options), unit=unit).infer("o")
    fit, raw = smf.ols(formula, shrunk(whole, **options)).fit(), smf.ols(formula, rows()).fit()
    assert np.abs(raw.params / fit.params - 1).max() > 0.01  # shrinking changes them
    for name in ("params", "bse", "rsquared", "scale"):
        ours, theirs = getattr(found, name), getattr(fit, name)
        theirs = theirs[found.terms] if name in ("params", "bse") else theirs
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(found.conf_int(), fit.conf_int().loc[found.terms], atol=3e-3)
    at = pd.DataFrame({"a": [3, 9], "b": [0, 2]})
    np.testing.assert_allclose(found.predict(at), fit.predict(at), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("budget", "unit"), [(dps.PureDP(4), "replace"), (dps.ZCDP(1), "add_remove")], ids=str
)
def test_intervals_are_for_the_shrunk_rows_and_say_so(budget, unit):
    release = released(dps.OLS("y ~ a + b", **OPTIONS), budget, unit)
    found, truth = release.infer("o"), smf.ols("y ~ a + b", shrunk(rows(), **OPTIONS)).fit()
    ends = found.conf_int(method="certified", target="table", alpha=1e-6)
    assert np.all((ends[:, 0] <= truth.params) & (truth.params <= ends[:, 1]))
    text = found.summary()
    assert "rows shrunk to norm 2.1 at most, in columns (a - 4) / 2" in text
    assert "of the private rows were shrunk (certified at 95%); the bias that this gives" in text
    with pytest.raises(dps.NotMeasuredError):
        release.infer(dps.OLS("y ~ a + b"))


def test_the_privacy_variance_is_that_of_estimates(seeded_noise):
    """40 releases of one table: standard deviations to within a factor of 1.4 (3 errors)."""
    analysis = dps.OLS("y ~ a + b", **OPTIONS)
    plan = dps.plan(SCHEMA, {"o": analysis}, budget=dps.PureDP(40), unit="add_remove")
    found, frame = [], rows()
    for seed in range(40):
        with _noise_from(seeded_noise(seed)):
            held = dps.measure(plan, frame)
        view = SimpleNamespace(schema=SCHEMA, n=held.n, budget=plan.budget, answers=partial(
            answer, held))  # fmt: skip
        found.append(analysis.infer(view))
    claimed = np.sqrt(np.mean([f.privacy_variance for f in found], axis=0))
    ratio = np.std([f.params for f in found], axis=0) / claimed
    assert np.all((ratio > 1 / 1.4) & (ratio < 1.4))


def test_a_regression_and_a_correlation_share_their_shrunk_rows():
    analysis = dps.OLS("y ~ a + b", **OPTIONS)
    both = {"o": analysis, "c": dps.Correlation(["y", "b", "a"], **OPTIONS)}
    plan = dps.plan(SCHEMA, both, budget=dps.PureDP(2), n=N)
    assert len(plan.blocks) == 1
    release = dps.release(plan, rows(), rng=0, m=300)
    radius = release.radius("o")
    found = dps.corrected.infer(analysis, release.to_frame(), radius=radius, schema=SCHEMA)
    ends = found.conf_int(target="table")
    truth = smf.ols("y ~ a + b", shrunk(rows(), **OPTIONS)).fit().params
    assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
