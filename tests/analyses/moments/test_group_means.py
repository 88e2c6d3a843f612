"""Means of groups: textbook numbers without noise, honest ones with it."""

import itertools
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.oneway import anova_oneway
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

import dpstats as dps
from dpstats.planning.measures import pvalue_of
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Number("pay", -10, 30, points=401, missing=0),
    dps.Number("age", 0, 100, points=201, edges=[40, 65], allow_missing=True),
    dps.Number("wealth", 1, 1e4, points=401, scale="log", missing=10),
    dps.Number("bare", 0, 1, missing=0),
    dps.Category("region", ["n", "s", "w", "e"], allow_missing=True),
    dps.Boolean("ill"),
])  # fmt: skip
ASKED = {
    "regions": dps.GroupMeans("pay", by="region"),
    "two": dps.GroupMeans("pay", by="region", groups=("w", "s")),
    "ages": dps.GroupMeans("pay", by="age", given="region != 'e' and ill"),
    "health": dps.GroupMeans("age", by="ill"),
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
        "bare": 0.0, "region": region, "ill": rng.random(n) < 0.3,
    })  # fmt: skip


def nothing(scale, size):
    """No noise at all."""
    return np.zeros(size, np.int64)


def released(budget, unit="replace", asked=ASKED, frame=None, noise=None):
    plan = dps.plan(SCHEMA, asked, budget=budget, unit=unit, reference=dps.Uniform())
    with _noise_from(noise) if noise else nullcontext():
        measured = dps.measure(plan, rows() if frame is None else frame)
    return dps.synthesize(measured, rng=0, m=200, k=50)


def samples(name):
    """The groups of an analysis, as arrays."""
    frame = rows()
    if name == "ages":
        frame = frame[frame["region"].ne("e") & frame["ill"]]  # missing satisfies !=, as in pandas
        bins = pd.cut(frame["age"], [-1, 39.9, 64.9, 100])
        return [frame["pay"][bins == cut] for cut in bins.cat.categories]
    if name == "health":
        return [frame["age"][frame["ill"] == ill].dropna() for ill in (False, True)]
    if name == "wealth":
        logs = np.log(frame["wealth"])
        return [logs[frame["region"] == "s"], logs[frame["region"] == "n"],
                logs[frame["region"].isna()]]  # fmt: skip
    return [frame["pay"][frame["region"] == one] for one in ("ws" if name == "two" else "nswe")]


@pytest.fixture(scope="module")
def quiet():
    """Releases of both units without noise."""
    return {
        unit: released(dps.PureDP(10**6), unit, noise=nothing) for unit in ("replace", "add_remove")
    }


@pytest.mark.parametrize(
    ("name", "unit"), [*zip(ASKED, ["replace", *["add_remove", "replace"] * 2], strict=True)]
)
def test_without_noise_it_is_welchs_analysis_of_variance(quiet, name, unit):
    result, groups = quiet[unit].infer(name), samples(name)
    np.testing.assert_allclose(result.params, [np.mean(group) for group in groups], rtol=1e-8)
    np.testing.assert_allclose(result.bse, [stats.sem(group) for group in groups], rtol=1e-7)
    np.testing.assert_allclose(result.sizes, [len(group) for group in groups], rtol=1e-8)
    ends = [DescrStatsW(np.asarray(group)).tconfint_mean() for group in groups]
    np.testing.assert_allclose(result.conf_int(), ends, rtol=1e-6)
    test, theirs = result.anova(), anova_oneway([*map(np.asarray, groups)], use_var="unequal")
    np.testing.assert_allclose(test.statistic, theirs.statistic, rtol=1e-7)
    np.testing.assert_allclose([test.df_num, test.df_denom], theirs.df, rtol=1e-7)
    np.testing.assert_allclose(test.pvalue, theirs.pvalue, rtol=1e-5, atol=1e-9)
    every = np.concatenate(groups)
    within = sum(len(group) * np.var(group) for group in groups)
    total, more = len(every) * np.var(every), len(groups) - 1
    error = within / (len(every) - more - 1)
    np.testing.assert_allclose(result.eta_squared, 1 - within / total, rtol=1e-6, atol=1e-9)
    omega = max(0.0, (total - within - more * error) / (total + error))
    np.testing.assert_allclose(result.omega_squared, omega, rtol=1e-6, atol=1e-9)


