"""Coarse third and fourth moments, measured for the sampling error of other means."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.schema import Column, Number, Schema


def third_and_fourth_powers(
    schema: Schema, names: Sequence[str], given: Subgroup | None = None
) -> Moments | None:
    """Coarse means of x^3 and x^4 of the numbers that take more than two values, if any do.

    With two values either power follows from x.
    """
    many = [name for name in names if takes_more_than_two(schema[name])]
    terms = [((name, None),) * power for name in many for power in (3, 4)]
    return Moments.of_terms(schema, terms, True, given) if terms else None


def fourth_moments_of_pairs(
    schema: Schema, names: Sequence[str], given: Subgroup | None = None
) -> Moments | None:
    """Coarse means of all products of third and fourth degree within every pair of numbers.

    Pairs of two-valued columns are excluded, and those with a sign; None if no pair remains.
    """
    numbers = sorted(name for name in names if isinstance(schema[name], Number))
    pairs = [
        pair
        for pair in itertools.combinations(numbers, 2)
        if any(takes_more_than_two(schema[name]) for name in pair)
    ]
    terms = dict.fromkeys(
        tuple((name, None) for name in product)
        for pair in pairs
        for degree in (3, 4)
        for product in itertools.combinations_with_replacement(pair, degree)
    )
    return Moments.of_terms(schema, terms, True, given) if terms else None


def takes_more_than_two(column: Column) -> bool:
    """True for a number with more than two values: its higher powers do not follow from it."""
    return isinstance(column, Number) and len(column.codes_in_use) > 2
