"""Logistic and Poisson regression: statsmodels without noise, refusals, files, predictions."""

import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy import special

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.privacy.noise import _noise_from

BINS = [-1.5, -1, -0.5, 0, 0.5, 1, 1.5]
SCHEMA = dps.Schema([
    dps.Number("x", -2, 2, points=33, edges=BINS, missing=0), dps.Boolean("u"),
    dps.Category("g", ["a", "b", "c"]), dps.Number("few", values=[0, 1, 2, 5], missing=0),
    dps.Boolean("y"), dps.Number("count", 0, 9, points=10, edges=[1, 2, 3, 5], missing=0),
    dps.Number("gap", 0, 4, points=5, edges=[1, 2, 3, 4], allow_missing=True),
    dps.Number("bare", 0, 1, missing=0),
    dps.Number("pay", 1, 100, scale="log", points=65, edges=[3, 10, 30], missing=1),
    dps.Category("vote", ["no", "yes"], allow_missing=True), dps.Category("turned", ["yes", "no"]),
])  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    rng, n = np.random.default_rng(1), 6_000
    x = np.rint(np.clip(rng.normal(0.2, 0.7, n), -2, 2) * 8) / 8
    u, g = rng.random(n) < 0.4, rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2])
    predictor = -0.5 + x + 0.7 * u - 0.6 * (g == "b") + 0.5 * (g == "c")
    return pd.DataFrame({
        "x": x, "u": u, "g": g, "few": rng.choice([0, 1, 2, 5], n), "bare": rng.random(n),
        "pay": 100 ** rng.random(n),
        "y": rng.random(n) < 1 / (1 + np.exp(-predictor)),
        "count": np.minimum(rng.poisson(np.exp(0.2 + 0.4 * x)), 9),
        "gap": np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 5, n)),
    })  # fmt: skip


def fitted(analysis, rows, budget=None, unit="replace"):
    plan = dps.plan(SCHEMA, {"it": analysis}, budget=budget or dps.PureDP(1e6), unit=unit)
    return dps.release(plan, rows, m=4_000, rng=0).infer("it")


def of_statsmodels(fit, formula, rows, terms):
    frame = rows.assign(y=rows["y"].astype(float), u=rows["u"].astype(str))
    found = fit(re.sub(r"\bu\b", "C(u)", formula), frame).fit(disp=0)
    names = [term.replace("u[", "C(u)[") for term in terms]
    return found, [list(found.params.index).index(name) for name in names]


def agree(ours, fit, formula, rows, apart, ratio=1e3):
    """Whether estimates differ by few standard errors of statsmodels, and errors by a ratio."""
    theirs, order = of_statsmodels(fit, formula, rows, ours.terms)
    errors = np.asarray(theirs.bse)[order]
    distance = np.abs(np.asarray(ours.params) - np.asarray(theirs.params)[order])
    np.testing.assert_array_less(distance, apart * errors, err_msg=formula)
    np.testing.assert_allclose(ours.bse, errors, rtol=ratio, err_msg=formula)
    return theirs, order


def poisson(formula, frame):
    """With robust errors."""
    return SimpleNamespace(fit=partial(smf.poisson(formula, frame).fit, cov_type="HC0"))


@pytest.mark.parametrize(
    ("formula", "unit"),
    [
        ("y ~ C(g)", "replace"), ("y ~ u*C(g)", "add_remove"),
        ("y ~ few + C(g)", "add_remove"), ("y ~ few + I(few**2)", "replace"),
    ],
)  # fmt: skip
def test_cells_without_noise_are_statsmodels(formula, unit, rows, no_noise):
    ours = fitted(dps.Logistic(formula), rows, unit=unit)
    theirs, order = of_statsmodels(smf.logit, formula, rows, ours.terms)
    np.testing.assert_allclose(ours.params, theirs.params.iloc[order], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.bse, theirs.bse.iloc[order], rtol=1e-6)
    np.testing.assert_allclose(ours.pvalues, theirs.pvalues.iloc[order], rtol=0.2, atol=1e-3)


