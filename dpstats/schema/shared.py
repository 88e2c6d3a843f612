"""What all kinds of columns share: names, numbers and texts, checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpstats.errors import SchemaError

Level = str | int | float | bool


def check_name(name: object) -> None:
    """Refuse a column name that is no text or holds backticks."""
    if not isinstance(name, str) or not name.strip() or "`" in name:
        raise SchemaError(f"a column name must be non-empty text without backticks, got {name!r}")


def is_number(value: object) -> bool:
    """Whether a value is an int or a float (bool is neither)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Whether a number is finite as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def finite(value: object, what: str) -> float | int:
    """Return a finite number, or raise SchemaError."""
    if not is_number(value) or not is_finite(value):  # type: ignore[arg-type]
        raise SchemaError(f"{what} must be a finite number, got {value!r}")
    return value  # type: ignore[return-value]


def listed(values: Sequence[Level], most: int = 12) -> str:
    """The first few levels or values, for a message."""
    shown = ", ".join(repr(value) for value in values[:most])
    return f"[{shown}{', ...' if len(values) > most else ''}]"


def drop_defaults(plain: dict[str, Any]) -> dict[str, Any]:
    """Plain data without the keys that say nothing."""
    defaults = {"allow_missing": False, "edges": [], "closed": "left", "note": ""}
    return {
        key: v for key, v in plain.items() if v is not None and (key, v) not in defaults.items()
    }
