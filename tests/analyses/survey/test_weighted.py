"""Weighted estimates without noise: those of R's survey package, by contrasts of units."""

import itertools
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.survey.weighted import Estimates
from dpstats.error_rates import holm

DATA = Path(__file__).parents[2] / "data"
FIGURES = json.loads((DATA / "survey.json").read_text("utf-8"))
WITHOUT_NOISE = dps.PureDP(10**10)


def units_of(frame, stratum, unit):
    return {h: sorted(set(rows[unit])) for h, rows in frame.groupby(stratum)}


def survey_design(frame, **options):
    about = FIGURES["survey"]["about"]
    given = {"mean": about["mean_weight"], "cap": about["cap"], "total": about["weights"]}
    units = units_of(frame, "stratum", "psu")
    return dps.Design("w", strata="stratum", unit="psu", units=units, **(given | options))


COLUMNS = [
    dps.Boolean("ill"), dps.Category("sex", ["f", "m"]),
    dps.Category("region", ["coast", "hills", "plain"]),
    dps.Number("income", 0, 100, points=1001, edges=range(10, 100, 10), missing=0),
    dps.Number("age", 18, 90, points=73, missing=18),
    dps.Number("visits", 0, 30, points=31, missing=0),
]  # fmt: skip


@pytest.fixture(scope="module")
def survey():
    return pd.read_csv(DATA / "survey.csv")


@pytest.fixture(scope="module")
def released(survey):
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
    schema = dps.Schema(COLUMNS, design=survey_design(survey))
    plan = dps.plan(schema, asked, budget=WITHOUT_NOISE, unit="add_remove", n=1500)
    return dps.release(plan, survey, m=500)


def configurations(units):
    """Signs of units in pairs and a triple, all that are possible, as weighted contrasts."""
    if len(units) <= 1:
        return [[]]
    if len(units) == 2:
        return [[(units, 1.0)]]
    if len(units) % 2:
        found = []
        for a, b, c in itertools.combinations(units, 3):
            rest = [unit for unit in units if unit not in (a, b, c)]
            for pair in ((a, b), (a, c), (b, c)):
                found += [[(pair, 1.5), *others] for others in configurations(rest)]
        return found
    first, *others = units
    found = []
    for second in others:
        rest = [unit for unit in others if unit != second]
        found += [[((first, second), 1.0), *more] for more in configurations(rest)]
    return found


def over_all_pairings(totals, block, frame, schema, lonely=None):
    """Totals with the contrasts of every configuration of every stratum, each with its share."""
    names = [column.name for column in block.columns]
    codes = schema.select(names).encode(pa.RecordBatch.from_pandas(frame))
    of_unit = {}
    for key, rows in frame.groupby(["stratum", "psu"]):
        inside = {name: column[rows.index] for name, column in codes.items()}
        values = block.functions(inside).astype(float) / block.bounds[:, None]
        of_unit[key] = values @ frame["u"].to_numpy()[rows.index]
    contrasts, factors = [], []
    strata = [[(h, unit) for unit in units] for h, units in
              units_of(frame, "stratum", "psu").items()]  # fmt: skip
    if lonely == "collapse":  # a single one joins the next stratum, here as in R's figure
        (alone,) = (units for units in strata if len(units) == 1)
        strata = [units for units in strata if len(units) > 1]
        strata[0] = alone + strata[0]
    for units in strata:
        if len(units) == 1 and lonely == "adjust":
            contrasts.append(of_unit[units[0]])
            factors.append(1.0)
        every = configurations(units)
        for pairs in every:
            for (a, b), factor in pairs:
                contrasts.append(of_unit[a] - of_unit[b])
                factors.append(factor / len(every))
    return replace(totals, contrasts=np.array(contrasts), factors=np.array(factors),
                   contrast_noise=np.zeros((block.size,) * 2))  # fmt: skip


def estimates(released, name, frame):
    result = released.infer(name)
    params, covariances = [], []
    for part in result.parts:
        totals = over_all_pairings(part.totals, part.estimand.block, frame, released.schema)
        exact = Estimates(part.estimand, totals)
        params.append(exact.params)
        covariances.append(exact.sampling_covariance)
    assert len(params) == 1
    np.testing.assert_allclose(result.params, params[0])
    return params[0], covariances[0]


