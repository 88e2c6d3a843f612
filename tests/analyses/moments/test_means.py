"""Mean, MeanDifference and Correlation: textbook numbers without noise, honest ones with it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

import dpstats as dps
from dpstats.corrected.means import mean_confint
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Number("age", 0, 100, points=201, missing=40),
    dps.Number("pay", -10, 30, points=401, missing=0),
    dps.Number("score", values=[17.5, 22, 27, 40], missing=22),
    dps.Number("bare", 0, 1),
    dps.Category("region", ["n", "s", "w"]),
    dps.Boolean("ill"),
])  # fmt: skip
N = 900
ANALYSES = {
    "one": dps.Mean("pay"),
    "means": dps.Mean(["age", "pay", "score"]),
    "difference": dps.MeanDifference("pay", by="region", groups=("s", "n")),
    "small": dps.MeanDifference("age", by="region", groups=("n", "w")),
    "ill": dps.MeanDifference("score", by="ill"),
    "pair": dps.Correlation(["age", "pay"]),
    "pairs": dps.Correlation(["score", "age", "pay"]),
}


def rows(n=N):
    rng = np.random.default_rng(4)
    age = (2 * rng.normal(45, 15, n).clip(0, 100)).round() / 2
    return pd.DataFrame({
        "age": age,
        "pay": (age / 5 + rng.normal(0, 4, n)).clip(-10, 30).round(1),
        "score": rng.choice([17.5, 22, 27, 40], n, p=[0.1, 0.2, 0.4, 0.3]),
        "bare": rng.random(n),
        "region": rng.choice(["n", "s", "w"], n, p=[0.6, 0.38, 0.02]),
        "ill": rng.random(n) < 0.3,
    })  # fmt: skip


class Seeded:
    """Noise with a seed, for the test seam."""

    def __init__(self, noise):
        self.rng, self.noise = np.random.default_rng(12), noise

    def __call__(self, scale, size):
        if self.noise == "gaussian":
            return np.rint(self.rng.normal(0, scale, size)).astype(np.int64)
        one, other = self.rng.geometric(-np.expm1(-1 / scale), (2, size))
        return one - other


def released_from(frame, budget, unit="replace"):
    """All analyses, with seeded noise."""
    plan = dps.plan(SCHEMA, ANALYSES, budget=budget, unit=unit, reference=dps.Uniform())
    with _noise_from(Seeded(budget.noise)):
        measured = dps.measure(plan, frame)
    return dps.synthesize(measured, rng=0, m=200, k=50)


@cache
def released(budget, unit="replace"):
    """The same of the usual rows, once."""
    return released_from(rows(), budget, unit)


@cache
def exact(unit):
    """All analyses, with the fixture `no_noise` and a law of the noise that is next to zero."""
    plan = dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(1e7), unit=unit, reference=dps.Uniform())
    return dps.release(plan, rows(), rng=0, m=200, k=50)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_without_noise_a_mean_is_that_of_statsmodels(no_noise, unit):
    release, frame = exact(unit), rows()
    result = release.infer("means")
    for i, name in enumerate(["age", "pay", "score"]):
        known = DescrStatsW(frame[name])
        assert result.params[i] == pytest.approx(known.mean, rel=1e-12)
        assert result.bse[i] == pytest.approx(known.std_mean, rel=1e-8)
        np.testing.assert_allclose(result.conf_int()[i], known.tconfint_mean(), rtol=1e-8)
    pay = DescrStatsW(frame["pay"])
    one = release.infer("one")
    for ours, theirs in (("two-sided", "two-sided"), ("larger", "larger"), ("smaller", "smaller")):
        statistic, pvalue, _ = pay.ttest_mean(9.3, theirs)
        test = one.test(9.3, ours)
        assert test.pvalue == pytest.approx(pvalue, rel=1e-8)
        assert test.statistic == pytest.approx(statistic, rel=1e-8)
    np.testing.assert_allclose(one.conf_int(target="table"), [pay.mean] * 2, rtol=1e-8)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("name", ["difference", "small", "ill"])
def test_without_noise_a_difference_is_that_of_welch(no_noise, unit, name):
    release, frame = exact(unit), rows()
    first, second, column = {
        "difference": (frame["region"] == "s", frame["region"] == "n", "pay"),
        "small": (frame["region"] == "n", frame["region"] == "w", "age"),
        "ill": (frame["ill"], ~frame["ill"], "score"),
    }[name]
    welch = CompareMeans(DescrStatsW(frame[column][first]), DescrStatsW(frame[column][second]))
    result = release.infer(name)
    statistic, pvalue, _ = welch.ttest_ind(usevar="unequal", value=0.1)
    expected = welch.tconfint_diff(usevar="unequal")
    np.testing.assert_allclose(result.conf_int(), expected, rtol=1e-8)
    assert result.params[0] == pytest.approx(np.mean(expected), rel=1e-8)
    assert result.bse[0] == pytest.approx(welch.std_meandiff_separatevar, rel=1e-8)
    test = result.test(0.1)
    assert test.pvalue == pytest.approx(pvalue, rel=1e-8)
    assert test.statistic == pytest.approx(statistic, rel=1e-8)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_without_noise_a_correlation_is_that_of_scipy(no_noise, unit):
    release, frame = exact(unit), rows()
    pairs = release.infer("pairs")
    for i, (a, b) in enumerate([("score", "age"), ("score", "pay"), ("age", "pay")]):
        known = stats.pearsonr(frame[a], frame[b])
        assert pairs.params[i] == pytest.approx(known.statistic, rel=1e-8)
        ours, fisher = np.arctanh([pairs.conf_int()[i], known.confidence_interval()])
        assert ours.mean() == pytest.approx(fisher.mean(), rel=1e-8)
        spread = float((np.ptp(ours) / np.ptp(fisher)) ** 2)
        assert spread == pytest.approx(max(1, resampled_spread(a, b)), rel=0.15)
    names = ["score", "age", "pay"]
    np.testing.assert_allclose(pairs.matrix, frame[names].corr(), rtol=1e-8)
    assert list(pairs.matrix.columns) == names
    test = release.infer("pair").test(0.55)
    error = np.ptp(ours) / 2 / stats.norm.isf(0.025)
    score = (np.arctanh(pairs.params[2]) - np.arctanh(0.55)) / error
    assert test.pvalue == pytest.approx(2 * stats.norm.sf(abs(score)), rel=1e-6)


@cache
def resampled_spread(a, b):
    """N times the variance of atanh r over resampled rows."""
    values, rng = rows()[[a, b]].to_numpy(dtype=float), np.random.default_rng(0)
    drawn = [np.corrcoef(values[rng.integers(0, N, N)].T)[0, 1] for _ in range(1_000)]
    return N * np.var(np.arctanh(drawn))


@pytest.mark.parametrize(("name", "target", "alpha"), [
    ("difference", "population", 0.05), ("ill", "table", 0.05), ("difference", "table", 0.3),
])  # fmt: skip
def test_a_certified_difference_gives_each_group_half_of_alpha(name, target, alpha):
    result = released(dps.PureDP(20)).infer(name)
    contrast = result.intervals
    (low, high), (other_low, other_high) = (
        replace(contrast, groups=(group,)).certified(alpha / 2, target) for group in contrast.groups
    )
    found = result.conf_int(alpha=alpha, method="certified", target=target)
    corners = low - other_high, high - other_low
    np.testing.assert_allclose(found, np.concatenate(corners), rtol=1e-9)
    assert np.ptp(found) < 40  # some of what is possible is left out


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_a_certified_mean_spends_a_third_of_alpha_on_the_noise(unit):
    result = released(dps.PureDP(20), unit).infer("one")
    (group,) = result.intervals.parts[0].groups
    low, high, variance, size = group.box(0.02)
    low, high = mean_confint(np.array([low]), np.array([high]), np.array([variance]), size, 0.04)
    found = result.conf_int(alpha=0.06, method="certified")
    np.testing.assert_allclose(found, [10 + 20 * low[0], 10 + 20 * high[0]], rtol=1e-9)
    table = result.conf_int(alpha=0.06, target="table")  # has no rows to pay for
    box = 10 + 20 * np.array(group.box(0.06, squares=False)[:2])
    if unit == "replace":
        np.testing.assert_allclose(table, box)
    else:  # the number of rows is noisy too, and a box pays for it twice
        assert box[0] < table[0] < table[1] < box[1]


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_drowned_signals_give_all_that_is_possible_and_a_sentence(unit, seeded_noise):
    with _noise_from(seeded_noise(1)):
        release = released(dps.PureDP(0.003), unit)
    possible = {"one": (-10, 30), "difference": (-40, 40), "pair": (-1, 1)}
    for name, ends in possible.items():
        result = release.infer(name)
        for method in ("noise_aware", "certified"):
            found = result.conf_int(alpha=0.001, method=method)
            np.testing.assert_allclose(found, ends, atol=1e-6, err_msg=f"{name} {method}")
        assert result.test(0.3).pvalue > 0.02
    assert "exceeds the signal in pay" in release.infer("one").summary()
    assert "or small relative to the noise" in release.infer("difference").summary()


def test_rare_two_point_numbers_and_rare_shares_are_noted(seeded_noise):
    """A number of 0 and 99 in 1% of 300 rows, and one of 40% of them; the notes are noisy ones."""
    schema = dps.Schema([
        *(dps.Number(name, 0, 99, missing=0) for name in ("rare", "common", "near")),
        dps.Boolean("ill"), dps.Boolean("old"),
    ])  # fmt: skip
    i = np.arange(300)
    frame = pd.DataFrame({
        "rare": 99.0 * (i < 3), "common": 99.0 * (i < 120), "near": 1.0 + i % 2,
        "ill": i < 3, "old": i < 150,
    })  # fmt: skip
    asked = {"means": dps.Mean(["rare", "common", "near"]), "ill": dps.Proportion("ill"),
             "old": dps.Proportion("old"), "given": dps.Proportion("ill", given="old"),
             "cells": dps.Marginals(["ill", "old"], 1),
             "gap": dps.MeanDifference("rare", by="old")}  # fmt: skip
    plan = dps.plan(schema, asked, budget=dps.PureDP(300), reference=dps.Uniform())
    with _noise_from(seeded_noise(1)):
        release = dps.release(plan, frame, rng=0, m=50, k=5)
    text = {name: release.infer(name).summary() for name in asked}
    assert text["means"].count("looks like a rare number with two values") == 1
    assert "rare looks like a rare number" in text["means"]
    assert "the mean of near is near one of its bounds" in text["means"]
    assert "common is" not in text["means"]
    assert "rare in group True looks like a rare number" in text["gap"]
    for name in ("ill", "given"):
        assert "n p (1 - p) is below 10 for p, which is near 0 or 1" in text[name]
    assert "below 10 for 2 of 4 estimates p, which are near" in text["cells"]
    assert "below 10" not in text["old"]


@pytest.mark.parametrize(("epsilon", "left"), [(0.01, 1), (1, 0), (1e5, 1), (1e5, 0)])
def test_a_standard_error_next_to_an_empty_group_is_what_the_interval_says(
    epsilon, left, seeded_noise
):
    frame = rows()
    frame = frame.drop(frame.index[frame["region"] == "w"][left:])
    with _noise_from(seeded_noise(3)):
        plan = dps.plan(
            SCHEMA, {"d": dps.MeanDifference("pay", by="region", groups=("n", "w"))},
            budget=dps.PureDP(epsilon),
        )  # fmt: skip
        result = dps.release(plan, frame, rng=0, m=50, k=20).infer("d")
    low, high = result.conf_int()
    # Where a mean may be anything, the interval is at least the range of a number, here 40.
    assert high - low >= 40 - 1e-6
    assert 40 / 4 <= result.bse[0] <= 40
    assert "group w is empty or small" in result.summary()
    assert "group n is" not in result.summary() or epsilon < 1


def test_a_variance_lost_in_noise_is_told_and_a_constant_is_not_certain():
    frame = rows()
    frame["pay"] = 5.0
    frame["age"] = 50.0
    result = released_from(frame, dps.PureDP(1)).infer("one")
    low, high = result.conf_int(alpha=0.002)
    assert low < 5 < high
    assert "variance of pay is small relative to its noise" in result.summary()


def test_bad_values_of_tests():
    release = released(dps.PureDP(1))
    with pytest.raises(dps.RequestError, match="between -1 and 1"):
        release.infer("pair").test(1.0)
    with pytest.raises(dps.RequestError, match="finite"):
        release.infer("one").test(np.inf)
    for wrong in ("a", [1]):
        with pytest.raises(dps.RequestError, match="value must be"):
            release.infer("one").test(wrong)
    with pytest.raises(dps.RequestError, match="needs value="):
        release.infer("one").test()
    with pytest.raises(dps.RequestError, match="single parameter"):
        release.infer("means").test(3.0)
    for beyond in (30.01, -11):  # pay is from -10 to 30
        with pytest.raises(dps.RequestError, match="between -10 and 30 in any table"):
            release.infer("one").test(beyond)
    with pytest.raises(dps.RequestError, match="between -40 and 40 in any table"):
        release.infer("difference").test(41)
    for end in (-10, 30):
        assert release.infer("one").test(end).pvalue < 0.05
