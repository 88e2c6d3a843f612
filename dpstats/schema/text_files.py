"""How a delimited text file is written, where it is not UTF-8 with decimal points: public."""

from __future__ import annotations

import codecs
import string
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpstats.checks import check_choice, did_you_mean, first_few, short
from dpstats.errors import SchemaError

_DELIMITERS = tuple({*string.punctuation, " ", "\t"} - {'"', "."})
_PROBE = "name,1;2\t3\n"


@dataclass(frozen=True)
class TextFile:
    """How the cells of a .csv or .tsv file are written; other tables know it themselves.

    Parameters
    ----------
    encoding : str
        Of the text, such as "latin-1", "cp1252" or "utf-16". Bytes that it does not have become
        U+FFFD, which no level holds.
    decimal : {".", ","}
        The decimal mark of numbers, and of levels that are numbers.
    delimiter : str, optional
        What separates cells. By default a comma, a semicolon or a tab, as the first line has it.

    Raises
    ------
    SchemaError
    """

    encoding: str = "utf-8"
    decimal: str = "."
    delimiter: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", _encoding(self.encoding))
        check_choice("[file]: decimal", self.decimal, (".", ","), SchemaError)
        given: object = self.delimiter
        if given is not None and not (isinstance(given, str) and given in _DELIMITERS):
            raise SchemaError(
                "[file]: delimiter must be the one character that separates cells, such as | or a "
                f"tab, got {short(given)}"
            )

    @classmethod
    def from_dict(cls, plain: object) -> TextFile:
        """Inverse of `to_dict`."""
        known = [field.name for field in fields(cls)]
        if not isinstance(plain, Mapping):
            raise SchemaError(f"file must be a table, [file], with keys among {known}")
        if unknown := sorted(set(plain) - set(known), key=str):
            raise SchemaError(
                f"unknown keys {first_few(unknown)} in [file]{did_you_mean(unknown, known)}; it "
                f"takes {known}"
            )
        return cls(**plain)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a schema file: what is not the default."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: v for key, v in held.items() if v != getattr(type(self), key)}


def _encoding(name: object) -> str:
    """The name that Python gives to an encoding that can read any bytes line by line."""
    try:
        found = codecs.lookup(name).name  # type: ignore[arg-type]
        written = bytes(_PROBE, found)
        if b"\n" in written and written.decode(found) == _PROBE:
            decoder = codecs.getincrementaldecoder(found)(errors="replace")
            decoder.decode(written + bytes(range(256)), final=True)
            return found
    except (LookupError, TypeError, ValueError):
        pass
    raise SchemaError(
        f"[file]: encoding must be that of a text file, such as 'utf-8', 'latin-1', 'cp1252' or "
        f"'utf-16', got {short(name)}"
    )
