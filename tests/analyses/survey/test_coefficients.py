"""Weighted regressions: those of R's survey package without noise, and what noise leaves."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import special, stats

import dpstats as dps
from dpstats.analyses.regression.design_moments import Design, DesignMoments
from dpstats.analyses.regression.score import LOGIT
from dpstats.analyses.survey.coefficients import equations_of
from dpstats.errors import RequestError
from dpstats.verifying.arguing import verify

CELLS = {
    "poisson": dps.Poisson("visits ~ sex + region"), "line": dps.OLS("income ~ sex*region"),
    "shares": dps.OLS("ill ~ region"),
    "ill women": dps.Logistic("ill ~ region", given="sex == 'f'"),
}  # fmt: skip
SPLINES = {  # and how far coefficients are from R's, in their standard errors
    "logistic": (dps.Logistic("ill ~ age10 + sex"), 1e-8),  # one value in a bin
    "logistic_on_age": (dps.Logistic("ill ~ age + sex"), 1e-3),
    "logistic_of_women": (dps.Logistic("ill ~ age", given="sex == 'f'"), 1e-3),
    "poisson_on_age": (dps.Poisson("visits ~ age + sex"), 1e-3),
}
SCORES = {
    "ols": dps.OLS("income ~ age + sex + region"),
    "ols_of_women": dps.OLS("income ~ age + region", given="sex == 'f'"),
}


@pytest.fixture(scope="module")
def released(surveyed):
    asked = {**CELLS, **SCORES, **{name: asked for name, (asked, _) in SPLINES.items()}}
    return release_of(surveyed.rows, surveyed.schema(), asked)


def release_of(rows, schema, asked):
    plan = dps.plan(schema, asked, budget=dps.PureDP(10**10), unit="add_remove", n=1500)
    return dps.release(plan, rows, m=10, k=10)


def linearised(part, functions, rows):
    """Covariance with replacement of the linearised values of rows, as R has it."""
    z = rows["u"].to_numpy() * (part._contrast_slopes @ functions)
    of_units = pd.DataFrame(z.T).groupby([rows["stratum"], rows["psu"]]).sum()
    strata = [x.to_numpy() for _, x in of_units.groupby(level=0)]
    return sum(len(x) * np.cov(x.T, ddof=1).reshape(2 * x.shape[1:]) for x in strata)


def same(cov, figure, atol):
    """Covariances in units of R's standard errors, which are returned."""
    se = np.sqrt(np.diag(figure["cov"]))
    scale = np.outer(se, se)
    np.testing.assert_allclose(cov / scale, figure["cov"] / scale, atol=atol)
    return se


def weighted_fit(x, y, weights, family):
    """Of statsmodels, for columns (p, n)."""
    return sm.GLM(y, x.T, family=family, freq_weights=weights).fit().params


def contrasted(released, part):
    """The block whose contrasts give the sampling variance."""
    (at,) = (c.base for c in released.contrasts if c.base.settles(part.estimand.contrasted))
    return at


def test_coefficients_from_cells_are_those_of_r(surveyed, released):
    """And those of a saturated line are the means of its cells."""
    result, figure = released.infer("poisson"), surveyed.figures["poisson"]
    (part,) = result.parts
    functions = surveyed.values(part.estimand.block, released.schema)
    np.testing.assert_allclose(result.params, figure["params"], rtol=1e-8)
    same(linearised(part, functions, surveyed.rows), figure, 1e-8)
    assert result.terms[1] == "sex[T.m]"
    cells = surveyed.rows[["sex", "region"]].agg("-".join, axis=1)
    income = {x: np.average(s["income"], weights=s["u"]) for x, s in surveyed.rows.groupby(cells)}
    params = released.infer("line").params
    assert params["Intercept"] == pytest.approx(income["f-coast"])
    assert params["sex[T.m]"] == pytest.approx(income["m-coast"] - income["f-coast"])


