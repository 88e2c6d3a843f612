"""Mean, MeanDifference and Correlation: textbook numbers without noise, honest ones with it."""

import itertools

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

import dpstats as dps
from dpstats.privacy.noise import _noise_from

ANALYSES = {
    "one": dps.Mean("pay"), "means": dps.Mean(["age", "pay", "score"]),
    "difference": dps.MeanDifference("pay", by="region", groups=("south", "north")),
    "small": dps.MeanDifference("age", by="region", groups=("north", "west")),
    "retired": dps.MeanDifference("score", by="retired"),
    "pair": dps.Correlation(["age", "pay"]), "pairs": dps.Correlation(["score", "age", "pay"]),
}  # fmt: skip


def released(people, budget, unit="replace"):
    plan = dps.plan(people.schema, ANALYSES, budget=budget, unit=unit, reference=dps.Uniform())
    return dps.release(plan, people.rows, rng=0, m=20, k=10)


@pytest.fixture(scope="module", params=["replace", "add_remove"])
def exact(request, people, silent_noise):
    """All of them without noise, and with a law of it that is next to zero."""
    with _noise_from(silent_noise):
        return released(people, dps.PureDP(1e7), request.param)


def test_without_noise_a_mean_is_that_of_statsmodels(exact, people):
    frame, result = people.rows, exact.infer("means")
    for i, name in enumerate(["age", "pay", "score"]):
        known = DescrStatsW(frame[name])
        assert result.params[i] == pytest.approx(known.mean, rel=1e-12)
        assert result.bse[i] == pytest.approx(known.std_mean, rel=1e-8)
        np.testing.assert_allclose(result.conf_int()[i], known.tconfint_mean(), rtol=1e-8)
    pay, one = DescrStatsW(frame["pay"]), exact.infer("one")
    for side in ("two-sided", "larger", "smaller"):
        test, known = one.test(9.3, side), pay.ttest_mean(9.3, side)[:2]
        np.testing.assert_allclose([test.statistic, test.pvalue], known, rtol=1e-8)
    np.testing.assert_allclose(one.conf_int(target="table"), [pay.mean] * 2, rtol=1e-8)


@pytest.mark.parametrize(("name", "column", "by", "levels"), [
    ("difference", "pay", "region", ("south", "north")),
    ("small", "age", "region", ("north", "west")), ("retired", "score", "retired", (True, False)),
])  # fmt: skip
def test_without_noise_a_difference_is_that_of_welch(exact, people, name, column, by, levels):
    frame, result = people.rows, exact.infer(name)
    welch = CompareMeans(*(DescrStatsW(frame[column][frame[by] == level]) for level in levels))
    expected = welch.tconfint_diff(usevar="unequal")
    np.testing.assert_allclose(result.conf_int(), expected, rtol=1e-8)
    assert result.params[0] == pytest.approx(np.mean(expected), rel=1e-8)
    assert result.bse[0] == pytest.approx(welch.std_meandiff_separatevar, rel=1e-8)
    test, known = result.test(0.1), welch.ttest_ind(usevar="unequal", value=0.1)[:2]
    np.testing.assert_allclose([test.statistic, test.pvalue], known, rtol=1e-8)


def test_without_noise_a_correlation_is_that_of_scipy(exact, people):
    frame, pairs, names = people.rows, exact.infer("pairs"), ["score", "age", "pay"]
    for i, (a, b) in enumerate(itertools.combinations(names, 2)):
        known = stats.pearsonr(frame[a], frame[b])
        assert pairs.params[i] == pytest.approx(known.statistic, rel=1e-8)
        ours, fisher = np.arctanh([pairs.conf_int()[i], known.confidence_interval()])
        assert ours.mean() == pytest.approx(fisher.mean(), rel=1e-8)
        spread = float((np.ptp(ours) / np.ptp(fisher)) ** 2)
        assert spread == pytest.approx(max(1, resampled_spread(frame[[a, b]])), rel=0.15)
    np.testing.assert_allclose(pairs.matrix, frame[names].corr(), rtol=1e-8)
    assert list(pairs.matrix.columns) == names
    error = np.ptp(ours) / 2 / stats.norm.isf(0.025)
    score = (np.arctanh(pairs.params[2]) - np.arctanh(0.55)) / error
    pvalue = exact.infer("pair").test(0.55).pvalue
    assert pvalue == pytest.approx(2 * stats.norm.sf(abs(score)), rel=1e-6)


def resampled_spread(pair):
    """n times the variance of atanh r over resampled rows."""
    values, rng, n = pair.to_numpy(dtype=float), np.random.default_rng(0), len(pair)
    drawn = [np.corrcoef(values[rng.integers(0, n, n)].T)[0, 1] for _ in range(400)]
    return n * np.var(np.arctanh(drawn))


def test_drowned_signals_give_all_that_is_possible(people):
    release = released(people, dps.PureDP(0.003), "add_remove")
    possible = {"one": (-10, 30), "difference": (-40, 40), "pair": (-1, 1)}
    for name, ends in possible.items():
        result = release.infer(name)
        for method in ("noise_aware", "certified"):
            found = result.conf_int(alpha=0.001, method=method)
            np.testing.assert_allclose(found, ends, atol=1e-6, err_msg=f"{name} {method}")
        assert result.test(0.3).pvalue > 0.02


@pytest.mark.parametrize(("epsilon", "left"), [(0.01, 1), (1e5, 1), (1e5, 0)])
def test_errors_next_to_an_empty_group_are_wide(epsilon, left, people, seeded_noise, inferred):
    frame = people.rows.drop(people.rows.index[people.rows["region"] == "west"][left:])
    gap, noise = dps.MeanDifference("pay", by="region", groups=("north", "west")), seeded_noise(3)
    result = inferred(people.schema, frame, gap, dps.PureDP(epsilon), noise_from=noise)
    # Where a mean may be anything, the interval is at least the range of a number, here 40.
    assert np.ptp(result.conf_int()) >= 40 - 1e-6
    assert 40 / 4 <= result.bse[0] <= 40
    assert "group west is empty or small" in result.summary()


def test_bad_values_of_tests(people):
    release = released(people, dps.PureDP(1))
    for name, value, message in [
        ("pair", 1.0, "exactly -1 or 1"), ("one", np.inf, "finite"), ("one", None, "needs value="),
        ("means", 3.0, "single parameter"), ("one", 30.01, "between -10 and 30 in any table"),
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError, match=message):
            release.infer(name).test(value)
    for end in (-10, 30):
        assert release.infer("one").test(end).pvalue < 0.05