def test_two_levels_are_a_response_as_a_boolean_is(rows, no_noise):
    """The second level counts as 1, as in R; or the one that Treatment does not name."""
    right, words = "few + C(g)", np.where(rows["y"], "yes", "no")
    one = rows.assign(vote=words, turned=words)
    plain, text, turned, named, linear = (
        fitted(asked, one)
        for asked in (
            dps.Logistic(f"y ~ {right}"), dps.Logistic(f"vote ~ {right}"),
            dps.Logistic(f"turned ~ {right}"),
            dps.Logistic(f"C(turned, Treatment('no')) ~ {right}"), dps.OLS(f"turned ~ {right}"),
        )
    )  # fmt: skip
    for found, sign in ((text, 1), (turned, -1), (named, 1)):
        np.testing.assert_allclose(found.params, sign * np.asarray(plain.params), rtol=1e-6)
    assert plain.title == f"Logistic regression: y ~ {right}"
    assert text.title.endswith(", for vote == 'yes'")
    assert turned.title.endswith(", for turned == 'no'")
    assert named.title.endswith(", for turned == 'yes'")
    wanted = fitted(dps.OLS(f"y ~ {right}"), one)
    slopes = -np.asarray(wanted.params)[1:]
    np.testing.assert_allclose(np.asarray(linear.params)[1:], slopes, rtol=1e-5, atol=1e-7)
    assert linear.title.endswith(", for turned == 'no'")


def test_joint_tests_without_noise_are_the_score_test_of_statsmodels(rows, no_noise):
    ours = fitted(dps.Logistic("y ~ few + C(g)"), rows)
    frame, binomial = rows.assign(y=rows["y"] * 1.0), sm.families.Binomial()
    null = smf.glm("y ~ few", frame, family=binomial).fit().params
    model = smf.glm("y ~ few + C(g)", frame, family=binomial)
    at = [null.get(name, 0.0) for name in model.exog_names]
    ((statistic,), _, df) = model.score_test(np.array(at), k_constraints=2)
    found = ours.wald_test("C(g)[T.b] = 0, C(g)[T.c] = 0")
    assert found.statistic == pytest.approx(statistic / df, rel=1e-6)
    assert (found.df_num, found.df_denom) == (2, len(rows) - 4)
    one = ours.wald_test("few = 0.05").pvalue
    assert one == pytest.approx(ours.t_test("few = 0.05").pvalue, rel=0.05)


@pytest.mark.parametrize("formula", ["y ~ x", "y ~ x + C(g)", "y ~ gap"])
def test_bins_without_noise_contain_statsmodels(formula, rows, no_noise):
    """What bins hide is in the interval for the table, which has little other error here."""
    ours = fitted(dps.Logistic(formula), rows)
    kept = rows.dropna() if "gap" in formula else rows
    theirs, order = of_statsmodels(smf.logit, formula, kept, ours.terms)
    low, high = np.asarray(ours.conf_int(target="table")).T
    wanted = np.asarray(theirs.params)[order]
    assert np.all((low - 1e-6 <= wanted) & (wanted <= high + 1e-6))
    assert np.all(high - low < 0.8 * 3.92 * np.asarray(theirs.bse)[order] + 1e-6)


def test_a_fitted_density_with_little_noise_is_near_statsmodels(rows):
    formula = "y ~ x + u + C(g)"
    ours = fitted(dps.Logistic(formula), rows)
    theirs, _ = agree(ours, smf.logit, formula, rows, 0.5, 0.25)
    assert np.all((ours.unmeasured > 0) & (ours.unmeasured < 0.4))
    np.testing.assert_allclose(ours.unmeasured, ours.privacy_share, rtol=1e-3)
    worst = ours.terms[int(np.argmax(ours.unmeasured))]
    shown = f"up to {ours.unmeasured.max():.0%} of a variance, that of {worst}, comes from what"
    assert shown in ours.summary()
    assert "from the privacy noise and from what was not measured." in ours.summary()
    effects, wanted = ours.get_margeff(), theirs.get_margeff(dummy=True).summary_frame()
    np.testing.assert_allclose(sorted(effects.params), sorted(wanted["dy/dx"]), rtol=0.1)
    np.testing.assert_allclose(sorted(effects.bse), sorted(wanted["Std. Err."]), rtol=0.3)


