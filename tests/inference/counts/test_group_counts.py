"""Counts of a group of unknown size: the sizes they allow, their tails, their variances."""

import numpy as np
import pytest
from scipy import stats

from dpstats.inference.counts.group_counts import GroupCounts
from dpstats.privacy.laws import DiscreteLaplace


@pytest.mark.parametrize("copies", [1, 600])
@pytest.mark.parametrize(
    ("size", "scale_a", "scale_c", "p"),
    [
        (2000, 40.0, 40.0, 0.3),
        (5, 12.0, 12.0, 0.4),
        (5, 2.0, 60.0, 0.4),
        (30_000, 3.0, 3.0, 0.5),
        # too narrow for a normal variable, or too heavy a tail for a sum over frequencies
        (40, 3.0, 9.0, 0.1),
        (900, 1.0, 7.0, 0.05),
        (20, 900.0, 300.0, 1e-5),
    ],
)
def test_tails_agree_with_the_full_sum(size, scale_a, scale_c, p, copies):
    """Sums over frequencies; else noise in groups and, with many sizes at once, a table of it."""
    law_a, law_c = DiscreteLaplace(scale_a), DiscreteLaplace(scale_c)
    x = np.arange(size + 1)
    mass = stats.binom.pmf(x, size, p)
    x, mass = x[mass > 1e-12], mass[mass > 1e-12]
    z = np.arange(-law_c.support(1e-10), law_c.support(1e-10) + 1)
    z_a = np.arange(-law_a.support(1e-10), law_a.support(1e-10) + 1)
    wide = np.sqrt(size * p * (1 - p))
    noise = np.sqrt((1 - p) ** 2 * law_a.variance + p**2 * law_c.variance)
    by_frequency = np.hypot(wide, noise) >= 8 and p > 1e-4
    for t_a, t_c in ((0.0, 0.0), (1.5, -0.4), (-2.3, 0.1)):
        t_a = round(size * p + t_a * np.hypot(wide, scale_a))
        t_c = round(size * (1 - p) + t_c * np.hypot(wide, scale_c))
        group = GroupCounts(t_a, t_c, 0.4, 0.0, law_a, law_c)
        if t_a + t_c > 0:
            t_a, t_c = max(t_a, -0.4), max(t_c, 0.0)  # with its uniform not below 0
        shift = p * size - x[:, None] + p * z
        if by_frequency:
            points = ((1 - p) * t_a - p * t_c + stats.norm.ppf(0.9) + shift).ravel()
            cells = np.linspace(points.min(), points.max(), 1000)
            smooth = stats.norm.cdf(cells[:, None] - (1 - p) * z_a) @ law_a.pmf(z_a)
            below, tolerance = np.interp(points, cells, smooth).reshape(shift.shape), 1e-4
        else:
            points = ((1 - p) * (t_a + 0.4) - p * t_c + shift) / (1 - p)
            below, tolerance = law_a.smoothed_cdf(points), 2e-4
        exact = mass @ (below @ law_c.pmf(z))
        lower, upper = group.tails(np.array([p]), np.full(copies, float(size)))
        assert lower == pytest.approx(exact, abs=tolerance)
        assert upper == pytest.approx(1 - exact, abs=tolerance)


@pytest.mark.parametrize(("scale_yes", "scale_no"), [(0.3, 0.3), (1.0, 0.5), (0.4, 1.2)])
@pytest.mark.parametrize(("yes", "no", "n"), [(7, 12, 24), (7, 12, None), (2, 1, 24), (20, 9, 25)])
def test_sizes_are_all_that_the_noise_allows(scale_yes, scale_no, yes, no, n):
    """N is kept unless P(|Z_yes + U + Z_no| > |t - N|) is at most beta; t is kept anyway."""
    law_yes, law_no, u, beta = DiscreteLaplace(scale_yes), DiscreteLaplace(scale_no), 0.21, 0.01
    z = np.arange(-60, 61)
    weight = np.convolve(law_yes.pmf(z), law_no.pmf(z))
    sums = np.arange(-120, 121)
    most = 100 if n is None else n
    t = yes + u + no
    kept = [
        m
        for m in range(most + 1)
        if 2 * (weight @ np.clip(-abs(t - m) - sums + 0.5, 0, 1)) > beta or m == min(round(t), most)
    ]
    group = GroupCounts(yes, no, u, -0.37, law_yes, law_no)
    np.testing.assert_array_equal(group.sizes(n, beta), kept)


def test_many_sizes_are_thinned_from_end_to_end():
    law = DiscreteLaplace(50.0)
    sizes = GroupCounts(700.0, 300.0, 0.2, 0.1, law, law).sizes(10_000, 0.001)
    assert len(sizes) == 17
    q = stats.laplace.isf(0.0005, scale=50)
    assert sizes[0] < 1_000 - q
    assert sizes[-1] > 1_000 + q
    np.testing.assert_allclose(np.diff(np.sqrt(sizes), 2), 0, atol=0.05)


def test_estimates_and_their_variances():
    group = GroupCounts(30.0, 70.0, 0.0, 0.0, DiscreteLaplace(4.0), DiscreteLaplace(9.0))
    assert group.risk == 0.3
    assert [group.size(n) for n in (500, 60)] == [100, 60]
    noise = [law.variance for law in (group.law_yes, group.law_no)]
    assert group.size_noise == pytest.approx(np.sqrt(sum(noise)))
    assert not group.hidden_by_noise
    sampling, privacy = group.variances(0.3, 100.0)
    assert sampling == pytest.approx(0.0021)
    # delta method: the derivatives of yes / (yes + no) are 0.7/100 and -0.3/100
    assert privacy == pytest.approx((0.7**2 * noise[0] + 0.3**2 * noise[1]) / 1e4)


@pytest.mark.parametrize(
    ("yes", "no", "risk"), [(-5.0, 3.0, 0.5), (-1.0, 3.0, 0.0), (9.0, -2.0, 1.0)]
)
def test_estimates_of_a_group_that_noise_drowns(yes, no, risk):
    law = DiscreteLaplace(4.0)
    group = GroupCounts(yes, no, 0.0, 0.0, law, law)
    assert group.risk == risk
    assert group.hidden_by_noise
    assert group.size(500) == max(1.0, yes + no)


@pytest.mark.parametrize("u", [-0.5, 0.5])
def test_uniforms_that_add_up_to_an_end_have_finite_tails(u):
    """As those of two answers may whose own are 1/4."""
    law = DiscreteLaplace(40.0)
    at_end, near = (
        GroupCounts(60.0, 50.0, v, -v, law, law).tails(np.array([0.3, 0.8]), np.arange(90.0, 130.0))
        for v in (u, u * (1 - 2.0**-52))
    )
    np.testing.assert_array_equal(at_end, near)
