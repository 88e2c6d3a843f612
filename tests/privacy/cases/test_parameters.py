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
from dpstats.privacy import noise
from dpstats.privacy.neighbours import Sensitivity
from dpstats.private import measure as measuring

SURVEY = pd.DataFrame({"c": ["a", "b", "c"], "b": [True, False, True], "x": [0.0, 2.5, 4.0]})


@pytest.mark.parametrize(
    "epsilon",
    [0, -1, math.nan, math.inf, True, None, "1", 1j, np.True_, Decimal("NaN"), Fraction(-1, 3)],
    ids=repr,
)
def test_p01_epsilon_that_is_no_budget(epsilon, attempt):
    with pytest.raises(dps.BudgetError, match="epsilon must be a positive finite number"):
        attempt(epsilon=epsilon)
    with pytest.raises(dps.BudgetError, match="rho must be a positive finite number"):
        dps.ZCDP(epsilon)


@pytest.mark.parametrize("delta", [0, 1, math.nan, True, None, "1"])
def test_p01_delta_that_is_no_probability(delta):
    for make in (dps.ZCDP, dps.ZCDP.from_epsilon_delta, dps.ApproxDP):
        with pytest.raises(dps.BudgetError, match="delta must be"):
            make(1, delta)


def test_p02_epsilon_so_small_that_the_scale_passes_2_to_the_52(attempt):
    for epsilon in [1e-16, 5e-324, Fraction(1, 10**400)]:
        with pytest.raises(dps.BudgetError, match="use a coarser grid or a larger budget"):
            attempt(epsilon=epsilon)


@pytest.mark.parametrize("l1", [0, Fraction(-1, 2), 2.0, True, None])
def test_p05_sensitivity_that_is_no_positive_rational(l1, attempt, asking, monkeypatch, columns):
    block = dps.Cells.condition(dps.Schema(columns()), "b")
    wrong = Sensitivity(l1, Fraction(1))
    monkeypatch.setattr(type(block), "sensitivity", lambda self, unit: wrong)
    monkeypatch.setattr(dps.Family, "sensitivity", lambda self, unit: wrong)
    with pytest.raises(dps.BudgetError, match="must be a positive int or Fraction"):
        attempt(analyses={"p": asking(block)})


def test_p06_a_multiplier_edited_to_zero_is_refused(simple_plan):
    for text in ["0", "-1", "nan", "1/0"]:
        plain = simple_plan().to_dict()
        plain["blocks"][0]["multiplier"] = text
        with pytest.raises(dps.DpstatsError, match="positive fraction"):
            dps.Plan.from_dict(plain)


def test_p06_a_budget_so_large_that_noise_vanishes_is_refused(attempt):
    with pytest.raises(dps.BudgetError, match="use a smaller budget"):
        attempt(epsilon=1e9)


def test_p07_something_that_is_no_budget(columns):
    budget = SimpleNamespace(kind="zcdp", rho=Fraction(1), total=Fraction(1))
    with pytest.raises(dps.RequestError, match=r"budget must be a dps\.PureDP.*dps\.ZCDP\(rho\)"):
        dps.plan(dps.Schema(columns()), {"p": dps.Proportion("b")}, budget=budget)


def test_p07_a_plan_file_whose_budget_was_renamed_is_refused(columns):
    plan = dps.plan(dps.Schema(columns()), {"p": dps.Proportion("b")}, budget=dps.ZCDP(2))
    for budget in (
        {"kind": "zcdp", "rho": "1"},
        dps.ApproxDP(1, 1e-9).to_dict(),
        {"kind": "pure", "epsilon": "2"},  # the multiplier would be a scale: 1/4 and not 2
    ):
        with pytest.raises(dps.BudgetError, match="edited by hand"):
            dps.Plan.from_dict(plan.to_dict() | {"budget": budget})


def test_p08_an_empty_family(attempt, asking):
    with pytest.raises(dps.RequestError, match="family of test functions is empty"):
        attempt(analyses={"nothing": asking()})
    with pytest.raises(dps.RequestError, match="non-empty mapping"):
        attempt(analyses={})
    with pytest.raises(dps.RequestError, match="non-empty list"):
        attempt(analyses={"m": dps.Marginals([])})


