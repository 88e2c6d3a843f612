"""From zCDP to (epsilon, delta): against a direct minimisation, and sound in every rounding."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpstats.privacy.budget import ZCDP
from dpstats.privacy.conversion import epsilon_of, log_delta, rho_of


def least_log_delta(rho, epsilon):
    """The formula itself, at 400,001 values of alpha."""
    alpha = 1 + np.exp(np.linspace(-20, 20, 400_001))
    values = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha)
    return float(np.min(values - np.log(alpha - 1)))


CASES = [(0.015, 1), (1e-4, 0.1), (10, 30), (2, 1), (1e-6, 1e-2), (0.5, 5), (1e3, 1.1e3)]


def test_delta_is_the_minimum_over_alpha():
    for rho, epsilon in CASES:
        direct = least_log_delta(rho, epsilon)
        assert direct - 1e-5 <= log_delta(rho, epsilon) <= direct + 1e-9


def test_the_published_pair():
    rho = ZCDP.from_epsilon_delta(1, 1e-9).rho
    assert 0.01497 < rho < 0.01498
    assert least_log_delta(float(rho), 1) <= math.log(1e-9)
    assert least_log_delta(float(rho) * (1 + 1e-4), 1) > math.log(1e-9)


def test_it_beats_the_simple_bound_and_not_the_exact_loss_of_the_gaussian():
    for rho, delta in ((0.015, 1e-9), (0.5, 1e-6), (0.01, 1e-5)):
        epsilon = epsilon_of(Fraction(rho), Fraction(delta))
        assert epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))
        # Balle and Wang (2018): the exact delta of a continuous Gaussian of this rho
        mu = math.sqrt(2 * rho)
        exact = norm.cdf(mu / 2 - epsilon / mu)
        exact -= math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert 0.05 * delta < exact < delta


@given(
    st.floats(-8, 4).map(lambda x: Fraction(10**x)),
    st.floats(-60, -0.05).map(lambda x: Fraction(10**x)),
)
@settings(max_examples=60)
def test_both_directions_are_sound_and_tight(epsilon, delta):
    rho = rho_of(epsilon, delta)
    assert log_delta(float(rho), float(epsilon)) <= math.log(delta)
    assert log_delta(float(rho) * (1 + 2e-5), float(epsilon)) > math.log(delta)
    back = epsilon_of(rho, delta)
    assert back <= epsilon
    if back > 0:  # zero is private already at this delta, and nothing is below it
        assert log_delta(float(rho), back * (1 - 1e-6)) > math.log(delta) - 1e-8


def test_monotone():
    rhos = [Fraction(1000, 10**k) for k in range(15)]
    epsilons = [epsilon_of(rho, Fraction(1, 10**6)) for rho in rhos]
    assert epsilons == sorted(epsilons, reverse=True)
    found = [rho_of(Fraction(1), Fraction(1, 10**k)) for k in (1, 3, 9, 30, 300)]
    assert found == sorted(found, reverse=True)
    assert np.all(np.diff([log_delta(0.3, e) for e in np.linspace(0.5, 20, 40)]) < 0)


def test_extreme_budgets_have_a_reading():
    for rho in [Fraction(1, 10**400), Fraction(10**8), Fraction(1, 7)]:
        assert 0 <= epsilon_of(rho, Fraction(1, 10**9)) < 2 * rho + 100
        assert "epsilon = " in str(ZCDP(rho))
