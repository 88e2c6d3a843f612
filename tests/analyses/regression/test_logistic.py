"""Logistic and Poisson regression: statsmodels without noise, refusals, files, predictions."""

import pickle
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import special

import dpstats as dps
from dpstats.errors import RequestError

BINS = [-1.5, -1, -0.5, 0, 0.5, 1, 1.5]
SCHEMA = dps.Schema([
    dps.Number("x", -2, 2, points=33, edges=BINS, missing=0), dps.Boolean("u"),
    dps.Category("g", ["a", "b", "c"]), dps.Number("few", values=[0, 1, 2, 5], missing=0),
    dps.Boolean("y"), dps.Number("count", 0, 9, points=10, edges=[1, 2, 3, 5], missing=0),
    dps.Number("gap", 0, 4, points=5, edges=[1, 2, 3, 4], allow_missing=True),
    dps.Number("bare", 0, 1, missing=0),
    dps.Category("turned", ["yes", "no"]),
])  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    rng, n = np.random.default_rng(1), 6_000
    x = np.rint(np.clip(rng.normal(0.2, 0.7, n), -2, 2) * 8) / 8
    u, g = rng.random(n) < 0.4, rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2])
    predictor = -0.5 + x + 0.7 * u - 0.6 * (g == "b") + 0.5 * (g == "c")
    return pd.DataFrame({
        "x": x, "u": u, "g": g, "few": rng.choice([0, 1, 2, 5], n), "bare": rng.random(n),
        "y": rng.random(n) < 1 / (1 + np.exp(-predictor)),
        "count": np.minimum(rng.poisson(np.exp(0.2 + 0.4 * x)), 9),
        "gap": np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 5, n)),
    })  # fmt: skip


@pytest.fixture
def fitted(inferred, rows):
    """Infers with other bins than those of the density, from these rows or `rows=`."""

    def of(analysis, budget=None, schema=SCHEMA, rows=rows, **options):
        return inferred(schema, rows, analysis, budget, reference=None, **options)

    return of


def of_statsmodels(fit, formula, rows, terms):
    frame = rows.assign(y=rows["y"].astype(float), u=rows["u"].astype(str))
    found = fit(re.sub(r"\bu\b", "C(u)", formula), frame).fit(disp=0)
    names = [term.replace("u[", "C(u)[") for term in terms]
    return found, [list(found.params.index).index(name) for name in names]


def agree(ours, fit, formula, rows, apart, ratio):
    """Whether estimates differ by few standard errors of statsmodels, and errors by a ratio."""
    theirs, order = of_statsmodels(fit, formula, rows, ours.terms)
    errors = np.asarray(theirs.bse)[order]
    distance = np.abs(np.asarray(ours.params) - np.asarray(theirs.params)[order])
    np.testing.assert_array_less(distance, apart * errors)
    np.testing.assert_allclose(ours.bse, errors, rtol=ratio)
    return theirs, order


def poisson(formula, frame):
    """With robust errors."""
    return SimpleNamespace(fit=partial(smf.poisson(formula, frame).fit, cov_type="HC0"))


def check_covariances(ours, theirs, order, off):
    """Covariances and degrees of freedom against those of statsmodels, off in units of errors."""
    found, wanted = ours.cov_params(), theirs.cov_params().to_numpy()[np.ix_(order, order)]
    assert list(found.index) == list(found.columns) == ours.terms
    np.testing.assert_allclose(np.diag(found), np.asarray(ours.bse) ** 2, rtol=1e-9)
    size = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    np.testing.assert_allclose(found / size, wanted / size, atol=off)
    assert (ours.df_model, ours.df_resid) == (theirs.df_model, theirs.df_resid)
    two = np.eye(len(found))[1:3].sum(axis=0)
    assert ours.t_test(two[None]).sd ** 2 == pytest.approx(two @ found.to_numpy() @ two)


@pytest.mark.parametrize(
    ("formula", "unit"), [("y ~ u*C(g)", "add_remove"), ("y ~ few + I(few**2)", "replace")]
)
def test_cells_without_noise_are_statsmodels(formula, unit, rows, no_noise, fitted):
    ours = fitted(dps.Logistic(formula), unit=unit)
    theirs, order = of_statsmodels(smf.logit, formula, rows, ours.terms)
    np.testing.assert_allclose(ours.params, theirs.params.iloc[order], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.bse, theirs.bse.iloc[order], rtol=1e-6)
    np.testing.assert_allclose(ours.pvalues, theirs.pvalues.iloc[order], rtol=0.2, atol=1e-3)
    check_covariances(ours, theirs, order, 1e-6)


