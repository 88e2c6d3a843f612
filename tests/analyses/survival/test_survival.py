"""Survival curves: without noise those of R and lifelines; what noise, groups and rules change."""

import itertools
import json
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
        "half": dps.Survival("days", EVENT, by="arm"),
    }
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(10**6), n=len(rows))
    with _noise_from(silent_noise):
        return dps.release(plan, rows, m=60, k=10, rng=0)


def test_the_curve_is_that_of_r_and_lifelines(without_noise, figures):
    result = without_noise.infer("whole")
    np.testing.assert_allclose(result.params, figures["survival"], atol=1e-8)
    np.testing.assert_allclose(np.sqrt(result.sampling_variance), figures["greenwood"], atol=1e-8)
    hazard = result.cumulative_hazard()
    np.testing.assert_allclose(hazard.params, figures["cumulative_hazard"], atol=1e-8)


def test_restricted_means_are_those_of_r_with_events_in_the_middle(without_noise, figures):
    result = without_noise.infer("whole").restricted_mean(700)
    mean, error = figures["restricted_mean"]
    assert float(result) == pytest.approx(mean, abs=1e-6)
    assert np.sqrt(result.sampling_variance[0]) == pytest.approx(error, rel=1e-8)


def test_incidences_are_those_of_r(without_noise, figures):
    result = without_noise.infer("kinds")
    for kind, name in enumerate(("relapse", "death")):
        own = slice(9 * kind, 9 * kind + 9)
        np.testing.assert_allclose(result.params[own], figures[name], atol=1e-8)
        errors = np.sqrt(result.sampling_variance[own])
        np.testing.assert_allclose(errors, figures[f"{name}_se"], atol=1e-8)


def test_log_rank_tests_are_those_of_r_and_lifelines(rows, silent_noise, figures, without_noise):
    statistic, *counts = figures["log_rank"]
    asked = dps.Survival("days", EVENT, by="arm", ties="last")
    plan = dps.plan(SCHEMA, {"arms": asked}, budget=dps.PureDP(10**6), n=len(rows))
    with _noise_from(silent_noise):
        test = dps.release(plan, rows, m=60, k=10, rng=0).infer("arms").logrank()
    assert test.statistic == pytest.approx(statistic, rel=1e-8)
    assert test.pvalue == pytest.approx(stats.chi2.sf(statistic, 2), rel=1e-6)
    np.testing.assert_allclose([*test.observed, *test.expected], counts, rtol=1e-8)
    strata = without_noise.infer("arms").logrank(strata="sex")
    assert strata.statistic == pytest.approx(figures["stratified"][0], rel=1e-8)
    assert strata.df == 2


def test_rows_are_at_risk_from_the_bin_after_their_entry(without_noise, figures):
    late = without_noise.infer("late")
    np.testing.assert_allclose(late.params, figures["late_entry"], atol=1e-8)


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
    least, most = np.ones(3), np.zeros(3)
    for died, gone, rows in itertools.product(inside, inside, (9, 10, 11)):
        rest = rows - died.sum() - gone.sum()
        if rest < 0:
            continue
        curve = estimate(np.append(died, 0), np.append(gone, rest), half)[:3]
        least, most = np.minimum(least, curve), np.maximum(most, curve)
    worst, best = survival_in_box((low, high), (low, high), (9, 11), half)
    assert np.all(worst <= least + 1e-12)
    np.testing.assert_allclose(best, most)  # the upper corner is always a table
    assert least[0] == pytest.approx(worst[0])  # and the lower one where it can be


def released(rows, asked, noise, budget=1.0, **options):
    plan = dps.plan(SCHEMA, {"s": asked}, budget=dps.PureDP(budget), n=len(rows), **options)
    with _noise_from(noise):
        return dps.release(plan, rows, m=60, k=10, rng=0).infer("s")


def test_certified_limits_of_the_table_contain_its_curve(rows, seeded_noise, without_noise):
    asked = dps.Survival("days", EVENT, by="arm")
    exact = without_noise.infer("half")
    for seed in range(2):
        result = released(rows, asked, seeded_noise(seed))
        for curve in result.curves:
            own = result._numbers(curve.group)
            low, high = result.conf_int(method="certified", target="table")[own].T
            truth = np.asarray(exact.params)[own]
            assert np.all((low <= truth + 1e-9) & (truth <= high + 1e-9))
    assert np.array(result.conf_int(method="certified")).tolist() == [[0.0, 1.0]] * 27


def test_a_curve_ends_where_no_row_may_be_at_risk(rows, seeded_noise):
    result = released(rows, dps.Survival("days", EVENT, by="arm"), seeded_noise(1), 0.3)
    ended = [curve for curve in result.curves if curve.bins < 9]
    assert ended
    curve = ended[0]
    assert any(f"of arm={'abc'[curve.group]} ends at" in note for note in result.notes)
    place = 9 * curve.group + curve.bins
    low, high = result.conf_int()[place]
    assert np.isnan(result.params[place])
    assert low == 0
    assert high == result.conf_int()[place - 1][1]


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
    table = result.pairwise()
    assert np.all(table["p_value"] >= table["p_unadjusted"])


