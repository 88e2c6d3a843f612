"""Budgets are exact rationals, and every impossible one is refused with a reason."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import BudgetError, FileFormatError
from dpstats.privacy.budget import ZCDP, ApproxDP, PureDP, budget_from_dict
from dpstats.privacy.cautions import cautions
from dpstats.privacy.neighbours import Sensitivity
from dpstats.privacy.noise import MAX_SCALE, MIN_SCALE, scale_for
from dpstats.privacy.rationals import read_rational


def test_numbers_are_read_as_their_shortest_decimal():
    for value, exact in [
        (0.1, Fraction(1, 10)), (1e-7, Fraction(1, 10**7)), (5e-324, Fraction(5, 10**324)),
        (Decimal("0.30"), Fraction(3, 10)), (np.float32(0.1), Fraction(1, 10)),
        (np.int32(3), Fraction(3)),
    ]:  # fmt: skip
        read = read_rational(value, "epsilon")
        assert read == exact
        assert type(read) is Fraction


@given(
    kind=st.sampled_from([PureDP, ZCDP]),
    change=st.fractions(Fraction(1, 10**4), 10**6),
    amount=st.one_of(st.floats(1e-6, 50), st.fractions(Fraction(1, 10**6), 10**4), st.just(1 / 3)),
    bound=st.integers(1, 10**6),
)
@settings(max_examples=50)
def test_p03_p07_the_exact_cost_of_noise_is_within_the_budget(kind, change, amount, bound):
    """Sums move by the L1 or by the root of the squared L2 sensitivity, times the bound."""
    budget = kind(amount)
    laplace = kind is PureDP
    other = Fraction(7, 3)
    sensitivity = Sensitivity(change, other) if laplace else Sensitivity(other, change)
    multiplier = budget.multiplier(sensitivity, budget.total)
    assert budget.cost(sensitivity, multiplier) == budget.total
    power = 1 if laplace else 2
    if Fraction(MIN_SCALE) ** power <= multiplier * bound**power <= Fraction(MAX_SCALE) ** power:
        smallest = scale_for(multiplier, bound, budget.noise)
        scale, smaller = Fraction(smallest), Fraction(math.nextafter(smallest, 0))
        assert scale**power >= multiplier * bound**power > smaller**power
        cost = change * bound / scale if laplace else change * bound**2 / (2 * scale**2)
        assert cost <= budget.total
        assert budget.natural_scale(multiplier) * bound == pytest.approx(float(scale))


def test_bad_dicts_are_refused():
    approx = {"kind": "approx", "epsilon": "1", "delta": "1/1000000"}
    for d in [
        {}, {"kind": "renyi", "rho": "1"}, {"kind": "zcdp", "rho": "1", "delta": "1"},
        {"kind": "zcdp", "rho": "1", "delta": 1e-9}, {"kind": ["pure"], "epsilon": "1"},
        approx, approx | {"rho": "3/100"}, approx | {"epsilon": "0", "rho": "1/1000"},
        {"kind": "pure"}, {"kind": "pure", "epsilon": 0.1}, {"kind": "pure", "epsilon": "0"},
        {"kind": "pure", "epsilon": "1/0"}, {"kind": "pure", "epsilon": "1e999999999"},
    ]:  # fmt: skip
        with pytest.raises(FileFormatError, match="budget"):
            budget_from_dict(d)


def test_approximate_budgets_are_rho_that_is_read_back_and_no_larger_one():
    """A rho that another machine rounds differently is read."""
    budget = ApproxDP(1, Fraction(1, 10**6))
    assert budget == ApproxDP.from_epsilon_delta(1, 1e-6) != ZCDP(budget.rho, 1e-6)
    assert (budget.total, budget.law(3.0, 2)) == (budget.rho, ZCDP(budget.rho).law(3.0, 2))
    assert budget.epsilon_at(1e-12) > 1 > budget.epsilon_at(1e-3)
    for epsilon, delta in [(Fraction(1, 10**4), Fraction(1, 10**12)), (1, 1e-9), (10, 0.5)]:
        budget = ApproxDP(epsilon, delta)
        smaller = ApproxDP(epsilon, delta, rho=budget.rho / 3)
        other = budget.of_total(budget.rho / 2)
        assert (other.rho, other.delta) == (budget.rho / 2, budget.delta)
        for one in (budget, smaller, other):
            assert budget_from_dict(one.to_dict()) == one
        assert budget != smaller
    plain, rho = ApproxDP(1, 1e-9).to_dict(), ApproxDP(1, 1e-9).rho
    near = plain | {"rho": str(rho * (1 + Fraction(1, 10**13)))}
    assert budget_from_dict(near).rho > rho
    with pytest.raises(FileFormatError, match="no larger than epsilon and delta allow"):
        budget_from_dict(plain | {"rho": str(rho + Fraction(1, 10**7))})
    with pytest.raises(BudgetError, match=r"rho must be at most 0\.0164161 for epsilon = 1"):
        ApproxDP(1, 1e-9, 0.0165)


def test_large_budgets_are_cautioned_against():
    for budget, n, wanted in [
        (PureDP(10.5), 100, "epsilon = 10.5"),
        (ZCDP(5), 100, "epsilon = "),
        (ApproxDP(1, 0.001), 1_000, "at least 1/n"),
        (ApproxDP(1, 0.002), None, "delta = 0.002 is large"),
    ]:
        (found,) = cautions(budget, n)
        assert wanted in found
    assert cautions(ApproxDP(1, 1e-6), 1_000) == []
