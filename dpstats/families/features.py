"""Features of a row, products of them, and how much one row changes the sums of such products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.privacy.neighbours import Sensitivity
from dpstats.schema import Category, Column

SIGN = -1
"""In a feature: -1 at the first and +1 at the second level of a column with two of them."""
Feature = tuple[str, int | None]
"""A column name with None (a number), `SIGN` (two levels), or the indicator's level or bin."""
Term = tuple[Feature, ...]
"""A product of features, as `product` writes it."""


def is_level(feature: Feature) -> bool:
    """Whether a feature is the indicator of a level or bin."""
    return feature[1] is not None and feature[1] != SIGN


def has_sign(column: Column) -> bool:
    """Whether a column has two declared levels, besides the one of missing cells."""
    return isinstance(column, Category) and column.bins - column.allow_missing == 2


def indicator(level: int, bins: Codes) -> NDArray[Any]:
    """The indicator of a level, or the sign, of rows (n,) in these bins."""
    return np.where(bins == 1, 1, -1) if level == SIGN else np.equal(bins, level)


def add_by_bin(total: NDArray[Any], level: int, values: NDArray[Any]) -> None:
    """Add values (n,) times the indicator of a level, or the sign, to (n, bins) of its column."""
    if level == SIGN:
        total += np.outer(values, indicator(SIGN, np.arange(total.shape[1])))
    else:
        total[:, level] += values


def feature_name(feature: Feature, labels: Sequence[str]) -> str:
    """Such as ``age``, ``sign(smoker)`` or ``region=north``, given the labels of the bins."""
    name, level = feature
    if level is None:
        return name
    return f"sign({name})" if level == SIGN else f"{name}={labels[level]}"


def product(one: Iterable[Feature], other: Iterable[Feature]) -> Term | None:
    """The product of two products of features, sorted; None where it is always zero.

    A level times itself is itself, and two levels of one column exclude each other; the square of a
    sign is one; numbers have powers.

    Raises
    ------
    RequestError
        For a sign times a level of its own column, which is that level or its negative.
    """
    both = (*one, *other)
    numbers = sorted(feature for feature in both if feature[1] is None)
    times = Counter(feature for feature in both if feature[1] == SIGN)
    signs = sorted(feature for feature, count in times.items() if count % 2)
    levels = {feature for feature in both if is_level(feature)}
    grouped = {name for name, _ in levels}
    if len(grouped) < len(levels):
        return None
    if twice := sorted(grouped & {name for name, _ in signs}):
        raise RequestError(f"a product holds the sign of {twice[0]!r} or its levels, not both")
    return (*numbers, *signs, *sorted(levels, key=str))


def is_signed(term: Iterable[Feature]) -> bool:
    """Whether a product can be negative: some number has an odd power, or it holds a sign."""
    times = Counter(feature for feature in term if not is_level(feature))
    return any(count % 2 for count in times.values())


def alternatives(terms: Iterable[Term]) -> Counter[tuple[Term, tuple[str, ...]]]:
    """How many terms share their numbers, with powers, their signs and their groups."""
    return Counter(
        (tuple(f for f in t if not is_level(f)), tuple(f[0] for f in t if is_level(f)))
        for t in terms
    )


def replacement(terms: Sequence[Term]) -> Sensitivity:
    """Bound on the changes of the sums of products when a row replaces another one.

    The proof is in the notes of `Moments.sensitivity`.
    """
    short = [term for term in terms if len(term) <= 2]
    separate = _changes(short)
    used = {feature for term in short for feature in term}
    p = sum(level is None for _, level in used)
    s = sum(level == SIGN for _, level in used)
    g = len({feature[0] for feature in used if is_level(feature)})
    l1 = _l1_of_pairs(p, s) + 2 * g + 2 * (p + s) * g + g * (g - 1)
    l2_squared = max(
        4 * k * (1 + h + p + s - k) + 2 * (g - h) * (1 + p + s) + g * (g - 1) - h * (h - 1)
        for k in range(p + s + 1)
        for h in range(g + 1)
    )
    together = Sensitivity(min(separate.l1, l1), min(separate.l2_squared, Fraction(l2_squared)))
    return together + _changes([term for term in terms if len(term) > 2])


def _l1_of_pairs(p: int, s: int) -> Fraction:
    """Largest L1 change of all first and second moments of p numbers and s signs."""
    largest = Fraction(0)
    for k in range(s + 1):  # signs that change
        best = Fraction(p * (p + s + 2 - 2 * k), 2 * (p + 1))
        total = min(max(best, Fraction(0)), Fraction(p))  # of the |v| of the numbers
        changes = 2 * (p + s - k - total) * (k + total) + 2 * k + 4 * total
        largest = max(largest, changes - 2 * total**2 / max(p, 1))
    return largest


def _changes(terms: Iterable[Term]) -> Sensitivity:
    """Sum over alternatives of the largest changes that replacing a row makes."""
    l1 = l2_squared = 0
    for (values, _), count in alternatives(terms).items():
        signed = is_signed(values)
        l1 += 2 if signed else min(2, count)
        l2_squared += 4 if signed else min(2, count)
    return Sensitivity(Fraction(l1), Fraction(l2_squared))
