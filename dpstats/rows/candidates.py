"""Candidate points: drawn from a reference density, and merged where the family agrees on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Family, FamilyValues
from dpstats.schema import Number, Schema
from dpstats.schema.conditions import cell_index
from dpstats.schema.repairs import CompiledView, views_by_source, with_views

_ANYWHERE = 10_000  # points that are drawn where all candidates break rules


@dataclass(frozen=True)
class Candidates:
    """Distinct points with the reference's weight on each."""

    # column name -> (m,): distinct rows of codes, in lexicographic order of the schema's columns
    codes: Mapping[str, Codes]
    weights: Floats  # (m,): reference weights, summing to one

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
    if not schema.is_linked:
        return merged(schema, points, weights)
    repairs = schema.repairs(schema.names)
    points, anywhere = (_let_views_agree(schema, p) for p in (points, _anywhere(schema)))
    for codes, of_each in ((points, weights), (anywhere, np.ones(_ANYWHERE))):
        repaired = repairs.repair(codes)
        allowed = ~repairs.breaking(repaired)
        if allowed.any():
            kept = {name: column[allowed] for name, column in repaired.items()}
            return merged(schema, kept, of_each[allowed])
    return merged(schema, repairs.repair(points), weights)


def _let_views_agree(schema: Schema, points: Mapping[str, Codes]) -> dict[str, Codes]:
    """Points in which views follow from their source, within the bins that all had if possible."""
    agreeing, rng = dict(points), np.random.default_rng(0)
    for views in views_by_source(schema):
        source = views[0].source
        if source.name not in points:
            agreeing[source.name] = _source_codes(views, points, rng)
        differ = np.any([view.broken(agreeing) for view in views], axis=0)
        rows = {c.name: agreeing[c.name][differ] for c in (source, *(view.view for view in views))}
        agreeing[source.name] = agreeing[source.name].copy()
        agreeing[source.name][differ] = _draw_source(source, views, rows, rng)
        agreeing = with_views(views, agreeing)
    return {name: agreeing[name] for name in points}


def _source_codes(
    views: Sequence[CompiledView], points: Mapping[str, Codes], rng: np.random.Generator
) -> Codes:
    """Codes (m,) of a hidden number from which its views follow, or any where there is none."""
    source = views[0].source
    every = with_views(views, {source.name: rng.permutation(source.all_codes)})
    names = [view.view.name for view in views]
    place = {key: i for i, key in enumerate(zip(*(every[name] for name in names), strict=True))}
    keys = zip(*(points[name] for name in names), strict=True)
    places = np.array([place.get(key, -1) for key in keys])
    drawn = rng.integers(len(place), size=len(places))
    return every[source.name][np.where(places < 0, drawn, places)]


def _draw_source(
    source: Number,
    views: Sequence[CompiledView],
    points: Mapping[str, Codes],
    rng: np.random.Generator,
) -> Codes:
    """Codes (m,) of a number, for points whose views do not follow from it.

    Candidates are the code of the number and the codes nearest to each view. One of those in the
    bins of the number and all its views is drawn; without any, a code of the number in these bins;
    and where there is none either, the code of the number stays or a view decides, at random.
    """
    columns = [source, *(view.view for view in views)]

    def cells(codes: Codes) -> Codes:
        """Cell of the number and its views, for codes (...) of the number."""
        return cell_index(columns, with_views(views, {source.name: codes}))

    wanted, every = cell_index(columns, points), source.all_codes
    offered: Codes = np.array(
        [source.codes_by_source(c)[points[c.name] + c.half_points] for c in columns]
    )
    fits = cells(offered) == wanted
    place = (fits + rng.random(fits.shape)).argmax(axis=0)
    chosen: Codes = offered[place, np.arange(len(wanted))]
    order = np.argsort(cells(every), kind="stable")
    sorted_cells = cells(every)[order]
    first, last = (np.searchsorted(sorted_cells, wanted, side) for side in ("left", "right"))
    draw = ~fits.any(axis=0) & (first < last)
    chosen[draw] = every[order[rng.integers(first[draw], last[draw])]]
    return chosen


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
    """

    values: FamilyValues  # the functions at one member of each class
    reference: Floats  # (classes,): reference weight of each class
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
