"""Which bins of a number a comparison selects: only at declared edges or values, hence exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from dpstats.checks import first_few, is_number, short
from dpstats.errors import ConditionError
from dpstats.schema.column_fields import MISSING_LABEL, Level
from dpstats.schema.dates import day_of, day_text

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def bins_where(number: Any, comparison: str, value: Level) -> frozenset[int]:
    """Bins for which ``number <comparison> value`` is true.

    Raises
    ------
    ConditionError
        For a value that is no declared edge or value.
    """
    if number.allow_missing and value == MISSING_LABEL and comparison in ("==", "!="):
        every = range(number.bins)
        return frozenset(every[-1:] if comparison == "==" else every[:-1])
    if number.dates and (day := day_of(value)) is not None:
        value = day
    if not is_number(value):
        what = "of dates such as '2024-05-01'" if number.dates else "a number"
        raise ConditionError(
            f"{number.name!r} is {what} and cannot be compared with {short(value)}"
        )
    if number.values and not number.edges:
        if value in number.values:
            holds = _ORDER[comparison]
            found = [i for i, known in enumerate(number.values) if holds(known, value)]
            if number.allow_missing and comparison == "!=":
                found.append(number.value_bins)
            return frozenset(found)
    elif value in number.edges and not number.even_edges:
        cut = number.edges.index(value) + 1
        below, above = ("<", ">=") if number.closed == "left" else ("<=", ">")
        if comparison == below:
            return frozenset(range(cut))
        if comparison == above:
            return frozenset(range(cut, number.value_bins))
    shown = repr(day_text(value)) if number.dates else short(value)  # type: ignore[arg-type]
    raise ConditionError(
        f"{number.name!r} {comparison} {shown} cannot be measured exactly; {_allowed(number)}"
    )


def _allowed(number: Any) -> str:
    if number.values and not number.edges:
        return f"allowed: ==, !=, <, <=, >, >=, in with {first_few(number.values)}"
    if not number.edges or number.even_edges:
        return "the column declares no edges; add edges=[...] to the schema"
    below, above = ("<", ">=") if number.closed == "left" else ("<=", ">")
    edges = [number.text(edge) for edge in number.edges] if number.dates else number.edges
    return (
        f"allowed: {below} or {above} with one of the declared edges {first_few(edges)}; "
        "add an edge to the schema if you need another"
    )
