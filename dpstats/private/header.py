"""The names of a table's columns, from the first line of its file alone.

A file without a header has a person's row there. What looks like one is refused and never quoted.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from dpstats import files
from dpstats.errors import DataError, SchemaError
from dpstats.private.delimited import is_delimited
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
_REFUSED = (
    "the first line does not look like names of columns: there are numbers, dates, empty or "
    "repeated fields, or words such as yes, as in a row of data. Nothing of it is shown; name the "
    "columns with --header a,b,c, without the file, or give the file a first line with their names"
)


def header_of(path: str | Path) -> list[str]:
    """Names of the columns of a .csv, .tsv (also .gz) or .parquet file; no row is read.

    Raises
    ------
    DataError
        If there is no such file, or its first line does not look like names: no field may be a
        number, a date, empty, repeated, or a word such as true. The message quotes nothing of it.
    """
    path = files.as_path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path.name!r}")
    found = _header(path)
    if isinstance(found, str):  # raised here, where no frame of the traceback holds the line
        raise DataError(f"{path.name!r}: {found}")
    return found


def named(text: str) -> list[str]:
    """Names of columns that a person gives, separated by commas.

    Raises
    ------
    SchemaError
    """
    names = next(csv.reader([text], skipinitialspace=True), [])
    for name in names:
        check_name(name)
    if not names or len(set(names)) < len(names):
        raise SchemaError("--header needs different names, separated by commas, such as age,sex")
    return names


def _header(path: Path) -> list[str] | str:
    """The names, or why there are none."""
    if path.suffix.lower() == ".parquet":
        names = _of_parquet(path)
    elif is_delimited(path):
        names = _first_line(path)
    else:
        return "not a .csv, .tsv (also .gz) or .parquet file"
    if names is None:
        return "it cannot be read: it is damaged, or text that is not UTF-8"
    if not names:
        return _NO_LINE
    kept = [name.strip() for name in names]
    return _REFUSED if is_row(kept) else kept


def _of_parquet(path: Path) -> list[str] | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return [str(name) for name in pq.read_schema(path).names]
    except (pa.ArrowException, OSError, ValueError):
        return None


def _first_line(path: Path) -> list[str] | None:
    """Fields of the first line, split by the delimiter that gives most of them."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rb") as raw:
            line = _line(raw)
        if "\0" in line:
            return None
        return max((next(csv.reader([line], delimiter=d), []) for d in _DELIMITERS), key=len)
    except (OSError, EOFError, UnicodeError, csv.Error):
        return None


def _line(raw: BinaryIO | gzip.GzipFile) -> str:
    """The first line, or "" where it has no end: what follows is not even decoded."""
    line = raw.readline(_LONGEST)
    return "" if len(line) == _LONGEST else line.decode("utf-8-sig").rstrip("\r\n")


def is_row(names: Sequence[str]) -> bool:
    """Whether some of the fields look like cells, or could not be names."""
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
