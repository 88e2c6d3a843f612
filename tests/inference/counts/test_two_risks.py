"""Two risks: the law of the statistic, its bound over sizes, level and coverage, and p-values."""

import numpy as np
import pytest
from scipy import stats

from dpstats.inference.counts.group_counts import GroupCounts
from dpstats.inference.counts.risk_measures import MEASURES, measure_of
from dpstats.inference.counts.two_risks import (
    _NARROW,
    _WIDE,
    _at,
    _critical,
    _curvatures,
    _Evidence,
    _evidence,
    _statistic,
    measure_interval,
    measure_pvalue,
    statistic_tail,
)
from dpstats.privacy.laws import DiscreteLaplace


def group(yes, size, scale, u=(0.1, -0.2)):
    law = DiscreteLaplace(scale)
    return GroupCounts(float(yes), float(size - yes), *u, law, law)


@pytest.mark.parametrize("k", [_NARROW, _WIDE])
def test_the_tail_is_that_of_normal_scores(k):
    x, s = np.random.default_rng(0).normal(size=(2, 400_000))
    for c in (0.5, 2.0, 3.0):
        two, one = (np.mean(value + s**2 / (2 * k) > c) for value in (np.abs(x), x))
        assert statistic_tail(c, k, sides=2) == pytest.approx(two, abs=0.003)
        assert statistic_tail(c, k, sides=1) == pytest.approx(one, abs=0.003)
    assert statistic_tail(_critical(0.048, k), k, sides=2) == pytest.approx(0.048, rel=1e-6)
    # a wide parabola is a pair of straight lines
    assert statistic_tail(5.0, 1e6, sides=2) == pytest.approx(2 * stats.norm.sf(5.0), rel=1e-4)


def test_between_two_angles_the_statistic_is_not_below_its_bound():
    """Random scores, and a range of angles: 31 of them by brute force."""
    rng, k = np.random.default_rng(1), _NARROW
    for z in rng.normal(0, 1.6, (400, 2)).clip(-4, 4):
        small, large = np.sort(rng.uniform(0.2, 2, (2, 2)), axis=0)
        point = [
            _Evidence(np.array([0.5]), *np.array([[v], [-v], [a], [b]]), 0.0)
            for v, a, b in zip(z, small, large, strict=True)
        ]
        found = _statistic(*point, "difference", "two-sided", k)[0]
        ends = np.arctan2([small[1], large[1]], [large[0], small[0]])
        angle = np.linspace(*ends, 31)
        x = z[0] * np.cos(angle) - z[1] * np.sin(angle)
        s = z[0] * np.sin(angle) + z[1] * np.cos(angle)
        exact = np.min(np.abs(x) + s**2 / (2 * k))
        assert found <= exact + 1e-9
        if x[0] * x[-1] > 0 and exact < k:
            assert found == pytest.approx(exact)


def simulate(size, risks, scale, runs, *, of_table=False, seed=3):
    """Share of runs in which each measure's interval covers, and the mean width of the first."""
    rng, law = np.random.default_rng(seed), DiscreteLaplace(scale)
    stop, covered, widths = -np.expm1(-1 / scale), np.zeros(3), []
    fixed = [round(n * p) for n, p in zip(size, risks, strict=True)]
    for _ in range(runs):
        groups, truth = [], list(risks)
        for i in (0, 1):
            x = fixed[i] if of_table else rng.binomial(size[i], risks[i])
            z, u = rng.geometric(stop, 2) - rng.geometric(stop, 2), rng.uniform(-0.5, 0.5, 2)
            counts = GroupCounts(float(x + z[0]), float(size[i] - x + z[1]), *u, law, law)
            groups.append(counts.of_table if of_table else counts)
            truth[i] = x / size[i] if of_table else truth[i]
        found = measure_interval(*groups, sum(size), 0.05)
        if found is None:  # the interval is then a certified one
            covered += 1
            continue
        low, high = found
        value = np.array([measure_of(*map(np.array, truth), m) for m in MEASURES])
        covered += (low <= value) & (value <= high)
        widths.append(high[0] - low[0])
    return covered / runs, float(np.mean(widths))