def test_without_noise_pairs_are_those_of_welchs_test(quiet):
    groups = dict(zip("nswe", samples("regions"), strict=True))
    found = quiet["replace"].infer("regions")
    pairs, plain = found.pairwise(), found.pairwise(adjust="none")
    assert pairs.terms == [f"{a} - {b}" for a, b in itertools.combinations("nswe", 2)]
    compared = [CompareMeans(DescrStatsW(np.asarray(groups[a])), DescrStatsW(np.asarray(groups[b])))
                for a, b in itertools.combinations("nswe", 2)]  # fmt: skip
    raw = np.array([one.ttest_ind(usevar="unequal")[1] for one in compared])
    ends = [one.tconfint_diff(usevar="unequal") for one in compared]
    np.testing.assert_allclose(pairs.conf_int(), ends, rtol=1e-5, atol=1e-8)
    least = 1e-9
    np.testing.assert_allclose(pairs.p_unadjusted, np.maximum(raw, least), rtol=1e-3)
    for adjust, method in [("holm", "holm"), ("fdr_bh", "fdr_bh")]:
        expected = multipletests(np.maximum(raw, least), method=method)[1]
        np.testing.assert_allclose(found.pairwise(adjust=adjust).pvalues, expected, rtol=1e-3)
    np.testing.assert_array_equal(plain.pvalues, plain.p_unadjusted)
    frame = pairs.to_frame()
    np.testing.assert_array_equal(frame["p_value"], pairs.pvalues)
    np.testing.assert_allclose(frame["statistic"], pairs.params / pairs.bse)
    assert "adjusted by Holm's method" in str(pairs)
    assert "not adjusted" in str(plain)
    assert pairs.to_frame(target="table")["p_value"].isna().all()


@pytest.fixture(scope="module")
def noisy():
    return {unit: released(dps.PureDP(2), unit) for unit in ("replace", "add_remove")}


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_a_rare_group_may_have_any_mean_and_does_not_decide_the_test(unit):
    frame = rows()
    frame["pay"] = np.where(frame["region"] == "e", 30.0, 2 * (np.arange(900) % 2))
    rare = frame[frame["region"].ne("e") | (frame["region"].eq("e").cumsum() <= 3)]
    found = released(dps.PureDP(0.5), unit, {"g": ASKED["regions"]}, rare).infer("g")
    for method in ("noise_aware", "certified"):
        np.testing.assert_allclose(found.conf_int(method=method)["region=e"], [-10, 30])
    assert "group e is empty or small" in found.summary()
    assert found.anova().pvalue > 0.05


def test_results_name_their_groups_and_have_one_test(noisy):
    found = noisy["replace"].infer("regions")
    test = found.anova()
    assert f"Welch's F {test.statistic:.4g} on 2 and {test.df_denom:.4g} df" in found.summary()
    assert found.used == ("n", "s", "w")  # e has 18 rows and noise of 4
    assert test.null == "the means of n, s, w are equal in the population"
    assert found.terms == [f"region={one}" for one in "nswe"]
    assert noisy["replace"].infer("ages").terms[1] == "age=[40, 65)"
    assert pvalue_of(found, "regions", None, None) == test.pvalue  # the one whose power is asked
    with pytest.raises(dps.RequestError, match="its own hypothesis"):
        pvalue_of(found, "regions", 0.0, None)


