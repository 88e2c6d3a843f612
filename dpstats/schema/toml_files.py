"""TOML files, with errors that name the file and the position."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.checks import did_you_mean, first_few
from dpstats.errors import FileFormatError, SchemaError
from dpstats.schema.template import unfinished

KEYS = frozenset({
    "rows", "unit", "rows_per_person", "person", "person_totals", "allocation", "weights", "budget",
    "reference", "schema", "column", "analysis", "guesses", "file",
})  # fmt: skip
_KINDS = ("a request", "a schema", "guesses")  # one file may hold all of them


def read_toml(path: str | Path, what: str = "schema") -> dict[str, Any]:
    """Read a TOML file of some kind; errors name the file and the position."""
    path = files.as_path(path)
    try:
        files.check_kind(path, f"a {what}", *_KINDS)
        text = files.read_bytes(path).decode("utf-8-sig")  # some editors mark the start
        if left := unfinished(text):
            raise SchemaError("\n  ".join([f"{path.name} is not finished; decide:", *left]))
        document = tomllib.loads(text)
        json.dumps(document, default=str)  # refuses numbers of thousands of digits
    except FileFormatError as error:
        raise SchemaError(str(error)) from None
    except SchemaError:
        raise
    except ValueError as error:  # of TOML, of UTF-8, or a number of thousands of digits
        raise SchemaError(f"{path.name} is not valid TOML: {error}{_cure(error)}") from None
    except RecursionError:
        raise SchemaError(f"{path.name} is nested too deeply") from None
    return document


def check_keys(document: Mapping[str, Any]) -> None:
    """Refuse tables and keys at the top of a file that nothing reads.

    Raises
    ------
    SchemaError
    """
    if unknown := sorted(set(document) - KEYS):
        raise SchemaError(
            f"unknown keys {first_few(unknown)}{did_you_mean(unknown, KEYS)}; known: {sorted(KEYS)}"
        )


def _cure(error: ValueError) -> str:
    """What to do about the commonest fault; the file is not quoted, which may be a table."""
    if not str(error).startswith(("Invalid value", "Expected newline")):
        return ""
    return (
        '; text needs double quotes, as in kind = "ols", and single ones inside, as in condition '
        "= \"smoker == 'yes'\"; true and false are in lower case"
    )
