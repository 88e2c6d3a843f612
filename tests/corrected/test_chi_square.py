"""The certified chi-square tests: ranges against brute force, levels and verdicts."""

import itertools

import numpy as np
import pytest
from scipy import optimize, stats

from dpstats.corrected.chi_square import (
    chisquare,
    critical_value,
    fourfold_bounds,
    independence_verdict,
    statistic_bounds,
    statistic_range,
)


def value(x, p0):
    return ((x - p0) ** 2 / p0).sum()


def largest_at_vertices(lower, upper, p0):
    """All points of the box and the simplex with at most one coordinate inside."""
    best = -np.inf
    for free, *ends in itertools.product(range(len(p0)), *[(0, 1)] * (len(p0) - 1)):
        x = np.where(np.insert(ends, free, 0), upper, lower)
        x[free] += 1 - x.sum()
        if lower[free] - 1e-12 <= x[free] <= upper[free] + 1e-12:
            best = max(best, value(x, p0))
    return best


def smallest_by_scipy(lower, upper, p0):
    start = lower + (upper - lower) * (1 - lower.sum()) / max((upper - lower).sum(), 1e-300)
    return optimize.minimize(
        value, start, (p0,), jac=lambda x, p0: 2 * (x - p0) / p0, method="SLSQP",
        bounds=list(zip(lower, upper, strict=True)),
        constraints=[{"type": "eq", "fun": lambda x: x.sum() - 1}],
        options={"ftol": 1e-14, "maxiter": 500},
    ).fun  # fmt: skip


def test_the_range_is_that_of_brute_force():
    rng = np.random.default_rng(1)
    for run in range(45):
        d = int(rng.integers(2, 7))
        p0, x = rng.dirichlet(np.full(d, 2.0)), rng.dirichlet(np.full(d, 1.0))
        radius = rng.choice([0.001, 0.05, 0.3]) * rng.random(d if run % 2 else 1)
        centre = x + radius * rng.uniform(-1, 1, d)
        box = np.clip(centre - radius, 0, 1), np.clip(centre + radius, 0, 1), p0
        least, most = statistic_range(*box)
        assert most == pytest.approx(largest_at_vertices(*box), rel=1e-7, abs=1e-12)
        if run % 3 == 0:
            assert least == pytest.approx(smallest_by_scipy(*box), rel=1e-5, abs=1e-7)


def test_many_cells_hold_every_table_of_the_box():
    rng, d = np.random.default_rng(3), 200
    p0, x, radius = np.full(d, 1 / d), rng.dirichlet(np.full(d, 5.0)), 0.5 / d
    lower, upper = np.clip(x - radius, 0, 1), np.clip(x + radius, 0, 1)
    least, most = statistic_range(lower, upper, p0)
    for run in range(100):  # vertices by filling in some order: feasible, often extreme
        order = np.argsort(-upper + rng.normal(0, radius, d)) if run % 2 else rng.permutation(d)
        room = (upper - lower)[order]
        point = lower.copy()
        point[order] += np.clip(1 - lower.sum() - (np.cumsum(room) - room), 0, room)
        assert least - 1e-12 <= value(point, p0) <= most + 1e-12
    assert most <= value(np.where(x > p0, upper, lower), p0) + 1e-9  # below the box alone


def test_critical_value_by_enumeration():
    """All tables of 12 rows in three cells: the level is right within Monte Carlo error."""
    n, p0 = 12, (0.2, 0.3, 0.5)
    tables = np.array([(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)])
    mass = stats.multinomial.pmf(tables, n, p0)
    statistics = ((tables - n * np.array(p0)) ** 2 / (n * np.array(p0))).sum(axis=1)
    for level in (0.01, 0.2):
        c = critical_value(n, p0, level)
        slack = 5 * np.sqrt(level / max(19_999, 50 / level))  # five standard errors of a share
        assert mass[statistics > c].sum() <= level + slack
        assert mass[statistics >= c * (1 - 1e-6)].sum() >= level - slack
    assert critical_value(n, p0, 1e-7) == pytest.approx(n * (1 / 0.2 - 1))


@pytest.mark.parametrize("shift", [0.0, 0.12])
def test_verdicts_are_valid_for_the_worst_centre(shift):
    """100 tables; the centre is moved by the whole radius against the truth of each verdict."""
    n, radius, runs, rejected, p0 = 300, 0.02, 100, 0, np.full(4, 0.25)
    moved = p0 + shift * np.array([1, -1, 1, -1])
    for x in np.random.default_rng(5).multinomial(n, moved, runs) / n:
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
    assert fourfold_bounds(np.zeros((2, 2)), np.ones((2, 2))) == (0, 1)
    assert fourfold_bounds(np.full((2, 2), 0.4), np.full((2, 2), 0.5)) == (0, 1)
    # Noise can put more rows into the strata than the bounds on their number allow.
    low = np.zeros((2, 2, 2))
    low[0] = 50.0
    for sizes in ((1, 1), (1, 120)):
        verdict = independence_verdict(low, low + 10, sizes, 0.05, 0.025)
        assert 0 <= verdict.low <= verdict.high
        assert verdict.verdict == "inconclusive"


