"""Intervals from person totals: statsmodels' cluster covariance, notes and fallbacks."""

import functools
import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

import dpstats as dps
from dpstats.errors import BudgetError, DpstatsError, RequestError

ASKED = {
    "share": dps.Proportion("ill"),
    "share in a group": dps.Proportion("ill", given="g"),
    "mean": dps.Mean("y"),
    "mean in a group": dps.Mean("y", given="g"),
    "mean where answered": dps.Mean("m"),
    "difference": dps.Difference("ill", by="g"),
    "gap": dps.MeanDifference("y", by="g"),
    "ols": dps.OLS("y ~ x + C(c)"),
    "hc1": dps.OLS("y ~ x", cov_type="HC1"),
    "ols in a group": dps.OLS("y ~ x", given="g"),
    "no intercept": dps.OLS("y ~ x - 1"),
}


@pytest.fixture(scope="module")
def schema(persons):
    return persons.schema


@pytest.fixture(scope="module")
def released(released_for_persons, persons):
    return functools.partial(released_for_persons, persons.schema, person_totals=True)


@pytest.fixture(scope="module")
def panel(persons):
    return persons.rows(np.random.default_rng(10), 300, 4)


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
        low, high = np.asarray(release.infer(name).conf_int()).reshape(-1, 2).T
        errors = fit.bse
        if name == "share":  # which has three persons more of either kind
            p, n = fit.params[0], len(frame)
            moved = (n * p + 3 * k) / (n + 6 * k)
            more = k * (moved * (1 - moved) - p * (1 - p)) / (n - 1)
            errors = np.sqrt(errors**2 + more * n / (n - k))
        np.testing.assert_allclose((high - low) / 2, reach * errors, rtol=2e-4, err_msg=name)
        np.testing.assert_allclose((high + low) / 2, fit.params, rtol=1e-4, atol=1e-6)
    difference = release.infer("difference")
    counts = frame.groupby("g")["ill"].mean()
    low, high = np.asarray(difference.conf_int())[1]
    np.testing.assert_allclose(np.sqrt(low * high), counts[True] / counts[False], rtol=1e-3)
    # The ratio's variance, by the totals of the linearised terms.
    terms = np.where(frame["g"], -(frame["ill"] - counts[True]) / counts[True],
                     (frame["ill"] - counts[False]) / counts[False])  # fmt: skip
    terms /= frame.groupby("g")["g"].transform("size")
    totals = pd.Series(terms).groupby(frame["id"]).sum()
    n, g = len(frame), 60
    error = np.sqrt((totals**2).sum() * g / (g - 1) * (n - 1) / (n - 2))
    longer = np.log(high / low) / 2 / (reach * error)
    assert 1 < longer < 1.1  # some thirty persons a group, and three more of either kind


def test_noise_that_hides_the_variance_of_persons_leaves_the_bound(released, panel):
    for name in ("gap", "share"):
        asked, noisy = {name: ASKED[name]}, {"seed": 0, "budget": dps.PureDP(0.5)}
        totals = released(panel, asked, 4, **noisy).infer(name).sampling_variance
        bound = released(panel, asked, 4, person_totals=False).infer(name).sampling_variance
        assert totals[0] < 1.5 * bound[0], name
    asked, noisy = {"ols": ASKED["ols in a group"]}, {"seed": 0, "budget": dps.PureDP(60)}
    release = released(panel, asked, 4, **noisy)
    result, robust = (
        release.infer("ols"),
        release.infer(dps.OLS("y ~ x", cov_type="HC1", given="g")),
    )
    assert "sampling variances are the bound" in result.summary()
    assert "most of the sampling variance is noise on products" in robust.summary()
    assert robust.sampling_variance[1] > 4 * result.sampling_variance[1]


