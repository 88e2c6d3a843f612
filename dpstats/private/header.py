"""The names of a table's columns, from what its file says of them alone.

A file without a header has a person's row there. What looks like one is refused and never quoted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from dpstats import files
from dpstats.errors import DataError, SchemaError
from dpstats.private.delimited import first_line, is_delimited
from dpstats.private.parquet import SUFFIXES, is_several, parquet
from dpstats.private.sources import describe_unopened, without_rows
from dpstats.schema import TextFile
from dpstats.schema.column_fields import check_name

_VALUES = frozenset(
    ("true", "false", "yes", "no", "na", "n/a", "nan", "none", "null", "nil", "male", "female")
)
_NUMBER = re.compile(r"[-+\d.,:/ %$€£]*\d[-+\d.,:/ %$€£]*")  # dates and times too
_NO_LINE = (
    "it is empty, or its first line is; give the file a first line with names of columns, or name "
    "them with --header a,b,c, without the file"
)


def read_header(path: str | Path, written: TextFile = TextFile()) -> list[str]:  # noqa: B008
    """Names of the columns of a table in files, as far as all files have them; no row is read.

    DataError if the first line does not look like names: no field may be a number, a date, empty,
    repeated, or a word such as true. The message quotes nothing of it.
    """
    path = files.as_path(path)
    name = repr(files.shown(path))
    if not is_several(path) and not path.is_file():
        raise DataError(f"there is no file {name}")

    def describe(error: Exception) -> str:
        if is_delimited(path):
            return (
                f"{name} cannot be read: it is damaged, or text that is not "
                f"{written.encoding.upper()}; if it is text, save it as UTF-8, or say which with "
                "--encoding, such as latin-1 or cp1252"
            )
        return describe_unopened(name, error)

    return without_rows(lambda: _header(path, name, written), describe)


def read_names(text: str) -> list[str]:
    """Names of columns that a person gives, separated by commas."""
    names = next(csv.reader([text], skipinitialspace=True), [])
    for name in names:
        check_name(name)
    if not names or len(set(names)) < len(names):
        raise SchemaError("--header needs different names, separated by commas, such as age,sex")
    return names


def _header(path: Path, name: str, written: TextFile) -> list[str]:
    if is_several(path) or path.suffix.lower() in SUFFIXES:
        names, place = list(parquet(path).fields), "schema"
        what = "names that its schema holds do"
        if not names:
            raise DataError(f"{name}: it has no column that all its files have")
    elif not is_delimited(path):
        raise DataError(f"{name}: not a .csv, .tsv (also .gz) or .parquet file")
    else:
        names, place = [field.strip() for field in first_line(path, written)], "first line"
        what = "first line does"
        if not names:
            raise DataError(f"{name}: {_NO_LINE}")
        if any("\0" in field or "\ufffd" in field for field in names):
            raise UnicodeError
    if is_row(names):
        raise DataError(
            f"{name}: the {what} not look like names of columns: there are numbers, dates, line "
            "breaks, empty or repeated fields, or words such as yes, as in a row of data. Nothing "
            "of it is shown; name the columns with --header a,b,c, without the file, or give the "
            f"file a {place} with their names, which a release needs"
        )
    return names


def is_row(names: Sequence[str]) -> bool:
    """True if some fields look like cells, or could not be names."""
    if not names or len(set(names)) < len(names):
        return True
    if any(mark in name for name in names for mark in "\r\n"):  # rows after a quote left open
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