def test_a_measured_score_with_little_noise_is_the_score_of_statsmodels(rows):
    """Nothing is left to the fitted density, also for formulas that it fits badly."""
    for formula in ("y ~ x + u + C(g)", "y ~ u*x + I(x**2)", "y ~ few + x - 1"):
        ours = fitted(dps.Logistic(formula, stages=2), rows)
        theirs, order = agree(ours, smf.logit, formula, rows, 0.1, 0.1)
        assert np.all(ours.unmeasured < 0.05)
        last, size = np.eye(len(ours.terms))[-2:], len(ours.terms)
        wanted = theirs.wald_test(np.eye(size)[order][-2:], scalar=True).statistic / 2
        assert ours.wald_test(last).statistic == pytest.approx(wanted, rel=0.1)
        one = (last[:1], [float(ours.params[-2]) + float(ours.bse[-2])])
        assert ours.f_test(one).pvalue == pytest.approx(ours.t_test(one).pvalue, abs=0.01)
        if np.all(ours.unmeasured < 0.005):
            assert "not measured" not in ours.summary()
        assert "the score itself was measured" in ours.summary()


def test_a_larger_model_answers_smaller_ones(rows):
    large = dps.Logistic("y ~ x + u + C(g)")
    plan = dps.plan(SCHEMA, {"it": large}, budget=dps.PureDP(1e6))
    release = dps.release(plan, rows, m=4_000, rng=0)
    for formula in ("y ~ x + u", "y ~ x"):
        ours = release.infer(dps.Logistic(formula))
        agree(ours, smf.logit, formula, rows, 0.5, 0.25)
        assert "has no cells of these columns" in ours.summary()
    assert "no cells" not in release.infer(dps.Logistic("y ~ C(g)")).summary()  # a table has them
    with pytest.raises(dps.NotMeasuredError, match="lacks the table of 'x', 'u' and 'y'"):
        release.infer(dps.Logistic("y ~ x*u"))


@pytest.mark.parametrize(("stages", "apart", "ratio"), [(1, 0.6, 0.4), (2, 0.1, 1e3)])
def test_counts_with_little_noise_are_near_statsmodels(stages, apart, ratio, rows):
    ours = fitted(dps.Poisson("count ~ x + C(g)", stages=stages), rows)
    agree(ours, poisson, "count ~ x + C(g)", rows, apart, ratio)
    ratios = ours.rate_ratios()
    np.testing.assert_allclose(ratios["rate_ratio"], np.exp(np.asarray(ours.params)))
    assert np.all(ratios["conf_low"] < ratios["rate_ratio"])


def test_results_have_the_names_of_statsmodels(rows):
    result = fitted(dps.Logistic("y ~ x + C(g)"), rows, dps.PureDP(5))
    theirs, _ = of_statsmodels(smf.logit, "y ~ x + C(g)", rows, result.terms)
    at = {"x": [0.0, 1.0], "g": "b"}
    predicted = result.predict(at)
    np.testing.assert_allclose(predicted, theirs.predict(pd.DataFrame(at)), atol=0.1)
    ends = np.asarray(result.get_prediction(at).conf_int())
    assert np.all((ends[:, 0] < predicted) & (predicted < ends[:, 1]) & (ends[:, 1] < 1))
    odds = result.odds_ratios()
    np.testing.assert_allclose(odds["odds_ratio"], np.exp(np.asarray(result.params)))
    half = result.t_test("x = 0.9")
    assert half.pvalue > 0.001
    joint = result.conf_int(simultaneous=True)
    assert np.all(np.diff(joint, axis=1) > np.diff(result.conf_int(), axis=1))
    assert np.all(np.isinf(result.conf_int(method="certified")))
    assert "dps.LossGrid" in result.summary()
    assert result.converged
    assert result.get_margeff().terms == ["x", "g: a to b", "g: a to c"]
    assert result.t_test("x = 0.9, x").terms == ["x = 0.9", "x"]
    with pytest.raises(RequestError, match=r"combinations: t_test and f_test$"):
        result.test(0)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_the_score_of_the_cells_has_the_law_of_the_noise(unit, rows):
    few = rows.head(500)
    laplace = fitted(dps.Logistic("y ~ x + C(g)"), few, dps.PureDP(1), unit)._coefficients.model
    np.testing.assert_allclose(laplace.laplace.T @ laplace.laplace, laplace.noise, rtol=1e-9)
    assert len(laplace.terms) == len(laplace.laplace)
    assert np.all(laplace.terms == 1)  # one noise on every count: nothing is a sum
    normal = fitted(dps.Logistic("y ~ x + C(g)"), few, dps.ZCDP(1), unit)._coefficients.model
    assert normal.laplace.size == normal.terms.size == 0


