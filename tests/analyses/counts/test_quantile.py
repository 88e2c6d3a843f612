import itertools
from dataclasses import replace
from datetime import date
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps

EDGES = [10, 18, 30, 40, 50, 65, 80]


SCHEMA = dps.Schema([
    dps.Number("age", 0, 100, edges=EDGES),
    dps.Number("closed", 0, 100, edges=EDGES, closed="right"),
    dps.Number("score", values=[0, 17.5, 22, 27, 40]),
])  # fmt: skip


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(11)
    age = rng.normal(45, 18, 3_000).clip(0, 100).round()
    score = rng.choice([0, 17.5, 22, 27, 40], 3_000, p=[0.1, 0.2, 0.4, 0.2, 0.1])
    return pd.DataFrame({"age": age, "closed": age, "score": score})


@pytest.fixture
def fitted(inferred, people):
    return partial(inferred, SCHEMA, people)


def test_without_noise_they_are_those_of_the_rows(people, no_noise, fitted):
    p, cuts = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999], np.array([0, *EDGES, 100])
    values, results = people["score"].unique(), {}
    for name, below, edges in (
        ("age", np.less, EDGES), ("closed", np.less_equal, EDGES),
        ("score", np.less_equal, sorted(values)[:-1]),
    ):  # fmt: skip
        results[name] = fitted(dps.Quantile(name, p))
        found = results[name].distribution()
        assert found["edge"].tolist() == edges
        expected = [below(people[name], edge).mean() for edge in edges]
        np.testing.assert_allclose(found["estimate"], expected, rtol=1e-12)
    exact = people["age"].quantile(p, interpolation="higher").to_numpy()
    for name, side in (("age", "right"), ("closed", "left")):
        result, j = results[name], np.searchsorted(EDGES, exact, side=side)
        assert np.all((cuts[j] <= result.params) & (result.params <= cuts[j + 1]))
        low, high = result.conf_int().T
        assert np.all((low <= exact) & (exact <= high))
    exact = np.quantile(people["score"], p, method="inverted_cdf")
    assert results["score"].params.tolist() == exact.tolist()
    band = results["age"].distribution(method="certified")  # that of Dvoretzky, Kiefer, Wolfowitz
    half = ((band["band_high"] - band["band_low"]) / 2).max()
    assert half == pytest.approx(np.sqrt(np.log(2 / 0.05) / 6_000), rel=0.02)


def test_interval_is_the_classical_one_rounded_outwards_as_noise_vanishes(people, fitted):
    result = fitted(dps.Quantile("age", 0.3), dps.PureDP(50))
    ordered = np.sort(people["age"].to_numpy())
    low, high = (ordered[int(stats.binom.ppf(p, 3_000, 0.3))] for p in (0.025, 0.975))
    cuts = np.array([0, *EDGES, 100])
    assert tuple(result.conf_int()) == (cuts[cuts <= low].max(), cuts[cuts > high].min())


def test_runs_stop_at_the_first_edge_that_is_not_rejected(fitted):
    """An edge beyond the quantile that noise pushed across must not move an end."""
    result = fitted(dps.Quantile("age"), dps.PureDP(5))
    intervals = result.intervals
    for end, edge, share in ((0, -1, 0.1), (1, 0, 0.9)):  # the last and the first edge
        shares = intervals.distribution.shares
        sums = shares.answers.sums.copy()
        sums[edge] = share * shares.answers.n
        moved = replace(shares, answers=replace(shares.answers, sums=sums))
        odd = replace(intervals, distribution=replace(intervals.distribution, shares=moved))
        found, wanted = (i.noise_aware(0.05, "population")[end] for i in (odd, intervals))
        assert found == wanted


def test_the_band_in_a_group_is_its_intervals_at_a_part_of_alpha(people, fitted):
    """And increases with the edges, as what it is about does."""
    for target, method in itertools.product(("population", "table"), ("noise_aware", "certified")):
        result = fitted(dps.Quantile("age", 0.3, given="score >= 27"), dps.PureDP(0.5))
        band = result.distribution(method=method, target=target)
        parts = result.distribution(alpha=0.05 / len(EDGES), method=method, target=target)
        low, high = band["band_low"], band["band_high"]
        assert np.all(np.diff(low) >= 0)
        assert np.all(np.diff(high) >= 0)
        np.testing.assert_array_equal(low, np.maximum.accumulate(parts["low"]))
        np.testing.assert_array_equal(high[::-1], np.minimum.accumulate(parts["high"][::-1]))


def test_tests_agree_with_intervals(fitted):
    asked = dps.Quantile("age", 0.3), dps.Quantile("score")
    result, score = (fitted(one, dps.PureDP(0.5)) for one in asked)
    low, high = result.conf_int()
    for value in (5, 12, 20, 35, 45, 55, 70, 90):
        assert (result.test(value).pvalue > 0.05) == (low <= value < high)
    assert result.test(12, "larger").pvalue < 0.001
    assert result.test(12, "smaller").pvalue > 0.9
    assert score.test(22).pvalue > 0.05
    assert score.test(0).pvalue < 0.01
    for one, value, message in ((result, 120, "between 0 and 100"), (score, 23, "declared value")):
        with pytest.raises(dps.RequestError, match=message):
            one.test(value)


