"""Dates as days since 1970-01-01, and numbers whose bounds are declared as dates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

from dpstats.checks import is_number, short
from dpstats.errors import SchemaError

_EPOCH = date(1970, 1, 1)


def day_of(value: object) -> int | None:
    """Days since 1970-01-01 of a date, or of text such as 2024-05-01; None for anything else.

    A clock at midnight, without a zone, is a date: so pandas writes one. `NaT` is none.
    """
    if isinstance(value, str):
        try:
            text, value = value, date.fromisoformat(value)
        except ValueError:
            return None
        if value.isoformat() != text:  # a week, or without dashes
            return None
    if isinstance(value, datetime) and value == value and value.timetz() == time():
        value = value.date()
    if not isinstance(value, date) or isinstance(value, datetime):
        return None
    return (value - _EPOCH).days


def day_text(day: float) -> str:
    """A day since 1970-01-01 as text such as 2024-05-01."""
    return (_EPOCH + timedelta(days=round(day))).isoformat()


def days_of_bounds(number: Any, where: str, usual_points: int) -> dict[str, Any]:
    """Fields of a `Number` in days, with one point for each day; none if there is no date."""
    edges: Any = number.edges
    first = edges[0] if isinstance(edges, Sequence) and edges else None
    bounds = {"low": number.low, "high": number.high, "edges": first, "missing": number.missing}
    dated = (what for what, value in bounds.items() if day_of(value) is not None)
    dated_field = next(dated, "")
    if not dated_field and not number.dates:
        return {}

    def read(what: str, value: object) -> Any:
        day = day_of(value)
        if day is None and not (number.dates and is_number(value)):
            alike = (
                f", as {dated_field} {'are' if dated_field == 'edges' else 'is'}"
                if dated_field
                else ""
            )
            got = "" if what.startswith("each") else f"; got {short(value)}"
            raise SchemaError(f"{where}: {what} must be a date such as 2024-05-01{alike}{got}")
        return value if day is None else day

    if number.values is not None:
        raise SchemaError(f"{where}: dates are declared by low and high, not by values")
    low, high = read("low", number.low), read("high", number.high)
    every_day = int(high) - int(low) + 1
    if number.points not in (usual_points, every_day):
        raise SchemaError(f"{where}: dates have one grid point for every day; leave points out")
    if isinstance(edges, Sequence) and not isinstance(edges, str):
        edges = tuple(read("each of edges", edge) for edge in edges)
    missing = None if number.missing is None else read("missing", number.missing)
    codes: Any = number.missing_values
    if isinstance(codes, Sequence) and not isinstance(codes, str):
        codes = tuple(read("each of missing_values", code) for code in codes)
    return {"low": low, "high": high, "edges": edges, "missing": missing, "missing_values": codes,
            "points": every_day, "dates": True}  # fmt: skip
