"""Texts that files hold: JSON and CSV, versioned, with digests."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpstats.checks import short
from dpstats.errors import DpstatsError, FileFormatError

VERSION = 3  # 3: a digest of the plan; answers carry the names of their functions
_DIGITS = 16  # of a digest that is printed: by 64 bits no two plans look the same
_LONGEST_KEY = 100  # characters of a key that a message shows
_ABSENT = object()
_FORMULA = re.compile(  # how one starts in a spreadsheet, but for numbers
    r"[=+\-@\t\r\n](?!(inf|[0-9.]+(e[-+]?[0-9]+)?)\Z)", re.IGNORECASE
)


def to_json(document: Mapping[str, Any]) -> str:
    """JSON text, readable in an editor."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_document(document: Mapping[str, Any]) -> str:
    """Plain data as JSON that other programs read and people too."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def parse_json(text: str | bytes) -> Any:
    """Value of a JSON text."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct_keys)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def from_json(text: str | bytes, kind: str, name: str) -> dict[str, Any]:
    """Parse JSON text and check that it is the expected kind of file, in a known version."""
    try:
        document = parse_json(text)
    except ValueError:
        raise FileFormatError(f"{name} does not hold valid JSON") from None
    if not isinstance(document, dict) or document.get("dpstats") != kind:
        raise FileFormatError(f"{name} is not a dpstats {kind}")
    if difference(document.get("version"), VERSION) is not None:
        version = short(document.get("version"))
        raise FileFormatError(f"{name} has format version {version}; this dpstats reads {VERSION}")
    return document


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Errors of dpstats begin with the name of the file that they are about."""
    try:
        yield
    except DpstatsError as error:
        raise type(error)(f"{path.name}: {error}") from None


@contextmanager
def reading(what: str, passed: type[DpstatsError] = FileFormatError) -> Iterator[None]:
    """Turn errors while a file's content is read into FileFormatError, but for those `passed`."""
    try:
        yield
    except Exception as error:  # any value may be anywhere in a file
        if isinstance(error, FileFormatError | passed):
            raise
        lacking = "it lacks " if isinstance(error, KeyError) else ""
        raise FileFormatError(f"{what} cannot be read: {lacking}{error}") from None


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a reader of the file might see either of two equal keys."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key occurs twice")
    return mapping


def digest(value: object) -> str:
    """SHA-256 of a JSON value, as 64 hexadecimal digits; the order of keys counts."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return digest_of_bytes(text.encode("ascii"))


def digest_of_bytes(data: bytes) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def short_digest(digest: str) -> str:
    """The first digits of a digest, as plans, ledgers and releases print it."""
    return digest[:_DIGITS]


def difference(given: object, made: object) -> str | None:
    """Where two JSON values first differ, such as ``blocks[0].cells``; None if they are equal."""
    parts: Iterable[tuple[str, object, object]]
    if isinstance(given, dict) and isinstance(made, dict):
        keys = dict.fromkeys([*given, *made])
        parts = (
            (f".{str(key)[:_LONGEST_KEY]}", given.get(key, _ABSENT), made.get(key, _ABSENT))
            for key in keys
        )
    elif isinstance(given, list) and isinstance(made, list) and len(given) == len(made):
        parts = ((f"[{i}]", *both) for i, both in enumerate(zip(given, made, strict=True)))
    else:
        return None if type(given) is type(made) and repr(given) == repr(made) else ""
    for name, first, second in parts:
        inner = difference(first, second)
        if inner is not None:
            return name + inner
    return None


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV text with a header; floats in their shortest exact form."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def formula_note(texts: Iterable[str], file: str) -> str:
    """Note on texts of a CSV file that a spreadsheet would run as formulas; "" without any."""
    for text in texts:
        if _FORMULA.match(text):
            return (
                f"{file} holds texts that spreadsheets run as formulas, such as {short(text)}: "
                "import its columns as text"
            )
    return ""


def csv_line(row: Sequence[Any]) -> str:
    """One line of CSV text, as `to_csv` writes it."""
    return to_csv(row, [])


def from_csv(text: str, header: Sequence[str], name: str) -> list[list[str]]:
    """Rows of CSV text under the expected header."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error:  # such as a cell of more than 131,072 characters
        raise FileFormatError(f"{name} does not hold a table that dpstats wrote") from None
    if not rows or rows[0] != list(header):
        raise FileFormatError(f"{name} does not start with the columns {list(header)}")
    if any(len(row) != len(header) for row in rows[1:]):
        raise FileFormatError(f"{name} has a line with a wrong number of columns")
    return rows[1:]
