"""Invented rows have the guessed means, shares and correlations, on the grid of the schema."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

N = 20_000
COLUMNS = [
    dps.Number("age", 0, 120, points=121, missing=40),
    dps.Number("pay", 1, 10_000, scale="log", allow_missing=True),
    dps.Number("day", "2020-01-01", "2020-12-31", missing="2020-02-01"),
    dps.Number("score", values=[17.5, 22, 27, 42], missing=22),
    dps.Number("visits", 0, 26, points=27, edges=[1, 5], missing=0),
    dps.Category("health", {"good": 1, "fair": 2, "poor": 3}),
    dps.Category("region", ["north", "south", "east"], allow_missing=True),
    dps.Boolean("smoker"),
]
GUESSES = dps.Guesses(
    typical={
        "age": {"mean": 45, "sd": 17},
        "pay": {"mean": 300, "sd": 200},
        "day": {"mean": "2020-09-01", "sd": 40},
        "score": {"mean": 28, "sd": 8},
    },
    shares={
        "visits": {"[0, 1)": 0.5, "[1, 5)": 0.3},
        "health": {"poor": 0.05, "fair": 0.15},
        "smoker": 0.2,
    },
    missing={"pay": 0.1, "region": 0.2},
    correlations={
        ("age", "health"): 0.3,
        ("age", "smoker"): -0.2,
        ("pay", "age"): 0.4,
        ("visits", "health"): 0.35,
    },
)
SCHEMA = dps.Schema(COLUMNS, GUESSES)


@pytest.fixture(scope="module")
def rows():
    return dps.pretend(SCHEMA, N, rng=1)


def test_rows_have_the_guessed_means_deviations_and_shares(rows):
    four = 4 * np.sqrt(0.25 / N)
    # The deviation of logarithms follows from that of amounts without bounds.
    days = rows.assign(day=(rows["day"] - pd.Timestamp("2020-08-01")).dt.days)
    for name, mean, sd in (("age", 45, 17), ("pay", 300, 200), ("score", 28, 8), ("day", 31, 40)):
        assert days[name].mean() == pytest.approx(mean, rel=0.03)
        assert days[name].std() == pytest.approx(sd, rel=0.1 if name == "pay" else 0.03)
    np.testing.assert_allclose(shares_of_visits(rows), [0.5, 0.3, 0.2], atol=four)
    health = rows["health"].value_counts(normalize=True)  # the stored values, not the labels
    np.testing.assert_allclose(health[[1, 2, 3]], [0.8, 0.15, 0.05], atol=four)
    assert rows["smoker"].mean() == pytest.approx(0.2, abs=four)
    assert rows["pay"].isna().mean() == pytest.approx(0.1, abs=four)
    assert rows["region"].isna().mean() == pytest.approx(0.2, abs=four)
    of_region = rows["region"].value_counts(normalize=True)
    np.testing.assert_allclose(of_region, [1 / 3] * 3, atol=2 * four)
    two = dps.Schema([dps.Number("limited", values=[0, 1], missing=0)])
    for sd in (0.2, 0.3249):  # which follows from the mean
        guesses = dps.Guesses(typical={"limited": {"mean": 0.12, "sd": sd}})
        assert dps.pretend(two, N, guesses, rng=1)["limited"].mean() == pytest.approx(
            0.12, abs=0.01
        )


def shares_of_visits(rows):
    return pd.cut(rows["visits"], [-1, 0, 4, 26]).value_counts(normalize=True, sort=False)


def test_correlations_are_those_of_the_columns(rows):
    logs = rows.assign(pay=np.log(rows["pay"]), smoker=rows["smoker"].astype(float))
    for (one, other), wanted in {**GUESSES.correlations, ("score", "age"): 0}.items():
        assert logs[one].corr(logs[other]) == pytest.approx(wanted, abs=0.02)


def test_a_seed_repeats_the_rows_and_no_seed_does_not(rows):
    pd.testing.assert_frame_equal(rows, dps.pretend(SCHEMA, N, rng=1))
    assert not dps.pretend(SCHEMA, 50).equals(dps.pretend(SCHEMA, 50))


def test_columns_without_a_guess_are_even_over_levels_and_bins():
    rows = dps.pretend(dps.Schema(COLUMNS), N, rng=2)
    np.testing.assert_allclose(shares_of_visits(rows), [1 / 3] * 3, atol=0.015)
    assert rows["region"].isna().mean() == pytest.approx(0.25, abs=0.015)
    assert rows["age"].mean() == pytest.approx(60, abs=1)


def test_impossible_correlations_are_refused_and_others_completed():
    rare, schema = {"a": 0.5, "b": 0.02}, dps.Schema([dps.Boolean("a"), dps.Boolean("b")])
    guesses = dps.Guesses(shares=rare, correlations={("a", "b"): 0.5})
    with pytest.raises(dps.SchemaError, match=r"is 0.5; with .* between -0.14 and 0.14"):
        dps.pretend(schema, 10, guesses, rng=1)
    columns = [dps.Number(name, 0, 1) for name in "abc"]
    close = {("a", "b"): 0.9, ("b", "c"): 0.9}
    rows = dps.pretend(dps.Schema(columns), N, dps.Guesses(correlations=close), rng=1)
    assert rows["a"].corr(rows["b"]) == pytest.approx(0.9, abs=0.01)
    assert rows["b"].corr(rows["c"]) == pytest.approx(0.9, abs=0.01)
    assert rows["a"].corr(rows["c"]) > 0.6  # which follows
    guesses = dps.Guesses(correlations=close | {("a", "c"): 0})
    with pytest.raises(dps.SchemaError, match="no rows have all of the guessed correlations"):
        dps.pretend(dps.Schema(columns), 10, guesses)


def test_impossible_arguments_are_refused():
    for arguments, message in (
        ((COLUMNS, 10), "the first argument must be a dps.Schema"),
        ((SCHEMA, 0), "n must be a whole number"),
        ((SCHEMA, 10, {"typical": {}}), r"guesses must be dps\.Guesses"),
        ((SCHEMA, 10, None, "x"), "rng must be a seed"),
        ((SCHEMA, 10, dps.Guesses(shares={"x": 0.1})), "that the schema does not declare"),
    ):
        with pytest.raises(dps.RequestError, match=message):
            dps.pretend(*arguments)


def test_a_survey_has_its_mean_weight_and_units_of_its_strata():
    region, ill = dps.Category("region", ["north", "south"]), dps.Boolean("ill")
    units = {"north": [1, 2], "south": [3, 4, 5]}
    kinds = [{"unit": "school"}, {"unit": "school", "units": 12}, {"deff": 2.0}]
    strata = {"unit": "school", "strata": "region", "units": units}
    for columns, kind in [*(([ill], k) for k in [*kinds, strata]), ([region, ill], strata)]:
        schema = dps.Schema(columns, design=dps.Design("w", mean=50, cap=90, **kind))
        rows = dps.pretend(schema, 500, rng=1)
        assert set(rows) == set(schema.raw.names)
        assert (rows["w"] == 50).all()
        if kind is strata:
            found = rows.groupby("region")["school"].unique().map(sorted).to_dict()
            assert found == units
        plan = dps.plan(schema, {"p": dps.Proportion("ill")}, budget=dps.PureDP(1))
        assert "500 rows" in str(dps.check(plan, rows))
