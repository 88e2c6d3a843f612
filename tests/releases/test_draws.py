"""Draws of a release, as frames and pooled."""

from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.rows import plausible


@pytest.fixture(scope="module")
def release(schema, survey):
    asked = {"link": dps.Independence("smoker", "region"), "age": dps.Mean("age")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(3))
    return dps.release(plan, survey, m=300, rng=1)


def share(frame):
    """Share of smokers, with its sampling variance."""
    p = (frame["smoker"] == "yes").mean()
    return p, p * (1 - p) / len(frame)


def test_draws_are_tables_like_the_private_one_and_fitted_once(release, monkeypatch):
    fit = Mock(side_effect=plausible.fit_with_penalty)
    monkeypatch.setattr(plausible, "fit_with_penalty", fit)
    draws, seen = release.draws(3, rng=7), []
    frames = list(draws)
    assert len(draws) == len(frames) == 1 + len(draws[1:]) == 3
    for number, frame in enumerate(frames):
        assert frame.shape == (2_000, 3)
        assert list(frame.columns) == ["smoker", "region", "age"]
        assert "analyse every one" in frame.attrs["caution"]
        pd.testing.assert_frame_equal(frame, draws[number])
    assert not frames[0].equals(frames[1])
    pooled = draws.combine(share, progress=lambda *given: seen.append(given))
    assert seen == [("drawing tables", done, 3) for done in (1, 2, 3)]
    assert pooled.params == pytest.approx(np.mean([share(frame)[0] for frame in frames]))
    assert pooled.params == pytest.approx(0.3, abs=0.03)
    assert fit.call_count == 3
    pd.testing.assert_frame_equal(release.draws(3, rng=7)[2], frames[2])


def test_sampling_variances_allow_for_the_rows_of_a_person():
    schema = dps.Schema([dps.Category("smoker", ["no", "yes"])])
    rows = pd.DataFrame({"smoker": ["yes", "no", "no", "no"] * 750})
    asked = {"a": dps.Proportion("smoker == 'yes'")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(10), rows_per_person=3)
    release = dps.release(plan, rows, m=100, k=100, rng=0)
    pooled = release.draws(3, rng=1).combine(share)
    assert pooled.within == pytest.approx(3 * 0.25 * 0.75 / 3_000, rel=0.1)
    same = dps.pool([0.2, 0.2], [0.01, 0.01], n=600, rows_per_person=3)
    assert same.within == pytest.approx(0.03)
    assert same.df == pytest.approx(199)


def test_combined_estimates_agree_with_those_of_the_release(release):

    def analyse(frame):
        estimate, variance = share(frame)
        age = frame["age"]
        estimates = pd.Series({"smokers": estimate, "age": age.mean()})
        return estimates, [variance, age.var() / len(frame)]

    pooled = release.draws(20, rng=2).combine(analyse)
    assert pooled.terms == ["smokers", "age"]
    for name, analysis in (
        ("smokers", dps.Proportion("smoker == 'yes'")), ("age", dps.Mean("age")),
    ):  # fmt: skip
        own = release.infer(analysis)
        assert pooled.params[name] == pytest.approx(own.params[0], abs=own.bse[0])
        assert pooled.bse[name] == pytest.approx(own.bse[0], rel=0.35)


def test_draws_that_cannot_be_made_or_analysed_are_refused(release):
    for returned in (0.3, (0.3,)):
        with pytest.raises(dps.RequestError, match="analyse must return a pair"):
            release.draws(2, rng=1).combine(lambda frame, pair=returned: pair)
    for count, rng, sentence in [
        (1, 1, "the number of draws must be a whole number of at least 2"),
        (2.0, 1, "the number of draws must be a whole number"),
        (10**6, 1, "at most 1000"),
        (3, "seed", "rng must be a seed"),
    ]:
        with pytest.raises(dps.RequestError, match=sentence):
            release.draws(count, rng=rng)


@pytest.mark.parametrize(("unit", "k"), [("replace", 1), ("add_remove", 1), ("replace", 3)])
def test_draws_of_one_person_are_not_pooled_and_the_refusal_says_why(unit, k):
    """Their sampling variances are zero: without noise the interval would be a point."""
    schema = dps.Schema([dps.Category("smoker", ["no", "yes"])])
    asked = {"a": dps.Proportion("smoker == 'yes'")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(500), unit=unit, rows_per_person=k)
    release = dps.release(plan, pd.DataFrame({"smoker": ["yes"] * k}), m=100, rng=0)
    draws = release.draws(2, rng=1)
    assert (draws.n, len(draws[0])) == (k, k)
    with pytest.raises(
        dps.RequestError, match=r"fewer than two (rows|persons).* use release.infer"
    ):
        draws.combine(share)
    low, high = release.infer("a").conf_int()
    assert low < 0.06
    assert high == 1
