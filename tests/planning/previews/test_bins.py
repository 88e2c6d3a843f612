"""More bins as a remedy: for a logistic regression, and for quantiles."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.planning.previews.bins import _split

N = 6_000
GUESSES = dps.Guesses(
    typical={"age": {"mean": 66, "sd": 12}}, shares={"smoker": 0.15, "readmitted": 0.06}
)
EDGES = [18, 40, 65, 80]
QUARTILE = dps.Quantile("age", 0.25)
pytestmark = pytest.mark.usefixtures("few_releases")


def preview(edges, analysis, **others):
    columns = [
        dps.Boolean("readmitted"), dps.Number("age", 0, 120, edges=edges, missing=0),
        dps.Boolean("smoker"),
    ]  # fmt: skip
    schema = dps.Schema(columns, GUESSES)
    asked = {"it": analysis, **others}
    return dps.plan(schema, asked, budget=dps.PureDP(1)).preview(N)


def test_more_bins_are_named_with_the_effect_that_a_preview_of_them_has():
    old = dps.Proportion("smoker", given="age >= 65")
    risk = dps.Logistic("readmitted ~ age + C(smoker)")
    found = preview(EDGES, risk, ages=QUARTILE)
    assert "age" in found.lost["it"]
    remedy = found.advice["it"][0]
    assert remedy.change.startswith("age has 5 bins; with ")
    assert "(8 to 16 serve most)" in remedy.change
    assert not remedy.left
    bins = int(remedy.change.split("with ")[1].split()[0].rstrip(","))
    column = dps.Number("age", 0, 120, edges=EDGES, missing=0)
    codes, shares = _points(found, column)
    finer = _split(column, bins, column.grid[codes + column.half_points], shares)
    assert set(EDGES) < set(finer.edges)
    again = preview(finer.edges, risk, ages=QUARTILE)
    shown = again.widths().query("analysis == 'it'").set_index("term")["width"]
    for term, width in remedy.widths.items():
        assert width == pytest.approx(shown[term])
    assert again.plan.asking({"old": old}).cost() == 1  # conditions at declared edges still hold


def _points(found, column):
    from dpstats.planning.previews.invented import generator

    codes, shares = found.like.points(found.plan.strategy.columns, generator(0))
    return codes[column.name], shares


def test_quantiles_whose_intervals_end_at_few_edges_get_more():
    found = preview(EDGES, dps.Quantile("age", [0.25, 0.5]))
    (remedy,) = found.advice["it"]
    assert remedy.change.startswith("age has 5 bins; with 10")
    now = found.widths().set_index("term")["width"]
    for term, width in remedy.widths.items():
        assert width < now[term]
        assert remedy.before[term] == now[term]
    text = " ".join(str(found).split())
    assert "it: intervals of a quantile end at declared edges; what would help: age has 5" in text
    assert "(now " in text


def test_quantiles_with_enough_edges_are_left_in_peace():
    found = preview(list(range(5, 120, 5)), dps.Quantile("age", 0.5))
    assert not found.advice
    assert "declared edges" not in str(found)


@pytest.mark.parametrize(
    ("column", "bins"),
    [
        (dps.Number("x", 0, 120, edges=[18], missing=0), 8),
        (dps.Number("x", 1, 1_000, edges=[10], missing=1, scale="log"), 8),
        (dps.Number("x", "2020-01-01", "2024-12-31", edges=["2022-01-01"]), 8),
    ],
)
def test_bins_are_split_where_most_rows_times_width_are(column, bins):
    grid = column.grid
    finer = _split(column, bins, grid, np.full(len(grid), 1 / len(grid)))
    assert finer.value_bins == bins
    assert set(column.edges) < set(finer.edges)
    assert (finer.low, finer.high, finer.points) == (column.low, column.high, column.points)
    cuts = np.array([finer.low, *finer.edges, finer.high], float)
    steps = np.diff(np.log(cuts) if column.scale == "log" else cuts)
    assert steps.max() / steps.min() < 8
