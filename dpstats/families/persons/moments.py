"""Products of person totals of products of numbers and levels, such as scores of a regression."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.features import (
    Feature,
    Term,
    alternatives,
    are_terms,
    indicator,
    is_signed,
    known_features,
    replacement,
    rounded,
    term_names,
    terms_from_plain,
)
from dpstats.families.persons.products import PersonProducts, steps_of
from dpstats.families.subgroups import Subgroup, require_answered
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema

_STEPS_OF_PAIRS = 64  # to either side of the middle: totals may be of products of two numbers


@dataclass(frozen=True)
class PersonMoments(PersonProducts):
    """Person totals of products of numbers and level indicators, such as regression scores.

    Attributes
    ----------
    columns : tuple of columns
    terms : tuple of terms
        As in `Moments`, of at most two numbers each; () is the number of rows.
    given : Subgroup, optional
        The rows that totals are over. It excludes rows without a value of some number.
    """

    columns: tuple[Column, ...]
    terms: tuple[Term, ...]
    given: Subgroup | None = None

    kind: ClassVar[str] = "person_moments"

    def __post_init__(self) -> None:
        if not are_terms(self.terms, known_features(self.columns)) or any(
            sum(level is None for _, level in term) > 2 for term in self.terms
        ):
            raise RequestError(
                f"person totals of {[column.name for column in self.columns]} need distinct terms, "
                "each a sorted product of at most two numbers and of levels of different columns"
            )
        require_answered((c for c in self.coded if isinstance(c, Number)), self.given)

    @staticmethod
    def of(
        columns: Iterable[Column], terms: Iterable[Term], given: Subgroup | None = None
    ) -> PersonMoments:
        """Without the columns that do not occur."""
        terms = tuple(terms)
        used = {name for term in terms for name, _ in term}
        used |= set() if given is None else {column.name for column in given.columns}
        return PersonMoments(tuple(c for c in columns if c.name in used), terms, given)

    @property
    def coded(self) -> tuple[Column, ...]:
        """The numbers."""
        used = {name for term in self.terms for name, level in term if level is None}
        return tuple(c for c in self.columns if c.name in used)

    @property
    def totals(self) -> tuple[Hashable, ...]:
        """The terms."""
        return tuple((term, self.given) for term in self.terms)

    @property
    def labels(self) -> list[str]:
        """Such as ``age*income``."""
        suffix = "" if self.given is None else f", {self.given.name}"
        return [name + suffix for name in term_names(self.terms, self.columns)]

    @cached_property
    def units(self) -> Codes:
        """Products of the steps of the numbers."""
        steps = {
            c.name: steps_of(c, _STEPS_OF_PAIRS) for c in self.columns if isinstance(c, Number)
        }
        return np.array([math.prod(steps[n] for n, level in t if level is None)
                         for t in self.terms], dtype=np.int64)  # fmt: skip

    def of_rows(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (T, n) int64 that each row adds to its person's totals."""
        columns, size = {c.name: c for c in self.columns}, len(next(iter(codes.values())))
        features: dict[Feature, Codes] = {}
        for name, level in {feature for term in self.terms for feature in term}:
            column, own = columns[name], codes[name]
            if level is not None:
                features[name, level] = indicator(level, column.bins_of(own)).astype(np.int64)
            else:
                assert isinstance(column, Number)
                features[name, level] = rounded(column, steps_of(column, _STEPS_OF_PAIRS), own)
        values = np.ones((len(self.terms), size), dtype=np.int64)
        for row, term in zip(values, self.terms, strict=True):
            for feature in term:
                row *= features[feature]
        return values if self.given is None else values * self.given.holds(codes)

    @cached_property
    def sets(self) -> Sequence[Sequence[int]]:
        """Terms that share their numbers and their groups: a row has one of them at most."""
        found: dict[Hashable, list[int]] = {}
        for t, term in enumerate(self.terms):
            (key,) = alternatives([term])
            found.setdefault(key, []).append(t)
        return list(found.values())

    @property
    def signed(self) -> Sequence[bool]:
        """Where some number has an odd power."""
        return [is_signed(term) for term in self.terms]

    @property
    def known(self) -> int | None:
        """The number of rows, unless it is that of a subgroup."""
        return self.terms.index(()) if self.given is None and () in self.terms else None

    def of_rows_alone(self, unit: Unit) -> Sensitivity:
        """Sensitivity of the sums of the terms over rows."""
        count = Fraction(len(self.sets))
        if unit == "add_remove" or self.terms == ((),):
            return Sensitivity(count, count)
        return replacement([term for term in self.terms if term])

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "terms": [[list(feature) for feature in term] for term in self.terms],
            **({"given": self.given.to_dict()} if self.given else {}),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> PersonMoments:
        """Inverse of `to_dict`."""
        given = Subgroup.from_dict(plain["given"], schema) if "given" in plain else None
        return cls.of(schema, terms_from_plain(plain["terms"]), given)
