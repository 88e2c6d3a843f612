import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats.contingency import association
from statsmodels.stats.contingency_tables import StratifiedTable

import dpstats as dps
from dpstats.analyses.tables.score_statistic import noisy_score


def crossed(survey, a="smoker", b="region"):
    return pd.crosstab(survey[a], survey[b])


def test_zero_noise_is_the_classical_test(schema, survey, no_noise, inferred):
    # At this budget the law of the noise is a point at zero too.
    a, b = "region", "smoker"
    result = inferred(schema, survey, dps.Independence(a, b), dps.PureDP(1e5))
    table = crossed(survey, a, b).loc[list(schema[a].levels), list(schema[b].levels)].to_numpy()
    classical = stats.chi2_contingency(table, correction=False)
    expected = [classical.statistic] * 2 + [classical.pvalue, classical.dof]
    found = [result.pearson, result.statistic, result.pearson_pvalue, result.df]
    assert found == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(result.expected, classical.expected_freq.ravel(), rtol=1e-8)
    np.testing.assert_array_equal(result.observed, table.ravel())
    assert result.effect == pytest.approx(association(table, method="cramer"), rel=1e-8)
    assert result.pvalue == pytest.approx(classical.pvalue, abs=0.05)  # 4.5 standard errors
    assert result.certified.low <= classical.statistic <= result.certified.high


def test_zero_noise_strata_are_cochran_mantel_haenszel(no_noise, inferred):
    schema = dps.Schema([
        dps.Category("region", ["n", "s", "w"]), dps.Boolean("ill"), dps.Boolean("smoker"),
        dps.Category("job", ["a", "b", "c"]),
    ])  # fmt: skip
    rng = np.random.default_rng(0)
    region = rng.choice(["n", "s", "w"], 600, p=[0.5, 0.3, 0.2])
    rows = pd.DataFrame({"region": region, "smoker": rng.random(600) < 0.2 + 0.3 * (region == "n")})
    rows["ill"] = rng.random(600) < 0.3 + 0.1 * rows["smoker"] - 0.2 * (region == "s")
    rows["job"] = np.where(rng.random(600) < 0.2, "a", rng.choice(["a", "b", "c"], 600))
    twice = dps.Independence("ill", "smoker", given="region")
    result = inferred(schema, rows, twice, dps.PureDP(1e5))
    tables = [crossed(rows[region == r], "ill", "smoker").to_numpy() for r in "nsw"]
    classical = StratifiedTable(tables).test_null_odds()
    found = [result.statistic, result.pearson, result.pearson_pvalue, result.df]
    expected = [classical.statistic] * 2 + [classical.pvalue, 1]
    assert found == pytest.approx(expected, rel=1e-8)
    assert result.pvalue == pytest.approx(classical.pvalue, abs=0.05)
    expected = np.concatenate([stats.contingency.expected_freq(t).ravel() for t in tables])
    np.testing.assert_allclose(result.expected, expected, rtol=1e-8)
    # Landis, Heyman and Koch (1978): the sum of hypergeometric covariances
    shift, covariance = np.zeros(4), np.zeros((4, 4))
    for ill in (False, True):
        table = crossed(rows[rows["ill"] == ill], "region", "job").to_numpy(float)
        n, r, c = table.sum(), table.sum(1), table.sum(0)
        shift += (table - np.outer(r, c) / n)[:-1, :-1].ravel()
        parts = ((n * np.diag(m) - np.outer(m, m))[:-1, :-1] for m in (r, c))
        covariance += np.kron(*parts) / (n**2 * (n - 1))
    wanted = shift @ np.linalg.solve(covariance, shift)
    wide = inferred(schema, rows, dps.Independence("region", "job", given="ill"), dps.PureDP(1e5))
    assert (wide.statistic, wide.df) == (pytest.approx(wanted, rel=1e-8), 4)


