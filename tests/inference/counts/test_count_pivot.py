"""Proportions where the number of rows was measured: tails by brute force, coverage and width."""

import numpy as np
import pandas as pd
import pytest
from scipy import interpolate, stats

import dpstats as dps
from dpstats.inference.counts.binomial import proportion_interval
from dpstats.inference.counts.count_pivot import CountPivot, _Interpolated
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import JointNoise


def pivot(law, of_count, count, within):
    """Independent noises on the count of the trait and on that of the rows."""
    sizes = max(1, count - within), count + within
    return CountPivot(
        law, JointNoise(((1.0, 0.0, law), (0.0, 1.0, of_count))), count, sizes, within
    )


def brute(t, u, p, n, found):
    """P(D <= observed) at n, or P(T + U <= t + u), by sums over X and both noises."""
    x = np.arange(n + 1)
    mass = stats.binom.pmf(x, n, p)
    variance = n * p * (1 - p) + found.law.variance + p**2 * found.joint.moments[2]
    if variance < 64 or n < 4 * found.within:
        return mass @ found.law.smoothed_cdf(t + u - x)
    z = np.arange(-found.law.support(1e-9), found.law.support(1e-9) + 1)
    of_count = found.joint.parts[1][2]
    z_0 = np.arange(-of_count.support(1e-9), of_count.support(1e-9) + 1)
    d = t - p * found.count + stats.norm.ppf(u + 0.5)
    centre = (x - n * p)[:, None] + z
    grid = np.linspace(-450, 450, 3601)
    smooth = stats.norm.cdf(grid[:, None] + p * z_0) @ of_count.pmf(z_0)
    smooth = interpolate.CubicSpline(grid, smooth)(np.clip(d - centre, -450, 450))
    return mass @ smooth @ found.law.pmf(z)


