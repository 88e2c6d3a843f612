"""Weighted quantiles, chi-square tests and survival curves, against R's survey package."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import RequestError

SEX = dps.Category("sex", ["f", "m"])
REGION = dps.Category("region", ["coast", "hills", "plain"])
ILL = dps.Category("ill", [0, 1])
TIME = dps.Number("time", values=list(range(1, 11)), missing=10)
EVENT = dps.Category("event", [0, 1])


def income(edges, **options):
    return dps.Number("income", 0, 100, edges=edges, missing=0, **options)


INCOME = income(range(10, 100, 10))


@pytest.fixture
def result_of(surveyed):
    def of(income, asked=None, *others):
        schema = surveyed.schema(income, *others)
        return surveyed.release(asked or dps.Quantile("income"), schema).infer("x")

    return of


def test_distribution_function_is_that_of_svymean(surveyed, all_contrasts, result_of):
    """R's shares are of x <= edge, so bins are closed on the right."""
    edges = [30, 40, 50, 60, 70]  # beyond these are few rows
    some = [edge // 10 - 1 for edge in edges]
    result = result_of(income(edges, closed="right"), dps.Quantile("income", [0.25, 0.5]))
    frame, figure = result.distribution(), surveyed.figures["income_below"]
    t = stats.t.ppf(0.975, surveyed.df)
    params, cov = np.array(figure["params"])[some], np.array(figure["cov"])[np.ix_(some, some)]
    np.testing.assert_allclose(frame["estimate"], params, rtol=1e-8)
    se = np.sqrt(np.diag(cov))
    for name, side in (("low", -1), ("high", 1)):
        np.testing.assert_allclose(frame[name], np.clip(params + side * t * se, 0, 1), atol=1e-7)
    part = result.intervals.distribution.shares.parts[0]
    found, scale = part.sampling_covariance, np.outer(se, se)
    np.testing.assert_allclose(found / scale, cov / scale, atol=1e-7)
    ratio = stats.t.ppf(1 - 0.025 / len(edges), surveyed.df) / t
    inside = frame[frame["band_low"] > 0]
    half = (inside["estimate"] - inside["band_low"]) / ratio
    np.testing.assert_allclose(half, inside["estimate"] - inside["low"], rtol=1e-6)


def test_quantiles_are_in_the_bins_of_svyquantile(surveyed, all_contrasts, result_of):
    """Woodruff's limits, widened to the edges of their bins."""
    figure = surveyed.figures["income_quantiles"]["mean"]
    asked = dps.Quantile("income", figure["probabilities"])
    result = result_of(income(range(10, 100, 10), closed="right"), asked)
    low, high = result.conf_int().T
    # R takes the standard error at the quantile: its limits may be over the next edge
    assert np.all(low % 10 == 0)
    assert np.all(np.abs(low - figure["lower"]) <= 10)
    assert np.all(np.abs(high - figure["upper"]) <= 10)
    frame = result.distribution()
    for p, least, most in zip(figure["probabilities"], low, high, strict=True):
        inside = frame[frame["edge"].between(least, most, inclusive="neither")]
        assert np.all((inside["low"] <= p) | (inside["high"] >= p))
        assert frame["high"][frame["edge"] < least].max() < p
        assert p < frame["low"][frame["edge"] > most].min()
    assert np.all(np.abs(result.params - figure["params"]) < 5)


def test_pvalues_are_those_of_the_distribution_function(surveyed, all_contrasts, result_of):
    result = result_of(INCOME)
    at = result.distribution().set_index("edge").loc[60]
    se = (at["high"] - at["estimate"]) / stats.t.ppf(0.975, surveyed.df)
    expected = 2 * stats.t.sf((at["estimate"] - 0.5) / se, surveyed.df)
    assert result.test(65).pvalue == pytest.approx(expected, rel=1e-5)
    assert result.test(45).pvalue > 0.05 > result.test(65).pvalue


def test_domains_keep_the_design(surveyed, all_contrasts, result_of):
    result = result_of(income([30, 50, 70]), dps.Quantile("income", given="sex == 'f'"), SEX)
    women = surveyed.rows[surveyed.rows["sex"] == "f"]
    shares = [np.average(women["income"] < edge, weights=women["u"]) for edge in (30, 50, 70)]
    np.testing.assert_allclose(result.distribution()["estimate"], shares, rtol=1e-8)


def test_many_bins_take_the_design_effect_of_the_nearest_of_four(all_contrasts, result_of):
    """Of 20 bins of 5: sets end at 25, 50 and 75."""
    result = result_of(income(range(5, 100, 5)))
    part = result.intervals.distribution.shares.parts[0]
    assert part.nearest.tolist() == [0] * 7 + [1] * 5 + [2] * 7
    coarse = result_of(income([25, 50, 75])).intervals.distribution.shares.parts[0]
    effects = np.diag(coarse.sampling_covariance) / (coarse.params * (1 - coarse.params))
    expected = effects[part.nearest] * part.params * (1 - part.params)
    np.testing.assert_allclose(np.diag(part.sampling_covariance), expected, rtol=1e-6)
    np.testing.assert_allclose(part.degrees_of_freedom, 18, rtol=1e-6)


@pytest.mark.parametrize(
    ("unit", "budget"), [("replace", dps.PureDP(1)), ("add_remove", dps.ZCDP(0.05))]
)
def test_certified_limits_hold_the_rows_own_distribution(surveyed, unit, budget):
    asked, schema = dps.Quantile("income"), surveyed.schema(INCOME)
    result = surveyed.release(asked, schema, budget, unit=unit).infer("x")
    frame = result.distribution(alpha=1e-6, method="certified", target="table")
    rows = surveyed.rows
    own = [np.average(rows["income"] < edge, weights=rows["u"]) for edge in frame["edge"]]
    assert np.all((frame["band_low"] <= own) & (own <= frame["band_high"]))
    assert np.all(frame["band_high"] - frame["band_low"] < 0.9)
    whole = result.distribution(method="certified", target="population")
    assert (whole[["low", "high"]] == [0, 1]).all(axis=None)


# Chi-square tests.


def check(result, f):
    """The statistic, its degrees of freedom and the p-value."""
    wanted = [f["statistic"], f["ndf"], f["ddf"], f["pvalue"]]
    np.testing.assert_allclose([result.statistic, *result.df, result.pvalue], wanted, rtol=1e-6)


@pytest.mark.parametrize(("outer", "order"), [("region", 1), ("sex", -1)])
def test_independence_is_svychisq(surveyed, all_contrasts, outer, order):
    figure = surveyed.figures[f"{outer}_by_ill"]
    schema = surveyed.schema(ILL, SEX, REGION)
    result = surveyed.release(dps.Independence(*[outer, "ill"][::order]), schema).infer("x")
    check(result, figure["f"])
    assert result.design_effect == pytest.approx(np.mean(figure["design_effects"]), rel=1e-7)
    assert result.effect == pytest.approx((figure["pearson"] / len(surveyed.rows)) ** 0.5, rel=1e-6)
    shares = result.crosstab("ill", outer).to_numpy().ravel()
    np.testing.assert_allclose(shares, figure["cells"]["params"], rtol=1e-7)
    if outer == "region":
        women = dps.Independence("region", "ill", given="sex == 'f'")
        result = surveyed.release(women, schema).infer("x")
        check(result, surveyed.figures["region_by_ill_of_women"]["f"])


def test_goodness_of_fit(surveyed, all_contrasts):
    """Pearson's statistic over the traces of its design effects under the null hypothesis."""
    figure, p0 = surveyed.figures["region"], np.array([0.3, 0.3, 0.4])
    result = surveyed.release(dps.GoodnessOfFit("region", p0), surveyed.schema(REGION)).infer("x")
    p, n = np.array(figure["params"]), len(surveyed.rows)
    pearson = n * ((p - p0) ** 2 / p0).sum()
    v0 = (np.diag(p0) - np.outer(p0, p0))[:2, :2] / n
    delta = np.linalg.solve(v0, np.array(figure["cov"])[:2, :2])
    trace = np.trace(delta)
    k, f = trace**2 / np.trace(delta @ delta), pearson / trace
    expected = {"ndf": k, "ddf": 18 * k, "pvalue": stats.f.sf(f, k, 18 * k)}
    check(result, {"statistic": f, **expected})
    assert result.effect == pytest.approx((pearson / n) ** 0.5, rel=1e-6)
    residuals = (p - p0) / np.sqrt(np.diag(figure["cov"]))
    np.testing.assert_allclose(result.residuals, residuals, rtol=1e-6)


def test_missing_cells_are_left_out_of_a_fit_of_values(surveyed, all_contrasts):
    schema = surveyed.schema(dps.Category("region", ["coast", "hills"], allow_missing=True))
    result = surveyed.release(dps.GoodnessOfFit("region", [0.5, 0.5]), schema).infer("x")
    two = surveyed.rows[surveyed.rows["region"] != "plain"]
    own = two["u"][two["region"] == "coast"].sum() / two["u"].sum()
    np.testing.assert_allclose(result.shares, [own, 1 - own], rtol=1e-7)


def test_declared_levels_without_rows_are_left_out(surveyed, all_contrasts):
    f, asked = surveyed.figures["region_by_ill"]["f"], dps.Independence("region", "ill")
    schema = surveyed.schema(dps.Category("region", ["coast", "hills", "swamp", "plain"]), ILL)
    result = surveyed.release(asked, schema).infer("x")
    assert result.statistic == pytest.approx(f["statistic"], rel=1e-6)
    assert result.df[0] == pytest.approx(f["ndf"], rel=1e-6)
    assert np.isnan(result.expected[result.to_frame()["region"] == "swamp"]).all()
    assert "swamp" in " ".join(result.notes)
    schema = surveyed.schema(dps.Category("region", ["swamp", "moor"]), ILL)
    result = surveyed.release(asked, schema, dps.PureDP(5)).infer("x")
    assert np.isnan(result.statistic)
    assert result.pvalue == 1
    strata = dps.Independence("region", "ill", given="sex")
    schema = surveyed.schema(REGION, ILL, SEX)
    with pytest.raises(RequestError, match="no test within strata"):
        surveyed.release(strata, schema)


def test_a_design_effect_serves_without_contrasts(surveyed):
    design = dps.Design("w", mean=surveyed.figures["about"]["mean_weight"], cap=8_000, deff=2)
    schema = dps.Schema([INCOME, REGION, ILL], design=design)
    part = (
        surveyed.release(dps.Quantile("income"), schema)
        .infer("x")
        .intervals.distribution.shares.parts[0]
    )
    wanted = 2 * part.params * (1 - part.params) / len(surveyed.rows)
    np.testing.assert_allclose(np.diag(part.sampling_covariance), wanted, rtol=1e-6)
    result = surveyed.release(dps.Independence("region", "ill"), schema).infer("x")
    assert result.design_effect == pytest.approx(2, rel=1e-6)
    assert result.df == (pytest.approx(2, rel=1e-6), np.inf)
    pearson = surveyed.figures["region_by_ill"]["pearson"]
    assert result.pvalue == pytest.approx(stats.chi2.sf(pearson / 2, 2), rel=1e-5)


# Survival curves and log-rank tests.


def curves(surveyed, by=None, budget=None, **options):
    schema = surveyed.schema(TIME, EVENT, SEX, REGION)
    asked = dps.Survival("time", "event == 1", by=by, **options)
    release = surveyed.release(asked, schema, *([] if budget is None else [budget]))
    return release.infer("x")


@pytest.mark.parametrize(("by", "name"), [(None, "survival"), ("sex", "survival_by_sex")])
def test_curves_are_those_of_svykm(surveyed, all_contrasts, by, name):
    """At all declared times but the last."""
    result, figure = curves(surveyed, by), surveyed.figures[name]
    some = np.arange(len(figure["params"])) % 10 < 9
    params, cov = np.array(figure["params"])[some], np.array(figure["cov"])[np.ix_(some, some)]
    np.testing.assert_allclose(result.params, params, rtol=1e-8)
    se, t = np.sqrt(np.diag(cov)), stats.t.ppf(0.975, surveyed.df)
    found, scale = result.intervals.parts[0].sampling_covariance, np.outer(se, se)
    np.testing.assert_allclose(found / scale, cov / scale, atol=1e-6)
    ends = np.clip([params - t * se, params + t * se], 0, 1)
    np.testing.assert_allclose(result.conf_int(), ends.T, atol=1e-6)
    rows, unit = surveyed.rows, surveyed.figures["about"]["cap"] / 4096
    first = rows["u"][rows["sex"] == "f"].sum() if by else rows["u"].sum()
    assert result.curve()["at_risk"][0] == pytest.approx(first * unit, rel=1e-8)


def test_means_and_differences_use_the_covariances(surveyed, all_contrasts):
    """Restricted means are areas of steps; both sexes are in the same units."""
    result, figure = curves(surveyed, "sex"), surveyed.figures["survival_by_sex"]
    params, cov = np.array(figure["params"]), np.array(figure["cov"])
    area = np.zeros((2, 20))
    area[0, :4], area[1, 10:14] = 1, 1  # S(1) to S(4): to time 5 from 0
    means = result.restricted_mean(5)
    np.testing.assert_allclose(means.params, 1 + area @ params, rtol=1e-8)
    np.testing.assert_allclose(means.bse, np.sqrt(np.diag(area @ cov @ area.T)), rtol=1e-6)
    for signs, difference in [
        (area[0] - area[1], result.differences(horizon=5)),
        (np.eye(20)[4] - np.eye(20)[14], result.differences(time=5)),
    ]:
        sd = (signs @ cov @ signs) ** 0.5
        assert difference.params[0] == pytest.approx(signs @ params, rel=1e-8)
        assert difference.bse[0] == pytest.approx(sd, rel=1e-6)
        pvalue = 2 * stats.t.sf(abs(signs @ params) / sd, surveyed.df)
        assert difference.pvalues[0] == pytest.approx(pvalue, rel=1e-5)
    np.testing.assert_allclose(result.survival_at([3, 5]).params, params[[2, 4, 12, 14]], rtol=1e-8)


def test_log_rank_is_svylogrank(surveyed, all_contrasts):
    """Of two groups R's statistic; of more, the traces of first order."""
    figure = surveyed.figures["log_rank_by_sex"]
    test = curves(surveyed, "sex").logrank()
    assert test.statistic == pytest.approx(figure["statistic"], rel=1e-6)
    expected = stats.f.sf(figure["statistic"], 1, surveyed.df)
    assert test.pvalue == pytest.approx(expected, rel=1e-5)
    assert test.df == pytest.approx((1, surveyed.df))
    result = curves(surveyed, "region")
    figure, test = surveyed.figures["log_rank_by_region"], result.logrank()
    scores = (np.asarray(test.observed) - np.asarray(test.expected))[1:]
    np.testing.assert_allclose(scores, figure["scores"], rtol=1e-6)
    assert 0 < test.pvalue < 1
    assert len(result.pairwise()) == 3


@pytest.mark.parametrize(
    ("unit", "budget"), [("add_remove", dps.PureDP(30)), ("replace", dps.ZCDP(10))]
)
def test_certified_limits_hold_the_rows_own_curves(surveyed, unit, budget):
    asked, schema = dps.Survival("time", "event == 1", by="sex"), surveyed.schema(TIME, EVENT, SEX)
    result = surveyed.release(asked, schema, budget, unit=unit).infer("x")
    own = np.array(surveyed.figures["survival_by_sex"]["params"]).reshape(2, 10)[:, :9].ravel()
    table = {"alpha": 1e-6, "method": "certified", "target": "table"}
    low, high = np.asarray(result.conf_int(**table, simultaneous=True)).T
    assert np.all((low <= own) & (own <= high))
    assert np.any(high - low < 0.5)
    assert np.asarray(result.conf_int(method="certified")).tolist() == [[0, 1]] * 18
    low, high = result.differences(time=2).conf_int(**table)[0]
    assert low <= own[1] - own[10] <= high


def test_a_curve_ends_where_noise_hides_the_rows_at_risk(surveyed):
    result = curves(surveyed, "region", dps.PureDP(0.7))
    ends, frame = [curve.bins for curve in result.curves], result.to_frame()
    assert min(ends) < 9
    for g, last in enumerate(ends):
        own = frame.iloc[9 * g : 9 * (g + 1)]
        assert own["estimate"].notna().tolist() == [j < last for j in range(9)]
        assert (own["conf_low"].iloc[last:] == 0).all()
        top = own["conf_high"].iloc[last - 1] if last else 1.0
        assert (own["conf_high"].iloc[last:] == top).all()
    assert "ends at" in " ".join(result.notes) or "does not start" in " ".join(result.notes)


def test_only_estimates_that_are_shown_are_noted_as_impossible():
    """Beyond the end of a curve there are only noises, of which no estimate is made."""
    days = dps.Number("days", 0, 1000, edges=[100, 200, 400], missing=0)
    columns = [days, dps.Boolean("died"), dps.Category("arm", ["p", "q"])]
    schema = dps.Schema(columns, design=dps.Design("w", mean=1, cap=1.5, deff=1.5))
    asked, rng = {"x": dps.Survival("days", "died", by="arm")}, np.random.default_rng(1)
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), n=300)
    rows = {"days": rng.integers(0, 1000, 300), "died": rng.random(300) < 0.1, "arm": "p", "w": 1.0}
    found = set()
    for seed in range(8):
        result = dps.release(plan, pd.DataFrame(rows), m=2, k=2, rng=seed).infer("x")
        shown = result.params[~np.isnan(result.params)]
        wrong = int(np.sum((shown < 0) | (shown > 1)))
        noted = [note for note in result.notes if "impossible" in note]
        assert len(noted) == (wrong > 0)
        assert not wrong or noted[0].startswith(f"{wrong} of {len(shown)} estimates")
        found.add(wrong)
    assert found == {0, 1}


def test_what_is_not_there_is_refused(surveyed):
    entry = dps.Number("entry", values=[1, 2], missing=1)
    schema = surveyed.schema(TIME, dps.Category("event", [0, 1, 2]), entry)
    for event, options in ((["event == 1", "event == 2"], {}), ("event == 1", {"entry": "entry"})):
        with pytest.raises(RequestError, match="one kind of event and no entry"):
            surveyed.release(dps.Survival("time", event, **options), schema)
    with pytest.raises(RequestError, match="cumulative hazards are not available"):
        curves(surveyed, budget=dps.PureDP(5)).cumulative_hazard()
