"""Rubin's rules."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps

ESTIMATES, VARIANCES = [1.0, 2.0, 4.5], [0.5, 0.7, 0.6]


def test_the_rules_by_hand():
    pooled = dps.pool(ESTIMATES, VARIANCES)
    mean, between, within = 2.5, 4 / 3 * np.var(ESTIMATES, ddof=1), 0.6
    total, df = within + between, 2 * (1 + within / between) ** 2
    found = [*pooled.params, *pooled.bse, *pooled.df, *pooled.privacy_share]
    assert found == pytest.approx([mean, total**0.5, df, between / total])
    reach = stats.t.ppf(0.95, df) * total**0.5
    assert np.asarray(pooled.conf_int(alpha=0.1))[0] == pytest.approx([mean - reach, mean + reach])
    # of small tables Welch and Satterthwaite, written out
    small, large = (dps.pool(ESTIMATES, VARIANCES, n=n).df[0] for n in (30, 10**9))
    assert small == pytest.approx(total**2 / (within**2 / 29 + between**2 / 2))
    assert large == pytest.approx(df)


def test_equal_draws_leave_sampling_alone():
    pooled, without = (dps.pool([0.3] * 5, [0.01] * 5, n=n) for n in (1_000, None))
    assert pooled.privacy_share[0] == 0
    assert (pooled.bse[0], pooled.df[0]) == pytest.approx((0.1, 999))
    assert without.df[0] == np.inf
    assert np.diff(without.conf_int())[0] == pytest.approx(2 * stats.norm.ppf(0.975) * 0.1)


@pytest.mark.parametrize(("n", "variance"), [(None, 0.0), (50, 1e-12), (10**6, 1e-6)])
def test_privacy_noise_alone_has_as_many_degrees_of_freedom_as_draws_but_one(n, variance):
    estimates = np.random.default_rng(3).normal(0, 0.1, 20)
    pooled = dps.pool(estimates, [variance] * 20, n=n)
    assert pooled.df[0] == pytest.approx(19, rel=1e-3)
    reach = stats.t.ppf(0.975, 19) * np.std(estimates, ddof=1) * 1.05**0.5
    assert np.diff(pooled.conf_int())[0] / 2 == pytest.approx(reach, rel=2e-3)


@pytest.mark.parametrize("noise", [0.1, 0.9])
@pytest.mark.parametrize(("draws", "least", "most"), [(5, 0.942, 0.954), (20, 0.947, 0.954)])
def test_intervals_cover_whatever_the_share_of_the_noise(draws, least, most, noise):
    # 10,000 runs: a standard error of .0022; a few thousandths lower with 5 draws at .9
    rng, runs = np.random.default_rng(draws), 10_000
    centres = rng.normal(0, 1, runs)  # sampling and noise, of variance 1 together
    estimates = centres + rng.normal(0, noise**0.5, (draws, runs))
    pooled = dps.pool(estimates, np.full((draws, runs), 1 - noise), n=1_000)
    low, high = np.asarray(pooled.conf_int()).T
    assert least - 0.006 < np.mean((low <= 0) & (high >= 0)) < most + 0.006
    assert np.median(high - low) < {5: 5.8, 20: 4.3}[draws]


def test_what_cannot_be_pooled_is_refused():
    labelled, two = pd.Series({"a": 1.0, "b": 2.0}), [1.0, 2.0]
    for estimates, variances, options, sentence in [
        ([1.0], [1.0], {}, "two or more draws"),
        (two, 0.1, {}, "the variances of every draw"), (two, [1.0], {}, "of one shape"),
        (two, [1.0, -1.0], {}, "a variance is below zero"),
        ([1.0, "x"], two, {}, "must be numbers"), ([1.0, np.nan], two, {}, "estimates"),
        (two, two, {"n": 1.5}, "n must be a whole number"),
        ([labelled, labelled[["a"]]], [two, [1.0]], {}, r"series.reindex\(labels, fill_val"),
        ([labelled, two], [two, two], {}, r"series.reindex\(labels, fill_value=0\)"),
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError, match=sentence):
            dps.pool(estimates, variances, **options)
