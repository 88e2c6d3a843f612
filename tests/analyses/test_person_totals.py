"""Persons of several rows: intervals from their totals, and from the bound on the variance."""

import functools
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

import dpstats as dps
from dpstats.errors import BudgetError, DpstatsError, RequestError

ASKED = {
    "share": dps.Proportion("ill"), "share in a group": dps.Proportion("ill", given="g"),
    "mean": dps.Mean("y"), "mean in a group": dps.Mean("y", given="g"),
    "mean where answered": dps.Mean("m"), "difference": dps.Difference("ill", by="g"),
    "gap": dps.MeanDifference("y", by="g"), "ols": dps.OLS("y ~ x + C(c)"),
    "hc1": dps.OLS("y ~ x", cov_type="HC1"), "ols in a group": dps.OLS("y ~ x", given="g"),
    "no intercept": dps.OLS("y ~ x - 1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def released(released_for_persons, persons):
    return functools.partial(released_for_persons, persons.schema, person_totals=True)


@pytest.fixture(scope="module")
def bounded(released_for_persons, persons):
    """Without them: by the bound on the sampling variance."""
    return functools.partial(released_for_persons, persons.schema)


@pytest.fixture(scope="module")
def frame(persons):
    return persons.rows(np.random.default_rng(3), 500, 4)


def clustered(frame, name):
    """Statsmodels' cluster covariance of the parameters, with its own small-sample factor."""
    some = frame[frame["g"]] if "in a group" in name else frame
    some = some[some["m"].notna()] if "answered" in name else some
    one = np.ones(len(some))
    column = "ill" if name.startswith(("share", "difference")) else "m" if "answer" in name else "y"
    y = some[column].to_numpy(float)
    x = some["x"].to_numpy()
    designs = {
        "difference": np.c_[one, ~some["g"]], "gap": np.c_[one, ~some["g"]],
        "ols": np.c_[one, x, some["c"] == "b", some["c"] == "z"], "hc1": np.c_[one, x],
        "ols in a group": np.c_[one, x], "no intercept": x[:, None],
    }  # fmt: skip
    design = designs.get(name, one[:, None]).astype(float)
    groups = {"groups": some["id"].to_numpy()}
    return sm.OLS(y, design).fit(cov_type="cluster", cov_kwds=groups, use_t=True), len(y)


@pytest.mark.parametrize(
    ("k", "balanced", "unit"), [(4, True, "replace"), (5, False, "add_remove")]
)
def test_without_noise_variances_are_those_of_statsmodels(k, balanced, unit, released, persons):
    """With G = n / k persons in the factor G / (G - 1): those of a balanced panel."""
    frame = persons.rows(np.random.default_rng(5), 300, k, balanced=balanced)
    release = released(frame, ASKED, k, unit=unit)
    for name in ASKED:
        fit, n = clustered(frame, name)
        own = len(set(fit.cov_kwds["groups"]))
        ratio = n / (n - k) / (own / (own - 1))
        if balanced and "in a group" not in name and "answered" not in name:
            assert ratio == pytest.approx(1, rel=1e-12)
        wanted = np.diag(fit.cov_params()) * ratio
        found = np.asarray(release.infer(name).sampling_variance)
        if name in ("difference", "gap"):
            found, wanted = found[:1], wanted[1:]
        np.testing.assert_allclose(found, wanted, rtol=1e-8, err_msg=name)


def test_limits_are_those_of_t_with_the_fewest_persons(released, persons):
    k, frame = 4, persons.rows(np.random.default_rng(6), 60, 4, balanced=True)
    release = released(frame, ASKED, k)
    reach = stats.t.ppf(0.975, 59)
    for name in ("mean", "ols", "share"):
        fit, _ = clustered(frame, name)
        result = release.infer(name)
        low, high = np.asarray(result.conf_int()).reshape(-1, 2).T
        assert pickle.loads(pickle.dumps(result)) == result  # after its intervals too
        errors = fit.bse
        if name == "share":  # which has three persons more of either kind
            p, n = fit.params[0], len(frame)
            moved = (n * p + 3 * k) / (n + 6 * k)
            more = k * (moved * (1 - moved) - p * (1 - p)) / (n - 1)
            errors = np.sqrt(errors**2 + more * n / (n - k))
        np.testing.assert_allclose((high - low) / 2, reach * errors, rtol=2e-4, err_msg=name)
        np.testing.assert_allclose((high + low) / 2, fit.params, rtol=1e-4, atol=1e-6)
    risks = frame.groupby("g")["ill"].mean()
    low, high = np.asarray(release.infer("difference").conf_int())[1]
    np.testing.assert_allclose(np.sqrt(low * high), risks[True] / risks[False], rtol=1e-3)
    # The ratio's variance, by the totals of the linearised terms.
    own = frame["g"].map(risks)
    terms = (frame["ill"] - own) / own * np.where(frame["g"], -1, 1)
    totals = (terms / frame.groupby("g")["g"].transform("size")).groupby(frame["id"]).sum()
    error = np.sqrt((totals**2).sum() * 60 / 59 * 239 / 238)
    longer = np.log(high / low) / 2 / (reach * error)
    assert 1 < longer < 1.1  # some thirty persons a group, and three more of either kind


def test_noise_that_hides_the_variance_of_persons_leaves_the_bound(released, bounded, frame):
    for name in ("gap", "share"):
        asked, noisy = {name: ASKED[name]}, {"seed": 0, "budget": dps.PureDP(0.5)}
        totals = released(frame, asked, 4, **noisy).infer(name).sampling_variance
        bound = bounded(frame, asked, 4).infer(name).sampling_variance
        assert totals[0] < 1.5 * bound[0], name
    asked, noisy = {"ols": ASKED["ols in a group"]}, {"seed": 0, "budget": dps.PureDP(60)}
    release = released(frame, asked, 4, **noisy)
    result = release.infer("ols")
    robust = release.infer(dps.OLS("y ~ x", cov_type="HC1", given="g"))
    assert "sampling variances are the bound" in result.summary()
    assert "most of the sampling variance is noise on products" in robust.summary()
    assert robust.sampling_variance[1] > 4 * result.sampling_variance[1]


def test_plans_and_releases_keep_person_totals(tmp_path, released, frame, persons):
    release = released(frame, ASKED, 4, seed=1, budget=dps.ZCDP(50), unit="add_remove")
    release.save(tmp_path / "r.zip")
    again = dps.load(tmp_path / "r.zip")
    for name in ASKED:
        assert again.infer(name) == release.infer(name), name
    assert release.measured()["kind"].tolist().count("products of person totals") > 3
    options = {"budget": dps.PureDP(1), "rows_per_person": 3, "person": "id"}
    plan = dps.plan(persons.schema, ASKED, person_totals=True, **options)
    plan.save(tmp_path / "plan.json")
    assert dps.Plan.load(tmp_path / "plan.json") == plan
    text = " ".join(str(plan).split())
    assert "for the intervals of share, share in a group, mean, mean in a group" in text
    options |= {"person_totals": ["mean"], "shares": dict.fromkeys(ASKED, 1)}
    few = dps.plan(persons.schema, ASKED, **options)
    (of_persons,) = few.strategy.of_persons
    kinds = ["low squared", "low times y high", "high squared"]
    assert of_persons.block.names == [f"person totals of y {kind}" for kind in kinds]
    assert few.cost() == plan.cost() == 1


def test_previews_take_the_rows_of_a_person_to_be_equal(persons):
    asked = {name: ASKED[name] for name in ("mean", "share", "ols")}
    options = {"budget": dps.ZCDP(20_000), "rows_per_person": 4, "person": "id"}
    totals, bound = (
        dps.plan(persons.schema, asked, person_totals=some, **options)
        .preview(n=4_000).widths()["width"].to_numpy() for some in (True, False)
    )  # fmt: skip
    np.testing.assert_allclose(totals, bound, rtol=0.1)


def test_what_has_no_person_totals_is_refused(persons):
    asked = {"mean": dps.Mean("y"), "test": dps.Independence("ill", "g"),
             "ball": dps.OLS("y ~ x", clip_norm=0.5),
             "long": dps.OLS("y ~ x + I(x**2)")}  # fmt: skip
    person, budget = {"person": "id"}, dps.PureDP(1)
    for options, said in [
        ({"rows_per_person": 4}, "name it with person="),
        ({"rows_per_person": 64, **person}, "rows_per_person of at most 63"),
        ({"person_totals": ["men"], **person}, r"\['men'\] \(did you mean 'mean'\?\)"),
        ({"person_totals": "mean", **person}, "must be True, or names of analyses"),
        ({"person_totals": ["test"], **person}, "'test' has no intervals from person"),
        ({"person_totals": ["ball"], **person}, "OLS without clip_norm="),
        ({"person_totals": ["long"], **person}, "products of totals of up to 4 numbers"),
    ]:
        with pytest.raises(RequestError, match=said):
            dps.plan(persons.schema, asked, budget=budget, **{"person_totals": True, **options})
    totals = {"budget": budget, "person_totals": True, **person}
    with pytest.raises(RequestError, match="no analysis of this plan"):
        dps.plan(persons.schema, {"test": asked["test"]}, **totals)
    others = {name: asked[name] for name in ("test", "mean", "long")}
    assert len(dps.plan(persons.schema, others, **totals).strategy.of_persons) == 1


def test_edited_plans_are_refused(tmp_path, persons):
    options = {"rows_per_person": 3, "person": "id", "person_totals": True}
    plan = dps.plan(persons.schema, {"mean": dps.Mean("y")}, budget=dps.PureDP(1), **options)
    plain = plan.to_dict()
    (place,) = [i for i, block in enumerate(plain["blocks"]) if block["role"] == "persons"]
    for change, error in [
        (lambda p: p["blocks"].pop(place), BudgetError),
        (lambda p: p.pop("person_key"), DpstatsError),
        *((lambda p, new=new: p["blocks"][place].update(new), DpstatsError)
          for new in ({"role": "family"}, {"number": None}, {"number": "x"})),
        (lambda p: p.update(rows_per_person=4), BudgetError),
    ]:  # fmt: skip
        edited = json.loads(json.dumps(plain))
        change(edited)
        (tmp_path / "plan.json").write_text(json.dumps(edited))
        with pytest.raises(error):
            dps.Plan.load(tmp_path / "plan.json")


# Without them: the bound on the sampling variance, and what results say.

OF_ROWS = {name: ASKED[name] for name in ("share", "share in a group", "difference", "hc1")} | {
    "means": dps.GroupMeans("y", by="g"), "rates": dps.GroupMeans("ill", by="g"),
    "ols in a group": ASKED["ols in a group"], "logit": dps.Logistic("ill ~ g"),
    "poisson": dps.Poisson("visits ~ g"), "ratio": dps.Ratio("y", "visits"),
    "hazard": dps.Hazard("visits, ill ~ g"), "curve": dps.Survival("visits", "ill"),
}  # fmt: skip


def test_sampling_variances_are_k_times_those_of_independent_rows(frame, bounded):
    """Without noise: as rows of four persons each at most, and as single rows."""
    alone = frame.assign(id=range(len(frame)))
    both = [bounded(some, OF_ROWS, k) for some, k in ((frame, 4), (alone, 1))]
    for name in OF_ROWS:
        of_persons, of_rows = (release.infer(name) for release in both)
        np.testing.assert_allclose(of_persons.params, of_rows.params, rtol=1e-9)
        ratio = np.asarray(of_persons.sampling_variance) / np.asarray(of_rows.sampling_variance)
        np.testing.assert_allclose(ratio, 4, rtol=1e-9, err_msg=name)
        wide, narrow = (np.asarray(r.conf_int()).reshape(-1, 2) for r in (of_persons, of_rows))
        if name == "difference":  # whose interval for rows is exact, and for persons to first order
            wide, narrow = np.log(wide[1:]), np.log(narrow[1:])
        found = np.diff(wide) / np.diff(narrow)
        assert np.all((found > 1.85) & (found < 2.15)), (name, found)
        same = [np.asarray(r.conf_int(method="certified")) for r in (of_persons, of_rows)]
        np.testing.assert_allclose(*same, atol=2e-3)  # noise of another scale, which is hardly any


def test_degrees_of_freedom_are_those_of_the_fewest_persons(bounded, persons):
    """Without noise: ten persons of four rows each."""
    frame = persons.rows(np.random.default_rng(3), 10, 4, balanced=True)
    asked = {name: OF_ROWS[name] for name in ("hc1", "means", "logit", "poisson")}
    asked |= {"line": dps.OLS("y ~ x"), "mean": dps.Mean("y")}
    release = bounded(frame, asked, 4)
    sizes = frame.groupby("g").size().to_numpy()
    for name, df in {"hc1": 38 / 4, "line": 38 / 4, "mean": 9, "means": sizes / 4 - 1}.items():
        result = release.infer(name)
        reach = np.diff(np.reshape(result.conf_int(), (-1, 2))).ravel() / 2
        wanted = stats.t.ppf(0.975, df) * np.ravel(result.bse)
        np.testing.assert_allclose(reach, wanted, rtol=1e-3, err_msg=name)
    v = np.asarray(release.infer("means").sampling_variance)
    welch = v.sum() ** 2 / np.sum(v**2 / (sizes / 4 - 1))
    assert release.infer("means").anova().df_denom == pytest.approx(welch, rel=1e-3)
    for name, df in {"logit": 8, "poisson": 8, "hc1": 38 / 4, "line": 38 / 4}.items():
        found = release.infer(name)
        test = found.f_test(f"{found.terms[1]} = 1")
        assert (test.df_num, test.df_denom) == (1, pytest.approx(df, rel=1e-6)), name
        assert test.pvalue == pytest.approx(stats.f.sf(test.statistic, 1, df), rel=1e-3), name


@pytest.mark.parametrize(("ill", "alpha"), [(None, 0.05), (0, 1e-5), (7, 0.05)])
def test_limits_of_a_share_are_the_exact_ones_of_a_count_of_persons(ill, alpha, bounded, frame):
    """The tails of the binomial count of n / k persons and of a uniform, here without noise."""
    k, n = 4, len(frame) // 4 * 4 + 3  # whose quarter is not whole
    some = pd.concat([frame, frame.assign(id=1_000)])[:n].assign(id=np.arange(n) // k)
    some["ill"] = some["ill"] if ill is None else np.arange(n) < ill
    asked = {"share": dps.Proportion("ill"), "table": dps.Marginals(["ill", "g"])}
    release = bounded(some, asked, k)
    persons, unit = n // k, n / (n // k)
    for name, term, held in (("share", 0, some["ill"]), ("table", 3, some["ill"] & some["g"])):
        result = release.infer(name)
        at = held.sum() / unit + result.intervals.answers.uniforms[term] + 0.5
        below = int(np.floor(at))
        ends = np.asarray(result.conf_int(alpha=alpha)).reshape(-1, 2)[term]
        wide = np.reshape(result.conf_int(alpha=alpha, simultaneous=True), (-1, 2))[term]
        assert wide[0] <= ends[0] <= ends[1] <= wide[1]
        for end, level in zip(ends, (1 - alpha / 2, alpha / 2), strict=True):
            law = stats.binom(persons, end)
            tail = law.cdf(below - 1) + law.pmf(below) * (at - below)
            assert not 0 < end < 1 or tail == pytest.approx(level, rel=1e-3)
    # cells of persons need not be multinomial: jointly by Bonferroni's inequality
    wide, each = result.conf_int(alpha=alpha, simultaneous=True), result.conf_int(alpha=alpha / 4)
    np.testing.assert_allclose(wide, each, rtol=1e-9)


def test_persons_with_fewer_rows_do_not_make_a_certain_share(bounded, frame):
    """A number of rows that is no multiple of k leaves no whole number of persons in its set."""
    k, rows = 5, frame[:499].assign(id=np.arange(499) // 5, ill=True, visits=0.0)
    asked = {"table": dps.Marginals(["ill"], 1), "band": dps.Quantile("visits", 0.5)}
    release = bounded(rows, asked, k, unit="add_remove", budget=dps.PureDP(100_000))
    table = np.asarray(release.infer("table").conf_int()).reshape(-1, 2)
    for low in (table[-1][0], release.infer("band").distribution()["low"][0]):
        assert 0.93 < low < 0.9999  # of 100 of 100 persons


def test_limits_of_effects_allow_for_rows_that_are_independent(released_for_persons):
    """The law at the bound says that statistics so small do not happen."""
    k, n, p0, shares = 6, 3_000, np.array([0.4, 0.35, 0.25]), [0.405, 0.345, 0.25]
    truth = np.sqrt(np.sum((shares - p0) ** 2 / p0))
    schema = dps.Schema([dps.Category("w", ["a", "b", "c"]), dps.Boolean("z")])
    asked = {"w": dps.GoodnessOfFit("w", p0), "v": dps.Independence("w", "z")}
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"w": rng.choice(["a", "b", "c"], n, p=shares), "id": np.arange(n) // k})
    release = released_for_persons(
        schema, rows.assign(z=rng.random(n) < 0.5), asked, k, seed=0, budget=dps.PureDP(500)
    )
    for name in asked:
        low, high = release.infer(name).conf_int()
        # half the largest direction, whatever the statistic: 1.96 sqrt(k / n)
        assert low <= release.infer(name).effect < high
        assert high > 1.5 * np.sqrt(k / n) > truth


def test_what_is_read_off_counts_is_that_of_a_release_of_persons(bounded, frame):
    """Rows that are alike, four of each person, say what a row of each person does."""
    fit = dps.GoodnessOfFit("g", {False: 0.5, True: 0.5})
    asked = {"fit": fit, "median": dps.Quantile("visits", 0.5, given="ill")}
    one, many = frame.assign(id=range(len(frame))), {"unit": "add_remove"}
    four = one.loc[one.index.repeat(4)]
    both = [bounded(some, asked, k, budget=dps.PureDP(50_000 * k), **many)
            for some, k in ((one, 1), (four, 4))]  # fmt: skip
    single, alike = (release.infer("median") for release in both)
    np.testing.assert_array_equal(single.conf_int(), alike.conf_int())
    found, wanted = alike.distribution(), single.distribution()
    for end, atol in (("low", 2.5 / len(frame)), ("high", 2.5 / len(frame)), ("band_low", 0.01)):
        np.testing.assert_allclose(found[end], wanted[end], atol=atol)
    single, alike = (release.infer("fit") for release in both)
    np.testing.assert_allclose(single.pvalue, alike.pvalue, atol=0.03)
    np.testing.assert_allclose(single.residuals, alike.residuals, atol=0.05)
    (low, high), (own_low, own_high) = single.conf_int(), alike.conf_int()
    assert abs(low - own_low) < 0.03
    assert high - 0.01 < own_high < high + 0.06  # it allows for rows that are not alike
    for name in asked:
        text = " ".join(both[1].infer(name).summary().split())
        assert "the sampling variance is taken as 4 times" in text


def test_other_analyses_say_that_they_do_not_allow_for_it(frame, bounded):
    asked = {"pca": dps.PCA(["x", "y"]), "huber": dps.Huber("y ~ 1", 1, {"Intercept": (-1, 3, 5)})}
    release = bounded(frame, asked, 4)
    for name in asked:
        text = " ".join(release.infer(name).summary().split())
        assert "A person may have up to 4 rows, which are not independent" in text, name