def test_two_levels_are_a_response_as_a_boolean_is(rows, no_noise, fitted):
    """The second level counts as 1, as in R; or the one that Treatment does not name."""
    one = rows.assign(turned=np.where(rows["y"], "yes", "no"))
    treated = "C(turned, Treatment('no'))"
    for kind, response, sign, counted in [
        (dps.Logistic, "turned", -1, "no"), (dps.Logistic, treated, 1, "yes"),
        (dps.OLS, "turned", -1, "no"),
    ]:  # fmt: skip
        found, plain = (fitted(kind(f"{name} ~ few"), rows=one) for name in (response, "y"))
        np.testing.assert_allclose(found.params[1], sign * plain.params[1], rtol=1e-5)
        assert found.title.endswith(f", for turned == '{counted}'")


@pytest.mark.parametrize("formula", ["y ~ x + C(g)", "y ~ gap"])
def test_bins_without_noise_contain_statsmodels(formula, rows, no_noise, fitted):
    """What bins hide is in the interval for the table, which has little other error here."""
    ours = fitted(dps.Logistic(formula))
    kept = rows.dropna() if "gap" in formula else rows
    theirs, order = of_statsmodels(smf.logit, formula, kept, ours.terms)
    low, high = np.asarray(ours.conf_int(target="table")).T
    wanted = np.asarray(theirs.params)[order]
    assert np.all((low - 1e-6 <= wanted) & (wanted <= high + 1e-6))
    assert np.all(high - low < 0.8 * 3.92 * np.asarray(theirs.bse)[order] + 1e-6)


def test_a_fitted_density_with_little_noise_is_near_statsmodels(rows):
    """And answers smaller models too."""
    formula, smaller = "y ~ x + u + C(g)", "y ~ x + u"
    plan = dps.plan(SCHEMA, {"it": dps.Logistic(formula)}, budget=dps.PureDP(1e6))
    release = dps.release(plan, rows, m=100, k=10, rng=0)
    small = release.infer(dps.Logistic(smaller))
    agree(small, smf.logit, smaller, rows, 0.5, 0.25)
    with pytest.raises(dps.NotMeasuredError, match="lacks the table of 'x', 'u' and 'y'"):
        release.infer(dps.Logistic("y ~ x*u"))
    ours = release.infer("it")
    theirs, _ = agree(ours, smf.logit, formula, rows, 0.5, 0.25)
    assert np.all((ours.unmeasured > 0) & (ours.unmeasured < 0.4))
    np.testing.assert_allclose(ours.unmeasured, ours.privacy_share, rtol=1e-3)
    at = pd.DataFrame({"x": [0.0, 1.0], "u": [True, False], "g": "b"})
    predicted, prediction = ours.predict(at), ours.get_prediction(at)
    np.testing.assert_allclose(predicted, theirs.predict(at.astype({"u": str})), atol=0.05)
    low, high = np.asarray(prediction.conf_int()).T
    assert np.all((low < predicted) & (predicted < high) & (high < 1))
    assert np.all(np.isinf(ours.conf_int(method="certified")))
    assert prediction.test(predicted[0], term="0").pvalue > 0.99
    for value in (-1, 0, 1, 1.5):
        with pytest.raises(RequestError, match=f"value={value} is impossible.* between 0 and 1"):
            prediction.test(value, term="0")
    effects, wanted = ours.get_margeff(), theirs.get_margeff(dummy=True).summary_frame()
    other = release.infer(dps.Logistic("y ~ x + u + C(g, Treatment('b'))")).get_margeff()
    assert other.terms == ["x", "u: False to True", "g: b to a", "g: b to c"]
    assert small.get_margeff().terms == effects.terms[:2]
    assert other.params["g: b to a"] == pytest.approx(-effects.params["g: a to b"], rel=1e-3)
    assert effects.terms == ["x", "u: False to True", "g: a to b", "g: a to c"]
    np.testing.assert_allclose(sorted(effects.params), sorted(wanted["dy/dx"]), rtol=0.1)
    np.testing.assert_allclose(sorted(effects.bse), sorted(wanted["Std. Err."]), rtol=0.3)


