"""Moments: exact integer sums, and a sensitivity that brute force never passes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.features import product
from dpstats.families.moments import Moments
from dpstats.schema import Boolean, Category, Number, Schema

PAIRS_OF_FEW = [(p, g) for p in range(4) for g in range(3) if 0 < p + g <= 3]
PAIRS_OF_MANY = [(p, g) for p in range(7) for g in range(4) if p + g > 0]


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


def corner_rows(block, x_codes, levels):
    """One row: codes of the numbers, levels of the groups."""
    names = [c.name for c in block.columns]
    return {
        name: np.array([code], np.int64)
        for name, code in zip(names, [*x_codes, *levels], strict=True)
    }


def stacked(rows):
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def test_the_claim_is_reached_within_ten_percent(change_of):
    for p, g in PAIRS_OF_MANY:
        # All x = 1 against all x' = t, and k coordinates that flip while s groups keep their level.
        block = moments(p, g, half_points=p + 1)
        k = p + 1
        first = corner_rows(block, [k] * p, [0] * g)
        constant = [[t] * p for t in range(-k, k + 1)]
        flipped = [[-k] * flips + [k] * (p - flips) for flips in range(p + 1)]
        others = [
            corner_rows(block, x, [0] * stays + [1] * (g - stays))
            for x in constant + flipped
            for stays in range(g + 1)
        ]
        claimed = block.sensitivity("replace")
        found = change_of(block, stacked(others), first)
        assert is_below(found, claimed)
        assert found.l1 >= Fraction(9, 10) * claimed.l1
        assert found.l2_squared == claimed.l2_squared
        if g == 0:  # x' = -1/(p + 1) is on this grid, and the bound is exact without groups
            assert found.l1 == claimed.l1 == Fraction(p * (p + 2) ** 2, 2 * (p + 1))
            assert claimed.l2_squared == 4 * ((p + 1) ** 2 // 4)


def test_flipping_two_numbers_within_one_group_passes_the_sum_of_the_parts(change_of):
    # Adding what groups cost, 2G + 2pG + G(G - 1), to 4 floor((p + 1)^2 / 4) is not a bound:
    # numbers that flip within a level move their products with the group by 4, not by 2.
    p, g = 2, 1
    sum_of_parts = 4 * ((p + 1) ** 2 // 4) + 2 * g + 2 * p * g + g * (g - 1)
    block = moments(p, g)
    found = change_of(block, corner_rows(block, [1, 1], [0]), corner_rows(block, [-1, -1], [0]))
    assert sum_of_parts == 14
    assert found.l2_squared == 16 == block.sensitivity("replace").l2_squared


@st.composite
def restricted_moments(draw):
    p, g = draw(st.integers(0, 4)), draw(st.integers(0, 3))
    if p + g == 0:
        p = 1
    degree = draw(st.sampled_from([1, 2]))
    halves = [draw(st.integers(1, 5)) for _ in range(p)]
    numbers = [
        Number(
            f"x{i}", 0, 1, points=2 * k + 1, missing=0, edges=[0.5] if draw(st.booleans()) else []
        )
        for i, k in enumerate(halves)
    ]
    groups = [Category(f"g{i}", list("abcd")[: draw(st.integers(2, 4))]) for i in range(g)]
    schema = Schema([*numbers, *groups])
    block = Moments.of(schema, schema.names[:p], schema.names[p:], degree)
    kept = draw(st.lists(st.booleans(), min_size=block.size, max_size=block.size))
    return block.restrict(np.array(kept)) if any(kept) else block


@given(block=restricted_moments())
def test_leaving_functions_out_never_raises_the_claim(block):
    whole = block.sensitivity("replace")
    for dropped in range(block.size):
        kept = np.arange(block.size) != dropped
        if kept.any():
            assert is_below(block.restrict(kept).sensitivity("replace"), whole)


def test_sums_are_exact_where_one_float_product_over_all_rows_is_not():
    # K = 2^19: a square takes 38 bits, so 2^53 is passed after 2^15 rows.
    schema = Schema([Number("x", -1, 1, points=2**20 + 1, missing=0),
                     Number("y", -1, 1, points=2**20 + 1, missing=0)])  # fmt: skip
    block = Moments.of(schema, ["x", "y"])
    n, odd = 3 * 2**15 + 1, 2**19 - 1
    x = np.full(n, odd, dtype=np.int64)
    y = np.where(np.arange(n) % 3 == 0, -odd, odd - 2)
    sums = dict(zip(block.names, block.sums({"x": x, "y": y}).tolist(), strict=True))
    exact = {
        "x": n * odd,
        "y": sum(y.tolist()),
        "x^2": n * odd**2,
        "x*y": odd * sum(y.tolist()),
        "y^2": sum(v * v for v in y.tolist()),
    }
    assert sums == exact
    assert int(float(x.astype(float) @ x.astype(float))) != exact["x^2"]  # the trap is real


def test_names_and_ranges():
    schema = Schema([
        Number("age", 0, 8, points=9, edges=[4], missing=4),
        Number("pay", 0, 4, points=5, missing=0),
        Boolean("smoker"),
    ])  # fmt: skip
    block = Moments.of(schema, ["pay"], ["smoker", "age"])
    assert block.names == [
        "pay", "age=[0, 4)", "age=[4, 8]", "smoker=False", "smoker=True",
        "pay^2", "pay*age=[0, 4)", "pay*age=[4, 8]", "pay*smoker=False", "pay*smoker=True",
        "age=[0, 4)*smoker=False", "age=[0, 4)*smoker=True",
        "age=[4, 8]*smoker=False", "age=[4, 8]*smoker=True",
    ]  # fmt: skip
    low, high = block.ranges
    assert low.tolist() == [-2, 0, 0, 0, 0, 0, -2, -2, -2, -2, 0, 0, 0, 0]
    assert high.tolist() == [2, 1, 1, 1, 1, 4, 2, 2, 2, 2, 1, 1, 1, 1]
    assert block == Moments.of(schema, ["pay"], ["age", "smoker"])


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
A, B, Y, T = ("a", None), ("b", None), ("y", None), ("t", 1)


def test_products_of_features():
    assert product((A, ("g", 1)), (B, ("g", 1))) == (A, B, ("g", 1))
    assert product((A, ("g", 1)), (B, ("g", 2))) is None
    assert product((A,), (A, T)) == (A, A, T)
    assert product((), ()) == ()


def test_sensitivity_of_small_blocks():
    for terms, l1, l2 in [
        ([(A, A, T)], 1, 1), ([(A, B, T)], 2, 4), ([(A, A, ("g", 1)), (A, A, ("g", 2))], 2, 2),
        ([(A, B, ("g", 1)), (A, B, ("g", 2))], 2, 4), ([(A, A, B, B), (A, A, B)], 3, 5),
    ]:  # fmt: skip
        claimed = Moments.of_terms(SCHEMA, terms).sensitivity("replace")
        assert (claimed.l1, claimed.l2_squared) == (Fraction(l1), Fraction(l2))


def test_sums_evaluate_names_and_plain_form():
    block = Moments.of_terms(SCHEMA, [(A, A, B), (A, B, ("g", 2)), (Y, ("g", 0), T)])
    assert block.names == ["a^2*b", "a*b*g=w", "y*g=n*t=True"]
    rng = np.random.default_rng(0)
    codes = {c.name: rng.integers(c.code_range[0], c.code_range[1] + 1, 50) for c in SCHEMA}
    a, b, y = (codes[name] for name in "aby")
    wanted = [a * a * b, a * b * (codes["g"] == 2), y * (codes["g"] == 0) * codes["t"]]
    np.testing.assert_array_equal(block.sums(codes), [w.sum() for w in wanted])
    np.testing.assert_array_equal(block.evaluate(codes).matrix().toarray(), wanted)
    np.testing.assert_array_equal(block.ranges, [[-4, -2, -1], [4, 2, 1]])
    assert block_from_dict(block.to_dict(), SCHEMA) == block
    part = block.restrict(np.array([True, False, False]))
    assert [c.name for c in part.columns] == ["a", "b"]
    assert part.derive(block).member.tolist() == [0]
    assert block.derive(part).member.tolist() == [0, -1, -1]


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


@st.composite
def mixed_terms(draw):
    """Terms of one to four features together, and of a number with its own bins."""
    columns = [Number("a", 0, 4, points=5, edges=[2], missing=0), *list(SCHEMA)[1:]]
    names = draw(st.sets(st.sampled_from([c.name for c in columns]), min_size=1, max_size=3))
    schema = Schema([c for c in columns if c.name in names])
    features = [(c.name, None) for c in schema if isinstance(c, Number)]
    features += [(c.name, level) for c in schema for level in range(c.bins) if c.bins > 1]
    lists = st.lists(st.sampled_from(features), min_size=1, max_size=4)
    terms = {product(factors, ()) for factors in draw(st.lists(lists, min_size=1, max_size=12))}
    terms = sorted(terms - {None}, key=str) or [features[:1]]
    return Moments.of_terms(schema, map(tuple, terms), coarse=draw(st.booleans()))


@given(block=mixed_terms())
@settings(max_examples=150)
def test_no_pair_of_rows_passes_the_claim_for_terms_of_any_length(block, rows_of, change_of):
    rows = rows_of(block.columns)
    assert is_below(change_of(block, rows, rows), block.sensitivity("replace"))
    assert is_below(change_of(block, rows), block.sensitivity("add_remove"))


@given(block=mixed_terms())
def test_short_terms_beside_long_ones_keep_their_own_claim(block):
    lengths = np.array([len(term) for term in block.terms])
    if 0 < np.sum(lengths > 2) < block.size:
        short, long = block.restrict(lengths <= 2), block.restrict(lengths > 2)
        total = short.sensitivity("replace") + long.sensitivity("replace")
        assert block.sensitivity("replace") == total


def test_products_beyond_float64_are_summed_exactly():
    schema = Schema([Number(name, -1, 1, points=2**19 + 1, missing=0) for name in "abc"])
    block = Moments.of_terms(schema, [(A, B, ("c", None)), (A,)])
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(2**18 - 99, 2**18, size=100) for name in "abc"}
    rows = list(zip(*(codes[name].tolist() for name in "abc"), strict=True))
    assert block.sums(codes).tolist() == [sum(a * b * c for a, b, c in rows), sum(codes["a"])]
    assert max(a * b * c for a, b, c in rows) > 2**53


def test_what_is_measured_of_long_terms_answers_short_ones():
    long = Moments.of_terms(SCHEMA, [(A,), (A, A, B), (A, B)])
    assert long.derive(Moments.of(SCHEMA, ["a", "b"])).member.tolist() == [0, -1, 3]
