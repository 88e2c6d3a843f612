"""Section A, the rest: declarations and requests that are refused before a row is read.

More wrong values of each are in tests/schema and tests/families/test_conditions.py.
"""

import json
import math

import pandas as pd
import pytest

import dpstats as dps

SURVEY = pd.DataFrame({"c": ["a", "b", "c"], "b": [True, False, True], "x": [0.0, 2.5, 4.0]})
COLUMNS = {
    "low not below high": (lambda: dps.Number("x", 1, 1), "'x'"),
    "a bound that is no number": (lambda: dps.Number("x", 0, math.nan), "'x'"),
    "no points": (lambda: dps.Number("x", 0, 4, points=0), "points must be a whole number from 2"),
    "one point": (lambda: dps.Number("x", 0, 4, points=1), "points must be a whole number from 2"),
    "too many": (lambda: dps.Number("x", 0, 4, points=2**20 + 3), "points must be a whole number"),
    "edges unsorted": (lambda: dps.Number("x", 0, 4, edges=[3, 1]), "strictly increasing"),
    "an edge twice": (lambda: dps.Number("x", 0, 4, edges=[1, 1.0]), "strictly increasing"),
    "an edge outside": (lambda: dps.Number("x", 0, 4, edges=[1, 5]), "inside the bounds"),
    "edges too close": (
        lambda: dps.Number("x", 0, 4, points=5, edges=[1.2, 1.4]), "holds no grid point"
    ),
    "a level twice": (lambda: dps.Category("c", [1, 1.0]), "distinct"),
    "one level": (lambda: dps.Category("c", ["a"]), "at least two levels"),
    "levels of two types": (lambda: dps.Category("c", ["a", 1]), "must be all text"),
    "a level that is no value": (lambda: dps.Category("c", [1, math.nan]), "must be finite"),
    "a level that floats round": (lambda: dps.Category("c", [1, 2**53]), r"below 2\*\*53"),
    "the label of missing cells": (
        lambda: dps.Category("c", ["a", "(missing)"], allow_missing=True), "reserved for missing"
    ),
}  # fmt: skip
CONDITIONS = {
    "b or not b": "is always True",
    "c == 'a' and c == 'b'": "is always False",
    "c < 'b'": "levels without an order",
    "c == 'z'": "is not a level of 'c'",
    "`no such` == 1": "no such",
    "x < 2": "cannot be measured exactly",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_also_a_column_that_cannot_be_declared(name, attempt, columns):
    make, says = COLUMNS[name]
    with pytest.raises(dps.SchemaError, match=says):
        attempt(columns=lambda: columns(make()))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_also_a_condition_that_cannot_be_measured(condition, attempt):
    with pytest.raises(dps.ConditionError, match=CONDITIONS[condition]):
        attempt(asked=condition)


def test_also_an_unknown_column(attempt):
    with pytest.raises(dps.RequestError, match="salary"):
        attempt(analyses={"a": dps.Marginals(["salary"])})


def test_also_a_degree_below_one_or_above_p(attempt):
    for degree in [0, -1, 3, 1.0, True, None, "2"]:
        for form in ["cells", "monomials"]:
            bools = [dps.Boolean("b"), dps.Boolean("c")]
            with pytest.raises(dps.RequestError, match="degree must be a whole number from 1"):
                attempt(columns=bools, analyses={"m": dps.Marginals(["b", "c"], degree, form)})


def test_also_negative_zero_or_unknown_shares(attempt):
    for shares in [{"p": -1, "q": 1}, {"p": 0, "q": 1}, {"p": math.nan, "q": 1}, {"p": "1", "q": 1},
         {"p": True, "q": 1}, {"p": 1}, {"p": 1, "q": 1, "r": 1}, {}, [1, 1], 1]:  # fmt: skip
        analyses = {"p": dps.Proportion("b"), "q": dps.Proportion("c == 'a'")}
        with pytest.raises(dps.RequestError, match="share"):
            attempt(analyses=analyses, shares=shares)
    for share in [0, -1, 1, 2, math.nan, "auto", "1/0", True, None]:
        with pytest.raises(dps.RequestError, match=r"PerturbedHistogram\(share="):
            attempt(reference=dps.PerturbedHistogram(share))


def test_also_no_or_negative_rows_or_candidates(simple_plan, attempt):
    measured = dps.measure(simple_plan(), SURVEY)
    for k in [0, -1, 1.0, True, "1"]:
        with pytest.raises(dps.RequestError, match="positive whole number"):
            attempt(n=k)
        for size in ["k", "m"]:
            with pytest.raises(dps.RequestError, match=f"{size} must be a positive whole number"):
                dps.synthesize(measured, **{size: k})


def test_also_alpha_outside_zero_and_one(simple_plan):
    release = dps.synthesize(dps.measure(simple_plan(), SURVEY), m=50, rng=1)
    for alpha in [0, 0.0, 1, -0.1, 1.5, 5, math.nan, math.inf]:
        for call in (release.accuracy, release.infer("p").conf_int):
            with pytest.raises(dps.RequestError, match="alpha"):
                call(alpha=alpha)


def test_also_a_ledger_of_another_kind_or_none(attempt, tmp_path):
    path = tmp_path / "ledger"
    header = {"dpstats_ledger": 2, "kind": "renyi", "cap": "2", "unit": "replace", "digest": ""}
    path.write_text(json.dumps(header) + "\n")
    with pytest.raises(dps.FileFormatError, match="unknown kind of budget"):
        attempt(ledger=path)
    with pytest.raises(dps.BudgetError, match="this ledger of kind 'zcdp' counts rho"):
        attempt(ledger=dps.Ledger.create(tmp_path / "zcdp", dps.ZCDP(1)))
    with pytest.raises(dps.RequestError, match="no ledger"):
        attempt(ledger=tmp_path / "missing")