@pytest.mark.parametrize(("formula", "given"), [("few - 1", None), ("few + few:C(g) - 1", "u")])
def test_effects_average_over_rows_whose_regressors_are_zero(formula, given, rows, fitted):
    """As they are without an intercept, where few is 0."""
    result = fitted(dps.Poisson(f"count ~ {formula}", given=given))
    some = rows if given is None else rows.query(given)
    fit = smf.poisson(f"count ~ {formula}", some).fit(disp=0)
    means = [fit.predict(some.assign(few=some["few"] + step)).mean() for step in (-1e-4, 1e-4)]
    wanted = [np.diff(means)[0] / 2e-4]
    if "g" in formula:
        first, *others = (fit.predict(some.assign(g=level)).mean() for level in "abc")
        wanted += [other - first for other in others]
    effects = result.get_margeff()
    np.testing.assert_allclose(sorted(effects.params), sorted(wanted), rtol=0.05, atol=0.01)
    rest = len(some) - len(result.params)
    assert result.intervals.model.df == pytest.approx(rest, rel=0.01)


def test_a_measured_score_with_little_noise_is_the_score_of_statsmodels(rows, fitted):
    """Nothing is left to the fitted density, also for a formula that it fits badly."""
    formula = "y ~ u*x + I(x**2)"
    ours = fitted(dps.Logistic(formula, stages=2))
    theirs, order = agree(ours, smf.logit, formula, rows, 0.1, 0.1)
    check_covariances(ours, theirs, order, 0.1)
    assert np.all(ours.unmeasured < 0.05)
    last, size = np.eye(len(ours.terms))[-2:], len(ours.terms)
    wanted = theirs.wald_test(np.eye(size)[order][-2:], scalar=True).statistic / 2
    assert ours.wald_test(last).statistic == pytest.approx(wanted, rel=0.1)


def test_counts_with_little_noise_are_near_statsmodels(rows, fitted):
    ours = fitted(dps.Poisson("count ~ x + C(g)"))
    agree(ours, poisson, "count ~ x + C(g)", rows, 0.6, 0.4)
    assert ours.t_test("x = 5").pvalue < 1e-6  # where means grow beyond all
    ratios = ours.rate_ratios()
    np.testing.assert_allclose(ratios["rate_ratio"], np.exp(np.asarray(ours.params)))
    assert np.all(ratios["conf_low"] < ratios["rate_ratio"])
    wanted = "odds_ratios are of dps.Logistic, and this is Poisson .*; use rate_ratios"
    with pytest.raises(dps.RequestError, match=wanted):
        ours.odds_ratios()


def test_the_score_of_the_cells_has_the_law_of_the_noise(rows, fitted):
    asked, few = dps.Logistic("y ~ x + C(g)"), {"rows": rows.head(500), "unit": "add_remove"}
    laplace = fitted(asked, dps.PureDP(1), **few)._coefficients.model
    np.testing.assert_allclose(laplace.laplace.T @ laplace.laplace, laplace.noise, rtol=1e-9)
    assert len(laplace.terms) == len(laplace.laplace)
    assert np.all(laplace.terms == 1)  # one noise on every count: nothing is a sum
    normal = fitted(asked, dps.ZCDP(1), **few)._coefficients.model
    assert normal.laplace.size == normal.terms.size == 0


def test_an_outcome_with_one_value_has_no_estimate(rows, no_noise, fitted):
    result = fitted(dps.Logistic("y ~ u + C(g)"), dps.PureDP(5), rows=rows.assign(y=False))
    assert not result.converged
    effects = result.get_margeff()
    assert np.all(np.isinf(effects.conf_int()))
    assert np.all(np.asarray(effects.test(0, term=effects.terms[0]).pvalue) == 1)


def test_coefficients_of_nearly_equal_columns_are_open(seeded_noise, inferred):
    edges = [-2, -1, 0, 1, 2]
    numbers = [dps.Number(name, -4, 4, points=129, edges=edges, missing=0) for name in "xz"]
    rng = np.random.default_rng(3)
    x, off = rng.normal(size=(2, 2_000))
    rows = pd.DataFrame({"x": x, "z": x + 0.03 * off, "y": rng.random(2_000) < 0.5})
    schema, asked = dps.Schema([*numbers, dps.Boolean("y")]), dps.Logistic("y ~ x + z", stages=2)
    found = inferred(schema, rows, asked, dps.PureDP(3), noise_from=seeded_noise(1))
    assert np.all(np.isinf(found.conf_int()[1:]))
    assert np.all(found.pvalues[1:] > 0.05)
    assert any("some intervals have no ends" in note for note in found.notes)


