"""Means and rates of groups: textbook numbers without noise, honest ones with it."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.oneway import anova_oneway
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

import dpstats as dps
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Number("pay", -10, 30, points=401, missing=0),
    dps.Number("age", 0, 100, points=201, edges=[40, 65], allow_missing=True),
    dps.Number("wealth", 1, 1e4, points=401, scale="log", missing=10),
    dps.Category("region", ["n", "s", "w", "e"], allow_missing=True),
    dps.Boolean("ill"),
])  # fmt: skip
ASKED = {
    "regions": dps.GroupMeans("pay", by="region"),
    "two": dps.GroupMeans("pay", by="region", groups=("w", "s")),
    "ages": dps.GroupMeans("pay", by="age", given="region != 'e' and ill"),
    "wealth": dps.GroupMeans("log(wealth)", by="region", groups=("s", "n", "(missing)")),
}


def rows(n=900):
    rng = np.random.default_rng(4)
    age = (2 * rng.normal(50, 15, n).clip(0, 100)).round() / 2
    region = rng.choice(["n", "s", "w", "e"], n, p=[0.5, 0.36, 0.12, 0.02]).astype(object)
    pay = (age / 5 + 2 * (region == "s") + rng.normal(0, 4, n) * (1 + (region == "w"))).round(1)
    region[rng.random(n) < 0.05] = None
    return pd.DataFrame({
        "pay": pay.clip(-10, 30), "age": np.where(rng.random(n) < 0.1, np.nan, age),
        "wealth": np.exp(np.log(1e4) * rng.integers(0, 401, n) / 400),
        "region": region, "ill": rng.random(n) < 0.3,
    })  # fmt: skip


@pytest.fixture(scope="module")
def quiet(silent_noise):
    """All analyses without noise, for either unit."""
    found = {}
    for unit in ("replace", "add_remove"):
        budget, options = dps.PureDP(10**6), {"unit": unit, "reference": dps.Uniform()}
        plan = dps.plan(SCHEMA, ASKED, budget=budget, **options)
        with _noise_from(silent_noise):
            found[unit] = dps.release(plan, rows(), rng=0, m=20, k=10)
    return found


def samples(name):
    """The groups of an analysis, as arrays."""
    frame = rows()
    if name == "ages":
        frame = frame[frame["region"].ne("e") & frame["ill"]]  # missing satisfies !=, as in pandas
        bins = pd.cut(frame["age"], [-1, 39.9, 64.9, 100])
        return [frame["pay"][bins == cut] for cut in bins.cat.categories]
    if name == "wealth":
        groups = np.log(frame["wealth"]).groupby(frame["region"].fillna("missing"))
        return [groups.get_group(one) for one in ("s", "n", "missing")]
    return [frame["pay"][frame["region"] == one] for one in ("ws" if name == "two" else "nswe")]


@pytest.mark.parametrize(
    ("name", "unit"), [*zip(ASKED, ["replace", "add_remove"] * 2, strict=True)]
)
def test_without_noise_it_is_welchs_analysis_of_variance(quiet, name, unit):
    result, groups = quiet[unit].infer(name), samples(name)
    np.testing.assert_allclose(result.params, [np.mean(group) for group in groups], rtol=1e-8)
    np.testing.assert_allclose(result.bse, [stats.sem(group) for group in groups], rtol=1e-7)
    np.testing.assert_allclose(result.sizes, [len(group) for group in groups], rtol=1e-8)
    ends = [DescrStatsW(np.asarray(group)).tconfint_mean() for group in groups]
    np.testing.assert_allclose(result.conf_int(), ends, rtol=1e-6)
    test, theirs = result.anova(), anova_oneway([*map(np.asarray, groups)], use_var="unequal")
    found, wanted = (test.statistic, test.df_num, test.df_denom), (theirs.statistic, *theirs.df)
    np.testing.assert_allclose(found, wanted, rtol=1e-7)
    np.testing.assert_allclose(test.pvalue, theirs.pvalue, rtol=1e-5, atol=1e-9)
    every, within = np.concatenate(groups), sum(len(group) * np.var(group) for group in groups)
    total, more = len(every) * np.var(every), len(groups) - 1
    np.testing.assert_allclose(result.eta_squared, 1 - within / total, rtol=1e-6, atol=1e-9)
    error = within / (len(every) - more - 1)
    omega = max(0.0, (total - within - more * error) / (total + error))
    np.testing.assert_allclose(result.omega_squared, omega, rtol=1e-6, atol=1e-9)


def test_without_noise_pairs_are_those_of_welchs_test(quiet):
    found = quiet["replace"].infer("regions")
    pairs, plain = found.pairwise(), found.pairwise(adjust="none")
    assert pairs.terms == [f"{a} - {b}" for a, b in itertools.combinations("nswe", 2)]
    groups = [DescrStatsW(np.asarray(sample)) for sample in samples("regions")]
    compared = [CompareMeans(*two) for two in itertools.combinations(groups, 2)]
    ends = [one.tconfint_diff(usevar="unequal") for one in compared]
    np.testing.assert_allclose(pairs.conf_int(), ends, rtol=1e-5, atol=1e-8)
    raw = [max(1e-9, one.ttest_ind(usevar="unequal")[1]) for one in compared]
    np.testing.assert_allclose(pairs.p_unadjusted, raw, rtol=1e-3)
    for adjust in ("holm", "fdr_bh"):
        expected = multipletests(raw, method=adjust)[1]
        np.testing.assert_allclose(found.pairwise(adjust=adjust).pvalues, expected, rtol=1e-3)
    np.testing.assert_array_equal(plain.pvalues, plain.p_unadjusted)
    assert pairs.to_frame(target="table")["p_value"].isna().all()


def test_pairs_of_one_name_are_not_confused(inferred):
    names = ["x - y", "z", "x", "y - z"]
    schema = dps.Schema([dps.Number("a", 0, 9, missing=0), dps.Category("g", names)])
    frame = pd.DataFrame({"a": [1, 8, 3, 5] * 100, "g": names * 100})
    pairs = inferred(schema, frame, dps.GroupMeans("a", by="g")).pairwise()
    assert pairs.terms.count("x - y - z") == 2
    for use in (lambda term: pairs.test(term=term), lambda term: pairs.params[term],
                lambda term: dps.plots.forest(pairs, terms=[term])):  # fmt: skip
        with pytest.raises(dps.RequestError, match="several parameters are called 'x - y - z'"):
            use("x - y - z")


def test_a_rare_group_may_have_any_mean_and_does_not_decide_the_test(inferred):
    frame = rows()
    frame["pay"] = np.where(frame["region"] == "e", 30.0, 2 * (np.arange(900) % 2))
    rare = frame[frame["region"].ne("e") | (frame["region"].eq("e").cumsum() <= 3)]
    found = inferred(SCHEMA, rare, ASKED["regions"], dps.PureDP(0.5), unit="add_remove")
    for method in ("noise_aware", "certified"):
        np.testing.assert_allclose(found.conf_int(method=method)["region=e"], [-10, 30])
    assert "group e is empty or small" in found.summary()
    assert found.anova().pvalue > 0.05


def test_the_groups_of_another_analysis_follow():
    plan = dps.plan(SCHEMA, ASKED, budget=dps.PureDP(2), reference=dps.Uniform())
    release = dps.release(plan, rows(), rng=0, m=20, k=10)
    pair = release.infer(dps.MeanDifference("pay", by="region", groups=("s", "n")))
    both = release.infer(dps.GroupMeans("pay", by="region", groups=("s", "n")))
    np.testing.assert_allclose(pair.params, both.params[0] - both.params[1])
    four = release.infer("regions").pairwise()
    for method in ("noise_aware", "certified"):  # however the same difference is asked for
        ends = pair.conf_int(method=method)
        np.testing.assert_array_equal(both.pairwise().conf_int(method=method)[0], ends)
        of_four = four.conf_int(method=method)[four.terms.index("n - s")]
        np.testing.assert_allclose(-of_four[::-1], ends, rtol=0.02)


@pytest.mark.parametrize(("unit", "options"), [
    ("add_remove", {}), ("replace", {"rows_per_person": 3}),
])  # fmt: skip
def test_declared_levels_without_rows_change_no_test(unit, options, no_noise, inferred):
    frame = rows()[["pay", "region"]]
    frame = frame[frame["region"].isin(["n", "s"])]
    schemas = [
        dps.Schema([SCHEMA["pay"], dps.Category("region", [*levels])]) for levels in ("ns", "xnsyz")
    ]
    plain, found = (
        inferred(schema, frame, ASKED["regions"], unit=unit, **options) for schema in schemas
    )
    for name in ("statistic", "pvalue", "df_num", "df_denom"):
        wanted = getattr(plain.anova(), name)
        np.testing.assert_allclose(getattr(found.anova(), name), wanted, rtol=1e-9)
    np.testing.assert_allclose(found.omega_squared, plain.omega_squared, rtol=1e-9)
    assert found.used == ("n", "s")
    pairs, alone = found.pairwise(), plain.pairwise()
    np.testing.assert_allclose(pairs.p_unadjusted["n - s"], alone.p_unadjusted["n - s"], rtol=1e-6)
    expected = min(alone.pvalues["n - s"] * len(pairs.terms), 1.0)
    for adjust in ("holm", "fdr_bh"):  # all pairs count, used or not
        adjusted = found.pairwise(adjust=adjust).pvalues["n - s"]
        np.testing.assert_allclose(adjusted, expected, rtol=1e-6)
    others = pairs.to_frame().set_index("term").drop("n - s")
    assert (others["p_value"] == 1).all()
    assert others["statistic"].isna().all()


WARDS = dps.Schema([
    dps.Category("ward", ["a", "b", "c", "empty"]), dps.Boolean("ill"),
    dps.Category("vote", ["no", "yes"], allow_missing=True),
])  # fmt: skip
RATES = dps.GroupMeans("ill", by="ward")


@pytest.fixture(scope="module")
def rates():
    rng, n = np.random.default_rng(0), 1_500
    ward = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    return pd.DataFrame({
        "ward": np.array([*"abc"])[ward], "ill": rng.random(n) < np.array([0.2, 0.2, 0.4])[ward],
        "vote": rng.choice(["no", "yes", None], n, p=[0.5, 0.3, 0.2]),
    })  # fmt: skip


def test_without_noise_rates_are_shares_with_a_chi_square_test(rates, no_noise, inferred):
    result, wards = inferred(WARDS, rates, RATES, dps.PureDP(1000)), rates.groupby("ward")
    np.testing.assert_allclose(result.params[:3], wards["ill"].mean())
    np.testing.assert_allclose(result.sizes, [*wards.size(), 0])
    assert result.used == ("a", "b", "c")
    table = pd.crosstab(rates["ward"], rates["ill"])
    expected = stats.chi2_contingency(table, correction=False)
    assert result.anova().statistic == pytest.approx(expected.statistic, rel=1e-3)
    votes = inferred(WARDS, rates, dps.GroupMeans("vote", by="ward"), dps.PureDP(1000))
    known = rates[rates["vote"].notna()]
    expected = (known["vote"] == "yes").groupby(known["ward"]).mean()  # the second level counts
    np.testing.assert_allclose(votes.params[:3], expected)


def test_shares_and_pairs_are_those_of_a_proportion_and_a_difference(rates):
    plan = dps.plan(WARDS, {"asked": RATES}, budget=dps.PureDP(3))
    release = dps.release(plan, rates, rng=0, m=50, k=10)
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
    for i, term in enumerate(pairs.terms):
        expected = pairs.p_unadjusted[term] if pairs.tested[i] else 1
        assert pairs.test(0.0, term=term).pvalue == expected