@pytest.mark.parametrize("name", SPLINES)
def test_coefficients_from_splines_are_those_of_r(surveyed, released, name):
    """Contrasts are of R's scores, at the estimate; what splines leave out is bounded."""
    result, (_, most) = released.infer(name), SPLINES[name]
    (part,) = result.parts
    at, figure = contrasted(released, part), surveyed.figures[name]
    functions = surveyed.values(at, released.schema) * at.unit
    se = same(linearised(part, functions, surveyed.rows), figure, 2e-3)
    away = np.abs(result.params - figure["params"])
    assert np.all(away <= np.minimum(most * se, part.hidden + 1e-8 * se))
    assert np.all(part.hidden <= 0.04 * se)
    assert (part.hidden > 0).all() == (name != "logistic")
    noise = np.diag(part.noise_covariance)
    np.testing.assert_allclose(noise, part.hidden**2, rtol=1e-3, atol=1e-12)


def test_rows_at_the_ends_of_bins_are_within_the_bound():
    """What is beyond splines is largest there; to first order all of the bound can be reached."""
    bins = 4
    edges = np.linspace(-1, 1, bins + 1)
    x = dps.Number("x", -1, 1, points=2049, edges=edges[1:-1].tolist(), missing=0)
    schema = dps.Schema([x, dps.Boolean("ill")], design=dps.Design("w", mean=1, cap=1, deff=1))
    moments = DesignMoments(schema, Design.of("ill ~ x", schema))
    equations, rng = equations_of(moments, LOGIT), np.random.default_rng(4)
    estimand = equations.estimand(["Intercept", "x"], np.eye(2))
    for values in (edges[[0, bins // 2, -1]], edges, np.append(edges[:-1], edges[1:] - 1 / 1024)):
        for _ in range(4):
            own = rng.choice(values, 10_000, p=rng.dirichlet(np.full(len(values), 3.0)))
            ill = rng.random(len(own)) < stats.logistic.cdf(own - 0.5)
            codes = {"x": np.rint(1024 * own).astype(int), "ill": ill.astype(int)}
            totals = equations.block.sums(codes) / equations.block.bounds
            x = np.array([np.ones(len(own)), own])
            exact = weighted_fit(x, ill.astype(float), x[0], sm.families.Binomial())
            away = np.abs(estimand.value(totals) - exact)
            assert np.all(away <= 1.4 * estimand.hidden(totals))  # the rest is of second order


def test_numbers_and_responses_that_may_be_missing(surveyed):
    """One value in a bin, many in one, and a response of more steps than units."""
    columns = [
        dps.Number("age", 18, 90, points=73, edges=[30, 45, 60], allow_missing=True),
        dps.Number("kind", 0, 2, points=3, edges=[0.5, 1.5], allow_missing=True),
        dps.Boolean("ill", allow_missing=True),
        dps.Number("cost", 0, 10, points=4_001, allow_missing=True),
    ]  # fmt: skip
    rng, n = np.random.default_rng(2), len(surveyed.rows)
    rows = surveyed.rows.assign(kind=rng.integers(0, 3, n).astype(float))
    rows["cost"] = np.rint(400 * rng.gamma(2, np.exp(rows["kind"] / 4))).clip(0, 4_000) / 400
    rows["ill"] = rows["ill"].astype(bool).astype(object)
    for name in ("age", "kind", "ill", "cost"):
        rows.loc[rng.random(n) < 0.1, name] = None
    asked = {
        "odds": dps.Logistic("ill ~ age + kind"),
        "cost": dps.Poisson("cost ~ age + kind"),
        "line": dps.OLS("cost ~ ill"),
    }
    release = release_of(rows, surveyed.schema(*columns), asked)
    families = sm.families.Binomial(), sm.families.Poisson()
    for name, response, family in zip(("odds", "cost"), ("ill", "cost"), families, strict=True):
        complete = rows.dropna(subset=["age", "kind", response])
        age, kind, y, u = complete[["age", "kind", response, "u"]].to_numpy(float).T
        exact = weighted_fit(np.array([np.ones(len(y)), age, kind]), y, u, family)
        result = release.infer(name)
        (part,) = result.parts
        away = np.abs(result.params - exact)
        assert np.all(away <= part.hidden)
        assert np.all(away <= 0.01 * result.bse)
    assert part.hidden[0] > 0.03 * result.bse[0]  # the rounding of costs
    ill, costs, u = rows.dropna(subset=["ill", "cost"])[["ill", "cost", "u"]].to_numpy(float).T
    sums = [np.average(costs[ill == level], weights=u[ill == level]) for level in (0, 1)]
    assert release.infer("line").params[1] == pytest.approx(np.diff(sums)[0], rel=1e-6)


@pytest.mark.parametrize("name", SCORES)
def test_coefficients_from_products_are_those_of_r(surveyed, released, name):
    """Contrasts are of scores at the estimate: without cutting off residuals, R's scores."""
    result = released.infer(name)
    (part,) = result.parts
    at, figure = contrasted(released, part), surveyed.figures[name]
    whole = at.at(np.array(at.pilot) / 2**16, 8.0)
    functions = surveyed.values(whole, released.schema) * whole.unit
    np.testing.assert_allclose(result.params, figure["params"], rtol=1e-8)
    same(linearised(part, functions, surveyed.rows), figure, 1e-3)
    cut_off = surveyed.values(at, released.schema) * at.unit
    weights = surveyed.rows["u"] * (functions[0] != 0)
    spread = np.sqrt(np.average(functions[0] ** 2, weights=weights))
    assert at.unit == pytest.approx(3 * spread, rel=1e-3)
    np.testing.assert_allclose(cut_off[0], np.clip(functions[0], -at.unit, at.unit), atol=1e-3)


@pytest.mark.parametrize("name", ["logistic", "ols"])
def test_noise_moves_with_the_value_of_a_coefficient(surveyed, released, name):
    """As the score of rows at coefficients of which one has another value."""
    (part,) = released.infer(name).parts
    rows, one = surveyed.rows, np.ones(len(surveyed.rows))
    men, *regions = rows["sex"] == "m", rows["region"] == "hills", rows["region"] == "plain"
    x = {"logistic": [one, rows["age10"], men], "ols": [one, rows["age"], men, *regions]}[name]
    x = np.array(x, dtype=float)
    slope = stats.logistic.pdf(part.params @ x) if name == "logistic" else one
    inverse = np.linalg.inv(x * (rows["u"].to_numpy() * slope) @ x.T)
    wanted = (inverse @ x) ** 2 * slope / np.diag(inverse)[:, np.newaxis]
    moving = part.estimand.moving(part.totals.values)
    functions = surveyed.values(part.estimand.block, released.schema)
    np.testing.assert_allclose(moving @ functions, wanted, rtol=1e-6, atol=1e-15)
    noise = moving @ part.totals.noise(np.eye(len(part.totals.values)))
    expected = [np.diag(noise @ other.T) for other in (part.slopes, moving)]
    np.testing.assert_allclose(part.moving_noise, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["line", "ill women"])
def test_derivatives_are_those_of_the_coefficients(released, name):
    (part,) = released.infer(name).parts
    estimand, totals = part.estimand, part.totals.values
    steps = 1e-4 * np.abs(totals).max() * np.eye(len(totals))
    numeric = [(estimand.value(totals + h) - estimand.value(totals - h)) / (2 * h.max())
               for h in steps]  # fmt: skip
    np.testing.assert_allclose(part.slopes.T, numeric, rtol=1e-5, atol=1e-12)


def test_tests_are_by_the_covariance_of_the_design(released):
    result = released.infer("shares")
    covariance, df = result.cov_params().to_numpy()[1:, 1:], result.df_resid
    wald = result.params[1:] @ np.linalg.solve(covariance, result.params[1:])
    test = result.f_test("region[T.hills] = 0, region[T.plain] = 0")
    assert test.statistic == pytest.approx(wald / 2 * (df - 1) / df, rel=1e-6)
    assert test.pvalue == pytest.approx(stats.f.sf(test.statistic, 2, df - 1))
    assert (test.df_num, test.df_denom) == (2, pytest.approx(df - 1))
    one = result.t_test("region[T.hills] - region[T.plain] = 0.1")
    sd = np.sqrt(np.array([1, -1]) @ covariance @ [1, -1])
    assert one.sd == pytest.approx(sd, rel=1e-6)
    assert one.tvalue == pytest.approx((one.effect - 0.1) / sd, rel=1e-6)


def test_more_coefficients_than_contrasts_are_tested_one_by_one(inferred):
    """Two contrasts do not give the covariance of three coefficients (eq. survey-joint)."""
    units = {"first": ["a", "b"], "second": ["c", "d"]}
    design = dps.Design("w", mean=1, cap=1, high=1, strata="h", unit="u", units=units)
    columns = [dps.Boolean("y"), dps.Category("g", ["p", "q", "r", "t"])]
    rng = np.random.default_rng(8)
    u, g = rng.integers(0, 4, (2, 8_000))
    y = rng.random(8_000) < (0.5 + 0.08 * rng.standard_normal((4, 4)))[u, g]
    rows = pd.DataFrame({"y": y, "g": np.array(list("pqrt"))[g], "w": 1,
                         "h": np.array(["first", "second"])[u // 2],
                         "u": np.array(list("abcd"))[u]})  # fmt: skip
    schema, asked = dps.Schema(columns, design=design), dps.Logistic("y ~ g")
    result = inferred(schema, rows, asked, dps.PureDP(10**5), n=8_000)
    test = result.f_test(np.eye(4)[1:])
    least = int(np.argmin(np.asarray(result.pvalues)[1:])) + 1
    assert test.pvalue == pytest.approx(min(1, 3 * result.pvalues[least]))
    assert test.statistic == pytest.approx(result.tvalues[least] ** 2, rel=1e-6)
    assert test.df_num == 1 <= test.df_denom <= 2
    twice = result.f_test(np.vstack([np.eye(4)[1:], np.eye(4)[1:] * 2]))
    assert twice.pvalue == test.pvalue
    with pytest.raises(dps.RequestError, match="contradict each other"):
        result.f_test("g[T.q] = 1, 2 * g[T.q] = 3")


@pytest.mark.parametrize("epsilon", [0.02, 0.002])
def test_limits_are_open_where_noise_does_not_rule_out_collinear_regressors(surveyed, epsilon):
    line = dps.OLS("income ~ age + sex + region")
    result = surveyed.release(line, surveyed.schema(), dps.PureDP(epsilon)).infer(line)
    assert np.isinf(result.conf_int()).any()
    assert np.isinf(result.conf_int(target="table")).any()
    if epsilon < 0.01:
        assert np.isnan(result.params).all()
        assert np.isinf(result.cov_params()).all(axis=None)
        assert np.all(np.asarray(result.pvalues) == 1)


def test_what_a_design_cannot_have_is_refused(surveyed):
    schema = surveyed.schema()
    for line, match in [
        (dps.OLS("income ~ age", ridge=1), "ridge="), (dps.OLS("income ~ age - 1"), "'- 1'"),
        (dps.OLS("income ~ age", cov_type="HC1"), "cov_type"),
        (dps.Logistic("ill ~ age + income + visits"), "this one has 1,200: use fewer edges"),
        (dps.Poisson("visits ~ age10*sex + region + ill"), "at most 512 cells .* has 876"),
        (dps.Logistic("ill ~ sex", stages=2), "stages=2"),
    ]:  # fmt: skip
        with pytest.raises(RequestError, match=match):
            dps.plan(schema, {"line": line}, budget=dps.PureDP(1), n=1500)
    of_shares = replace(schema, design=dps.Design("w", mean=1, cap=2, deff=2))
    with pytest.raises(RequestError, match="declare unit="):
        dps.plan(of_shares, {"line": dps.OLS("income ~ sex")}, budget=dps.PureDP(1), n=1500)


@pytest.mark.parametrize(("line", "clip"), [
    (dps.OLS("income ~ age + sex"), {"clip": 2**16}), (dps.Poisson("visits ~ age + sex"), {}),
])  # fmt: skip
def test_plans_and_measurements_with_pilots_are_kept(surveyed, tmp_path, line, clip):
    """Pilots and where residuals are cut off come after the plan and are not in its digest."""
    schema = surveyed.schema()
    plan = dps.plan(schema, {"line": line}, budget=dps.ZCDP(1), unit="replace", n=1518)
    plan.save(tmp_path / "plan.json")
    assert dps.Plan.load(tmp_path / "plan.json") == plan
    assert plan.strategy.contrasts[0].pending
    edited = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    (at,) = (block for block in edited["blocks"] if block["role"] == "contrasts")
    at["base"] |= {"pilot": [0, 0, 0]} | clip
    (tmp_path / "plan.json").write_text(json.dumps(edited), "utf-8")
    with pytest.raises(RequestError, match="answer nothing"):
        dps.Plan.load(tmp_path / "plan.json")
    assert plan.cost() == 1
    release = dps.release(plan, surveyed.rows, m=10, k=10)
    release.save(tmp_path / "release.zip")
    assert not verify(tmp_path / "release.zip").wrong
    again = dps.load(tmp_path / "release.zip")
    assert again == release
    assert again.measurements.plan_digest == plan.digest
    assert not again.contrasts[0].pending
    np.testing.assert_array_equal(again.infer("line").bse, release.infer("line").bse)


def test_predictions_are_combinations_of_coefficients_through_the_link(released):
    result, at = released.infer("logistic"), {"age10": [3.0, 7.0], "sex": ["f", "m"]}
    predictor = result.t_test([[1, 3, 0], [1, 7, 1]])
    predicted = result.get_prediction(at)
    np.testing.assert_allclose(predicted.params, stats.logistic.cdf(predictor.params))
    np.testing.assert_allclose(predicted.conf_int(), stats.logistic.cdf(predictor.conf_int()))
    slopes = stats.logistic.pdf(predictor.params)
    np.testing.assert_allclose(predicted.bse, slopes * predictor.bse)
    np.testing.assert_allclose(result.predict(at), predicted.params)
    assert predicted.conf_int(method="certified").tolist() == [[0, 1], [0, 1]]


def test_levels_that_a_condition_excludes_have_no_coefficient(surveyed):
    given = "region != 'plain' and sex == 'f'"
    asked = {"some": dps.Logistic("ill ~ sex + region", given=given),
             "none": dps.OLS("ill ~ region", given="region != 'coast'")}  # fmt: skip
    release = release_of(surveyed.rows, surveyed.schema(), asked)
    women = surveyed.rows[surveyed.rows["sex"] == "f"].groupby("region")
    value = {x: special.logit(np.average(s["ill"], weights=s["u"])) for x, s in women}
    result = release.infer("some")
    wanted = [value["coast"], np.nan, value["hills"] - value["coast"], np.nan]
    np.testing.assert_allclose(result.params, wanted)
    assert np.isfinite(result.conf_int()).all(axis=1).tolist() == [True, False, True, False]
    assert "no estimates of ['sex[T.m]', 'region[T.plain]']" in " ".join(result.notes)
    other = release.infer("none")  # without the baseline only the difference is known
    assert np.isnan(other.params).all()
    assert np.isfinite(other.t_test("region[T.plain] - region[T.hills]").effect)


@pytest.mark.parametrize("analysis", [
    dps.OLS("income ~ age*sex"), dps.Poisson("visits ~ sex*region"), dps.Logistic("ill ~ age + sex")
])  # fmt: skip
def test_a_level_without_rows_leaves_the_others_as_they_are(surveyed, analysis):
    """Sums have next to no noise, and that of the level is zero."""
    others = [column for column in surveyed.columns if column.name != "sex"]
    several = surveyed.schema(dps.Category("sex", ["f", "m", "other"]), *others)
    found = surveyed.release(analysis, several).infer("x")
    plain = surveyed.release(analysis, surveyed.schema()).infer("x")
    known = np.array(["other" not in term for term in found.terms])
    assert np.array(found.terms)[known].tolist() == plain.terms
    assert not known.all()
    params = np.asarray(found.params)
    np.testing.assert_allclose(params[known], np.asarray(plain.params), rtol=1e-6, atol=1e-9)
    assert np.isnan(params[~known]).all()
    assert np.isfinite(found.conf_int()).all(axis=1).tolist() == known.tolist()
