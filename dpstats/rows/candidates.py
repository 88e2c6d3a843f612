"""Candidate points: drawn from a reference density, and merged where the family agrees on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Family, FamilyValues
from dpstats.schema import Schema

_ANYWHERE = 10_000  # points that are drawn where all candidates break rules


@dataclass(frozen=True)
class Candidates:
    """Distinct points with the reference's weight on each.

    Attributes
    ----------
    codes : column name -> (m,) int64
        Distinct rows of codes, in lexicographic order of the schema's columns.
    weights : (m,) float64
        Reference weights, summing to one.
    """

    codes: Mapping[str, Codes]
    weights: Floats

    @property
    def size(self) -> int:
        """Number of distinct points, m."""
        return len(self.weights)


def merged(schema: Schema, points: Mapping[str, Codes], weights: Floats) -> Candidates:
    """Candidates from points, column name -> (m,) codes, with weights (m,): equal ones merged."""
    first, which = _distinct([points[name] for name in schema.names])
    total = np.bincount(which, weights=weights)
    codes = {name: points[name][first] for name in schema.names}
    return Candidates(codes, total / total.sum())


def obeying(schema: Schema, points: Mapping[str, Codes], weights: Floats) -> Candidates:
    """Candidates from points as the rules between columns read them; none breaks a rule.

    Rules of some of the columns of a schema may need other columns to repair every point. Points
    that still break one are left out, and if that are all, any that break none take their place.
    """
    if not schema.rules:
        return merged(schema, points, weights)
    repairs = schema.repairs(schema.names)
    for codes, of_each in ((points, weights), (_anywhere(schema), np.ones(_ANYWHERE))):
        repaired = repairs.repair(codes)
        allowed = ~repairs.breaking(repaired)
        if allowed.any():
            kept = {name: column[allowed] for name, column in repaired.items()}
            return merged(schema, kept, of_each[allowed])
    return merged(schema, repairs.repair(points), weights)


def _anywhere(schema: Schema) -> dict[str, Codes]:
    rng = np.random.default_rng(0)
    return {c.name: c.draw_inside(rng.integers(c.bins, size=_ANYWHERE), rng) for c in schema}


def _distinct(columns: Sequence[Codes]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Distinct rows in lexicographic order: one index of each, and which one every row is.

    Rows are numbered by one integer in mixed radix, which sorts far faster than rows do.
    """
    key, radix = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low = int(column.min())
        size = int(column.max()) - low + 1
        if radix * size >= 2**63:  # renumber the rows so far, at most m of them
            values, key = np.unique(key, return_inverse=True)
            radix = len(values)
        key, radix = key * size + (column - low), radix * size
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return first, which


@dataclass(frozen=True)
class Seen:
    """Candidates merged into classes that no function of the family distinguishes.

    A density on classes, spread inside each class as the reference is, has the same optimum as
    one on all candidates.

    Attributes
    ----------
    values : FamilyValues
        The functions at one member of each class.
    reference : (classes,) float64
        Reference weight of each class.
    """

    values: FamilyValues
    reference: Floats
    _which: NDArray[np.intp]
    _inside: Floats

    def spread(self, density: Floats) -> Floats:
        """Candidate weights (m,) of a density (classes,) on classes."""
        return density[self._which] * self._inside


def seen_by(family: Family, candidates: Candidates) -> Seen:
    """Merge candidates that the family cannot distinguish."""
    first, which = _distinct(family.signature(candidates.codes))
    reference: Floats = np.bincount(which, weights=candidates.weights).astype(np.float64)
    values = family.evaluate({name: codes[first] for name, codes in candidates.codes.items()})
    return Seen(values, reference, which, candidates.weights / reference[which])
