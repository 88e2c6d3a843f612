"""The columns a schema declares: what a cell may hold, and the small integer it is coded to.

Every cell of a private table becomes an integer code by a public rule: the index of a level, or a
point of a public grid. Nothing here ever looks at data to choose a level, a bound or a bin.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import ConditionError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

Codes = NDArray[np.int64]
Level = str | int | float | bool

MISSING_LABEL = "(missing)"
MAX_POINTS = 2**20 + 1
MIN_WIDTH = 1e-300  # of the bounds of a number, so that steps of the grid are normal floats

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or "`" in name:
        raise SchemaError(f"a column name must be non-empty text without backticks, got {name!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _finite(value: object, what: str) -> float | int:
    if not _is_number(value) or not _is_finite(value):  # type: ignore[arg-type]
        raise SchemaError(f"{what} must be a finite number, got {value!r}")
    return value  # type: ignore[return-value]


def _check_width(where: str, low: float, high: float) -> None:
    width, twice_the_middle = float(high) - float(low), float(high) + float(low)
    if not MIN_WIDTH < width < math.inf or math.isinf(twice_the_middle):
        raise SchemaError(
            f"{where}: {low} and {high} are too close or too large for floating-point numbers; "
            "store the column in another unit"
        )


def _exact(value: float) -> Fraction:
    """Read a declared number as its shortest decimal: 0.1 is 1/10."""
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)


@dataclass(frozen=True)
class Category:
    """A column with declared levels; a code is the index of a level.

    Parameters
    ----------
    name : str
        Name of the column in the private table.
    levels : sequence or mapping
        Either the levels themselves (all text, all numbers or all bool), or a mapping from a label
        to the stored value, ``{"not": 1, "mildly": 2}``. Numbers match by value (1 == 1.0), text
        matches exactly, and text never matches a number.
    missing : level, optional
        Label of the level that missing and undeclared cells are counted in.
    allow_missing : bool
        Give missing and undeclared cells a level of their own, ``"(missing)"``, coded last.
    other : level, optional
        Label of the level that undeclared values (not missing ones) are counted in.
    note : str
        Where the levels come from; shown in the summary.

    Without `missing` and `allow_missing`, cells that hold no declared level count as the first
    level. The summary of the schema states the rule.

    Raises
    ------
    SchemaError
        For fewer than two levels, duplicate or mixed-type levels, or an unknown missing level.
    """

    kind: ClassVar[str] = "category"

    name: str
    levels: Sequence[Level] | Mapping[str, Level]
    missing: Level | None = None
    allow_missing: bool = False
    other: Level | None = None
    note: str = field(default="", compare=False)

    labels: tuple[Level, ...] = field(init=False, repr=False)
    stored: tuple[Level, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if isinstance(self.levels, str) or not isinstance(self.levels, Sequence | Mapping):
            raise SchemaError(f"levels of {self.name!r} must be a list or a mapping")
        if isinstance(self.levels, Mapping):
            labels: tuple[Level, ...] = tuple(self.levels)
            stored = tuple(self.levels.values())
            _check_levels(self.name, labels)
            if not all(isinstance(label, str) for label in labels):
                raise SchemaError(
                    f"{self.name!r}: a mapping of levels goes from labels, which are text, to "
                    "stored values, as in {'not': 1, 'mildly': 2}"
                )
            object.__setattr__(self, "levels", _FrozenMapping(self.levels))
        else:
            labels = stored = tuple(self.levels)
            object.__setattr__(self, "levels", labels)
        _check_levels(self.name, stored)
        if not isinstance(self.allow_missing, bool):
            raise SchemaError(
                f"{self.name!r}: allow_missing must be true or false, got {self.allow_missing!r}"
            )
        if self.allow_missing:
            if self.missing is not None:
                raise SchemaError(
                    f"{self.name!r}: give either missing= (a declared level) or allow_missing=True"
                )
            if MISSING_LABEL in labels:
                raise SchemaError(
                    f"{self.name!r}: the level {MISSING_LABEL!r} is reserved for missing cells; "
                    "rename it or drop allow_missing=True"
                )
            labels = (*labels, MISSING_LABEL)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "stored", stored)
        for what, level in (("missing", self.missing), ("other", self.other)):
            if level is not None:
                self.index(level, what=f"{what}= of column {self.name!r}")

    def index(self, label: object, what: str = "level") -> int:
        """Code of a label; numbers match by value, text exactly."""
        for code, known in enumerate(self.labels):
            if isinstance(known, str) == isinstance(label, str) and known == label:
                return code
        raise SchemaError(
            f"{what}: {label!r} is not a level of {self.name!r}; levels: {_listed(self.labels)}"
        )

    @property
    def bins(self) -> int:
        """Number of levels, the own level for missing cells included."""
        return len(self.labels)

    @property
    def bin_labels(self) -> tuple[str, ...]:
        """One short text per level."""
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
        """Whether the stored values are text."""
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
                f"==, != or in [...] with levels among {_listed(self.labels)}"
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

    def accepts(self, arrow_type: pa.DataType) -> bool:
        """Whether an Arrow column of this type can hold these levels."""
        from dpstats import arrow

        return arrow.is_text(arrow_type) if self.holds_text else arrow.is_number(arrow_type)

    def encode(self, values: pa.Array) -> Codes:
        """Codes (n,) int64 of an Arrow array; total: undeclared cells map to a declared level."""
        from dpstats import arrow

        return arrow.level_codes(values, self.stored, self.missing_code, self.other_code)

    def missing_rule(self) -> str:
        """How missing and undeclared cells are counted, in words."""
        if self.other_code == self.missing_code:
            return f"missing or undeclared: counted as {self.labels[self.missing_code]!r}"
        return (
            f"missing: counted as {self.labels[self.missing_code]!r}; "
            f"undeclared: counted as {self.labels[self.other_code]!r}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a schema file."""
        levels = dict(self.levels) if isinstance(self.levels, Mapping) else list(self.levels)
        return _drop_defaults(
            {
                "kind": self.kind,
                "name": self.name,
                "levels": levels,
                "missing": self.missing,
                "allow_missing": self.allow_missing,
                "other": self.other,
                "note": self.note,
            }
        )


