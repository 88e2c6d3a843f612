"""Weighted estimates without noise: those of R's survey package, by contrasts of units."""

import itertools

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.genmod.families import Binomial

import dpstats as dps
from dpstats.error_rates import holm
from dpstats.families.contrasts import UNIT


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
    return surveyed.release(asked, surveyed.schema(), dps.PureDP(10**10))


def same(params, cov, figure, places):
    np.testing.assert_allclose(params, np.array(figure["params"])[places], rtol=1e-8)
    wanted = np.array(figure["cov"])[np.ix_(places, places)]
    np.testing.assert_allclose(cov, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


def test_estimates_are_those_of_r(surveyed, released):
    def estimates(name):
        result = released.infer(name)
        (part,) = result.parts
        exact = surveyed.exact(part, released.schema)
        np.testing.assert_allclose(result.params, exact.params)
        return exact.params, exact.sampling_covariance

    for name, figure, places in [
        ("ill", "means", [0]), ("income", "means", [1]), ("age", "means", [2]),
        ("region", "region", [0, 1, 2]), ("women", "women", [0]), ("income of women", "women", [1]),
        ("ill_by_sex", "ill_by_sex", [0, 1]),
        ("income_by_region", "income_by_region", [0, 1, 2]),
        ("income/age", "ratios_to_age", [0]), ("visits/age", "ratios_to_age", [1]),
        ("visits/age of women", "ratios_to_age_of_women", [1]),
        ("income/age by region", "income_to_age_by_region", [0, 1, 2]),
    ]:  # fmt: skip
        same(*estimates(name), surveyed.figures[figure], places)
    params, cov = estimates("difference_of_sexes")
    of_r = surveyed.figures["difference_of_sexes"]
    assert abs(params[0]) == pytest.approx(abs(of_r["params"][0]), rel=1e-8)
    assert cov[0, 0] == pytest.approx(of_r["cov"][0][0], rel=1e-8)
    for place, name in ((0, "ill"), (2, "income"), (2, "income/age")):
        (part,) = released.infer(name).totals().parts
        exact = surveyed.exact(part, released.schema)
        same(exact.params, exact.sampling_covariance, surveyed.figures["totals"], [place])
    for name, value, ends in [
        ("ill", 30, "0 and 1"), ("income", -1, "0 and 100"), ("difference_of_sexes", -2, "-1 and 1")
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError, match=f"between {ends} in any table"):
            released.infer(name).test(value)


def test_cells_that_no_row_of_a_subgroup_can_be_in_are_answered(surveyed):
    """They were measured and charged for, and then every answer was refused."""
    frame, given = surveyed.rows, "ill or sex == 'f' or region == 'coast'"
    asked = {
        "means": dps.GroupMeans("ill", by="sex", given="ill or sex == 'f'"),
        "odds": dps.Logistic("ill ~ sex + region", given=given),
    }
    release = surveyed.release(asked, surveyed.schema(), dps.PureDP(10**10))
    women = frame[frame["sex"] == "f"]
    means = [np.average(women["ill"], weights=women["u"]), 1]
    np.testing.assert_allclose(release.infer("means").params, means, rtol=1e-6)
    inside = frame[frame["ill"].astype(bool) | (frame["sex"] == "f") | (frame["region"] == "coast")]
    known = smf.glm("ill ~ sex + region", inside.assign(ill=inside["ill"].astype(int)),
                    family=Binomial(), freq_weights=inside["u"]).fit()  # fmt: skip
    np.testing.assert_allclose(release.infer("odds").params, known.params, rtol=1e-5)


def test_a_share_that_is_the_same_in_all_rows_is_refused_before_it_is_paid_for(surveyed):
    for given in ("ill and sex == 'f'", "not ill"):
        with pytest.raises(dps.RequestError, match="same value in all rows"):
            dps.plan(surveyed.schema(), {"x": dps.Proportion("ill", given=given)}, dps.PureDP(1))


@pytest.mark.parametrize("m", [2, 3, 4, 5])
def test_squares_of_contrasts_are_the_variance_on_average_over_pairings(m):
    """Over all orders of m units of a stratum: m / (m - 1) times squares about their mean."""
    design = dps.Design("w", mean=1, cap=1, unit="u", units=list(range(m)))
    schema, asked = dps.Schema([dps.Boolean("y")], design=design), {"x": dps.Proportion("y")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), n=10)
    (block,) = (planned.block for planned in plan.strategy.contrasts)
    totals, squares = np.array([1, 4, 2, 7, 3])[:m], []
    for order in itertools.permutations(design.pairs.codes[0, i] for i in range(m)):
        codes = {"y": np.ones(totals.sum(), int), UNIT: np.repeat(order, totals)}
        squares.append(block.factors @ block.sums(codes).reshape(block.count, -1) ** 2)
    np.testing.assert_allclose(np.mean(squares, axis=0), [m * totals.var(ddof=1), 0])


