"""Schemas with more bins, for analyses that see a number by its bins alone.

A logistic regression of one or two columns allows for how the outcome may vary within a bin, and an
interval of a quantile ends at edges. Neither costs more when there are more bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.arrays import Floats
from dpstats.errors import DpstatsError
from dpstats.planning.previews.invented import generator
from dpstats.planning.previews.likeness import Likeness
from dpstats.results.base import Result
from dpstats.schema import Column, Number, Schema

SERVE = 8, 16  # bins
_SERVED = f" ({SERVE[0]} to {SERVE[1]} serve most)"
AT_EDGES = "intervals of a quantile end at declared edges"
_TIMES = 2, 4  # the bins of a quantile
_FEW = 3  # bins of an interval that more of them would shorten
_LISTED = 8  # edges
_MOST_DIGITS = 6

Finer = tuple[str, Schema]
"""What to declare, and the schema that it gives."""


def spacing(column: Number) -> str:
    """How far edges are apart, in words."""
    apart = {f"{gap:g}" for gap in np.diff(_cuts(column))}
    return apart.pop() if len(apart) == 1 else f"up to {max(apart, key=float)}"


def finer_bins(
    analysis: Analysis[Result], schema: Schema, columns: Schema, like: Likeness
) -> Iterator[Finer]:
    """Schemas in which the numbers of an analysis have the bins that serve most analyses."""
    for bins in SERVE:
        wanted = {
            number.name: bins
            for number in _binned(analysis, schema)
            if number.value_bins < min(bins, SERVE[0])
        }
        yield from _declared(analysis, schema, columns, wanted, like, _SERVED)


def finer_edges(
    analysis: Analysis[Result], schema: Schema, columns: Schema, like: Likeness
) -> Iterator[Finer]:
    """Schemas in which the column of a quantile has more bins."""
    for times in _TIMES:
        wanted = {number.name: times * number.value_bins for number in _binned(analysis, schema)}
        yield from _declared(analysis, schema, columns, wanted, like)


def too_coarse(analysis: Analysis[Result], schema: Schema, results: Sequence[Result]) -> bool:
    """Whether the intervals of a quantile have the width of a few bins."""
    if not getattr(analysis, "ends_at_edges", False):
        return False
    column = schema[analysis.column]  # type: ignore[attr-defined]
    if not isinstance(column, Number) or not column.edges or column.value_bins > SERVE[-1]:
        return False
    cuts = np.array(_cuts(column))
    frames = [result.intervals_frame() for result in results]
    low, high = (np.array([frame[end] for frame in frames]) for end in ("conf_low", "conf_high"))
    bins = np.searchsorted(cuts, high) - np.searchsorted(cuts, low)
    return bool((np.median(bins, axis=0) <= _FEW).any())


def _binned(analysis: Analysis[Result], schema: Schema) -> list[Number]:
    """Numbers with edges that the analysis looks at."""
    used = (schema[name] for name in analysis.family(schema).column_names)
    return [column for column in used if isinstance(column, Number) and column.edges]


def _declared(
    analysis: Analysis[Result],
    schema: Schema,
    columns: Schema,
    wanted: dict[str, int],
    like: Likeness,
    usual: str = "",
) -> Iterator[Finer]:
    """The schema with so many bins, unless the analysis does not depend on them."""
    if not wanted:
        return
    with suppress(DpstatsError):  # a bin may hold no grid point
        codes, shares = like.points(columns, generator(0))
        changed: list[Column] = []
        said = []
        for column in schema:
            if isinstance(column, Number) and column.name in wanted:
                values = column.grid[np.minimum(codes[column.name] + column.half_points,
                                                len(column.grid) - 1)]  # fmt: skip
                finer = _split(column, wanted[column.name], values, shares)
                said.append(_said(column, finer) + usual)
                changed.append(finer)
            else:
                changed.append(column)
        made = replace(schema, columns=changed)
        if analysis.family(made).size != analysis.family(schema).size:
            yield ", ".join(said), made


def _said(old: Number, new: Number) -> str:
    added = [edge for edge in new.edges if edge not in old.edges]
    named = f", split at {', '.join(map(new.text, added))}" if len(added) <= _LISTED else ""
    return f"{old.name} has {old.value_bins} bins; with {new.value_bins}{named}"


def _cuts(column: Number) -> list[float]:
    """Ends of the bins, bounds included."""
    return [float(cut) for cut in dict.fromkeys([column.low, *column.edges, column.high])]


def _split(column: Number, bins: int, values: Floats, shares: Floats) -> Number:
    """The column with more bins: the one with most rows times width is split until they are enough.

    Declared edges are kept, so that conditions at them are too.
    """
    cuts = _cuts(column)
    steps = np.log if column.scale == "log" else np.asarray
    while len(cuts) <= bins:
        rows, _ = np.histogram(values, cuts, weights=shares)
        sizes = (rows + 1e-9) * np.diff(steps(np.array(cuts)))
        i = int(np.argmax(sizes))
        cuts.insert(i + 1, _between(cuts[i], cuts[i + 1], log=column.scale == "log"))
    added = [cut for cut in cuts if column.low < cut < column.high]  # type: ignore[operator]
    edges = dict.fromkeys(sorted([*column.edges, *added]))
    fields: dict[str, Any] = {"edges": tuple(edges)}
    if column.values is not None:
        fields |= {"low": None, "high": None}
    return replace(column, **fields)


def _between(low: float, high: float, *, log: bool) -> float:
    """A number with few digits in the middle third of two."""
    first, last = (np.log([low, high]) if log else np.array([low, high])).tolist()
    middle, third = (first + last) / 2, (last - first) / 6
    for digits in range(1, _MOST_DIGITS):
        value = float(f"{(np.exp(middle) if log else middle):.{digits}g}")
        place = np.log(value) if log else value
        if abs(place - middle) <= third:
            return int(value) if value.is_integer() else value
    return float(np.exp(middle) if log else middle)
