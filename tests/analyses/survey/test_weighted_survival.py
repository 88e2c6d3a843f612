"""Weighted survival curves and log-rank tests, against R's survey package."""

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import RequestError

TIME = dps.Number("time", values=list(range(1, 11)), missing=10)
EVENT = dps.Category("event", [0, 1])
SEX = dps.Category("sex", ["f", "m"])
REGION = dps.Category("region", ["coast", "hills", "plain"])


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
    options = {"unit": unit, "n": len(surveyed.rows), "reference": dps.Uniform()}
    asked = {"x": dps.Survival("time", "event == 1", by="sex")}
    plan = dps.plan(surveyed.schema(TIME, EVENT, SEX), asked, budget=budget, **options)
    result = dps.release(plan, surveyed.rows, rng=0, m=2, k=10).infer("x")
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


def test_what_is_not_there_is_refused(surveyed):
    entry = dps.Number("entry", values=[1, 2], missing=1)
    schema = surveyed.schema(TIME, dps.Category("event", [0, 1, 2]), entry)
    for event, options in ((["event == 1", "event == 2"], {}), ("event == 1", {"entry": "entry"})):
        with pytest.raises(RequestError, match="one kind of event and no entry"):
            surveyed.release(dps.Survival("time", event, **options), schema)
    with pytest.raises(RequestError, match="cumulative hazards are not available"):
        curves(surveyed, budget=dps.PureDP(5)).cumulative_hazard()
