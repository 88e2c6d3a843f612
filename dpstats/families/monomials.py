"""Products of three or four numbers and levels, which least squares with interactions needs."""

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

from dpstats.columns import Codes, Column, Number
from dpstats.errors import RequestError
from dpstats.families.block import Block, Derivation, Sensitivity
from dpstats.families.cells import DenseValues
from dpstats.families.moments import Feature, Term, shared_terms
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.privacy.budget import Unit


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


@dataclass(frozen=True)
class Monomials:
    """Sums of products of numbers, with powers, and of the indicators of levels.

    A number runs over [-1, 1] in the paper's scale (its code divided by K), so products do too.

    Attributes
    ----------
    columns : tuple of columns
    terms : tuple of terms
        The functions, each as `product` writes it.
    """

    columns: tuple[Column, ...]
    terms: tuple[Term, ...]

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
    def of(schema: Schema, terms: Sequence[Term]) -> Monomials:
        """The block of some terms."""
        used = {name for term in terms for name, _ in term}
        return Monomials(tuple(c for c in schema if c.name in used), tuple(terms))

    def restrict(self, kept: NDArray[np.bool_]) -> Monomials:
        """The functions marked in `kept`, (d,) bool, without columns that no longer occur."""
        terms = tuple(itertools.compress(self.terms, kept))
        used = {name for term in terms for name, _ in term}
        return Monomials(tuple(c for c in self.columns if c.name in used), terms)

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

    @cached_property
    def ranges(self) -> tuple[Codes, Codes]:
        """Smallest and largest values in integer units: products of powers of K."""
        half = {c.name: c.half_points for c in self.columns if isinstance(c, Number)}
        top = [math.prod(half[name] for name, level in t if level is None) for t in self.terms]
        if max(top) > 2**62:
            raise RequestError("the grids are too fine for products of so many; use fewer points")
        high = np.array(top, dtype=np.int64)
        return np.where([_signed(term) for term in self.terms], -high, 0), high

    def _values(self, codes: Mapping[str, Codes]) -> Codes:
        """(d, n) int64."""
        columns = {c.name: c for c in self.columns}
        features = {
            (name, level): (
                codes[name] if level is None else columns[name].bins_of(codes[name]) == level
            ).astype(np.int64)
            for name, level in set(itertools.chain.from_iterable(self.terms))
        }
        return np.stack(
            [math.prod((features[f] for f in t[1:]), start=features[t[0]]) for t in self.terms]
        )

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
        return shared_terms(self.terms, wanted.terms) if isinstance(wanted, Monomials) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": "monomials",
            "terms": [[list(feature) for feature in t] for t in self.terms],
        }


def _signed(term: Iterable[Feature]) -> bool:
    """Whether a product can be negative: some number has an odd power."""
    powers = Counter(name for name, level in term if level is None)
    return any(power % 2 for power in powers.values())


def monomials_from_dict(plain: Mapping[str, Any], schema: Schema) -> Monomials:
    """Inverse of `Monomials.to_dict`."""
    return Monomials.of(
        schema, [tuple((str(name), level) for name, level in term) for term in plain["terms"]]
    )
