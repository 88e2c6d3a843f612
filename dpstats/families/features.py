"""Features of a row, products of them, and how much one row changes the sums of such products.

All bounds for a replaced row rest on one inequality: with t_i = 1 - |x_i - x'_i|, every monomial f
changes by at most 1 - f(t) (eq. one-inequality). It and the bounds are proved in
``docs/explanation/privacy/sensitivity.md``.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.privacy.neighbours import Sensitivity
from dpstats.schema import Category, Column, Number

_MOST_PATTERNS = 2**22  # entries of all arrays of `_by_thresholds`: about a tenth of a second
_STEPS = 64

SIGN = -1
"""In a feature: -1 at the first and +1 at the second level of a column with two of them."""
Feature = tuple[str, int | None]
"""A column name with None (a number), `SIGN` (two levels), or the indicator's level or bin."""
Term = tuple[Feature, ...]
"""A product of features, as `product` writes it."""


def is_level(feature: Feature) -> bool:
    """True if a feature is the indicator of a level or bin."""
    return feature[1] is not None and feature[1] != SIGN


def has_sign(column: Column) -> bool:
    """True for a category with exactly two levels, besides that of missing cells."""
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


def known_features(columns: Iterable[Column], *, signs: bool = False) -> set[Feature]:
    """Numbers, levels and bins of columns, and with `signs` the signs of those that have one."""
    known: set[Feature] = set()
    for column in columns:
        levels = range(column.bins) if column.bins > 1 else ()
        known.update((column.name, level) for level in levels)
        if isinstance(column, Number):
            known.add((column.name, None))
        elif signs and has_sign(column):
            known.add((column.name, SIGN))
    return known


def are_terms(terms: Collection[Term], known: set[Feature]) -> bool:
    """True for one or more distinct products of known features, each as `product` writes it."""
    distinct = 0 < len(set(terms)) == len(terms)
    all_known = known.issuperset(itertools.chain.from_iterable(terms))
    return distinct and all_known and all(product(term, ()) == term for term in terms)


def term_names(
    terms: Iterable[Term],
    columns: Iterable[Column],
    numbers: Mapping[str, str] = {},  # it is not changed
) -> list[str]:
    """Such as ``age^2*sign(smoker)*region=north``, with other words for some numbers."""
    labels = {column.name: column.bin_labels for column in columns}
    names = []
    for term in terms:
        powers = [f"^{times}" if times > 1 else "" for times in Counter(term).values()]
        written = [
            numbers.get(name, name) if level is None else feature_name((name, level), labels[name])
            for name, level in dict.fromkeys(term)
        ]
        names.append("*".join(map("".join, zip(written, powers, strict=True))) or "rows")
    return names


