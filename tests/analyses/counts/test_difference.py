from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import confint_proportions_2indep

import dpstats as dps
from dpstats.analyses.counts.group_shares import MEASURES, DifferenceIntervals, measure_of

YES = "smoker == 'yes'"
NORTH_SOUTH = dps.Difference(YES, by="region", groups=("north", "south"))


def released(schema, survey, analyses, epsilon=1.0):
    plan = dps.plan(schema, analyses, budget=dps.PureDP(epsilon))
    return dps.release(plan, survey, rng=0, m=500)


def intervals_of(*groups, epsilon=1.0):
    """Of (rows with the trait, rows) of two groups, as they would be measured."""
    schema = dps.Schema([dps.Boolean("ill"), dps.Boolean("urban")])
    gap = dps.Difference("ill", by="urban")
    plan = dps.plan(schema, {"gap": gap}, budget=dps.PureDP(epsilon), unit="add_remove")
    frame = pd.DataFrame({"ill": [True, False] * 10, "urban": [True] * 10 + [False] * 10})
    answers = dps.release(plan, frame, m=10, k=10).infer("gap").intervals.answers
    sums = np.ravel([(yes, size - yes) for yes, size in groups]).astype(float)
    return DifferenceIntervals(replace(answers, sums=sums, uniforms=np.linspace(-0.4, 0.4, 4)))


def counts_of(survey, levels):
    smokes = survey["smoker"] == "yes"
    return [(int(smokes[survey["region"] == x].sum()), int((survey["region"] == x).sum()))
            for x in levels]  # fmt: skip


def test_zero_noise_estimates_are_those_of_the_table(schema, survey, no_noise):
    result = released(schema, survey, {"a": NORTH_SOUTH}).infer("a")
    (a, n), (b, m) = counts_of(survey, ["north", "south"])
    expected = [a / n - b / m, (a / n) / (b / m), a * (m - b) / (b * (n - a))]
    np.testing.assert_allclose(result.params, expected, rtol=1e-8)
    p, q = a / n, b / m
    np.testing.assert_allclose(
        result.sampling_variance[:2],
        [p * (1 - p) / n + q * (1 - q) / m, (p / q) ** 2 * ((1 - p) / a + (1 - q) / b)],
        rtol=1e-8,
    )
    log_variance = 1 / a + 1 / (n - a) + 1 / b + 1 / (m - b)  # Woolf
    assert result.sampling_variance[2] == pytest.approx(expected[2] ** 2 * log_variance)


def test_intervals_approach_the_score_intervals_as_noise_vanishes():
    a, n, b, m = 40, 120, 400, 2_000
    exact = intervals_of((a, n), (b, m), epsilon=50)
    low, high = exact.conf_int(0.05, "noise_aware", "population")
    for i, compare in enumerate(["diff", "ratio", "odds-ratio"]):
        expected = confint_proportions_2indep(a, n, b, m, compare=compare, method="score")
        width = expected[1] - expected[0]
        np.testing.assert_allclose([low[i], high[i]], expected, atol=0.1 * width)


def test_certified_is_wider_and_spans_the_corners(schema, survey):
    result = released(schema, survey, {"a": NORTH_SOUTH}).infer("a")
    aware, certified = result.conf_int(), result.conf_int(method="certified")
    assert np.all(certified[:, 0] < aware[:, 0])
    assert np.all(aware[:, 1] < certified[:, 1])
    (pl, ph), (ql, qh) = (
        np.ravel(group.certified(0.025, "population")) for group in result.intervals.groups
    )
    grid = np.meshgrid(np.linspace(pl, ph, 30), np.linspace(ql, qh, 30))
    for (low, high), measure in zip(certified, MEASURES, strict=True):
        values = measure_of(*grid, measure)
        assert (low, high) == pytest.approx((values.min(), values.max()))


def test_zero_risk_has_an_unbounded_ratio_without_a_standard_error(schema, no_noise):
    frame = pd.DataFrame({"smoker": ["yes", "no", "no", "no"] * 50,
                          "region": ["north", "north", "south", "south"] * 50,
                          "age": 50})  # fmt: skip
    result = released(schema, frame, {"a": NORTH_SOUTH}).infer("a")
    assert result.params.tolist() == [0.5, np.inf, np.inf]
    assert "infinite standard error" in result.summary()
    assert np.isinf(result.bse[1:]).all()
    assert "nan" not in result.summary()


def test_tests_of_the_measures_agree_and_impossible_values_are_refused(schema, survey):
    result = released(schema, survey, {"a": NORTH_SOUTH}).infer("a")
    pvalue = result.test().pvalue
    for term in ("risk ratio", "odds ratio"):
        assert result.test(1, term=term).pvalue == pytest.approx(pvalue, abs=5e-3)
    assert np.isnan(result.intervals.pvalues(-0.5, "two-sided")[1])
    for options in ({"value": 2}, {"value": -1, "term": "risk ratio"}):
        with pytest.raises(dps.RequestError, match="not possible"):
            result.test(**options)
