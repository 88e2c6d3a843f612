"""Survival curves: without noise those of R and lifelines; what noise, groups and rules change."""

import itertools
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.survival.curves import survival_in_box
from dpstats.privacy.noise import _noise_from

DATA = Path(__file__).parents[2] / "data"
EDGES = range(100, 1000, 100)
SCHEMA = dps.Schema([
    dps.Number("days", 0, 1000, edges=EDGES, missing=0),
    dps.Category("status", ["censored", "relapse", "death"]),
    dps.Category("arm", ["a", "b", "c"]),
    dps.Category("sex", ["f", "m"]),
    dps.Number("entry", 0, 1000, edges=EDGES, missing=0),
])  # fmt: skip
EVENT = "status != 'censored'"
HALF = dps.Survival("days", EVENT, by="arm")
KINDS = ("status == 'relapse'", "status == 'death'")


@pytest.fixture(scope="module")
def rows():
    frame = pd.read_csv(DATA / "follow_up.csv")
    days, entry = frame.pop("bin") * 100 + 50, frame.pop("entry") * 100 + 50
    return frame.assign(days=days, entry=entry)


@pytest.fixture(scope="module")
def figures():
    return json.loads((DATA / "follow_up.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def without_noise(rows, silent_noise):
    asked = {
        "whole": dps.Survival("days", EVENT, ties="last"),
        "arms": dps.Survival("days", EVENT, by=["arm", "sex"], ties="last"),
        "kinds": dps.Survival("days", KINDS, ties="last"),
        "late": dps.Survival("days", EVENT, entry="entry", ties="last"),
        "alone": dps.Survival("days", EVENT, by="arm", ties="last"), "half": HALF,
    }  # fmt: skip
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(10**6), n=len(rows))
    with _noise_from(silent_noise):
        return dps.release(plan, rows, m=60, k=10, rng=0)


def test_without_noise_it_is_that_of_r_and_lifelines(without_noise, figures):
    result = without_noise.infer("whole")
    np.testing.assert_allclose(result.params, figures["survival"], atol=1e-8)
    np.testing.assert_allclose(np.sqrt(result.sampling_variance), figures["greenwood"], atol=1e-8)
    hazard = result.cumulative_hazard()
    np.testing.assert_allclose(hazard.params, figures["cumulative_hazard"], atol=1e-8)
    restricted, known = result.restricted_mean(700), figures["restricted_mean"]
    found = [float(restricted), np.sqrt(restricted.sampling_variance[0])]
    np.testing.assert_allclose(found, known, rtol=1e-8)
    late = without_noise.infer("late")  # at risk from the bin after their entry
    np.testing.assert_allclose(late.params, figures["late_entry"], atol=1e-8)
    kinds = without_noise.infer("kinds")
    incidences = [*figures["relapse"], *figures["death"]]
    np.testing.assert_allclose(kinds.params, incidences, atol=1e-8)
    errors = [*figures["relapse_se"], *figures["death_se"]]
    np.testing.assert_allclose(np.sqrt(kinds.sampling_variance), errors, atol=1e-8)


def test_log_rank_tests_are_those_of_r_and_lifelines(figures, without_noise):
    statistic, *counts = figures["log_rank"]
    test = without_noise.infer("alone").logrank()
    assert test.statistic == pytest.approx(statistic, rel=1e-8)
    assert test.pvalue == pytest.approx(stats.chi2.sf(statistic, 2), rel=1e-3)  # SciPy 1.12
    np.testing.assert_allclose([*test.observed, *test.expected], counts, rtol=1e-8)
    strata = without_noise.infer("arms").logrank(strata="sex")
    assert strata.statistic == pytest.approx(figures["stratified"][0], rel=1e-8)
    assert strata.df == 2


def estimate(events, censored, half):
    """(T,) the curve bin by bin, with a share of the censored of each bin not at risk."""
    left, curve, survives = events + censored, [], 1.0
    for j, (died, gone) in enumerate(zip(events, censored, strict=True)):
        survives *= 1 - died / max(left[j:].sum() - half * gone, 1e-9)
        curve.append(survives)
    return np.array(curve)


def test_half_of_the_censored_are_at_risk_by_default(rows, without_noise):
    result, own = without_noise.infer("half"), rows[rows["arm"] == "a"]
    bins, died = (own["days"] // 100).to_numpy(), (own["status"] != "censored").to_numpy()
    events, every = (np.bincount(x, minlength=10) for x in (bins[died], bins))
    used = result.curves[0].bins
    assert used >= 8
    expected = estimate(events, every - events, 0.5)[:used]
    np.testing.assert_allclose(result.params[:used], expected, atol=1e-9)


@pytest.mark.parametrize("half", [0.0, 0.5])
def test_corners_of_boxes_of_partial_sums_are_extreme(half):
    """Eq. box-of-curve, by enumeration of all tables in a box."""
    steps = [np.array(x) for x in itertools.product(range(3), repeat=3)]
    low, high = np.array([1, 1, 2]), np.array([1, 2, 4])
    inside = [x for x in steps if np.all((low <= x.cumsum()) & (x.cumsum() <= high))]
    curves = [
        estimate(np.append(died, 0), np.append(gone, rest), half)[:3]
        for died, gone, rows in itertools.product(inside, inside, (9, 10, 11))
        if (rest := rows - died.sum() - gone.sum()) >= 0
    ]
    least, most = np.min(curves, axis=0), np.max(curves, axis=0)
    worst, best = survival_in_box((low, high), (low, high), (9, 11), half)
    assert np.all(worst <= least + 1e-12)
    np.testing.assert_allclose(best, most)  # the upper corner is always a table
    assert least[0] == pytest.approx(worst[0])  # and the lower one where it can be


@pytest.fixture
def noisy(rows, inferred, seeded_noise):
    return lambda seed, epsilon: inferred(
        SCHEMA, rows, HALF, dps.PureDP(epsilon), noise_from=seeded_noise(seed)
    )


def test_certified_limits_of_the_table_contain_its_curve(noisy, without_noise):
    exact = np.asarray(without_noise.infer("half").params)
    low, high = noisy(0, 1).conf_int(method="certified", target="table").T
    inside = (low <= exact + 1e-9) & (exact <= high + 1e-9)
    assert (inside | np.isnan(exact)).all()  # no row is at risk in the last bins
    assert inside.sum() > 22


def test_a_curve_ends_where_no_row_may_be_at_risk(noisy):
    result = noisy(1, 0.3)
    curve = next(curve for curve in result.curves if curve.bins < 9)
    assert any(f"of arm={'abc'[curve.group]} ends at" in note for note in result.notes)
    place = 9 * curve.group + curve.bins
    assert np.isnan(result.params[place])
    assert result.conf_int()[place].tolist() == [0, result.conf_int()[place - 1][1]]
    assert np.array(result.conf_int(method="certified")).tolist() == [[0.0, 1.0]] * 27


def test_the_median_is_a_set_of_bins(without_noise):
    result = without_noise.infer("whole")
    frame = result.quantile(0.5)
    low, high = result.conf_int().T
    # A bin is left out if the curve is surely below one half before it, or above after it.
    kept = [j for j in range(9) if (j == 0 or high[j - 1] > 0.5) and low[j] <= 0.5]
    assert [frame["low"][0], frame["high"][0]] == [100 * kept[0], 100 * (kept[-1] + 1)]
    assert len(kept) < 4
    assert frame["low"][0] <= frame["estimate"][0] <= frame["high"][0]
    with pytest.raises(dps.RequestError, match="one kind of event"):
        without_noise.infer("kinds").quantile()
    assert result.quantile(0.999)["high"][0] == np.inf


def test_differences_are_of_pairs(without_noise):
    result = without_noise.infer("half")
    at = result.survival_at(300)
    pairs = result.differences(time=300)
    assert pairs.terms == ["arm=a - arm=b", "arm=a - arm=c", "arm=b - arm=c"]
    assert pairs.params[1] == pytest.approx(at.params[0] - at.params[2])
    means, gaps = result.restricted_mean(500), result.differences(horizon=500)
    assert gaps.params[2] == pytest.approx(means.params[1] - means.params[2])
    variance = means.sampling_variance[1] + means.sampling_variance[2]
    assert gaps.sampling_variance[2] == pytest.approx(variance)
    for one in (at, pairs, means, gaps, result.cumulative_hazard()):
        assert pickle.loads(pickle.dumps(one)) == one
    table = result.pairwise()
    assert np.all(table["p_value"] >= table["p_unadjusted"])
    with pytest.raises(dps.RequestError, match=r"^probability is 1\.2"):
        result.quantile(1.2)
    with pytest.raises(dps.RequestError, match=r"^strata must leave a column"):
        result.logrank(strata="arm")


def test_the_alternative_of_a_power_has_the_hazard_ratio():
    asked = dps.Survival("days", EVENT, by="sex")
    (_, first), (_, second) = asked.alternative(SCHEMA, 2.0).groups
    assert first.sum() == pytest.approx(1)
    after = [1 - np.cumsum(shares[:-2:2]) for shares in (first, second)]
    np.testing.assert_allclose(np.log(after[1]) / np.log(after[0]), 2.0)
    assert after[0][-1] == pytest.approx(0.5)
    (_, first), (_, second) = asked.alternative(SCHEMA, [0.9, 0.8]).groups
    assert [first[-1], second[-1]] == pytest.approx([0.9, 0.8])
    with pytest.raises(dps.RequestError, match="hazard ratio"):
        asked.alternative(SCHEMA, -1.0)
    for other in (HALF, dps.Survival("days", KINDS, by="sex")):  # three groups, two events
        with pytest.raises(dps.RequestError, match="two groups and one event"):
            other.alternative(SCHEMA, 2.0)


def test_more_cells_than_are_allowed_and_rows_without_their_release_are_refused(rows):
    days = dps.Number("days", 0, 3000, points=3001, edges=range(1, 3000), missing=0)
    with pytest.raises(dps.RequestError, match=r"have 6000 cells .* at most 5000 are allowed"):
        dps.Survival("days", EVENT).family(dps.Schema([days, SCHEMA["status"]]))
    with pytest.raises(dps.RequestError, match="a radius is not enough"):
        dps.corrected.infer(HALF, rows, radius=0.01, schema=SCHEMA, n=len(rows))


def test_times_may_be_dates(no_noise, inferred):
    edges = ["2020-04-01", "2020-07-01", "2020-10-01"]
    end = dps.Number("end", "2020-01-01", "2020-12-31", edges=edges, missing="2020-01-01")
    schema = dps.Schema([end, dps.Boolean("died")])
    dates = ["2020-02-01", "2020-05-01", "2020-08-01", "2020-11-01"] * 100
    frame = pd.DataFrame({"end": dates, "died": True})
    result = inferred(schema, frame, dps.Survival("end", "died"))
    assert result.terms[1] == "S(2020-07-01)"
    assert float(result.survival_at("2020-07-01")) == pytest.approx(0.5)
    assert float(result.restricted_mean("2020-07-01")) == pytest.approx(91 * 0.875 + 91 * 0.625)
    with pytest.raises(dps.RequestError, match="2020-07-02 is not"):
        result.survival_at("2020-07-02")
    for time in (result.curve()["time"].to_numpy()[1], np.datetime64("2020-07"), 18_444):
        assert result.survival_at(time).terms == ["S(2020-07-01)"]
        assert float(result.restricted_mean(time)) == pytest.approx(91 * 0.875 + 91 * 0.625)
    for clock in (np.datetime64("2020-07-01T12:00"), np.datetime64("NaT"), "July"):
        with pytest.raises(dps.RequestError, match="is no date; give one such as"):
            result.restricted_mean(clock)
    frame["arm"] = [*"aabb"] * 100
    schema = dps.Schema([*schema.columns, dps.Category("arm", ["a", "b"])])
    hazard = inferred(schema, frame, dps.Hazard("end, died ~ arm"))
    for times in (hazard.baseline().index, hazard.predict({"arm": ["a", "b"]}).index):
        assert times.astype(str).tolist() == edges
    assert hazard.get_prediction({"arm": "b"}).terms[1] == "0 at 2020-07-01"


@pytest.mark.parametrize(
    ("first", "design"),  # a first bin has a width only above 0
    [(1, None), (-2, None), (0, dps.Design("weight", mean=1, cap=2, deff=1))],
)
def test_a_mean_to_the_first_value_is_known(first, design, inferred):
    values = dps.Number("visits", values=[first, first + 1, first + 2], missing=first)
    arms = dps.Category("arm", ["a", "b"])
    schema = dps.Schema([values, dps.Boolean("died"), arms], design=design)
    frame = pd.DataFrame({"visits": [0, 1, 2, 1], "died": True, "arm": [*"abab"], "weight": 1})
    frame["visits"] += first
    asked, rows = dps.Survival("visits", "died", by="arm"), pd.concat([frame] * 50)
    result = inferred(schema, rows, asked, dps.PureDP(9), n=200)
    assert result.restricted_mean(first).conf_int().tolist() == [[first, first]] * 2
    assert result.differences(horizon=first).conf_int().tolist() == [[0, 0]]
    later = result.restricted_mean(first + 1)
    np.testing.assert_allclose(later.params, first + result.survival_at(first).params)
    assert later.bse.min() > 0


def test_entry_at_declared_values_is_that_of_r(no_noise, inferred):
    """At risk at a time are those who entered before it: start < time."""
    rng = np.random.default_rng(1)
    entry = rng.integers(0, 4, 400)
    time, died = entry + rng.integers(1, 3, 400), rng.random(400) < 0.5
    schema = dps.Schema([
        dps.Number("time", values=[1, 2, 3, 4, 5], missing=1), dps.Boolean("died"),
        dps.Number("entry", values=[0, 1, 2, 3], missing=0),
    ])  # fmt: skip
    frame = pd.DataFrame({"time": time, "entry": entry, "died": died})
    result = inferred(schema, frame, dps.Survival("time", "died", entry="entry"))
    hazards = [np.sum((time == t) & died) / np.sum((entry < t) & (time >= t)) for t in range(1, 5)]
    np.testing.assert_allclose(result.params, np.cumprod(1 - np.array(hazards)), atol=1e-9)


def test_noise_that_takes_a_curve_beyond_one_is_in_intervals_of_the_table_and_of_differences():
    columns = [dps.Boolean("ill"), dps.Category("area", ["a", "b", "c"])]
    schema = dps.Schema([*columns, dps.Number("age", 0, 100, edges=[30, 60], missing=50)])
    asked = {"curves": dps.Survival("age", "ill", by="area")}
    uniform = {"unit": "add_remove", "reference": dps.Uniform()}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), **uniform)
    rng, beyond, kept = np.random.default_rng(0), 0, []
    for _ in range(12):
        rows = {"ill": rng.random(300) < 0.02, "area": rng.choice(list("abc"), 300)}
        rows["age"] = rng.integers(0, 101, 300)
        result = dps.release(plan, pd.DataFrame(rows), m=20, k=1).infer("curves")
        beyond += np.count_nonzero(np.asarray(result.params) > 1)
        low, high = np.asarray(result.conf_int(alpha=0.5, target="table")).T
        assert np.all(low < high)
        noise = result.survival_at(60).privacy_variance
        of_pairs = noise[[0, 0, 1]] + noise[[1, 2, 2]]
        kept.append(result.differences(time=60).privacy_variance / of_pairs)
    assert beyond > 10
    assert 0.8 < np.median(kept) < 1.3  # also of what is beyond one
