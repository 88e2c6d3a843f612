"""Planted errors in the package, which the program sees."""

from fractions import Fraction

import pytest

import dpstats as dps
from dpstats.families.ball_moments import BallMoments
from dpstats.families.group_moments import GroupMoments, PairMoments
from dpstats.families.losses.block import LossBlock
from dpstats.families.moments import Moments
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.cells import Indicator, Table
from dpstats.families.tables.inside_bins import BinOffsets
from dpstats.families.tables.lattice import KernelLattice
from dpstats.privacy.neighbours import Sensitivity
from dpstats.verifying import arguing
from dpstats.verifying.shapes import NotReadError

CLAIMS = {
    Table: "ages", Indicator: "smoking", Moments: "many", GroupMoments: "rents",
    PairMoments: "rates", BallMoments: "ball", BinOffsets: "offsets", LossBlock: "huber",
    PilotScore: "odds", KernelLattice: "",
}  # fmt: skip


@pytest.mark.parametrize(("number", "kind"), list(enumerate(CLAIMS)))
def test_half_a_claim(monkeypatch, whole, judge, number, kind):
    """Of either relation and norm in turn."""
    unit, budget = [("replace", dps.PureDP(2)), ("add_remove", dps.ZCDP(2))][number % 2]
    name, right = CLAIMS[kind], kind.sensitivity
    options = {} if name else {"reference": dps.BernsteinKDE(["age"], k=4)}
    monkeypatch.setattr(kind, "sensitivity", lambda self, unit: Sensitivity(
        right(self, unit).l1 / 2, right(self, unit).l2_squared / 2))  # fmt: skip
    verdict = judge(whole(budget, unit, name or "ages", **options))
    assert not verdict.agrees
    assert verdict.bound > budget.total
    assert "agrees" not in verdict.text.splitlines()
    if kind is not PilotScore:  # whose pilot is not known yet
        assert verdict.reached > budget.total
        assert "is claimed too small" in verdict.text


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
