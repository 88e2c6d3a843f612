"""Chi-square tests of a survey, against R's survey package."""

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import RequestError

REGION = dps.Category("region", ["coast", "hills", "plain"])
SEX = dps.Category("sex", ["f", "m"])
ILL = dps.Category("ill", [0, 1])


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
    assert "design effect" in result.summary()


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
    assert "there is no test" in result.summary()
    strata = dps.Independence("region", "ill", given="sex")
    schema = surveyed.schema(REGION, ILL, SEX)
    with pytest.raises(RequestError, match="no test within strata"):
        surveyed.release(strata, schema)


def test_a_design_effect_serves_without_contrasts(surveyed):
    design = dps.Design("w", mean=surveyed.figures["about"]["mean_weight"], cap=8_000, deff=2)
    schema = dps.Schema([REGION, ILL], design=design)
    result = surveyed.release(dps.Independence("region", "ill"), schema).infer("x")
    assert result.design_effect == pytest.approx(2, rel=1e-6)
    assert result.df == (pytest.approx(2, rel=1e-6), np.inf)
    pearson = surveyed.figures["region_by_ill"]["pearson"]
    assert result.pvalue == pytest.approx(stats.chi2.sf(pearson / 2, 2), rel=1e-5)
