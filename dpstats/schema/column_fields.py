"""Fields of every kind of column: its name, its note and its rule for missing cells."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dpstats.checks import check_label, check_text, short
from dpstats.display import as_html
from dpstats.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

Level = str | int | float | bool
MISSING_LABEL = "(missing)"
WEIGHT, COUNT = "_weight", "_count"
"""Columns of candidates beside those of the schema, which has none of these names."""
_SHOWN = 4  # codes for missing cells in a line


class ColumnFields:
    """The fields and texts that all kinds of columns share."""

    kind: ClassVar[str]
    _missing_is: ClassVar[str]  # what `missing` is, for messages
    _keys: ClassVar[tuple[str, ...]]  # of a schema file after kind and name, in their order

    name: str
    note: str
    missing: Any
    allow_missing: bool
    missing_values: Sequence[Any]

    def _check_fields(self) -> None:
        """Check the shared fields, and keep each code for a missing cell once."""
        codes = self.missing_values
        check_text(f"column {self.name!r}: note", self.note, SchemaError)
        rules = f"missing= ({self._missing_is}) or allow_missing=True"
        if not isinstance(self.allow_missing, bool):
            raise self._error(
                f"allow_missing must be true or false, got {short(self.allow_missing)}"
            )
        if self.allow_missing and self.missing is not None:
            raise self._error(f"give {rules}, not both")
        if isinstance(codes, str) or not isinstance(codes, Sequence):
            raise self._error("missing_values must be a list, such as [8, 9]")
        if codes and self.missing is None and not self.allow_missing:
            raise self._error(
                f"missing_values need {rules}, which says as what missing cells count"
            )
        self._check_missing_values(codes)
        object.__setattr__(self, "missing_values", tuple(dict.fromkeys(codes)))

    def _error(self, text: str) -> SchemaError:
        return SchemaError(f"column {self.name!r}: {text}")

    def _check_missing_values(self, codes: Sequence[Any]) -> None:
        """Refuse codes that no cell of this kind of column can hold."""
        raise NotImplementedError

    @property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the columns of the table that its cells come from."""
        return (self.name,)

    def cells(self, batch: pa.RecordBatch) -> pa.Array:
        """Its cells (n,) in rows of the table, of which each follows from its own row alone."""
        return batch.column(self.name)

    @property
    def described(self) -> str:
        """The declaration in one line."""
        raise NotImplementedError

    def missing_rule(self) -> str:
        """How cells outside the declaration are counted, as text."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        lines = [self.described, self.missing_rule(), *([self.note] if self.note else [])]
        return as_html(self.name, lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a schema file, without what has its default value."""
        plain: dict[str, Any] = {"kind": self.kind, "name": self.name}
        for key in self._keys:
            value = self._plain(key)
            default = getattr(type(self), key, None)
            if value is not None and (key == "points" or value != default):
                plain[key] = list(value) if isinstance(value, tuple) else value
        return plain

    def _plain(self, key: str) -> Any:
        """The value under a key of a schema file; None to leave it out."""
        return getattr(self, key)


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


def cells_named(codes: Sequence[object], *others: str) -> str:
    """Cells that share a rule, such as ``missing, 8, 9 or undeclared``."""
    shown = list(map(str, codes)) if len(codes) <= _SHOWN else [f"one of {len(codes)} codes"]
    every = ["missing", *shown, *others]
    return " or ".join([", ".join(every[:-1]), every[-1]] if every[1:] else every)
