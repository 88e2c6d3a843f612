"""What rows of a preview are made from: the schema's guesses, others, a release, or a frame."""

from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import dpstats as dps

COLUMNS = [
    dps.Number("x", 0, 100, missing=0),
    dps.Number("y", 0, 100, missing=0),
    dps.Category("pain", {"not": 1, "much": 2}),
]
GUESSES = dps.Guesses(
    typical={name: {"mean": 50, "sd": 8} for name in "xy"}, correlations={("x", "y"): 0.5}
)
ASKED = {"line": dps.OLS("y ~ x"), "pain": dps.Proportion("pain == 'much'")}
N = 5_000


def plan_with(guesses=None):
    return dps.plan(dps.Schema(COLUMNS, guesses), ASKED, budget=dps.PureDP(1))


def width(preview, term="x"):
    return preview.widths().set_index("term").loc[term, "width"]


@pytest.fixture(scope="module")
def rows():
    guesses = dps.Guesses(typical=GUESSES.typical, correlations=GUESSES.correlations,
                          shares={"pain": {"much": 0.01}})  # fmt: skip
    return dps.pretend(dps.Schema(COLUMNS), N, guesses, rng=0)


def test_the_schemas_guesses_are_the_default_and_the_preview_says_so(fast):
    plain, guessed = plan_with().preview(N), plan_with(GUESSES).preview(N)
    assert width(guessed) > 5 * width(plain)  # x varies over a sixth of its bounds
    assert "rows invented from guesses of x, y" in " ".join(str(guessed).split())
    given = plan_with().preview(N, like=GUESSES)
    assert width(given) == width(guessed)
    assert width(plan_with(GUESSES).preview(N, like=dps.Guesses())) == width(plain)


@pytest.mark.parametrize("of", ["table", "population"])
def test_rows_have_the_public_totals(of, fast):
    columns = [dps.Category("sex", ["f", "m"]), dps.Boolean("ill")]
    options = {}
    if of == "population":
        units = {"unit": "u", "units": range(40)}
        options["design"] = dps.Design("w", mean=10, high=20, cap=20, total=10 * N, **units)
    count = 0.9 * N * (1 if of == "table" else 10)
    guesses = dps.Guesses(shares={"ill": 0.3})
    plain, known = (
        dps.plan(
            dps.Schema(columns, guesses, totals=totals, **options),
            {"ill": dps.GroupMeans("ill", by="sex")}, budget=dps.PureDP(5),
        )
        for totals in ((), [dps.Total("sex == 'f'", int(count), of=of)])
    )  # fmt: skip
    found = [plan.preview(N).widths().set_index("term")["width"] for plan in (plain, known)]
    even, uneven = (widths["sex=m"] / widths["sex=f"] for widths in found)
    assert even < 1.5 < 2 < uneven
    assert "weighted to the public totals" in " ".join(str(known.curve(N)).split())
    assert "public totals" not in str(plain.curve(N))
    assert known.solve(of="ill", width=found[1].median(), n=N).reached <= found[1].median()
    if of == "table":
        with pytest.raises(dps.SchemaError, match="in a table of 100 rows"):
            known.preview(100)


def test_a_frame_of_any_library_is_drawn_from(rows, fast):
    found = plan_with().preview(N, like=pl.from_pandas(rows))
    assert width(found) == pytest.approx(width(plan_with(GUESSES).preview(N)), rel=0.1)
    assert width(found, "pain == 'much'") < 0.5 * width(plan_with().preview(N), "pain == 'much'")
    assert "invented or public, given as like=" in " ".join(str(found).split())


def test_paths_and_frames_that_do_not_fit_are_refused(rows):
    for like, message in (
        (rows[["x", "pain"]], "has no column 'y', which the plan needs"),
        (rows[:0], "has no rows"),
        ({"x": [1]}, "must be a release, guesses or a data frame"),
        (Path("r.zip"), "no path: a preview must never read the pr"),
        (b"r.csv", "no path: a preview must never read the pr"),
        (dps.Guesses(typical={"x": {"mean": 500, "sd": 1}}), "the mean must lie between the bou"),
    ):
        with pytest.raises(dps.RequestError, match=message):
            plan_with().curve(N, like=like)


def test_many_rows_of_a_frame_are_thinned(fast):
    frame = pd.DataFrame({"x": 50.0, "y": 50.0, "pain": 1}, index=range(150_000))
    found = plan_with().preview(N, like=frame)
    assert len(found.pretended[0].weights) == 100_000