def test_p09_the_same_function_asked_twice_is_measured_once(exact, columns):
    schema = dps.Schema(columns())
    once = dps.plan(schema, {"p": dps.Proportion("b")}, budget=dps.PureDP(1))
    spelled = ["b", "  b == True", "not (not b)", "b in [True]"]
    asked = {text: dps.Proportion(text) for text in spelled}
    twice = dps.plan(schema, asked, budget=dps.PureDP(1))
    assert twice.blocks == once.blocks
    assert twice.cost() == once.cost() == 1
    assert exact(twice, SURVEY) == exact(once, SURVEY) == [[2]]
    pair = {"p": dps.Proportion("b"), "complement": dps.Proportion("not b")}
    assert dps.plan(schema, pair, budget=dps.PureDP(1)).family.size == 1
    tables = {"t": dps.Marginals(["c", "b"]), "u": dps.Marginals(["b", "c"])}
    assert dps.plan(schema, tables, budget=dps.PureDP(1)).family.size == 6


def test_p10_an_unknown_neighbour_relation(attempt, simple_plan):
    for unit in [None, "Replace", "bounded", 1, ["replace"], True]:
        with pytest.raises(dps.RequestError, match="unit must be 'replace' or 'add_remove'"):
            attempt(unit=unit)
    plain = simple_plan().to_dict()
    assert plain.pop("unit") == "replace"  # it is stated, never left to a default
    with pytest.raises(dps.FileFormatError):
        dps.Plan.from_dict(plain)


def test_p11_a_budget_exceeded_across_two_calls(attempt, tmp_path, monkeypatch, simple_plan):
    path = tmp_path / "ledger"
    dps.Ledger.create(path, dps.PureDP(1))
    dps.measure(simple_plan(0.7), SURVEY, ledger=path)
    on_disk = path.read_bytes()
    assert b'"7/10"' in on_disk
    monkeypatch.setattr(measuring, "_noisy", lambda *args: pytest.fail("noise was drawn"))
    with pytest.raises(dps.BudgetError, match=r"requested 0\.5 \(1/2\), remaining 0\.3 \(3/10\)"):
        attempt(epsilon=0.5, ledger=path)
    assert path.read_bytes() == on_disk
    assert dps.Ledger.open(path).remaining == Fraction(3, 10)


def fails_at(number, error):
    """The real draw, which fails at its n-th call."""
    calls, draw = [], noise._opendp

    def drawn(sums, scale, kind):
        calls.append(scale)
        if len(calls) == number:
            raise error
        return draw(sums, scale, kind)

    return drawn


@pytest.mark.parametrize(
    ("error", "number"),
    [(dps.NoiseError("planted"), 2), (MemoryError(), 2), (KeyboardInterrupt(), 3)],
    ids=repr,
)
def test_p12_a_failure_after_noise_is_drawn_counts_as_spent(
    number, error, tmp_path, monkeypatch, simple_plan
):
    path = tmp_path / "ledger"
    dps.Ledger.create(path, dps.PureDP(1))
    monkeypatch.setattr(noise, "_opendp", fails_at(number, error))  # call 1 is the trial draw
    with pytest.raises((dps.NoiseError, KeyboardInterrupt)) as caught:
        dps.measure(simple_plan(0.7), SURVEY, ledger=path)
    if caught.type is dps.NoiseError:
        assert "counts as spent" in str(caught.value)
    assert dps.Ledger.open(path).spent == Fraction(7, 10)


def test_the_proof_that_no_row_was_read_can_fail(unread):
    stream = unread(("b", pa.bool_()))
    plan = dps.plan(dps.Schema([dps.Boolean("b")]), {"p": dps.Proportion("b")},
                    budget=dps.PureDP(1))  # fmt: skip
    with pytest.raises(dps.DataError, match="no rows"):
        dps.measure(plan, stream)
    assert stream.read
    stream.read = False  # as the test meant it to be


def test_also_negative_zero_or_unknown_shares(attempt):
    analyses = {"p": dps.Proportion("b"), "q": dps.Proportion("c == 'a'")}
    for shares in [{"p": -1, "q": 1}, {"p": 0, "q": 1}, {"p": math.nan, "q": 1},
                   {"p": True, "q": 1}, {"p": 1}, {"p": 1, "q": 1, "r": 1}, [1, 1]]:  # fmt: skip
        with pytest.raises(dps.RequestError, match="share"):
            attempt(analyses=analyses, shares=shares)
    for share in [0, 1, math.nan, "auto", True, None]:
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
