"""Section A, the rest: declarations and requests that are refused before a row is read."""

import json
import math

import pandas as pd
import pytest

import dpstats as dps

SURVEY = pd.DataFrame({"c": ["a", "b", "c"], "b": [True, False, True], "x": [0.0, 2.5, 4.0]})


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1, 1),
        (2, 1),
        (0, math.nan),
        (0, math.inf),
        (-1e308, 1e308),
        (None, 1),
        ("0", 1),
        (False, 1),
    ],
)
def test_also_low_not_below_high(low, high, attempt, columns):
    with pytest.raises(dps.SchemaError, match="'x'"):
        attempt(columns=lambda: columns(dps.Number("x", low, high)))


@pytest.mark.parametrize("points", [0, -3, 1, 2**20, 2**20 + 3, 10**30, 5.0, True, None, "5"])
def test_also_points_one_or_huge(points, attempt, columns):
    with pytest.raises(dps.SchemaError, match="points must be a whole number from 2"):
        attempt(columns=lambda: columns(dps.Number("x", 0, 4, points=points)))


@pytest.mark.parametrize(
    ("edges", "match"),
    [
        ([3, 1], "strictly increasing"),
        ([1, 1], "strictly increasing"),
        ([1, 1.0], "strictly increasing"),
        ([-1, 1], "inside the bounds"),
        ([1, 5], "inside the bounds"),
        ([0, 1], "inside the bounds"),
        ([1.2, 1.4], "holds no grid point"),
        ([1, math.nan], "finite"),
        ([1, math.inf], "finite"),
        ([True], "finite"),
        (["1"], "finite"),
        ("13", "list of numbers"),
        (3, "list of numbers"),
    ],
)
def test_also_edges_unsorted_duplicate_outside_or_too_close(edges, match, attempt, columns):
    with pytest.raises(dps.SchemaError, match=match):
        attempt(columns=lambda: columns(dps.Number("x", 0, 4, points=5, edges=edges)))


@pytest.mark.parametrize("levels", [["a", "a"], [1, 1.0], [True, True], {"u": 1, "v": 1.0}, ["a"]])
def test_also_duplicate_levels(levels, attempt, columns):
    with pytest.raises(dps.SchemaError, match=r"distinct|at least two levels"):
        attempt(columns=lambda: columns(dps.Category("c", levels)))


@pytest.mark.parametrize(
    "levels", [["a", 1], [0, False], [1, True], ["a", None], [1, math.nan], [1, math.inf],
               [None, None], [1, 2**53], [1, -(2.0**60)], [1j, 2]],
)  # fmt: skip
def test_also_levels_of_mixed_or_impossible_types(levels, attempt, columns):
    with pytest.raises(dps.SchemaError, match=r"must be (all text|finite|below 2\*\*53)"):
        attempt(columns=lambda: columns(dps.Category("c", levels)))


def test_also_a_level_equal_to_the_missing_label(attempt, columns):
    levels = ["a", "(missing)"]
    with pytest.raises(dps.SchemaError, match="reserved for missing cells"):
        attempt(columns=lambda: columns(dps.Category("c", levels, allow_missing=True)))


@pytest.mark.parametrize(
    "condition",
    ["b or not b", "b and not b", "c in ['a', 'b', 'c']", "c not in ['a', 'b', 'c']",
     "x < 1 and x >= 1", "c == 'a' and c == 'b'"],
)  # fmt: skip
def test_also_a_condition_that_is_always_true_or_false(condition, attempt):
    with pytest.raises(dps.ConditionError, match=r"is always (True|False)"):
        attempt(asked=condition)


def test_also_an_order_on_a_category(attempt):
    for condition in ["c < 'b'", "c >= 'a'", "b > False"]:
        with pytest.raises(dps.ConditionError, match="levels without an order"):
            attempt(asked=condition)


def test_also_an_unknown_level(attempt):
    for condition in ["c == 'z'", "c == 'A'", "c == 1", "c in ['a', 'z']"]:
        with pytest.raises(dps.ConditionError, match="is not a level of 'c'"):
            attempt(asked=condition)


def test_also_an_unknown_column(attempt):
    for analysis in [
        dps.Proportion("salary == 'a'"),
        dps.Proportion("`no such` == 1"),
        dps.Marginals(["salary"]),
    ]:
        with pytest.raises(dps.RequestError, match=r"salary|no such"):
            attempt(analyses={"a": analysis})


def test_also_a_number_compared_elsewhere_than_at_its_edges(attempt):
    for condition in ["x < 2", "x <= 1", "x == 1", "x > 3"]:
        with pytest.raises(dps.ConditionError, match="cannot be measured exactly"):
            attempt(asked=condition)


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


def test_also_a_bad_share_of_the_reference(attempt):
    for share in [0, -1, 1, 2, math.nan, "auto", "1/0", True, None]:
        with pytest.raises(dps.RequestError, match=r"PerturbedHistogram\(share="):
            attempt(reference=dps.PerturbedHistogram(share))


def test_also_no_or_negative_rows_or_candidates(simple_plan):
    for k in [0, -1, 1.0, True, "1"]:
        for size in ["k", "m"]:
            measured = dps.measure(simple_plan(), SURVEY)
            with pytest.raises(dps.RequestError, match=f"{size} must be a positive whole number"):
                dps.synthesize(measured, **{size: k})


def test_also_a_declared_n_that_is_no_count(attempt):
    for n in [0, -1, 1.0, True, "3"]:
        with pytest.raises(dps.RequestError, match="positive whole number"):
            attempt(n=n)


def test_also_alpha_outside_zero_and_one(simple_plan):
    for alpha in [0, 0.0, 1, -0.1, 1.5, 5, math.nan, math.inf]:
        release = dps.synthesize(dps.measure(simple_plan(), SURVEY), m=50, rng=1)
        for call in (release.accuracy, release.infer("p").conf_int):
            with pytest.raises(dps.RequestError, match="alpha"):
                call(alpha=alpha)


def test_also_a_ledger_of_another_kind(attempt, tmp_path):
    path = tmp_path / "ledger"
    header = {"dpstats_ledger": 2, "kind": "renyi", "cap": "2", "unit": "replace", "digest": ""}
    path.write_text(json.dumps(header) + "\n")
    with pytest.raises(dps.FileFormatError, match="unknown kind of budget"):
        attempt(ledger=path)
    ledger = dps.Ledger.create(tmp_path / "zcdp", dps.ZCDP(1))
    with pytest.raises(dps.BudgetError, match="this ledger of kind 'zcdp' counts rho"):
        attempt(ledger=ledger)


def test_also_a_ledger_that_does_not_exist(attempt, tmp_path):
    with pytest.raises(dps.RequestError, match="no ledger"):
        attempt(ledger=tmp_path / "missing")
