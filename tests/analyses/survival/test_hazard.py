"""Hazard regression: a binomial model of statsmodels without noise, refusals, bins with noise."""

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
    dps.Number("bare", 0, 1, missing=0),
    dps.Number("gap", 0, 4, points=5, edges=[1, 2, 3, 4], allow_missing=True),
    dps.Category("vote", ["no", "yes"], allow_missing=True),
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
        "arm": arm, "u": u, "age": age, "start": start, "bare": 0.0,
        "gap": np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 5, n)),
        "vote": rng.choice(["no", "yes", None], n),
    })  # fmt: skip


def fitted(formula, rows, budget=None, unit="replace", **options):
    plan = dps.plan(SCHEMA, {"it": dps.Hazard(formula, **options)},
                    budget=budget or dps.PureDP(1e6), unit=unit)  # fmt: skip
    return dps.release(plan, rows, m=50, rng=0).infer("it")


def expanded(rows, half=0.5, entry=False):
    """Events and rows at risk by bin of time and pattern, for a binomial model."""
    bins = lambda times: np.searchsorted(EDGES, times, side="right")  # noqa: E731
    last, event = bins(rows["months"]), rows["status"] == "dead"
    first = bins(rows["start"]) if entry else np.full(len(rows), -1)
    found = []
    keys = [rows["arm"], rows["u"], np.searchsorted([35, 50, 65], rows["age"], side="right")]
    for (arm, u, age), some in rows.assign(last=last, event=event, first=first).groupby(keys):
        for j in range(len(EDGES)):
            here = some["last"] == j
            at_risk = (some["last"] >= j).sum() - half * (here & ~some["event"]).sum()
            if entry and j:
                at_risk -= (some["first"] > j).sum() + half * (some["first"] == j).sum()
            elif entry:
                at_risk -= (some["first"] > 0).sum()
            found.append((j, arm, u, MIDDLE[age], (here & some["event"]).sum(), at_risk))
    return pd.DataFrame(found, columns=["j", "arm", "u", "age", "events", "at_risk"])


def design(table):
    """Dummies of the bins, and u, arm b, arm c and age."""
    x = np.column_stack([table["age"], table["u"], table["arm"] == "b", table["arm"] == "c"])
    return np.column_stack([pd.get_dummies(table["j"]), x]).astype(float)


def binomial(table, columns=slice(None)):
    counts = np.column_stack([table["events"], table["at_risk"] - table["events"]])
    link = sm.families.links.CLogLog()
    return sm.GLM(counts, design(table)[:, columns], family=sm.families.Binomial(link))


FORMULA = "months, status == 'dead' ~ age + u + C(arm)"


@pytest.mark.parametrize(
    ("unit", "half", "entry"),
    [("add_remove", 0, False), ("replace", 0.5, True)],
)
def test_without_noise_it_is_a_binomial_model_of_statsmodels(rows, unit, half, entry, no_noise):
    options = {"ties": None if half else "last", "entry": "start" if entry else None}
    ours = fitted(FORMULA, rows, unit=unit, **options)
    table = expanded(rows, half, entry)
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


def test_joint_tests_without_noise_are_the_score_test_of_statsmodels(rows, no_noise):
    ours, table, size = fitted(FORMULA, rows), expanded(rows), len(EDGES)
    whole, null = binomial(table), binomial(table, slice(size + 2)).fit(tol=1e-14)
    ((statistic,), _, df) = whole.score_test(
        np.append(null.params, [0, 0]), k_constraints=2, observed=False
    )
    found = ours.joint_tests()
    assert found.index.tolist() == ["age", "u", "C(arm)"]
    assert found["df"].tolist() == [1, 1, 2]
    assert found["statistic"]["C(arm)"] == pytest.approx(statistic / df, rel=1e-6)
    assert found["p_value"]["C(arm)"] == pytest.approx(
        stats.f.sf(statistic / df, df, len(rows) - 4), rel=1e-6
    )
    assert ours.t_test("u[T.True] = 0.5").pvalue == pytest.approx(
        ours.f_test("u[T.True] = 0.5").pvalue, rel=0.02
    )


