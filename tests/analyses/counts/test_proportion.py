import re

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

import dpstats as dps

YES = "smoker == 'yes'"


def released(schema, survey, analyses, epsilon=1.0):
    plan = dps.plan(schema, analyses, budget=dps.PureDP(epsilon))
    return dps.release(plan, survey, rng=0, m=500)


def test_zero_noise_estimates_are_the_table_itself(schema, survey, no_noise):
    release = released(
        schema, survey, {"all": dps.Proportion(YES), "old": dps.Proportion(YES, given="age >= 65")}
    )
    smokes = survey["smoker"] == "yes"
    assert release.infer("all").params[0] == smokes.mean()
    assert release.infer("old").params[0] == pytest.approx(smokes[survey["age"] >= 65].mean())


def test_intervals_approach_the_classical_one_as_noise_vanishes(schema, survey):
    release = released(schema, survey, {"a": dps.Proportion(YES)}, epsilon=50)
    count = int((survey["smoker"] == "yes").sum())
    classical = proportion_confint(count, len(survey), method="beta")
    result = release.infer("a")
    np.testing.assert_allclose(result.conf_int(), classical, atol=1.5 / len(survey))
    np.testing.assert_allclose(result.conf_int(method="certified"), classical, atol=1e-3)
    np.testing.assert_allclose(
        result.test(0.25, "larger").pvalue,
        stats.binomtest(count, len(survey), 0.25, "greater").pvalue,
        rtol=0.5,
    )


def test_derived_from_a_table_or_its_complement(schema, survey, no_noise):
    release = released(schema, survey, {"t": dps.Marginals(["smoker", "region"])})
    for condition, held in (
        (YES, survey["smoker"] == "yes"),
        ("region != 'east'", survey["region"] != "east"),
        ("not (smoker == 'yes' and region == 'east')",
         ~((survey["smoker"] == "yes") & (survey["region"] == "east"))),
    ):  # fmt: skip
        assert release.infer(dps.Proportion(condition)).params[0] == pytest.approx(held.mean())


def test_group_counts_from_one_table_keep_independent_noise(schema, survey):
    # Four of six cells hold the trait in the group: alone they would be answered as n minus the
    # other two, one of which is the rest of the group.
    release = released(schema, survey, {"t": dps.Marginals(["smoker", "region"])})
    analysis = dps.Proportion(
        "not (smoker == 'no' and region == 'north')", given="smoker == 'no' or region != 'south'"
    )

    assert release.answers(analysis.family(schema)).noise_covariance[0, 1] != 0
    assert release.infer(analysis).intervals.answers.noise_covariance[0, 1] == 0


def test_drowned_group_says_so(schema, survey, no_noise):
    release = released(schema, survey, {"a": dps.Proportion(YES, given="age < 18")}, epsilon=0.001)
    result = release.infer("a")
    assert np.diff(result.conf_int()) > 0.5
    assert re.search(r"noise sd [1-9]\d*0 rows", result.summary())  # two digits, no exponent
    low, high = result.conf_int(method="certified")
    assert (low, high) == (0, 1)
