"""The `source` of a `Number` for which the table has no column.

It names another declared number, or two columns of the table of which the second is subtracted
from the first. Which of both follows from the text alone: there is a difference where ``" - "``
stands between two names. Names that are no plain words are then in backticks, as in conditions, and
a name in backticks alone is that of a number, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from dpstats.checks import short
from dpstats.errors import SchemaError
from dpstats.schema.column_fields import check_name, quoted_name
from dpstats.schema.text_files import TextFile

_NAME = r"(?:`([^`]+)`|([^\W\d]\w*))"
_SOURCE = re.compile(rf"\s*{_NAME}(?:\s*-\s*{_NAME})?\s*")
Ends = tuple[str, str]


def read_source(text: str) -> str | Ends:
    """The name of a number, or the two columns of a difference: the one from which, and which."""
    if "`" not in text and " - " not in text:
        return text
    found = _SOURCE.fullmatch(text)
    if found is None:
        raise SchemaError(
            f"source={short(text)} is neither the name of a number nor a difference of two "
            "columns, such as 'death - diagnosed'; put names that are not plain words in backticks"
        )
    first, second = found[1] or found[2], found[3] or found[4]
    if second is None:
        return first
    for name in (first, second):
        check_name(name)
    if first == second:
        raise SchemaError(f"source={short(text)} subtracts a column from itself")
    return first, second


def source_text(source: str | Ends) -> str:
    """One spelling of what `read_source` gives, as files hold it."""
    if isinstance(source, str):
        return f"`{source}`" if " - " in source else source
    return " - ".join(map(quoted_name, source))


@dataclass(frozen=True)
class RawColumns:
    """The columns of the table that are read, and how."""

    names: tuple[str, ...]  # that declared columns are read from
    # those in which a file has its decimal mark: declared numbers and levels that are numbers, and
    # ends of differences that are not declared
    decimals: Collection[str]
    written: TextFile  # how a delimited file of the table is written
    weighted: bool = False  # true if rows have weights: then all rows of a person are used
    person: str | None = None  # the column of keys
    order: str | None = None  # the column by which the rows of a person are sorted

    @property
    def with_keys(self) -> tuple[str, ...]:
        """Names of all columns that are read."""
        return tuple(dict.fromkeys([*self.names, *([] if self.person is None else [self.person])]))