@pytest.mark.parametrize("p", [0.0, 0.02, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(
    ("scale", "scale_0", "count", "within"),
    [(12.0, 9.0, 150, 30), (1.0, 20.0, 150, 60), (1.0, 1.0, 90, 6)],
)
def test_tails_are_those_of_the_sums(scale, scale_0, count, within, p):
    found = pivot(DiscreteLaplace(scale), DiscreteLaplace(scale_0), count, within)
    for shift, u in ((-1.3, 0.2), (0.4, -0.45), (2.0, 0.0)):
        sd = np.sqrt(count * p * (1 - p) + found.joint.variance(np.array(p)))
        t = round(count * p + shift * float(sd))
        lower, upper = found.tails(np.array([float(t)]), np.array([u]), np.array([p]))
        expected = [brute(t, u, p, n, found) for n in found.sizes]
        assert lower[0] == pytest.approx(max(expected), abs=1e-6)
        assert upper[0] == pytest.approx(1 - min(expected), abs=1e-6)


def test_the_noise_on_both_is_one_law():
    """A noise with weights (a, b) enters D with the weight a - p b."""
    law = DiscreteLaplace(5.0)
    joint = JointNoise(((1.0, 0.4, law), (0.0, 0.4, DiscreteLaplace(5.0, 7)), (0.0, 0.2, law)))
    s, p = np.array([0.01, 0.2, 1.0, 3.0]), np.array([0.0, 0.3, 1.0])
    expected = [
        law.log_characteristic((1 - 0.4 * q) * s)
        + 7 * law.log_characteristic(0.4 * q * s)
        + law.log_characteristic(0.2 * q * s)
        for q in p
    ]
    np.testing.assert_allclose(joint.log_characteristic(s, p), expected, atol=1e-13)
    np.testing.assert_allclose(_Interpolated(joint)(s[:2], p), np.array(expected)[:, :2], atol=1e-9)
    weights = np.array([1 - 0.4 * p, *[0.4 * p] * 7, 0.2 * p])
    np.testing.assert_allclose(joint.variance(p), law.variance * (weights**2).sum(axis=0))
    rng = np.random.default_rng(0)
    stop = -np.expm1(-1 / 5)
    z = rng.geometric(stop, (9, 100_000)) - rng.geometric(stop, (9, 100_000))
    for row in weights.T:
        assert np.abs(row @ z).max() < joint.reach


@pytest.mark.parametrize(
    ("scale", "scale_0", "count", "within", "t", "u", "alpha"),
    [
        (3.779, 0.612, 544, 27, 428.0, 0.2886, 0.001),  # T keeps values beyond those of D
        (2.0, 2.0, 100, 12, 9.0, -0.3, 0.3),
        (2.0, 8.0, 150, 60, 140.0, 0.1, 0.05),
        (9.0, 9.0, 60, 55, 30.0, 0.4, 0.05),  # too few rows for D at the smaller size
        (5.0, 5.0, 2000, 31, 3.0, 0.0, 0.05),
    ],
)
def test_the_interval_holds_all_values_that_are_not_rejected(
    scale, scale_0, count, within, t, u, alpha
):
    found = pivot(DiscreteLaplace(scale), DiscreteLaplace(scale_0), count, within)
    low, high = found.interval(np.array([t]), np.array([u]), alpha)
    p = np.linspace(0, 1, 1501)
    tails = np.min(found.tails(np.full(1501, t), np.full(1501, u), p), axis=0)
    kept = p[tails >= alpha / 2]
    assert low[0] <= kept.min() + 1e-9
    assert high[0] >= kept.max() - 1e-9
    assert high[0] - low[0] <= 1.2 * np.ptp(kept) + 0.01


def test_a_dominant_noise_is_not_interpolated():
    parts = [(0.0, 0.77, DiscreteLaplace(350.0))]
    parts += [(0.1 * i, 0.05, DiscreteLaplace(20.0)) for i in range(9)]
    joint = JointNoise(tuple(parts))
    s, p = (np.arange(64) + 0.5) * 4e-3, np.linspace(0, 1, 77)
    found, exact = _Interpolated(joint)(s, p), joint.log_characteristic(s, p)
    np.testing.assert_allclose(np.exp(found), np.exp(exact), atol=1e-10)


def check(n, p, scale, gaussian, runs):
    """Coverage .95 to 2.5 s.e.; 15 intervals, at p = .9 shorter than .6 of those of the union.

    Of the error .04 parts are for the number of rows.
    """
    law = (DiscreteGaussian if gaussian else DiscreteLaplace)(scale)
    rng = np.random.default_rng(4)
    z = np.arange(-law.support(), law.support() + 1)
    noise = rng.choice(z, size=(2, runs), p=law.pmf(z) / law.pmf(z).sum())
    t, u = (rng.binomial(n, p, runs) + noise[0]).astype(float), rng.uniform(-0.5, 0.5, runs)
    within, covered, widths, of_union = law.quantile(0.002), 0, [], []
    for i in range(runs):
        found, one = pivot(law, law, n + int(noise[1, i]), within), (t[i : i + 1], u[i : i + 1])
        lower, upper = found.tails(*one, np.array([p]))
        covered += min(lower[0], upper[0]) >= 0.024
        if i < 15:
            low, high = found.interval(*one, 0.048)
            assert (low[0] <= p <= high[0]) == (min(lower[0], upper[0]) >= 0.024)
            widths.append(high[0] - low[0])
            ends = [proportion_interval(sum(one), size, law, 0.048) for size in found.sizes]
            of_union.append(ends[0][1][0] - ends[1][0][0])
    assert covered >= runs * 0.95 - 2.5 * np.sqrt(runs * 0.05 * 0.95)
    assert np.median(widths) < (0.6 if p == 0.9 else 1.03) * np.median(of_union)


@pytest.mark.parametrize(
    ("n", "p", "scale", "gaussian"), [(2000, 0.9, 20.0, False), (60, 0.6, 1.0, True)]
)
def test_coverage_and_width_thinned(n, p, scale, gaussian):
    """300 samples: sees a coverage below about .89."""
    check(n, p, scale, gaussian, 300)


@pytest.mark.slow
@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(
    ("n", "p", "scale"), [(2000, 0.9, 20.0), (2000, 0.02, 20.0), (60, 0.6, 1.0), (300, 0.5, 30.0)]
)
def test_coverage_and_width(n, p, scale, gaussian):
    check(n, p, scale, gaussian, 4000)


def test_a_release_uses_the_joint_law_of_its_counts():
    """The table's own total is part of the number of rows: their noises are not independent."""
    schema = dps.Schema([dps.Category("a", list("xyz")), dps.Boolean("b")])
    rows = pd.DataFrame({"a": list("xxyz") * 500, "b": [True, True, True, False] * 500})
    plan = dps.plan(
        schema, {"t": dps.Marginals(["a", "b"]), "p": dps.Proportion("b")},
        budget=dps.PureDP(0.2), unit="add_remove",
    )  # fmt: skip
    release = dps.release(plan, rows, rng=0, m=50)
    answers = release.answers(dps.Proportion("b"), with_count=True)
    joint, which = release.infer("p").intervals.answers.with_count
    own, crossed, count = joint[which[0]].moments
    covariance = answers.noise_covariance
    assert own == pytest.approx(covariance[0, 0])
    assert crossed == pytest.approx(covariance[0, 1])
    assert count == pytest.approx(covariance[1, 1])
    result = release.infer("p")
    low, high = result.conf_int()
    for end, side in ((low, "larger"), (high, "smaller")):
        assert float(result.test(end, side).pvalue) == pytest.approx(0.025, abs=2e-3)
