"""Shortest intervals of proportions: coverage by brute-force sums, and mean widths."""

import numpy as np
import pytest
from scipy import stats

from dpstats.inference.counts import unequal_tails
from dpstats.inference.counts.binomial import proportion_interval
from dpstats.inference.counts.count_pivot import CountPivot
from dpstats.inference.counts.proportion_intervals import _shortest_of_table
from dpstats.inference.counts.unequal_tails import (
    LowerTail,
    equal_tails,
    shortest_between,
    shortest_tails,
)
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import JointNoise

LAWS = [
    (1000, DiscreteLaplace(200.0)),  # epsilon .1 shared by 20
    (1000, DiscreteGaussian(60.0)),
    (60, DiscreteLaplace(3.0, 2)),
    (12, DiscreteLaplace(0.4)),
]


def cdf_of_count(t, n, p, law):
    """P(X + Z + U <= t) from the masses of X and Z: linear between half integers."""
    reach = law.support(1e-12)
    z = np.arange(-reach, reach + 1)
    mass = np.convolve(stats.binom.pmf(np.arange(n + 1), n, p), law.pmf(z))
    halves = np.arange(-reach, n + reach + 2) - 0.5
    return np.interp(t, halves, np.concatenate([[0.0], np.cumsum(mass)]))


def edges(interval, p, reach):
    """Noisy counts (2, k) between which intervals, whose ends rise with the count, hold p (k,)."""
    found = []
    for holds in (lambda t: interval(t)[1] >= p - 1e-12, lambda t: interval(t)[0] > p + 1e-12):
        low, high = np.full(p.size, -reach), np.full(p.size, 2 * reach)
        for _ in range(33):
            middle = (low + high) / 2
            above = holds(middle)
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        found.append(high)
    return np.array(found)


@pytest.mark.parametrize(
    ("n", "law", "alpha"), [(n, law, 0.05) for n, law in LAWS] + [(*LAWS[3], 0.2)]
)
def test_coverage_is_exact_at_every_proportion(n, law, alpha):
    tail, p = shortest_tails(n, law, alpha), np.array([1e-4, 0.02, 0.11, 0.49, 0.8, 0.999])
    reach = 30.0 * np.sqrt(law.variance) + 2 * n
    first, last = edges(lambda t: proportion_interval(t, n, law, alpha, tail), p, reach)
    covered = [
        np.ptp(cdf_of_count([a, b], n, q, law)) for a, b, q in zip(first, last, p, strict=True)
    ]
    np.testing.assert_allclose(covered, 1 - alpha, atol=2e-6)