def rounded(number: Number, steps: int, codes: Codes) -> Codes:
    """Codes on a grid of so many steps to either side, halves away from the middle."""
    half = number.half_points
    if steps == half:
        return codes
    return np.asarray(np.sign(codes) * ((2 * steps * np.abs(codes) + half) // (2 * half)))


def is_signed(term: Iterable[Feature]) -> bool:
    """True if a product can be negative: it contains a sign, or an odd power of a number."""
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

    For terms of one or two features it is the smaller of two, alternatives one by one and
    `_bound_moments`, since a subset of the terms can only lower both. Bounds for longer ones are
    added.
    """
    few = [term for term in terms if len(term) <= 2]
    used = {feature for term in few for feature in term}
    p = sum(level is None for _, level in used)
    s = sum(level == SIGN for _, level in used)
    levels = Counter(name for name, _ in filter(is_level, used)).values()
    single = sum(count == 1 for count in levels)
    first = any(len(term) == 1 and not is_level(term[0]) for term in few)
    together = _smaller(_one_by_one(few), _bound_moments(p, s, len(levels) - single, single, first))
    return together + _bound_long_products([term for term in terms if len(term) > 2])


@cache
def _bound_moments(p: int, s: int, groups: int, single: int, first: bool) -> Sensitivity:
    """Bound for all first and second moments of numbers, signs and levels; exact with `first`.

    Without `first`, the first moments of numbers and signs are left out (eq. l2-without-means). Of
    `groups` two levels or more are used, of `single` groups one (the other is a baseline). Let h
    groups keep their level, d of the single ones and t signs change theirs, and k of all numbers
    and signs turn from one end to the other (eq. l1-with-signs, l1-with-groups, l2-of-moments).
    """
    every, l1, l2_squared = p + s, Fraction(0), 0
    for h, d in itertools.product(range(groups + 1), range(single + 1)):
        changed, kept = groups - h, h + single - d
        of_groups = 2 * changed + d + groups * (groups - 1) - h * (h - 1)
        of_groups += 2 * changed * (single - d) + groups * d
        of_groups += d * (d - 1) // 2 + d * (single - d)
        own = max(4 * k * (first + kept + every - k) for k in range(every + 1))
        if not (first or kept or changed):
            own = every**2
        l2_squared = max(l2_squared, own + (2 * changed + d) * every + of_groups)
        for t in range(s + 1):  # signs that change
            own = 2 * t * (every + first - t + kept) + 2 * changed * s + d * every
            slope = 2 * (every + first + kept - 2 * t) + 2
            l1 = max(l1, own + of_groups + _l1_of_numbers(p, slope, changed))
    return Sensitivity(l1, Fraction(l2_squared))


def _l1_of_numbers(p: int, slope: int, changed: int) -> Fraction:
    """Largest slope S - 2 S^2 - 2 sum a_i^2 + 2 changed sum max(a_i, 1 - a_i), S = sum a_i.

    Over a in [0, 1]^p (eq. l1-with-signs with l1-with-groups); see `_bound_moments`.
    """
    half, largest = Fraction(1, 2), Fraction(0)
    for m in range(p + 1) if changed else [p]:
        others, low = p - m, half if changed else Fraction(0)
        high = Fraction(slope + 2 * changed, 4 * (m + 1))
        rest = Fraction(slope - 2 * changed - 4 * m, 4 * (others + 1))
        for a, b in (
            (min(max(high, low), Fraction(1)), Fraction(0)),
            (Fraction(1), min(max(rest, Fraction(0)), half)),
        ):
            total = m * a + others * b
            found = slope * total - 2 * total**2 - 2 * (m * a**2 + others * b**2)
            found += 2 * changed * (m * a + others * (1 - b))
            largest = max(largest, found)
    return largest


def _one_by_one(terms: Iterable[Term]) -> Sensitivity:
    """Sum over alternatives of the largest changes that replacing a row makes (eq. set-by-set).

    An alternative is a set of terms that share all but their levels: a row gives its product v to
    one of them at most. Replacing it changes one term by at most 2 (1 if v cannot be negative), or
    two terms by at most 1 each.
    """
    l1 = l2_squared = 0
    for (values, _), count in alternatives(terms).items():
        signed = is_signed(values)
        l1 += 2 if signed else min(2, count)
        l2_squared += 4 if signed else min(2, count)
    return Sensitivity(Fraction(l1), Fraction(l2_squared))


def _bound_long_products(terms: Sequence[Term]) -> Sensitivity:
    """Bound for products of three and more features: the least of all that apply."""
    bound = _one_by_one(terms)
    if not terms:
        return bound
    if all(level is None and len(term) <= 4 for term in terms for _, level in term):
        widest = max(len(set(term)) for term in terms)
        if widest == 1:
            return _bound_powers(terms)
        numbers = len({feature for term in terms for feature in term})
        if widest == 2:
            bound = _smaller(bound, _bound_pairs_of_numbers(numbers))
    return _smaller(bound, _by_thresholds(terms))


def _bound_powers(terms: Sequence[Term]) -> Sensitivity:
    """Exact: each number moves its own third and fourth power (eq. third-and-fourth-powers)."""
    powers: dict[Term, set[int]] = {}
    for term in terms:
        powers.setdefault(term[:1], set()).add(len(term))
    l1 = {3: Fraction(2), 4: Fraction(1), 7: 2 + Fraction(27, 256)}
    l2_squared = {3: Fraction(4), 4: Fraction(1), 7: Fraction(4)}
    sums = [sum(exponents) for exponents in powers.values()]
    return Sensitivity(
        sum((l1[key] for key in sums), Fraction(0)),
        sum((l2_squared[key] for key in sums), Fraction(0)),
    )


def _bound_pairs_of_numbers(p: int) -> Sensitivity:
    """Bound for all products of third and fourth degree within every pair of p >= 2 numbers.

    A subset of them can only change less. Exact for p = 2; else L1 is 3.6% too large at p = 3 and
    0.4% at p = 10 (eq. l1-of-pairs, l2-of-pairs).
    """
    if p == 2:
        more = Fraction(27, 125)
    else:
        parts = (Fraction(i, _STEPS) for i in range(_STEPS) if 3 * i**2 < _STEPS**2)
        more = Fraction(1, 8) + min(
            (p * (1 - e) ** 2 + e) ** 2 / (4 * (1 - 3 * e**2)) for e in parts
        )
    l2_squared = max(4 * k * (3 * p - 2 * k) for k in range(p + 1))
    return Sensitivity(Fraction(p * (5 * p - 1), 2) + more, Fraction(l2_squared))


def _by_thresholds(terms: Sequence[Term]) -> Sensitivity:
    """Bound for any products, where there are few enough patterns of signs, levels and powers.

    For groups that change their level, numbers of t below zero and K_i, how often uniform numbers
    are below |t_i| before the first that is not, all alternatives together change by at most an
    integer; the largest is the bound (eq. by-patterns).
    """
    grouped = alternatives(terms)
    features = sorted({f for values, _ in grouped for f in values}, key=str)
    groups = sorted({name for _, names in grouped for name in names})
    times = [Counter(values) for values, _ in grouped]
    powers = np.array([[t[f] for f in features] for t in times], np.int64).reshape(len(times), -1)
    numbers = [i for i, (_, level) in enumerate(features) if level is None]
    touching = np.array([[name in names for name in groups] for _, names in grouped], np.bool_)
    changed = np.minimum(np.array(list(grouped.values()), np.int64), 2)
    numbers.append(len(features))  # without numbers too there is one axis
    powers = np.pad(powers, ((0, 0), (0, 1)))
    highest = powers[:, numbers].max(axis=0) + 1
    flipped = [i for i in range(len(features)) if np.any(powers[:, i] % 2)]
    runs = _interchangeable(np.column_stack([powers, touching, changed]), flipped)
    patterns = 2 ** len(groups) * math.prod(length + 1 for length in runs)
    if patterns * math.prod(highest.tolist()) > _MOST_PATTERNS:
        return _one_by_one(terms)
    l1 = l2_squared = 0
    for moved in itertools.product((False, True), repeat=len(groups)):
        touched = (touching & np.array(moved, np.bool_)).any(axis=1)
        constant = int(changed[touched].sum()) + int(np.sum(~touched))
        at, kept = tuple(powers[~touched][:, numbers].T), powers[~touched][:, flipped]
        for negatives in itertools.product(*(range(length + 1) for length in runs)):
            turned = [i < k for length, k in zip(runs, negatives, strict=True)
                      for i in range(length)]  # fmt: skip
            negative = kept @ np.array(turned, np.int64) % 2 == 1
            below = np.zeros((2, *highest), np.int32)
            for total, more in zip(below, (1, 3), strict=True):
                np.add.at(total, at, np.where(negative, more, -1))
            for axis in range(1, below.ndim):
                np.cumsum(below, axis=axis, out=below)
            l1 = max(l1, constant + int(below[0].max()))
            l2_squared = max(l2_squared, constant + int(below[1].max()))
    return Sensitivity(Fraction(l1), Fraction(l2_squared))


def _interchangeable(rows: NDArray[np.int64], features: Sequence[int]) -> list[int]:
    """Lengths of runs of features (columns of `rows`) that can change places without effect.

    Of the signs of t in a run, only their number matters. So too where a number and a sign change
    places: neither has a higher power than one, and where a number has K = 0 its sign is free.
    """
    as_set = Counter(map(tuple, rows.tolist()))
    lengths: list[int] = []
    for before, at in zip([None, *features], features, strict=False):
        if before is not None:
            swapped = rows.copy()
            swapped[:, [before, at]] = rows[:, [at, before]]
            if Counter(map(tuple, swapped.tolist())) == as_set:
                lengths[-1] += 1
                continue
        lengths.append(1)
    return lengths


def _smaller(one: Sensitivity, other: Sensitivity) -> Sensitivity:
    """Two bounds on one vector: the smaller of each norm."""
    return Sensitivity(min(one.l1, other.l1), min(one.l2_squared, other.l2_squared))
