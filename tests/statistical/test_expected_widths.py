"""Widths that a preview promises from guesses, against those of releases of real tables.

The guesses for the RAND experiment were written before the table was looked at, from its design
and from surveys of health, and were not corrected afterwards: twice as many people were expected in
poor health as there are. Those for the census sample were written with a summary of the table in
view: they show what rounded guesses of the right size achieve, not what a custodian would guess.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from statsmodels.datasets import randhie

import dpstats as dps
from dpstats.privacy.noise import _noise_from

EXAMPLES = Path(__file__).parents[2] / "examples"
LEVELS = ["excellent", "good", "fair", "poor"]

RAND = dps.Schema(
    [
        dps.Number("mdvis", 0, 26, points=53, missing=0),
        dps.Number("lncoins", 0, np.log(101), missing=0),
        dps.Boolean("idp"),
        dps.Number("physlm", 0, 1, missing=0),
        dps.Number("disea", 0, 60, missing=0),
        dps.Category("health", LEVELS),
    ],
    dps.Guesses(
        typical={
            "mdvis": {"mean": 3, "sd": 4},  # visits a year
            "lncoins": {"mean": 2.4, "sd": 2},  # a third free, the others up to 95%
            "physlm": {"mean": 0.12, "sd": 0.32},
            "disea": {"mean": 11, "sd": 7},
        },
        shares={
            "idp": 0.25,
            "health": {"excellent": 0.5, "good": 0.37, "fair": 0.1, "poor": 0.03},
        },
        correlations=[
            ("disea", "mdvis", 0.15),
            ("physlm", "disea", 0.2),
            ("health", "disea", 0.3),
            ("idp", "lncoins", 0.2),
        ],
    ),
)
VISITS = {
    "visits": dps.OLS("mdvis ~ lncoins + idp + physlm + disea + C(health)"),
    "means": dps.Mean(["mdvis", "disea", "lncoins"]),
}

CALIFORNIA = dps.Schema(
    [
        dps.Number("age", 0, 100, points=101, missing=45),
        dps.Number("educ", 1, 16, points=16, missing=9),
        dps.Number("income", 0, 150_000, missing=0),
        dps.Boolean("married"),
    ],
    dps.Guesses(
        typical={
            "age": {"mean": 45, "sd": 17},  # adults
            "educ": {"mean": 10, "sd": 3},  # 9: high school, 13: a bachelor's degree
            "income": {"mean": 30_000, "sd": 35_000},  # of adults around 2000, clamped
        },
        shares={"married": 0.55},
        correlations=[("educ", "income", 0.35), ("age", "income", 0.1)],
    ),
)
INCOMES = {
    "income": dps.OLS("income ~ educ"),
    "means": dps.Mean(["age", "educ", "income"]),
    "married": dps.Proportion("married"),
}


def rand_table():
    table = randhie.load_pandas().data
    rated = [table["hlthg"] == 1, table["hlthf"] == 1, table["hlthp"] == 1]
    table["health"] = np.select(rated, ["good", "fair", "poor"], "excellent")
    return table


def pums_table():
    return pd.read_csv(EXAMPLES / "pums.csv")


def by_term(release):
    frames = {name: release.infer(name).intervals_frame() for name in release.analyses}
    return {
        (name, term): width
        for name, f in frames.items()
        for term, width in zip(f["term"], f["conf_high"] - f["conf_low"], strict=True)
    }


def compared(schema, analyses, table, runs, seeded_noise):
    """Widths promised from guesses and from even rows, medians of releases, and their ratios."""
    plan = dps.plan(schema, analyses, budget=dps.PureDP(1), n=len(table))
    index = ["analysis", "term"]
    promised, even = (
        plan.preview(like=like).widths().set_index(index)["width"] for like in (None, dps.Guesses())
    )
    with _noise_from(seeded_noise(7)):
        found = [by_term(dps.release(plan, table, m=500, k=1, rng=0)) for _ in range(runs)]
    real = pd.DataFrame(found).median()
    frame = pd.DataFrame({"real": real, "promised": promised, "even": even})
    return frame.assign(ratio=real / promised, of_even=real / even)


RARE = ("visits", "C(health)[T.poor]")  # 3% were guessed, 1.5% are; the noise goes with 1 / share


CASES = {"randhie": (RAND, VISITS, rand_table), "PUMS": (CALIFORNIA, INCOMES, pums_table)}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_promised_widths_are_within_a_half_of_the_real_ones(case, seeded_noise):
    """Of 15 releases the median width has a standard error of about 5% where noise decides it."""
    schema, analyses, table = CASES[case]
    found = compared(schema, analyses, table(), 15, seeded_noise)
    print(f"\n{case}\n{found.round(3).to_string()}")
    if case == "randhie":  # the guess of the rare level alone explains what is out
        health = {"excellent": 0.5, "good": 0.37, "fair": 0.115, "poor": 0.015}
        corrected = replace(RAND.guesses, shares={**RAND.guesses.shares, "health": health})
        plan = dps.plan(schema, analyses, budget=dps.PureDP(1), n=len(table()))
        again = plan.preview(like=corrected).widths().set_index(["analysis", "term"])["width"]
        assert (found["real"] / again).between(1 / 1.5, 1.5).all()
    usual = found["ratio"].drop(RARE, errors="ignore")
    assert usual.between(1 / 1.5, 1.5).all()
    assert found["ratio"].max() < 3  # 1.5 times the error of the guessed share
    assert not found["of_even"].between(1 / 1.5, 1.5).all()  # which even rows do not achieve


def test_promised_widths_thinned(seeded_noise):
    found = compared(CALIFORNIA, INCOMES, pums_table(), 3, seeded_noise)
    assert found["ratio"].between(1 / 1.8, 1.8).all()