def test_much_noise_leaves_no_estimate_or_open_intervals(rows):
    few = rows.head(200)
    result = fitted(dps.Logistic("y ~ x + u + C(g)"), few, dps.PureDP(0.05))
    ends = np.asarray(result.conf_int())
    assert not result.converged or np.diff(ends, axis=1).max() > 3
    if not result.converged:
        assert np.all(np.isinf(ends))
        assert np.isinf(result.cov_params()).all(axis=None)
        assert np.all(np.asarray(result.pvalues) == 1)
        assert "no estimate" in result.summary()


def test_an_outcome_with_one_value_has_no_estimate(rows, no_noise):
    result = fitted(dps.Logistic("y ~ u + C(g)"), rows.assign(y=False), dps.PureDP(5))
    assert not result.converged
    assert "or the outcome has one value" in result.summary()
    effects = result.get_margeff()
    assert "[-inf, inf]" in effects.summary()
    assert np.all(np.isinf(effects.conf_int()))
    assert np.all(np.asarray(effects.test(0, term=effects.terms[0]).pvalue) == 1)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_subgroups_have_the_number_of_rows_that_least_squares_has(rows, unit):
    asked = {"ols": dps.OLS("y ~ x + u", given="g == 'a'"),
             "logistic": dps.Logistic("y ~ x + u", given="g == 'a'"),
             "poisson": dps.Poisson("count ~ x", given="g == 'a'"),
             "gap": dps.Logistic("y ~ gap"), "gap2": dps.Logistic("y ~ gap + u")}  # fmt: skip
    plan = dps.plan(SCHEMA, asked, budget=dps.ZCDP(1), unit=unit)
    release = dps.release(plan, rows, m=1_000, rng=0)
    sizes = {"gap": rows["gap"].notna().sum(), "gap2": rows["gap"].notna().sum()}
    for name in asked:
        found = release.infer(name)
        assert abs(found.nobs - sizes.get(name, (rows["g"] == "a").sum())) < 60, name
        note = next(n for n in found.notes if n.startswith("rows with"))
        assert f"about {found.nobs} (noise sd" in note
        assert "noise sd 0 rows" not in note
    assert release.infer("logistic").nobs == release.infer("ols").nobs


def test_rows_with_a_condition_only(rows):
    """Of rows with u, as of a table of them alone, though from the functions of both."""
    ours = fitted(dps.Logistic("y ~ x", given="u"), rows)
    agree(ours, smf.logit, "y ~ x", rows[rows["u"]], 0.8, 0.5)


@pytest.mark.parametrize(("low", "accepted"), [(0.1, False), (0.999, False), (1, True)])
def test_a_logarithm_as_the_response_of_a_poisson_regression_is_not_negative(low, accepted):
    pay = dps.Number("pay", low, 100, points=11, scale="log", missing=1, edges=[3])
    schema, analysis = dps.Schema([pay, dps.Boolean("z")]), dps.Poisson("log(pay) ~ z")
    if accepted:
        assert analysis.family(schema).size
    else:
        with pytest.raises(RequestError, match="'pay' is not declared as one"):
            analysis.family(schema)


def test_coefficients_of_nearly_equal_columns_are_open(seeded_noise):
    schema = dps.Schema([
        *(dps.Number(name, -4, 4, points=129, edges=[-2, -1, 0, 1, 2], missing=0) for name in "xz"),
        dps.Boolean("y"),
    ])  # fmt: skip
    rng = np.random.default_rng(3)
    x, off = rng.normal(size=(2, 2_000))
    rows = pd.DataFrame({"x": x, "z": x + 0.03 * off, "y": rng.random(2_000) < 0.5})
    asked = {"it": dps.Logistic("y ~ x + z", stages=2)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(3))
    with _noise_from(seeded_noise(1)):
        found = dps.release(plan, rows, m=1_000, rng=0).infer("it")
    assert np.all(np.isinf(found.conf_int()[1:]))
    assert np.all(found.pvalues[1:] > 0.05)
    assert any("some intervals have no ends" in note for note in found.notes)


