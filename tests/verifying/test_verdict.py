"""Every comparison of the program is sharp: what is just wrong is not agreed with."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.privacy.noise import scale_for
from dpstats.verifying import arguing
from dpstats.verifying.blocks import Finding
from dpstats.verifying.noise import prove_delta, quantile_of_sum, scale_of, variance
from dpstats.verifying.shapes import NotReadError


def test_the_scale_is_the_smallest_float_that_is_large_enough():
    for power, kind in ((1, "laplace"), (2, "gaussian")):
        for bound, part in itertools.product((1, 3, 10**8 + 7), (Fraction(1, 3), Fraction(9, 4))):
            exact, found = part * bound**power, scale_of(part, bound, power)
            below = math.nextafter(found, 0.0)
            assert Fraction(below) ** power < exact <= Fraction(found) ** power
            assert found == scale_for(part, bound, kind)


def test_sums_of_noises_have_the_laws_of_the_package():
    kinds = ((1, dps.PureDP(1)), (2, dps.ZCDP(1)))
    for (power, budget), terms, scale in itertools.product(kinds, (1, 7), (0.2, 1.2, 5e4)):
        law = budget.law(scale, terms)
        assert variance(scale, power) * terms == pytest.approx(law.variance, rel=1e-9), law
        for beta in (0.3, 0.01, 1e-6):
            assert quantile_of_sum(scale, power, terms, beta) == law.quantile(beta), law
    assert variance(1e-5, power=1) == pytest.approx(0, abs=1e-300)  # as good as none


def test_the_curve_is_above_that_of_exact_sums_and_just_above_that_of_the_package():
    for scale, epsilon in ((4.0, 1.0), (9.0, 0.5)):  # one sum that moves by 1
        p = np.exp(-(np.arange(-540, 541) ** 2) / (2 * scale**2))
        p /= p.sum()
        exact = np.clip(p[1:] - np.exp(epsilon) * p[:-1], 0, None).sum()
        found, _ = prove_delta(1 / (2 * Fraction(scale) ** 2), Fraction(repr(epsilon)))
        assert 0.6 * float(found) < exact <= float(found), scale
    budget = dps.ApproxDP(1, Fraction(1, 10**6))
    for times, enough in ((1, True), (Fraction(1002, 1000), False)):
        assert (prove_delta(times * budget.rho, Fraction(1))[0] <= budget.delta) == enough, times


def test_a_cost_at_the_budget_and_just_above(whole, judge, monkeypatch):
    for reached, bound, how in [
        ("1/2", "1", "agrees"),
        ("1", "1", "agrees"),
        ("1", "1000001/1000000", "undecided"),
        ("999999/1000000", "2", "undecided"),
        ("1000001/1000000", "1000001/1000000", "wrong"),
        ("1000001/1000000", "2", "wrong"),
    ]:
        found = Finding(Fraction(reached), Fraction(bound), "")
        monkeypatch.setattr(arguing, "find", lambda *given, found=found: found)
        verdict = judge(whole(dps.PureDP(1), "replace", "smoking"))
        assert (verdict.agrees, bool(verdict.undecided), bool(verdict.wrong)) == (
            how == "agrees", how == "undecided", how == "wrong",
        )  # fmt: skip
        last = verdict.text.splitlines()[-1]
        assert last.startswith("Not decided: rows reach a cost of") == (how == "undecided")


def double_noise(plain):
    plain["blocks"][0]["multiplier"] = str(2 * Fraction(plain["blocks"][0]["multiplier"]))


def a_block_twice(plain):
    """Three times the same condition: what they are for is known of two at most."""
    plain["blocks"][:0] = [dict(plain["blocks"][0]), dict(plain["blocks"][0])]
    plain["budget"]["epsilon"] = str(3 * Fraction(plain["budget"]["epsilon"]))


def without_the_count(plain):
    count = plain["blocks"].pop()
    left = Fraction(plain["budget"]["epsilon"]) - 1 / Fraction(count["multiplier"])
    plain["budget"]["epsilon"] = str(left)


def test_plans_that_spend_their_budget(whole, judge):
    for relation, change, says in [
        ("replace", a_block_twice, "a block is in the file twice"),
        ("add_remove", without_the_count, "if and only if neighbours add a row"),
        ("replace", double_noise, None),
    ]:
        plain = whole(dps.PureDP(1), relation, "smoking").to_dict()
        change(plain)
        verdict = judge(plain)
        assert verdict.agrees == (says is None)
        assert says is None or says in verdict.wrong[0]


def test_a_plan_that_leaves_out_what_its_start_measured(whole, rows, judge):
    """The noise that it states for a block was not the one that was drawn."""
    first = dps.release(whole(dps.PureDP(1), "replace", "logs"), rows, m=60, rng=1)
    asked = {"logs": replace(first.analyses["logs"], stages=2)}
    plain = dps.plan(first.schema, asked, budget=dps.PureDP(1), start=first).to_dict()
    right = judge(plain)
    assert right.agrees, right.text
    assert right.bound == 2
    edited = json.loads(json.dumps(plain))
    text = edited["start"]["measurements.json"]
    edited["start"]["measurements.json"] = text.replace(
        '"not_private": false', '"not_private": true'
    )
    assert edited != plain
    assert not judge(edited).agrees
    double_noise(plain)
    verdict = judge(plain)
    assert verdict.bound < 2
    assert "the measurements that the plan adds to" in verdict.wrong[0]


def test_the_cost_of_residuals(monkeypatch, whole, judge):
    """No more and no less than all of them together cost."""
    plain = whole(dps.ZCDP(1), "replace", "tables").to_dict()
    assert judge(plain).bound == 1
    real = arguing.residuals_together
    monkeypatch.setattr(arguing, "residuals_together", lambda *given: real(*given) / 2)
    assert judge(plain).bound < 1
    for block in plain["blocks"]:
        if block["kind"] == "residual":
            block["multiplier"] = str(Fraction(block["multiplier"]) / 3)
    assert judge(plain).wrong


def test_a_promise_of_too_small_an_epsilon(whole, judge):
    plan = whole(dps.ApproxDP(2, 1e-6), "replace", "smoking").to_dict()
    plan["budget"]["epsilon"] = "199/100"
    assert "it is not proven that rho = " in judge(plan).wrong[0]


def test_terms_that_are_others_in_disguise_are_refused(whole, judge):
    """A bound counts every product once."""
    plan = whole(dps.PureDP(1), "replace", "line").to_dict()
    block = next(one for one in plan["blocks"] if one["kind"] == "moments")
    level = next(term for term in block["terms"] if len(term) == 1 and term[0][1] is not None)
    pair = next(term for term in block["terms"] if len(term) == 2 and term[0] != term[1])
    for more, why in [(pair[::-1], "a term twice"), (level * 2, "two levels or signs")]:
        changed = {**block, "terms": [*block["terms"], more]}
        blocks = [changed if one is block else one for one in plan["blocks"]]
        with pytest.raises(NotReadError, match=why):
            judge({**plan, "blocks": blocks})


def test_values_of_missing_cells_are_refused(whole, judge):
    plan = whole(dps.PureDP(1), "replace", "rents").to_dict()
    for group in plan["blocks"][0]["groups"]:
        group["answered"] = []
    with pytest.raises(NotReadError, match="cells that may be missing"):
        judge(plan)
