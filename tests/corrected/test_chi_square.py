"""The certified chi-square test of given probabilities."""

import itertools

import numpy as np
import pytest
from scipy import optimize, stats

from dpstats.corrected.chi_square import (
    chisquare,
    critical_value,
    statistic_range,
)


def value(x, p0):
    return ((x - p0) ** 2 / p0).sum()


def largest_at_vertices(lower, upper, p0):
    """All points of the box and the simplex with at most one coordinate inside."""
    d, best = len(p0), -np.inf
    for free in range(d):
        others = [i for i in range(d) if i != free]
        for ends in itertools.product((0, 1), repeat=d - 1):
            x = np.empty(d)
            x[others] = np.where(ends, upper[others], lower[others])
            x[free] = 1 - x[others].sum()
            if lower[free] - 1e-12 <= x[free] <= upper[free] + 1e-12:
                best = max(best, value(x, p0))
    return best


def boxes(count, seed, largest=7):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        d = int(rng.integers(2, largest))
        p0, x = rng.dirichlet(np.full(d, 2.0)), rng.dirichlet(np.full(d, 1.0))
        radius = rng.choice([0.001, 0.05, 0.3]) * rng.random(d if rng.random() < 0.5 else 1)
        centre = x + radius * rng.uniform(-1, 1, d)
        yield np.clip(centre - radius, 0, 1), np.clip(centre + radius, 0, 1), p0


def test_maximum_equals_brute_force():
    for lower, upper, p0 in boxes(60, 1):
        found = statistic_range(lower, upper, p0)[1]
        assert found == pytest.approx(largest_at_vertices(lower, upper, p0), rel=1e-7, abs=1e-12)


def test_minimum_equals_scipy():
    for lower, upper, p0 in boxes(20, 2):
        start = lower + (upper - lower) * (1 - lower.sum()) / max((upper - lower).sum(), 1e-300)
        best = optimize.minimize(
            value, start, (p0,), jac=lambda x, p0: 2 * (x - p0) / p0, method="SLSQP",
            bounds=list(zip(lower, upper, strict=True)),
            constraints=[{"type": "eq", "fun": lambda x: x.sum() - 1}],
            options={"ftol": 1e-14, "maxiter": 500},
        )  # fmt: skip
        found = statistic_range(lower, upper, p0)[0]
        assert found == pytest.approx(best.fun, rel=1e-5, abs=1e-7)
        assert found <= value(start, p0) + 1e-12


def test_critical_value_by_enumeration():
    """All tables of 12 rows in three cells: the level is right within Monte Carlo error."""
    n, p0 = 12, (0.2, 0.3, 0.5)
    tables = np.array([(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)])
    mass = stats.multinomial.pmf(tables, n, p0)
    statistics = ((tables - n * np.array(p0)) ** 2 / (n * np.array(p0))).sum(axis=1)
    for level in (0.01, 0.2):
        c = critical_value(n, p0, level)
        # five standard errors of a share
        slack = 5 * np.sqrt(level / max(19_999, 50 / level))
        assert mass[statistics > c].sum() <= level + slack
        assert mass[statistics >= c * (1 - 1e-6)].sum() >= level - slack
    assert critical_value(n, p0, 1e-7) == pytest.approx(n * (1 / 0.2 - 1))


@pytest.mark.parametrize("shift", [0.0, 0.12])
def test_verdicts_are_valid_for_the_worst_centre(shift):
    """100 tables; the centre is moved by the whole radius against the truth of each verdict."""
    rng = np.random.default_rng(5)
    n, radius, runs = 300, 0.02, 100
    p0 = np.full(4, 0.25)
    rejected = 0
    for x in rng.multinomial(n, p0 + shift * np.array([1, -1, 1, -1]), runs) / n:
        result = chisquare(x + radius * np.sign(x - p0), radius, n, p0)
        inner = n * value(x, p0)
        assert result.low - 1e-9 <= inner <= result.high + 1e-9
        assert result.verdict != "reject" or inner > result.critical
        assert result.verdict != "accept" or inner <= result.critical
        rejected += result.verdict == "reject"
    # at most alpha - beta = .025, and five standard errors; at .12 the test has power
    assert rejected / runs > 0.5 if shift else rejected / runs <= 0.025 + 5 * (0.025 / runs) ** 0.5


def test_a_box_without_tables_is_inconclusive():
    for centre in ([0.9, 0.9], [0.1, 0.2], [-2.0, 3.5]):
        result = chisquare(centre, 0.01, 100, [0.4, 0.6])
        assert result.verdict == "inconclusive"
        assert (result.low, result.high) == (0.0, pytest.approx(150))
    assert chisquare([0.3, 0.7], np.inf, 100, [0.4, 0.6]).verdict == "inconclusive"


def test_independence_of_a_table_in_a_box():
    rng = np.random.default_rng(0)
    for shape in ((2, 2), (3, 4), (2, 2, 3)):
        counts = rng.integers(50, 200, shape)
        n = int(counts.sum())
        tables = counts.reshape(-1, *shape[-2:])
        pearson = sum(stats.chi2_contingency(t, correction=False).statistic for t in tables)
        df = sum(stats.chi2_contingency(t).dof for t in tables)
        result = chisquare(counts / n, 1e-9, n)
        assert result.low <= pearson <= result.high
        assert result.high == pytest.approx(pearson, rel=1e-2)
        assert result.critical == pytest.approx(stats.chi2.isf(0.025, df))
        assert (result.verdict == "reject") == (result.low > result.critical)
        assert chisquare(counts / n, 0.2, n).verdict == "inconclusive"
    even = np.full((2, 2), 0.25)
    assert chisquare(even, 0.001, 1000).verdict == "accept"
    assert chisquare(even, 0.001, 12).verdict == "inconclusive"  # fewer than 5 expected


@pytest.mark.parametrize("d", [20, 200])
def test_many_cells_hold_every_table_of_the_box(d):
    rng = np.random.default_rng(3)
    p0 = np.full(d, 1 / d)
    x = rng.dirichlet(np.full(d, 5.0))
    radius = 0.5 / d
    lower, upper = np.clip(x - radius, 0, 1), np.clip(x + radius, 0, 1)
    least, most = statistic_range(lower, upper, p0)
    for _ in range(300):  # vertices by filling in a random order: feasible, often extreme
        order = (
            rng.permutation(d)
            if rng.random() < 0.5
            else np.argsort(-upper + rng.normal(0, radius, d))
        )
        room = (upper - lower)[order]
        point = lower.copy()
        point[order] += np.clip(1 - lower.sum() - (np.cumsum(room) - room), 0, room)
        assert least - 1e-12 <= value(point, p0) <= most + 1e-12
    assert most <= value(np.where(x > p0, upper, lower), p0) + 1e-9  # below the box alone
