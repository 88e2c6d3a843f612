"""Privacy in words: the bounds are those of the best test between two neighbours."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

import dpstats as dps
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.neighbours import Neighbours
from dpstats.reports.page import (
    most_power,
    most_power_under,
    of_several,
    promise,
)


def test_no_test_of_a_noisy_count_has_more_power_than_stated():
    for epsilon in [0.1, 0.5, 1, 3]:
        # Neyman and Pearson: among tests of level alpha, one that rejects above a threshold, and at
        # it with some probability, is the most powerful for counts that differ by one.
        law = DiscreteLaplace(1 / epsilon)
        steps = np.arange(-400, 401)
        masses = np.array([float(law.pmf(step)) for step in steps])
        alpha, power, left = 0.05, 0.0, 0.05
        for null, other in zip(masses[::-1], np.roll(masses, 1)[::-1], strict=True):
            share = 1.0 if null <= left else left / null
            power, left = power + share * other, left - share * null
            if left <= 0:
                break
        bound = most_power(epsilon, 0.0, alpha)
        assert power <= bound + 1e-9
        assert power == pytest.approx(bound, rel=0.05)  # and the bound is nearly reached


def test_no_test_under_rho_has_more_power_than_stated():
    for rho in [0.001, 0.1, 1, 2.9, 8]:
        alpha = 0.05
        bound = most_power_under(dps.ZCDP(Fraction(rho)), alpha)
        # The best test of a Gaussian mechanism of this rho.
        best = float(norm.cdf(np.sqrt(2 * rho) + norm.ppf(alpha)))
        assert best <= bound < 1
        # Any larger power would show in a Renyi divergence of the test's outcome, either way round.
        power = bound + (1 - bound) / 1000
        orders = 1 + np.geomspace(1e-3, 1e3, 2000)
        divergences = [
            np.logaddexp(a * np.log(p) + (1 - a) * np.log(q),
                         a * np.log1p(-p) + (1 - a) * np.log1p(-q)) / (a - 1) - a * rho
            for p, q in ((power, alpha), (alpha, power))
            for a in orders
        ]  # fmt: skip
        assert max(divergences) > 0


def test_the_power_under_approximate_privacy_is_that_of_its_rho():
    budget = dps.ApproxDP(8, Fraction(1, 10**6))
    assert most_power(8, 1e-6) > 0.999  # epsilon and delta alone promise nothing
    assert most_power_under(budget) == most_power_under(dps.ZCDP(budget.rho)) < 0.62
    assert "at most 60.9%;" in promise(budget, Neighbours("replace"))[1]


def test_the_rows_of_one_person_are_protected_together():
    _, rows = of_several(dps.ZCDP(0.1), 3)
    assert [row[0] for row in rows] == ["3 rows", "6 rows", "15 rows"]
    assert [row[1] for row in rows] == [str(dps.ZCDP(Fraction(k, 10))) for k in (1, 4, 25)]
    replaced = promise(dps.PureDP(1), Neighbours(rows_per_person=3))
    assert "differ in the content of up to 3 rows of one person lead to" in replaced[0]
    assert "which of two sets of values the rows of a given person have" in replaced[1]
    added = promise(dps.PureDP(1), Neighbours("add_remove", 3))
    assert "differ by up to 3 rows of one person that are there or not" in added[0]


def test_the_promise_names_the_neighbours():
    pure, approx = (
        promise(dps.PureDP(1), Neighbours()),
        promise(dps.ApproxDP(1, 1e-9), Neighbours("add_remove")),
    )
    assert "within a factor of 2.72." in pure[0]
    assert "13.6%" in pure[1]
    assert pure[-1].startswith("The number of rows is public")
    assert "up to an additional probability of at most 1e-09" in approx[0]
    assert "whether a given row is in the table" in approx[1]
    assert "number of rows" not in " ".join(approx)
    assert f"exp({40:g})" in promise(dps.PureDP(40), Neighbours())[0]
