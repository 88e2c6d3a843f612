"""Weighted estimates without noise: those of R's survey package, by contrasts of units."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.error_rates import holm

WITHOUT_NOISE = dps.PureDP(10**10)


@pytest.fixture(scope="module")
def released(surveyed):
    asked = {
        "ill": dps.Proportion("ill"), "income": dps.Mean("income"), "age": dps.Mean("age"),
        "region": dps.Marginals(["region"], 1), "women": dps.Proportion("ill", given="sex == 'f'"),
        "income of women": dps.Mean("income", given="sex == 'f'"),
        "ill_by_sex": dps.GroupMeans("ill", by="sex"),
        "income_by_region": dps.GroupMeans("income", by="region"),
        "difference_of_sexes": dps.Difference("ill", by="sex"),
        "of means": dps.MeanDifference("income", by="region", groups=("hills", "coast")),
        "income/age": dps.Ratio("income", "age"), "visits/age": dps.Ratio("visits", "age"),
        "visits/age of women": dps.Ratio("visits", "age", given="sex == 'f'"),
        "income/age by region": dps.Ratio("income", "age", by="region"),
    }  # fmt: skip
    plan = dps.plan(surveyed.schema(), asked, budget=WITHOUT_NOISE, unit="add_remove", n=1500)
    return dps.release(plan, surveyed.rows, m=500)


def same(params, cov, figure, places=slice(None)):
    np.testing.assert_allclose(params, np.array(figure["params"])[places], rtol=1e-8)
    wanted = np.array(figure["cov"])[places, places]
    np.testing.assert_allclose(cov, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


@pytest.fixture
def estimates(surveyed, released):
    """Of an analysis, estimates and their covariance with all contrasts."""

    def of(name):
        result = released.infer(name)
        (part,) = result.parts
        exact = surveyed.exact(part, released.schema)
        np.testing.assert_allclose(result.params, exact.params)
        return exact.params, exact.sampling_covariance

    return of


def test_means_domains_and_differences_are_those_of_r(surveyed, estimates):
    figures = surveyed.figures
    for i, name in enumerate(["ill", "income", "age"]):
        same(*estimates(name), figures["means"], slice(i, i + 1))
    same(*estimates("region"), figures["region"])
    same(*estimates("women"), figures["women"], slice(0, 1))
    same(*estimates("income of women"), figures["women"], slice(1, 2))
    for name in ("ill_by_sex", "income_by_region"):
        same(*estimates(name), figures[name])
    params, cov = estimates("difference_of_sexes")
    of_r = figures["difference_of_sexes"]
    sign = np.sign(params[0] / of_r["params"][0])
    assert params[0] == pytest.approx(sign * of_r["params"][0], rel=1e-8)
    assert cov[0, 0] == pytest.approx(of_r["cov"][0][0], rel=1e-8)


def test_ratios_are_those_of_r(surveyed, released, estimates):
    figures = surveyed.figures
    for i, name in enumerate(["income/age", "visits/age"]):
        same(*estimates(name), figures["ratios_to_age"], slice(i, i + 1))
    women = figures["ratios_to_age_of_women"]
    same(*estimates("visits/age of women"), women, slice(1, 2))
    same(*estimates("income/age by region"), figures["income_to_age_by_region"])
    result = released.infer("income/age by region")
    assert result.conf_int().shape == (3, 2)
    (part,) = result.parts  # as many independent rows: squares of the linearised values
    inside = surveyed.rows["region"].to_numpy() == np.array([["coast"], ["hills"], ["plain"]])
    u, income, age = (surveyed.rows[name].to_numpy() for name in ("u", "income", "age"))
    z = (
        inside
        * (income - np.asarray(result.params)[:, None] * age)
        / (inside * u * age).sum(axis=1, keepdims=True)
    )
    squares = part.independent / part.totals.design.coded_mean
    np.testing.assert_allclose(squares, (z**2) @ u, rtol=1e-3)


def test_totals_are_those_of_r(surveyed, released):
    figures = surveyed.figures["totals"]
    for place, name in ((0, "ill"), (2, "income"), (2, "income/age")):
        result = released.infer(name).totals()
        (part,) = result.parts
        exact = surveyed.exact(part, released.schema)
        same(exact.params, exact.sampling_covariance, figures, slice(place, place + 1))


@pytest.fixture(scope="module")
def nhanes(surveyed):
    frame = pd.read_csv(surveyed.data / "nhanes.csv")
    return frame[frame["SDMVSTRA"] != 86].reset_index(drop=True)  # 86 has three units


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize(
    "budget", [dps.PureDP(10**9), dps.ZCDP(10**10)], ids=["laplace", "gaussian"]
)
def test_contrasts_of_two_units_a_stratum_give_the_variance_itself(surveyed, nhanes, unit, budget):
    """With a contrast for every pair; rotated where two sets are measured under replace."""
    about = surveyed.all_figures["nhanes"]["about"]
    design = dps.Design("WTMEC2YR", mean=about["mean_weight"], cap=about["cap"],
                        strata="SDMVSTRA", unit="SDMVPSU",
                        units=surveyed.units_of(nhanes, "SDMVSTRA", "SDMVPSU"))  # fmt: skip
    columns = [dps.Category("HI_CHOL", [0, 1]), dps.Category("race", [1, 2, 3, 4])]
    schema = dps.Schema(columns, design=design)
    asked = {"high": dps.Proportion("HI_CHOL == 1"), "race": dps.GroupMeans("HI_CHOL", by="race")}
    plan = dps.plan(schema, asked, budget=budget, unit=unit, n=len(nhanes))
    release = dps.release(plan, nhanes, m=500)
    u, y = nhanes["u"].to_numpy(), nhanes["HI_CHOL"].to_numpy()
    groups = [np.ones(len(u)), *(nhanes["race"].to_numpy() == level for level in (1, 2, 3, 4))]
    wanted = []
    for inside in groups:
        size = np.sum(u * inside)
        z = u * inside * (y - np.sum(u * inside * y) / size) / size
        of_units = pd.Series(z).groupby([nhanes["SDMVSTRA"], nhanes["SDMVPSU"]]).sum()
        wanted.append(np.sum(of_units.groupby(level=0).diff().dropna() ** 2))
    found = np.concatenate([release.infer(name).sampling_variance for name in asked])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert 13 < release.infer("high").degrees_of_freedom[0] < 14


@pytest.mark.parametrize("lonely", ["certainty", "adjust", "collapse"])
def test_strata_of_one_unit_are_those_of_r(surveyed, lonely):
    rows = surveyed.rows
    rows = rows[(rows["stratum"] != "a") | (rows["psu"] != 2)].reset_index(drop=True)
    figure, schema = (
        surveyed.all_figures["lonely"][lonely],
        surveyed.schema(frame=rows, lonely=lonely),
    )
    (part,) = surveyed.release(dps.Proportion("ill"), schema, rows=rows).infer("x").parts
    exact = surveyed.exact(part, schema, rows, lonely)
    same(exact.params, exact.sampling_covariance, figure, slice(0, 1))
    with pytest.raises(dps.SchemaError, match="lonely"):
        surveyed.release(dps.Proportion("ill"), surveyed.schema(frame=rows), rows=rows)


def test_a_domain_of_one_stratum_has_one_degree_of_freedom(surveyed, nhanes):
    """Fourteen pairs are declared, and thirteen contrasts are zero (eq. concentrated-degrees)."""
    design = dps.Design("WTMEC2YR", mean=32_000, cap=100_000, strata="SDMVSTRA", unit="SDMVPSU",
                        units=surveyed.units_of(nhanes, "SDMVSTRA", "SDMVPSU"))  # fmt: skip
    strata = sorted(set(nhanes["SDMVSTRA"]))
    columns = [dps.Category("HI_CHOL", [0, 1]), dps.Category("SDMVSTRA", strata)]
    asked = {"by": dps.GroupMeans("HI_CHOL", by="SDMVSTRA"), "all": dps.Proportion("HI_CHOL == 1")}
    plan = dps.plan(dps.Schema(columns, design=design), asked, budget=dps.PureDP(10**9))
    release = dps.release(plan, nhanes, m=500)
    np.testing.assert_allclose(release.infer("by").degrees_of_freedom, 1, rtol=1e-3)
    assert release.infer("all").degrees_of_freedom[0] > 10


def test_ratios_have_limits_that_are_positive_and_certified_ones_without_an_end():
    design = dps.Design("w", mean=1, cap=1, unit="u", units=list(range(100)))
    schema = dps.Schema([dps.Boolean("y"), dps.Boolean("g")], design=design)
    rows = pd.DataFrame({"y": [True] * 30 + [True, False] * 985, "g": [True] * 30 + [False] * 1970})
    rows["u"], rows["w"] = rows.index % 100, 1.0
    plan = dps.plan(schema, {"x": dps.Difference("y", by="g")}, budget=dps.PureDP(5), n=2_000)
    result = dps.release(plan, rows, m=200).infer("x")
    low = result.conf_int()[:, 0]
    assert low[1] > 0
    at_limit = result.test(float(low[1]), term="risk ratio")
    assert at_limit.pvalue == pytest.approx(0.05, rel=1e-2)
    ends = result.conf_int(alpha=1e-7, method="certified", target="table")
    assert ends[2, 1] == np.inf


def test_pairs_and_equality_of_groups_follow_from_their_covariance(released):
    """Of R's estimates and covariance, by svycontrast and Rao and Scott's test."""
    result = released.infer("income_by_region")
    params, cov = np.asarray(result.params), result.covariance
    pairs, signs = result.pairwise(), np.array([[1, -1, 0], [1, 0, -1], [0, 1, -1]])
    assert pairs.terms == ["coast - hills", "coast - plain", "hills - plain"]
    np.testing.assert_allclose(pairs.params, signs @ params, rtol=1e-8)
    np.testing.assert_allclose(pairs.bse**2, np.diag(signs @ cov @ signs.T), rtol=1e-6)
    np.testing.assert_allclose(pairs.pvalues, holm(np.asarray(pairs.p_unadjusted)))
    test, first = result.anova(), signs[:2]
    away, plain = first @ params, first @ np.diag(result.parts[0].independent) @ first.T
    effects = np.linalg.solve(plain, first @ cov @ first.T)
    trace = np.trace(effects)
    statistic = away @ np.linalg.solve(plain, away) / trace
    assert test.statistic == pytest.approx(statistic, rel=1e-6)
    assert test.df_num == pytest.approx(trace**2 / np.trace(effects @ effects), rel=1e-6)
    assert test.pvalue == pytest.approx(stats.f.sf(statistic, test.df_num, test.df_denom), rel=1e-6)
    assert result.single_test().pvalue == test.pvalue
    assert "equal groups: F = " in result.summary()


@pytest.mark.parametrize("column", ["ill", "income"])
def test_groups_without_rows_are_in_no_test(surveyed, column):
    columns = [
        *surveyed.columns[:2],
        surveyed.columns[3],
        dps.Category("place", ["coast", "hills", "none"]),
    ]
    rows, region = surveyed.rows, surveyed.rows["region"]
    rows = rows.assign(place=region.where(region != "plain", "hills"))
    asked = {"x": dps.GroupMeans(column, by="place", groups=["none", "hills", "coast"])}
    schema = surveyed.schema(*columns)
    result = dps.release(dps.plan(schema, asked, budget=dps.PureDP(5), n=1518), rows, m=200)
    result = result.infer("x")
    assert result.used == ("hills", "coast")
    assert result.anova().df_num == 1
    pairs = result.pairwise()
    assert pairs.pvalues[:2].tolist() == [1, 1] > pairs.pvalues[2:].tolist()
    assert result.anova().null == "the values of hills, coast are equal in the population"


def test_results_have_what_those_without_a_design_have(released):
    assert released.infer("difference_of_sexes").test().null.startswith("risk difference = 0")
    assert released.infer("difference_of_sexes").single_test().pvalue < 1
    assert released.infer("of means").single_test().pvalue < 1
    table = released.infer("region").crosstab("region")
    np.testing.assert_allclose(np.sort(table.to_numpy().ravel()),
                               np.sort(released.infer("region").params))  # fmt: skip


def test_limits_of_ratios_end_at_zero_and_infinity(surveyed):
    """Where the noise hides a rare trait, and not at some power of ten."""
    rows = surveyed.rows.assign(ill=np.arange(len(surveyed.rows)) % 300 == 0)
    plan = dps.plan(surveyed.schema(), {"rare": dps.Difference("ill", by="sex")},
                    budget=dps.PureDP(1), n=len(rows))  # fmt: skip
    limits = np.concatenate([
        dps.release(plan, rows, m=2, k=5, rng=i).infer("rare").conf_int()[1:] for i in range(20)
    ])  # fmt: skip
    assert not np.isnan(limits).any()
    assert np.isinf(limits).any()
    assert limits[np.isfinite(limits)].max() < 1e15


def test_totals_are_named_after_what_they_are_of(released):
    assert released.infer("income").totals().terms == ["total of income"]
    women = released.infer("income of women").totals().terms
    assert women == ["total of income | sex == 'f'"]
    assert released.infer("ill_by_sex").totals().terms[0] == "total of ill, sex=f"
    assert released.infer("income_by_region").totals().terms[2] == "total of income, region=plain"


def test_groups_in_another_order_are_dates_with_totals(surveyed):
    columns = [
        dps.Category("sex", ["f", "m"]),
        dps.Number("day", "2020-01-01", "2020-12-31", missing="2020-06-01"),
    ]
    rows = surveyed.rows
    rows = rows.assign(day=pd.Timestamp("2020-03-01") + pd.to_timedelta(rows["age"], "D"))
    asked = {name: dps.GroupMeans("day", by="sex", groups=groups)
             for name, groups in {"same": None, "other": ["m", "f"]}.items()}  # fmt: skip
    schema = surveyed.schema(*columns)
    release = dps.release(dps.plan(schema, asked, budget=WITHOUT_NOISE, n=1518), rows, m=200)
    same, other = release.infer("same"), release.infer("other")
    assert other.dates == ["sex=m", "sex=f"]
    np.testing.assert_allclose(other.conf_int(), same.conf_int()[::-1])
    np.testing.assert_allclose(other.totals().params, same.totals().params[::-1])


def test_a_total_below_the_noisy_sum_of_weights_is_noted(surveyed):
    about = surveyed.figures["about"]
    for total, noted in ((about["weights"], False), (0.9 * about["weights"], True)):
        schema = surveyed.schema(*surveyed.columns[:1], total=total)
        plan = dps.plan(schema, {"x": dps.Proportion("ill")}, budget=dps.PureDP(5), n=1518)
        result = dps.release(plan, surveyed.rows, m=200).infer("x")
        assert any("check total=" in note for note in result.notes) is noted
        share, most = result.capped_share
        cut = 1 - (surveyed.rows["u"].sum() * about["cap"] / 4096) / total
        assert 0 <= share <= most
        assert share == pytest.approx(max(cut, 0), abs=0.01)
        assert any(f"cut off {share:.1%} of the weight" in note for note in result.notes)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("epsilon", [1, 10**6, 10**9])
def test_a_domain_without_rows_has_no_estimate_and_all_values(surveyed, unit, epsilon):
    """Whatever the noise: with next to none, sums of zero are no small sums."""
    columns = [
        *surveyed.columns[:2],
        surveyed.columns[3],
        dps.Category("region", ["coast", "hills", "plain", "sea"]),
    ]
    asked = {
        "share": dps.Proportion("ill", given="region == 'sea'"),
        "mean": dps.Mean("income", given="region == 'sea'"),
        "by": dps.GroupMeans("income", by="region"),
        "gap": dps.Difference("ill", by="region", groups=("sea", "coast")),
    }
    schema = surveyed.schema(*columns)
    plan = dps.plan(schema, asked, budget=dps.PureDP(epsilon), unit=unit, n=1518)
    release = dps.release(plan, surveyed.rows, m=200)
    for target in ("population", "table"):
        assert release.infer("share").conf_int(target=target).tolist() == [0, 1]
        assert release.infer("mean").conf_int(target=target).tolist() == [0, 100]
        assert release.infer("by").conf_int(target=target)[3].tolist() == [0, 100]
        assert release.infer("gap").conf_int(target=target)[0].tolist() == [-1, 1]
    result = release.infer("by")
    if epsilon > 1:
        assert np.isnan(np.asarray(result.params)).tolist() == [False] * 3 + [True]
        assert result.notes[0].startswith("there is no estimate of ['region=sea']")
        assert result.used == ("coast", "hills", "plain")
        assert result.anova().pvalue < 1
        pairs = result.pairwise()
        known = ["sea" not in term for term in pairs.terms]
        assert np.isfinite(pairs.params).tolist() == known
        assert (np.asarray(pairs.pvalues)[known] < 1).any()
        assert "nan" not in pairs.summary().partition("Note")[0]


def test_results_can_be_pickled(released):
    for name in released.analyses:
        result = released.infer(name)
        again = pickle.loads(pickle.dumps(result))
        assert again == result
        np.testing.assert_array_equal(again.conf_int(alpha=0.01), result.conf_int(alpha=0.01))
    pairs = pickle.loads(pickle.dumps(released.infer("income_by_region"))).pairwise()
    assert pairs == released.infer("income_by_region").pairwise()


def test_intervals_are_of_possible_values(surveyed):
    """Shares and totals of levels without rows, which noise makes negative every other time."""
    levels = ["f", "m", *"abcdeghi"]
    schema = surveyed.schema(dps.Category("sex", levels), dps.Boolean("ill"))
    analyses = {"table": dps.Marginals(["sex"], 1), "rates": dps.GroupMeans("ill", by="sex")}
    plan = dps.plan(schema, analyses, budget=dps.PureDP(3), n=len(surveyed.rows))
    release = dps.release(plan, surveyed.rows, m=10, k=10)
    table, rates = release.infer("table"), release.infer("rates")
    for result, most in ((table, 1), (table.totals(), np.inf), (rates, 1)):
        estimates = np.asarray(result.params)
        known = np.isfinite(estimates)
        low, high = np.asarray(result.conf_int()).T[:, known]
        possible = np.clip(estimates[known], 0, most)
        assert ((low <= possible) & (possible <= high)).all()
        assert (low < high).all()
        assert ("impossible" in " ".join(result.notes)) == (possible != estimates[known]).any()
    share = release.infer(dps.Proportion("sex == 'a'"))
    end = share.conf_int()[1]
    assert share.test(0.999 * end).pvalue > 0.05 > share.test(1.001 * end).pvalue