def test_the_groups_of_another_analysis_follow(noisy):
    release = noisy["replace"]
    pair = release.infer(dps.MeanDifference("pay", by="region", groups=("s", "n")))
    both = release.infer(dps.GroupMeans("pay", by="region", groups=("s", "n")))
    np.testing.assert_allclose(pair.params, both.params[0] - both.params[1])
    four = release.infer("regions").pairwise()
    for method in ("noise_aware", "certified"):  # however the same difference is asked for
        ends = pair.conf_int(method=method)
        np.testing.assert_array_equal(both.pairwise().conf_int(method=method)[0], ends)
        of_four = four.conf_int(method=method)[four.terms.index("n - s")]
        np.testing.assert_allclose(-of_four[::-1], ends, rtol=0.02)
    with pytest.raises(dps.NotMeasuredError, match="moments in groups"):
        release.infer(dps.GroupMeans("age", by="region"))


def with_empty(unit, rows_per_person, empty, frame, noise=nothing):
    """Means of two groups in a schema that declares more levels, first and last."""
    levels = [*[f"x{i}" for i in range(empty // 2)], "n", "s",
              *[f"y{i}" for i in range(empty - empty // 2)]]  # fmt: skip
    columns = [SCHEMA["pay"], dps.Category("region", levels)]
    options = {} if rows_per_person == 1 else {"rows_per_person": rows_per_person}
    plan = dps.plan(
        dps.Schema(columns), {"g": dps.GroupMeans("pay", by="region")},
        budget=dps.PureDP(10**6), unit=unit, reference=dps.Uniform(), **options,
    )  # fmt: skip
    with _noise_from(noise):
        measured = dps.measure(plan, frame)
    return dps.synthesize(measured, rng=0, m=200, k=50).infer("g")


@pytest.mark.parametrize(
    ("unit", "rows_per_person", "empty"), [("add_remove", 1, 5), ("replace", 3, 1)]
)
def test_declared_levels_without_rows_change_no_test(unit, rows_per_person, empty):
    frame = rows()[["pay", "region"]]
    frame = frame[frame["region"].isin(["n", "s"])]
    plain = with_empty(unit, rows_per_person, 0, frame)
    theirs = anova_oneway(
        [frame["pay"][frame["region"] == one].to_numpy() for one in "ns"], use_var="unequal"
    )
    if rows_per_person == 1:
        np.testing.assert_allclose(plain.anova().pvalue, theirs.pvalue, rtol=1e-6)
    found, test = with_empty(unit, rows_per_person, empty, frame), plain.anova()
    more = found.anova()
    for name in ("statistic", "pvalue", "df_num", "df_denom"):
        np.testing.assert_allclose(getattr(more, name), getattr(test, name), rtol=1e-9)
    for name in ("eta_squared", "omega_squared"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-9)
    assert found.used == ("n", "s")
    assert more.null == test.null
    unused = [term for term in found.terms if term not in plain.terms]
    assert len(unused) == empty
    np.testing.assert_allclose(found.sizes[unused[0]], 0, atol=1e-6)
    pairs = found.pairwise()
    alone = plain.pairwise()
    np.testing.assert_allclose(pairs.p_unadjusted["n - s"], alone.p_unadjusted["n - s"], rtol=1e-6)
    expected = min(alone.pvalues["n - s"] * len(pairs.terms), 1.0)
    for adjust in ("holm", "fdr_bh"):  # all pairs count, used or not
        adjusted = found.pairwise(adjust=adjust).pvalues["n - s"]
        np.testing.assert_allclose(adjusted, expected, rtol=1e-6)
    others = pairs.to_frame().set_index("term").drop("n - s")
    assert (others["p_value"] == 1).all()
    assert others["statistic"].isna().all()
    assert all(unused[0].removeprefix("region=") in str(page) for page in (found, pairs))
    (line,) = (text for text in str(found).splitlines() if text.startswith(f"{unused[0]} "))
    assert line.removeprefix(unused[0]).strip().startswith("[")  # no estimate, no error