def test_independence_of_a_table_in_a_box():
    rng = np.random.default_rng(0)
    for shape in ((2, 2), (3, 4), (2, 2, 3)):
        counts = rng.integers(50, 200, shape)
        n = int(counts.sum())
        tests = [stats.chi2_contingency(t, correction=False)
                 for t in counts.reshape(-1, *shape[-2:])]  # fmt: skip
        pearson, df = sum(test.statistic for test in tests), sum(test.dof for test in tests)
        result = chisquare(counts / n, 1e-9, n)
        assert result.low <= pearson <= result.high
        assert result.high == pytest.approx(pearson, rel=1e-2)
        assert result.critical == pytest.approx(stats.chi2.isf(0.025, df))
        assert (result.verdict == "reject") == (result.low > result.critical)
        assert chisquare(counts / n, 0.2, n).verdict == "inconclusive"
    even = np.full((2, 2), 0.25)
    assert chisquare(even, 0.001, 1000).verdict == "accept"


def test_without_expected_counts_of_five_there_is_no_verdict_and_it_says_why():
    few, enough = (
        independence_verdict(counts, counts, (400, 400), 0.05, 0.0)
        for counts in (np.diag([2.0, 398.0])[np.newaxis], np.diag([50.0, 350.0])[np.newaxis])
    )
    assert few.low == pytest.approx(400)
    assert few.low > few.critical
    assert few.verdict == "inconclusive"
    assert str(few).endswith(few.reason)
    assert "expected counts of 5 are not certain" in few.reason
    assert (enough.verdict, enough.reason) == ("reject", "")


def pearson_of(tables):
    """Pearson's statistic of (m, R, C) counts."""
    rows, columns = tables.sum(axis=2, keepdims=True), tables.sum(axis=1, keepdims=True)
    expected = rows * columns / rows.sum(axis=1, keepdims=True)
    return ((tables - expected) ** 2 / expected).sum(axis=(1, 2))


def test_fourfold_bounds_are_the_extremes_of_a_dense_grid():
    """A grid of 31 steps misses an extreme by little; the bounds by a thousandth."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centre, radius = rng.dirichlet(np.ones(4) * 3).reshape(2, 2), rng.uniform(0.002, 0.03)
        low, high = np.maximum(centre - radius, 0.004), centre + radius
        axes = [np.linspace(low.flat[i], high.flat[i], 31) for i in range(3)]
        cells = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3)
        last = 1 - cells.sum(axis=1)
        kept = (last >= low[1, 1]) & (last <= high[1, 1])
        values = pearson_of(np.column_stack([cells, last])[kept].reshape(-1, 2, 2))
        lower, upper = fourfold_bounds(low, high)
        slack = 0.1 * np.ptp(values) + 1e-8
        assert values.min() * 0.998 - slack <= lower <= values.min() + 1e-12
        assert values.max() - 1e-12 <= upper <= values.max() * 1.002 + slack


@pytest.mark.parametrize(("shape", "radius"), [((2, 2), 40), ((2, 3), 3), ((4, 7), 3)])
def test_every_table_in_the_box_is_within_the_bounds(shape, radius):
    rng, n = np.random.default_rng(radius), 5_000
    for _ in range(2):
        centre = rng.multinomial(n, rng.dirichlet(np.full(np.prod(shape), 3.0))).reshape(shape)
        low, high = centre - radius, centre + radius
        lower, upper = statistic_bounds(low, high, n)
        moved = rng.choice([-radius, 0, radius], (2_000, *shape))
        moved = moved - np.rint(moved.mean(axis=(1, 2), keepdims=True))
        tables = (centre + moved).astype(float)
        tables[:, -1, -1] += n - tables.sum(axis=(1, 2))
        kept = np.all((tables >= np.maximum(low, 0)) & (tables <= high), axis=(1, 2))
        kept &= np.all(tables.sum(axis=1) > 0, axis=1) & np.all(tables.sum(axis=2) > 0, axis=1)
        values = pearson_of(np.concatenate([tables[kept], centre[np.newaxis]]))
        assert lower <= values.min()
        assert values.max() <= upper <= n * (min(shape) - 1) * (1 + 1e-12)
