"""Weighted quantiles and distribution functions, against R's survey package."""

import numpy as np
import pytest
from scipy import stats

import dpstats as dps

SEX = dps.Category("sex", ["f", "m"])


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
    edges = [10, 30, 40, 50, 60, 70, 90]
    some = [edge // 10 - 1 for edge in edges]
    result = result_of(income(edges, closed="right"), dps.Quantile("income", [0.25, 0.5]))
    frame, figure = result.distribution(), surveyed.figures["income_below"]
    t = stats.t.ppf(0.975, surveyed.df)
    params, cov = np.array(figure["params"])[some], np.array(figure["cov"])[np.ix_(some, some)]
    np.testing.assert_allclose(frame["estimate"], params, rtol=1e-8)
    se = np.sqrt(np.diag(cov))
    for name, side in (("low", -1), ("high", 1)):
        np.testing.assert_allclose(frame[name], np.clip(params + side * t * se, 0, 1), atol=1e-7)
    found, scale = result.intervals.shares.parts[0].sampling_covariance, np.outer(se, se)
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
    part = result.intervals.shares.parts[0]
    assert part.nearest.tolist() == [0] * 7 + [1] * 5 + [2] * 7
    coarse = result_of(income([25, 50, 75])).intervals.shares.parts[0]
    effects = np.diag(coarse.sampling_covariance) / (coarse.params * (1 - coarse.params))
    expected = effects[part.nearest] * part.params * (1 - part.params)
    np.testing.assert_allclose(np.diag(part.sampling_covariance), expected, rtol=1e-6)
    np.testing.assert_allclose(part.degrees_of_freedom, 18, rtol=1e-6)


@pytest.mark.parametrize(
    ("unit", "budget"), [("replace", dps.PureDP(1)), ("add_remove", dps.ZCDP(0.05))]
)
def test_certified_limits_hold_the_rows_own_distribution(surveyed, unit, budget):
    schema = surveyed.schema(INCOME)
    plan = dps.plan(schema, {"x": dps.Quantile("income")}, budget=budget, unit=unit, n=1518)
    result = dps.release(plan, surveyed.rows, rng=3, m=2, k=10).infer("x")
    frame = result.distribution(alpha=1e-6, method="certified", target="table")
    rows = surveyed.rows
    own = [np.average(rows["income"] < edge, weights=rows["u"]) for edge in frame["edge"]]
    assert np.all((frame["band_low"] <= own) & (own <= frame["band_high"]))
    assert np.all(frame["band_high"] - frame["band_low"] < 0.9)
    whole = result.distribution(method="certified", target="population")
    assert (whole[["low", "high"]] == [0, 1]).all(axis=None)


def test_a_design_effect_serves_without_contrasts(surveyed):
    design = dps.Design("w", mean=surveyed.figures["about"]["mean_weight"], cap=8_000, deff=2)
    schema = dps.Schema([INCOME], design=design)
    part = surveyed.release(dps.Quantile("income"), schema).infer("x").intervals.shares.parts[0]
    wanted = 2 * part.params * (1 - part.params) / len(surveyed.rows)
    np.testing.assert_allclose(np.diag(part.sampling_covariance), wanted, rtol=1e-6)
