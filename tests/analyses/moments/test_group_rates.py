"""Rates by group: shares of a trait in every group, a test of equality and all differences."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.moments.group_means import equal_shares_test
from dpstats.inference.simulation import draw_from
from dpstats.privacy.laws import DiscreteLaplace

SCHEMA = dps.Schema([
    dps.Category("ward", ["a", "b", "c", "empty"]), dps.Boolean("ill"),
    dps.Category("vote", ["no", "yes"], allow_missing=True),
    dps.Number("age", 0, 100, edges=[40, 65], missing=40),
])  # fmt: skip
RATES = dps.GroupMeans("ill", by="ward")


def rows(n=3_000, shares=(0.2, 0.2, 0.4), seed=0):
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
    equal = rows(shares=(0.2, 0.2, 0.2), seed=3)
    test = released(RATES, equal, dps.PureDP(1000)).infer("asked").anova()
    expected = stats.chi2_contingency(pd.crosstab(equal["ward"], equal["ill"]), correction=False)
    assert test.pvalue == pytest.approx(expected.pvalue, abs=0.02)


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
    assert np.log(pairs.p_unadjusted[1] / expected.test().pvalue) == pytest.approx(0, abs=8)
    assert pairs.pvalues[1] >= pairs.p_unadjusted[1]
    assert np.all(np.asarray(pairs.p_unadjusted)[~pairs.tested] == 1)  # with the empty ward


def test_each_share_is_that_of_a_proportion_in_the_group():
    release = released(RATES)
    result, one = release.infer("asked"), release.infer(dps.Proportion("ill", given="ward == 'b'"))
    assert result.params[1] == pytest.approx(one.params[0])
    for method in ("noise_aware", "certified"):
        for target in ("population", "table"):
            ends = result.conf_int(method=method, target=target)[1]
            alone = np.ravel(one.conf_int(method=method, target=target))
            np.testing.assert_allclose(ends, alone, atol=0.12 * np.ptp(alone))


@pytest.mark.parametrize(
    "asked",
    [
        RATES, dps.GroupMeans("vote", by="ward", given="age >= 65"),
        dps.GroupMeans("ill and age >= 40", by="ward", groups=("c", "a")),
        dps.GroupMeans("ill", by="age"), dps.GroupMeans("vote == '(missing)'", by="ill"),
    ],
    ids=["boolean", "two levels", "condition", "bins", "missing"],
)  # fmt: skip
def test_traits_of_all_kinds(asked):
    pure = asked.by == "ward" and asked.given is None
    options = (
        {"budget": dps.PureDP(1), "unit": "add_remove"} if pure else {"budget": dps.ZCDP(0.05)}
    )
    release = released(asked, **options)
    result = release.infer("asked")
    for options in ({}, {"method": "certified"}, {"target": "table"}, {"simultaneous": True}):
        low, high = np.asarray(result.conf_int(**options)).T
        assert np.all((low >= 0) & (low < high) & (high <= 1))
    assert 0 < result.anova().pvalue <= 1
    assert "test of equal shares" in result.summary(adjust="holm")
    assert (result.pairwise().to_frame()["p_value"] <= 1).all()
    assert np.all(release.bound(asked).to_frame()["conf_high"] <= 1)


def test_the_two_levels_count_the_second(no_noise):
    frame = rows()
    result = released(dps.GroupMeans("vote", by="ward"), frame, dps.PureDP(1000)).infer("asked")
    known = frame[frame["vote"].notna()]
    expected = (known["vote"] == "yes").groupby(known["ward"]).mean()
    np.testing.assert_allclose(result.params[:3], expected)


def test_level_of_the_test_of_equal_shares():
    """60 samples at 5%: fails above .05 by 5 standard errors of .028, probability below 1e-4."""
    sizes, share, scale = (400, 200, 60), 0.3, 8
    wards = [f"w{i}" for i in range(len(sizes))]
    schema = dps.Schema([dps.Category("ward", wards), dps.Boolean("ill")])
    plan = dps.plan(
        schema, {"rates": RATES}, budget=dps.PureDP(Fraction(1, scale)), unit="add_remove"
    )
    frame = pd.DataFrame({"ward": wards, "ill": True})
    answers = dps.release(plan, frame, rng=0, m=10).infer("rates").answers
    law, rng, rejected = DiscreteLaplace(float(scale)), np.random.default_rng(1), 0
    for _ in range(60):
        drawn = rng.binomial(sizes, share)
        counts = np.ravel(np.transpose([drawn, np.array(sizes) - drawn]))
        noisy = replace(answers, sums=counts + draw_from(law, len(counts), rng))
        rejected += equal_shares_test(noisy, np.ones(len(sizes), bool))[1] <= 0.05
    assert rejected / 60 <= 0.05 + 5 * 0.028