@dataclass(frozen=True, init=False)
class Boolean(Category):
    """A column of true and false; stored as bool or as the numbers 0 and 1.

    Parameters
    ----------
    name : str
        Name of the column.
    missing : bool, optional
        The value that missing and undeclared cells are counted as (default False).
    allow_missing : bool
        Give missing cells a level of their own, ``"(missing)"``.
    note : str
        Where the column comes from.
    """

    kind: ClassVar[str] = "boolean"

    def __init__(
        self,
        name: str,
        missing: bool | None = None,
        allow_missing: bool = False,
        note: str = "",
    ) -> None:
        for attribute, value in (
            ("name", name),
            ("levels", (False, True)),
            ("missing", missing),
            ("allow_missing", allow_missing),
            ("other", None),
            ("note", note),
        ):
            object.__setattr__(self, attribute, value)
        self.__post_init__()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a schema file."""
        plain = super().to_dict()
        del plain["levels"]
        return plain


@dataclass(frozen=True)
class Number:
    """A bounded number, coded to a point of a public grid -K..K.

    Parameters
    ----------
    name : str
        Name of the column.
    low, high : float
        Public bounds; values outside are clamped to them.
    points : int
        Odd number of grid points from `low` to `high`; K = (points - 1) / 2.
    edges : sequence of float
        Strictly increasing bin edges. A value is coded to the nearest grid point *inside its own
        bin*, so counts of bins are exact on the raw values.
    closed : {"left", "right"}
        Bins are [a, b) or (a, b]; the outermost ones also hold the bounds.
    values : sequence of float, optional
        Instead of bounds: the only values the column takes (uneven scores such as 17.5, 22, 27).
        A cell is coded to the nearest of them; the lower one if two are equally near.
    missing : float, optional
        The value that missing cells count as; required where moments use the column. Without it
        they count as the middle of the grid.
    note : str
        Where the bounds come from.

    Raises
    ------
    SchemaError
        For bounds, points, edges or values that cannot be used.
    """

    kind: ClassVar[str] = "number"

    name: str
    low: float | None = None
    high: float | None = None
    points: int = 1025
    edges: Sequence[float] = ()
    closed: Literal["left", "right"] = "left"
    values: Sequence[float] | None = None
    missing: float | None = None
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        where = f"column {self.name!r}"
        if self.closed not in ("left", "right"):
            raise SchemaError(f"{where}: closed must be 'left' or 'right', got {self.closed!r}")
        for what in ("edges", "values"):
            listed = getattr(self, what)
            if listed is None:
                continue
            if isinstance(listed, str) or not isinstance(listed, Sequence):
                raise SchemaError(f"{where}: {what} must be a list of numbers")
            frozen = tuple(_finite(value, f"{where}: each of {what}") for value in listed)
            if any(b <= a for a, b in pairwise(frozen)):
                raise SchemaError(f"{where}: {what} must be strictly increasing")
            object.__setattr__(self, what, frozen)
        if self.values is None:
            self._check_bounds(where)
        else:
            self._read_values(where, self.values)
        if self.missing is not None:
            _finite(self.missing, f"{where}: missing")
            if not self.low <= self.missing <= self.high:  # type: ignore[operator]
                raise SchemaError(f"{where}: missing={self.missing} lies outside the bounds")
        self._check_edges(where)

    def _check_bounds(self, where: str) -> None:
        if self.low is None or self.high is None:
            raise SchemaError(f"{where}: declare low and high, or values; they are never learned")
        low, high = _finite(self.low, f"{where}: low"), _finite(self.high, f"{where}: high")
        if not low < high:
            raise SchemaError(f"{where}: low must be below high, got {low} and {high}")
        _check_width(where, low, high)
        points = self.points
        if type(points) is not int or points < 3 or points % 2 == 0 or points > MAX_POINTS:
            raise SchemaError(
                f"{where}: points must be an odd whole number from 3 to {MAX_POINTS}, got {points}"
            )
        if np.any(np.diff(self.grid) <= 0):
            raise SchemaError(f"{where}: {points} points from {low} to {high} are not distinct")

    def _read_values(self, where: str, values: Sequence[float]) -> None:
        if self.low is not None or self.high is not None:
            raise SchemaError(f"{where}: give either low and high, or values")
        if len(values) < 2:
            raise SchemaError(f"{where}: values must list at least two numbers")
        _check_width(where, values[0], values[-1])
        exact = [_exact(value) for value in values]
        half, mid = (exact[-1] - exact[0]) / 2, (exact[-1] + exact[0]) / 2
        step = half
        for value in exact:
            step = Fraction(  # greatest common divisor of two fractions
                math.gcd(step.numerator * (value - mid).denominator,
                         (value - mid).numerator * step.denominator),
                step.denominator * (value - mid).denominator,
            )  # fmt: skip
        points = 2 * int(half / step) + 1
        if points > MAX_POINTS:
            raise SchemaError(
                f"{where}: the values have no common step coarser than 1/{MAX_POINTS - 1} of their "
                "range; round them to fewer decimals, or declare low, high and points"
            )
        object.__setattr__(self, "low", values[0])
        object.__setattr__(self, "high", values[-1])
        object.__setattr__(self, "points", points)

    def _check_edges(self, where: str) -> None:
        if not self.edges:
            return
        low, high = float(self.low), float(self.high)  # type: ignore[arg-type]
        first, last = self.edges[0], self.edges[-1]
        inside = low < first and last <= high if self.closed == "left" else (
            low <= first and last < high
        )  # fmt: skip
        if not inside:
            raise SchemaError(f"{where}: edges must lie inside the bounds [{low:g}, {high:g}]")
        filled = np.unique(self.bins_of(self._codes_in_use))
        if len(filled) < self.bins:
            raise SchemaError(
                f"{where}: some bin between the edges holds no "
                f"{'declared value' if self.values else 'grid point'}; move the edges apart"
                + ("" if self.values else " or raise points")
            )

    @property
    def half_points(self) -> int:
        """K: codes run from -K to K."""
        return (self.points - 1) // 2

    @cached_property
    def grid(self) -> NDArray[np.float64]:
        """Values (points,) float64 of the codes -K..K, in original units."""
        low, high = float(self.low), float(self.high)  # type: ignore[arg-type]
        grid = low + (high - low) * (np.arange(self.points) / (self.points - 1))
        grid[-1] = high
        if self.values is not None:  # declared values come back as declared, to the last bit
            grid[self._value_codes + self.half_points] = self.values
        return grid

    @cached_property
    def _value_codes(self) -> Codes:
        exact = [_exact(value) for value in self.values or ()]
        step = (exact[-1] - exact[0]) / (self.points - 1)
        return np.array([int((v - exact[0]) / step) - self.half_points for v in exact], np.int64)

    @property
    def _codes_in_use(self) -> Codes:
        if self.values is not None:
            return self._value_codes
        return np.arange(-self.half_points, self.half_points + 1)

    @property
    def code_range(self) -> tuple[int, int]:
        """Smallest and largest code."""
        return -self.half_points, self.half_points

    @property
    def bins(self) -> int:
        """Number of bins: between the edges, or one per declared value."""
        return len(self.values) if self.values and not self.edges else len(self.edges) + 1

    @property
    def bin_labels(self) -> tuple[str, ...]:
        """One short text per bin, such as ``[0, 18)``, or the declared value."""
        if self.values and not self.edges:
            return tuple(_short(value) for value in self.values)
        cuts = [self.low, *self.edges, self.high]
        left, right = ("[", ")") if self.closed == "left" else ("(", "]")
        shown = [_short(cut) for cut in cuts]  # type: ignore[arg-type]
        texts = [f"{left}{a}, {b}{right}" for a, b in pairwise(shown)]
        texts[0], texts[-1] = "[" + texts[0].lstrip("[("), texts[-1].rstrip("])") + "]"
        return tuple(texts)

    def _bins_of_values(self, values: NDArray[np.float64]) -> Codes:
        side = "right" if self.closed == "left" else "left"
        return np.searchsorted(np.asarray(self.edges, float), values, side=side)  # type: ignore[call-overload,no-any-return]

    @cached_property
    def _bin_of_code(self) -> Codes:
        """Bin of each code, at index code + K; declared values without edges: the nearest one."""
        if self.values and not self.edges:
            return _nearest(self._value_codes, np.arange(self.points) - self.half_points)
        return self._bins_of_values(self.grid)

    @cached_property
    def _bin_codes(self) -> tuple[Codes, Codes]:
        """First and last code of every bin (bins are runs of codes)."""
        codes = self._codes_in_use
        bins = self._bin_of_code[codes + self.half_points]
        first = np.searchsorted(bins, np.arange(self.bins), side="left")
        last = np.searchsorted(bins, np.arange(self.bins), side="right") - 1
        return codes[first], codes[last]

    def bins_of(self, codes: Codes) -> Codes:
        """Bin indices of codes."""
        return self._bin_of_code[codes + self.half_points]

    def draw_inside(self, bins: Codes, rng: np.random.Generator) -> Codes:
        """Codes drawn uniformly from the grid points (or declared values) inside given bins."""
        if self.values is None:
            first, last = self._bin_codes
            return rng.integers(first[bins], last[bins], endpoint=True)
        order = self._value_codes
        of_bin = self.bins_of(order)
        first_index = np.searchsorted(of_bin, bins, side="left")
        last_index = np.searchsorted(of_bin, bins, side="right")
        return order[rng.integers(first_index, last_index)]

    def bins_where(self, comparison: str, value: Level) -> frozenset[int]:
        """Bins for which ``column <comparison> value`` is true; only declared edges or values."""
        if not _is_number(value):
            raise ConditionError(f"{self.name!r} is a number and cannot be compared with {value!r}")
        if self.values and not self.edges:
            if value in self.values:
                holds = _ORDER[comparison]
                return frozenset(i for i, known in enumerate(self.values) if holds(known, value))
        elif value in self.edges:
            cut = self.edges.index(value) + 1
            below, above = ("<", ">=") if self.closed == "left" else ("<=", ">")
            if comparison == below:
                return frozenset(range(cut))
            if comparison == above:
                return frozenset(range(cut, self.bins))
        raise ConditionError(
            f"{self.name!r} {comparison} {value!r} cannot be measured exactly; {self._allowed()}"
        )

    def _allowed(self) -> str:
        if self.values and not self.edges:
            return f"allowed: ==, !=, <, <=, >, >=, in with {_listed(self.values)}"
        if not self.edges:
            return "the column declares no edges; add edges=[...] to the schema"
        below, above = ("<", ">=") if self.closed == "left" else ("<=", ">")
        return (
            f"allowed: {below} or {above} with one of the declared edges {_listed(self.edges)}; "
            "add an edge to the schema if you need another"
        )

    def decode(self, codes: Codes) -> NDArray[Any]:
        """Values of codes in original units: int64 where every grid value is whole."""
        values = self.grid[codes + self.half_points]
        return values.astype(np.int64) if self._whole else values

    @cached_property
    def _whole(self) -> bool:
        used = self.grid[self._codes_in_use + self.half_points]
        return bool(np.all(used == np.rint(used)) and np.max(np.abs(used)) < 2**53)

    def accepts(self, arrow_type: pa.DataType) -> bool:
        """Whether an Arrow column of this type holds numbers."""
        from dpstats import arrow

        return arrow.is_number(arrow_type)

    def encode(self, values: pa.Array) -> Codes:
        """Codes (n,) int64 of an Arrow array; total: clamped to the bounds, missing to `missing`.

        A value goes to floor((x - mid) K / half + 1/2), then into the grid points of its own bin.
        """
        from dpstats import arrow

        cells = arrow.floats(values)
        missing = np.isnan(cells)
        codes = self._codes_of(np.where(missing, float(self.low), cells))  # type: ignore[arg-type]
        return np.where(missing, self.missing_code, codes)

    def _codes_of(self, values: NDArray[np.float64]) -> Codes:
        low, high = float(self.low), float(self.high)  # type: ignore[arg-type]
        values = np.clip(values, low, high)
        if self.values is not None:
            codes = self._value_codes[_nearest(np.asarray(self.values, float), values)]
        else:
            k = self.half_points
            codes = np.floor((values - (low + high) / 2) * (k / ((high - low) / 2)) + 0.5)
            codes = np.clip(codes, -k, k).astype(np.int64)
        if self.edges:
            first, last = self._bin_codes
            bins = self._bins_of_values(values)
            codes = np.clip(codes, first[bins], last[bins])
        return codes

    @cached_property
    def missing_code(self) -> int:
        """Code of missing cells."""
        if self.missing is None:
            return int(self._codes_in_use[len(self._codes_in_use) // 2])
        return int(self._codes_of(np.array([float(self.missing)]))[0])

    def missing_rule(self) -> str:
        """How missing and out-of-range cells are counted, in words."""
        value = self.grid[self.missing_code + self.half_points]
        outside = "nearest declared value" if self.values else "clamped to the bounds"
        return f"missing: counted as {value:g}; outside: {outside}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a schema file."""
        plain: dict[str, Any] = {"kind": self.kind, "name": self.name}
        if self.values is not None:
            plain["values"] = list(self.values)
        else:
            plain |= {"low": self.low, "high": self.high, "points": self.points}
        plain |= {"edges": list(self.edges), "closed": self.closed}
        plain |= {"missing": self.missing, "note": self.note}
        return _drop_defaults(plain)


