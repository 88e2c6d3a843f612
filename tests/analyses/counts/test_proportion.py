import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

import dpstats as dps

YES = "smoker == 'yes'"


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


def test_intervals_approach_the_classical_one_as_noise_vanishes(schema, survey):
    n, count = len(survey), int((survey["smoker"] == "yes").sum())
    classical = proportion_confint(count, n, method="beta")
    result = released(schema, survey, {"a": dps.Proportion(YES)}, epsilon=50).infer("a")
    np.testing.assert_allclose(result.conf_int(), classical, atol=1.5 / n)
    np.testing.assert_allclose(result.conf_int(method="certified"), classical, atol=1e-3)
    exact = stats.binomtest(count, n, 0.25, "greater").pvalue
    np.testing.assert_allclose(result.test(0.25, "larger").pvalue, exact, rtol=0.5)


def test_group_counts_from_one_table_keep_independent_noise(schema, survey):
    """Four of six cells hold the trait in the group, one of the others is the rest of the group."""
    release = released(schema, survey, {"t": dps.Marginals(["smoker", "region"])})
    analysis = dps.Proportion(
        "not (smoker == 'no' and region == 'north')", given="smoker == 'no' or region != 'south'"
    )
    assert release.answers(analysis.family(schema)).noise_covariance[0, 1] != 0
    assert release.infer(analysis).intervals.answers.noise_covariance[0, 1] == 0
