"""Coarse third and fourth moments: rounded grids, and a sensitivity that bounds brute force."""

import math
from fractions import Fraction

import numpy as np

import dpstats as dps
from dpstats.families import block_from_dict
from dpstats.families.coarse_moments import third_and_fourth_powers
from dpstats.families.moments import Moments

SCHEMA = dps.Schema([
    dps.Number("a", 0, 4, points=5, missing=0), dps.Number("b", -1, 1, points=3, missing=0),
    dps.Number("y", 0, 2, points=3, missing=0), dps.Category("g", ["n", "s", "w"]),
    dps.Boolean("t"),
])  # fmt: skip
A, B = ("a", None), ("b", None)

FINE = dps.Schema([dps.Number(name, -1, 1, points=1001, missing=0) for name in "ab"])


def test_coarse_blocks_round_to_the_nearest_step_and_keep_their_own_answers():
    """To 64 steps on either side, halves away from the middle; the same by exact fractions."""
    block = Moments.of_terms(FINE, [(A, A, A), (A, A, A, A), (A, B)], coarse=True)
    codes = {name: np.arange(-500, 501) for name in "ab"}
    steps = [
        int(np.sign(c)) * math.floor(Fraction(64 * abs(int(c)), 500) + Fraction(1, 2))
        for c in codes["a"]
    ]
    wanted = [sum(s**3 for s in steps), sum(s**4 for s in steps), sum(s * s for s in steps)]
    assert block.sums(codes).tolist() == wanted
    np.testing.assert_array_equal(block.evaluate(codes).matrix().toarray().sum(axis=1), wanted)
    np.testing.assert_array_equal(block.bounds, [64**3, 64**4, 64**2])
    assert block_from_dict(block.to_dict(), FINE) == block
    assert block.restrict(np.array([True, True, False])).coarse
    fine = Moments.of_terms(FINE, block.terms)
    assert fine.derive(block) is None
    assert block.derive(fine) is None
    assert block.derive(block) is not None


def test_coarse_blocks_leave_grids_of_few_steps_alone():
    terms = [(A, A, B), (A, A, B, B)]
    codes = {"a": np.array([-2, 1, 2]), "b": np.array([1, -1, 0])}
    fine, coarse = (Moments.of_terms(SCHEMA, terms, coarse=c) for c in (False, True))
    np.testing.assert_array_equal(fine.sums(codes), coarse.sums(codes))
    assert fine.sensitivity("replace") == coarse.sensitivity("replace")


def test_powers_of_two_values_are_not_measured():
    two = dps.Schema([dps.Number("x", values=[0, 5], missing=0), *FINE])
    assert third_and_fourth_powers(two, ["x"]) is None
    block = third_and_fourth_powers(two, ["x", "a"])
    assert block.names == ["a^3", "a^4"]
