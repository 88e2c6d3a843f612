"""Privacy in words: the bounds are those of the best test between two neighbours."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

import dpstats as dps
from dpstats.privacy.neighbours import Neighbours
from dpstats.reports.page import most_power, most_power_under, of_several, promise


def test_no_test_of_a_noisy_count_has_more_power_than_stated():
    for epsilon in [0.1, 0.5, 1, 3]:
        # Neyman and Pearson: among tests of level alpha, one that rejects above a threshold, and at
        # it with some probability, is the most powerful for counts that differ by one.
        masses = np.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(np.arange(-400, 401)))
        null, other = masses[::-1], np.roll(masses, 1)[::-1]
        alpha = 0.05
        share = np.clip((alpha - null.cumsum() + null) / np.maximum(null, 1e-300), 0, 1)
        power = share @ other
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


def test_the_promise_names_the_neighbours():
    pure, persons = Neighbours(), Neighbours("add_remove", 3)
    for budget, neighbours, number, says in [
        (dps.PureDP(1), pure, 0, "within a factor of 2.72."),
        (dps.PureDP(40), pure, 0, f"exp({40:g})"),
        (dps.PureDP(1), pure, 1, "13.6%"),
        (dps.PureDP(1), pure, -1, "The number of rows is public"),
        (dps.ApproxDP(1, 1e-9), Neighbours("add_remove"), 0, "probability of at most 1e-09"),
        (dps.ApproxDP(1, 1e-9), Neighbours("add_remove"), 1, "whether a given row is in the table"),
        (dps.PureDP(1), Neighbours(rows_per_person=3), 0, "content of up to 3 rows of one person"),
        (dps.PureDP(1), Neighbours(rows_per_person=3), 1, "two sets of values the rows of a given"),
        (dps.PureDP(1), persons, 0, "up to 3 rows of one person that are there or not"),
    ]:
        assert says in promise(budget, neighbours)[number]
    assert "number of rows" not in " ".join(promise(dps.PureDP(1), Neighbours("add_remove")))
    _, rows = of_several(dps.ZCDP(0.1), 3)
    assert [row[0] for row in rows] == ["3 rows", "6 rows", "15 rows"]
    assert [row[1] for row in rows] == [str(dps.ZCDP(Fraction(k, 10))) for k in (1, 4, 25)]
