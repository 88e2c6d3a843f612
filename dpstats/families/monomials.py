"""Products of three or more numbers and levels, for interactions and for fourth moments."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block, Derivation
from dpstats.families.cells import DenseValues
from dpstats.families.moments import Feature, Term, shared_terms
from dpstats.privacy.neighbours import Sensitivity
from dpstats.schema import Column, Number, Schema

if TYPE_CHECKING:
    from dpstats.privacy.neighbours import Unit


def product(one: Iterable[Feature], other: Iterable[Feature]) -> Term | None:
    """The product of two products of features, sorted; None where it is always zero.

    A level times itself is itself, two levels of one column never meet; numbers have powers.
    """
    both = (*one, *other)
    numbers = sorted(feature for feature in both if feature[1] is None)
    levels = {feature for feature in both if feature[1] is not None}
    if len({name for name, _ in levels}) < len(levels):
        return None
    return (*numbers, *sorted(levels, key=str))


COARSE_STEPS = 64  # to either side of the middle of a number's range
COARSE_NOISE = 16


@dataclass(frozen=True)
class Monomials:
    """Sums of products of numbers, with powers, and of the indicators of levels.

    A number runs over [-1, 1] in the paper's scale (its code divided by K), so products do too.

    Attributes
    ----------
    columns : tuple of columns
    terms : tuple of terms
        The functions, each as `product` writes it.
    coarse : bool
        Third and fourth moments only tell how far other means vary from sample to sample, which
        matters where noise is small, and a rough value does. Then finer grids are rounded to 64
        steps on either side of their middle, which keeps sums of fourth powers in 64 bits, and an
        equal split gives these functions 16 times the noise of others.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Number("age", 0, 100, missing=40), dps.Boolean("smoker")])
    >>> cube = (("age", None),) * 3
    >>> dps.Monomials.of(schema, [cube, (("age", None), ("smoker", 1))]).names
    ['age^3', 'age*smoker=True']
    """

    columns: tuple[Column, ...]
    terms: tuple[Term, ...]
    coarse: bool = False

    needs_codes = True

    def __post_init__(self) -> None:
        kinds = {column.name: column for column in self.columns}
        for name, level in itertools.chain.from_iterable(self.terms):
            fits = name in kinds and (
                isinstance(kinds[name], Number) if level is None else 0 <= level < kinds[name].bins
            )
            if not fits:
                raise RequestError(f"{(name, level)} is not a feature of {list(kinds)}")
        if (
            not self.terms
            or len(set(self.terms)) < len(self.terms)
            or any(not term or product(term, ()) != term for term in self.terms)
        ):
            raise RequestError("monomials need distinct terms, each a sorted product of features")

    @staticmethod
    def of(schema: Schema, terms: Sequence[Term], *, coarse: bool = False) -> Monomials:
        """The block of some terms."""
        used = {name for term in terms for name, _ in term}
        return Monomials(tuple(c for c in schema if c.name in used), tuple(terms), coarse)

    @property
    def noise_factor(self) -> int:
        """How many times the noise of other functions an equal split gives to these."""
        return COARSE_NOISE if self.coarse else 1

    def restrict(self, kept: NDArray[np.bool_]) -> Monomials:
        """The functions marked in `kept`, (d,) bool, without columns that no longer occur."""
        terms = tuple(itertools.compress(self.terms, kept))
        used = {name for term in terms for name, _ in term}
        return Monomials(tuple(c for c in self.columns if c.name in used), terms, self.coarse)

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.terms)

    @property
    def names(self) -> list[str]:
        """Such as ``age^2*income*region=north``."""
        labels = {c.name: c.bin_labels for c in self.columns}
        return [
            "*".join(
                (name if level is None else f"{name}={labels[name][level]}")
                + (f"^{power}" if power > 1 else "")
                for (name, level), power in Counter(term).items()
            )
            for term in self.terms
        ]

    def _steps(self, column: Number) -> int:
        """Steps from the middle of a number's range to its ends."""
        return min(column.half_points, COARSE_STEPS) if self.coarse else column.half_points

    @cached_property
    def ranges(self) -> tuple[Codes, Codes]:
        """Smallest and largest values in integer units: products of powers of K."""
        half = {c.name: self._steps(c) for c in self.columns if isinstance(c, Number)}
        top = [math.prod(half[name] for name, level in t if level is None) for t in self.terms]
        if max(top) > 2**62:
            raise RequestError("the grids are too fine for products of so many; use fewer points")
        high = np.array(top, dtype=np.int64)
        return np.where([_signed(term) for term in self.terms], -high, 0), high

    def _values(self, codes: Mapping[str, Codes]) -> Codes:
        """(d, n) int64."""
        columns = {c.name: c for c in self.columns}
        features = {
            (name, level): self._feature(columns[name], level, codes[name])
            for name, level in set(itertools.chain.from_iterable(self.terms))
        }
        return np.stack(
            [math.prod((features[f] for f in t[1:]), start=features[t[0]]) for t in self.terms]
        )

    def _feature(self, column: Column, level: int | None, codes: Codes) -> Codes:
        """One factor, (n,) int64; rounding is to the nearest step, halves away from the middle."""
        if level is not None or not isinstance(column, Number):
            return np.asarray(column.bins_of(codes) == level, dtype=np.int64)
        half, steps = column.half_points, self._steps(column)
        if steps == half:
            return np.asarray(codes, dtype=np.int64)
        return np.asarray(np.sign(codes) * ((2 * steps * np.abs(codes) + half) // (2 * half)))

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Sums (d,) int64 in integer arithmetic; the kernel has seen that they cannot overflow."""
        return np.asarray(self._values(codes).sum(axis=1), dtype=np.int64)

    def evaluate(self, codes: Mapping[str, Codes]) -> DenseValues:
        """The functions at m points, in integer units."""
        return DenseValues(self._values(codes).astype(np.float64))

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """The sum of the largest changes of every product of numbers on a set of groups.

        Notes
        -----
        Take the terms that share their numbers (with powers) and their groups. One row has one
        level in each group, so it gives its product v to at most one of these terms, with |v| at
        most 1, and v at least 0 if all powers are even. Replacing it changes one term by at most
        2 (1 if v cannot be negative), or two terms by at most 1 each: L1 at most 2, squared L2 at
        most 4 if v can be negative; else L1 and squared L2 are at most the smaller of 2 and the
        number of terms. Adding or removing it changes one term by at most 1.
        """
        alike = Counter(
            (tuple(f for f in t if f[1] is None), tuple(f[0] for f in t if f[1] is not None))
            for t in self.terms
        )
        if unit == "add_remove":
            return Sensitivity(Fraction(len(alike)), Fraction(len(alike)))
        l1 = l2 = 0
        for (numbers, _), count in alike.items():
            signed = _signed(numbers)
            l1 += 2 if signed else min(2, count)
            l2 += 4 if signed else min(2, count)
        return Sensitivity(Fraction(l1), Fraction(l2))

    def derive(self, wanted: Block, *, complements: bool = True) -> Derivation | None:
        """The products that both hold."""
        if not isinstance(wanted, Monomials) or wanted.coarse != self.coarse:
            return None
        return shared_terms(self.terms, wanted.terms)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": "monomials",
            "terms": [[list(feature) for feature in t] for t in self.terms],
            **({"coarse": True} if self.coarse else {}),
        }


def _signed(term: Iterable[Feature]) -> bool:
    """Whether a product can be negative: some number has an odd power."""
    powers = Counter(name for name, level in term if level is None)
    return any(power % 2 for power in powers.values())


def monomials_from_dict(plain: Mapping[str, Any], schema: Schema) -> Monomials:
    """Inverse of `Monomials.to_dict`."""
    terms = [tuple((str(name), level) for name, level in term) for term in plain["terms"]]
    return Monomials.of(schema, terms, coarse=bool(plain.get("coarse", False)))


def third_and_fourth_powers(schema: Schema, names: Sequence[str]) -> Monomials | None:
    """Coarse means of x^3 and x^4 of the numbers that take more than two values, if any do.

    With two values either power follows from x.
    """
    many = [name for name in names if takes_more_than_two(schema[name])]
    terms = [((name, None),) * power for name in many for power in (3, 4)]
    return Monomials.of(schema, terms, coarse=True) if terms else None


def fourth_moments_of_pairs(schema: Schema, names: Sequence[str]) -> Monomials | None:
    """Coarse means of all products of third and fourth degree within every pair of numbers.

    Without pairs of which both take two values only; None if no pair is left.
    """
    pairs = [
        pair
        for pair in itertools.combinations(sorted(names), 2)
        if any(takes_more_than_two(schema[name]) for name in pair)
    ]
    terms = dict.fromkeys(
        tuple((name, None) for name in product)
        for pair in pairs
        for degree in (3, 4)
        for product in itertools.combinations_with_replacement(pair, degree)
    )
    return Monomials.of(schema, list(terms), coarse=True) if terms else None


def takes_more_than_two(column: Column) -> bool:
    """Whether a number's third and fourth powers are not known from its first."""
    return isinstance(column, Number) and len(column.codes_in_use) > 2
