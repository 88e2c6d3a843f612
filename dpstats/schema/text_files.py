"""How a delimited text file is written, where it is not UTF-8 with decimal points: public."""

from __future__ import annotations

import codecs
import csv
import io
import string
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.checks import check_choice, short
from dpstats.errors import FileFormatError, SchemaError
from dpstats.schema.toml_files import changed_fields, check_keys

_DELIMITERS = tuple({*string.punctuation, " ", "\t"} - {'"', "."})
_UTF8 = ("utf-8", "utf-8-sig")
# Encodings with characters of two bytes in which no comma, semicolon, tab, quote or end of a line
# is ever the second byte, nor lost after a first byte that stands alone: tests search all states of
# the decoders of Python. EUC, GB18030, ISO 2022, HZ and UTF-7 fail.
_TWO_BYTES = ("big5", "big5hkscs", "cp932", "cp949", "cp950", "gb2312", "gbk", "shift_jis")
_OF_TWO_BYTES = (",", ";", "\t")  # the delimiters for which that holds
CONVERT = (
    "save it as UTF-8 ('CSV UTF-8' in Excel), or convert it, as in 'iconv -f UTF-16 -t UTF-8 "
    "survey.csv > survey-utf8.csv'"
)


@dataclass(frozen=True)
class TextFile:
    """How the cells of a .csv or .tsv file are written; other tables know it themselves.

    Parameters
    ----------
    encoding : str
        Of the text: UTF-8, one of the encodings with one byte for each character that agree with
        ASCII, such as "latin-1", "cp1252" and "mac-roman", or Big5, CP932, CP949, CP950, GB2312,
        GBK and Shift JIS. In all others, such as UTF-16, the bytes of one cell can decide how later
        rows are read, which no sensitivity allows for. Bytes that it does not have become U+FFFD,
        which no level holds.
    decimal : {".", ","}
        The decimal mark of numbers, and of levels that are numbers.
    delimiter : str, optional
        What separates cells. By default a comma, a semicolon or a tab, as the first line has it;
        where characters have two bytes, no other is possible.
    """

    encoding: str = "utf-8"
    decimal: str = "."
    delimiter: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", _encoding(self.encoding))
        check_choice("[file]: decimal", self.decimal, (".", ","), SchemaError)
        delimiter: object = self.delimiter
        if delimiter is not None and not (isinstance(delimiter, str) and delimiter in _DELIMITERS):
            raise SchemaError(
                "[file]: delimiter must be the one character that separates cells, such as | or a "
                f"tab, got {short(delimiter)}"
            )
        if self.encoding in _TWO_BYTES and delimiter not in (None, *_OF_TWO_BYTES):
            raise SchemaError(
                f"[file]: {short(delimiter)} may be part of a character in {self.encoding}: "
                f"separate the cells by a comma, semicolon or tab, or {CONVERT}"
            )

    @classmethod
    def from_dict(cls, plain: object) -> TextFile:
        """Inverse of `to_dict`."""
        return cls(**check_keys(plain, [part.name for part in fields(cls)], "[file]"))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a schema file: what is not the default."""
        return changed_fields(self)


def read_text_columns(path: Path) -> dict[str, list[str]]:
    """Cells of a public .csv file in UTF-8, as text, by the names in its first line."""
    data = files.read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
        if not text.strip():
            raise ValueError("it is empty")
        names, *rows = filter(None, csv.reader(io.StringIO(text, newline=""), strict=True))
        if any(len(row) != len(names) for row in rows):
            raise ValueError("a line has more or fewer fields than the first")
    except (ValueError, csv.Error) as error:
        raise FileFormatError(f"{path.name} cannot be read as CSV in UTF-8: {error}") from None
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise FileFormatError(f"{path.name} has the column {twice[0]!r} twice")
    return {name: cells for name, *cells in zip(names, *rows, strict=True)}


def _encoding(name: object) -> str:
    """The name that Python gives to an encoding in which no cell changes how others are read."""
    try:
        encoding = codecs.lookup(name).name  # type: ignore[arg-type]
        if encoding in _UTF8 or encoding in _TWO_BYTES or _is_single_byte(encoding):
            return encoding
    except (LookupError, TypeError, ValueError):
        pass
    raise SchemaError(
        "[file]: encoding must be 'utf-8', one with a byte for each character, such as 'latin-1' "
        f"or 'cp1252', or one of {list(_TWO_BYTES)}, got {short(name)}; in others a cell can "
        f"change how later rows are read: {CONVERT}"
    )


def _is_single_byte(encoding: str) -> bool:
    """True if an encoding has one byte for each character and agrees with ASCII."""
    bytes("", encoding)  # LookupError unless it is that of a text
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    start = decoder.getstate()
    for byte in range(256):
        text = decoder.decode(bytes([byte]))
        if len(text) != 1 or decoder.getstate() != start:
            return False
        if ord(text) != byte if byte < 128 else text.isascii():
            return False
    return True
