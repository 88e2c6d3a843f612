"""Dates as days since 1970-01-01, and numbers whose bounds are declared as dates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from dpstats.checks import check_number, is_number, is_real, listed, short
from dpstats.errors import RequestError, SchemaError

_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999


def day_of(value: object) -> int | None:
    """Days since 1970-01-01 of a date, or of text such as 2024-05-01; None for anything else.

    A clock at midnight, without a zone, is a date: so pandas and numpy write one. `NaT` is none.
    """
    if isinstance(value, str):
        try:
            text, value = value, date.fromisoformat(value)
        except ValueError:
            return None
        if value.isoformat() != text:  # a week, or without dashes
            return None
    value = listed(value)
    if not isinstance(value, date) or isinstance(value, datetime):
        return None
    return (value - _EPOCH).days


def check_day(name: str, value: Any) -> float:
    """Return a date, its text or a number of days as days since 1970-01-01, or RequestError."""
    day = day_of(value)
    if day is None and not is_real(value):
        raise RequestError(
            f"{name}={short(value)} is no date; give one such as '2024-05-01', or days "
            "since 1970-01-01"
        )
    return check_number(name, value) if day is None else day


def day_text(day: float) -> str:
    """A day since 1970-01-01 as text such as 2024-05-01; its number where no date has a text."""
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return f"day {day:.0f} from 1970-01-01"
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
