"""The parts of two numbers: products that are not negative and add up, on coarse and fine grids."""

import itertools

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.group_moments import TO_MOMENTS, PairMoments
from dpstats.families.subgroups import EVERY_CELL, Subgroup
from dpstats.measured.strategy import MOST_WEIGHTED_ROWS, SAFE_TOTAL
from dpstats.schema.design import STEPS

ALL = (Subgroup(EVERY_CELL),)
SIZES = (2, 3, 63, 64, 129, 1_001, 1_025, 4_001)


def number(name, points):
    return dps.Number(name, 0, 1, points=points, missing=0)


def test_parts_add_up_and_keep_sums_and_squares():
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


def test_what_would_break_the_sensitivity_is_refused():
    a, b, gaps = number("a", 3), number("b", 3), dps.Number("c", 0, 1, points=3, allow_missing=True)
    for numbers, groups in (((a, a), ALL), ((a, b), ALL * 2), ((a, b), ()), ((a, gaps), ALL)):
        with pytest.raises(RequestError, match=r"different numbers|allow_missing"):
            PairMoments(numbers, groups)
