"""Shares in groups: the joint law of the draws, limits, p-values and certified boxes."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.counts.group_shares import (
    MEASURES,
    DifferenceIntervals,
    DrawnShares,
    GroupIntervals,
    certified_share,
)
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.privacy.laws import DiscreteLaplace

SCHEMA = dps.Schema([
    dps.Category("ward", ["n", "s", "w"]), dps.Boolean("urban"), dps.Boolean("ill"),
])  # fmt: skip
PAIRS = {"pairs": dps.Marginals(["ward", "urban", "ill"], degree=2)}
GAP = dps.Difference("ill", by="ward", groups=("n", "s"))


def counts_of(budget, unit="replace", asked=PAIRS, **options):
    """Answers for four counts of the rows of a table, of which two groups are compared."""
    rng, n = np.random.default_rng(3), 3_000
    ward = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    codes = {"ward": ward, "urban": rng.random(n) < 0.3,
             "ill": rng.random(n) < np.array([0.3, 0.2, 0.5])[ward]}  # fmt: skip
    rows = SCHEMA.to_frame({name: code.astype(np.int64) for name, code in codes.items()})
    plan = dps.plan(SCHEMA, asked, budget=budget, unit=unit, **options)
    return dps.release(plan, rows, m=50).answers(GAP._counts(SCHEMA), disjoint=True)


def test_the_noise_of_a_difference_of_shares_is_that_of_both_groups_together():
    """Of the private table, where it is the only error: draws are nearly normal at this size."""
    intervals = DifferenceIntervals(counts_of(dps.ZCDP(1), "add_remove"))
    low, high = intervals.conf_int(0.05, "noise_aware", "table")
    sd = np.sqrt(intervals.noise_variances(np.array([[1.0, -1.0]]))).item()
    assert high[0] - low[0] == pytest.approx(2 * stats.norm.isf(0.025) * sd, rel=0.03)
    apart = np.sqrt(sum(group.privacy_variance for group in intervals.groups))
    assert sd > 1.05 * apart  # the groups' noises are negatively correlated


def test_limits_and_pvalues_agree():
    tested = DifferenceIntervals(counts_of(dps.ZCDP(Fraction("0.02"))))
    for alpha in (0.05, 0.2):
        low, high = tested.conf_int(alpha, "noise_aware", "population")
        for i, measure in enumerate(MEASURES):
            for end, out in ((low[i], -1e-9), (high[i], 1e-9)):
                assert tested.pvalue(measure, end + out, "two-sided") <= alpha
                assert tested.pvalue(measure, end - out, "two-sided") > alpha
    assert tested.pvalue("difference", 1.0, "larger") == 1
    assert tested.pvalue("difference", 1.0, "smaller") < 1e-6


def test_a_mean_of_zeros_and_ones_has_the_joint_noise_of_its_counts():
    answers = counts_of(dps.ZCDP(1), rows_per_person=4)
    mean, own = NoisyMean.of_trait(answers, 2), answers.noise_covariance[2:, 2:]
    assert own[0, 1] != 0
    expected = np.array([[own.sum(), own[0].sum()], [own[0].sum(), own[0, 0]]])
    assert mean.covariance[:2, :2] == pytest.approx(expected)


def drawn_of(counts, scale):
    """Draws for noisy counts of groups; of the first group alone if the other has (1, 1)."""
    sums, uniforms = np.ravel(counts).astype(float), np.linspace(-0.4, 0.4, 4)
    answers = counts_of(dps.PureDP(1 / scale), "add_remove", {"gap": GAP})
    answers = replace(answers, sums=sums, uniforms=uniforms)
    return DrawnShares(answers.subset(slice(2)) if counts[1] == (1, 1) else answers)


def test_without_noise_they_are_mid_p_tests():
    drawn = drawn_of([(6, 14), (1, 1)], Fraction(1, 1000))
    for p in (0.1, 0.3, 0.6):
        expected = (stats.binom.sf(5, 20, p) + stats.binom.sf(6, 20, p)) / 2
        (found,) = GroupIntervals(drawn.answers).pvalues(p, "larger")
        assert found == pytest.approx(expected, abs=0.004)
    ends = np.ravel(drawn.limits(0.05))
    mid = (stats.binom.cdf(5, 20, ends) + stats.binom.cdf(6, 20, ends)) / 2
    assert mid == pytest.approx([0.975, 0.025], abs=0.004)


@pytest.mark.parametrize(("counts", "value", "tail"), [
    ([(600, 300), (1, 1)], 0.01, 4.2e-6), ([(450, 100), (1, 1)], 0.01, 4.6e-5),
    ([(500, 100), (400, 4_000)], 0.0, 2.4e-5),
])  # fmt: skip
def test_tails_beyond_the_draws(counts, value, tail):
    """Against the share of eight million draws: twice that, to a factor of two."""
    drawn = drawn_of(counts, Fraction(50))
    assert 0.8 * tail < drawn.pvalue(0, value, "larger") < 6 * tail


@pytest.mark.parametrize(
    ("size", "n", "p"), [(0, 30, 0.3), (20, 20, 0.95), (20, 500, 0.01), (20, None, 0.3)]
)
def test_certified_coverage_by_enumeration(size, n, p):
    laws = DiscreteLaplace(2.0), DiscreteLaplace(1.0)
    x, za, zc = np.arange(size + 1)[:, None, None], np.arange(-30, 31)[:, None], np.arange(-15, 16)
    noise, other = (law.cdf(z) - law.cdf(z - 1) for law, z in zip(laws, (za, zc), strict=True))
    mass = stats.binom.pmf(x, size, p) * noise * other
    counts = np.broadcast_arrays(x + za, size - x + zc)
    for target, beta, truth in (("population", 0.025, p), ("table", 0.05, x / max(size, 1))):
        low, high = certified_share(*counts, laws, (0.05, beta), n, target)
        assert np.sum(mass * ((low <= truth) & (truth <= high))) >= 0.95
        assert np.all(low <= high)


def test_a_certified_share_of_the_table_is_over_a_box_of_both_counts():
    laws, counts = (DiscreteLaplace(5.0), DiscreteLaplace(9.0)), np.array([[300.0], [700.0]])
    a, b = (law.quantile(0.05) for law in laws)
    ends = np.ravel(certified_share(*counts, laws, (0.1, 0.1), None, "table"))
    np.testing.assert_allclose(ends, [(300 - a) / (1_000 - a + b), (300 + a) / (1_000 + a - b)])
