"""Shares, tables of shares and differences of them: classical without noise, honest with it."""

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import confint_proportions_2indep

import dpstats as dps
from dpstats.analyses.counts.group_shares import MEASURES, measure_of

YES = "smoker == 'yes'"
NORTH_SOUTH = dps.Difference(YES, by="region", groups=("north", "south"))


def released(schema, survey, asked, epsilon=1.0):
    plan = dps.plan(schema, asked, budget=dps.PureDP(epsilon))
    return dps.release(plan, survey, rng=0, m=100, k=10)


def test_without_noise_they_are_those_of_the_table(schema, survey, no_noise):
    """Also where they follow from a table, or from its complement."""
    cells, old = dps.Marginals(["smoker", "region"]), dps.Proportion(YES, given="age >= 65")
    release = released(schema, survey, {"cells": cells, "old": old})
    smokes, east = survey["smoker"] == "yes", survey["region"] == "east"
    assert release.infer("old").params[0] == pytest.approx(smokes[survey["age"] >= 65].mean())
    for condition, held in (
        (YES, smokes), ("region != 'east'", ~east),
        ("not (smoker == 'yes' and region == 'east')", ~(smokes & east)),
    ):  # fmt: skip
        assert release.infer(dps.Proportion(condition)).params[0] == pytest.approx(held.mean())


def test_group_counts_from_one_table_keep_independent_noise(schema, survey):
    """Four of six cells hold the trait in the group, one of the others is the rest of the group."""
    release = released(schema, survey, {"t": dps.Marginals(["smoker", "region"])})
    analysis = dps.Proportion(
        "not (smoker == 'no' and region == 'north')", given="smoker == 'no' or region != 'south'"
    )
    assert release.answers(analysis.family(schema)).noise_covariance[0, 1] != 0
    assert release.infer(analysis).intervals.answers.noise_covariance[0, 1] == 0


def test_shares_add_up_to_one_though_most_cells_are_empty():
    """Unbiased answers: small ones are below 0, and nothing is cut off, in any margin."""
    groups = [f"diagnosis {i}" for i in range(120)]
    schema = dps.Schema([dps.Category("group", groups), dps.Category("sex", ["f", "m"])])
    rng, n = np.random.default_rng(0), 20_000
    group = np.array(groups)[(rng.random(n) ** 12 * 120).astype(int)]
    frame = pd.DataFrame({"group": group, "sex": rng.choice(["f", "m"], n)})
    asked = {"m": dps.Marginals(["group", "sex"])}
    plan = dps.plan(schema, asked, budget=dps.PureDP(0.3), unit="add_remove")
    release = dps.release(plan, frame, rng=0, m=100, k=10)
    result = release.infer("m")
    params = np.asarray(result.params)
    assert params.sum() == pytest.approx(1, abs=1 / n)
    assert params.min() < 0
    margin = release.infer(dps.Marginals(["sex"]))
    np.testing.assert_allclose(params.reshape(120, 2).sum(axis=0), margin.params, atol=1e-9)
    counts = result.crosstab("group", "sex").to_numpy()
    np.testing.assert_array_equal(counts.ravel(), result.fitted)
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(1)
    assert result.summary().count(f"Note: {np.sum(params < 0)} of 240 estimates ") == 1


def test_intervals_for_the_table_end_at_whole_counts(survey, schema):
    """Combined answers are no integers, the private counts are: at most a row is cut off."""
    asked, n = dps.Marginals(["smoker", "region"]), len(survey)
    release = released(schema, survey, {"m": asked}, 0.2)
    answers = release.answers(asked)
    q = answers.quantiles(0.05)
    assert not np.allclose(q, np.round(q), atol=1e-6)
    ends = np.array(release.infer("m").conf_int(target="table")) * n
    np.testing.assert_allclose(ends, np.round(ends), atol=1e-6)
    box = np.clip(np.stack([answers.sums - q, answers.sums + q], axis=1), 0, n)
    assert np.all((ends >= box - 1e-6)[:, 0] & (ends <= box + 1e-6)[:, 1])
    assert np.all(np.abs(ends - box) < 1)


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


def test_certified_limits_span_the_corners(schema, survey, inferred):
    result = inferred(schema, survey, NORTH_SOUTH, dps.PureDP(1))
    certified = result.conf_int(method="certified")
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
    assert np.isinf(result.bse[1:]).all()
    assert "nan" not in result.summary()


def test_tests_of_the_measures_agree_and_impossible_values_are_refused(schema, survey, inferred):
    result = inferred(schema, survey, NORTH_SOUTH, dps.PureDP(1))
    for term in ("risk ratio", "odds ratio"):
        pvalue = result.test(1, term=term).pvalue
        assert pvalue == pytest.approx(result.test().pvalue, abs=5e-3)
    assert np.isnan(result.intervals.pvalues(-0.5, "two-sided")[1])
    pairs = inferred(schema, survey, dps.GroupMeans("smoker == 'yes'", by="region")).pairwise()
    for tested, value, term in ((pairs, -1.5, pairs.terms[0]), (result, -1, "risk ratio")):
        with pytest.raises(dps.RequestError, match=f"value={value} is impossible"):
            tested.test(value, term=term)
