"""The law of the noise and what it promises, computed twice."""

from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.verifying import noise

BUDGETS = {1: dps.PureDP(1), 2: dps.ZCDP(1)}  # by power


def test_sums_of_noises():
    for power, budget in BUDGETS.items():
        for terms in [1, 7]:
            for scale in [0.2, 1.2, 60.0]:
                law = budget.law(scale, terms)
                variance = noise.variance(scale, power) * terms
                assert variance == pytest.approx(law.variance, rel=1e-9)
                for beta in (0.3, 0.01, 1e-6):
                    assert noise.quantile_of_sum(scale, power, terms, beta) == law.quantile(beta)


def test_the_curve_against_exact_sums():
    """One sum with noise of scale 1/mu: the exact delta is below the bound, and near it."""
    for scale, epsilon in ((4.0, 1.0), (9.0, 0.5)):
        z = np.arange(-60 * int(scale), 60 * int(scale) + 1)
        p = np.exp(-(z**2) / (2 * scale**2))
        p /= p.sum()
        exact = np.clip(p[1:] - np.exp(epsilon) * p[:-1], 0, None).sum()
        exact = max(exact, np.clip(p[:-1] - np.exp(epsilon) * p[1:], 0, None).sum())
        rho = 1 / (2 * Fraction(scale) ** 2)
        found, _ = noise.prove_delta(rho, Fraction(repr(epsilon)))
        assert 0.6 * float(found) < exact <= float(found)


def test_the_curve_against_the_package():
    budget = dps.ApproxDP(1, Fraction(1, 10**6))
    assert noise.prove_delta(budget.rho, Fraction(1))[0] <= budget.delta
    assert noise.prove_delta(budget.rho * Fraction(1002, 1000), Fraction(1))[0] > budget.delta