@pytest.fixture(scope="module")
def nhanes(surveyed):
    """Rows of strata with two units each, and their design: 86 has three units."""
    frame = pd.read_csv(surveyed.data / "nhanes.csv")
    frame = frame[frame["SDMVSTRA"] != 86].reset_index(drop=True)
    about, keys = surveyed.all_figures["nhanes"]["about"], ("SDMVSTRA", "SDMVPSU")
    units = {"strata": keys[0], "unit": keys[1], "units": surveyed.units_of(frame, *keys)}
    return frame, dps.Design("WTMEC2YR", mean=about["mean_weight"], cap=about["cap"], **units)


@pytest.mark.parametrize(
    ("unit", "budget"), [("add_remove", dps.PureDP(10**9)), ("replace", dps.ZCDP(10**10))]
)
def test_contrasts_of_two_units_a_stratum_give_the_variance_itself(surveyed, nhanes, unit, budget):
    """With a contrast for every pair; rotated where two sets are measured under replace."""
    frame, design = nhanes
    columns = [dps.Category("HI_CHOL", [0, 1]), dps.Category("race", [1, 2, 3, 4])]
    asked = {"high": dps.Proportion("HI_CHOL == 1"), "race": dps.GroupMeans("HI_CHOL", by="race")}
    release = surveyed.release(asked, dps.Schema(columns, design=design), budget, frame, unit)
    u, y = frame["u"].to_numpy(), frame["HI_CHOL"].to_numpy()
    groups = [np.ones(len(u)), *(frame["race"].to_numpy() == level for level in (1, 2, 3, 4))]
    wanted = []
    for inside in groups:
        size = np.sum(u * inside)
        z = u * inside * (y - np.sum(u * inside * y) / size) / size
        of_units = pd.Series(z).groupby([frame["SDMVSTRA"], frame["SDMVPSU"]]).sum()
        wanted.append(np.sum(of_units.groupby(level=0).diff().dropna() ** 2))
    found = np.concatenate([release.infer(name).sampling_variance for name in asked])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert 13 < release.infer("high").degrees_of_freedom[0] < 14


@pytest.mark.parametrize("lonely", ["certainty", "adjust", "collapse"])
def test_strata_of_one_unit_are_those_of_r(surveyed, lonely):
    rows = surveyed.rows
    rows = rows[(rows["stratum"] != "a") | (rows["psu"] != 2)].reset_index(drop=True)
    figure = surveyed.all_figures["lonely"]["adjust" if lonely == "collapse" else lonely]
    schema = surveyed.schema(frame=rows, lonely=lonely)
    (part,) = surveyed.release(dps.Proportion("ill"), schema, rows=rows).infer("x").parts
    exact = surveyed.exact(part, schema, rows, lonely)
    same(exact.params, exact.sampling_covariance, figure, [0])
    with pytest.raises(dps.SchemaError, match="lonely"):
        surveyed.release(dps.Proportion("ill"), surveyed.schema(frame=rows), rows=rows)


