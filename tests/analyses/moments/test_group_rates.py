"""Rates by group: shares of a trait in every group, a test of equality and all differences."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps

SCHEMA = dps.Schema([
    dps.Category("ward", ["a", "b", "c", "empty"]), dps.Boolean("ill"),
    dps.Category("vote", ["no", "yes"], allow_missing=True),
])  # fmt: skip
RATES = dps.GroupMeans("ill", by="ward")


@pytest.fixture(scope="module")
def rows():
    rng, n = np.random.default_rng(0), 1_500
    ward = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    return pd.DataFrame({
        "ward": np.array([*"abc"])[ward], "ill": rng.random(n) < np.array([0.2, 0.2, 0.4])[ward],
        "vote": rng.choice(["no", "yes", None], n, p=[0.5, 0.3, 0.2]),
    })  # fmt: skip


def test_without_noise_they_are_the_shares_and_the_chi_square_test(rows, no_noise, inferred):
    result, wards = inferred(SCHEMA, rows, RATES, dps.PureDP(1000)), rows.groupby("ward")
    np.testing.assert_allclose(result.params[:3], wards["ill"].mean())
    np.testing.assert_allclose(result.sizes, [*wards.size(), 0])
    assert result.used == ("a", "b", "c")
    expected = stats.chi2_contingency(pd.crosstab(rows["ward"], rows["ill"]), correction=False)
    assert result.anova().statistic == pytest.approx(expected.statistic, rel=1e-3)
    votes = inferred(SCHEMA, rows, dps.GroupMeans("vote", by="ward"), dps.PureDP(1000))
    known = rows[rows["vote"].notna()]
    expected = (known["vote"] == "yes").groupby(known["ward"]).mean()  # the second level counts
    np.testing.assert_allclose(votes.params[:3], expected)


def test_shares_and_pairs_are_those_of_a_proportion_and_a_difference(rows):
    plan = dps.plan(SCHEMA, {"asked": RATES}, budget=dps.PureDP(3))
    release = dps.release(plan, rows, rng=0, m=50, k=10)
    result, one = release.infer("asked"), release.infer(dps.Proportion("ill", given="ward == 'b'"))
    assert result.params[1] == pytest.approx(one.params[0])
    for options in ({}, {"method": "certified", "target": "table"}):
        ends, alone = result.conf_int(**options)[1], np.ravel(one.conf_int(**options))
        np.testing.assert_allclose(ends, alone, atol=0.12 * np.ptp(alone))
    pairs, gap = result.pairwise(), release.infer(dps.Difference("ill", "ward", ("a", "c")))
    assert pairs.terms[1] == "a - c"
    assert pairs.params[1] == pytest.approx(gap.params[0])
    assert pairs.bse[1] == pytest.approx(gap.bse[0], rel=1e-6)
    ends, alone = pairs.conf_int(alpha=0.05)[1], gap.conf_int()[0]
    np.testing.assert_allclose(ends, alone, atol=0.05 * np.ptp(ends))
    assert np.all(np.asarray(pairs.p_unadjusted)[~pairs.tested] == 1)  # with the empty ward