def same(params, cov, figure, places=slice(None)):
    np.testing.assert_allclose(params, np.array(figure["params"])[places], rtol=1e-8)
    wanted = np.array(figure["cov"])[places, places]
    np.testing.assert_allclose(cov, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


def test_means_domains_and_differences_are_those_of_r(released, survey):
    figures = FIGURES["survey"]
    for i, name in enumerate(["ill", "income", "age"]):
        same(*estimates(released, name, survey), figures["means"], slice(i, i + 1))
    same(*estimates(released, "region", survey), figures["region"])
    same(*estimates(released, "women", survey), figures["women"], slice(0, 1))
    same(*estimates(released, "income of women", survey), figures["women"], slice(1, 2))
    for name in ("ill_by_sex", "income_by_region"):
        same(*estimates(released, name, survey), figures[name])
    params, cov = estimates(released, "difference_of_sexes", survey)
    of_r = figures["difference_of_sexes"]
    sign = np.sign(params[0] / of_r["params"][0])
    assert params[0] == pytest.approx(sign * of_r["params"][0], rel=1e-8)
    assert cov[0, 0] == pytest.approx(of_r["cov"][0][0], rel=1e-8)


def test_ratios_are_those_of_r(released, survey):
    figures = FIGURES["survey"]
    for i, name in enumerate(["income/age", "visits/age"]):
        same(*estimates(released, name, survey), figures["ratios_to_age"], slice(i, i + 1))
    women = figures["ratios_to_age_of_women"]
    same(*estimates(released, "visits/age of women", survey), women, slice(1, 2))
    same(*estimates(released, "income/age by region", survey), figures["income_to_age_by_region"])
    result = released.infer("income/age by region")
    assert result.conf_int().shape == (3, 2)
    (part,) = result.parts  # as many independent rows: squares of the linearised values
    inside = survey["region"].to_numpy() == np.array([["coast"], ["hills"], ["plain"]])
    u, income, age = (survey[name].to_numpy() for name in ("u", "income", "age"))
    z = (
        inside
        * (income - np.asarray(result.params)[:, None] * age)
        / (inside * u * age).sum(axis=1, keepdims=True)
    )
    squares = part.independent / part.totals.design.coded_mean
    np.testing.assert_allclose(squares, (z**2) @ u, rtol=1e-3)


def test_totals_are_those_of_r(released, survey):
    figures = FIGURES["survey"]["totals"]
    for place, name in ((0, "ill"), (2, "income"), (2, "income/age")):
        result = released.infer(name).totals()
        (part,) = result.parts
        totals = over_all_pairings(part.totals, part.estimand.block, survey, released.schema)
        exact = Estimates(part.estimand, totals)
        same(exact.params, exact.sampling_covariance, figures, slice(place, place + 1))


@pytest.fixture(scope="module")
def nhanes():
    frame = pd.read_csv(DATA / "nhanes.csv")
    return frame[frame["SDMVSTRA"] != 86].reset_index(drop=True)  # 86 has three units


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize(
    "budget", [dps.PureDP(10**9), dps.ZCDP(10**10)], ids=["laplace", "gaussian"]
)
def test_contrasts_of_two_units_a_stratum_give_the_variance_itself(nhanes, unit, budget):
    """With a contrast for every pair; rotated where two sets are measured under replace."""
    about = FIGURES["nhanes"]["about"]
    design = dps.Design("WTMEC2YR", mean=about["mean_weight"], cap=about["cap"],
                        strata="SDMVSTRA", unit="SDMVPSU",
                        units=units_of(nhanes, "SDMVSTRA", "SDMVPSU"))  # fmt: skip
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
def test_strata_of_one_unit_are_those_of_r(survey, lonely):
    rows = survey[(survey["stratum"] != "a") | (survey["psu"] != 2)].reset_index(drop=True)
    figure = FIGURES["lonely"][lonely]
    schema = dps.Schema(COLUMNS, design=survey_design(rows, lonely=lonely))
    plan = dps.plan(schema, {"ill": dps.Proportion("ill")}, budget=dps.PureDP(10**9))
    (part,) = dps.release(plan, rows, m=500).infer("ill").parts
    totals = over_all_pairings(part.totals, part.estimand.block, rows, schema, lonely)
    exact = Estimates(part.estimand, totals)
    same(exact.params, exact.sampling_covariance, figure, slice(0, 1))
    refused = dps.Schema(COLUMNS, design=survey_design(rows))
    with pytest.raises(dps.SchemaError, match="lonely"):
        dps.plan(refused, {"ill": dps.Proportion("ill")}, budget=WITHOUT_NOISE)


def test_a_domain_of_one_stratum_has_one_degree_of_freedom(nhanes):
    """Fourteen pairs are declared, and thirteen contrasts are zero (eq. concentrated-degrees)."""
    design = dps.Design("WTMEC2YR", mean=32_000, cap=100_000, strata="SDMVSTRA", unit="SDMVPSU",
                        units=units_of(nhanes, "SDMVSTRA", "SDMVPSU"))  # fmt: skip
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
def test_groups_without_rows_are_in_no_test(survey, column):
    columns = [*COLUMNS[:2], COLUMNS[3], dps.Category("place", ["coast", "hills", "none"])]
    rows = survey.assign(place=survey["region"].where(survey["region"] != "plain", "hills"))
    asked = {"x": dps.GroupMeans(column, by="place", groups=["none", "hills", "coast"])}
    schema = dps.Schema(columns, design=survey_design(survey))
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


def test_totals_are_named_after_what_they_are_of(released):
    assert released.infer("income").totals().terms == ["total of income"]
    women = released.infer("income of women").totals().terms
    assert women == ["total of income | sex == 'f'"]
    assert released.infer("ill_by_sex").totals().terms[0] == "total of ill, sex=f"
    assert released.infer("income_by_region").totals().terms[2] == "total of income, region=plain"


def test_groups_in_another_order_are_dates_with_totals(survey):
    columns = [
        dps.Category("sex", ["f", "m"]),
        dps.Number("day", "2020-01-01", "2020-12-31", missing="2020-06-01"),
    ]
    rows = survey.assign(day=pd.Timestamp("2020-03-01") + pd.to_timedelta(survey["age"], "D"))
    asked = {name: dps.GroupMeans("day", by="sex", groups=groups)
             for name, groups in {"same": None, "other": ["m", "f"]}.items()}  # fmt: skip
    schema = dps.Schema(columns, design=survey_design(survey))
    release = dps.release(dps.plan(schema, asked, budget=WITHOUT_NOISE, n=1518), rows, m=200)
    same, other = release.infer("same"), release.infer("other")
    assert other.dates == ["sex=m", "sex=f"]
    np.testing.assert_allclose(other.conf_int(), same.conf_int()[::-1])
    np.testing.assert_allclose(other.totals().params, same.totals().params[::-1])


def test_a_total_below_the_noisy_sum_of_weights_is_noted(survey):
    about = FIGURES["survey"]["about"]
    for total, noted in ((about["weights"], False), (0.9 * about["weights"], True)):
        schema = dps.Schema(COLUMNS[:1], design=survey_design(survey, total=total))
        plan = dps.plan(schema, {"x": dps.Proportion("ill")}, budget=dps.PureDP(5), n=1518)
        result = dps.release(plan, survey, m=200).infer("x")
        assert any("check total=" in note for note in result.notes) is noted
        share, most = result.capped_share
        cut = 1 - (survey["u"].sum() * about["cap"] / 4096) / total
        assert 0 <= share <= most
        assert share == pytest.approx(max(cut, 0), abs=0.01)
        assert any(f"cut off {share:.1%} of the weight" in note for note in result.notes)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("epsilon", [1, 10**6, 10**9])
def test_a_domain_without_rows_has_no_estimate_and_all_values(survey, unit, epsilon):
    """Whatever the noise: with next to none, sums of zero are no small sums."""
    columns = [*COLUMNS[:2], COLUMNS[3], dps.Category("region", ["coast", "hills", "plain", "sea"])]
    asked = {
        "share": dps.Proportion("ill", given="region == 'sea'"),
        "mean": dps.Mean("income", given="region == 'sea'"),
        "by": dps.GroupMeans("income", by="region"),
        "gap": dps.Difference("ill", by="region", groups=("sea", "coast")),
    }
    schema = dps.Schema(columns, design=survey_design(survey))
    plan = dps.plan(schema, asked, budget=dps.PureDP(epsilon), unit=unit, n=1518)
    release = dps.release(plan, survey, m=200)
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