def test_a_stratum_with_an_empty_margin_counts_as_in_the_textbook(no_noise, inferred):
    schema = dps.Schema([dps.Category("region", list("nsw")), dps.Boolean("a"), dps.Boolean("b")])
    counts = np.array([[[30, 20], [10, 40]], [[25, 15], [0, 0]], [[12, 0], [9, 0]]])
    rows = schema.to_frame(dict(zip(schema.names, np.nonzero(counts >= 0), strict=True)))
    rows = rows.loc[rows.index.repeat(counts.ravel())]
    test = dps.Independence("a", "b", given="region")
    result = inferred(schema, rows, test, dps.PureDP(1e5))
    classical = StratifiedTable(list(counts)).test_null_odds()
    assert result.pearson == pytest.approx(classical.statistic, rel=1e-9)
    assert result.statistic == pytest.approx(classical.statistic, rel=0.05)  # margins of half a row


@pytest.mark.parametrize(("deviation", "scale"), [(1.0, 2.0), (0.2, 10.0), (30.0, 1.0)])
def test_score_is_the_derivative_of_the_log_density(deviation, scale):
    nodes, step = np.linspace(-40, 40, 20_001) * scale, 1e-3 * deviation
    weights = stats.laplace.pdf(nodes, scale=scale)  # its kink is at a node

    def log_density(x):
        return np.log(stats.norm.pdf(x[:, np.newaxis] - nodes, scale=deviation) @ weights)

    x = np.linspace(-5, 5, 21) * (deviation + scale)
    score = (log_density(x - step) - log_density(x + step)) / (2 * step)
    ours = noisy_score(x, np.array(deviation), np.array(scale))
    np.testing.assert_allclose(ours, score, atol=1e-3 / (deviation + scale))


SMOKES, SMOKING = ["no", "yes"], dps.Independence("smoker", "region")


def with_levels(smoker, region):
    return dps.Schema([dps.Category("smoker", smoker), dps.Category("region", region)])


def test_levels_without_rows_change_no_test(survey, no_noise, inferred):
    frame, options = survey[["smoker", "region"]], {"unit": "add_remove", "budget": dps.PureDP(1e5)}
    kept, table = sorted(frame["region"].unique()), crossed(survey).to_numpy()
    plain = inferred(with_levels(SMOKES, kept), frame, SMOKING, **options)
    classical = stats.chi2_contingency(table, correction=False)
    assert plain.pearson == pytest.approx(classical.statistic, rel=1e-8)
    several = with_levels([*SMOKES, "never"], ["x0", *kept, "y0", "y1"])
    found = inferred(several, frame, SMOKING, **options)
    for name in ("statistic", "pearson", "pearson_pvalue", "df", "effect"):
        assert getattr(found, name) == pytest.approx(getattr(plain, name), rel=1e-8)
    assert found.pvalue == pytest.approx(plain.pvalue, abs=0.05)
    assert found.used == {"smoker": tuple(SMOKES), "region": tuple(kept)}
    np.testing.assert_array_equal(found.crosstab("smoker", "region").loc[SMOKES, kept], table)
    expected = found.crosstab("smoker", "region", values="expected")
    assert expected.loc["never"].isna().all()
    assert found.certified.verdict == plain.certified.verdict
    assert found.certified.high == pytest.approx(plain.certified.high, rel=1e-6)
    np.testing.assert_allclose(found.effect_interval, plain.effect_interval, atol=0.03)


def test_one_level_with_rows_leaves_nothing_to_test(survey, no_noise, inferred):
    frame = survey[["smoker", "region"]].assign(region="north")
    found = inferred(with_levels(SMOKES, ["north", "south"]), frame, SMOKING, dps.PureDP(10))
    assert found.pvalue == 1
    assert np.isnan([found.statistic, found.effect]).all()
    assert found.used["region"] == ("north",)
    assert found.certified.verdict == "inconclusive"
    for options in ({}, {"method": "certified", "target": "table"}):
        np.testing.assert_array_equal(found.conf_int(**options), [0, 1])
