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
    [0, 0.0, -0.0, -1, math.nan, math.inf, -math.inf, True, False, None, "1", "", [1], 1j,
     np.float64("nan"), np.True_, Decimal("NaN"), Decimal("Infinity"), Fraction(-1, 3)],
    ids=repr,
)  # fmt: skip
def test_p01_epsilon_that_is_no_budget(epsilon, attempt):
    with pytest.raises(dps.BudgetError, match="epsilon must be a positive finite number"):
        attempt(epsilon=epsilon)


def test_p02_epsilon_so_small_that_the_scale_passes_2_to_the_52(attempt):
    for epsilon in [1e-16, 5e-324, Fraction(1, 10**400)]:
        with pytest.raises(dps.BudgetError, match="use a coarser grid or a larger budget"):
            attempt(epsilon=epsilon)


def test_p02_epsilon_so_small_for_the_products_of_a_grid(asking, attempt):
    fine = [dps.Number("x", 0, 4, points=2**20 + 1, missing=0)]
    block = dps.Moments.of(dps.Schema(fine), ["x"])
    with pytest.raises(dps.BudgetError, match="coarser grid"):
        attempt(columns=fine, analyses={"m": asking(block)}, epsilon=1e-4)


@pytest.fixture
def used(asking, columns):
    """Blocks of a plan with the smallest scale that was drawn, in units of a function's bound."""

    def blocks_and_scales(budget):
        schema = dps.Schema(columns())
        blocks = [dps.Cells.table(schema, ["c", "b"]), dps.Moments.of(schema, ["x"], ["c"])]
        analyses = {"all": asking(*blocks), "p": dps.Proportion("x < 1")}
        seen = []

        def source(scale, size):
            seen.append(scale)
            return np.zeros(size, np.int64)

        with noise._noise_from(source):
            measured = dps.measure(dps.plan(schema, analyses, budget=budget), SURVEY).measured
        assert set(seen) == set(np.concatenate([held.scales for held in measured]))
        for held in measured:
            low, high = held.block.ranges
            bounds = np.maximum(abs(low), abs(high)).tolist()
            scales = zip(held.scales.tolist(), bounds, strict=True)
            yield held.block, min(Fraction(scale) / bound for scale, bound in scales)

    return blocks_and_scales


def test_p03_the_scale_used_never_costs_more_than_epsilon(used):
    for epsilon in [1 / 3, Fraction(1, 3), 0.1, Decimal("0.3"), 7e-5]:
        spent = sum(block.sensitivity("replace").l1 / s for block, s in used(dps.PureDP(epsilon)))
        assert spent <= dps.PureDP(epsilon).total
        assert spent > dps.PureDP(epsilon).total * Fraction(999, 1000)  # and nothing is wasted


@pytest.mark.parametrize("l1", [0, Fraction(0), -1, Fraction(-1, 2), 0.5, 2.0, True, None])
def test_p05_sensitivity_that_is_no_positive_rational(l1, attempt, asking, monkeypatch, columns):
    block = dps.Cells.condition(dps.Schema(columns()), "b")
    wrong = Sensitivity(l1, Fraction(1))
    monkeypatch.setattr(type(block), "sensitivity", lambda self, unit: wrong)
    monkeypatch.setattr(dps.Family, "sensitivity", lambda self, unit: wrong)
    with pytest.raises(dps.BudgetError, match="must be a positive int or Fraction"):
        attempt(analyses={"p": asking(block)})


def test_p06_a_multiplier_edited_to_zero_is_refused(simple_plan):
    for text in ["0", "-1", "1e-400", "0.0", "nan", "", "1/0"]:
        plain = simple_plan().to_dict()
        plain["blocks"][0]["multiplier"] = text
        with pytest.raises(dps.DpstatsError, match="positive fraction"):
            dps.Plan.from_dict(plain)


def test_p06_a_budget_so_large_that_noise_vanishes_is_refused(attempt):
    with pytest.raises(dps.BudgetError, match="use a smaller budget"):
        attempt(epsilon=1e9)


def test_p07_the_scale_used_never_costs_more_than_rho(used):
    for rho in [1 / 3, Fraction(1, 3), 0.1, Decimal("0.3"), 7e-9, 3]:
        budget = dps.ZCDP(rho)
        _assert_spent(budget, used)


def test_p07_the_scale_used_never_costs_more_than_what_epsilon_and_delta_allow(used):
    for pair in [(1, 1e-9), (Fraction(1, 3), 1e-6)]:
        _assert_spent(dps.ApproxDP(*pair), used)


def _assert_spent(budget, used):
    # D^2 / (2 sigma^2)
    spent = sum(b.sensitivity("replace").l2_squared / (2 * s**2) for b, s in used(budget))
    assert spent <= budget.rho
    assert spent > budget.rho * Fraction(999_999, 1_000_000)  # and nothing is wasted


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


def test_p01_rho_that_is_no_budget():
    for rho in [0, -1, math.nan, math.inf, True, None, "1"]:
        with pytest.raises(dps.BudgetError, match="rho must be a positive finite number"):
            dps.ZCDP(rho)


@pytest.mark.parametrize("delta", [0, -1, 1, 2, math.nan, True, None, "1"])
def test_p01_delta_that_is_no_probability(delta):
    for call in (
        lambda: dps.ZCDP(1, delta),
        lambda: dps.ZCDP.from_epsilon_delta(1, delta),
        lambda: dps.ApproxDP(1, delta),
    ):
        with pytest.raises(dps.BudgetError, match="delta must be"):
            call()
    with pytest.raises(dps.BudgetError, match="epsilon must be a positive"):
        dps.ZCDP.from_epsilon_delta(delta if delta in (0, -1) else None, 1e-9)
    with pytest.raises(dps.BudgetError, match="epsilon must be a positive"):
        dps.ApproxDP(delta if delta in (0, -1) else None, 1e-9)


def test_p02_rho_so_small_or_large_that_the_scale_is_out_of_range(columns):
    for rho in [1e-40, 1e20]:
        with pytest.raises(dps.BudgetError, match=r"larger budget|smaller budget"):
            dps.plan(dps.Schema(columns()), {"p": dps.Proportion("b")}, budget=dps.ZCDP(rho))


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
    twice = dps.plan(
        schema,
        {
            "p": dps.Proportion("b"),
            "again": dps.Proportion("  b == True"),
            "spelled": dps.Proportion("not (not b)"),
            "list": dps.Proportion("b in [True]"),
        },
        budget=dps.PureDP(1),
    )
    assert twice.blocks == once.blocks
    assert twice.cost() == once.cost() == 1
    assert exact(twice, SURVEY) == exact(once, SURVEY) == [[2]]
    pair = {"p": dps.Proportion("b"), "complement": dps.Proportion("not b")}
    assert dps.plan(schema, pair, budget=dps.PureDP(1)).family.size == 1
    tables = {"t": dps.Marginals(["c", "b"]), "u": dps.Marginals(["b", "c"])}
    assert dps.plan(schema, tables, budget=dps.PureDP(1)).family.size == 6


def test_p10_an_unknown_neighbour_relation(attempt):
    for unit in [None, "", "Replace", "bounded", 1, ["replace"], True]:
        with pytest.raises(dps.RequestError, match="unit must be 'replace' or 'add_remove'"):
            attempt(unit=unit)


def test_p10_an_unknown_neighbour_relation_in_a_plan_file(simple_plan):
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
    "error",
    [
        dps.NoiseError("planted"),
        ValueError("planted"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("number", [2, 3])
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
