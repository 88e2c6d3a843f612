"""Features of a row, and products of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
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