def test_a_bin_without_events_has_no_hazard_and_keeps_the_others(rows, no_noise):
    some = rows.assign(status=np.where(rows["months"].between(6, 11), "alive", rows["status"]))
    ours, table = fitted(FORMULA, some), expanded(some)
    kept = table[table["j"] != 2].assign(j=lambda t: t["j"].where(t["j"] < 2, t["j"] - 1))
    theirs = binomial(kept).fit(tol=1e-14)
    np.testing.assert_allclose(ours.params, theirs.params[7:], rtol=1e-8)
    np.testing.assert_allclose(ours.bse, theirs.bse[7:], rtol=1e-8)
    hazards = np.asarray(ours.baseline()["cumulative_hazard"])
    assert hazards[2] == pytest.approx(hazards[1], rel=1e-12)


def test_survival_ends_before_a_bin_that_is_left_out(rows):
    """And there is none where that is the first: hazards that start later are not cumulative."""
    plain, budget = "months, status == 'dead' ~ u", dps.PureDP(100)
    after = lambda low, some: some[some["months"] > low].assign(  # noqa: E731
        start=lambda t: np.maximum(t["start"], np.where(t["months"] > low, low, 0))
    )
    late = fitted(plain, after(6, rows), budget, entry="start")
    assert late.converged
    assert "months=[0, 3)" in late.summary()
    for call in (late.baseline, lambda: late.predict({"u": True})):
        with pytest.raises(RequestError, match=r"months=.0, 3\).*wider"):
            call()
    early = rows[rows["months"] < 6].assign(start=0)  # leaves, and others enter later
    gap = fitted(plain, pd.concat([early, after(12, rows)]), budget, entry="start")
    assert gap.baseline().index.tolist() == [3, 6]


def noisy_score(events, at_risk, sd=3.0):
    """A treatment in two groups of a few bins."""
    size = 2 * events.size
    return HazardScore(
        np.array([[-0.5], [0.5]]), events, at_risk, int(at_risk[0].sum()),
        noise=sd**2 * np.eye(size),
    )  # fmt: skip


def test_negative_counts_of_events_are_not_clipped():
    """The score is linear in the counts: its mean over the noise is the score of the rows."""
    at_risk = np.linspace([900.0, 900], [500, 450], 12)
    events = np.tile([[2.0, 9]], (12, 1))
    exact, found, rng = noisy_score(events, at_risk), [], np.random.default_rng(5)
    for i in range(100):
        noisy = noisy_score(events + rng.normal(0, 3, events.shape), at_risk)
        clipped = noisy_score(np.maximum(noisy.events, 0), at_risk)
        ends = -np.inf, np.inf  # about one table in a hundred has no estimate
        if i < 20 and noisy.params is not None:
            ends = noisy.interval(np.ones(1), 0.05, sampled=False)
        found.append([float(noisy.score(exact.params)[0]), *ends, clipped.params[0]])
    scores, low, high, clipped = np.array(found).T
    truth = exact.params[0]
    error = np.sqrt(exact.noise_covariance(exact.params)[0, 0])
    assert abs(scores.mean()) < 3 * error / np.sqrt(100)
    assert scores.std() == pytest.approx(error, rel=0.2)
    assert np.sum(((low <= truth) & (truth <= high))[:20]) >= 16  # of 20, with a fixed seed
    assert np.median(clipped) < truth - 0.1  # a planted bug is seen


