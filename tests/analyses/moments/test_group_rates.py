"""Rates by group: shares of a trait in every group, a test of equality and all differences."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps

SCHEMA = dps.Schema([
    dps.Category("ward", ["a", "b", "c", "empty"]), dps.Boolean("ill"),
    dps.Category("vote", ["no", "yes"], allow_missing=True),
    dps.Number("age", 0, 100, edges=[40, 65], missing=40),
])  # fmt: skip
RATES = dps.GroupMeans("ill", by="ward")


def rows(n=1_500, shares=(0.2, 0.2, 0.4), seed=0):
    rng = np.random.default_rng(seed)
    ward = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    return pd.DataFrame({
        "ward": np.array(["a", "b", "c"])[ward], "ill": rng.random(n) < np.array(shares)[ward],
        "vote": rng.choice(["no", "yes", None], n, p=[0.5, 0.3, 0.2]),
        "age": rng.integers(0, 100, n),
    })  # fmt: skip


def released(asked, frame=None, budget=None, seed=0, **options):
    budget = dps.PureDP(3) if budget is None else budget
    plan = dps.plan(SCHEMA, {"asked": asked}, budget=budget, **options)
    return dps.release(plan, rows() if frame is None else frame, rng=seed, m=50)


def test_without_noise_they_are_the_shares_and_the_chi_square_test(no_noise):
    frame = rows()
    result = released(RATES, frame, dps.PureDP(1000)).infer("asked")
    shares = frame.groupby("ward")["ill"].mean()
    np.testing.assert_allclose(result.params[:3], shares)
    np.testing.assert_allclose(result.sizes, [*frame.groupby("ward").size(), 0])
    assert result.used == ("a", "b", "c")
    expected = stats.chi2_contingency(pd.crosstab(frame["ward"], frame["ill"]), correction=False)
    assert result.anova().statistic == pytest.approx(expected.statistic, rel=1e-3)


def test_pairs_are_those_of_a_difference():
    release = released(RATES)
    pairs, gap = release.infer("asked").pairwise(), dps.Difference("ill", "ward", ("a", "c"))
    expected = release.infer(gap)
    assert pairs.terms[1] == "a - c"
    assert pairs.params[1] == pytest.approx(expected.params[0])
    assert pairs.bse[1] == pytest.approx(expected.bse[0], rel=1e-6)
    np.testing.assert_allclose(
        pairs.conf_int(alpha=0.05)[1],
        expected.conf_int()[0],
        atol=0.05 * np.ptp(pairs.conf_int()[1]),
    )
    assert np.all(np.asarray(pairs.p_unadjusted)[~pairs.tested] == 1)  # with the empty ward


def test_the_two_levels_count_the_second(no_noise):
    frame = rows()
    result = released(dps.GroupMeans("vote", by="ward"), frame, dps.PureDP(1000)).infer("asked")
    known = frame[frame["vote"].notna()]
    expected = (known["vote"] == "yes").groupby(known["ward"]).mean()
    np.testing.assert_allclose(result.params[:3], expected)


def test_each_share_is_that_of_a_proportion_in_the_group():
    release = released(RATES)
    result, one = release.infer("asked"), release.infer(dps.Proportion("ill", given="ward == 'b'"))
    assert result.params[1] == pytest.approx(one.params[0])
    for options in ({}, {"method": "certified", "target": "table"}):
        ends, alone = result.conf_int(**options)[1], np.ravel(one.conf_int(**options))
        np.testing.assert_allclose(ends, alone, atol=0.12 * np.ptp(alone))
