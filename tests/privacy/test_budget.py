"""Budgets are exact rationals, and every impossible one is refused with a reason."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import BudgetError, FileFormatError
from dpstats.privacy.budget import ZCDP, ApproxDP, PureDP, budget_from_dict
from dpstats.privacy.cautions import cautions
from dpstats.privacy.noise import MAX_SCALE, MIN_SCALE, scale_for
from dpstats.privacy.rationals import read_rational


@dataclass(frozen=True)
class Sensitivity:
    l1: Fraction
    l2_squared: Fraction = Fraction(1)


def test_numbers_are_read_as_their_shortest_decimal():
    for value, exact in [
        (0.1, Fraction(1, 10)),
        (1e-7, Fraction(1, 10**7)),
        (5e-324, Fraction(5, 10**324)),
        (Decimal("0.30"), Fraction(3, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int32(3), Fraction(3)),
    ]:
        read = read_rational(value, "epsilon")
        assert read == exact
        assert type(read) is Fraction


@given(
    l1=st.fractions(Fraction(1, 50), 10**6),
    epsilon=st.one_of(st.floats(1e-6, 50), st.fractions(Fraction(1, 10**6), 50), st.just(1 / 3)),
    bound=st.integers(1, 10**6),
)
@settings(max_examples=30)
def test_p03_the_scale_never_costs_more_than_epsilon(l1, epsilon, bound):
    budget = PureDP(epsilon)
    multiplier = budget.multiplier(Sensitivity(l1), budget.total)
    assert budget.cost(Sensitivity(l1), multiplier) == budget.total
    if MIN_SCALE <= multiplier * bound <= MAX_SCALE:
        scale = scale_for(multiplier, bound)
        assert l1 * bound / Fraction(scale) <= budget.total


def test_bad_dicts_are_refused():
    for d in [
        {},
        {"kind": "renyi", "rho": "1"},
        {"kind": "zcdp", "rho": "1", "delta": "1"},
        {"kind": "zcdp", "rho": "1", "delta": 1e-9},
        {"kind": ["pure"], "epsilon": "1"},
        {"kind": "approx", "epsilon": "1", "delta": "1/1000000"},
        {"kind": "approx", "epsilon": "1", "delta": "1/1000000", "rho": "3/100"},
        {"kind": "approx", "epsilon": "0", "delta": "1/1000000", "rho": "1/1000"},
        {"kind": "pure"},
        {"kind": "pure", "epsilon": 0.1},
        {"kind": "pure", "epsilon": "0"},
        {"kind": "pure", "epsilon": "1/0"},
        {"kind": "pure", "epsilon": "1e999999999"},
    ]:
        with pytest.raises(FileFormatError, match="budget"):
            budget_from_dict(d)


@given(
    st.fractions(Fraction(1, 10**4), 10**6),
    st.fractions(Fraction(1, 10**3), 10**4),
    st.integers(1, 10**6),
)
@settings(max_examples=30)
def test_p07_the_exact_cost_of_gaussian_noise_is_within_rho(l2_squared, rho, bound):
    budget = ZCDP(rho)
    sensitivity = Sensitivity(Fraction(1), l2_squared)
    multiplier = budget.multiplier(sensitivity, budget.total)
    assert budget.cost(sensitivity, multiplier) == rho
    exact = multiplier * bound**2
    if Fraction(MIN_SCALE) ** 2 <= exact <= Fraction(MAX_SCALE) ** 2:
        scale = scale_for(multiplier, bound, budget.noise)
        # sums move by up to sqrt(l2_squared) * bound: 2 rho sigma^2 >= D^2
        assert 2 * rho * Fraction(scale) ** 2 >= l2_squared * bound**2
        assert budget.natural_scale(multiplier) * bound == pytest.approx(scale)


@given(st.fractions(Fraction(1, 10**4), 10), st.fractions(Fraction(1, 10**12), Fraction(1, 2)))
@settings(max_examples=4)
def test_approximate_budgets_round_trip(epsilon, delta):
    budget = ApproxDP(epsilon, delta)
    assert budget_from_dict(budget.to_dict()) == budget
    smaller = ApproxDP(epsilon, delta, rho=budget.rho / 3)
    assert budget_from_dict(smaller.to_dict()) == smaller != budget
    other = budget.of_total(budget.rho / 2)
    assert budget_from_dict(other.to_dict()) == other
    assert (other.rho, other.delta) == (budget.rho / 2, delta)


def test_a_rho_that_another_machine_rounds_differently_is_read_and_a_larger_one_is_not():
    budget = ApproxDP(1, 1e-9)
    near = budget.to_dict() | {"rho": str(budget.rho * (1 + Fraction(1, 10**13)))}
    assert budget_from_dict(near).rho > budget.rho
    far = budget.to_dict() | {"rho": str(budget.rho + Fraction(1, 10**7))}
    with pytest.raises(FileFormatError, match="no larger than epsilon and delta allow"):
        budget_from_dict(far)
    with pytest.raises(BudgetError, match=r"rho must be at most 0\.0164161 for epsilon = 1"):
        ApproxDP(1, 1e-9, 0.0165)


def test_approximate_budgets_are_rho_at_the_exact_curve():
    budget = ApproxDP(1, Fraction(1, 10**6))
    assert budget == ApproxDP.from_epsilon_delta(1, 1e-6) != ZCDP(budget.rho, 1e-6)
    assert budget.total == budget.rho == ApproxDP.from_rho(budget.rho, 1e-6).rho
    zcdp, sensitivity = ZCDP(budget.rho), Sensitivity(Fraction(5), Fraction(3))
    assert budget.multiplier(sensitivity, budget.rho) == zcdp.multiplier(sensitivity, budget.rho)
    assert budget.law(3.0, 2) == zcdp.law(3.0, 2)
    assert 0.999 < budget.epsilon_at() <= 1 < ZCDP(budget.rho, 1e-6).epsilon_at()
    assert budget.epsilon_at(1e-12) > 1 > budget.epsilon_at(1e-3)


def test_large_budgets_are_cautioned_against():
    for budget, n, wanted in [
        (PureDP(10.5), 100, ["epsilon = 10.5"]),
        (ZCDP(5), 100, ["epsilon = "]),
        (ApproxDP(1, 1e-6), 1_000, []),
        (ApproxDP(1, 0.001), 1_000, ["at least 1/n"]),
        (ApproxDP(1, 0.002), None, ["delta = 0.002 is large"]),
    ]:
        found = cautions(budget, n)
        assert len(found) == len(wanted)
        assert all(text in line for text, line in zip(wanted, found, strict=True))