@pytest.mark.parametrize(("n", "law"), LAWS)
def test_intervals_for_the_table_hold_every_count(n, law):
    counts = np.unique(np.array([0, 1, 2, n // 5, n // 3, n - 1, n]))
    reach = 30.0 * np.sqrt(law.variance) + 2 * n
    first, last = edges(lambda t: _shortest_of_table(t, n, law, 0.05), counts / n, reach)
    covered = law.smoothed_cdf(last - counts) - law.smoothed_cdf(first - counts)
    assert np.all(covered >= 0.95 - 1e-6)
    assert np.all(covered <= 0.95 + 2 * law.pmf(0))  # ends are whole counts
    t = np.linspace(-0.4 * n, 1.4 * n, 57)
    low, high = np.array(_shortest_of_table(t, n, law, 0.05)) * n
    whole = np.abs(low - np.round(low)) + np.abs(high - np.round(high)) < 1e-6
    assert np.all(whole | (high - low < 1))
    assert np.all(low <= high)


@pytest.mark.parametrize(("n", "law"), LAWS)
def test_shares_rise_from_none_to_all(n, law):
    """What makes the values kept an interval that is never empty."""
    tail, logits = shortest_tails(n, law, 0.05), np.linspace(-30, 30, 501)
    levels = tail(logits)
    assert np.all(np.diff(levels) >= 0)
    both = np.delete(levels + levels[::-1], 250)  # at p = 1/2 it may jump
    np.testing.assert_allclose(both, 0.05, atol=1e-15)
    assert levels[250] <= 0.025
    assert levels[0] < 2e-3
    t = np.array([-40.0, -1.0, 1.0, 40.0]) * np.sqrt(law.variance) + n / 2
    low, high = proportion_interval(t, n, law, 0.05, tail)
    assert np.all(low < high)


def mean_width(n, law, tail, p):
    """Expected width (k,) of intervals at proportions p (k,)."""
    reach = law.support(1e-7)
    t = np.linspace(-reach, n + reach, 401)
    low, high = proportion_interval(t, n, law, 0.05, tail)
    middles = np.concatenate([[-1e9], (t[1:] + t[:-1]) / 2, [1e9]])
    return np.array([np.diff(cdf_of_count(middles, n, q, law)) @ (high - low) for q in p])


def test_published_width():
    """n = 1000, epsilon .1 shared by 20, p = .3: .717 against .84 with equal tails."""
    n, law = LAWS[0]
    found = [mean_width(n, law, tail(n, law), np.array([0.3]))[0] for tail in (
        lambda n, law: shortest_tails(n, law, 0.05), lambda n, law: equal_tails(0.05)
    )]  # fmt: skip
    np.testing.assert_allclose(found, [0.7167, 0.8418], atol=1e-3)


@pytest.mark.parametrize(("n", "law"), LAWS[1:])
def test_no_other_shares_have_a_smaller_mean_width(n, law):
    tail, p = shortest_tails(n, law, 0.05), (np.arange(12) + 0.5) / 12
    p = np.concatenate([p[:1] / 4, p[:1] * 3 / 4, p[1:6]])  # half of [0, 1]; the rest mirrors it
    weights = np.array([0.5, 0.5, *np.ones(5)]) / 6
    best = weights @ mean_width(n, law, tail, p)
    assert best < weights @ mean_width(n, law, None, p)
    for power in (0.5, 2.0):
        other = LowerTail(0.05, tail.logits, 0.5 * (2 * tail.shares) ** power)
        assert best <= weights @ mean_width(n, law, other, p) * (1 + 2e-3)


@pytest.mark.parametrize("alpha", [1e-7, 0.4])
def test_tails_are_equal_where_densities_or_tails_do_not_serve(alpha):
    n, law = LAWS[1]
    assert shortest_tails(n, law, alpha)(np.array([-9.0, 0.0, 2.0])).tolist() == [alpha / 2] * 3


def test_a_measured_number_of_rows_takes_the_least_of_its_levels():
    """A level per number of rows, fixed before T and N are seen; the least of those in the set."""
    law, sizes, logits = DiscreteLaplace(6.0), (90, 181), np.linspace(-9, 9, 91)
    tail = shortest_between(sizes, law, 0.05)
    for n in range(sizes[0], sizes[1] + 1, 13):
        rounded = round(2 ** (round(2 * np.log2(n)) / 2))
        assert np.all(tail(logits) <= shortest_tails(rounded, law, 0.05)(logits))
    one = shortest_between((128, 130), law, 0.05)
    np.testing.assert_array_equal(one(logits), shortest_tails(128, law, 0.05)(logits))


def test_what_is_kept_at_the_true_number_of_rows_is_in_the_interval():
    law, alpha, n, runs = DiscreteLaplace(6.0), 0.05, 150, 16
    joint, rng = JointNoise(((1.0, 0.0, law), (0.0, 1.0, law))), np.random.default_rng(5)
    within, kept = law.quantile(1e-3), []
    for p in (0.01, 0.3, 0.97):
        z = np.arange(-law.support(), law.support() + 1)
        noise = rng.choice(z, size=(2, runs), p=law.pmf(z) / law.pmf(z).sum())
        noise[1] = np.clip(noise[1], -within, within)  # the set holds n
        t, u = (rng.binomial(n, p, runs) + noise[0]).astype(float), rng.uniform(-0.5, 0.5, runs)
        for i in range(runs):
            count, one = float(n + noise[1, i]), (t[i : i + 1], u[i : i + 1])
            sizes = max(1, int(count) - within), int(count) + within
            found = CountPivot(law, joint, count, sizes, within)
            tail = shortest_between(sizes, law, alpha)
            low, high = found.interval(*one, alpha, tail)
            lower, upper = CountPivot(law, joint, count, (n, n), within).tails(*one, np.array([p]))
            level = tail(np.array([1, -1]) * np.log(p / (1 - p)))
            inside = bool(low[0] <= p <= high[0])
            assert inside or lower[0] < level[0] or upper[0] < level[1]
            kept.append(inside)
    assert 0.85 < np.mean(kept) < 1  # of 48; some are rejected


def test_wide_noise_needs_no_long_sums(monkeypatch):
    """Where noise is wider than the count varies, quantiles of the count are as good as a sum."""
    settings = ((10**5, DiscreteLaplace(600.0)), (10**4, DiscreteGaussian(100.0)))
    fast = [unequal_tails.shortest_tails(n, law, 0.049) for n, law in settings]
    exact = unequal_tails.noisy_binomial_cdf
    summed = []

    def counted(t, n, p, law):
        summed.append(float(np.max(np.sqrt(n * p * (1 - p)), initial=0.0)))
        return exact(t, n, p, law)

    monkeypatch.setattr(unequal_tails, "noisy_binomial_cdf", counted)
    unequal_tails.shortest_tails(10**9, DiscreteLaplace(1e7), 0.049)
    assert max(summed) < 31  # counts with more than a few hundred values
    monkeypatch.setattr(unequal_tails, "_WIDE", np.inf)
    unequal_tails.shortest_tails.cache_clear()
    for (n, law), tail in zip(settings, fast, strict=True):
        other = unequal_tails.shortest_tails(n, law, 0.049)
        np.testing.assert_allclose(tail.shares, other.shares, atol=1e-3)
    assert max(summed) > 40
    unequal_tails.shortest_tails.cache_clear()