def test_persons_with_several_rows_have_their_variance(rows, released_for_persons):
    frame, asked = rows.assign(id=range(600)), {"s": dps.Survival("days", EVENT)}
    one = released_for_persons(SCHEMA, frame, asked, 1, n=600).infer("s")
    two = released_for_persons(SCHEMA, pd.concat([frame, frame]), asked, 2, n=1_200).infer("s")
    np.testing.assert_allclose(two.params, one.params, atol=1e-9)
    np.testing.assert_allclose(two.sampling_variance, one.sampling_variance, rtol=1e-9)


def test_one_row_is_in_one_cell():
    asked = dps.Survival("days", EVENT, by="arm")
    assert asked.family(SCHEMA).sensitivity("replace").l1 == 2
    late = dps.Survival("days", EVENT, entry="entry")
    assert late.family(SCHEMA).sensitivity("replace").l1 == 4  # one of each table


@pytest.mark.parametrize(("options", "match"), [
    ({"event": "days > 100"}, "days"),
    ({"event": ("status == 'death'", EVENT)}, "exclude each other"),
    ({"time": "sex"}, "time"),
    ({"ties": "first"}, "ties"),
    ({"by": "days"}, "different columns"),
    ({"given": "arm == 'a'", "by": "arm"}, "given"),
    ({"entry": "short"}, "edge"),
    ({"time": "open", "entry": "short"}, "missing="),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(options, match):
    schema = dps.Schema([
        *SCHEMA, dps.Number("short", 0, 1000, edges=[150], missing=0),
        dps.Number("open", 0, 1000, edges=[150], allow_missing=True),
    ])  # fmt: skip
    with pytest.raises(dps.RequestError, match=match):
        dps.plan(
            schema, {"s": dps.Survival(**{"time": "days", "event": EVENT, **options})},
            budget=dps.PureDP(1), n=600,
        )  # fmt: skip


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


def test_times_may_be_dates(silent_noise):
    edges = ["2020-04-01", "2020-07-01", "2020-10-01"]
    end = dps.Number("end", "2020-01-01", "2020-12-31", edges=edges, missing="2020-01-01")
    schema = dps.Schema([end, dps.Boolean("died")])
    frame = pd.DataFrame({"end": ["2020-02-01", "2020-05-01", "2020-08-01", "2020-11-01"] * 100})
    plan = dps.plan(schema, {"s": dps.Survival("end", "died")}, budget=dps.PureDP(10**6), n=400)
    with _noise_from(silent_noise):
        result = dps.release(plan, frame.assign(died=True), m=60, k=10, rng=0).infer("s")
    assert result.terms[1] == "S(2020-07-01)"
    assert float(result.survival_at("2020-07-01")) == pytest.approx(0.5)
    assert float(result.restricted_mean("2020-07-01")) == pytest.approx(91 * 0.875 + 91 * 0.625)
    with pytest.raises(dps.RequestError, match="2020-07-02 is not"):
        result.survival_at("2020-07-02")


def test_entry_at_declared_values_is_that_of_r(silent_noise):
    """At risk at a time are those who entered before it: start < time."""
    rng = np.random.default_rng(1)
    entry = rng.integers(0, 4, 400)
    time = entry + rng.integers(1, 3, 400)
    schema = dps.Schema([
        dps.Number("time", values=[1, 2, 3, 4, 5], missing=1), dps.Boolean("died"),
        dps.Number("entry", values=[0, 1, 2, 3], missing=0),
    ])  # fmt: skip
    frame = pd.DataFrame({"time": time, "entry": entry, "died": rng.random(400) < 0.5})
    asked = dps.Survival("time", "died", entry="entry")
    plan = dps.plan(schema, {"s": asked}, budget=dps.PureDP(10**6), n=400)
    with _noise_from(silent_noise):
        result = dps.release(plan, frame, m=60, k=10, rng=0).infer("s")
    curve, survives = [], 1.0
    for t in range(1, 5):
        at_risk = np.sum((entry < t) & (time >= t))
        survives *= 1 - np.sum((time == t) & frame["died"]) / at_risk
        curve.append(survives)
    np.testing.assert_allclose(result.params, curve, atol=1e-9)


def test_an_interval_of_the_table_is_no_single_value_where_noise_takes_an_estimate_beyond_one():
    columns = [dps.Boolean("ill"), dps.Category("area", ["a", "b", "c"])]
    schema = dps.Schema([*columns, dps.Number("age", 0, 100, edges=[30, 60], missing=50)])
    curves = dps.Survival("age", "ill", by="area")
    plan = dps.plan(schema, {"curves": curves}, budget=dps.PureDP(1), unit="add_remove")
    rng, beyond = np.random.default_rng(0), 0
    for _ in range(20):
        rows = {"ill": rng.random(300) < 0.02, "area": rng.choice(list("abc"), 300)}
        rows["age"] = rng.integers(0, 101, 300)
        result = dps.release(plan, pd.DataFrame(rows), m=20, k=1).infer("curves")
        beyond += np.count_nonzero(np.asarray(result.params) > 1)
        for alpha in (0.5, 0.05):
            low, high = np.asarray(result.conf_int(alpha=alpha, target="table")).T
            assert np.all(low < high)
    assert beyond > 10