def test_releases_with_noise_estimate_although_some_counts_are_negative(rows):
    ours = fitted("months, status == 'dead' ~ u", rows, dps.ApproxDP(1, 1e-6))
    assert ours.converged
    assert np.all(np.isfinite(ours.conf_int()))
    assert 0.02 < ours.privacy_share[0] < 0.9
    ratios = ours.hazard_ratios()
    np.testing.assert_allclose(ratios["hazard_ratio"], np.exp(ours.params))
    np.testing.assert_allclose(ratios[["conf_low", "conf_high"]], np.exp(ours.conf_int()))
    assert "no certified interval" in ours.summary()


def test_cells_that_are_smaller_than_the_noise_may_leave_no_estimate(rows):
    ours = fitted(FORMULA, rows.head(300), dps.PureDP(0.1))
    assert not ours.converged
    assert np.isnan(ours.params).all()
    assert np.isinf(ours.conf_int()).all()
    assert "fewer rows than the noise" in ours.summary()


def test_persons_with_several_rows_make_the_error_larger(rows, no_noise):
    one = fitted("months, status == 'dead' ~ u", rows)
    plan = dps.plan(SCHEMA, {"it": dps.Hazard("months, status == 'dead' ~ u")},
                    budget=dps.PureDP(1e6), rows_per_person=3)  # fmt: skip
    several = dps.release(plan, rows, m=50, rng=0).infer("it")
    assert several.params[0] == pytest.approx(one.params[0], rel=1e-9)
    assert several.bse[0] == pytest.approx(one.bse[0] * np.sqrt(3), rel=1e-9)


@pytest.mark.parametrize(("unit", "most"), [("replace", 2), ("add_remove", 1)])
def test_a_row_is_in_one_cell_of_one_table(unit, most, rows):
    """Whatever the number of bins of time. With entry there are two tables."""
    family = dps.Hazard(FORMULA).family(SCHEMA)
    found = family.sensitivity(unit)
    assert (found.l1, found.l2_squared) == (most, most)
    assert family.size == 9 * 2 * 3 * 2 * 4
    both = dps.Hazard(FORMULA, entry="start").family(SCHEMA).sensitivity(unit)
    assert both.l1 == 2 * most


def test_missing_cells_and_conditions(rows, no_noise):
    """Numbers without a value leave the regression, and missing cells are a level."""
    ours = fitted("months, status == 'dead' ~ gap", rows, given="arm != 'c'")
    some = rows[(rows["arm"] != "c") & rows["gap"].notna()]
    plain = fitted("months, status == 'dead' ~ gap", some)
    np.testing.assert_allclose(ours.params, plain.params, rtol=1e-9)


def test_levels_without_rows_leave_the_regression(rows):
    some = rows[rows["arm"] != "b"]
    ours = fitted("months, status == 'dead' ~ u + C(arm)", some, dps.PureDP(5))
    assert np.isnan(ours.params["C(arm)[T.b]"])
    assert np.isfinite(ours.conf_int()[2]).all()
    assert "arm=b" in ours.summary()
    without = ours.get_prediction({"u": True, "arm": "b"})
    assert np.isnan(without.params).all()
    assert np.all(without.conf_int() == [0, 1])


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("months ~ u", "time, event ~"), (3, "time, event ~"), ("months, ~ u", "time, event ~"),
        ("u, status == 'dead' ~ arm", "and 'u' is not"),
        ("months, u ~ bare", "single bin"),
        ("months, status == 'dead' ~ months", "both sides"),
        ("months, status == 'dead' ~ C(status)", "other columns"),
        ("months, status == 'dead' ~ u - 1", "baseline hazard"),
        ("months, status == 'dead' ~ 1", "no regressor"),
        ("months, status == 'dead' ~ nobody", "nobody"),
        ("months, status == 'dead' ~ age*arm + gap*vote + u", "at most 1500"),
    ],
)  # fmt: skip
def test_formulas_that_cannot_be_fitted_are_refused(formula, text):
    with pytest.raises(RequestError, match=text):
        dps.plan(SCHEMA, {"it": dps.Hazard(formula)}, budget=dps.PureDP(1))
