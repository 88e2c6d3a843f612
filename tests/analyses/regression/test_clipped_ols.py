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


@pytest.mark.parametrize("formula", ["y ~ a + b", "y ~ b + a - 1", "y ~ a"])
@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("options", [OPTIONS, {"clip_norm": 0.6}], ids=["centred", "plain"])
def test_without_noise_it_is_statsmodels_on_shrunk_rows(formula, unit, options, no_noise):
    if formula == "y ~ a":
        options = {"clip_norm": 0.5}
        frame = shrunk(rows().assign(b=1.5), **options)  # b does not count
    else:
        frame = shrunk(rows(), **options)
    found, fit = released(dps.OLS(formula, **options), unit=unit).infer("o"), smf.ols(
        formula, frame).fit()  # fmt: skip
    raw = smf.ols(formula, rows()).fit()
    assert np.abs(raw.params / fit.params - 1).max() > 0.01  # shrinking changes them
    for name in ("params", "bse", "rsquared", "scale"):
        ours, theirs = getattr(found, name), getattr(fit, name)
        theirs = theirs[found.terms] if name in ("params", "bse") else theirs
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(found.conf_int(), fit.conf_int().loc[found.terms], atol=3e-3)
    np.testing.assert_allclose(
        found.predict({"a": [3, 9], "b": [0, 2]}), fit.predict(pd.DataFrame(
            {"a": [3, 9], "b": [0, 2]})), rtol=2e-3, atol=2e-3)  # fmt: skip


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("budget", [dps.PureDP(4), dps.ZCDP(1)], ids=str)
def test_intervals_are_for_the_shrunk_rows_and_say_so(unit, budget):
    release = released(dps.OLS("y ~ a + b", **OPTIONS), budget, unit)
    found, truth = release.infer("o"), smf.ols("y ~ a + b", shrunk(rows(), **OPTIONS)).fit()
    for alpha in (1e-6, 1e-4):
        ends = found.conf_int(method="certified", target="table", alpha=alpha)
        assert np.all((ends[:, 0] <= truth.params) & (truth.params <= ends[:, 1]))
    aware, certified = found.conf_int(), found.conf_int(method="certified")
    assert np.all((certified[:, 0] <= aware[:, 0]) & (aware[:, 1] <= certified[:, 1]))
    text = found.summary()
    assert "rows shrunk to norm 2.1 at most, in columns (a - 4) / 2" in text
    assert "of the private rows were shrunk (certified at 95%); the bias that this gives" in text
    with pytest.raises(dps.NotMeasuredError):
        release.infer(dps.OLS("y ~ a + b"))


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_the_privacy_variance_is_that_of_estimates(unit, seeded_noise):
    """60 releases of one table: standard deviations to within a factor of 1.35 (3 errors)."""
    analysis = dps.OLS("y ~ a + b", **OPTIONS)
    plan = dps.plan(SCHEMA, {"o": analysis}, budget=dps.PureDP(40), unit=unit, n=N * (
        unit == "replace") or None)  # fmt: skip
    found = []
    for seed in range(60):
        with _noise_from(seeded_noise(seed)):
            held = dps.measure(plan, rows())
        view = SimpleNamespace(schema=SCHEMA, n=held.n, budget=plan.budget, answers=partial(
            answer, held))  # fmt: skip
        found.append(analysis.infer(view))
    claimed = np.sqrt(np.mean([f.privacy_variance for f in found], axis=0))
    ratio = np.std([f.params for f in found], axis=0) / claimed
    assert np.all((ratio > 1 / 1.35) & (ratio < 1.35))


def test_the_unit_of_a_penalty_is_that_of_shrunk_rows(no_noise):
    options = {"clip_norm": 0.8}
    found = released(dps.OLS("y ~ a + b", ridge=0.1, **options)).infer("o")
    frame = shrunk(rows(), **options)
    x = np.column_stack([np.ones(N), (frame["a"] - 5) / 4, (frame["b"] - 1.5) / 2])
    unit = np.linalg.solve(x.T @ x / N + 0.1 * np.diag([0, 1, 1]), x.T @ frame["y"] / N)
    np.testing.assert_allclose(found.params[1:], unit[1:] / [4, 2], rtol=2e-3)


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
