"""Moments: exact integer sums, and a sensitivity that brute force never passes."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.features import replacement
from dpstats.families.moments import Moments, fourth_moments_of_pairs, third_and_fourth_powers
from dpstats.schema import Category, Number, Schema


def numbers(p, points):
    return [Number(f"x{i}", -1, 1, points=points, missing=0) for i in range(p)]


def test_no_pair_of_rows_passes_the_claim_on_a_whole_grid(rows_of, change_of):
    for degree, p, g in itertools.product([1, 2], range(4), range(3)):
        if not 0 < p + g <= 3:
            continue
        levels = ["a", "b"] if g == 2 else ["a", "b", "c"]
        groups = [Category(f"g{i}", levels) for i in range(g)]
        schema = Schema([*numbers(p, {0: 3, 1: 13, 2: 7, 3: 5}[p]), *groups])
        block = Moments.of(schema, schema.names[:p], schema.names[p:], degree)
        rows = rows_of(block.columns)
        found, claimed = change_of(block, rows, rows), block.sensitivity("replace")
        assert Fraction(9, 10) * claimed.l1 <= found.l1 <= claimed.l1
        assert found.l2_squared == claimed.l2_squared
        assert degree == 2 or found == claimed
        assert change_of(block, rows) == block.sensitivity("add_remove")


def test_third_and_fourth_powers_are_exact(rows_of, change_of):
    """The least of t^3 + t^4 is at -3/4, a point of this grid."""
    for p in [1, 2]:
        schema = Schema(numbers(p, 9))
        block = third_and_fourth_powers(schema, schema.names)
        rows = rows_of(block.columns)
        assert change_of(block, rows) == block.sensitivity("add_remove")
        degree = np.array([len(term) for term in block.terms])
        for one in (block, block.restrict(degree == 3), block.restrict(degree == 4)):
            assert change_of(one, rows, rows) == one.sensitivity("replace")


def test_third_and_fourth_moments_of_all_pairs_by_search():
    """Changes from (1, .., 1) to rows of few values, of signs, and random ones."""
    for p in (2, 5, 12):
        schema = Schema(numbers(p, 9))
        terms = fourth_moments_of_pairs(schema, schema.names).terms
        first = np.arange(p + 1)[:, None] > np.arange(p)
        few = [np.where(first, -a, b) for a in np.linspace(0, 1, 21) for b in (-0.5, 0, 0.5, 1)]
        random = np.random.default_rng(1).uniform(-1, 1, (500, p))
        t = np.vstack([*few, first * 2.0 - 1, random])
        l1, l2 = np.zeros(len(t)), np.zeros(len(t))
        for term in terms:
            power = Counter(term)
            moved = 1 - np.prod(t ** [power[f"x{i}", None] for i in range(p)], axis=1)
            l1, l2 = l1 + moved, l2 + moved**2
        claimed = replacement(terms)
        assert l1.max() - 1e-9 <= claimed.l1 <= 1.045 * l1.max()
        assert l2.max() == claimed.l2_squared


def test_sums_are_exact_where_one_float_product_over_all_rows_is_not():
    """K = 2^19: a square takes 38 bits, so 2^53 is passed after 2^15 rows."""
    schema = Schema([Number(name, -1, 1, points=2**20 + 1, missing=0) for name in "xy"])
    block, n, odd = Moments.of(schema, ["x", "y"]), 3 * 2**15 + 1, 2**19 - 1
    x, y = np.full(n, odd), np.where(np.arange(n) % 3 == 0, -odd, odd - 2)
    total, squares = sum(y.tolist()), sum(v * v for v in y.tolist())
    sums = block.sums({"x": x, "y": y}).tolist()
    assert sums == [n * odd, total, n * odd**2, odd * total, squares]
    assert int(float(x.astype(float) @ x.astype(float))) != n * odd**2  # the trap is real


SCHEMA = Schema([
    Number("a", 0, 4, points=5, missing=0), Number("b", -1, 1, points=3, missing=0),
    Number("bare", 0, 9), Category("g", ["n", "s", "w"]),
    Number("fine", 0, 1, points=2**17 + 1, missing=0),
])  # fmt: skip
A, B = ("a", None), ("b", None)


def test_what_cannot_have_moments_is_refused():
    for columns in [
        (["bare"],), (["g"],), ([], ["a"]), (["a"], ["a"]), (["a", "a"],), ([],), (["a"], [], 3),
        (["a"], [], 0), (["a"], [], True), (["height"],),
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            Moments.of(SCHEMA, *columns)
    for terms in [
        [], [()], [(B, A)], [(A, A), (A, A)], [(("g", 1), ("g", 2))], [(("g", 3),)],
        [(("g", None),)], [(("a", 1), B)],
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            Moments.of_terms(SCHEMA, terms)
    with pytest.raises(RequestError, match="fewer points"):
        _ = Moments.of_terms(SCHEMA, [(("fine", None),) * 4]).bounds


def test_products_beyond_float64_are_summed_exactly():
    schema = Schema([Number(name, -1, 1, points=2**19 + 1, missing=0) for name in "abc"])
    block = Moments.of_terms(schema, [(A, B, ("c", None)), (A,)])
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(2**18 - 99, 2**18, size=100) for name in "abc"}
    rows = list(zip(*(codes[name].tolist() for name in "abc"), strict=True))
    assert block.sums(codes).tolist() == [sum(a * b * c for a, b, c in rows), sum(codes["a"])]
    assert max(a * b * c for a, b, c in rows) > 2**53


FINE = Schema([Number(name, -1, 1, points=1001, missing=0) for name in "ab"])


def test_coarse_blocks_round_to_the_nearest_step_and_keep_their_own_answers():
    """To 64 steps on either side, halves away from the middle."""
    block = Moments.of_terms(FINE, [(A, A, A), (A, A, A, A), (A, B)], coarse=True)
    grid = np.arange(-500, 501)
    steps = np.sign(grid) * ((2 * 64 * np.abs(grid) + 500) // 1000)
    functions = block.functions({"a": grid, "b": grid})
    np.testing.assert_array_equal(functions, [steps**3, steps**4, steps**2])
    np.testing.assert_array_equal(block.bounds, [64**3, 64**4, 64**2])
    assert block_from_dict(block.to_dict(), FINE) == block
    assert block.restrict(np.array([True, True, False])).coarse
    fine = Moments.of_terms(FINE, block.terms)
    assert fine.derive(block) is None
    assert block.derive(fine) is None
    assert block.derive(block) is not None
