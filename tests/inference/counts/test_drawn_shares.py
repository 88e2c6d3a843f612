"""Shares in groups whose counts share noise: the joint law of the draws, limits and p-values."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.inference.counts.difference_intervals import DifferenceIntervals
from dpstats.inference.counts.drawn_shares import DRAWS, DrawnShares
from dpstats.inference.counts.proportion_intervals import GroupIntervals
from dpstats.inference.counts.risk_measures import MEASURES
from dpstats.inference.moments.noisy_mean import NoisyMean
from dpstats.inference.simulation import draw_from
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Category("ward", ["n", "s", "w"]), dps.Boolean("urban"), dps.Boolean("ill"),
    dps.Number("age", 0, 40, edges=[10, 20, 30]),
])  # fmt: skip
PAIRS = {"pairs": dps.Marginals(["ward", "urban", "ill", "age"], degree=2)}
RATE = dps.Proportion("ill", given="ward == 'n'")
GAP = dps.Difference("ill", by="ward", groups=("n", "s"))
N = 3_000
UNITS = ("replace", "add_remove")
BUDGETS = (dps.ZCDP(Fraction("0.02")), dps.ApproxDP(1, 1e-6))


def survey(n=N):
    rng = np.random.default_rng(3)
    ward = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    return pd.DataFrame({
        "ward": np.array(["n", "s", "w"])[ward], "urban": rng.random(n) < 0.3,
        "ill": rng.random(n) < np.array([0.3, 0.2, 0.5])[ward], "age": rng.uniform(0, 40, n),
    })  # fmt: skip


def release_of(budget, unit="replace", rows=None, seed=1, **options):
    """With seeded noise."""
    rng = np.random.default_rng(seed)
    plan = dps.plan(SCHEMA, PAIRS, budget=budget, unit=unit, **options)
    with _noise_from(lambda scale, size: draw_from(DiscreteGaussian(scale), size, rng).astype(int)):
        return dps.release(plan, survey() if rows is None else rows, m=50)


def counts_of(release):
    return release.answers(GAP._counts(SCHEMA), disjoint=True)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("budget", BUDGETS, ids=("zcdp", "approx"))
@pytest.mark.parametrize(
    "asked",
    [
        RATE, GAP, dps.Quantile("age", given="ward == 'n'"), dps.Difference("urban", by="ill"),
        dps.Proportion("ill or urban", given="urban or ill == False"),
        dps.Proportion("age < 20", given="ward == 'n' or ward == 's'"),
    ],
    ids=("rate", "gap", "quantile", "boolean", "cells of one pair", "several levels"),
)  # fmt: skip
def test_what_follows_from_overlapping_tables_is_inferred(asked, budget, unit):
    """The custodian planned the pairs alone; no table was measured by itself."""
    result = release_of(budget, unit).infer(asked)
    for target in ("population", "table"):
        inner, outer = (
            np.atleast_2d(result.conf_int(method=method, target=target))
            for method in ("noise_aware", "certified")
        )
        assert np.all(np.isfinite(inner))
        assert np.all(outer[:, 0] <= inner[:, 0] + 1e-3)
        assert np.all(inner[:, 1] <= outer[:, 1] + 1e-3)
    assert result.summary()


@pytest.mark.parametrize("unit", UNITS)
def test_the_noise_of_a_difference_of_shares_is_that_of_both_groups_together(unit):
    """Of the private table, where it is the only error: draws are nearly normal at this size."""
    answers = counts_of(release_of(dps.ZCDP(1), unit))
    intervals = DifferenceIntervals(answers)
    low, high = intervals.conf_int(0.05, "noise_aware", "table")
    sd = np.sqrt(intervals.noise_variances(np.array([[1.0, -1.0]]))).item()
    assert high[0] - low[0] == pytest.approx(2 * stats.norm.isf(0.025) * sd, rel=0.03)
    apart = np.sqrt(sum(g.variances(g.risk, g.size(N))[1] for g in intervals.groups))
    assert sd > 1.05 * apart  # the groups' noises are negatively correlated


def test_counts_with_noises_of_their_own_give_what_their_tests_give():
    """To a few percent at these sizes: draws and tests are two approaches to one law."""
    plan = dps.plan(SCHEMA, {"own": GAP}, budget=dps.ZCDP(Fraction("0.02")))
    rng = np.random.default_rng(2)
    with _noise_from(lambda scale, size: draw_from(DiscreteGaussian(scale), size, rng).astype(int)):
        answers = counts_of(dps.release(plan, survey(), m=50))
    assert not answers.share_noise
    one = answers.subset(slice(2))
    for counts, tested in ((one, GroupIntervals(one)), (answers, DifferenceIntervals(answers))):
        for target in ("population", "table"):
            ends = np.array(tested.conf_int(0.05, "noise_aware", target))
            drawn = np.array(
                DrawnShares(counts).interval(0.05, tuple, sampled=target == "population")
            )
            width = ends[1] - ends[0]
            assert np.all(np.abs(ends - drawn) < 0.08 * width), target


def test_limits_and_pvalues_agree():
    answers = counts_of(release_of(dps.ZCDP(Fraction("0.02"))))
    tested, drawn = DifferenceIntervals(answers), DrawnShares(answers)
    for alpha in (0.05, 0.2):
        low, high = tested.conf_int(alpha, "noise_aware", "population")
        for i, measure in enumerate(MEASURES):
            for end, out in ((low[i], -1e-9), (high[i], 1e-9)):
                assert tested.pvalue(measure, end + out, "two-sided") <= alpha
                assert tested.pvalue(measure, end - out, "two-sided") > alpha
    assert drawn.pvalue(0, 1.0, "smaller") == 1 / DRAWS
    assert drawn.pvalue(0, 1.0, "larger") == 1
    result = release_of(dps.ZCDP(Fraction("0.02"))).infer(GAP)
    assert result.test(-1).pvalue == tested.least_pvalue == 2 / DRAWS
    assert "no p-value is below 0.0001" in str(result.test(-1))


def test_intervals_are_nested_where_the_draws_end():
    """Beyond them they contain the certified ones."""
    release = release_of(dps.ZCDP(1))
    for intervals in (release.infer(RATE).intervals, release.infer(GAP).intervals):
        for target in ("population", "table"):
            levels = (0.3, 0.05, 1e-3, 1e-4, 1e-6, 1e-9)
            ends = np.array([intervals.conf_int(a, "noise_aware", target) for a in levels])
            assert np.all(np.diff(ends[:, 0], axis=0) <= 0)
            assert np.all(np.diff(ends[:, 1], axis=0) >= 0)
            certified = intervals.conf_int(1e-6, "certified", target)
            assert np.all(ends[4, 0] <= certified[0])
            assert np.all(ends[4, 1] >= certified[1])


@pytest.mark.parametrize("unit", UNITS)
def test_a_group_that_noise_hides_says_nothing(unit):
    rows = survey()
    result = release_of(dps.ZCDP(Fraction("1e-5")), unit, rows[rows.ward != "n"]).infer(RATE)
    assert np.asarray(result.conf_int()) == pytest.approx([0, 1], abs=0.01)
    gap = release_of(dps.ZCDP(Fraction("1e-5")), unit, rows[rows.ward != "n"]).infer(GAP)
    low, high = np.asarray(gap.conf_int(target="table")).T
    assert np.all(low <= [-0.4, 0, 0])
    assert np.all(high[1:] == np.inf)


def test_a_ratio_without_a_finite_draw_keeps_a_lower_end():
    answers = counts_of(release_of(dps.ZCDP(1)))
    sums = answers.sums.copy()
    sums[1] = -1e4  # nobody without the trait: infinite odds in every draw
    low, high = DrawnShares(replace(answers, sums=sums)).interval(0.05, tuple, sampled=False)
    assert np.isfinite(low).all()
    assert high[2] == np.inf


@pytest.mark.parametrize("unit", UNITS)
def test_persons_have_wider_intervals(unit):
    one, several = (release_of(dps.ZCDP(2), unit, rows_per_person=k).infer(GAP) for k in (1, 4))
    widths = [np.diff(np.asarray(result.conf_int())[0]).item() for result in (one, several)]
    assert widths[1] > 1.5 * widths[0]
    assert several.rows.allowed_for


def test_combined_answers_are_about_as_good_as_the_table_with_the_same_noise():
    """Widths with the noise on a count that the table of both columns alone would have."""
    combined = counts_of(release_of(dps.ZCDP(Fraction("0.05"))))
    wanted, rho = np.diag(combined.noise_covariance).mean(), 0.05
    for _ in range(2):  # the variance is one over rho, nearly
        plan = dps.plan(SCHEMA, {"own": GAP}, budget=dps.ZCDP(rho))
        alone = counts_of(dps.release(plan, survey(), m=50))
        rho *= np.diag(alone.noise_covariance).mean() / wanted
    alone = replace(alone, sums=combined.sums)
    assert not alone.share_noise
    for target in ("population", "table"):
        for made, of in ((GroupIntervals, slice(2)), (DifferenceIntervals, slice(4))):
            width, of_alone = (
                np.subtract(*made(some.subset(of)).conf_int(0.05, "noise_aware", target)[::-1])
                for some in (combined, alone)
            )
            assert np.all(width < 1.2 * of_alone), target


@pytest.mark.parametrize("rows_per_person", [1, 4])
def test_a_mean_of_zeros_and_ones_has_the_joint_noise_of_its_counts(rows_per_person):
    answers = counts_of(release_of(dps.ZCDP(1), rows_per_person=rows_per_person))
    mean, own = NoisyMean.of_trait(answers, 2), answers.noise_covariance[2:, 2:]
    assert own[0, 1] != 0
    expected = [[own.sum(), own[0].sum()], [own[0].sum(), own[0, 0]]]
    assert mean.covariance[:2, :2] == pytest.approx(np.array(expected))