def test_plans_and_releases_keep_person_totals(tmp_path, released, panel, schema):
    release = released(panel, ASKED, 4, seed=1, budget=dps.ZCDP(50), unit="add_remove")
    release.save(tmp_path / "r.zip")
    again = dps.load(tmp_path / "r.zip")
    for name in ASKED:
        assert again.infer(name) == release.infer(name), name
    assert release.measured()["kind"].tolist().count("products of person totals") > 3
    options = {"budget": dps.PureDP(1), "rows_per_person": 3, "person": "id"}
    plan = dps.plan(schema, ASKED, person_totals=True, **options)
    plan.save(tmp_path / "plan.json")
    assert dps.Plan.load(tmp_path / "plan.json") == plan
    text = " ".join(str(plan).split())
    assert "for the intervals of share, share in a group, mean, mean in a group" in text
    few = dps.plan(schema, ASKED, person_totals=["mean"], shares=dict.fromkeys(ASKED, 1), **options)
    (of_persons,) = few.strategy.of_persons
    kinds = ["low squared", "low times y high", "high squared"]
    assert of_persons.block.names == [f"person totals of y {kind}" for kind in kinds]
    assert few.cost() == plan.cost() == 1


def test_previews_take_the_rows_of_a_person_to_be_equal(schema):
    asked = {name: ASKED[name] for name in ("mean", "share", "ols")}
    options = {"budget": dps.ZCDP(20_000), "rows_per_person": 4, "person": "id"}
    totals, bound = (
        dps.plan(schema, asked, person_totals=some, **options)
        .preview(n=4_000).widths()["width"].to_numpy() for some in (True, False)
    )  # fmt: skip
    np.testing.assert_allclose(totals, bound, rtol=0.1)


def test_what_has_no_person_totals_is_refused(schema):
    asked = {"mean": dps.Mean("y"), "test": dps.Independence("ill", "g"),
             "ball": dps.OLS("y ~ x", clip_norm=0.5),
             "long": dps.OLS("y ~ x + I(x**2)")}  # fmt: skip
    person, budget = {"person": "id"}, dps.PureDP(1)
    for options, said in [
        ({"rows_per_person": 4}, "name it with person="),
        ({"rows_per_person": 64, **person}, "rows_per_person of at most 63"),
        ({"person_totals": ["men"], **person}, r"\['men'\] \(did you mean 'mean'\?\)"),
        ({"person_totals": "mean", **person}, "must be True, or names of analyses"),
        ({"person_totals": [], **person}, "must be True, or names of analyses"),
        ({"person_totals": ["test"], **person}, "'test' has no intervals from person"),
        ({"person_totals": ["ball"], **person}, "OLS without clip_norm="),
        ({"person_totals": ["long"], **person}, "products of totals of up to 4 numbers"),
    ]:
        with pytest.raises(RequestError, match=said):
            dps.plan(schema, asked, budget=budget, **{"person_totals": True, **options})
    totals = {"budget": budget, "person_totals": True, **person}
    with pytest.raises(RequestError, match="no analysis of this plan"):
        dps.plan(schema, {"test": asked["test"]}, **totals)
    others = {name: asked[name] for name in ("test", "mean", "long")}
    assert len(dps.plan(schema, others, **totals).strategy.of_persons) == 1


def test_edited_plans_are_refused(tmp_path, schema):
    plan = dps.plan(schema, {"mean": dps.Mean("y")}, budget=dps.PureDP(1), rows_per_person=3,
                    person="id", person_totals=True)  # fmt: skip
    plain = plan.to_dict()
    (place,) = [i for i, block in enumerate(plain["blocks"]) if block["role"] == "persons"]
    for change, error in [
        (lambda p: p["blocks"].pop(place), BudgetError),
        (lambda p: p["blocks"][place].update(role="family"), DpstatsError),
        (lambda p: p["blocks"][place].update(number=None), DpstatsError),
        (lambda p: p.pop("person_key"), DpstatsError),
        (lambda p: p["blocks"][place].update(number="x"), DpstatsError),
        (lambda p: p.update(rows_per_person=4), BudgetError),
    ]:
        edited = json.loads(json.dumps(plain))
        change(edited)
        (tmp_path / "plan.json").write_text(json.dumps(edited))
        with pytest.raises(error):
            dps.Plan.load(tmp_path / "plan.json")
