"""Persons of several rows: bounds of the sampling variance, and what results say."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps

ALLOWED = {
    "share": dps.Proportion("ill"),
    "share in a group": dps.Proportion("ill", given="g"),
    "difference": dps.Difference("ill", by="g"),
    "means": dps.GroupMeans("y", by="g"),
    "rates": dps.GroupMeans("ill", by="g"),
    "ols in a group": dps.OLS("y ~ x", given="g"),
    "hc1": dps.OLS("y ~ x", cov_type="HC1"),
    "logit": dps.Logistic("ill ~ g"),
    "poisson": dps.Poisson("visits ~ g"),
}


@pytest.fixture(scope="module")
def released(released_for_persons, persons):
    return partial(released_for_persons, persons.schema)


@pytest.fixture(scope="module")
def frame(persons):
    return persons.rows(np.random.default_rng(3), 500, 4)


def test_sampling_variances_are_k_times_those_of_independent_rows(frame, released):
    """Without noise: as rows of four persons each at most, and as single rows."""
    alone = frame.assign(id=range(len(frame)))
    both = [released(some, ALLOWED, k) for some, k in ((frame, 4), (alone, 1))]
    for name in ALLOWED:
        of_persons, of_rows = (release.infer(name) for release in both)
        np.testing.assert_allclose(of_persons.params, of_rows.params, rtol=1e-9)
        ratio = np.asarray(of_persons.sampling_variance) / np.asarray(of_rows.sampling_variance)
        np.testing.assert_allclose(ratio, 4, rtol=1e-9)
        wide, narrow = (np.asarray(r.conf_int()).reshape(-1, 2) for r in (of_persons, of_rows))
        if name == "difference":  # whose interval for rows is exact, and for persons to first order
            wide, narrow = np.log(wide[1:]), np.log(narrow[1:])
        found = np.diff(wide) / np.diff(narrow)
        assert np.all((found > 1.85) & (found < 2.15)), (name, found)
        same = [np.asarray(r.conf_int(method="certified")) for r in (of_persons, of_rows)]
        np.testing.assert_allclose(*same, atol=2e-3)  # noise of another scale, which is hardly any


@pytest.mark.parametrize(("ill", "alpha"), [(None, 0.05), (0, 1e-5), (7, 0.05)])
def test_limits_of_a_share_are_the_exact_ones_of_a_count_of_persons(ill, alpha, released, frame):
    """The tails of the binomial count of n / k persons and of a uniform, here without noise."""
    k, n = 4, len(frame) // 4 * 4 + 3  # whose quarter is not whole
    some = pd.concat([frame, frame.assign(id=1_000)])[:n].assign(id=np.arange(n) // k)
    some["ill"] = some["ill"] if ill is None else np.arange(n) < ill
    asked = {"share": dps.Proportion("ill"), "table": dps.Marginals(["ill", "g"])}
    release = released(some, asked, k)
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


def test_persons_with_fewer_rows_do_not_make_a_certain_share(released, frame):
    """A number of rows that is no multiple of k leaves no whole number of persons in its set."""
    k, rows = 5, frame[:499].assign(id=np.arange(499) // 5, ill=True, visits=0.0)
    asked = {"table": dps.Marginals(["ill"], 1), "band": dps.Quantile("visits", 0.5)}
    release = released(rows, asked, k, unit="add_remove", budget=dps.PureDP(100_000))
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


def test_what_is_read_off_counts_is_that_of_a_release_of_persons(released, frame):
    """Rows that are alike, four of each person, say what a row of each person does."""
    fit = dps.GoodnessOfFit("g", {False: 0.5, True: 0.5})
    asked = {"fit": fit, "median": dps.Quantile("visits", 0.5, given="ill")}
    one, many = frame.assign(id=range(len(frame))), {"unit": "add_remove"}
    four = one.loc[one.index.repeat(4)]
    both = [released(some, asked, k, budget=dps.PureDP(50_000 * k), **many)
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


def test_other_analyses_say_that_they_do_not_allow_for_it(frame, released):
    asked = {"pca": dps.PCA(["x", "y"]), "huber": dps.Huber("y ~ 1", 1, {"Intercept": (-1, 3, 5)})}
    release = released(frame, asked, 4)
    for name in asked:
        text = " ".join(release.infer(name).summary().split())
        assert "A person may have up to 4 rows, which are not independent" in text, name
