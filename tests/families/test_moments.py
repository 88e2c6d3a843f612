"""Moments: exact sums of numbers, signs and levels, and what brute force never passes."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import RequestError
from dpstats.families.features import SIGN, has_sign, product, replacement
from dpstats.families.moments import Moments, fourth_moments_of_pairs, third_and_fourth_powers
from dpstats.families.subgroups import Subgroup
from dpstats.schema import Boolean, Category, Number, Schema


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


SCHEMA = Schema([
    Number("a", 0, 4, points=5, edges=[2], missing=0), Number("b", -1, 1, points=3, missing=0),
    Number("e", -1, 1, points=3, allow_missing=True), Category("g", ["n", "s", "w"]),
    Boolean("t"), Category("u", ["no", "yes"]), Boolean("v", allow_missing=True), Boolean("w"),
    Number("bare", 0, 9), Number("fine", 0, 1, points=2**17 + 1, missing=0),
])  # fmt: skip
A, B, G, T, U, V = (("a", None), ("b", None), ("g", 1), ("t", SIGN), ("u", SIGN), ("v", SIGN))


def test_what_cannot_have_moments_is_refused():
    for columns in [
        (["bare"],), (["g"],), ([], ["bare"]), (["a"], ["a"]), (["a", "a"],), ([],), (["a"], [], 3),
        (["a"], [], 0), (["a"], [], True), (["height"],),
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            Moments.of(SCHEMA, *columns)
    for groups, signs in (([], ["g"]), ([], ["a"]), ([], ["t", "t"]), ([], ["x"]), (["t"], ["t"])):
        with pytest.raises(RequestError):
            Moments.of(SCHEMA, ["a"], groups, signs=signs)
    for terms in [
        [], [()], [(B, A)], [(A, A), (A, A)], [(G, ("g", 2))], [(("g", 3),)], [(("g", None),)],
        [(("a", 1), B)], [(T, T)], [(U, T)], [(T, A)], [(G, T)], [(("g", SIGN),)], [(("a", SIGN),)],
        [(("t", -2),)], [(T, ("t", 1))], [(V,)], [(A, V)],
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            Moments.of_terms(SCHEMA, terms)
    with pytest.raises(RequestError, match="'v' has allow_missing=True in the schema"):
        Moments.of_terms(SCHEMA, [(V,)], given=Subgroup.of(SCHEMA, "t == True", []))
    with pytest.raises(RequestError, match="fewer points"):
        _ = Moments.of_terms(SCHEMA, [(("fine", None),) * 4]).bounds


@st.composite
def mixed_terms(draw):
    """Products of up to four numbers, signs and levels, of all rows or of a subgroup."""
    given_rows = draw(st.sampled_from([None, "", "u == 'yes'", "g in ['n', 's']"]))
    columns = [c for c in SCHEMA.columns[:8] if given_rows is not None or not c.allow_missing]
    names = draw(st.sets(st.sampled_from([c.name for c in columns]), min_size=1, max_size=4))
    used = [c for c in columns if c.name in names]
    features = [(c.name, None) for c in used if isinstance(c, Number)]
    features += [(c.name, SIGN) for c in used if has_sign(c)] * 2
    features += [(c.name, level) for c in used if not has_sign(c) for level in range(c.bins)
                 if c.bins > 1]  # fmt: skip
    lists = st.lists(st.sampled_from(features), min_size=1, max_size=4)
    terms = {product(factors, ()) for factors in draw(st.lists(lists, min_size=1, max_size=12))}
    terms = sorted(terms - {None, ()}, key=str) or [features[:1]]
    group = None
    if given_rows is not None:
        group = Subgroup.of(SCHEMA, given_rows or None, names)
        terms += [()] * (group is not None and draw(st.booleans()))
    return Moments.of_terms(SCHEMA, map(tuple, terms), coarse=draw(st.booleans()), given=group)


def products(block, codes):
    """Values (d, m) by definition: steps of numbers, signs and levels multiplied, of all rows."""

    def factor(name, level):
        if level is None:
            return block._feature(SCHEMA[name], None, codes[name])
        if level == SIGN:
            return 2 * codes[name] - 1
        return (SCHEMA[name].bins_of(codes[name]) == level).astype(int)

    inside = 1 if block.given is None else block.given.holds(codes).astype(int)
    one = np.ones(len(codes[block.columns[0].name]), int)
    return np.array([
        np.prod([one * inside, *(factor(*f) for f in term)], axis=0) for term in block.terms
    ])  # fmt: skip


def is_below(found, claimed):
    return found.l1 <= claimed.l1 and found.l2_squared <= claimed.l2_squared


@given(block=mixed_terms())
@settings(max_examples=40)
def test_no_pair_of_rows_passes_the_claim_for_products_of_any_length(block, rows_of, change_of):
    rows = rows_of(block.columns)
    claimed = block.sensitivity("replace")
    low, high = block.ranges
    values = block.evaluate(rows).matrix().toarray()
    np.testing.assert_array_equal(values, products(block, rows))
    assert block.sums(rows).tolist() == values.sum(axis=1).tolist()
    assert np.all((values >= low[:, None]) & (values <= high[:, None]))
    if len(values.T) <= 1500:
        assert is_below(change_of(block, rows, rows), claimed)
    assert is_below(change_of(block, rows), block.sensitivity("add_remove"))
    for dropped in range(block.size):
        kept = np.arange(block.size) != dropped
        if kept.any():
            assert is_below(block.restrict(kept).sensitivity("replace"), claimed)


def test_sums_are_exact_where_one_float_product_over_all_rows_is_not():
    """K = 2^19: a square takes 38 bits, so 2^53 is passed after 2^15 rows."""
    schema = Schema([Number(name, -1, 1, points=2**20 + 1, missing=0) for name in "xy"])
    block, n, odd = Moments.of(schema, ["x", "y"]), 3 * 2**15 + 1, 2**19 - 1
    x, y = np.full(n, odd), np.where(np.arange(n) % 3 == 0, -odd, odd - 2)
    total, squares = sum(y.tolist()), sum(v * v for v in y.tolist())
    sums = block.sums({"x": x, "y": y}).tolist()
    assert sums == [n * odd, total, n * odd**2, odd * total, squares]
    assert int(float(x.astype(float) @ x.astype(float))) != n * odd**2  # the trap is real
    # A product of three takes 54 bits.
    schema = Schema([Number(name, -1, 1, points=2**19 + 1, missing=0) for name in "abc"])
    block = Moments.of_terms(schema, [(A, B, ("c", None)), (A,)])
    codes = {name: np.arange(2**18 - 99, 2**18 + 1) for name in "abc"}
    exact = codes["a"].tolist()
    assert block.sums(codes).tolist() == [sum(a**3 for a in exact), sum(exact)]


FINE = Schema([Number(name, -1, 1, points=1001, missing=0) for name in "ab"])


def test_coarse_blocks_round_to_the_nearest_step_and_keep_their_own_answers():
    """To 64 steps on either side, halves away from the middle."""
    block = Moments.of_terms(FINE, [(A, A, A), (A, A, A, A), (A, B)], coarse=True)
    grid = np.arange(-500, 501)
    steps = np.sign(grid) * ((2 * 64 * np.abs(grid) + 500) // 1000)
    functions = block.functions({"a": grid, "b": grid})
    np.testing.assert_array_equal(functions, [steps**3, steps**4, steps**2])
    np.testing.assert_array_equal(block.bounds, [64**3, 64**4, 64**2])
    fine = Moments.of_terms(FINE, block.terms)
    assert fine.derive(block) is None
    assert block.derive(fine) is None