@pytest.mark.parametrize(
    ("formula", "stages", "open_end"), [("y ~ u", 1, 1), ("y ~ x + u + C(g)", 1, 2),
                                        ("y ~ x + u + C(g)", 2, 2)],
)  # fmt: skip
def test_a_regressor_that_predicts_the_outcome_has_no_finite_upper_end(
    formula, stages, open_end, rows, seeded_noise
):
    """A valid 95% interval may end in 1 of 40 releases: with none of these seeds."""
    sure = rows.assign(y=rows["y"] | rows["u"])
    plan = dps.plan(SCHEMA, {"it": dps.Logistic(formula, stages=stages)}, budget=dps.PureDP(5))
    estimated = 0
    for seed in (0, 4):
        with _noise_from(seeded_noise(seed)):
            found = dps.release(plan, sure, m=1_000, rng=0).infer("it")
        assert np.isinf(np.asarray(found.conf_int())[open_end, 1])
        assert np.isinf(found.odds_ratios()["conf_high"].iloc[open_end])
        if found.converged:
            estimated += 1
            if "+" in formula:
                assert any("predicts the outcome without error" in note for note in found.notes)
    assert estimated > 0


@pytest.mark.parametrize("stages", [1, 2])
def test_a_level_without_any_count_has_no_finite_lower_end(stages, rows, seeded_noise):
    """Its coefficient is minus infinity; others keep their ends, also where means grow."""
    none = rows.assign(count=rows["count"].where(rows["g"] != "c", 0))
    asked = {"it": dps.Poisson("count ~ x + u + C(g)", stages=stages)}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(20))
    for seed in (1, 2):
        with _noise_from(seeded_noise(seed)):
            found = dps.release(plan, none, m=1_000, rng=0).infer("it")
        low, high = np.asarray(found.conf_int()).T
        at = found.terms.index("C(g)[T.c]")
        assert np.isneginf(low[at])
        kept = [found.terms.index(term) for term in ("x", "u[T.True]")]
        assert np.isfinite([*low[kept], *high[kept]]).all()


@pytest.mark.parametrize("stages", [1, 2])
def test_counts_of_groups_without_noise_are_statsmodels(stages, rows, no_noise):
    """Moments and two-way tables determine the score, so nothing is left to the fitted density."""
    ours = fitted(dps.Poisson("count ~ C(g) + u", stages=stages), rows)
    theirs, order = of_statsmodels(poisson, "count ~ C(g) + u", rows, ours.terms)
    np.testing.assert_allclose(ours.params, theirs.params.iloc[order], rtol=1e-6, atol=1e-7)
    assert np.all(ours.unmeasured < 1e-6)


@pytest.mark.parametrize("formula", ["y ~ few + C(g)", "y ~ x + u + C(g)"])
def test_covariances_have_the_names_and_without_noise_the_values_of_statsmodels(
    formula, rows, no_noise
):
    ours = fitted(dps.Logistic(formula, stages=1 if "few" in formula else 2), rows)
    theirs, order = of_statsmodels(smf.logit, formula, rows, ours.terms)
    found, wanted = ours.cov_params(), theirs.cov_params().to_numpy()[np.ix_(order, order)]
    assert list(found.index) == list(found.columns) == ours.terms
    np.testing.assert_allclose(np.diag(found), np.asarray(ours.bse) ** 2, rtol=1e-9)
    size = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    off = 1e-6 if "few" in formula else 0.1
    np.testing.assert_allclose(found / size, wanted / size, atol=off)
    assert (ours.df_model, ours.df_resid) == (theirs.df_model, theirs.df_resid)
    two = np.eye(len(found))[1:3].sum(axis=0)
    assert ours.t_test(two[None]).sd ** 2 == pytest.approx(two @ found.to_numpy() @ two)


FINE = dps.Schema([
    *(dps.Number(name, 0, 10, points=11, edges=range(1, 11), missing=0) for name in "xz"),
    dps.Number("count", 0, 30, points=31, edges=range(1, 31), missing=0), dps.Boolean("y"),
])  # fmt: skip


@pytest.fixture(scope="module")
def fine():
    """Rows on 11 x 11 x 31 points."""
    rng, n = np.random.default_rng(1), 5_000
    x, z = rng.integers(0, 11, (2, n))
    mean = np.exp(0.2 + 0.097 * x - 0.03 * z)
    return pd.DataFrame({"x": x, "z": z, "count": np.minimum(rng.poisson(mean), 30),
                         "y": rng.random(n) < special.expit(0.1 * x - 0.5)})  # fmt: skip


