"""The names of a table's columns, from the first line of its file alone.

A file without a header has a person's row there. What looks like one is refused and never quoted.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from dpstats import files
from dpstats.errors import DataError, SchemaError
from dpstats.private.delimited import is_delimited
from dpstats.schema.column_fields import check_name

_LONGEST = 2**20  # characters of a first line
_DELIMITERS = ",;\t"
_VALUES = frozenset(
    ("true", "false", "yes", "no", "na", "n/a", "nan", "none", "null", "nil", "male", "female")
)
_NUMBER = re.compile(r"[-+\d.,:/ %$€£]*\d[-+\d.,:/ %$€£]*")  # dates and times too
_ADVICE = (
    "name the columns yourself with --header a,b,c, without the file, or give the file a first "
    "line with their names"
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
    if path.suffix.lower() == ".parquet":
        return _checked(_of_parquet(path), f"the columns of {path.name!r} do")
    if not is_delimited(path):
        raise DataError(f"{path.name!r} is not a .csv, .tsv (also .gz) or .parquet file")
    return _checked(_first_line(path), f"the first line of {path.name!r} does")


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


def _of_parquet(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return [str(name) for name in pq.read_schema(path).names]
    except (pa.ArrowException, OSError, ValueError):
        raise DataError(f"{path.name!r} is not a Parquet file that can be read") from None


def _first_line(path: Path) -> list[str]:
    """Fields of the first line, split by the delimiter that gives most of them."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as text:
            line = _line(text)
    except (OSError, EOFError, UnicodeError):
        raise DataError(f"{path.name!r} is not text in UTF-8 that can be read") from None
    if "\0" in line:
        raise DataError(f"{path.name!r} is not text in UTF-8 that can be read")
    try:
        return max((next(csv.reader([line], delimiter=d), []) for d in _DELIMITERS), key=len)
    except csv.Error:
        return []


def _line(text: IO[str]) -> str:
    """The first line, or "" where it has no end: no other line is looked at."""
    line = text.readline(_LONGEST)
    return "" if len(line) == _LONGEST else line.rstrip("\r\n")


def _checked(names: Sequence[str], where: str) -> list[str]:
    """The names, stripped, if they look like names."""
    kept = [name.strip() for name in names]
    if next(_doubts(kept), None):
        kinds = "numbers, dates, empty or repeated fields, or words such as yes"
        raise DataError(
            f"{where} not look like names of columns: there are {kinds}, which a row of data "
            f"would have. Nothing of it is shown; {_ADVICE}"
        )
    return kept


def _doubts(names: Sequence[str]) -> Iterator[str]:
    """Names that look like cells."""
    if not names or len(set(names)) < len(names):
        yield ""
    for name in names:
        if not name or name.lower() in _VALUES or _NUMBER.fullmatch(name) or _is_number(name):
            yield name
        try:
            check_name(name)
        except SchemaError:
            yield name


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
