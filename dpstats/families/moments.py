"""Moments: sums of products of numbers, with powers, of signs and of indicators of levels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.checks import short
from dpstats.errors import RequestError
from dpstats.families.block import Block, DenseValues, noise_ratio
from dpstats.families.features import (
    SIGN,
    Feature,
    Term,
    alternatives,
    are_terms,
    has_sign,
    indicator,
    is_level,
    is_signed,
    known_features,
    product,
    replacement,
    rounded,
    term_names,
)
from dpstats.families.subgroups import (
    Subgroup,
    given_from_plain,
    plain_given,
    require_answered,
    suffix_of,
)
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema

COARSE_STEPS = 64  # to either side of the middle of a number's range
COARSE_NOISE = 16
CALIBRATION = Fraction(3, 100)  # the most that coarse moments cost, of what they calibrate costs
ROBUST = Fraction(1, 7)

_EXACT = 2**53  # integers below this are exact in float64
_ROWS = 2**16  # at a time
_PRODUCTS = 10**6  # in one call of BLAS: it is several times slower on larger matrices
_FEWEST_ROWS = 2**9
_COUNTED = 2**15


def used_columns(
    columns: Iterable[Column], terms: Iterable[Term], given: Subgroup | None
) -> tuple[Column, ...]:
    """The columns that occur in some terms and in a subgroup, in their order."""
    used = {name for term in terms for name, _ in term}
    used |= set() if given is None else {column.name for column in given.columns}
    return tuple(column for column in columns if column.name in used)


def terms_and_given(
    plain: Mapping[str, Any], schema: Schema
) -> tuple[tuple[Term, ...], Subgroup | None]:
    """Terms and subgroup of a block in a file."""
    terms = (tuple((str(name), level) for name, level in term) for term in plain["terms"])
    return tuple(terms), given_from_plain(plain, schema)


class TermBlock(Block):
    """Functions of products of features, in all rows or in those of a subgroup."""

    terms: tuple[Term, ...]
    given: Subgroup | None

    def has_terms(self, *, signs: bool = False) -> bool:
        """True for distinct columns and distinct terms of their features."""
        distinct = len({column.name for column in self.columns}) == len(self.columns)
        return distinct and are_terms(self.terms, known_features(self.columns, signs=signs))

    @property
    def numbers(self) -> tuple[Number, ...]:
        """Columns of which the functions use the value."""
        used = {name for term in self.terms for name, level in term if level is None}
        return tuple(c for c in self.columns if isinstance(c, Number) and c.name in used)

    @property
    def coded(self) -> tuple[Column, ...]:
        """The numbers."""
        return self.numbers

    @property
    def size(self) -> int:
        """Number of terms."""
        return len(self.terms)

    def named(self, numbers: Mapping[str, str]) -> list[str]:
        """Names in which the numbers, by column, are written in another way."""
        written = term_names(self.terms, self.columns, numbers)
        return [name + suffix_of(self.given) for name in written]

    def _steps(self, column: Number) -> int:
        """Steps from the middle of a number's range to its ends."""
        return column.half_points

    def largest_of(self, terms: Iterable[Term]) -> list[int]:
        """The largest values of products of features, in integer units."""
        steps = {c.name: self._steps(c) for c in self.columns if isinstance(c, Number)}
        return [math.prod(steps[name] for name, level in t if level is None) for t in terms]

    @cached_property
    def _halves(self) -> tuple[list[Term], Codes, Codes]:
        """Distinct halves of the terms, left ones first, and which two make up each term.

        Many terms share halves: the products of p numbers in pairs need p rows, not p (p + 1) / 2.
        """
        pairs = [(t[: (len(t) + 1) // 2], t[(len(t) + 1) // 2 :]) for t in self.terms]
        halves = list(dict.fromkeys(half for side in zip(*pairs, strict=True) for half in side))
        at = {half: i for i, half in enumerate(halves)}
        left, right = np.array([[at[half] for half in pair] for pair in pairs]).T
        return halves, left, right

    def _half_values(self, codes: Mapping[str, Codes], dtype: type[np.generic]) -> NDArray[Any]:
        """Values (h, n) of the halves in integer units."""
        halves, _, _ = self._halves
        columns = {c.name: c for c in self.columns}
        features = {
            (name, level): self._feature(columns[name], level, codes[name])
            for name, level in set(itertools.chain.from_iterable(halves))
        }
        values = np.empty((len(halves), len(next(iter(codes.values())))), dtype)
        for row, half in zip(values, halves, strict=True):
            row[:] = features[half[0]] if half else 1
            for feature in half[1:]:
                row *= features[feature]
        return values

    def _feature(self, column: Column, level: int | None, codes: Codes) -> NDArray[Any]:
        """One factor (n,); coarse grids round to the nearest step."""
        if level is not None:
            return indicator(level, column.bins_of(codes))
        assert isinstance(column, Number)
        return rounded(column, self._steps(column), codes)

    def values(self, codes: Mapping[str, Codes], dtype: type[np.generic]) -> NDArray[Any]:
        """Values (d, n) of the terms in integer units, zero outside the subgroup."""
        _, left, right = self._halves
        values = self._half_values(codes, dtype)
        products = np.empty((len(self.terms), values.shape[1]), dtype)
        for row, i, j in zip(products, left, right, strict=True):  # without copies of all halves
            np.multiply(values[i], values[j], out=row)
        return products if self.given is None else products * self.given.holds(codes)

    @property
    def plain_terms(self) -> list[list[list[str | int | None]]]:
        """The terms as files have them."""
        return [[list(feature) for feature in term] for term in self.terms]


@dataclass(frozen=True)
class Moments(TermBlock):
    """Sums of products of numbers, with powers, of signs and of the indicators of levels.

    Built by `Moments.of`, for first and second moments, or by `Moments.of_terms`. In unit scale a
    number runs over [-1, 1] (its code divided by K) and an indicator over {0, 1}. The sign of a
    column with two declared levels is -1 at the first and +1 at the second: products of signs hold
    the same as tables of these columns, in fewer functions.

    Attributes
    ----------
    columns : tuple of columns
        Numbers; Categories, Booleans or binned numbers, with one indicator per level or bin;
        Categories of two levels and Booleans, with a sign.
    terms : tuple of terms
        The functions, each a product of features.
    given : Subgroup, optional
        The rows that the sums are over; the others add nothing. It excludes rows without a value
        of some number or sign. Then the product of no features, (), is their number.
    coarse : bool
        For third and fourth moments. They are used only to estimate sampling variances, which
        matter where noise is small, and a rough value suffices. Finer grids are rounded to 64 steps
        on either side of their middle, which keeps sums of fourth powers in 64 bits, and an equal
        split gives these functions more noise than others: see `noise_factor`.
    robust : bool
        Coarse, for the robust errors of a regression.

    Examples
    --------
    >>> import dpstats as dps
    >>> columns = [dps.Number("age", 0, 100, missing=40), dps.Boolean("smoker")]
    >>> dps.Moments.of(dps.Schema(columns), ["age"], ["smoker"]).names
    ['age', 'smoker=False', 'smoker=True', 'age^2', 'age*smoker=False', 'age*smoker=True']
    >>> dps.Moments.of(dps.Schema(columns), ["age"], signs=["smoker"]).names
    ['age', 'sign(smoker)', 'age^2', 'age*sign(smoker)']
    """

    columns: tuple[Column, ...]
    terms: tuple[Term, ...]
    coarse: bool = False
    given: Subgroup | None = None
    robust: bool = False

    kind: ClassVar[str] = "moments"

    def __post_init__(self) -> None:
        # The sensitivity counts every function once, each within its range.
        if (
            not self.has_terms(signs=True)
            or (() in self.terms and self.given is None)
            or (self.robust and not self.coarse)
        ):
            raise RequestError(
                f"moments of {[column.name for column in self.columns]} need distinct terms, each "
                "a sorted product of numbers, of signs and of levels of different columns; use "
                "Moments.of"
            )
        require_answered((*self.numbers, *self.signs), self.given)

    @staticmethod
    def of(
        schema: Schema,
        numbers: Sequence[str],
        groups: Sequence[str] = (),
        degree: int = 2,
        given: str | None = None,
        signs: Sequence[str] = (),
        *,
        logs: bool = False,
    ) -> Moments:
        """All moments up to a degree (1 or 2) of some numbers, one-hot groups and signs.

        The square of a sign, which is one, is left out. With a condition `given`, or numbers or
        signs of columns with ``allow_missing=True``, they are those of the rows with the condition
        and a value of all of these; then the number of these rows is the last. With `logs`, numbers
        of which only the logarithm has moments are allowed.

        Raises
        ------
        RequestError
            For columns of the wrong kind, or numbers without a rule for missing cells.
        """
        if degree not in (1, 2) or isinstance(degree, bool):
            raise RequestError(f"degree of moments must be 1 or 2, got {short(degree)}")
        for name in numbers:
            number = schema[name]
            if not isinstance(number, Number):
                raise RequestError(f"{name!r} is not a number; moments are of numbers")
            number.require_missing("moments")
            if not logs:
                number.require_linear()
        for name in groups:
            if schema[name].bins < 2:
                raise RequestError(f"{name!r} has a single bin; add edges to the schema")
        for name in signs:
            if not has_sign(schema[name]):
                raise RequestError(
                    f"{name!r} has no sign; signs are of Booleans and Categories of two levels"
                )
        names = [*numbers, *signs, *groups]
        if not names or len(set(names)) < len(names):
            raise RequestError(f"moments need distinct columns, got {names}")
        features: list[Feature] = [(c.name, None) for c in schema if c.name in numbers]
        features += [(c.name, SIGN) for c in schema if c.name in signs]
        features += [(c.name, i) for c in schema if c.name in groups for i in range(c.bins)]
        pairs = itertools.combinations_with_replacement(features, degree)
        terms = dict.fromkeys([*((f,) for f in features), *(product(pair, ()) for pair in pairs)])
        group = Subgroup.of(schema, given, [*numbers, *signs])
        count: list[Term] = [] if group is None else [()]
        kept = [term for term in terms if term]  # neither the zero nor the square of a sign
        return Moments.of_terms(schema, [*kept, *count], given=group)

    @staticmethod
    def of_terms(
        columns: Iterable[Column],
        terms: Iterable[Term],
        coarse: bool = False,
        given: Subgroup | None = None,
        robust: bool = False,
    ) -> Moments:
        """The block of some terms, without the columns that do not occur in it."""
        terms = tuple(terms)
        return Moments(used_columns(columns, terms, given), terms, coarse, given, robust)

    def restrict(self, kept: NDArray[np.bool_]) -> Moments:
        """The functions marked in `kept`, (d,) bool, without columns that no longer occur."""
        terms = itertools.compress(self.terms, kept)
        return Moments.of_terms(self.columns, terms, self.coarse, self.given, self.robust)

    @property
    def signs(self) -> tuple[Column, ...]:
        """Columns of which the functions use the sign."""
        used = {name for term in self.terms for name, level in term if level == SIGN}
        return tuple(c for c in self.columns if c.name in used)

    @property
    def groups(self) -> tuple[Column, ...]:
        """Columns of which the functions use levels or bins."""
        used = {feature[0] for term in self.terms for feature in term if is_level(feature)}
        return tuple(c for c in self.columns if c.name in used)

    @property
    def calibrates(self) -> bool:
        """True if the functions serve only for rough sampling variances of other functions."""
        return self.coarse

    def noise_factor(self, budget: Budget, unit: Unit) -> int:
        """Ratio of the noise on these functions to that on others, in an equal split.

        Coarse moments are products of two first or second moments (their halves). They have at
        least 16 times the noise of these, and as much more as it takes to cost at most 3% of what
        these do: more under pure DP, where many functions cost much. Robust errors are estimated
        from them alone: for these 16 times the noise is the most, and less if it costs at most a
        seventh.
        """
        if not self.coarse:
            return 1
        halves = [term for term in self._halves[0] if term]
        calibrated = Moments.of_terms(self.columns, halves, given=self.given)
        price = budget.price(calibrated.sensitivity(unit))
        allowed = price * (ROBUST if self.robust else CALIBRATION)
        factor = noise_ratio(budget.price(self.sensitivity(unit)), allowed, budget)
        return min(factor, COARSE_NOISE) if self.robust else max(factor, COARSE_NOISE)

    @property
    def names(self) -> list[str]:
        """Such as ``age``, ``age^2``, ``age^2*income*sign(smoker)*region=north``."""
        return self.named({number.name: number.measured_name for number in self.numbers})

    def _steps(self, column: Number) -> int:
        """Fewer of coarse moments."""
        return min(column.half_points, COARSE_STEPS) if self.coarse else column.half_points

    @cached_property
    def ranges(self) -> tuple[Codes, Codes]:
        """Smallest and largest values in integer units: products of powers of K."""
        largest = self.largest_of(self.terms)
        if max(largest) > 2**62:
            raise RequestError("the grids are too fine for these products; use fewer points")
        high = np.array(largest, dtype=np.int64)
        return np.where([is_signed(term) for term in self.terms], -high, 0), high

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Sums (d,) int64: Gram matrices of halves over some rows, added in int64.

        They are exact in float64 for as many rows as keep sums of products below 2^53. Where a
        single product may exceed it, all is int64; the kernel has checked that sums cannot
        overflow.
        """
        if self.given is not None:
            inside = self.given.holds(codes)
            codes = {column.name: codes[column.name][inside] for column in self.columns}
        if self._are_powers:
            return self._sums_of_powers(codes)
        halves, left, right = self._halves
        lefts = int(left.max()) + 1
        exact = _EXACT // max(self.largest_of(halves)) ** 2
        rows = min(exact, max(_PRODUCTS // (lefts * len(halves)), _FEWEST_ROWS))
        total = np.zeros(self.size, dtype=np.int64)
        for start in range(0, len(next(iter(codes.values()))), rows or _ROWS):
            piece = {c.name: codes[c.name][start : start + (rows or _ROWS)] for c in self.columns}
            if rows:
                values = self._half_values(piece, np.float64)
                total += (values[:lefts] @ values.T)[left, right].astype(np.int64)
            else:
                values = self._half_values(piece, np.int64)
                total += np.einsum("fi,fi->f", values[left], values[right])
        return total

    @cached_property
    def _are_powers(self) -> bool:
        """True if every function is a power of a single number, on a grid small enough to count."""
        powers = all(len(set(term)) == 1 and term[0][1] is None for term in self.terms)
        return powers and all(number.half_points <= _COUNTED for number in self.numbers)

    def _sums_of_powers(self, codes: Mapping[str, Codes]) -> Codes:
        """Sums (d,) int64 from the number of rows with each code."""
        total = np.zeros(self.size, dtype=np.int64)
        for number in self.numbers:
            half = number.half_points
            counts = np.bincount(codes[number.name] + half, minlength=2 * half + 1)
            values = self._feature(number, None, np.arange(-half, half + 1))
            for f, term in enumerate(self.terms):
                if term[0][0] == number.name:
                    total[f] = values ** len(term) @ counts
        return total

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (d, n) int64."""
        return np.asarray(self.values(codes, np.int64))

    def evaluate(self, codes: Mapping[str, Codes]) -> DenseValues:
        """The functions at m points, in integer units."""
        return DenseValues(self.values(codes, np.float64))

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """A rational bound, exact for all first and second moments of numbers and signs.

        See eq. set-by-set for adding or removing a row, and `replacement`; in a subgroup the larger
        of both (``docs/explanation/privacy/sensitivity.md``, "Subgroups").
        """
        return self._once(("sensitivity", unit), lambda: self._sensitivity(unit))

    def _sensitivity(self, unit: Unit) -> Sensitivity:
        count = Fraction(len(alternatives(self.terms)))
        removed = Sensitivity(count, count)
        if unit == "add_remove":
            return removed
        replaced = replacement([term for term in self.terms if term])
        if self.given is None:
            return replaced
        l1, l2_squared = max(replaced.l1, count), max(replaced.l2_squared, count)
        return Sensitivity(l1, l2_squared)

    @property
    def keys(self) -> Sequence[Term]:  # type: ignore[override]
        """The terms."""
        return self.terms

    @property
    def scope(self) -> tuple[bool, Subgroup | None]:  # type: ignore[override]
        """Grids and rows of the sums."""
        return self.coarse, self.given

    def _cure(self, f: int, most: int) -> tuple[list[str], str]:
        """Columns of a term, and the points at which its product is at most `most`."""
        used = dict(self.terms[f])
        powers = sum(level is None for _, level in self.terms[f])
        half = math.floor(most ** (1 / powers) + 1e-9)  # a number has K steps to either side
        columns = [c.name for c in self.columns if c.name in used]
        return columns, f"declare them with at most points={2 * half + 1}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "terms": self.plain_terms,
            **({"coarse": True} if self.coarse else {}),
            **({"robust": True} if self.robust else {}),
            **plain_given(self.given),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Moments:
        """Inverse of `to_dict`."""
        terms, given = terms_and_given(plain, schema)
        coarse, robust = (bool(plain.get(key, False)) for key in ("coarse", "robust"))
        return Moments.of_terms(schema, terms, coarse, given, robust)


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
