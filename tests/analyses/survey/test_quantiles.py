"""Weighted quantiles and distribution functions, against R's survey package."""

import numpy as np
import pytest
from scipy import stats

import dpstats as dps

INCOME = dps.Number("income", 0, 100, edges=range(10, 100, 10), missing=0)
SEX = dps.Category("sex", ["f", "m"])


def test_distribution_function_is_that_of_svymean(surveyed, all_contrasts):
    """R's shares are of x <= edge, so bins are closed on the right."""
    edges = [10, 30, 40, 50, 60, 70, 90]
    some = [edge // 10 - 1 for edge in edges]
    schema = surveyed.schema(dps.Number("income", 0, 100, edges=edges, missing=0, closed="right"))
    result = surveyed.release(dps.Quantile("income", [0.25, 0.5]), schema).infer("x")
    frame, figure = result.distribution(), surveyed.figures["income_below"]
    t = stats.t.ppf(0.975, surveyed.df)
    params, cov = np.array(figure["params"])[some], np.array(figure["cov"])[np.ix_(some, some)]
    np.testing.assert_allclose(frame["estimate"], params, rtol=1e-8)
    se = np.sqrt(np.diag(cov))
    for name, side in (("low", -1), ("high", 1)):
        np.testing.assert_allclose(frame[name], np.clip(params + side * t * se, 0, 1), atol=1e-7)
    part = result.intervals.shares.parts[0]
    scale = np.outer(se, se)
    np.testing.assert_allclose(part.sampling_covariance / scale, cov / scale, atol=1e-7)
    ratio = stats.t.ppf(1 - 0.025 / len(edges), surveyed.df) / t
    inside = frame["band_low"] > 0
    half = (frame["estimate"] - frame["band_low"])[inside]
    np.testing.assert_allclose(half / ratio, (frame["estimate"] - frame["low"])[inside], rtol=1e-6)


def test_quantiles_are_in_the_bins_of_svyquantile(surveyed, all_contrasts):
    """Woodruff's limits, widened to the edges of their bins."""
    schema = surveyed.schema(dps.Number("income", 0, 100, edges=range(10, 100, 10), missing=0,
                                  closed="right"))  # fmt: skip
    figure = surveyed.figures["income_quantiles"]["mean"]
    result = surveyed.release(dps.Quantile("income", figure["probabilities"]), schema).infer("x")
    low, high = result.conf_int().T
    # R takes the standard error at the quantile: its limits may be over the next edge
    assert np.all((np.floor(np.array(figure["lower"]) / 10) * 10 - low) % 10 == 0)
    assert np.all(np.abs(low - figure["lower"]) <= 10)
    assert np.all(np.abs(high - figure["upper"]) <= 10)
    frame = result.distribution()
    for p, least, most in zip(figure["probabilities"], low, high, strict=True):
        inside = frame["edge"].between(least, most, inclusive="neither")
        assert np.all((frame["low"] <= p)[inside] | (frame["high"] >= p)[inside])
        assert (
            frame["high"][frame["edge"] < least].max()
            < p
            < frame["low"][frame["edge"] > most].min()
        )
    assert np.all(np.abs(result.params - figure["params"]) < 5)


def test_pvalues_are_those_of_the_distribution_function(surveyed, all_contrasts):
    schema = surveyed.schema(INCOME)
    result = surveyed.release(dps.Quantile("income"), schema).infer("x")
    frame = result.distribution()
    se = (frame["high"] - frame["estimate"]) / stats.t.ppf(0.975, surveyed.df)
    at = frame["edge"].eq(60).idxmax()
    score = (frame["estimate"][at] - 0.5) / se[at]
    expected = 2 * stats.t.sf(score, surveyed.df)
    assert result.test(65).pvalue == pytest.approx(expected, rel=1e-5)
    assert result.test(45).pvalue > 0.05 > result.test(65).pvalue


def test_domains_keep_the_design(surveyed, all_contrasts):
    income = dps.Number("income", 0, 100, edges=[30, 50, 70], missing=0)
    schema = surveyed.schema(income, SEX)
    result = surveyed.release(dps.Quantile("income", given="sex == 'f'"), schema).infer("x")
    women, u = surveyed.rows["sex"].eq("f"), surveyed.rows["u"]
    shares = [
        u[women & (surveyed.rows["income"] < edge)].sum() / u[women].sum() for edge in (30, 50, 70)
    ]
    np.testing.assert_allclose(result.distribution()["estimate"], shares, rtol=1e-8)


def test_many_bins_take_the_design_effect_of_the_nearest_of_four(surveyed, all_contrasts):
    """Of 20 bins of 5: sets end at 25, 50 and 75."""
    schema = surveyed.schema(dps.Number("income", 0, 100, edges=range(5, 100, 5), missing=0))
    release = surveyed.release(dps.Quantile("income"), schema)
    (contrasts,) = release.contrasts
    assert contrasts.base.size == 4
    part = release.infer("x").intervals.shares.parts[0]
    assert part.nearest.tolist() == [0] * 7 + [1] * 5 + [2] * 7
    edges = np.arange(5, 100, 5)
    coarse = surveyed.release(
        dps.Quantile("income"),
        surveyed.schema(dps.Number("income", 0, 100, edges=[25, 50, 75], missing=0)),
    ).infer("x").intervals.shares.parts[0]  # fmt: skip
    effects = np.diag(coarse.sampling_covariance) / (coarse.params * (1 - coarse.params))
    f = part.params
    expected = effects[part.nearest] * f * (1 - f)
    np.testing.assert_allclose(np.diag(part.sampling_covariance), expected, rtol=1e-6)
    np.testing.assert_allclose(part.degrees_of_freedom, 18, rtol=1e-6)
    assert len(edges) == len(f)


@pytest.mark.parametrize(
    ("unit", "budget"), [("replace", dps.PureDP(1)), ("add_remove", dps.ZCDP(0.05))]
)
def test_certified_limits_hold_the_rows_own_distribution(surveyed, unit, budget):
    schema = surveyed.schema(INCOME)
    plan = dps.plan(schema, {"x": dps.Quantile("income")}, budget=budget, unit=unit, n=1518)
    result = dps.release(plan, surveyed.rows, rng=3, m=2, k=10).infer("x")
    frame = result.distribution(alpha=1e-6, method="certified", target="table")
    u = surveyed.rows["u"]
    own = np.array([u[surveyed.rows["income"] < edge].sum() for edge in frame["edge"]]) / u.sum()
    assert np.all((frame["band_low"] <= own) & (own <= frame["band_high"]))
    assert np.all(frame["band_high"] - frame["band_low"] < 0.9)
    whole = result.distribution(method="certified", target="population")
    assert whole["low"].eq(0).all()
    assert whole["high"].eq(1).all()


def test_a_design_effect_serves_without_contrasts(surveyed):
    design = dps.Design("w", mean=surveyed.figures["about"]["mean_weight"], cap=8_000, deff=2)
    schema = dps.Schema([INCOME], design=design)
    part = surveyed.release(dps.Quantile("income"), schema).infer("x").intervals.shares.parts[0]
    wanted = 2 * part.params * (1 - part.params) / len(surveyed.rows)
    np.testing.assert_allclose(np.diag(part.sampling_covariance), wanted, rtol=1e-6)
