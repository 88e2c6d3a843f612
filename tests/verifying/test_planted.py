"""Planted errors: in the package, which the program sees, and in the program."""

from contextlib import suppress
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
from dpstats.measured import answers
from dpstats.measured import certificate as certified
from dpstats.privacy.neighbours import Sensitivity
from dpstats.verifying import arguing, blocks, columns, kinds, products, reading
from dpstats.verifying.arguing import verify
from dpstats.verifying.shapes import NotReadError

CLAIMS = {
    "table": (Table, "ages"),
    "condition": (Indicator, "smoking"),
    "moments": (Moments, "many"),
    "group_moments": (GroupMoments, "rents"),
    "pair_moments": (PairMoments, "rates"),
    "ball_moments": (BallMoments, "ball"),
    "bin_offsets": (BinOffsets, "offsets"),
    "losses": (LossBlock, "huber"),
    "pilot_score": (PilotScore, "odds"),
    "kernel_lattice": (KernelLattice, ""),
}


def half(method):
    def sensitivity(self, unit):
        found = method(self, unit)
        return Sensitivity(found.l1 / 2, found.l2_squared / 2)

    return sensitivity


@pytest.mark.parametrize(("number", "claim"), list(enumerate(CLAIMS)))
def test_half_a_claim(monkeypatch, whole, judge, number, claim):
    """Of either relation and norm in turn."""
    unit, budget = [("replace", dps.PureDP(2)), ("add_remove", dps.ZCDP(2))][number % 2]
    kind, name = CLAIMS[claim]
    options = {} if name else {"reference": dps.BernsteinKDE(["age"], k=4)}
    monkeypatch.setattr(kind, "sensitivity", half(kind.sensitivity))
    verdict = judge(whole(budget, unit, name or "ages", **options))
    assert not verdict.agrees
    assert verdict.bound > budget.total
    assert "agrees" not in verdict.text.splitlines()
    if claim != "pilot_score":  # whose pilot is not known yet
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


def test_a_claim_between_what_is_reached_and_the_bound(whole, judge):
    plan = whole(dps.PureDP(1), "replace", "ball").to_dict()
    lower = Fraction(99, 100)
    for block in plan["blocks"]:
        block["multiplier"] = str(Fraction(block["multiplier"]) * lower)
    verdict = judge(plan)
    assert verdict.undecided
    assert not verdict.wrong
    assert not verdict.agrees
    assert verdict.text.splitlines()[-1].startswith("Not decided: rows reach a cost of")


def test_a_promise_of_too_small_an_epsilon(whole, judge):
    plan = whole(dps.ApproxDP(2, 1e-6), "replace", "smoking").to_dict()
    plan["budget"]["epsilon"] = "199/100"
    assert "it is not proven that rho = " in judge(plan).wrong[0]


def test_terms_that_are_others_in_disguise_are_refused(whole, judge):
    """A bound counts every product once."""
    plan = whole(dps.PureDP(1), "replace", "line").to_dict()
    (block, *_) = [one for one in plan["blocks"] if one["kind"] == "moments"]
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


@pytest.mark.parametrize("names", [("smoking", "ages"), ("tables", "pair")])
def test_quantiles_of_half_the_noise(monkeypatch, whole, rows, tmp_path, names):
    for module in (certified, answers):
        right = module.joint_quantiles
        monkeypatch.setattr(
            module, "joint_quantiles", lambda *given, right=right: right(*given) // 2
        )
    bounds = answers.Answers.quantiles
    monkeypatch.setattr(answers.Answers, "quantiles", lambda *given: bounds(*given) / 2)
    release = dps.release(whole(dps.ZCDP(0.5), "replace", *names), rows, m=60, rng=1)
    release.save(tmp_path / "release.zip")
    assert [one for one in verify(tmp_path / "release.zip").wrong if "certificate" in one]


# Errors in the program: the comparison with the package sees each of them.
REAL = {
    name: getattr(module, name)
    for module, names in {
        blocks: ["find"],
        kinds: ["cell_of", "feature_value", "multiply"],
        reading: ["read_column"],
    }.items()
    for name in names
}
CODES = blocks.Block.codes
# By the analysis whose blocks show them.
PLANTS = {
    "skip a code": ("smoking", blocks.Block, "codes", lambda self: [c[1:] for c in CODES(self)]),
    "skip missing cells": ("rates", reading, "read_column", lambda plain: REAL["read_column"](
        {**plain, "allow_missing": False})),
    "shift the bins": ("ages", columns, "bisect_right", lambda edges, x: (
        sum(e < x for e in edges))),
    "forget the coarse grid": ("line", kinds, "COARSE", 2**20),
    "forget the answered": ("means", kinds.Group, "holds", lambda self, row: (
        REAL["cell_of"](self.columns, row) in self.cells)),
    "never shrink": ("ball", kinds, "shrink", lambda point: (point, False)),
    "full height on faces": (None, kinds, "kernel", lambda *given: 512),
    "sets of one": ("rates", blocks, "by_sets", lambda *given: Fraction(1)),
    "one pair of losses": ("far", blocks, "divide", lambda *given: (1, 1)),
    "another loss": ("huber", kinds, "loss_of", lambda loss, y, t: abs(y - t)),
    "one of two norms": ("pair", blocks, "find", lambda block, unit, power: (
        REAL["find"](block, unit, 3 - power))),
    "half of moments": ("many", products, "_bound_all_few", lambda *given: Fraction(1)),
    "half of long products": ("line", products, "_by_patterns", lambda *given: Fraction(1)),
    "other signs": ("graph", kinds, "feature_value", lambda *given: (
        abs(REAL["feature_value"](*given)))),
    "one factor": ("tables", kinds, "multiply", lambda plain, columns, axes, groups=None: (
        REAL["multiply"](plain, columns, axes[:1], groups))),
    "norms of one": ("rates", kinds.Axis, "norms", (Fraction(1, 2), Fraction(1, 4), False)),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_an_error_in_the_program(monkeypatch, whole, differences, plant):
    analysis, *place = PLANTS[plant]
    lattice = {} if analysis else {"reference": dps.BernsteinKDE(["age"], k=3)}
    plan = whole(dps.PureDP(1), "replace", analysis or "ages", **lattice)
    monkeypatch.setattr(*place)
    with suppress(NotReadError):  # which is to see it too
        assert differences(plan)