Column = Category | Number


class _FrozenMapping(dict[str, Level]):
    """A mapping of levels that can be hashed, so that columns can be compared and merged."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def _check_levels(name: str, levels: tuple[Level, ...]) -> None:
    if len(levels) < 2:
        raise SchemaError(f"{name!r} needs at least two levels, got {len(levels)}")
    kinds = {
        "bool" if isinstance(v, bool) else "number" if _is_number(v) else type(v).__name__
        for v in levels
    }
    if len(kinds) > 1 or not kinds <= {"bool", "number", "str"}:
        raise SchemaError(
            f"levels of {name!r} must be all text, all numbers or all bool; got {sorted(kinds)}"
        )
    if kinds == {"number"} and not all(_is_finite(v) for v in levels):  # type: ignore[arg-type]
        raise SchemaError(f"levels of {name!r} must be finite; missing cells have missing=")
    if kinds == {"number"} and any(abs(v) >= 2**53 for v in levels):  # type: ignore[arg-type]
        raise SchemaError(
            f"levels of {name!r} must be below 2**53, where every table and file holds whole "
            "numbers exactly; store longer codes as text"
        )
    if len(set(levels)) < len(levels):
        raise SchemaError(f"levels of {name!r} must be distinct (1 and 1.0 are the same level)")


def _nearest(sorted_values: NDArray[Any], x: NDArray[Any]) -> Codes:
    """Index of the nearest of sorted values, the lower one if two are equally near."""
    upper = np.clip(np.searchsorted(sorted_values, x), 1, len(sorted_values) - 1)
    lower_is_near = x - sorted_values[upper - 1] <= sorted_values[upper] - x
    return np.where(lower_is_near, upper - 1, upper)


def _short(value: float) -> str:
    """A declared number as short text that stands for no other number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _listed(values: Sequence[Level], most: int = 12) -> str:
    shown = ", ".join(repr(value) for value in values[:most])
    return f"[{shown}{', ...' if len(values) > most else ''}]"


def _drop_defaults(plain: dict[str, Any]) -> dict[str, Any]:
    defaults = {"allow_missing": False, "edges": [], "closed": "left", "note": ""}
    return {
        key: v for key, v in plain.items() if v is not None and (key, v) not in defaults.items()
    }
