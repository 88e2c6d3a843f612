"""The fields that every kind of column has: its name, its levels, its plain form; dates."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from dpstats.errors import SchemaError

Level = str | int | float | bool

_EPOCH = date(1970, 1, 1)


def check_name(name: object) -> None:
    """Refuse a column name that is not text, is empty, or holds backticks."""
    if not isinstance(name, str) or not name.strip() or "`" in name:
        raise SchemaError(f"a column name must be non-empty text without backticks, got {name!r}")


def drop_defaults(plain: dict[str, Any]) -> dict[str, Any]:
    """Plain data without the keys whose values are the defaults."""
    defaults = {"allow_missing": False, "edges": [], "closed": "left", "note": ""}
    return {
        key: v for key, v in plain.items() if v is not None and (key, v) not in defaults.items()
    }


def day_of(value: object) -> int | None:
    """Days since 1970-01-01 of a date, or of text such as 2024-05-01; None for anything else."""
    if isinstance(value, str):
        try:
            text, value = value, date.fromisoformat(value)
        except ValueError:
            return None
        if value.isoformat() != text:  # a week, or without dashes
            return None
    if not isinstance(value, date) or isinstance(value, datetime):
        return None
    return (value - _EPOCH).days


def day_text(day: float) -> str:
    """A day since 1970-01-01 as text such as 2024-05-01."""
    return (_EPOCH + timedelta(days=round(day))).isoformat()
