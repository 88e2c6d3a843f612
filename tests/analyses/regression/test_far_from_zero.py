"""Columns that vary little about a number far from zero, such as [1e9 - 50, 1e9 + 50]."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import dpstats as dps

FORMULAS = ["y ~ x*C(g)", "y ~ x - 1", "y ~ I(x**2) + x:z + z", "v ~ x + C(g, Treatment('c'))"]
HALF = 50.0


def declared(offset):
    def number(name, points):
        ends = offset - HALF, offset + HALF
        edges = [offset - 25, offset, offset + 25] if name == "x" else []
        return dps.Number(name, *ends, points=points, missing=offset, edges=edges)

    return dps.Schema([
        number("x", 41), number("z", 41), number("y", 101), dps.Category("g", list("abc")),
        dps.Boolean("v"),
    ])  # fmt: skip


def rows(offset, n=150):
    """Values on the grids."""
    rng = np.random.default_rng(5)
    u = rng.integers(-20, 21, n) / 20
    w = np.clip(np.round((0.5 * u + rng.normal(0, 0.4, n)) * 20) / 20, -1, 1)
    g = rng.integers(0, 3, n)
    y = 0.3 * u + 0.2 * w + 0.1 * (g == 1) + rng.normal(0, 0.2, n)
    y = np.clip(np.round(y * 50) / 50, -1, 1)
    x, z, y = offset + HALF * np.array([u, w, y])
    v = rng.uniform(size=n) < 0.4 + 0.3 * u
    return pd.DataFrame({"x": x, "z": z, "y": y, "g": np.array(list("abc"))[g], "v": v})


@pytest.fixture
def fitted(inferred):
    return lambda analysis, offset, *args, **options: inferred(
        declared(offset), rows(offset), analysis, *args, **options
    )


def exact(design, frame, schema):
    """Coefficients, and A^-1, by rational arithmetic: a float does not hold such products."""
    terms = [regressor.factors for regressor in design.regressors]
    values = design.values(frame, schema, dict.fromkeys(f for term in terms for f in term))
    columns = {f: np.array([*map(Fraction, v.tolist())], dtype=object) for f, v in values.items()}
    one = np.full(len(frame), Fraction(1))
    x = np.array([math.prod((columns[f] for f in term), start=one) for term in terms])
    y = np.array([*map(Fraction, frame[design.response[0]].astype(float).tolist())], dtype=object)
    p = len(terms)
    left = np.hstack([x @ x.T, (x @ y)[:, np.newaxis], np.diag(one[:p])])
    for i in range(p):
        left[i] = left[i] / left[i, i]
        for j in set(range(p)) - {i}:
            left[j] = left[j] - left[j, i] * left[i]
    params, inverse = left[:, p], left[:, p + 1 :]
    error = np.sum((params @ x - y) ** 2) / (len(y) - p)
    deviations = np.sqrt((error * np.diag(inverse)).astype(float))
    return params.astype(float), deviations, (params @ x).astype(float)


@pytest.mark.parametrize(
    ("formula", "offset"), [("y ~ x*z", 0.0), *((formula, 1e9) for formula in FORMULAS)]
)
def test_least_squares_is_exact_at_any_offset(formula, offset, no_noise, fitted):
    found = fitted(dps.OLS(formula), offset)
    params, deviations, fitted = exact(found.moments.design, rows(offset), declared(offset))
    scale = deviations.max() if offset == 0 else deviations
    assert_allclose(np.asarray(found.params) / scale, params / scale, rtol=1e-7, atol=1e-7)
    assert_allclose(np.asarray(found.bse), deviations, rtol=1e-6)
    assert_allclose(found.predict(rows(offset)), fitted, rtol=0, atol=2e-6)
    assert np.isfinite(found.conf_int()).all()
    assert found.f_pvalue < 0.5
    low, high = found.conf_int(method="certified", target="table").T
    slack = 1e-6 * deviations
    assert ((low - slack <= params) & (params <= high + slack)).all()
    assert ((high - low) < deviations).all()


def test_noise_makes_the_same_of_a_slope_at_any_offset(seeded_noise, fitted):
    ends = []
    for offset in (0.0, 1e9):
        found = fitted(dps.OLS("y ~ x + C(g)"), offset, dps.PureDP(20), noise_from=seeded_noise(3))
        parts = found.conf_int(), found.conf_int(method="certified"), np.c_[found.bse]
        ends.append(np.hstack(parts)[1:])
    assert_allclose(*ends, rtol=1e-6)


@pytest.mark.parametrize("analysis", [
    dps.OLS("y ~ x + z", clip_norm=1.5),
    dps.OLS("y ~ x + z", cov_type="HC1"), dps.Lasso("y ~ x + z"), dps.Logistic("v ~ x + C(g)"),
], ids=str)  # fmt: skip
def test_slopes_do_not_depend_on_the_offset(analysis, no_noise, fitted):
    near, far = fitted(analysis, 0.0), fitted(analysis, 1e9)
    slopes = [np.asarray(found.params)[1:] for found in (near, far)]
    assert_allclose(slopes[1], slopes[0], rtol=1e-5, atol=1e-9)
    assert np.any(slopes[0] != 0)
    if hasattr(near, "bse"):
        errors = [np.asarray(found.bse)[1:] for found in (near, far)]
        assert_allclose(errors[1], errors[0], rtol=1e-4)
        at = {name: rows(0.0)[name][:5] for name in "xzg"}
        moved = {name: at[name] if name == "g" else at[name] + 1e9 for name in at}
        shift = 0.0 if isinstance(analysis, dps.Logistic) else 1e9
        assert_allclose(far.predict(moved) - shift, near.predict(at), rtol=1e-5, atol=1e-5)


def test_bounds_of_raw_moments_admit_that_rounding_hides_a_slope():
    x = 1e9 + np.arange(100.0)
    w = np.column_stack([np.ones(100), x, 0.5 * x])
    low, high = dps.corrected.ols(w.T @ w / 100, 0.0)
    assert low[1] <= 0.5 <= high[1]
