"""Widths promised from rounded guesses, against those of releases of a census sample.

The guesses were written with a summary of the table in view: they show what guesses of the right
size achieve, not what a custodian would guess.
"""

from pathlib import Path

import pandas as pd

import dpstats as dps
from dpstats.privacy.noise import _noise_from

EXAMPLES = Path(__file__).parents[2] / "examples"
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


def test_promised_widths_thinned(seeded_noise):
    found = compared(CALIFORNIA, INCOMES, pums_table(), 3, seeded_noise)
    assert found["ratio"].between(1 / 1.8, 1.8).all()