@pytest.mark.parametrize(("analysis", "epsilon", "term", "end", "seed"), [
    (dps.Logistic("y ~ u"), 5, "u[T.True]", 1, 4),
    (dps.Logistic("y ~ x + u + C(g)", stages=2), 5, "u[T.True]", 1, 0),
    (dps.Poisson("count ~ x + u + C(g)", stages=2), 20, "C(g)[T.c]", 0, 1),
])  # fmt: skip
def test_an_effect_without_bound_leaves_its_end_open_and_others_finite(
    analysis, epsilon, term, end, seed, rows, seeded_noise, fitted
):
    """Of a regressor that predicts the outcome, and a level without any count, by these seeds."""
    counts = rows["count"].where(rows["g"] != "c", 0)
    odd = {"rows": rows.assign(y=rows["y"] | rows["u"], count=counts)}
    found = fitted(analysis, dps.PureDP(epsilon), noise_from=seeded_noise(seed), **odd)
    at, ends = found.terms.index(term), np.asarray(found.conf_int())
    assert found.converged
    assert ends[at, end] == (-np.inf, np.inf)[end]
    if analysis.kind == "poisson":
        assert np.isfinite(ends[[found.terms.index(one) for one in ("x", "u[T.True]")]]).all()
    else:
        assert np.isinf(found.odds_ratios()["conf_high"].iloc[at])
        note = any("predicts the outcome without error" in note for note in found.notes)
        assert note or "+" not in analysis.formula


def test_intervals_do_not_depend_on_the_candidates_of_the_rows(rows):
    asked = {"it": dps.Logistic("y ~ x + C(g)", stages=2)}
    held = dps.measure(dps.plan(SCHEMA, asked, budget=dps.PureDP(1000)), rows)
    usual = dps.synthesize(held, k=50, rng=1).infer("it")
    other = dps.synthesize(held, k=50, m=200, rng=2, fit="minimax").infer("it")
    np.testing.assert_array_equal(other.conf_int(), usual.conf_int())


def test_a_number_without_edges_gets_even_bins(rows, tmp_path):
    asked = {"it": dps.Logistic("y ~ gap + bare"), "mean": dps.Mean("bare")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(5), unit="add_remove")
    assert plan.schema["bare"].bins == 8
    assert "Bins of bare, which declares no edges: [0, 0.125) [0.125, 0.25)" in str(plan)
    release = dps.release(plan, rows, m=100, k=10, rng=0)
    release.save(tmp_path / "release.zip")
    again = dps.load(tmp_path / "release.zip")
    assert again.infer("it") == release.infer("it")
    with pytest.raises(dps.ConditionError, match="declares no edges"):
        again.bound("bare >= 0.125")
    asked["mean"] = dps.Proportion("bare >= 0.5")  # nor may a condition use them
    with pytest.raises(RequestError, match=r"'mean'.*'bare'.*edges"):
        dps.plan(SCHEMA, asked, budget=dps.PureDP(1))
    declared = dps.plan(SCHEMA, {"it": dps.Logistic("y ~ x")}, budget=dps.PureDP(1))
    assert declared.schema == SCHEMA


FOUR = dps.Schema([dps.Category("g", list("abcd")) if c.name == "g" else c for c in SCHEMA])


@pytest.mark.parametrize(("analysis", "unit"), [
    (dps.Logistic("y ~ x + C(g)"), "replace"), (dps.Poisson("count ~ x + C(g)"), "add_remove"),
])  # fmt: skip
def test_an_empty_level_leaves_the_others_known(analysis, unit, rows, seeded_noise, fitted):
    options = {"schema": FOUR, "unit": unit, "noise_from": seeded_noise(2)}
    found = fitted(analysis, dps.PureDP(6), **options)
    ends = np.asarray(found.conf_int())
    known = np.array([term != "C(g)[T.d]" for term in found.terms])
    assert np.isfinite(ends[known]).all()
    assert np.isinf(ends[~known]).all()
    assert np.isnan(found.params["C(g)[T.d]"])
    assert any("'g=d'" in note for note in found.notes)
    fit = smf.logit if analysis.kind == "logistic" else poisson
    theirs, order = of_statsmodels(fit, analysis.formula, rows, np.array(found.terms)[known])
    errors = np.asarray(found.bse)[known]
    assert np.all(np.abs(found.params[known] - theirs.params.iloc[order]) < 3 * errors)
    assert np.all(errors < 2 * theirs.bse.iloc[order])
    effects = found.get_margeff()
    finite = np.isfinite(effects.conf_int()).all(axis=1)
    assert finite.tolist() == [not term.endswith("to d") for term in effects.terms]
    joint, one = found.f_test("C(g)[T.b] = 0, C(g)[T.d] = 0"), found.f_test("C(g)[T.b] = 0")
    assert (joint.df_num, joint.pvalue) == (1, pytest.approx(one.pvalue, abs=0.01))
    assert found.t_test("C(g)[T.d] = 0").pvalue == 1


