"""Shares in groups: the joint law of the draws, limits, p-values and certified boxes."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
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
from dpstats.inference.simulation import draw_from
from dpstats.measured.answers import answer
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
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


@pytest.mark.parametrize(
    ("budget", "unit"), list(zip(BUDGETS, UNITS, strict=True)), ids=("zcdp", "approx")
)
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
    apart = np.sqrt(sum(group.privacy_variance for group in intervals.groups))
    assert sd > 1.05 * apart  # the groups' noises are negatively correlated


def test_limits_and_pvalues_agree():
    answers = counts_of(release_of(dps.ZCDP(Fraction("0.02"))))
    tested = DifferenceIntervals(answers)
    for alpha in (0.05, 0.2):
        low, high = tested.conf_int(alpha, "noise_aware", "population")
        for i, measure in enumerate(MEASURES):
            for end, out in ((low[i], -1e-9), (high[i], 1e-9)):
                assert tested.pvalue(measure, end + out, "two-sided") <= alpha
                assert tested.pvalue(measure, end - out, "two-sided") > alpha
    assert tested.pvalue("difference", 1.0, "larger") == 1
    assert tested.pvalue("difference", 1.0, "smaller") < 1e-6


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


def test_a_ratio_without_a_finite_draw_keeps_a_lower_end():
    answers = counts_of(release_of(dps.ZCDP(1)))
    sums = answers.sums.copy()
    sums[1] = -1e4  # nobody without the trait: infinite odds in every draw
    low, high = DrawnShares(replace(answers, sums=sums)).limits(0.05, sampled=False)
    assert np.isfinite(low).all()
    assert high[2] == np.inf


@pytest.mark.parametrize("rows_per_person", [1, 4])
def test_a_mean_of_zeros_and_ones_has_the_joint_noise_of_its_counts(rows_per_person):
    answers = counts_of(release_of(dps.ZCDP(1), rows_per_person=rows_per_person))
    mean, own = NoisyMean.of_trait(answers, 2), answers.noise_covariance[2:, 2:]
    assert own[0, 1] != 0
    expected = [[own.sum(), own[0].sum()], [own[0].sum(), own[0, 0]]]
    assert mean.covariance[:2, :2] == pytest.approx(np.array(expected))


def laplace(scale, reach):
    a, z = np.exp(-1 / scale), np.arange(-reach, reach + 1)
    return z, (1 - a) / (1 + a) * a ** np.abs(z)


@cache
def answers_at(scale):
    """Answers for four counts, with the trait and without in two groups, of a measured table."""
    schema = dps.Schema([dps.Category("group", [0, 1]), dps.Boolean("ill")])
    asked = {"all": dps.Marginals(["group", "ill"])}
    plan = dps.plan(schema, asked, budget=dps.PureDP(2 / Fraction(scale)))
    measured = dps.measure(plan, pd.DataFrame({"group": [0, 1] * 300, "ill": [True] * 600}))
    wanted = [
        dps.Cells.condition(schema, f"group == {group} and ill == {ill}")
        for group in (0, 1)
        for ill in ("True", "False")
    ]
    return answer(measured, wanted)


def drawn_of(rows, scale, seed):
    """Noisy counts of groups, each with rows that have the trait and rows that have not."""
    noise = draw_from(DiscreteLaplace(float(scale)), 4, np.random.default_rng(seed))
    uniforms = np.linspace(-0.4, 0.4, 4) + 1e-4 * seed  # of which the draws follow
    sums = np.ravel(rows) + noise
    return DrawnShares(replace(answers_at(scale), sums=sums, uniforms=uniforms))


def test_without_noise_they_are_mid_p_tests():
    whole = drawn_of([(6, 14), (1, 1)], Fraction(1, 1000), 0)
    drawn = DrawnShares(whole.answers.subset(slice(2)))
    for p in (0.1, 0.3, 0.6):
        expected = (stats.binom.sf(5, 20, p) + stats.binom.sf(6, 20, p)) / 2
        assert GroupIntervals(drawn.answers).pvalues(p, "larger")[0] == pytest.approx(
            expected, abs=0.004
        )
    low, high = drawn.limits(0.05)
    mid = [(stats.binom.cdf(5, 20, x) + stats.binom.cdf(6, 20, x)) / 2 for x in (low[0], high[0])]
    assert mid == pytest.approx([0.975, 0.025], abs=0.004)


@pytest.mark.parametrize(
    ("counts", "value", "tail"),
    [
        ([(600, 300), (1, 1)], 0.01, 4.2e-6), ([(450, 100), (1, 1)], 0.01, 4.6e-5),
        ([(500, 100), (400, 4_000)], 0.0, 2.4e-5),
    ],
)  # fmt: skip
def test_tails_beyond_the_draws(counts, value, tail):
    """Against the share of eight million draws: twice that, to a factor of two."""
    schema = dps.Schema([dps.Boolean("ill"), dps.Boolean("urban")])
    gap = dps.Difference("ill", by="urban")
    plan = dps.plan(schema, {"gap": gap}, budget=dps.PureDP(Fraction(1, 50)), unit="add_remove")
    frame = pd.DataFrame({"ill": [True, False] * 10, "urban": [True] * 10 + [False] * 10})
    answers = dps.release(plan, frame, m=10, k=10).infer("gap").intervals.answers
    uniforms = np.linspace(-0.4, 0.4, 4)
    drawn = DrawnShares(replace(answers, sums=np.ravel(counts).astype(float), uniforms=uniforms))
    if counts[1] == (1, 1):
        drawn = DrawnShares(drawn.answers.subset(slice(2)))
    assert 0.8 * tail < drawn.pvalue(0, value, "larger") < 6 * tail


def test_far_limits_of_persons_go_on():
    release = release_of(dps.ZCDP(2), rows_per_person=40)
    for intervals in (release.infer(RATE).intervals, release.infer(GAP).intervals):
        ends = [intervals.conf_int(a, "noise_aware", "population") for a in (1e-4, 1e-6, 1e-9)]
        widths = [high[0] - low[0] for low, high in ends]
        assert widths[0] < 0.97 * widths[1] < 0.97**2 * widths[2]


@pytest.mark.parametrize("p", [0.01, 0.3, 0.95])
@pytest.mark.parametrize(("size", "n"), [(0, 30), (30, 30), (30, 500), (30, None)])
def test_certified_coverage_by_enumeration(p, size, n):
    laws = DiscreteLaplace(2.0), DiscreteLaplace(1.0)
    (za, wa), (zc, wc) = laplace(2.0, 40), laplace(1.0, 20)
    x = np.arange(size + 1)[:, None, None]
    mass = stats.binom.pmf(x, size, p) * wa[:, None] * wc
    counts = np.broadcast_arrays(x + za[:, None], size - x + zc)
    low, high = certified_share(*counts, laws, (0.05, 0.025), n, "population")
    assert np.sum(mass * ((low <= p) & (p <= high))) >= 0.95
    assert np.all(low <= high)
    if size:
        low, high = certified_share(*counts, laws, (0.05, 0.05), n, "table")
        assert np.sum(mass * ((low <= x / size) & (x / size <= high))) >= 0.95
        assert np.all(low <= high)
