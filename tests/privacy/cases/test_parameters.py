"""Section A: parameters. What is refused is refused before a row is read."""

import math
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.families.tables.cells import Indicator
from dpstats.privacy.neighbours import Sensitivity
from dpstats.private import measure as measuring

SURVEY = pd.DataFrame({"c": ["a", "b", "z"], "b": [True, False, True], "x": [0.0, 2.5, 4.0]})


def refuses(error, match, call, *given, **options):
    with pytest.raises(error, match=match):
        call(*given, **options)


def test_p01_epsilon_that_is_no_budget(attempt):
    said = "must be a positive finite number"
    for wrong in [0, -1, math.nan, math.inf, True, None, "1", 1j, np.True_, Decimal("NaN"),
                  Fraction(-1, 3)]:  # fmt: skip
        refuses(dps.BudgetError, f"epsilon {said}", attempt, epsilon=wrong)
        refuses(dps.BudgetError, f"rho {said}", dps.ZCDP, wrong)
    for delta in [0, 1, math.nan, True, None, "1"]:
        for make in (dps.ZCDP, dps.ZCDP.from_epsilon_delta, dps.ApproxDP):
            refuses(dps.BudgetError, "delta must be", make, 1, delta)


def test_p02_p06_budgets_with_a_scale_out_of_range(attempt, simple_plan):
    for epsilon in [1e-16, 5e-324, Fraction(1, 10**400)]:
        said = "use a coarser grid or a larger budget"
        refuses(dps.BudgetError, said, attempt, epsilon=epsilon)
    refuses(dps.BudgetError, "use a smaller budget", attempt, epsilon=1e9)
    plain = simple_plan().to_dict()
    for plain["blocks"][0]["multiplier"] in ["0", "-1", "nan", "1/0"]:
        refuses(dps.DpstatsError, "positive fraction", dps.Plan.from_dict, plain)


def test_p05_sensitivity_that_is_no_positive_rational(attempt, asking, monkeypatch, small_schema):
    asked = {"p": asking(dps.Cells.condition(small_schema, "b"))}
    for l1 in [0, Fraction(-1, 2), 2.0, True, None]:
        for kind in (Indicator, dps.Family):
            wrong = Sensitivity(l1, Fraction(1))
            monkeypatch.setattr(kind, "sensitivity", lambda self, unit, wrong=wrong: wrong)
        refuses(dps.BudgetError, "must be a positive int or Fraction", attempt, analyses=asked)


def test_p07_a_budget_of_another_kind(small_schema):
    asked = {"p": dps.Proportion("b")}
    nonsense = SimpleNamespace(kind="zcdp", rho=Fraction(1), total=Fraction(1))
    said = r"budget must be a dps\.PureDP.*dps\.ZCDP\(rho\)"
    refuses(dps.RequestError, said, dps.plan, small_schema, asked, budget=nonsense)
    plain = dps.plan(small_schema, asked, budget=dps.ZCDP(2)).to_dict()
    for plain["budget"] in (
        {"kind": "zcdp", "rho": "1"},
        dps.ApproxDP(1, 1e-9).to_dict(),
        {"kind": "pure", "epsilon": "2"},  # the multiplier would be a scale: 1/4 and not 2
    ):
        refuses(dps.BudgetError, "edited by hand", dps.Plan.from_dict, plain)


def test_p08_an_empty_family(attempt, asking):
    for analyses, said in [
        ({"nothing": asking()}, "family of test functions is empty"),
        ({}, "non-empty mapping"),
        ({"m": dps.Marginals([])}, "non-empty list"),
    ]:
        refuses(dps.RequestError, said, attempt, analyses=analyses)


def test_p09_the_same_function_asked_twice_is_measured_once(exact, small_schema):
    def planned(**asked):
        return dps.plan(small_schema, asked, budget=dps.PureDP(1))

    once = planned(p=dps.Proportion("b"))
    spelled = ["b", "  b == True", "not (not b)", "b in [True]"]
    twice = planned(**{text: dps.Proportion(text) for text in spelled})
    assert twice.blocks == once.blocks
    assert twice.cost() == once.cost() == 1
    assert exact(twice, SURVEY) == exact(once, SURVEY) == [[2]]
    assert planned(p=dps.Proportion("b"), q=dps.Proportion("not b")).family.size == 1
    assert planned(t=dps.Marginals(["c", "b"]), u=dps.Marginals(["b", "c"])).family.size == 6


def test_p10_an_unknown_neighbour_relation(attempt, simple_plan):
    said = "unit must be 'replace' or 'add_remove'"
    for unit in [None, "Replace", "bounded", 1, ["replace"], True]:
        refuses(dps.RequestError, said, attempt, unit=unit)
    plain = simple_plan().to_dict()
    assert plain.pop("unit") == "replace"  # it is stated, never left to a default
    refuses(dps.FileFormatError, "unit", dps.Plan.from_dict, plain)


def test_p11_a_budget_exceeded_across_two_calls(attempt, ledger, monkeypatch, simple_plan):
    dps.measure(simple_plan(0.7), SURVEY, ledger=ledger.path)
    on_disk = ledger.path.read_bytes()
    assert b'"7/10"' in on_disk
    monkeypatch.setattr(measuring, "_noisy", lambda *args: pytest.fail("noise was drawn"))
    said = r"requested 0\.5 \(1/2\), remaining 0\.3 \(3/10\)"
    refuses(dps.BudgetError, said, attempt, epsilon=0.5, ledger=ledger.path)
    assert ledger.path.read_bytes() == on_disk
    assert ledger.remaining == Fraction(3, 10)


def test_the_proof_that_no_row_was_read_can_fail(unread, simple_plan):
    stream = unread(("c", pa.string()), ("b", pa.bool_()), ("x", pa.float64()))
    refuses(dps.DataError, "no rows", dps.measure, simple_plan(), stream)
    assert stream.read
    stream.read = False  # as the test meant it to be


def test_also_shares_sizes_and_alpha_that_cannot_be(attempt, simple_plan):
    analyses = {"p": dps.Proportion("b"), "q": dps.Proportion("c == 'a'")}
    for shares in [{"p": -1, "q": 1}, {"p": 0, "q": 1}, {"p": math.nan, "q": 1},
                   {"p": True, "q": 1}, {"p": 1}, {"p": 1, "q": 1, "r": 1}, [1, 1]]:  # fmt: skip
        refuses(dps.RequestError, "share", attempt, analyses=analyses, shares=shares)
    for share in [0, 1, math.nan, "auto", True, None]:
        said = r"PerturbedHistogram\(share="
        refuses(dps.RequestError, said, dps.PerturbedHistogram, share)
    measured = dps.measure(simple_plan(), SURVEY)
    for size in [0, -1, 1.0, True, "1"]:
        refuses(dps.RequestError, "n must be a whole number", attempt, n=size)
        for name in ("k", "m"):
            said = f"{name} must be a whole number"
            refuses(dps.RequestError, said, dps.synthesize, measured, **{name: size})
    release = dps.synthesize(measured, m=50, rng=1)
    for alpha in [0, 0.0, 1, -0.1, 1.5, 5, math.nan, math.inf]:
        for call in (release.accuracy, release.infer("p").conf_int):
            refuses(dps.RequestError, "alpha", call, alpha=alpha)