@pytest.mark.parametrize("lonely", ["adjust", "collapse"])
@pytest.mark.parametrize("singles", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (4, 3), ()])
def test_every_lonely_unit_is_measured_and_every_other_stratum_counts_in_full(
    lonely, singles, sizes
):
    """The variance is then on average at least the true one, whichever strata vary most."""
    units = {f"h{h}": [*range(size)] for h, size in enumerate((*sizes, *[1] * singles))}
    if sizes or singles > 1:
        design = dps.Design("w", mean=1, cap=2, strata="h", unit="u", units=units, lonely=lonely)
        counted = dict.fromkeys(range(len(units)), 0)
        for (h, _), code in design.pairs.codes.items():
            counted[h] += (code >= 0) * (1.5 if code // 2 >= design.pairs.plain else 1)
        assert [*counted.values()] == [*sizes, *[1] * singles]


def test_a_domain_of_one_stratum_has_one_degree_of_freedom(surveyed, nhanes):
    """Fourteen pairs are declared, and thirteen contrasts are zero (eq. concentrated-degrees).

    Tests of two groups then have the p-value of their difference (eq. concentrated-jointly).
    """
    frame, design = nhanes
    strata = dps.Category("SDMVSTRA", sorted(set(frame["SDMVSTRA"])))
    race = dps.Category("race", [1, 2, 3, 4])
    schema = dps.Schema([dps.Category("HI_CHOL", [0, 1]), strata, race], design=design)
    one = {"given": "SDMVSTRA == 78"}
    asked = {
        "by": dps.GroupMeans("HI_CHOL", by="SDMVSTRA"), "all": dps.Proportion("HI_CHOL == 1"),
        "two": dps.GroupMeans("HI_CHOL", by="race", groups=[3, 4], **one),
        "table": dps.Independence("HI_CHOL", "race", **one),
    }  # fmt: skip
    release = surveyed.release(asked, schema, rows=frame, unit="replace")
    np.testing.assert_allclose(release.infer("by").degrees_of_freedom, 1, rtol=1e-3)
    assert release.infer("all").degrees_of_freedom[0] > 10
    (pvalue,) = release.infer("two").pairwise().p_unadjusted
    assert release.infer("two").anova().pvalue == pytest.approx(pvalue, rel=0.01)
    df = release.infer("table").df
    assert df[1] / df[0] == pytest.approx(1, rel=1e-3)


def test_certified_limits_of_ratios_hold_those_of_the_rows(surveyed):
    rows, asked = surveyed.rows, dps.Difference("ill", by="sex")
    result = surveyed.release(asked, surveyed.schema(), dps.PureDP(5), unit="replace").infer("x")
    low, high = result.conf_int(alpha=1e-6, method="certified", target="table").T
    f, m = (np.average(part["ill"], weights=part["u"]) for _, part in rows.groupby("sex"))
    sign = 1 if "m" in result.terms[0].partition(" - ")[0] else -1
    own = [sign * (m - f), (m / f) ** sign, (m / (1 - m) / f * (1 - f)) ** sign]
    assert np.all((low <= own) & (own <= high))


def test_pairs_and_equality_of_groups_follow_from_their_covariance(released):
    """Of R's estimates and covariance, by svycontrast and Rao and Scott's test."""
    result = released.infer("income_by_region")
    params, cov = np.asarray(result.params), result.covariance
    pairs, signs = result.pairwise(), np.array([[1, -1, 0], [1, 0, -1], [0, 1, -1]])
    assert pairs.terms == ["coast - hills", "coast - plain", "hills - plain"]
    assert released.infer("of means").params[0] == pytest.approx(-pairs.params[0])
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


def test_limits_of_ratios_end_at_zero_and_infinity(surveyed):
    """Where the noise hides a rare trait, and not at some power of ten."""
    rows = surveyed.rows.assign(ill=np.arange(len(surveyed.rows)) % 300 == 0)
    asked, schema = dps.Difference("ill", by="sex"), surveyed.schema()
    limits = np.array([
        surveyed.release(asked, schema, dps.PureDP(1), rows).infer("x").conf_int()[1:]
        for _ in range(6)
    ])  # fmt: skip
    assert not np.isnan(limits).any()
    assert np.isinf(limits).any()
    assert limits[np.isfinite(limits)].max() < 1e15


def test_a_total_below_the_noisy_sum_of_weights_is_noted(surveyed):
    about = surveyed.figures["about"]
    for total, noted in ((about["weights"], False), (0.9 * about["weights"], True)):
        schema = surveyed.schema(*surveyed.columns[:1], total=total)
        result = surveyed.release(dps.Proportion("ill"), schema, dps.PureDP(5)).infer("x")
        assert any("check total=" in note for note in result.notes) is noted
        cut = 1 - (surveyed.rows["u"].sum() * about["cap"] / 4096) / total
        assert result.capped_share[0] == pytest.approx(max(cut, 0), abs=0.01)


@pytest.mark.parametrize("deff", [1, 4])
def test_limits_of_rare_shares_cover(surveyed, no_noise, deff):
    """By the binomial distribution of sets of `deff` equal rows, 0 to 60 of them in a level."""
    counts, size = np.array([*range(61), 170]), 2_000
    levels = [f"of {k}" for k in counts]
    design = dps.Design("w", mean=1, cap=1, deff=deff)
    schema = dps.Schema([dps.Category("x", levels)], design=design)
    rows = pd.DataFrame({"x": np.repeat(levels, deff * counts), "w": 1.0})
    asked, budget = dps.Marginals(["x"], degree=1), dps.PureDP(1000)
    result = surveyed.release(asked, schema, budget, rows, "replace").infer("x")
    for alpha, least in ((0.05, 0.952), (0.01, 0.995)):
        low, high = result.conf_int(alpha=alpha).T[:, :-1]
        for share in np.array([0.5, 1, 2, 3, 4, 6, 8, 9.38]) / size:
            covers = (low <= share) & (share <= high)
            assert stats.binom.pmf(counts[:-1], size, share) @ covers > least, (alpha, share)
    assert result.test(high[0], term=result.terms[0]).pvalue == pytest.approx(0.01, rel=1e-6)
    z, p = stats.norm.ppf(0.995), counts[:-1] / size
    plain = p + z * np.sqrt(p * (1 - p) / size)
    np.testing.assert_allclose(high[50:], plain[50:], rtol=1e-6)  # of many rows
    assert np.all(high[:49] > plain[:49])


def test_equality_of_rare_shares_is_pearsons_test(surveyed, no_noise):
    design = dps.Design("w", mean=1, cap=1, deff=1)
    schema = dps.Schema([dps.Boolean("ill"), dps.Category("g", list("abcd"))], design=design)
    rows = pd.DataFrame({"g": np.repeat(list("abcd"), 300), "ill": False, "w": 1.0})
    rows.loc[[300, 301, 600, 900, 901, 902, 903, 904], "ill"] = True  # none of "a"
    found = surveyed.release(dps.GroupMeans("ill", by="g"), schema, rows=rows).infer("x").anova()
    wanted = stats.chi2_contingency(pd.crosstab(rows["g"], rows["ill"]), correction=False)
    assert found.pvalue == pytest.approx(wanted.pvalue, rel=1e-3)


@pytest.mark.parametrize(("unit", "epsilon"), [("replace", 1), ("add_remove", 10**9)])
def test_a_domain_without_rows_has_no_estimate_and_all_values(surveyed, unit, epsilon):
    """Whatever the noise: with next to none, sums of zero are no small sums."""
    sea, inside = dps.Category("region", ["coast", "hills", "plain", "sea"]), "region == 'sea'"
    asked = {
        "share": dps.Proportion("ill", given=inside), "mean": dps.Mean("income", given=inside),
        "by": dps.GroupMeans("income", by="region"),
        "gap": dps.Difference("ill", by="region", groups=("sea", "coast")),
    }  # fmt: skip
    schema = surveyed.schema(*surveyed.columns[:2], surveyed.columns[3], sea)
    release = surveyed.release(asked, schema, dps.PureDP(epsilon), unit=unit)
    for target in ("population", "table"):
        ends = {name: release.infer(name).conf_int(target=target).tolist() for name in asked}
        assert ends["share"] == [0, 1]
        assert ends["mean"] == ends["by"][3] == [0, 100]
        assert ends["gap"][0] == [-1, 1]
    result = release.infer("by")
    if epsilon > 1:
        assert np.isnan(np.asarray(result.params)).tolist() == [False] * 3 + [True]
        assert result.used == ("coast", "hills", "plain")
        assert result.anova().pvalue < 1
        pairs = result.pairwise()
        assert np.isfinite(pairs.params).tolist() == ["sea" not in term for term in pairs.terms]
