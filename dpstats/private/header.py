"""The names of a table's columns, from what its file says of them alone.

A file without a header has a person's row there. What looks like one is refused and never quoted.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dpstats import files
from dpstats.errors import DataError, SchemaError
from dpstats.private.delimited import check_kind, in_utf8, is_delimited
from dpstats.private.parquet import SUFFIXES, is_several, parquet
from dpstats.schema import TextFile
from dpstats.schema.column_fields import check_name

_LONGEST = 2**20  # bytes of a first line
_DELIMITERS = ",;\t"
_VALUES = frozenset(
    ("true", "false", "yes", "no", "na", "n/a", "nan", "none", "null", "nil", "male", "female")
)
_NUMBER = re.compile(r"[-+\d.,:/ %$€£]*\d[-+\d.,:/ %$€£]*")  # dates and times too
_NO_LINE = (
    "it is empty, or its first line is, or is longer than a megabyte; give the file a first line "
    "with names of columns, or name them with --header a,b,c, without the file"
)


def read_header(path: str | Path, written: TextFile = TextFile()) -> list[str]:  # noqa: B008
    """Names of the columns of a table in files, as far as all files have them; no row is read.

    DataError if the first line does not look like names: no field may be a number, a date, empty,
    repeated, or a word such as true. The message quotes nothing of it.
    """
    path = files.as_path(path)
    if not is_several(path) and not path.is_file():
        raise DataError(f"there is no file {files.shown(path)!r}")
    names = _header(path, written)
    if isinstance(names, str):  # raised here, where no frame of the traceback holds the line
        raise DataError(f"{files.shown(path)!r}: {names}")
    return names


def read_names(text: str) -> list[str]:
    """Names of columns that a person gives, separated by commas."""
    names = next(csv.reader([text], skipinitialspace=True), [])
    for name in names:
        check_name(name)
    if not names or len(set(names)) < len(names):
        raise SchemaError("--header needs different names, separated by commas, such as age,sex")
    return names


def _header(path: Path, written: TextFile) -> list[str] | str:
    """The names, or why there are none."""
    if is_several(path) or path.suffix.lower() in SUFFIXES:
        stated = list(parquet(path).fields)
        if not stated:
            return "it has no column that all its files have"
        return _refuse("names that its schema holds do", "schema") if is_row(stated) else stated
    if not is_delimited(path):
        return "not a .csv, .tsv (also .gz) or .parquet file"
    names = _first_line(path, written)
    if names is None:
        return (
            f"it cannot be read: it is damaged, or text that is not {written.encoding.upper()}; if "
            "it is text, save it as UTF-8, or say which with --encoding, such as latin-1 or cp1252"
        )
    if not names:
        return _NO_LINE
    kept = [name.strip() for name in names]
    return _refuse("first line does", "first line") if is_row(kept) else kept


def _refuse(what: str, place: str) -> str:
    return (
        f"the {what} not look like names of columns: there are numbers, dates, empty or repeated "
        "fields, or words such as yes, as in a row of data. Nothing of it is shown; name the "
        f"columns with --header a,b,c, without the file, or give the file a {place} with their "
        "names, which a release needs"
    )


def _first_line(path: Path, written: TextFile) -> list[str] | None:
    """Fields of the first line, split by the delimiter that is declared, or gives most of them."""
    zipped = path.suffix.lower() == ".gz"
    try:
        check_kind(path, zipped)
        with pa.OSFile(os.fsencode(path)) as raw:
            line = _line(io.BufferedReader(in_utf8(raw, zipped, written)))
        if "\0" in line:
            return None
        marks = written.delimiter or _DELIMITERS
        return max((next(csv.reader([line], delimiter=d), []) for d in marks), key=len)
    except (OSError, EOFError, UnicodeError, csv.Error):
        return None


def _line(text: io.BufferedReader) -> str:
    """The first line, or "" where it has no end: what follows is not even decoded."""
    line = text.readline(_LONGEST)
    return "" if len(line) == _LONGEST else line.decode("utf-8-sig").rstrip("\r\n")


def is_row(names: Sequence[str]) -> bool:
    """True if some fields look like cells, or could not be names."""
    if not names or len(set(names)) < len(names):
        return True
    for name in names:
        if not name or name.lower() in _VALUES or _NUMBER.fullmatch(name) or _is_number(name):
            return True
        try:
            check_name(name)
        except SchemaError:
            return True
    return False


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
