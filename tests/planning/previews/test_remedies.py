"""What is said of intervals without ends, and the change that would help: planned and previewed."""

import functools
import re

import numpy as np
import pytest

import dpstats as dps

TYPICAL = {name: {"mean": 50, "sd": 8} for name in ("x", "y", "z")}
COLUMNS = [
    *(dps.Number(name, 0, 100, missing=0) for name in "xyz"),
    dps.Category("g", list("abcd")),
]
SCHEMA = dps.Schema(
    COLUMNS,
    dps.Guesses(typical=TYPICAL, shares={"g": {"d": 0.01}}, correlations={("x", "y"): 0.5}),
)
N = 3_000
pytestmark = pytest.mark.usefixtures("few_releases")


@functools.cache
def preview(formula, epsilon=1.0, n=N, schema=SCHEMA, **others):
    asked = {"line": dps.OLS(formula), **others}
    return dps.plan(schema, asked, budget=dps.PureDP(epsilon)).preview(n)


def widths(found, terms):
    table = found.widths().set_index(["analysis", "term"])["width"]
    return [table["line", term] for term in terms]


def test_every_unbounded_term_is_named_beside_its_width():
    found = preview("y ~ x + C(g)", 0.5)
    terms = found.unbounded["line"]
    assert "C(g)[T.d]" in terms
    assert np.isinf(widths(found, terms)).all()
    rest = set(found.widths()["term"]) - set(terms)
    assert np.isfinite(widths(found, rest)).all()
    text = str(found)
    assert "line: likely unbounded intervals of " + ", ".join(terms) in text
    for term in terms:
        assert re.search(rf"unbounded +none  .*{re.escape(term)}", text)


def test_nothing_is_said_where_all_intervals_have_ends():
    found = preview("y ~ x", 8)
    assert not found.unbounded
    assert not found.advice
    assert "unbounded intervals" not in str(found)


def test_clipping_comes_first_and_its_effect_is_that_of_the_plan_with_it():
    found = preview("y ~ x + z", 0.3)
    first, second = found.advice["line"]
    assert first.change.startswith("clip_norm=3.5 with center={'x': 50.0, 'y': 50.0")
    clip, center, scale = re.fullmatch(
        r"clip_norm=(\S+) with center=(\{.*\}), scale=(\{.*\})", first.change
    ).groups()
    options = {"center": dict(_pairs(center)), "scale": dict(_pairs(scale))}
    other = dps.OLS("y ~ x + z", clip_norm=float(clip), **options)
    again = dps.plan(SCHEMA, {"line": other}, budget=dps.PureDP(0.3)).preview(N)
    assert list(first.widths.values()) == pytest.approx(widths(again, first.widths))
    assert second.change.startswith("epsilon = ")
    epsilon = float(second.change.removeprefix("epsilon = "))
    assert list(second.widths.values()) == pytest.approx(
        widths(preview("y ~ x + z", epsilon), second.widths)
    )


def _pairs(text):
    return [(name, float(value)) for name, value in re.findall(r"'(\w)': ([\d.]+)", text)]


def test_the_column_that_helps_most_is_left_out():
    found = preview("y ~ x + C(g)", 0.3)
    first = found.advice["line"][0]
    assert first.change in ("without C(g)", "without x")
    assert not first.left
    again = preview("y ~ x" if first.change == "without C(g)" else "y ~ C(g)", 0.3)
    assert list(first.widths.values()) == pytest.approx(widths(again, first.widths))


def test_fewer_analyses_help_where_nothing_else_is_left_to_drop():
    even = dps.Schema([*COLUMNS, dps.Category("h", list("abcdef"))])
    found = preview("y ~ x", 0.02, schema=even, tables=dps.Marginals(["g", "h"], degree=2))
    changes = [one.change for one in found.advice["line"]]
    assert changes[0] == "without 'tables'"
    text = str(found)
    assert "line: what would help, the cheapest first:\n  without 'tables': width " in text


FEW = dps.Schema([dps.Boolean("smoker"), dps.Category("region", list("nsew")),
                  dps.Number("x", 0, 100, edges=[30, 60], missing=0)])  # fmt: skip
ASKED = {
    "share": dps.Proportion("smoker"),
    "mean": dps.Mean("x"),
    "link": dps.Independence("smoker", "region", simulations=199),
    "gap": dps.Difference("smoker", by="region", groups=("n", "s")),
    "tables": dps.Marginals(["smoker", "region"], degree=1),
    "cells": dps.Marginals(["smoker", "region", "x"]),
}


def test_an_interval_as_wide_as_its_whole_range_is_said_with_what_helps():
    plan = dps.plan(FEW, ASKED, budget=dps.PureDP(0.01))
    found = plan.preview(500)
    assert list(found.whole_range) == list(ASKED)
    assert found.whole_range["link"] == ("Cramer's V",)
    assert list(found.unbounded) == ["gap"]
    text = " ".join(str(found).split())
    assert "share: intervals of smoker likely as wide as the whole range: tells nothing" in text
    assert re.search(r"cells: (\d+) of 26 intervals likely as wide as the whole range", text)
    assert text.count("whole range whole range") >= 4  # both methods
    (first, *_) = found.advice["share"]
    assert first.change == "alone in its plan"
    alone = plan.asking({"share": ASKED["share"]}).preview(500)
    assert list(first.widths.values()) == pytest.approx(alone.widths()["width"].tolist())
    assert f"alone in its plan: width {first.widths['smoker']:.4g} of smoker" in text
    summed = [str(one) for one in found.advice["cells"]]
    assert all("intervals of median width" in one for one in summed)


def test_nothing_is_said_of_ranges_where_intervals_are_narrower():
    found = dps.plan(FEW, ASKED, budget=dps.PureDP(4)).preview(5_000)
    assert not found.whole_range
    assert "whole range" not in str(found)


def test_where_nothing_helps_the_usual_advice_is_given():
    found = preview("y ~ x", 1e-4, n=30)
    assert found.unbounded["line"]
    assert found.advice["line"] == ()
    assert "line: what helps in general: more rows or budget, fewer or wider columns" in str(found)


def test_columns_of_other_analyses_are_dropped_too():
    asked = {"g": dps.GroupMeans("y", by="g")}
    found = dps.plan(SCHEMA, asked, budget=dps.PureDP(0.05)).preview(500)
    for name, terms in found.unbounded.items():
        assert name == "g"
        assert terms


def test_a_plan_for_other_analyses_keeps_the_rest():
    reference = dps.PerturbedHistogram(share=0.25)
    plan = dps.plan(
        SCHEMA, {"g": dps.Marginals(["g"], degree=1)}, budget=dps.ZCDP(0.1), n=100,
        unit="add_remove", reference=reference,
    )  # fmt: skip
    other = plan.asking({"share": dps.Proportion("g == 'a'")})
    assert (other.budget, other.n, other.unit) == (plan.budget, 100, "add_remove")
    assert other.reference == plan.reference
    assert list(other.analyses) == ["share"]
    assert plan.costing(dps.ZCDP(0.2)).cost() == dps.ZCDP(0.2).total
