"""Hazard regression: a binomial model of statsmodels without noise, bins with noise."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

import dpstats as dps
from dpstats.analyses.survival.hazard import HazardScore
from dpstats.errors import RequestError

EDGES = [3, 6, 12, 18, 24, 30, 36, 48]
SCHEMA = dps.Schema([
    dps.Number("months", 0, 60, points=61, edges=EDGES, missing=0),
    dps.Category("status", ["alive", "dead"]), dps.Category("arm", ["a", "b", "c"]),
    dps.Boolean("u"), dps.Number("age", 20, 80, points=61, edges=[35, 50, 65], missing=20),
    dps.Number("start", 0, 60, points=61, edges=EDGES, missing=0),
    dps.Number("gap", 0, 4, points=5, edges=[1, 2, 3, 4], allow_missing=True),
])  # fmt: skip
MIDDLE = {0: 27, 1: 42, 2: 57, 3: 72.5}  # of the bins of age


@pytest.fixture(scope="module")
def rows():
    rng, n = np.random.default_rng(3), 1_500
    arm, u, age = rng.choice(list("abc"), n), rng.random(n) < 0.4, rng.integers(20, 81, n)
    rate = 0.03 * np.exp(0.02 * (age - 50) + 0.5 * u - 0.4 * (arm == "b"))
    time, end = rng.exponential(1 / rate), rng.exponential(60, n)
    months = np.floor(np.minimum(np.minimum(time, end), 60))
    start = np.where(rng.random(n) < 0.3, np.floor(months * rng.random(n)), 0)
    return pd.DataFrame({
        "months": months, "status": np.where(time <= np.minimum(end, 60), "dead", "alive"),
        "arm": arm, "u": u, "age": age, "start": start,
        "gap": np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 5, n)),
    })  # fmt: skip


PLAIN, FORMULA = "months, status == 'dead' ~ u", "months, status == 'dead' ~ age + u + C(arm)"


@pytest.fixture
def fitted(inferred, rows):
    def of(formula, budget=None, rows=rows, unit="replace", **options):
        return inferred(SCHEMA, rows, dps.Hazard(formula, **options), budget, unit=unit)

    return of


def expanded(rows, half=0.5, entry=False):
    """Events and rows at risk by bin of time and pattern, for a binomial model."""
    found, bins = [], lambda times: np.searchsorted(EDGES, times, side="right")
    used = rows.assign(last=bins(rows["months"]), event=rows["status"] == "dead")
    first = bins(rows["start"])
    used["first"] = np.where(entry & (first > 0), first, -1)
    keys = ["arm", "u", np.searchsorted([35, 50, 65], rows["age"], side="right")]
    for (arm, u, age), some in used.groupby(keys):
        for j in range(len(EDGES)):
            here = some["last"] == j
            at_risk = (some["last"] >= j).sum() - half * (here & ~some["event"]).sum()
            at_risk -= (some["first"] > j).sum() + half * (some["first"] == j).sum()
            found.append((j, arm, u, MIDDLE[age], (here & some["event"]).sum(), at_risk))
    return pd.DataFrame(found, columns=["j", "arm", "u", "age", "events", "at_risk"])


def binomial(table, columns=slice(None)):
    """Of dummies of the bins, and of age, u, arm b and arm c."""
    x = np.column_stack([table["age"], table["u"], table["arm"] == "b", table["arm"] == "c"])
    design = np.column_stack([pd.get_dummies(table["j"]), x]).astype(float)[:, columns]
    counts = np.column_stack([table["events"], table["at_risk"] - table["events"]])
    return sm.GLM(counts, design, family=sm.families.Binomial(sm.families.links.CLogLog()))


@pytest.mark.parametrize(
    ("unit", "half", "entry"), [("add_remove", 0, False), ("replace", 0.5, True)]
)
def test_without_noise_it_is_a_binomial_model(rows, unit, half, entry, no_noise, fitted):
    options = {"ties": None if half else "last", "entry": "start" if entry else None}
    ours, table = fitted(FORMULA, unit=unit, **options), expanded(rows, half, entry)
    table = table[(table["at_risk"] > 0) | (table["events"] > 0)]
    theirs = binomial(table).fit(tol=1e-14, maxiter=100)
    size = len(EDGES)
    assert ours.terms == ["age", "u[T.True]", "C(arm)[T.b]", "C(arm)[T.c]"]
    np.testing.assert_allclose(ours.params, theirs.params[size:], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.bse, theirs.bse[size:], rtol=1e-8)
    covariance = theirs.cov_params()
    np.testing.assert_allclose(ours.cov_params(), covariance[size:, size:], rtol=1e-6, atol=1e-10)
    # Survival at a point: hazards add up over the bins.
    at = np.array([50, 1, 0, 1])
    hazards = np.exp(theirs.params[:size] + at @ theirs.params[size:])
    survival = ours.get_prediction({"age": 50, "u": True, "arm": "c"})
    np.testing.assert_allclose(survival.params, np.exp(-np.cumsum(hazards)), rtol=1e-8)
    steps = np.hstack([np.eye(size), np.tile(at, (size, 1))]) * hazards[:, np.newaxis]
    errors = np.cumsum(steps, axis=0) @ covariance @ np.cumsum(steps, axis=0).T
    np.testing.assert_allclose(survival.bse, np.sqrt(np.diag(errors)) * survival.params, rtol=1e-6)
    logs = np.log(np.cumsum(hazards))
    z = 1.959964 * np.sqrt(np.diag(errors)) / np.cumsum(hazards)
    ends = np.exp(-np.exp(np.stack([logs + z, logs - z], axis=1)))
    np.testing.assert_allclose(survival.conf_int(), ends, rtol=1e-6)
    wanted = np.cumsum(np.exp(theirs.params[:size]))
    np.testing.assert_allclose(ours.baseline()["cumulative_hazard"], wanted, rtol=1e-7)


def test_joint_tests_without_noise_are_the_score_test_of_statsmodels(rows, no_noise, fitted):
    ours, table, size = fitted(FORMULA), expanded(rows), len(EDGES)
    whole, null = binomial(table), binomial(table, slice(size + 2)).fit(tol=1e-14)
    ((statistic,), _, df) = whole.score_test(
        np.append(null.params, [0, 0]), k_constraints=2, observed=False
    )
    found = ours.joint_tests()
    assert found.index.tolist() == ["age", "u", "C(arm)"]
    assert found["df"].tolist() == [1, 1, 2]
    assert found["statistic"]["C(arm)"] == pytest.approx(statistic / df, rel=1e-6)
    pvalue = stats.f.sf(statistic / df, df, len(rows) - 4)
    assert found["p_value"]["C(arm)"] == pytest.approx(pvalue, rel=1e-6)
    one, joint = ours.t_test("u[T.True] = 0.5"), ours.f_test("u[T.True] = 0.5")
    assert one.pvalue == pytest.approx(joint.pvalue, rel=0.02)


def test_rows_without_a_value_and_levels_without_rows_leave(rows, no_noise, fitted):
    some = rows[(rows["arm"] != "c") & rows["gap"].notna()]
    asked = "months, status == 'dead' ~ gap"
    ours, plain = fitted(asked, given="arm != 'c'"), fitted(asked, rows=some)
    np.testing.assert_allclose(ours.params, plain.params, rtol=1e-9)
    two = fitted(f"{PLAIN} + C(arm)", dps.PureDP(5), rows[rows["arm"] != "b"])
    assert np.isnan(two.params["C(arm)[T.b]"])
    assert np.isfinite(two.conf_int()[2]).all()
    without = two.get_prediction({"u": True, "arm": "b"})
    assert np.isnan(without.params).all()
    assert np.all(without.conf_int() == [0, 1])


def test_a_bin_without_events_has_no_hazard_and_keeps_the_others(rows, no_noise, fitted):
    some = rows.assign(status=np.where(rows["months"].between(6, 11), "alive", rows["status"]))
    ours, table = fitted(FORMULA, rows=some), expanded(some)
    kept = table[table["j"] != 2].assign(j=lambda t: t["j"].where(t["j"] < 2, t["j"] - 1))
    theirs = binomial(kept).fit(tol=1e-14)
    np.testing.assert_allclose(ours.params, theirs.params[7:], rtol=1e-8)
    np.testing.assert_allclose(ours.bse, theirs.bse[7:], rtol=1e-8)
    hazards = np.asarray(ours.baseline()["cumulative_hazard"])
    assert hazards[2] == pytest.approx(hazards[1], rel=1e-12)


def test_survival_ends_before_a_bin_that_is_left_out(rows, fitted):
    """And there is none where that is the first: hazards that start later are not cumulative."""

    def after(low):
        some = rows[rows["months"] > low]
        return some.assign(start=np.maximum(some["start"], low))

    budget = dps.PureDP(100)
    late = fitted(PLAIN, budget, after(6), entry="start")
    assert late.converged
    assert "months=[0, 3)" in late.summary()
    for call in (late.baseline, lambda: late.predict({"u": True})):
        with pytest.raises(RequestError, match=r"months=.0, 3\).*wider"):
            call()
    early = rows[rows["months"] < 6].assign(start=0)  # leaves, and others enter later
    gap = fitted(PLAIN, budget, pd.concat([early, after(12)]), entry="start")
    assert gap.baseline().index.tolist() == [3, 6]


def test_negative_counts_of_events_are_not_clipped():
    """The score is linear in the counts: its mean over the noise is the score of the rows."""
    at_risk, rng = np.linspace([900.0, 900], [500, 450], 12), np.random.default_rng(5)
    events, x, noise = np.tile([[2.0, 9]], (12, 1)), np.array([[-0.5], [0.5]]), 9 * np.eye(48)
    exact = HazardScore(x, events, at_risk, 1_800, noise=noise)
    noisy = [HazardScore(x, events + 3 * rng.standard_normal((12, 2)), at_risk, 1_800, noise=noise)
             for _ in range(100)]  # fmt: skip
    below = [one for one in noisy if one.events.min() < 0]
    assert len(below) > 20
    for one in below:
        fit = one._fit(exact.params)
        by_bin = (fit.weights * one.events - fit.hazards * one.at_risk).sum(axis=1)
        np.testing.assert_allclose(by_bin, 0, atol=1e-9)  # and so is that of the baseline
    scores = np.array([one.score(exact.params)[0] for one in noisy])
    error = np.sqrt(exact.noise_covariance(exact.params)[0, 0])
    assert abs(scores.mean()) < 3 * error / np.sqrt(100)
    assert scores.std() == pytest.approx(error, rel=0.2)


def test_releases_with_noise_estimate_although_some_counts_are_negative(rows, fitted):
    ours = fitted(PLAIN, dps.ApproxDP(1, 1e-6))
    assert ours.converged
    assert np.all(np.isfinite([ours.conf_int(), ours.conf_int(target="table")]))
    assert 0.02 < ours.privacy_share[0] < 0.9
    ratios = ours.hazard_ratios()
    np.testing.assert_allclose(ratios["hazard_ratio"], np.exp(ours.params))
    np.testing.assert_allclose(ratios[["conf_low", "conf_high"]], np.exp(ours.conf_int()))
    few = fitted(FORMULA, dps.PureDP(0.1), rows.head(300))  # cells smaller than the noise
    assert not few.converged
    assert np.isnan(few.params).all()
    assert np.isinf(few.conf_int()).all()
