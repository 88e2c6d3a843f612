import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import confint_proportions_2indep

import dpstats as dps
from dpstats.analyses.counts.group_shares import MEASURES, measure_of

NORTH_SOUTH = dps.Difference("smoker == 'yes'", by="region", groups=("north", "south"))


def test_zero_noise_estimates_are_those_of_the_table(schema, survey, no_noise, inferred):
    result = inferred(schema, survey, NORTH_SOUTH)
    smokes = survey["smoker"].eq("yes").groupby(survey["region"]).agg(["sum", "size"])
    (a, n), (b, m) = smokes.loc[["north", "south"]].to_numpy()
    p, q = a / n, b / m
    expected = [p - q, p / q, a * (m - b) / (b * (n - a))]
    np.testing.assert_allclose(result.params, expected, rtol=1e-8)
    variance = [p * (1 - p) / n + q * (1 - q) / m, (p / q) ** 2 * ((1 - p) / a + (1 - q) / b),
                expected[2] ** 2 * (1 / a + 1 / (n - a) + 1 / b + 1 / (m - b))]  # fmt: skip
    np.testing.assert_allclose(result.sampling_variance, variance, rtol=1e-6)


def test_intervals_approach_the_score_intervals_as_noise_vanishes(inferred):
    a, n, b, m = 40, 120, 400, 2_000
    schema = dps.Schema([dps.Boolean("ill"), dps.Boolean("town")])
    rows = schema.to_frame({"ill": [1, 0, 1, 0], "town": [0, 0, 1, 1]})
    rows = rows.loc[rows.index.repeat([a, n - a, b, m - b])]
    ends = inferred(schema, rows, dps.Difference("ill", "town", (False, True))).conf_int()
    for found, compare in zip(ends, ["diff", "ratio", "odds-ratio"], strict=True):
        expected = confint_proportions_2indep(a, n, b, m, compare=compare, method="score")
        np.testing.assert_allclose(found, expected, atol=0.1 * np.ptp(expected))


def test_certified_is_wider_and_spans_the_corners(schema, survey, inferred):
    result = inferred(schema, survey, NORTH_SOUTH, dps.PureDP(1))
    aware, certified = result.conf_int(), result.conf_int(method="certified")
    assert np.all((certified[:, 0] < aware[:, 0]) & (aware[:, 1] < certified[:, 1]))
    ends = [np.ravel(one.certified(0.025, "population")) for one in result.intervals.groups]
    grid = np.meshgrid(*(np.linspace(*pair, 30) for pair in ends))
    for limits, measure in zip(certified, MEASURES, strict=True):
        values = measure_of(*grid, measure)
        assert limits == pytest.approx([values.min(), values.max()])


def test_zero_risk_has_an_unbounded_ratio_without_a_standard_error(schema, no_noise, inferred):
    frame = pd.DataFrame({"smoker": ["yes", "no", "no", "no"] * 50, "age": 50,
                          "region": ["north", "north", "south", "south"] * 50})  # fmt: skip
    result = inferred(schema, frame, NORTH_SOUTH, dps.PureDP(1))
    assert result.params.tolist() == [0.5, np.inf, np.inf]
    assert "infinite standard error" in result.summary()
    assert np.isinf(result.bse[1:]).all()
    assert "nan" not in result.summary()


def test_tests_of_the_measures_agree_and_impossible_values_are_refused(schema, survey, inferred):
    result = inferred(schema, survey, NORTH_SOUTH, dps.PureDP(1))
    for term in ("risk ratio", "odds ratio"):
        pvalue = result.test(1, term=term).pvalue
        assert pvalue == pytest.approx(result.test().pvalue, abs=5e-3)
    assert np.isnan(result.intervals.pvalues(-0.5, "two-sided")[1])
    for options in ({"value": 2}, {"value": -1, "term": "risk ratio"}):
        with pytest.raises(dps.RequestError, match="not possible"):
            result.test(**options)
