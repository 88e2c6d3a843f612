"""The fields that every kind of column has: its name, its levels, its plain form."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from dpstats.checks import check_label, check_text, short
from dpstats.errors import SchemaError

Level = str | int | float | bool
MISSING_LABEL = "(missing)"
_SHOWN = 4  # codes for missing cells in a line


def check_name(name: object) -> None:
    """Refuse a column name that is not text, is empty, or holds backticks."""
    if not isinstance(name, str) or not name.strip() or "`" in name:
        raise SchemaError(
            f"a column name must be non-empty text without backticks, got {short(name)}"
        )
    check_label("a column name", name, SchemaError)


def quoted_name(name: str) -> str:
    """A column's name in formulas and conditions: in backticks unless it is a plain word."""
    plain = re.fullmatch(r"[^\W\d]\w*", name) and unicodedata.is_normalized("NFKC", name)
    return name if plain and not keyword.iskeyword(name) else f"`{name}`"


def check_note(name: str, note: object) -> None:
    """Refuse a note that is not text."""
    check_text(f"column {name!r}: note", note, SchemaError)


def check_allow_missing(name: str, allow: object, missing: object, declared: str) -> None:
    """Refuse an `allow_missing` that is not true or false, or that comes with `missing=`."""
    if not isinstance(allow, bool):
        raise SchemaError(f"{name!r}: allow_missing must be true or false, got {short(allow)}")
    if allow and missing is not None:
        raise SchemaError(f"{name!r}: give missing= ({declared}) or allow_missing=True, not both")


def read_missing_values(column: Any, declared: str) -> tuple[Any, ...]:
    """Codes for missing cells that a column declares, each once, with the rule that they follow."""
    where, given = f"column {column.name!r}", column.missing_values
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SchemaError(f"{where}: missing_values must be a list, such as [8, 9]")
    if given and column.missing is None and not column.allow_missing:
        raise SchemaError(
            f"{where}: missing_values need missing= ({declared}) or allow_missing=True, which says "
            "as what missing cells count"
        )
    return tuple(given)


def cells_named(codes: Sequence[object], *others: str) -> str:
    """Cells that share a rule, such as ``missing, 8, 9 or undeclared``."""
    shown = list(map(str, codes)) if len(codes) <= _SHOWN else [f"one of {len(codes)} codes"]
    every = ["missing", *shown, *others]
    return " or ".join([", ".join(every[:-1]), every[-1]] if every[1:] else every)


def drop_defaults(plain: dict[str, Any]) -> dict[str, Any]:
    """Plain data without the keys whose values are the defaults."""
    defaults = {"allow_missing": False, "edges": [], "closed": "left", "note": ""}
    defaults |= {"scale": "linear", "missing_values": [], "even_edges": False}
    return {
        key: v for key, v in plain.items() if v is not None and (key, v) not in defaults.items()
    }
