"""Functions of subgroups and parts of numbers: exact sums, and what has no sensitivity."""

import itertools

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.ball_moments import BallMoments
from dpstats.families.group_moments import TO_MOMENTS, GroupMoments, PairMoments
from dpstats.families.moments import Moments
from dpstats.families.subgroups import EVERY_CELL, Subgroup
from dpstats.families.tables.lattice import KernelLattice
from dpstats.measured.strategy import MOST_WEIGHTED_ROWS, SAFE_TOTAL
from dpstats.schema.design import STEPS

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=5, edges=[0], allow_missing=True),
    dps.Number("y", 0, 2, points=3, allow_missing=True),
    dps.Number("z", 0, 1, points=3, missing=0),
    dps.Boolean("b"),
    dps.Category("c", ["one", "two"], allow_missing=True),
])  # fmt: skip


def test_sums_are_those_of_the_complete_cases():
    rng = np.random.default_rng(0)
    codes = {c.name: rng.integers(c.code_range[0], c.code_range[1] + 1, 200) for c in SCHEMA}
    block = Moments.of(SCHEMA, ["x", "y"], given="not b")
    kept = (codes["x"] <= 2) & (codes["y"] <= 1) & (codes["b"] == 0)
    x, y = codes["x"][kept], codes["y"][kept]
    expected = [x.sum(), y.sum(), (x * x).sum(), (x * y).sum(), (y * y).sum(), kept.sum()]
    assert block.sums(codes).tolist() == expected
    parts = GroupMoments(SCHEMA["x"], (Subgroup.of(SCHEMA, "not b", ["x"]),)).sums(codes) / 16
    own = codes["x"][(codes["x"] <= 2) & (codes["b"] == 0)] / 2
    np.testing.assert_allclose(TO_MOMENTS @ parts, [len(own), own.sum(), (own**2).sum()])


ALL = (Subgroup(EVERY_CELL),)
PLAIN = GroupMoments.by(SCHEMA["x"], SCHEMA["c"], (0, 2)).to_dict()
B_OR_ONE = (Subgroup.of(SCHEMA, "b", []), Subgroup.of(SCHEMA, "c == 'one'", []))


def number(name, points):
    return dps.Number(name, 0, 1, points=points, missing=0)


def test_what_would_break_the_sensitivity_is_refused():
    for make, message in [
        (lambda: Moments((SCHEMA["x"],), ((("x", None),),)), "need a value in every row"),
        (lambda: GroupMoments.by(SCHEMA["b"], SCHEMA["c"], (0, 1)), "not a number"),
        (lambda: GroupMoments.by(SCHEMA["x"], SCHEMA["x"], (0, 1)), "own groups"),
        (lambda: GroupMoments.by(SCHEMA["z"], SCHEMA["c"], (1, 0)), "increasing"),
        (lambda: GroupMoments.by(SCHEMA["z"], SCHEMA["c"], (0, 4)), "below 3"),
        (lambda: block_from_dict(PLAIN | {"groups": 2 * PLAIN["groups"]}, SCHEMA), "in common"),
        (lambda: Moments((SCHEMA["z"],), ((),)), "distinct terms"),
        (lambda: BallMoments.of(SCHEMA, ["x", "z"], 0.5), "declare missing= instead"),
        (lambda: KernelLattice((SCHEMA["x"],), 2, 0.2), "declare missing= instead"),
        (lambda: GroupMoments(SCHEMA["x"], (Subgroup.of(SCHEMA, "b", ["y"]),)), "allow_missing"),
        (lambda: Subgroup.of(SCHEMA, "x == '(missing)'", ["x"]), "no row with .* a value of 'x'"),
        (lambda: Subgroup.of(SCHEMA, "b or not b", ["x"]), "always True"),
        (lambda: Subgroup(Subgroup.of(SCHEMA, "b", []).cells, (SCHEMA["z"],)), "in every row"),
        (lambda: GroupMoments(SCHEMA["z"], B_OR_ONE), "without a row in common"),
        (lambda: PairMoments((SCHEMA["z"],) * 2, ALL), "different numbers"),
        (lambda: PairMoments((SCHEMA["z"], number("q", 3)), ALL * 2), "different numbers"),
        (lambda: PairMoments((SCHEMA["z"], number("q", 3)), ()), "different numbers"),
        (lambda: PairMoments((SCHEMA["z"], SCHEMA["x"]), ALL), "allow_missing"),
    ]:  # fmt: skip
        with pytest.raises(RequestError, match=message):
            make()


SIZES = (2, 3, 63, 64, 129, 1_001, 1_025, 4_001)


def test_parts_of_two_numbers_add_up_and_keep_sums_and_squares():
    for points in SIZES:
        first, second = number("a", points), number("b", 3)
        block = PairMoments((first, second), ALL)
        codes = np.array(list(itertools.product(first.codes_in_use, (-1, 0, 1)))).T
        values = block.functions({"a": codes[0], "b": codes[1]}).reshape(3, 3, -1)
        bound = block.bounds[0]
        assert values.min() == 0
        assert np.all(values.sum((0, 1)) == bound)
        assert values.max() == bound  # a row of corners has all of its weight on one part
        a, b = codes[0] / first.half_points, codes[1]
        found = np.einsum("ia,ab...,jb->ij...", TO_MOMENTS, values / bound, TO_MOMENTS)
        np.testing.assert_allclose(found[1, 0], a, atol=1e-12)
        np.testing.assert_allclose(found[:2, 1], [b, a * b], atol=1e-12)
        np.testing.assert_allclose(found[2, 0], a**2, atol=1e-3 if points > 63 else 1e-12)
        np.testing.assert_allclose(found[0, 2], b**2, atol=1e-12)


def test_sums_are_exact_for_the_largest_surveys():
    for pair in itertools.combinations(SIZES, 2):
        block = PairMoments((number("a", pair[0]), number("b", pair[1])), ALL)
        assert int(block.bounds.max()) * STEPS * MOST_WEIGHTED_ROWS < SAFE_TOTAL
    fine = dps.Schema([number("a", 100_001), number("b", 100_001)])
    with pytest.raises(RequestError, match="too fine"):
        dps.plan(fine, {"r": dps.Ratio("a", "b")}, budget=dps.PureDP(1), unit="add_remove")
