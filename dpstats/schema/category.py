"""Columns with declared levels: `Category`, and `Boolean` as its special case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.checks import (
    check_label,
    check_text,
    did_you_mean,
    first_few,
    is_finite,
    is_number,
    listed,
    short,
)
from dpstats.errors import ConditionError, SchemaError
from dpstats.schema.column_fields import (
    MISSING_LABEL,
    ColumnFields,
    Level,
    cells_named,
    check_name,
    quoted_name,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Category(ColumnFields):
    """A column with declared levels; a code is the index of a level.

    Parameters
    ----------
    name : str
        Name of the column in the private table.
    levels : sequence or mapping
        Either the levels themselves (all text, all numbers or all bool), or a mapping from a label
        to the stored value, ``{"not": 1, "mildly": 2}``. Numbers match by value (1 == 1.0) and text
        matches exactly. Text that is no level matches the one that spells the same number, truth
        value or day, as numbers, bools and dates do: 1, 1.0 and ``"1.0"`` match ``"1"``, and
        ``"True"`` matches ``"true"``. Cells that are text match levels that are numbers.
    missing : level, optional
        Label of the level that missing and undeclared cells are counted in.
    allow_missing : bool
        Give missing and undeclared cells their own level, ``"(missing)"``, coded last.
    other : level, optional
        Label of the level that undeclared values (not missing ones) are counted in.
    note : str
        Where the levels come from; shown in the summary.
    missing_values : sequence of level, optional
        Stored values that stand for a missing cell, such as 9 for "refused". They match as levels
        do and count as missing cells do, not as `other`; `missing` or `allow_missing` must be
        given.

    Without `missing` and `allow_missing`, cells that hold no declared level count as the first
    level. The summary of the schema states the rule.

    Raises
    ------
    SchemaError
        For fewer than two levels, duplicate or mixed-type levels, or an unknown missing level.

    Examples
    --------
    >>> import dpstats as dps
    >>> pain = dps.Category("pain", {"not": 1, "mildly": 2, "much": 3}, allow_missing=True)
    >>> pain.bin_labels
    ('not', 'mildly', 'much', '(missing)')
    >>> dps.Category("region", ["north", "south", "abroad"], other="abroad").missing_rule()
    "missing: counted as 'north'; undeclared: counted as 'abroad'"
    >>> vote = {"no": 1, "yes": 2, "other": 3}
    >>> dps.Category("vote", vote, allow_missing=True, missing_values=[8, 9]).missing_rule()
    "missing, 8, 9 or undeclared: counted as '(missing)'"
    """

    kind: ClassVar[str] = "category"
    _missing_is: ClassVar[str] = "a declared level"
    _keys: ClassVar[tuple[str, ...]] = (
        "levels", "missing", "allow_missing", "other", "note", "missing_values"
    )  # fmt: skip

    name: str
    levels: Sequence[Level] | Mapping[str, Level]
    missing: Level | None = None
    allow_missing: bool = False
    other: Level | None = None
    note: str = field(default="", compare=False)
    missing_values: Sequence[Level] = ()

    labels: tuple[Level, ...] = field(init=False, repr=False)
    stored: tuple[Level, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        index = getattr(getattr(self.levels, "index", None), "dtype", None)
        if index is not None and index.kind not in "iu":
            raise SchemaError(
                f"levels of {self.name!r} are a Series with labels: give its values, x.to_list(), "
                "its labels, list(x.index), or a mapping from labels to stored values, dict(x)"
            )
        for what in ("levels", "missing", "other", "missing_values"):
            object.__setattr__(self, what, listed(getattr(self, what)))
        if isinstance(self.levels, str) or not isinstance(self.levels, Sequence | Mapping):
            raise self._error("levels must be a list or a mapping")
        if isinstance(self.levels, Mapping):
            labels: tuple[Level, ...] = tuple(self.levels)
            stored = tuple(self.levels.values())
            _check_levels(self.name, labels)
            if not all(isinstance(label, str) for label in labels):
                raise self._error(
                    "a mapping of levels goes from labels, which are text, to stored values, as in "
                    "{'not': 1, 'mildly': 2}"
                )
            object.__setattr__(self, "levels", FrozenMapping(self.levels))
        else:
            labels = stored = tuple(self.levels)
            object.__setattr__(self, "levels", labels)
        _check_levels(self.name, stored)
        for label in labels:
            if isinstance(label, str):
                check_label(f"{self.name!r}: a label", label, SchemaError)
        object.__setattr__(self, "stored", stored)
        self._check_fields()
        if self.allow_missing:
            if MISSING_LABEL in labels:
                raise self._error(
                    f"the level {MISSING_LABEL!r} is reserved for missing cells; rename it or drop "
                    "allow_missing=True"
                )
            labels = (*labels, MISSING_LABEL)
        object.__setattr__(self, "labels", labels)
        for what, level in (("missing", self.missing), ("other", self.other)):
            if level is not None:
                self.index(level, what=f"{what}= of column {self.name!r}: ")

    def _check_missing_values(self, codes: Sequence[Level]) -> None:
        if not all(isinstance(v, str) if self.holds_text else is_number(v) for v in codes):
            raise SchemaError(
                f"each of missing_values of {self.name!r} must be "
                f"{'text' if self.holds_text else 'a number'}, as its stored levels are"
            )
        if both := set(codes) & set(self.stored):
            raise SchemaError(
                f"{self.name!r}: {short(both.pop())} is a level and one of missing_values; drop it "
                "from one"
            )
        check_values(f"missing_values of {self.name!r}", codes)

    def index(self, label: object, what: str = "") -> int:
        """Code of a label; numbers match by value, text exactly."""
        for code, own_label in enumerate(self.labels):
            if isinstance(own_label, str) == isinstance(label, str) and own_label == label:
                return code
        raise SchemaError(
            f"{what}{short(label)} is not a level of {self.name!r}"
            f"{did_you_mean(label, self.labels)}; levels: {first_few(self.labels)}"
        )

    def index_of_cell(self, value: object) -> int:
        """Code of a label, or of a value as the table stores it.

        Raises
        ------
        SchemaError
            For what is neither, or the label of one level and the stored value of another.
        """
        for code, stored in enumerate(self.stored):
            if isinstance(stored, str) == isinstance(value, str) and stored == value:
                if value in self.labels and self.index(value) != code:
                    raise SchemaError(
                        f"{short(value)} is the label of one level of {self.name!r} and the stored "
                        "value of another; use labels that are no stored values"
                    )
                return code
        return self.index(value)

    def code_of(self, value: object) -> int:
        """Code of a public value: of a level, or of ``"(missing)"``."""
        return self.index(value)

    @property
    def bins(self) -> int:
        """Number of levels, including the one for missing cells."""
        return len(self.labels)

    @property
    def bin_labels(self) -> tuple[str, ...]:
        """One label per level."""
        return tuple(str(label) for label in self.labels)

    @property
    def missing_code(self) -> int:
        """Code of missing cells."""
        if self.allow_missing:
            return len(self.labels) - 1
        return 0 if self.missing is None else self.index(self.missing)

    @property
    def other_code(self) -> int:
        """Code of cells that hold an undeclared value."""
        return self.missing_code if self.other is None else self.index(self.other)

    @property
    def code_range(self) -> tuple[int, int]:
        """Smallest and largest code."""
        return 0, len(self.labels) - 1

    @property
    def holds_text(self) -> bool:
        """True if the stored values are text."""
        return isinstance(self.stored[0], str)

    def bins_of(self, codes: Codes) -> Codes:
        """Level indices of codes: the codes themselves."""
        return codes

    def draw_inside(self, bins: Codes, rng: np.random.Generator) -> Codes:
        """Codes inside the given bins: the bins themselves."""
        return bins

    def bins_where(self, comparison: str, value: Level) -> frozenset[int]:
        """Levels for which ``column <comparison> value`` is true."""
        if comparison not in ("==", "!="):
            raise ConditionError(
                f"{self.name!r} has levels without an order: {comparison!r} is not allowed; use "
                f"==, != or in [...] with levels among {first_few(self.labels)}"
            )
        try:
            code = self.index(value)
        except SchemaError as error:
            raise ConditionError(str(error)) from None
        equal = frozenset([code])
        return equal if comparison == "==" else frozenset(range(self.bins)) - equal

    def decode(self, codes: Codes) -> NDArray[Any]:
        """Labels of codes, as bool, int64, float64 or object (text) array."""
        if any(isinstance(label, str) for label in self.labels):
            table = np.empty(len(self.labels), dtype=object)
            table[:] = self.labels
        else:
            table = np.asarray(self.labels)
        return table[codes]

    def encode(self, values: pa.Array) -> Codes:
        """Codes (n,) int64 of an Arrow array; total: undeclared cells map to a declared level."""
        from dpstats.schema import arrow

        return arrow.level_codes(
            values, self.stored, self.missing_code, self.other_code, self.missing_values
        )

    @property
    def described(self) -> str:
        """The declaration in one line."""
        return f"{self.kind}, {self.bins} levels: {', '.join(self.bin_labels)}"

    def missing_rule(self) -> str:
        """How missing and undeclared cells are counted, as text."""
        codes = list(map(repr, self.missing_values))
        if self.other_code == self.missing_code:
            lacking = cells_named(codes, "undeclared")
            return f"{lacking}: counted as {self.labels[self.missing_code]!r}"
        return (
            f"{cells_named(codes)}: counted as {self.labels[self.missing_code]!r}; "
            f"undeclared: counted as {self.labels[self.other_code]!r}"
        )

    def _plain(self, key: str) -> Any:
        levels = self.levels
        return (
            dict(levels) if key == "levels" and isinstance(levels, Mapping) else getattr(self, key)
        )


@dataclass(frozen=True)
class Boolean(Category):
    """A column of true and false; stored as bool or as the numbers 0 and 1.

    Parameters
    ----------
    name : str
        Name of the column.
    missing : bool, optional
        The value that missing and undeclared cells are counted as (default False).
    allow_missing : bool
        Give missing and undeclared cells their own level, ``"(missing)"``.
    note : str
        Where the column comes from.
    missing_values : sequence of float, optional
        Numbers that stand for a missing cell, as in a `Category`.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Boolean("smoker").missing_rule()
    'missing or undeclared: counted as False'
    >>> dps.Boolean("smoker", allow_missing=True).bin_labels
    ('False', 'True', '(missing)')
    """

    kind: ClassVar[str] = "boolean"
    _keys: ClassVar[tuple[str, ...]] = ("missing", "allow_missing", "note", "missing_values")

    levels: Sequence[Level] = field(default=(False, True), init=False)
    other: Level | None = field(default=None, init=False)

    def bins_where(self, comparison: str, value: Level) -> frozenset[int]:
        """As of any category; of text such as 'yes' it says what to write."""
        try:
            return super().bins_where(comparison, value)
        except ConditionError as error:
            if not isinstance(value, str):
                raise
            name = quoted_name(self.name)
            raise ConditionError(
                f"{error}; for true write {name}, for false not {name}; if the table holds yes and "
                f"no as text, declare {self.name!r} with levels ['no', 'yes'], not as a boolean"
            ) from None


class FrozenMapping(dict[Any, Any]):
    """A mapping that can be hashed, so that columns and rules can be compared and merged."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def _check_levels(name: str, levels: tuple[Level, ...]) -> None:
    if len(levels) < 2:
        raise SchemaError(f"{name!r} needs at least two levels, got {len(levels)}")
    kinds = {
        "bool" if isinstance(v, bool) else "number" if is_number(v) else type(v).__name__
        for v in levels
    }
    if len(kinds) > 1 or not kinds <= {"bool", "number", "str"}:
        raise SchemaError(
            f"levels of {name!r} must be all text, all numbers or all bool; got {sorted(kinds)}"
        )
    check_values(f"levels of {name!r}", levels)
    if len(set(levels)) < len(levels):
        raise SchemaError(f"levels of {name!r} must be distinct (1 and 1.0 are the same level)")


def check_values(
    what: str,
    values: Sequence[Level],
    cure: str = "for missing cells use missing= or allow_missing=True",
) -> None:
    """Refuse values that a cell cannot be compared with exactly, and empty text."""
    numbers = [value for value in values if is_number(value)]
    if not all(map(is_finite, numbers)):  # type: ignore[arg-type]
        raise SchemaError(f"{what} must be finite; {cure}")
    if any(abs(number) >= 2**53 for number in numbers):  # type: ignore[arg-type]
        raise SchemaError(
            f"{what} must be below 2**53, the limit for exact whole numbers in tables and files; "
            "store longer codes as text"
        )
    if "" in values:
        raise SchemaError(
            f"{what} must not be empty text, which is how files write a missing cell; {cure}"
        )
    for value in values:
        if isinstance(value, str):
            check_text(f"a text among {what}", value, SchemaError)
