from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.regression.least_squares import EqualVariances, LeastSquares, LinearIntervals
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.simulation import calibration_generator
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Number("a", -1, 1, points=21, missing=0), dps.Number("b", 0, 4, points=21, missing=0),
    dps.Number("y", -3, 3, points=61, missing=0), dps.Category("g", ["n", "s", "w"]),
])  # fmt: skip


def fitted(unit="replace", epsilon=5.0, n=400):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-10, 11, n) / 10, rng.integers(0, 21, n) / 5
    frame = pd.DataFrame({"a": a, "b": b, "g": rng.choice(["n", "s", "w"], n)})
    frame["y"] = np.clip(a - 0.2 * b + rng.normal(0, 1, n), -3, 3).round(1)
    plan = dps.plan(SCHEMA, {"o": dps.OLS("y ~ a + b + g")}, budget=dps.PureDP(epsilon), unit=unit,
                    reference=dps.Uniform())  # fmt: skip
    release = dps.release(plan, frame, rng=0, m=100)
    return release.infer("o").intervals.model


def test_the_law_is_that_of_the_noise_in_the_normal_equations():
    model = fitted("add_remove")
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
    intervals = LinearIntervals(fitted(), np.eye(5), np.zeros(5))
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
    model = fitted(epsilon=1e6)
    noisier = SimpleNamespace(**{name: getattr(model.matrix, name) for name in (
        "matrix", "place", "n", "units")}, answers=fitted(epsilon=0.1).matrix.answers)  # fmt: skip
    law = LeastSquares(noisier, model.rows, model.ridge, EqualVariances).law(np.eye(5)[1])
    assert np.isfinite(law.error).any()
    assert law.unbounded(0.05)


def test_a_joint_test_allows_for_the_law_of_the_noise(seeded_noise):
    """Statistic and p-value against 30,000 errors drawn at the hypothesis; noise is most of them.

    The F distribution alone gives 0.032 and 0.0012 where shares of 0.05 and 0.009 are drawn.
    At 40 deviations the noise grows with the coefficients of the hypothesis.
    """
    with _noise_from(seeded_noise(0)):
        model = fitted(epsilon=0.3, n=20_000)
    two, size, rng = np.eye(5)[1:3], 30_000, np.random.default_rng(5)
    covariance = model.sampling.matrix + model.noise_covariance
    along = covariance @ two.T
    noise = model.matrix.noise(size, calibration_generator(model.matrix.answers))
    noise = model.rows @ noise @ model.rows.T
    sampled = rng.multivariate_normal(np.zeros(2), two @ model.sampling.matrix @ two.T, size)
    for deviations in (2.5, 40):
        apart = deviations * np.sqrt(np.diag(covariance)[1:3]) * [1, 0.3]
        statistic, pvalue = model.wald(two, model.params[1:3] + apart)
        under = model.params + along @ np.linalg.solve(two @ along, apart)
        errors = (noise[:, :-1, -1] - noise[:, :-1, :-1] @ under) @ model.inverse @ two.T + sampled
        precision = np.linalg.inv(np.cov(errors.T))
        assert statistic == pytest.approx(apart @ precision @ apart / 2, rel=0.03)
        drawn = np.einsum("ij,jk,ik->i", errors, precision, errors) / 2
        assert pvalue == pytest.approx(np.mean(drawn >= statistic), abs=0.006)