@pytest.mark.parametrize(
    ("analysis", "options"),
    [
        (dps.Poisson("count ~ x + z"), {"m": 200}),
        (dps.Logistic("y ~ x + z", stages=2), {"m": 500, "rng": 2, "fit": "minimax"}),
    ],
)
def test_intervals_do_not_depend_on_the_candidates_of_the_rows(
    analysis, options, fine, seeded_noise, monkeypatch
):
    for name in ("CANDIDATES", "MOST_EQUAL"):  # 3,751 cells take many
        monkeypatch.setattr(f"dpstats.rows.generator.{name}", 20_000)
    plan = dps.plan(FINE, {"it": analysis}, budget=dps.PureDP(1000))
    with _noise_from(seeded_noise(0)):
        held = dps.measure(plan, fine)
    usual = dps.synthesize(held, k=200, rng=1).infer("it")
    other = dps.synthesize(held, k=200, **options).infer("it")
    np.testing.assert_array_equal(other.conf_int(), usual.conf_int())
    if analysis.kind == "poisson":
        theirs = smf.poisson("count ~ x + z", fine).fit(disp=0, cov_type="HC0")
        np.testing.assert_allclose(usual.params, theirs.params, atol=0.2 * theirs.bse.min())
        assert "allow counts to vary more" in usual.summary()


@pytest.mark.parametrize(("analysis", "unit"), [
    (dps.Logistic("y ~ bare"), "replace"), (dps.Logistic("y ~ gap + bare"), "add_remove"),
    (dps.Poisson("count ~ bare"), "replace"),
])  # fmt: skip
def test_a_number_without_edges_gets_even_bins(analysis, unit, rows, tmp_path):
    asked = {"it": analysis, "mean": dps.Mean("bare")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(5), unit=unit)
    assert plan.schema["bare"].bins == 8
    assert "Bins of bare, which declares no edges: [0, 0.125) [0.125, 0.25)" in str(plan)
    plan.save(tmp_path / "plan.json")
    assert dps.Plan.load(tmp_path / "plan.json").digest == plan.digest
    release = dps.release(plan, rows, k=100, rng=0)
    release.save(tmp_path / "release.zip")
    again = dps.load(tmp_path / "release.zip")
    assert again.infer("it") == release.infer("it")
    assert again.infer(analysis).summary() == release.infer("it").summary()
    with pytest.raises(dps.ConditionError, match="declares no edges"):
        again.bound("bare >= 0.125")


def test_declared_edges_win_and_conditions_use_no_others():
    plan = dps.plan(SCHEMA, {"it": dps.Logistic("y ~ x")}, budget=dps.PureDP(1))
    assert plan.schema == SCHEMA
    regression = dps.Logistic("y ~ bare")
    for other in (dps.Proportion("bare >= 0.5"), dps.Marginals(["bare"], 1)):
        with pytest.raises(RequestError, match=r"'other'.*'bare'.*edges"):
            dps.plan(SCHEMA, {"it": regression, "other": other}, budget=dps.PureDP(1))


FOUR = dps.Schema([
    dps.Number("x", -2, 2, points=33, edges=BINS, missing=0), dps.Boolean("u"),
    dps.Category("g", list("abcd")), dps.Boolean("y"),
    dps.Number("count", 0, 9, points=10, edges=[1, 2, 3, 5], missing=0),
])  # fmt: skip
KINDS = [
    (dps.Logistic("y ~ x + C(g)"), "replace"),
    (dps.Logistic("y ~ x + u + C(g)", stages=2), "replace"),
    (dps.Poisson("count ~ x + C(g)"), "add_remove"),
]  # fmt: skip


