"""Draws of a release, as frames and pooled."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.rows import plausible


@pytest.fixture(scope="module")
def released():
    schema = dps.Schema(
        [
            dps.Category("smoker", ["no", "yes"]),
            dps.Category("region", ["north", "south", "east"]),
            dps.Number("age", 0, 100, points=101, missing=40),
            dps.Boolean("unasked"),
        ]
    )
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(
        {
            "smoker": rng.choice(["no", "yes"], 2_000, p=[0.7, 0.3]),
            "region": rng.choice(["north", "south", "east"], 2_000),
            "age": rng.normal(50, 10, 2_000).round(),
            "unasked": True,
        }
    )
    asked = {"link": dps.Independence("smoker", "region"), "age": dps.Mean("age")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(3))
    return dps.release(plan, rows, m=300, rng=1), rows


def test_draws_are_tables_like_the_private_one(released):
    release, rows = released
    draws = release.draws(3, rng=7)
    frames = list(draws)
    assert len(draws) == len(frames) == 3
    for number, frame in enumerate(frames):
        assert frame.shape == (2_000, 3)
        assert list(frame.columns) == ["smoker", "region", "age"]
        assert "analyse every one" in frame.attrs["caution"]
        pd.testing.assert_frame_equal(frame, draws[number])
    assert not frames[0].equals(frames[1])
    pd.testing.assert_frame_equal(release.draws(3, rng=7)[2], frames[2])
    assert repr(draws) == "<dpstats Draws: 3 plausible tables of about 2000 rows>"
    smokers = [(frame["smoker"] == "yes").mean() for frame in frames]
    assert np.mean(smokers) == pytest.approx((rows["smoker"] == "yes").mean(), abs=0.02)


def test_a_draw_is_fitted_once_and_progress_counts_draws(released, monkeypatch):
    release, _ = released
    seen, fitted, fit = [], [], plausible.fit_with_penalty
    monkeypatch.setattr(
        plausible,
        "fit_with_penalty",
        lambda *given, **named: fitted.append(1) or fit(*given, **named),
    )

    def share(frame):
        p = (frame["smoker"] == "yes").mean()
        return p, p * (1 - p) / len(frame)

    draws = release.draws(3, rng=99)
    first = draws.combine(share, progress=lambda *given: seen.append(given))
    assert seen == [("drawing tables", done, 3) for done in (1, 2, 3)]
    assert draws.combine(share).params == first.params
    assert len(fitted) == 3


def test_analyses_of_draws_return_pairs(released):
    for returned in (0.3, (0.3,)):
        with pytest.raises(dps.RequestError, match="analyse must return a pair"):
            released[0].draws(2, rng=1).combine(lambda frame, pair=returned: pair)


def test_sampling_variances_allow_for_the_rows_of_a_person():
    schema = dps.Schema([dps.Boolean("a")])
    rows = pd.DataFrame({"a": np.arange(3_000) % 4 == 0})
    asked = {"a": dps.Proportion("a")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(10), rows_per_person=3)
    release = dps.release(plan, rows, m=100, k=100, rng=0)

    def share(frame):
        p = frame["a"].mean()
        return p, p * (1 - p) / len(frame)

    pooled = release.draws(3, rng=1).combine(share)
    assert pooled.within == pytest.approx(3 * 0.25 * 0.75 / 3_000, rel=0.1)
    same = dps.pool([0.2, 0.2], [0.01, 0.01], n=600, rows_per_person=3)
    assert same.within == pytest.approx(0.03)
    assert same.df == pytest.approx(199)


def test_combined_estimates_agree_with_those_of_the_release(released):
    release, _ = released

    def analyse(frame):
        shares = frame.groupby("smoker")["age"].count() / len(frame)
        mean = frame["age"].mean()
        estimates = pd.Series({"smokers": shares["yes"], "age": mean})
        variances = [shares["yes"] * shares["no"] / len(frame), frame["age"].var() / len(frame)]
        return estimates, variances

    pooled = release.draws(20, rng=2).combine(analyse)
    assert pooled.terms == ["smokers", "age"]
    for name, analysis in (
        ("smokers", dps.Proportion("smoker == 'yes'")),
        ("age", dps.Mean("age")),
    ):
        own = release.infer(analysis)
        assert pooled.params[name] == pytest.approx(own.params[0], abs=own.bse[0])
        assert pooled.bse[name] == pytest.approx(own.bse[0], rel=0.35)


def test_draws_that_cannot_be_made_are_refused(released):
    for count, rng, sentence in [
        (1, 1, "the number of draws must be a whole number of at least 2"),
        (2.0, 1, "the number of draws must be a whole number"),
        (10**6, 1, "at most 1000"),
        (3, "seed", "rng must be a seed"),
    ]:
        with pytest.raises(dps.RequestError, match=sentence):
            released[0].draws(count, rng=rng)