@pytest.mark.parametrize(
    ("size", "risks", "scale", "of_table", "width"),
    [
        ((60, 90), (0.97, 0.99), 2 / 3, False, 0.175),  # with straight boundaries .200
        ((400, 400), (0.5, 0.5), 20.0, False, 0.52),  # .75
        ((400, 400), (0.5, 0.5), 20.0, True, 0.5),  # .84 in a box
    ],
)
def test_coverage_and_width_thinned(size, risks, scale, of_table, width):
    """24 runs: a coverage below about .80 fails; slow tests of 400 runs see .91."""
    covered, found = simulate(size, risks, scale, 24, of_table=of_table)
    assert np.all(covered >= stats.binom.ppf(0.001, 24, 0.95) / 24)
    assert found < width


@pytest.mark.slow
@pytest.mark.parametrize("of_table", [False, True])
@pytest.mark.parametrize(
    ("size", "risks", "scale"),
    [
        ((60, 90), (0.97, 0.99), 2 / 3), ((400, 400), (0.5, 0.5), 20.0),
        ((20, 1_980), (0.5, 0.2), 0.4), ((200, 1_800), (0.02, 0.9), 10.0),
    ],
)  # fmt: skip
def test_coverage(size, risks, scale, of_table):
    """400 runs, standard error .011: fails below .917, which is 3 of them."""
    covered, _ = simulate(size, risks, scale, 400, of_table=of_table, seed=4)
    assert np.all(covered >= 0.95 - 3 * 0.011)


def test_each_pair_of_sizes_has_one_curvature():
    known, unknown = group(3_000, 9_000, 4.0), group(30, 90, 4.0)
    assert _curvatures(known, known, None, 1e-3) == [_WIDE]
    assert _curvatures(known, unknown, None, 1e-3) == [_NARROW]
    assert _curvatures(group(60, 165, 4.0), known, None, 1e-3) == [_NARROW, _WIDE]
    assert _curvatures(known.of_table, known.of_table, None, 1e-3) == [_NARROW]


@pytest.mark.parametrize("alpha", [0.2, 1e-3, 1e-5])
def test_pvalues_are_the_levels_at_which_the_interval_ends(alpha):
    one, two = group(330, 1_000, 3.0), group(1_010, 4_000, 3.0)
    low, high = measure_interval(one, two, 5_000, alpha, ("difference",))
    for end in (low[0], high[0]):
        at = measure_pvalue(one, two, 5_000, "difference", float(end), "two-sided")
        assert 0.3 * alpha < at < 1.1 * alpha  # ends are rounded outwards


def test_pvalues_fall_with_the_distance_and_have_no_floor():
    one, two = group(330, 1_000, 3.0), group(1_010, 4_000, 3.0)
    found = [
        measure_pvalue(one, two, 5_000, "difference", value, "two-sided")
        for value in (0.08, 0.02, -0.01, -0.025, -0.2)
    ]
    assert found[0] > 0.5
    assert np.all(np.diff(found[:4]) < 0)
    assert found[2] < 1e-3
    assert found[3] < 1e-6
    assert found[4] == 1e-9


@pytest.mark.parametrize(
    ("yes", "size", "risk"), [(1, 30, 0.00375), (4, 5_000, 9e-5), (4_997, 5_000, 0.99993)]
)
def test_scores_near_risks_of_zero_and_one_are_the_exact_ones(yes, size, risk):
    """With little noise they bend below one row; even nodes gave 1.9 for 1.25."""
    counts = group(yes, size, 0.2, (0.0, 0.0))
    found = _at(_evidence(counts, size, 0.001, 6.9), np.array([risk]))
    lower, upper = counts.tails(np.array([risk]), counts.sizes(size, 0.001))
    exact = stats.norm.isf([float(upper[0]), float(lower[0])])
    assert [float(found.above[0]), float(found.below[0])] == pytest.approx(exact, abs=0.03)