@pytest.mark.parametrize(("formula", "cell", "name", "known"), [
    ("y ~ x + C(g)", "g == 'a'", "'g=a'", ["x"]),
    ("y ~ u*C(g)", "u and g == 'b'", "'u=True, g=b'", ["g: a to c"]),
])  # fmt: skip
def test_cells_without_rows_in_a_subgroup_are_left_out(formula, cell, name, known, rows, fitted):
    """A baseline has no count of its own there, but that of the rows less those of the others."""
    some = rows.query(f"few >= 1 and not ({cell})")
    frame = pd.concat([rows.query("few < 1"), some])
    found = fitted(dps.Logistic(formula, given="few >= 1"), dps.PureDP(20), rows=frame)
    assert any("left out" in note and name in note for note in found.notes)
    effects = found.get_margeff()
    finite = np.isfinite(effects.conf_int()).all(axis=1)
    assert [term for term, kept in zip(effects.terms, finite, strict=True) if kept] == known
    if "x" in formula:
        theirs = smf.logit(formula, some.astype({"y": float})).fit(disp=0)
        contrast = found.t_test("C(g)[T.c] - C(g)[T.b]")
        assert contrast.effect == pytest.approx(theirs.params["C(g)[T.c]"], abs=2 * contrast.sd)
        assert found.params["x"] == pytest.approx(theirs.params["x"], abs=2 * found.bse["x"])


def test_few_bins_are_named_before_a_release_and_after():
    """What they hide leaves a steep slope without ends; even rows of a preview do not show it."""
    ages = dps.Number("age", 0, 100, points=101, edges=[30, 60], missing=0)
    schema, odds = dps.Schema([ages, dps.Boolean("ill")]), dps.Logistic("ill ~ age")
    plan = dps.plan(schema, {"odds": odds}, budget=dps.PureDP(1), n=5_000)
    age = np.arange(5_000) % 101
    ill = np.random.default_rng(1).random(5_000) < special.expit((age - 60) / 8)
    result = dps.release(plan, pd.DataFrame({"age": age, "ill": ill}), m=100).infer("odds")
    assert np.isinf(result.conf_int()).any()
    assert "3 bins of age" in result.notes[0]
    assert pickle.loads(pickle.dumps(result)) == result
    like = pd.DataFrame({"age": [20, 50, 80] * 20, "ill": [False, True, True] * 20})
    for preview in (plan.preview(), plan.preview(like=like)):
        assert "3 bins of age" in " ".join(str(preview).split())


@pytest.mark.parametrize(("formula", "bins"), [("ill ~ x", 11), ("ill ~ x + C(g)", 4)])
def test_no_value_beyond_an_interval_has_a_large_pvalue(formula, bins, inferred):
    """What bins hide grows with a slope, and from some value on the others have no solution."""
    edges = np.linspace(-1.1, 1.1, bins + 1)[1:-1].round(3).tolist()
    columns = [dps.Number("x", -1, 1, points=11, edges=edges, missing=0)]
    schema = dps.Schema([*columns, dps.Category("g", ["a", "b"]), dps.Boolean("ill")])
    rng = np.random.default_rng(3)
    x, g = rng.integers(-5, 6, 5_000) / 5, rng.choice(["a", "b"], 5_000)
    rows = pd.DataFrame({"x": x, "g": g, "ill": rng.random(5_000) < special.expit(x)})
    result = inferred(schema, rows, dps.Logistic(formula), dps.PureDP(5), reference=None)
    low, high = result.conf_int()[1]
    assert np.all(np.isfinite([low, high]))
    for value in (low - 0.01, high + 0.01, 2, 3.5, 5, 8, 12.5, 18.5, -5, 1e6, -1e6):
        assert result.t_test(f"x = {value}").pvalue < 0.05
        assert result.test(value, "larger" if value < low else "smaller", term="x").pvalue < 0.05
    for value in (5, -5, 1e6):
        assert result.f_test(f"x = {value}").pvalue < 0.01
