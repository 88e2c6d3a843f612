"""The fields that every kind of column has: its name, its levels, its plain form."""

from __future__ import annotations

from typing import Any

from dpstats.checks import check_label, check_text, short
from dpstats.errors import SchemaError

Level = str | int | float | bool
MISSING_LABEL = "(missing)"


def check_name(name: object) -> None:
    """Refuse a column name that is not text, is empty, or holds backticks."""
    if not isinstance(name, str) or not name.strip() or "`" in name:
        raise SchemaError(
            f"a column name must be non-empty text without backticks, got {short(name)}"
        )
    check_label("a column name", name, SchemaError)


def check_note(name: str, note: object) -> None:
    """Refuse a note that is not text."""
    check_text(f"column {name!r}: note", note, SchemaError)


def check_allow_missing(name: str, allow: object, missing: object, declared: str) -> None:
    """Refuse an `allow_missing` that is not true or false, or that comes with `missing=`."""
    if not isinstance(allow, bool):
        raise SchemaError(f"{name!r}: allow_missing must be true or false, got {short(allow)}")
    if allow and missing is not None:
        raise SchemaError(f"{name!r}: give missing= ({declared}) or allow_missing=True, not both")


def drop_defaults(plain: dict[str, Any]) -> dict[str, Any]:
    """Plain data without the keys whose values are the defaults."""
    defaults = {"allow_missing": False, "edges": [], "closed": "left", "note": ""}
    defaults |= {"scale": "linear", "even_edges": False}
    return {
        key: v for key, v in plain.items() if v is not None and (key, v) not in defaults.items()
    }
