"""First and second moments of numbers, one-hot groups and their products."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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
from dpstats.privacy.neighbours import Sensitivity
from dpstats.schema import Column, Number, Schema

if TYPE_CHECKING:
    from dpstats.privacy.neighbours import Unit

Feature = tuple[str, int | None]
"""A number's column name with None, or a group's column name with a level or bin."""
Term = tuple[Feature, ...]
"""One feature, or the product of two."""

_EXACT = 2**53  # integers below this are exact in float64


@dataclass(frozen=True)
class Moments:
    """Sums of x_i, of the indicators of levels, and of products of two of them.

    Built by `Moments.of`. In the paper's scale a number runs over [-1, 1] (its code divided by K)
    and an indicator over {0, 1}. Products of two levels of one group vanish and are left out.

    Attributes
    ----------
    numbers : tuple of Number
    groups : tuple of columns
        Categories, Booleans or binned numbers, each as one indicator per level or bin.
    terms : tuple of terms
        The functions: features and products of two features.

    Examples
    --------
    >>> import dpstats as dps
    >>> columns = [dps.Number("age", 0, 100, missing=40), dps.Boolean("smoker")]
    >>> dps.Moments.of(dps.Schema(columns), ["age"], ["smoker"]).names
    ['age', 'smoker=False', 'smoker=True', 'age^2', 'age*smoker=False', 'age*smoker=True']
    """

    numbers: tuple[Number, ...]
    groups: tuple[Column, ...]
    terms: tuple[Term, ...]

    needs_codes = True

    def __post_init__(self) -> None:
        # The sensitivity counts every function once, each within its range.
        names = [column.name for column in self.columns]
        known: set[Feature] = {(c.name, None) for c in self.numbers}
        known |= {(c.name, level) for c in self.groups for level in range(c.bins)}
        distinct = {(len(term), frozenset(term)) for term in self.terms}
        if (
            not self.terms
            or len(set(names)) < len(names)
            or len(distinct) < len(self.terms)
            or not all(_is_moment(term, known) for term in self.terms)
        ):
            raise RequestError(
                f"moments of {names} need distinct terms, each a feature or a product of two "
                "features of different columns (or of one number with itself); use Moments.of"
            )

    @staticmethod
    def of(
        schema: Schema, numbers: Sequence[str], groups: Sequence[str] = (), degree: int = 2
    ) -> Moments:
        """All moments up to a degree (1 or 2) of some numbers and one-hot groups.

        Raises
        ------
        RequestError
            For columns of the wrong kind, or numbers that do not say what missing cells count as.
        """
        if degree not in (1, 2) or isinstance(degree, bool):
            raise RequestError(f"degree of moments must be 1 or 2, got {degree!r}")
        chosen: list[Number] = []
        for name in numbers:
            column = schema[name]
            if not isinstance(column, Number):
                raise RequestError(f"{name!r} is not a number; moments are of numbers")
            if column.missing is None:
                raise RequestError(
                    f"moments of {name!r} need missing= in the schema: the value that missing "
                    "cells count as"
                )
            chosen.append(column)
        order = schema.names.index
        chosen.sort(key=lambda column: order(column.name))
        grouped = tuple(sorted((schema[name] for name in groups), key=lambda c: order(c.name)))
        for column in grouped:
            if column.bins < 2:
                raise RequestError(f"{column.name!r} has a single bin; add edges to the schema")
        names = [c.name for c in (*chosen, *grouped)]
        if not names or len(set(names)) < len(names):
            raise RequestError(f"moments need distinct columns, got {names}")
        features: list[Feature] = [(c.name, None) for c in chosen]
        features += [(c.name, level) for c in grouped for level in range(c.bins)]
        terms: list[Term] = [(feature,) for feature in features]
        if degree == 2:
            terms += [
                (a, b)
                for a, b in itertools.combinations_with_replacement(features, 2)
                if a[0] != b[0] or a[1] is None
            ]
        return Moments(tuple(chosen), grouped, tuple(terms))

    def restrict(self, kept: NDArray[np.bool_]) -> Moments:
        """The functions marked in `kept`, (d,) bool, without columns that no longer occur."""
        terms = tuple(itertools.compress(self.terms, kept))
        used = {name for term in terms for name, _ in term}
        return Moments(
            tuple(c for c in self.numbers if c.name in used),
            tuple(c for c in self.groups if c.name in used),
            terms,
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Numbers, then groups."""
        return (*self.numbers, *self.groups)

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.terms)

    @property
    def names(self) -> list[str]:
        """Such as ``age``, ``age*income``, ``age*region=north``, ``age^2``."""
        labels = {c.name: c.bin_labels for c in self.groups}

        def name(feature: Feature) -> str:
            column, level = feature
            return column if level is None else f"{column}={labels[column][level]}"

        return [
            f"{name(term[0])}^2"
            if len(term) == 2 and term[0] == term[1]
            else "*".join(name(feature) for feature in term)
            for term in self.terms
        ]

    @cached_property
    def ranges(self) -> tuple[Codes, Codes]:
        """Smallest and largest values in integer units: K_i, K_i K_j, or 1."""
        size: dict[Feature, int] = {(c.name, None): c.half_points for c in self.numbers}
        high = np.array([[size.get(f, 1) for f in (*t, ("", 0))[:2]] for t in self.terms], np.int64)
        signed = np.array([any(f[1] is None for f in t) for t in self.terms])
        square = np.array([len(t) == 2 and t[0] == t[1] for t in self.terms])
        top = high.prod(axis=1)
        return np.where(signed & ~square, -top, 0), top

    @cached_property
    def _features(self) -> list[Feature]:
        return list(dict.fromkeys(feature for term in self.terms for feature in term))

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Indices of the two features of each term; the last index is the constant one."""
        at = {feature: i for i, feature in enumerate(self._features)}
        one = len(at)
        pairs = [(at[t[0]], at[t[1]] if len(t) == 2 else one) for t in self.terms]
        first, second = np.array(pairs, dtype=np.intp).T
        return first, second

    def _feature_values(self, codes: Mapping[str, Codes]) -> NDArray[np.float64]:
        """(features + 1, n) float64 array of exact small integers, the constant last."""
        columns = {c.name: c for c in self.columns}
        n = len(next(iter(codes.values())))
        values = np.ones((len(self._features) + 1, n))
        for row, (name, level) in enumerate(self._features):
            column = columns[name]
            values[row] = (
                codes[name] if level is None else column.bins_of(codes[name]) == level
            )  # fmt: skip
        return values

    @cached_property
    def _block_rows(self) -> int:
        """Rows whose products sum to less than 2^53, so that float64 sums are exact."""
        largest = max([c.half_points for c in self.numbers], default=1)
        rows = _EXACT // largest**2
        if rows < 1:
            raise RequestError("the grid is too fine for exact sums; use fewer points")
        return int(min(rows, 2**16))

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Sums (d,) int64: Gram matrices of blocks of rows, exact in float64, added in int64."""
        used = {column.name: codes[column.name] for column in self.columns}
        n, step = len(next(iter(used.values()))), self._block_rows
        first, second = self._pairs
        total = np.zeros(self.size, dtype=np.int64)
        for start in range(0, n, step):
            rows = {name: array[start : start + step] for name, array in used.items()}
            values = self._feature_values(rows)
            total += (values @ values.T)[first, second].astype(np.int64)
        return total

    def evaluate(self, codes: Mapping[str, Codes]) -> DenseValues:
        """The functions at m points, in integer units."""
        values = self._feature_values({c.name: codes[c.name] for c in self.columns})
        first, second = self._pairs
        return DenseValues(values[first] * values[second])

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """A rational bound, exact without groups; see the notes.

        Notes
        -----
        Replace one row x by x', and write u = (x + x')/2, v = (x - x')/2, so |u_i| + |v_i| <= 1 and
        x_i x_j - x'_i x'_j = 2 (u_i v_j + v_i u_j). With p numbers and G groups:

        L1: numbers contribute at most (2p + 4) S - 2 S^2 (1 + 1/p), S = sum |v_i|, largest at
        S = p (p + 2) / (2 (p + 1)); every group adds at most 2, every product of a number and a
        group 2, every pair of groups 2.

        Squared L2: let s groups keep their level. With a_i = |v_i|, numbers contribute at most
        4 sum a_i + 4 sum_{i<j} (a_i + a_j - 2 a_i a_j); a number times a group at most 4 a_i if
        the level stays and 2 if it changes; a changed group 2, a pair of groups 2 unless both
        stay. All is multilinear in a, so the largest value is at k of the a_i equal to one.

        A subset of the terms can only lower both; the plain sum of ranges is used where smaller.
        """
        p, g = len(self.numbers), len(self.groups)
        ranges = self._ranges_of_groups_of_terms()
        if unit == "add_remove":
            return Sensitivity(Fraction(len(ranges)), Fraction(len(ranges)))
        l1 = sum((r.l1 for r in ranges), Fraction(0))
        l2 = sum((r.l2_squared for r in ranges), Fraction(0))
        if any(len(term) == 2 for term in self.terms):
            numbers = Fraction(p * (p + 2) ** 2, 2 * (p + 1))
            l1 = min(l1, numbers + 2 * g + 2 * p * g + g * (g - 1))
            largest = max(
                4 * k * (1 + s + p - k) + 2 * (g - s) * (1 + p) + g * (g - 1) - s * (s - 1)
                for k in range(p + 1)
                for s in range(g + 1)
            )
            l2 = min(l2, Fraction(largest))
        return Sensitivity(l1, l2)

    def _ranges_of_groups_of_terms(self) -> list[Sensitivity]:
        """Sensitivity of each number, square, product, and set of terms that share their columns.

        Indicators of one group are alternatives: one row puts weight on one of them only.
        """
        numeric = {c.name for c in self.numbers}
        seen: dict[tuple[str, ...], Sensitivity] = {}
        for term in self.terms:
            names = tuple(name for name, _ in term)
            signed = any(name in numeric for name in names)
            if len(names) == 2 and names[0] == names[1]:  # a square lies in [0, 1]
                seen[names] = Sensitivity(Fraction(1), Fraction(1))
            else:
                seen[names] = Sensitivity(Fraction(2), Fraction(4 if signed else 2))
        return list(seen.values())

    def derive(self, wanted: Block, *, complements: bool = True) -> Derivation | None:
        """The moments that both hold; those that only `wanted` holds have no terms."""
        return shared_terms(self.terms, wanted.terms) if isinstance(wanted, Moments) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": "moments",
            "numbers": [column.name for column in self.numbers],
            "groups": [column.name for column in self.groups],
            "terms": [[list(feature) for feature in term] for term in self.terms],
        }


def shared_terms(measured: Sequence[Term], wanted: Sequence[Term]) -> Derivation | None:
    """How wanted terms follow from measured ones: those that both hold, if there are any."""
    at = {term: i for i, term in enumerate(wanted)}
    member = np.array([at.get(term, -1) for term in measured], dtype=np.int64)
    return Derivation(member, len(wanted)) if np.any(member >= 0) else None


def _is_moment(term: Term, known: set[Feature]) -> bool:
    if len(term) not in (1, 2) or not known.issuperset(term):
        return False
    first, last = term[0], term[-1]
    return len(term) == 1 or first[0] != last[0] or (first == last and first[1] is None)


def moments_from_dict(plain: Mapping[str, Any], schema: Schema) -> Moments:
    """Inverse of `Moments.to_dict`."""
    numbers = [schema[name] for name in plain["numbers"]]
    return Moments(
        tuple(c for c in numbers if isinstance(c, Number)),
        tuple(schema[name] for name in plain["groups"]),
        tuple(tuple((str(f[0]), f[1]) for f in term) for term in plain["terms"]),
    )
