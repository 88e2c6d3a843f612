import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats.contingency import association

import dpstats as dps
from dpstats.analyses.tables.score_statistic import noisy_score
from dpstats.privacy.noise import _noise_from


def released(schema, survey, analyses, epsilon=1.0, **options):
    plan = dps.plan(schema, analyses, budget=dps.PureDP(epsilon), **options)
    return dps.release(plan, survey, rng=0, m=50)


def crossed(survey, a="smoker", b="region"):
    return pd.crosstab(survey[a], survey[b])


def test_zero_noise_is_the_classical_test(schema, survey, no_noise):
    a, b = "region", "smoker"
    # At this budget the law of the noise is a point at zero too.
    test = dps.Independence(a, b)
    result = released(schema, survey, {"t": test}, 1e5).infer("t")
    table = crossed(survey, a, b).loc[list(schema[a].levels), list(schema[b].levels)].to_numpy()
    classical = stats.chi2_contingency(table, correction=False)
    assert result.pearson == pytest.approx(classical.statistic, rel=1e-8)
    assert result.statistic == pytest.approx(classical.statistic, rel=1e-8)
    assert result.pearson_pvalue == pytest.approx(classical.pvalue, rel=1e-8)
    assert result.df == classical.dof
    np.testing.assert_allclose(result.expected, classical.expected_freq.ravel(), rtol=1e-8)
    np.testing.assert_array_equal(result.observed, table.ravel())
    assert result.effect == pytest.approx(association(table, method="cramer"), rel=1e-8)
    assert result.pvalue == pytest.approx(classical.pvalue, abs=0.05)  # 4.5 standard errors
    assert result.certified.low <= classical.statistic <= result.certified.high


def test_zero_noise_strata_are_cochran_mantel_haenszel(no_noise):
    from statsmodels.stats.contingency_tables import StratifiedTable

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
    wide = dps.Independence("region", "job", given="ill")
    release = released(schema, rows, {"twice": twice, "wide": wide}, 1e5)
    result = release.infer("twice")
    tables = [pd.crosstab(rows["ill"][m], rows["smoker"][m]) for m in (region == r for r in "nsw")]
    classical = StratifiedTable([table.to_numpy() for table in tables]).test_null_odds()
    assert result.statistic == pytest.approx(classical.statistic, rel=1e-8)
    assert result.pearson == pytest.approx(classical.statistic, rel=1e-8)
    assert result.pearson_pvalue == pytest.approx(classical.pvalue, rel=1e-8)
    assert result.df == 1
    assert result.pvalue == pytest.approx(classical.pvalue, abs=0.05)
    assert "Cochran-Mantel-Haenszel" in result.summary()
    expected = np.concatenate([stats.contingency.expected_freq(t).ravel() for t in tables])
    np.testing.assert_allclose(result.expected, expected, rtol=1e-8)
    # Landis, Heyman and Koch (1978): the sum of hypergeometric covariances
    counts = [pd.crosstab(rows["region"][rows["ill"] == v], rows["job"][rows["ill"] == v])
              for v in (False, True)]  # fmt: skip
    shift, covariance = np.zeros(4), np.zeros((4, 4))
    for table in (count.to_numpy(float) for count in counts):
        n, r, c = table.sum(), table.sum(1), table.sum(0)
        shift += (table - np.outer(r, c) / n)[:-1, :-1].ravel()
        parts = ((n * np.diag(m) - np.outer(m, m))[:-1, :-1] for m in (r, c))
        covariance += np.kron(*parts) / (n**2 * (n - 1))
    wanted = shift @ np.linalg.solve(covariance, shift)
    assert release.infer("wide").statistic == pytest.approx(wanted, rel=1e-8)
    assert release.infer("wide").df == 4


def test_a_stratum_with_an_empty_margin_counts_as_in_the_textbook(no_noise):
    from statsmodels.stats.contingency_tables import StratifiedTable

    schema = dps.Schema([dps.Category("region", list("nsw")), dps.Boolean("a"), dps.Boolean("b")])
    counts = np.array([[[30, 20], [10, 40]], [[25, 15], [0, 0]], [[12, 0], [9, 0]]])
    rows = schema.to_frame(dict(zip(schema.names, np.nonzero(counts >= 0), strict=True)))
    rows = rows.loc[rows.index.repeat(counts.ravel())]
    test = dps.Independence("a", "b", given="region")
    result = released(schema, rows, {"t": test}, 1e5).infer("t")
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


def test_drowned_association_is_zero_and_not_certified(schema, survey):
    noise = np.array([1500, -700, 200, -2500, 900, 1100])  # of the size that this budget brings
    with _noise_from(lambda scale, size: noise[:size]):
        release = released(schema, survey, {"t": dps.Independence("smoker", "region")}, 1e-3)
    result = release.infer("t")
    assert result.effect_interval[0] == 0
    assert result.effect_interval[1] > 0.9
    assert result.certified.verdict == "inconclusive"
    assert "Cramer's V" in result.summary()


def declared(columns, survey, test, epsilon=1e5, **options):
    """The test in a schema with these levels."""
    schema = dps.Schema([dps.Category(name, levels) for name, levels in columns.items()])
    return released(schema, survey, {"t": test}, epsilon, **options).infer("t")


SMOKES, PLACES = ["no", "yes"], ["north", "south", "west"]


def test_levels_without_rows_change_no_test(survey, no_noise):
    frame = survey[["smoker", "region"]]
    kept = sorted(frame["region"].unique())
    test = dps.Independence("smoker", "region")
    plain = declared({"smoker": SMOKES, "region": kept}, frame, test, unit="add_remove")
    table = crossed(survey).to_numpy()
    classical = stats.chi2_contingency(table, correction=False)
    assert plain.pearson == pytest.approx(classical.statistic, rel=1e-8)
    levels = {"smoker": [*SMOKES, "never"], "region": ["x0", *kept, "y0", "y1"]}
    found = declared(levels, frame, test, unit="add_remove")
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


def test_one_level_with_rows_leaves_nothing_to_test(survey, no_noise):
    frame = survey[["smoker", "region"]].assign(region="north")
    test = dps.Independence("smoker", "region")
    found = declared({"smoker": SMOKES, "region": PLACES}, frame, test, 10)
    assert found.pvalue == 1
    assert np.isnan([found.statistic, found.effect]).all()
    assert found.used["region"] == ("north",)
    assert found.certified.verdict == "inconclusive"
    np.testing.assert_array_equal(found.conf_int(), [0, 1])
    np.testing.assert_array_equal(found.conf_int(method="certified", target="table"), [0, 1])