@pytest.mark.parametrize(("analysis", "unit"), KINDS)
def test_an_empty_level_leaves_the_other_coefficients_known(analysis, unit, rows, seeded_noise):
    plan = dps.plan(FOUR, {"it": analysis}, budget=dps.PureDP(6), unit=unit)
    with _noise_from(seeded_noise(2)):
        found = dps.release(plan, rows, k=100, rng=0).infer("it")
    ends = np.asarray(found.conf_int())
    known = np.array([term != "C(g)[T.d]" for term in found.terms])
    assert np.isfinite(ends[known]).all()
    assert np.isinf(ends[~known]).all()
    assert np.isnan(found.params["C(g)[T.d]"])
    assert any("'g=d'" in note for note in found.notes)
    three = dps.Schema([c for c in SCHEMA if c.name in ("x", "u", "g", "y", "count")])
    plan = dps.plan(three, {"it": analysis}, budget=dps.PureDP(6), unit=unit)
    with _noise_from(seeded_noise(2)):
        wanted = dps.release(plan, rows, k=100, rng=0).infer("it")
    assert np.all(np.abs(found.params[known] - wanted.params) < 3 * np.asarray(wanted.bse))
    np.testing.assert_allclose(found.bse[known], wanted.bse, rtol=0.4)
    effects = found.get_margeff()
    assert np.isfinite(effects.conf_int()).all(axis=1).tolist() == [
        not term.endswith("to d") for term in effects.terms
    ]
    assert found.f_test("C(g)[T.b] = 0, C(g)[T.d] = 0").df_num == 1
    assert found.f_test("C(g)[T.b] = 0, C(g)[T.d] = 0").pvalue == pytest.approx(
        found.f_test("C(g)[T.b] = 0").pvalue, abs=0.01
    )
    assert found.t_test("C(g)[T.d] = 0").pvalue == 1


def test_without_a_baseline_the_differences_of_other_levels_are_known(rows, seeded_noise):
    renamed = rows.assign(g=rows["g"].map({"a": "d", "b": "b", "c": "c"}))
    plan = dps.plan(FOUR, {"it": dps.Logistic("y ~ x + C(g)")}, budget=dps.PureDP(6))
    with _noise_from(seeded_noise(2)):
        found = dps.release(plan, renamed, k=100, rng=0).infer("it")
    assert np.isinf(found.conf_int()[2:]).all()
    assert np.isfinite(found.conf_int()[1]).all()
    difference = found.t_test("C(g)[T.b] - C(g)[T.d]")
    low, high = np.asarray(difference.conf_int())[0]
    assert low < -0.6 < high < 0
    ends = np.asarray(found.get_prediction({"x": 0, "g": ["a", "b"]}).conf_int())
    assert ends[0].tolist() == [0, 1]
    assert np.ptp(ends[1]) < 0.2


def test_few_bins_are_named_before_a_release_and_after():
    """What they hide leaves a steep slope without ends; even rows of a preview do not show it."""
    ages = dps.Number("age", 0, 100, points=101, edges=[30, 60], missing=0)
    schema, odds = dps.Schema([ages, dps.Boolean("ill")]), dps.Logistic("ill ~ age")
    plan = dps.plan(schema, {"odds": odds}, budget=dps.PureDP(1), n=5_000)
    age = np.arange(5_000) % 101
    ill = np.random.default_rng(1).random(5_000) < special.expit((age - 60) / 8)
    result = dps.release(plan, pd.DataFrame({"age": age, "ill": ill}), m=200).infer("odds")
    assert np.isinf(result.conf_int()).any()
    assert "3 bins of age" in result.notes[0]
    assert "3 bins of age" in " ".join(str(plan.preview()).split())


@pytest.mark.parametrize("formula", ["ill ~ x", "ill ~ x + C(g)"])
def test_a_value_beyond_any_that_can_be_fitted_is_rejected_as_the_interval_rejects_it(formula):
    columns = [dps.Number("x", -1, 1, points=11, edges=list(np.arange(-0.9, 1, 0.2)), missing=0)]
    schema = dps.Schema([*columns, dps.Category("g", ["a", "b"]), dps.Boolean("ill")])
    plan = dps.plan(schema, {"odds": dps.Logistic(formula)}, budget=dps.PureDP(5))
    rng = np.random.default_rng(3)
    x, g = rng.integers(-5, 6, 5_000) / 5, rng.choice(["a", "b"], 5_000)
    ill = rng.random(5_000) < special.expit(x)
    result = dps.release(plan, pd.DataFrame({"x": x, "g": g, "ill": ill}), m=200).infer("odds")
    assert np.all(np.isfinite(result.conf_int()))
    for value in (5, 20, 1e6, -1e6):
        assert result.t_test(f"x = {value}").pvalue < 1e-6
        assert result.f_test(f"x = {value}").pvalue < 1e-6