def test_bands_beyond_simulation_are_wider_and_need_no_more_draws(fitted):
    result = fitted(dps.Quantile("age"), dps.PureDP(1))
    both = itertools.product(("noise_aware", "certified"), ("table", "population"))
    for method, target in both:
        last = 0.0
        for alpha in (0.05, 9e-4, 8e-4, 7e-4, 6e-4, 1e-9):
            band = result.distribution(alpha=alpha, method=method, target=target)
            width = (band["band_high"] - band["band_low"]).max()
            assert 0.996 * last < width < 1  # of an error that is split among candidates
            last = width


def test_the_distance_of_dates_that_nanoseconds_cannot_count(no_noise, inferred):
    day = dps.Number("d", "1600-01-01", "2300-12-31", edges=["2000-01-01"], missing="2000-01-01")
    rows = pd.DataFrame({"d": ["1700-05-05"] * 300})
    result = inferred(dps.Schema([day]), rows, dps.Quantile("d"))
    texts = ["1650-01-01", "2299-01-01"]
    found = result.wasserstein(texts)
    assert found > 100 * 365
    for same in (pd.Series(texts, dtype="datetime64[s]"), [date.fromisoformat(t) for t in texts]):
        assert result.wasserstein(same) == found


def test_the_distance_of_rows_bounds_the_error_of_lipschitz_means(people):
    """For three draws of the noise, of a number with edges and of one with declared values."""
    asked = {name: dps.Quantile(name) for name in ("age", "score")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(0.5))
    held = []
    for seed in range(3):
        release = dps.release(plan, people, rng=seed, m=100)
        rows = release.to_frame()
        for name in asked:
            exact = stats.wasserstein_distance(rows[name], people[name])
            bound = release.infer(name).wasserstein(rows[name], alpha=0.2)
            held.append(exact <= bound)
    assert np.mean(held) > 0.6
    score = release.infer("score")
    assert bound < score.wasserstein(rows["score"], alpha=0.2, target="population")
    with pytest.raises(dps.RequestError, match="a distance needs values"):
        score.wasserstein([None, "x"])


def test_dates_print_as_dates_and_stand_beside_the_days_in_frames(no_noise, inferred):
    days = dps.Number("day", "2020-01-01", "2020-12-31", edges=["2020-03-01", "2020-06-01"],
                      missing="2020-06-01")  # fmt: skip
    schema = dps.Schema([days, dps.Number("age", 0, 100, points=101, missing=0)])
    rows = pd.DataFrame({"day": pd.date_range("2020-01-01", "2020-12-30"), "age": 40})
    asked = dps.Quantile("day"), dps.Mean(["day", "age"])
    median, means = (inferred(schema, rows, one) for one in asked)
    assert median.headline == "day: quantile 0.5: 2020-07-01 [2020-06-01, 2020-12-31]"
    assert median.distribution()["edge"].tolist() == [*pd.to_datetime(["2020-03-01", "2020-06-01"])]
    assert means.to_frame()["estimate"].dtype == float
    assert means.to_frame()["date"].tolist() == [pd.Timestamp("2020-07-01"), pd.NaT]
    test = means.test("2020-07-01", term="mean of day")
    assert test.null == "mean of day = 2020-07-01 in the population"
    assert test.pvalue > 0.5
    assert means.test(np.datetime64("2020-07-01", "ns"), term="mean of day").null == test.null
    for clock in (pd.Timestamp("2020-07-01 12:00"), pd.NaT, np.timedelta64(18_444, "D")):
        with pytest.raises(dps.RequestError, match="is no date; give one such as '2024-05-01'"):
            means.test(clock, term="mean of day")
    for clock in ("2020-07-01", np.datetime64("1970-02-01")):
        with pytest.raises(dps.RequestError, match="value must be"):
            means.test(clock, term="mean of age")


def test_the_privacy_variance_in_a_group_is_that_of_the_estimate(people, redrawn):
    """Both counts of the ratio share noise. The variance of 30 estimates has 26% of error."""
    schema = dps.Schema([dps.Number("age", 0, 100, edges=EDGES), dps.Boolean("a")])
    rows = people.assign(a=np.random.default_rng(4).random(3_000) < 0.3)
    asked, measured = dps.Quantile("age", 0.5, given="a"), dps.Marginals(["age", "a"])
    results = list(redrawn(schema, rows, asked, dps.ZCDP(1), 30, measured))
    drawn = np.var([result.params[0] for result in results])
    claimed = np.mean([result.privacy_variance[0] for result in results])
    assert claimed == pytest.approx(drawn, rel=0.5)
