"""Moments: exact integer sums, and a sensitivity that brute force never passes."""

import math
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.moments import Moments
from dpstats.schema import Category, Number, Schema

PAIRS_OF_FEW = [(p, g) for p in range(4) for g in range(3) if 0 < p + g <= 3]


def moments(p, g, half_points=1, levels=2, degree=2):
    """Moments of p numbers on the grid -K..K and g groups, with their schema."""
    points = 2 * half_points + 1
    numbers = [Number(f"x{i}", -1, 1, points=points, missing=0) for i in range(p)]
    groups = [Category(f"g{i}", list("abcd")[:levels]) for i in range(g)]
    schema = Schema([*numbers, *groups])
    names = schema.names
    return Moments.of(schema, names[:p], names[p:], degree)


def is_below(found, claimed):
    return found.l1 <= claimed.l1 and found.l2_squared <= claimed.l2_squared


def test_no_pair_of_rows_passes_the_claim_on_a_whole_grid(rows_of, change_of):
    for degree in [1, 2]:
        for p, g in PAIRS_OF_FEW:
            block = moments(
                p, g, half_points={0: 1, 1: 6, 2: 3, 3: 2}[p], levels=3 - (g == 2), degree=degree
            )
            rows = rows_of(block.columns)
            claimed = block.sensitivity("replace")
            found = change_of(block, rows, rows)
            assert is_below(found, claimed)
            assert found.l1 >= Fraction(9, 10) * claimed.l1
            assert found.l2_squared == claimed.l2_squared
            if degree == 1:
                assert found == claimed
            assert change_of(block, rows) == block.sensitivity("add_remove")


def test_sums_are_exact_where_one_float_product_over_all_rows_is_not():
    """K = 2^19: a square takes 38 bits, so 2^53 is passed after 2^15 rows."""
    schema = Schema([Number(name, -1, 1, points=2**20 + 1, missing=0) for name in "xy"])
    block, n, odd = Moments.of(schema, ["x", "y"]), 3 * 2**15 + 1, 2**19 - 1
    x, y = np.full(n, odd), np.where(np.arange(n) % 3 == 0, -odd, odd - 2)
    total, squares = sum(y.tolist()), sum(v * v for v in y.tolist())
    sums = block.sums({"x": x, "y": y}).tolist()
    assert sums == [n * odd, total, n * odd**2, odd * total, squares]
    assert int(float(x.astype(float) @ x.astype(float))) != n * odd**2  # the trap is real


def test_what_cannot_have_moments_is_refused():
    schema = Schema(
        [Number("age", 0, 9, missing=0), Number("pay", 0, 9), Category("g", ["a", "b"])]
    )
    for make in [
        lambda: Moments.of(schema, ["pay"]), lambda: Moments.of(schema, ["g"]),
        lambda: Moments.of(schema, [], ["age"]), lambda: Moments.of(schema, ["age"], ["age"]),
        lambda: Moments.of(schema, ["age", "age"]), lambda: Moments.of(schema, []),
        lambda: Moments.of(schema, ["age"], degree=3),
        lambda: Moments.of(schema, ["age"], degree=0),
        lambda: Moments.of(schema, ["age"], degree=True), lambda: Moments.of(schema, ["height"]),
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            make()


SCHEMA = dps.Schema([
    dps.Number("a", 0, 4, points=5, missing=0), dps.Number("b", -1, 1, points=3, missing=0),
    dps.Number("y", 0, 2, points=3, missing=0), dps.Category("g", ["n", "s", "w"]),
    dps.Boolean("t"),
])  # fmt: skip
A, B = ("a", None), ("b", None)


@pytest.mark.parametrize("terms", [[], [()], [(B, A)], [(A, A), (A, A)], [(("g", 1), ("g", 2))],
                                   [(("g", 3),)], [(("g", None),)], [(("a", 1), B)]])  # fmt: skip
def test_impossible_terms_are_refused(terms):
    with pytest.raises(dps.RequestError):
        Moments.of_terms(SCHEMA, terms)


def test_too_fine_grids_are_refused():
    fine = dps.Number("x", 0, 1, points=2**17 + 1, missing=0)
    block = Moments.of_terms(dps.Schema([fine]), [(("x", None),) * 4])
    with pytest.raises(dps.RequestError, match="fewer points"):
        _ = block.bounds


def test_products_beyond_float64_are_summed_exactly():
    schema = Schema([Number(name, -1, 1, points=2**19 + 1, missing=0) for name in "abc"])
    block = Moments.of_terms(schema, [(A, B, ("c", None)), (A,)])
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(2**18 - 99, 2**18, size=100) for name in "abc"}
    rows = list(zip(*(codes[name].tolist() for name in "abc"), strict=True))
    assert block.sums(codes).tolist() == [sum(a * b * c for a, b, c in rows), sum(codes["a"])]
    assert max(a * b * c for a, b, c in rows) > 2**53


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
