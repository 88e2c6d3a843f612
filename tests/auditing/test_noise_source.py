"""What draws prove and how they are compared with a law; draws here are NumPy's, not private."""

import math

import numpy as np
from scipy.stats import binomtest

from dpstats.auditing import noise_source
from dpstats.auditing.noise_source import (
    Event,
    epsilon_of,
    fit_pvalue,
    fits,
    last_bits_pvalue,
    log_ratios,
    together,
)
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import POWERS, DiscreteLaplace


def laplace(scale, shape, rng):
    """Discrete Laplace draws: the difference of two geometric ones."""
    p = -math.expm1(-1 / scale)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def test_pvalues_of_correct_draws_have_their_level():
    """Of 60, at most so many below .05 as come by chance once in a million."""
    rng, law = np.random.default_rng(5), DiscreteLaplace(3.0)
    small = sum(fit_pvalue(laplace(3.0, 1_000, rng), law) < 0.05 for _ in range(60))
    assert binomtest(small, 60, 0.05, alternative="greater").pvalue > 1e-6


def test_wrong_scales_are_seen():
    for scale in (0.3, 3.0, 1e8):
        for wrong in (0.95, 1.05):
            draws = laplace(scale * wrong, 100_000, np.random.default_rng(1))
            assert fit_pvalue(draws, DiscreteLaplace(scale)) < 1e-6
        assert fit_pvalue(draws, DiscreteGaussian(1.05 * scale * math.sqrt(2))) < 1e-6


def test_rounded_draws_are_seen_by_their_last_bits():
    draws = laplace(1e6, 20_000, np.random.default_rng(2))
    rounded = draws // 2 * 2
    assert fit_pvalue(rounded, DiscreteLaplace(1e6)) > 1e-6  # the law hardly differs
    assert last_bits_pvalue(rounded) < 1e-6 < min(map(last_bits_pvalue, (draws, -draws)))
    scales, rng = np.full(2, 1e6), np.random.default_rng(8)
    assert together(fits(rounded.reshape(-1, 2), scales, DiscreteLaplace, rng)) < 1e-6


def shared_by_two_functions(noise):
    return np.concatenate([noise[:, :-1], noise[:, :1]], axis=1)


def drawn_twice(noise):
    return np.repeat(noise[: len(noise) // 2], 2, axis=0)


def test_dependent_draws_of_the_right_law_are_seen():
    noise = laplace(20.0, (20_000, 6), np.random.default_rng(3))
    scales, rng = np.full(6, 20.0), np.random.default_rng(4)
    assert together(fits(noise, scales, DiscreteLaplace, rng)) > 1e-6
    for planted in [shared_by_two_functions, drawn_twice]:
        assert together(fits(planted(noise), scales, DiscreteLaplace, rng)) < 1e-6


def test_every_scale_is_compared_with_its_own_law():
    rng = np.random.default_rng(6)
    noise = np.stack([laplace(s, 20_000, rng) for s in (2.0, 2.0, 9.0)], axis=1)
    assert together(fits(noise, np.array([2.0, 2.0, 9.0]), DiscreteLaplace, rng)) > 1e-6
    assert together(fits(noise, np.array([2.0, 9.0, 9.0]), DiscreteLaplace, rng)) < 1e-6


def test_ratios_are_those_of_the_laws():
    for family, power in POWERS.items():
        noisy = np.arange(-9, 10)[:, None] + np.array([[0, 4]])
        sums, others, scales = np.array([0, 1]), np.array([2, -3]), np.full(2, 3.0)
        near, far = (np.abs((noisy - of) / 3) ** power / power for of in (sums, others))
        found = log_ratios(noisy, sums, others, scales, family)
        np.testing.assert_allclose(found, (far - near).sum(axis=1), atol=1e-8)


def test_proved_losses_hold_and_come_near(monkeypatch):
    """A pure loss of 1 on one function, 200 times at a confidence of .9: at most so many miss."""
    monkeypatch.setattr(noise_source, "MISS", 0.1)
    rng, runs = np.random.default_rng(7), 400
    event, missed, most = Event(1.0, 1), 0, 0.0
    for _ in range(200):
        here, there = laplace(1.0, (runs, 1), rng), 1 + laplace(1.0, (runs, 1), rng)
        one, other = (
            log_ratios(made, np.array([0]), np.array([1]), np.ones(1), "laplace")
            for made in (here, there)
        )
        found = event.proves(epsilon_of(), one, other)
        missed, most = missed + (found > 1), max(most, found)
    assert binomtest(missed, 200, 0.1, alternative="greater").pvalue > 1e-6
    assert most > 0.8
    chosen = Event.choose(epsilon_of(), one, other)
    assert chosen.proves(epsilon_of(), one, other) > 0.3
