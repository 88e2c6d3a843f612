import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families import block_from_dict
from dpstats.families.block import bounds_of
from dpstats.families.monomials import (
    Monomials,
    fourth_moments_of_pairs,
    product,
    third_and_fourth_powers,
)
from dpstats.inference.regression.design_moments import Design, DesignMoments

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


def blocks_of(formula):
    return DesignMoments(SCHEMA, Design.of(formula, SCHEMA)).blocks


FORMULAS = ["y ~ a*b", "y ~ a*C(g)", "y ~ a:t + t", "y ~ C(g)*t + b", "y ~ a:b - 1", "t ~ a*g + b"]


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_sensitivity_is_never_below_brute_force(formula, unit):
    for block in blocks_of(formula):
        ranges = [range(c.code_range[0], c.code_range[1] + 1) for c in block.columns]
        rows = np.array(list(itertools.product(*ranges))).T
        values = block.evaluate(
            {c.name: r for c, r in zip(block.columns, rows, strict=True)}
        ).matrix().toarray().T / np.maximum(np.abs(block.ranges[0]), block.ranges[1])  # fmt: skip
        claimed = block.sensitivity(unit)
        apart = values[:, None, :] - (values[None, :, :] if unit == "replace" else 0)
        l1, l2 = np.abs(apart).sum(axis=-1).max(), (apart**2).sum(axis=-1).max()
        assert l1 <= float(claimed.l1) + 1e-12
        assert l2 <= float(claimed.l2_squared) + 1e-12
        assert float(claimed.l1) <= 2.5 * l1  # and not absurdly above it


@pytest.mark.parametrize(("terms", "l1", "l2"), [
    ([(A, A, T)], 1, 1), ([(A, B, T)], 2, 4), ([(A, A, ("g", 1)), (A, A, ("g", 2))], 2, 2),
    ([(A, B, ("g", 1)), (A, B, ("g", 2))], 2, 4), ([(A, A, B, B), (A, A, B)], 3, 5),
])  # fmt: skip
def test_sensitivity_of_small_blocks(terms, l1, l2):
    claimed = Monomials.of(SCHEMA, terms).sensitivity("replace")
    assert (claimed.l1, claimed.l2_squared) == (Fraction(l1), Fraction(l2))


@pytest.mark.parametrize("terms", [
    [(A, B, ("g", 1)), (A, B, T)],
    [(A, A, ("g", 1)), (A, A, T)],
    [(A, B, ("g", 1)), (A, B, ("g", 1), T)],
    [(A, B), (A, B, ("g", 1))],
    [(A, B, ("g", 1)), (A, B, ("g", 2)), (A, B, T)],
])  # fmt: skip
def test_products_over_different_groups_share_no_price(terms, rows_of, change_of):
    """A row is in one level of each group at once, so that it moves all of these products."""
    block = Monomials.of(SCHEMA, terms)
    every = rows_of(block.columns)
    assert block.sensitivity("replace") == change_of(block, every, every)
    assert block.sensitivity("add_remove") == change_of(block, every)


def test_sums_evaluate_names_and_plain_form():
    block = Monomials.of(SCHEMA, [(A, A, B), (A, B, ("g", 2)), (Y, ("g", 0), T)])
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
        Monomials.of(SCHEMA, terms)


def test_too_fine_grids_are_refused():
    fine = dps.Number("x", 0, 1, points=2**17 + 1, missing=0)
    block = Monomials.of(dps.Schema([fine]), [(("x", None),) * 4])
    with pytest.raises(dps.RequestError, match="fewer points"):
        bounds_of(block)


FINE = dps.Schema([dps.Number(name, -1, 1, points=1001, missing=0) for name in "ab"])


def test_coarse_blocks_round_to_the_nearest_step_and_keep_their_own_answers():
    """To 64 steps on either side, halves away from the middle; the same by exact fractions."""
    block = Monomials.of(FINE, [(A, A, A), (A, A, A, A), (A, B)], coarse=True)
    codes = {name: np.arange(-500, 501) for name in "ab"}
    steps = [
        int(np.sign(c)) * math.floor(Fraction(64 * abs(int(c)), 500) + Fraction(1, 2))
        for c in codes["a"]
    ]
    wanted = [sum(s**3 for s in steps), sum(s**4 for s in steps), sum(s * s for s in steps)]
    assert block.sums(codes).tolist() == wanted
    np.testing.assert_array_equal(block.evaluate(codes).matrix().toarray().sum(axis=1), wanted)
    np.testing.assert_array_equal(bounds_of(block), [64**3, 64**4, 64**2])
    assert block_from_dict(block.to_dict(), FINE) == block
    assert block.restrict(np.array([True, True, False])).coarse
    fine = Monomials.of(FINE, block.terms)
    assert fine.derive(block) is None
    assert block.derive(fine) is None
    assert block.derive(block) is not None


def test_coarse_blocks_leave_grids_of_few_steps_alone():
    terms = [(A, A, B), (A, A, B, B)]
    codes = {"a": np.array([-2, 1, 2]), "b": np.array([1, -1, 0])}
    fine, coarse = (Monomials.of(SCHEMA, terms, coarse=c) for c in (False, True))
    np.testing.assert_array_equal(fine.sums(codes), coarse.sums(codes))
    assert fine.sensitivity("replace") == coarse.sensitivity("replace")


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_sensitivity_of_coarse_powers_by_brute_force(unit):
    block = third_and_fourth_powers(FINE, ["a"])
    values = block.evaluate({"a": np.arange(-500, 501)}).matrix().toarray().T / bounds_of(block)
    apart = values[:, None, :] - (values[None, :, :] if unit == "replace" else 0)
    claimed = block.sensitivity(unit)
    assert np.abs(apart).sum(axis=-1).max() <= float(claimed.l1) + 1e-12
    assert (apart**2).sum(axis=-1).max() <= float(claimed.l2_squared) + 1e-12


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_sensitivity_of_fourth_moments_of_pairs_by_brute_force(unit):
    small = dps.Schema([dps.Number(name, -1, 1, points=5, missing=0) for name in "abc"])
    block = fourth_moments_of_pairs(small, "abc")
    rows = np.array(list(itertools.product(range(-2, 3), repeat=3))).T
    values = block.evaluate(dict(zip("abc", rows, strict=True))).matrix().toarray().T
    values = values / bounds_of(block)
    apart = values[:, None, :] - (values[None, :, :] if unit == "replace" else 0)
    l1, l2 = np.abs(apart).sum(axis=-1).max(), (apart**2).sum(axis=-1).max()
    claimed = block.sensitivity(unit)
    assert l1 <= float(claimed.l1) <= 2 * l1
    assert l2 <= float(claimed.l2_squared) <= 2 * l2


def test_powers_of_two_values_are_not_measured():
    two = dps.Schema([dps.Number("x", values=[0, 5], missing=0), *FINE])
    assert third_and_fourth_powers(two, ["x"]) is None
    block = third_and_fourth_powers(two, ["x", "a"])
    assert block.names == ["a^3", "a^4"]
