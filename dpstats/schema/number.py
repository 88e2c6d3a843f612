"""Bounded numbers on a public grid, with bins whose counts are exact on raw values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.checks import (
    check_choice,
    check_declared,
    check_text,
    first_few,
    is_finite,
    is_number,
    listed,
    short,
    shortest_decimal,
)
from dpstats.errors import ConditionError, RequestError, SchemaError
from dpstats.schema.column_fields import (
    MISSING_LABEL,
    ColumnFields,
    Level,
    cells_named,
    check_name,
    quoted_name,
)
from dpstats.schema.dates import day_of, day_text, days_of_bounds
from dpstats.schema.grid import (
    MAX_POINTS,
    check_width,
    even_points,
    lattice_of,
    nearest,
)
from dpstats.schema.read_from import Ends, read_source, source_text

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EVEN_BINS = 8
_FEW_EDGES = 32  # up to which one comparison each is faster than a search


@dataclass(frozen=True)
class Number(ColumnFields):
    """A bounded number, coded to a point of a public grid -K..K.

    Sums are of codes and sensitivities are those of codes, whatever values the grid has.

    Parameters
    ----------
    name : str
        Name of the column.
    low, high : float or date
        Public bounds; values outside are clamped to them. Where they are dates, or text such as
        2024-05-01, so are `edges` and `missing`, and the column is coded to days: its numbers are
        days since 1970-01-01, its labels and rows are dates.
    points : int
        Number of grid points from `low` to `high`, both included: 12 for the whole numbers from 0
        to 11. Dates have one for every day.
    edges : sequence of float or date
        Strictly increasing bin edges. A value is coded to the nearest grid point *inside its own
        bin*, so counts of bins are exact on the raw values.
    closed : {"left", "right"}
        Bins are [a, b) or (a, b]; the outermost ones also hold the bounds.
    values : sequence of float, optional
        Instead of bounds: the only values the column takes (uneven scores such as 17.5, 22, 27).
        A cell is coded to the nearest of them; ties go to the lower one.
    missing : float or date, optional
        The value that missing cells count as. Without it and `allow_missing` they count as the
        middle of the grid, and moments of the column are refused.
    allow_missing : bool
        Keep missing cells in a bin of their own, ``"(missing)"``, coded last (K + 1). Means,
        quantiles, correlations and regressions then use the rows with a value.
    note : str
        Where the bounds come from.
    dates : bool
        Whether numbers are days since 1970-01-01; follows from `low`, and needs not be given.
    scale : {"linear", "log"}
        With "log" the grid has equal steps of log(x), for amounts such as incomes: `low` must be
        above 0, and values of 0 and below count as `low`. Regressions and means then take the
        column as ``log(income)``. Edges, `missing` and published rows are in original units.
    missing_values : sequence of float or date, optional
        Codes that stand for a missing cell in the table, such as 8 and 9 for "don't know" beside
        answers from 1 to 5; they may lie within the bounds. They match by value, and count as
        missing cells do, so that `missing` or `allow_missing` must be given.
    even_edges : bool
        Whether `edges` were not declared but chosen by a plan, see `with_even_edges`. Conditions
        cannot use them.
    source : str, optional
        What the column is read from; the table then needs no column `name`. The name of another
        declared number makes it a view of that one, such as its logarithm: the value of each row is
        its coded value of `source`, coded again to the grid declared here. It is missing where
        `source` is, so that `missing`, `allow_missing` and `missing_values` are left out. A view
        cannot be the source of another. ``"death - diagnosed"`` makes it the difference of two
        columns of the table, which need not be declared: in days where both cells of a row are
        dates, else of their numbers, and missing where they are not two of a kind. Put names that
        are no plain words in backticks, and also that of a number that holds ``" - "``.

    Raises
    ------
    SchemaError
        For bounds, points, edges or values that cannot be used.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Number("age", 0, 120, points=121, edges=[18, 65]).bin_labels
    ('[0, 18)', '[18, 65)', '[65, 120]')
    >>> dps.Number("score", values=[17.5, 22, 27], missing=22).missing_rule()
    'missing or not a number: counted as 22; outside: nearest declared value'
    >>> dps.Number("income", 0, 500, edges=[100], allow_missing=True).bin_labels
    ('[0, 100)', '[100, 500]', '(missing)')
    >>> dps.Number("admitted", "2020-01-01", "2024-12-31", edges=["2023-01-01"]).bin_labels
    ('[2020-01-01, 2023-01-01)', '[2023-01-01, 2024-12-31]')
    >>> dps.Number("wage", 1, 1000, points=4, scale="log").grid[::2]
    array([   1.,   10.,  100., 1000.])
    >>> dps.Number("trust", 1, 5, allow_missing=True, missing_values=[8, 9]).missing_rule()
    "missing, 8, 9 or not a number: counted as '(missing)'; outside: clamped to the bounds"
    >>> dps.Number("stay", 0, 90, points=91, source="`day of leave` - entry", missing=0).ends
    ('day of leave', 'entry')
    """

    kind: ClassVar[str] = "number"
    _missing_is: ClassVar[str] = "a value"
    _keys: ClassVar[tuple[str, ...]] = (
        "low", "high", "points", "values", "edges", "closed", "missing", "scale", "missing_values",
        "even_edges", "source", "allow_missing", "note",
    )  # fmt: skip

    name: str
    low: float | date | str | None = None
    high: float | date | str | None = None
    points: int = 1025
    edges: Sequence[Any] = ()
    closed: Literal["left", "right"] = "left"
    values: Sequence[float] | None = None
    missing: Any = None
    allow_missing: bool = False
    note: str = field(default="", compare=False)
    dates: bool = False
    scale: Literal["linear", "log"] = "linear"
    missing_values: Sequence[Any] = ()
    even_edges: bool = field(default=False, repr=False)
    source: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        where = f"column {self.name!r}"
        if self.source is not None:
            self._check_source(check_text(f"{where}: source", self.source, SchemaError))
        for what in ("low", "high", "points", "edges", "values", "missing", "missing_values"):
            object.__setattr__(self, what, listed(getattr(self, what)))
        check_choice(f"{where}: scale", self.scale, ("linear", "log"), SchemaError)
        if self.scale == "log" and (self.values is not None or day_of(self.low) is not None):
            raise self._error("scale='log' is for numbers declared by low and high")
        for what, day in days_of_bounds(self, where, Number.points).items():
            object.__setattr__(self, what, day)
        check_choice(f"{where}: closed", self.closed, ("left", "right"), SchemaError)
        object.__setattr__(self, "edges", self._increasing("edges"))
        if self.values is None:
            self._check_bounds(where)
        elif self.low is not None or self.high is not None:
            raise self._error("give either low and high, or values, not both")
        else:
            object.__setattr__(self, "values", self._increasing("values"))
            implied = lattice_of(where, self.values)
            for what, number in zip(("low", "high", "points"), implied, strict=True):
                object.__setattr__(self, what, number)
        self._check_fields()
        if self.ends is not None and (self.dates or self.missing_values):
            raise self._error(
                "a difference is a number, of days if its ends are dates: give low, high, edges "
                "and missing as numbers, and no missing_values"
            )
        if not isinstance(self.even_edges, bool):
            raise self._error(f"even_edges must be true or false, got {short(self.even_edges)}")
        if self.missing is not None:
            check_declared(f"{where}: missing", self.missing, SchemaError)
            if not self.low <= self.missing <= self.high:
                raise self._error(
                    f"missing={self.missing} lies outside the bounds {self.low} and {self.high}"
                )
        if twice := set(self.values or ()) & set(self.missing_values):
            raise self._error(
                f"missing_values hold {min(twice)}, which values declare too; drop one"
            )
        self._check_edges()

    def _check_source(self, text: str) -> None:
        """Check what the column is read from, and keep one spelling of it."""
        try:
            source = read_source(text)
        except SchemaError as error:
            raise self._error(str(error)) from None
        if not isinstance(source, str) and self.name in source:
            raise self._error(
                "its source subtracts columns of the table, and one of them has the same name; "
                "choose another name"
            )
        object.__setattr__(self, "source", source_text(source))

    def _check_missing_values(self, codes: Sequence[Any]) -> None:
        if not all(is_number(code) and is_finite(code) for code in codes):
            raise self._error(
                "each of missing_values must be a finite number; cells that "
                "hold none count as missing in any case"
            )

    def _increasing(self, what: str) -> tuple[float, ...]:
        """A declared list of numbers, checked; not quoted, since it may be a private column."""
        numbers = getattr(self, what)
        if isinstance(numbers, str) or not isinstance(numbers, Sequence):
            raise self._error(f"{what} must be a list of numbers")
        if not all(is_number(value) and is_finite(value) for value in numbers):
            raise self._error(f"each of {what} must be a finite number")
        for i, (a, b) in enumerate(pairwise(numbers), 1):
            if a >= b:
                raise self._error(
                    f"{what} must be strictly increasing, and number {i + 1} of them is not above "
                    f"number {i}; sort them, and give each once"
                )
        return tuple(numbers)

    def _check_bounds(self, where: str) -> None:
        if self.low is None or self.high is None:
            raise self._error(
                f"declare low and high, or values; they are never learned from data"
                f"{_lacking(self.low, self.high)}"
            )
        low = check_declared(f"{where}: low", self.low, SchemaError)
        high = check_declared(f"{where}: high", self.high, SchemaError)
        if not low < high:
            raise self._error(f"low must be below high, got {low} and {high}")
        check_width(where, low, high)
        if self.scale == "log" and low <= 0:
            raise self._error(
                f"scale='log' needs low above 0, got {low:.10g}; values of 0 and below "
                "then count as low"
            )
        points = self.points
        if type(points) is not int or points < 2 or 2 * self.half_points + 1 > MAX_POINTS:
            raise self._error(
                f"points must be a whole number from 2 to {MAX_POINTS} (an even one to "
                f"{MAX_POINTS // 2}), got {short(points)}"
            )
        if not np.all(self.grid[1:] > self.grid[:-1]):
            raise self._error(
                f"{points} points from {low} to {high} are not distinct floats; declare "
                "fewer points or wider bounds"
            )

    def _check_edges(self) -> None:
        if not self.edges:
            return
        low, high = float(self.low), float(self.high)  # type: ignore[arg-type]
        first, last = self.edges[0], self.edges[-1]
        inside = low < first and last <= high if self.closed == "left" else (
            low <= first and last < high
        )  # fmt: skip
        if not inside:
            bounds = f"[{self.text(low)}, {self.text(high)}]"
            raise self._error(f"edges must lie strictly inside the bounds {bounds}")
        filled = np.unique(self.bins_of(self.all_codes))
        if len(filled) < self.bins:
            raise self._error(
                f"some bin between the edges holds no "
                f"{'declared value' if self.values else 'grid point'}; use wider bins"
                + ("" if self.values else " or more points")
            )

    @property
    def discrete(self) -> bool:
        """True if every bin is a single declared value."""
        return self.values is not None and not self.edges

    @property
    def middle(self) -> float:
        """Middle of the bounds, in original units; of their logarithms if the scale is "log"."""
        low, high = self._ends
        return (low + high) / 2

    @property
    def half_range(self) -> float:
        """Half the width of the bounds, in original units, or of their logarithms."""
        low, high = self._ends
        return (high - low) / 2

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = float(self.low), float(self.high)  # type: ignore[arg-type]
        return (math.log(low), math.log(high)) if self.scale == "log" else (low, high)

    @property
    def measured_name(self) -> str:
        """Name of a moment: ``age``, or ``log(income)`` if that is the scale."""
        return self.formula_name if self.scale == "log" else self.name

    @property
    def formula_name(self) -> str:
        """As formulas write it: in backticks unless it is a plain word, ``log(`net pay`)``."""
        name = quoted_name(self.name)
        return f"log({name})" if self.scale == "log" else name

    def require_linear(self) -> None:
        """Refuse a column of which only the logarithm has moments.

        Raises
        ------
        RequestError
        """
        if self.scale == "log":
            raise RequestError(
                f"{self.name!r} has scale='log' in the schema, so only its logarithm has moments: "
                f"write {self.formula_name} in dps.OLS (without clip_norm=), dps.Logistic, "
                "dps.Poisson, dps.Lasso, dps.ElasticNet, dps.Mean, "
                "dps.MeanDifference or dps.GroupMeans; else declare it with an even grid, and its "
                f"logarithm as a second number with scale='log' and source={self.name!r}"
            )

    def require_missing(self, what: str) -> None:
        """Refuse a column without a rule for missing cells, which `what`, such as "moments", need.

        Raises
        ------
        RequestError
        """
        if self.missing is None and not self.allow_missing:
            where = "" if self.view_of is None else f" of {self.view_of!r}"
            raise RequestError(
                f"{what} of {self.name!r} need missing={where} in the schema, the value that "
                "missing cells count as, or allow_missing=True, to use the rows that have a value"
            )

    @cached_property
    def half_points(self) -> int:
        """K: codes run from -K to K."""
        return (self.points - 1) * self._step // 2

    @property
    def _step(self) -> int:
        """Distance of neighbouring codes: those of an even number of points are all odd."""
        return 1 if self.points % 2 else 2

    @cached_property
    def grid(self) -> NDArray[np.float64]:
        """Values (2 K + 1,) float64 of the codes -K..K, in original units."""
        grid = self.between(2 * self.half_points)
        if self.values is not None:  # declared values come back as declared, to the last bit
            grid[self._value_codes + self.half_points] = self.values
        return grid

    def between(self, steps: int) -> NDArray[np.float64]:
        """Values (steps + 1,) from bound to bound, with equal steps on the declared scale."""
        low, high = float(self.low), float(self.high)  # type: ignore[arg-type]
        return even_points(low, high, steps, log=self.scale == "log")

    @cached_property
    def _value_codes(self) -> Codes:
        exact = [shortest_decimal(value) for value in self.values or ()]
        step = (exact[-1] - exact[0]) / (self.points - 1)
        return np.array([int((v - exact[0]) / step) - self.half_points for v in exact], np.int64)

    @cached_property
    def _read_from(self) -> str | Ends | None:
        return None if self.source is None else read_source(self.source)

    @property
    def view_of(self) -> str | None:
        """Name of the number of which this one is a view, if it is one."""
        return self._read_from if isinstance(self._read_from, str) else None

    @property
    def ends(self) -> Ends | None:
        """The two columns of the table of which this is the difference, if it is one."""
        return None if isinstance(self._read_from, str) else self._read_from

    @property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the columns of the table that its cells come from."""
        return (self.name,) if self.ends is None else self.ends

    def cells(self, batch: pa.RecordBatch) -> pa.Array:
        """Its cells (n,) in rows of the table; those of a difference as float64."""
        if self.ends is None:
            return batch.column(self.name)
        from dpstats.schema import arrow

        return arrow.differences(*map(batch.column, self.ends))

    def as_view_of(self, source: Number) -> Number:
        """View of another number: this column with the missing cells of that one.

        Raises
        ------
        SchemaError
        """
        if source.view_of is not None:
            raise self._error(
                f"its source {source.name!r} is a view itself; name {source.view_of!r}"
            )
        if self.dates != source.dates:
            raise self._error(
                f"it and its source {source.name!r} must be both numbers or both dates"
            )
        missing = source.missing
        if missing is not None:
            missing = min(max(missing, self.low), self.high)
        declared = self.allow_missing, self.missing
        if declared not in ((False, None), (source.allow_missing, missing)) or self.missing_values:
            raise self._error(
                f"its cells are missing where those of its source {source.name!r} are; leave out "
                "missing, allow_missing and missing_values"
            )
        return replace(self, allow_missing=source.allow_missing, missing=missing)

    def codes_by_source(self, source: Number) -> Codes:
        """Code of this view for each code of its source, at index code + K of the source."""
        codes = self.encode_numbers(source.grid)
        return np.append(codes, self.missing_code) if source.allow_missing else codes

    def with_even_edges(self) -> Number:
        """The column in eight bins of about as many grid points, or one for each of fewer points.

        For regressions that count rows in bins, where no edges are declared.
        """
        grid = self.grid[self.codes_in_use + self.half_points]
        bins = min(_EVEN_BINS, len(grid))
        first = [-(-(len(grid) - 1) * i // bins) for i in range(1, bins)]
        at = first if self.closed == "left" else [i - 1 for i in first]
        return replace(self, edges=grid[at].tolist(), even_edges=True)

    @property
    def codes_in_use(self) -> Codes:
        """Codes that a value can have, increasing, (points,) or (declared values,) int64."""
        if self.values is not None:
            return self._value_codes
        return np.arange(-self.half_points, self.half_points + 1, self._step)

    @property
    def all_codes(self) -> Codes:
        """`codes_in_use`, and the code of missing cells if they have their own."""
        missing = [self.missing_code] if self.allow_missing else []
        return np.append(self.codes_in_use, np.array(missing, np.int64))

    @property
    def code_range(self) -> tuple[int, int]:
        """Smallest and largest code, that of missing cells included."""
        return -self.half_points, self.half_points + self.allow_missing

    @property
    def value_bins(self) -> int:
        """Number of bins of values: between the edges, or one per declared value."""
        return len(self.values) if self.values and not self.edges else len(self.edges) + 1

    @property
    def bins(self) -> int:
        """Number of bins, that of missing cells included."""
        return self.value_bins + self.allow_missing

    @property
    def bin_labels(self) -> tuple[str, ...]:
        """One label per bin, such as ``[0, 18)``, or the declared value."""
        return (*self._value_labels, *([MISSING_LABEL] if self.allow_missing else []))

    def index(self, label: object) -> int:
        """Index of the bin with a label, or of a declared value."""
        if self.values and not self.edges and label in self.values:
            return self.values.index(label)
        if label not in self.bin_labels:
            raise SchemaError(
                f"{short(label)} is not a bin of {self.name!r}; bins: {first_few(self.bin_labels)}"
            )
        return self.bin_labels.index(label)

    @property
    def _value_labels(self) -> tuple[str, ...]:
        if self.values and not self.edges:
            return tuple(self.text(value) for value in self.values)
        cuts = [self.low, *self.edges, self.high]
        left, right = ("[", ")") if self.closed == "left" else ("(", "]")
        cut_texts = [self.text(cut) for cut in cuts]
        texts = [f"{left}{a}, {b}{right}" for a, b in pairwise(cut_texts)]
        texts[0], texts[-1] = "[" + texts[0].lstrip("[("), texts[-1].rstrip("])") + "]"
        return tuple(texts)

    def _bins_of_values(self, values: NDArray[np.float64]) -> Codes:
        if len(self.edges) > _FEW_EDGES:
            side = "right" if self.closed == "left" else "left"
            return np.searchsorted(np.asarray(self.edges, float), values, side=side)  # type: ignore[call-overload,no-any-return]
        bins = np.zeros(len(values), np.int64)
        for edge in map(float, self.edges):
            bins += values >= edge if self.closed == "left" else values > edge
        return bins

    @cached_property
    def _bin_of_code(self) -> Codes:
        """Bin of each code, at index code + K; declared values without edges: the nearest one."""
        if self.values and not self.edges:
            bins = nearest(self._value_codes, np.arange(self.points) - self.half_points)
        else:
            bins = self._bins_of_values(self.grid)
        return np.append(bins, self.value_bins) if self.allow_missing else bins

    @cached_property
    def bin_codes(self) -> tuple[Codes, Codes]:
        """First and last code of every bin (bins are runs of codes)."""
        codes = self.all_codes
        bins = self._bin_of_code[codes + self.half_points]
        first = np.searchsorted(bins, np.arange(self.bins), side="left")
        last = np.searchsorted(bins, np.arange(self.bins), side="right") - 1
        return codes[first], codes[last]

    def bins_of(self, codes: Codes) -> Codes:
        """Bin indices of codes."""
        return self._bin_of_code[codes + self.half_points]

    def draw_inside(self, bins: Codes, rng: np.random.Generator) -> Codes:
        """Codes drawn uniformly from the grid points (or declared values) inside given bins."""
        codes = self.all_codes
        first, last = (np.searchsorted(codes, ends) for ends in self.bin_codes)
        return codes[rng.integers(first[bins], last[bins], endpoint=True)]

    def has_value(self, codes: Codes) -> NDArray[np.bool_]:
        """True for each code of a value, False for that of a missing cell."""
        return codes <= self.half_points

    def units_of(self, codes: Codes) -> NDArray[np.float64]:
        """Values in unit scale, in [-1, 1]; 0 for missing cells."""
        return np.where(self.has_value(codes), codes / self.half_points, 0.0)

    def bins_where(self, comparison: str, value: Level) -> frozenset[int]:
        """Bins for which ``column <comparison> value`` is true; only declared edges or values.

        As in pandas, a missing cell satisfies ``!=`` with any value, and no other comparison.
        """
        holds = _COMPARISONS[comparison]
        if self.allow_missing and value == MISSING_LABEL and comparison in ("==", "!="):
            return frozenset(i for i in range(self.bins) if holds(i, self.value_bins))
        if self.dates and (day := day_of(value)) is not None:
            value = day
        if not is_number(value):
            what = "of dates such as '2024-05-01'" if self.dates else "a number"
            raise ConditionError(
                f"{self.name!r} is {what} and cannot be compared with {short(value)}"
            )
        if self.values and not self.edges:
            if value in self.values:
                missing = {self.value_bins} if self.allow_missing and comparison == "!=" else set()
                return frozenset(i for i, v in enumerate(self.values) if holds(v, value)) | missing
        elif value in self.edges and not self.even_edges and comparison in self._at_edges:
            cut = self.edges.index(value) + 1
            below = comparison == self._at_edges[0]
            return frozenset(range(cut) if below else range(cut, self.value_bins))
        shown = repr(day_text(value)) if self.dates else short(value)  # type: ignore[arg-type]
        raise ConditionError(
            f"{self.name!r} {comparison} {shown} cannot be measured exactly; {self._allowed()}"
        )

    @property
    def _at_edges(self) -> tuple[str, str]:
        """The comparisons that an edge divides the bins by."""
        return ("<", ">=") if self.closed == "left" else ("<=", ">")

    def _allowed(self) -> str:
        """The comparisons that conditions may make, for a message."""
        if self.values and not self.edges:
            return f"allowed: ==, !=, <, <=, >, >=, in with {first_few(self.values)}"
        if not self.edges or self.even_edges:
            return "the column declares no edges; add edges=[...] to the schema"
        edges = [self.text(edge) for edge in self.edges] if self.dates else self.edges
        return (
            f"allowed: {' or '.join(self._at_edges)} with one of the declared edges "
            f"{first_few(edges)}; add an edge to the schema if you need another"
        )

    def decode(self, codes: Codes) -> NDArray[Any]:
        """Values of codes in original units: int64 where every grid value is whole, or dates.

        Missing cells are NaN (or NaT), and all other numbers float64, if they have their own code.
        """
        values: NDArray[np.float64] = np.append(self.grid, np.nan)[codes + self.half_points]
        if self.dates:
            return values.round().astype("datetime64[D]")
        return values.astype(np.int64) if self._whole and not self.allow_missing else values

    @cached_property
    def _whole(self) -> bool:
        used = self.grid[self.codes_in_use + self.half_points]
        return bool(np.all(used == np.rint(used)) and np.max(np.abs(used)) < 2**53)

    def encode(self, values: pa.Array) -> Codes:
        """Codes (n,) int64 of an Arrow array; total: clamped to the bounds, missing to `missing`.

        A value goes to the nearest grid point (by the logarithm, if that is the scale), the upper
        one of a tie, then into those of its own bin.
        """
        from dpstats.schema import arrow

        cells = arrow.days(values) if self.dates else arrow.floats(values)
        if self.missing_values:
            cells = np.where(self.is_missing_value(cells), np.nan, cells)
        return self.encode_numbers(cells)

    def code_of(self, value: Any) -> int:
        """Code of a public value within the bounds: a number, a date or ``"(missing)"``.

        Raises
        ------
        SchemaError
        """
        if value == MISSING_LABEL and self.allow_missing:
            return self.missing_code
        number = day_of(value) if self.dates else value
        if not is_number(number):
            raise self._error(f"{short(value)} is no {'date' if self.dates else 'number'}")
        if not self.low <= number <= self.high:  # type: ignore[operator]
            raise self._error(f"{short(value)} is outside the bounds")
        return int(self.encode_numbers(np.array([float(number)]))[0])  # type: ignore[arg-type]

    def is_missing_value(self, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which numbers (n,) of a private table are declared codes for a missing cell."""
        return np.isin(numbers, np.asarray(self.missing_values, np.float64))

    def encode_numbers(self, cells: NDArray[np.float64]) -> Codes:
        """Codes (n,) int64 of numbers, or days, as `encode` gives them; NaN is missing."""
        missing = np.isnan(cells)
        if not missing.any():
            return self._codes_of(cells)
        codes = self._codes_of(np.where(missing, float(self.low), cells))  # type: ignore[arg-type]
        np.copyto(codes, self.missing_code, where=missing)
        return codes

    @np.errstate(over="ignore")  # of values far outside the bounds
    def _codes_of(self, values: NDArray[np.float64]) -> Codes:
        """Codes of numbers, which may be infinite."""
        if self.values is not None:
            codes = self._value_codes[nearest(np.asarray(self.values, float), values)]
        elif self.scale == "log":
            codes = self.codes_in_use[np.searchsorted(self._log_middles, values, side="right")]
        else:
            k = self.half_points
            at = values - self.middle
            at *= k / self.half_range
            if self._step == 1:
                at += 0.5
                np.floor(at, out=at)
            else:
                at /= 2
                np.floor(at, out=at)
                at *= 2
                at += 1
            # Processors convert many numbers at a time to 32 bits, but one at a time to 64.
            codes = np.clip(at, -k, k, out=at).astype(np.int32).astype(np.int64)
        if self.edges:
            first, last = self.bin_codes
            bins = self._bins_of_values(values)
            codes = np.clip(codes, first[bins], last[bins])
        return codes

    @cached_property
    def _log_middles(self) -> NDArray[np.float64]:
        """Where the nearest point of a logarithmic grid changes; comparisons need no logarithm."""
        roots = np.sqrt(self.grid[self.codes_in_use + self.half_points])
        return np.asarray(roots[1:] * roots[:-1])

    @cached_property
    def missing_code(self) -> int:
        """Code of missing cells."""
        if self.allow_missing:
            return self.half_points + 1
        if self.missing is None:
            return int(self.codes_in_use[len(self.codes_in_use) // 2])
        return int(self._codes_of(np.array([float(self.missing)]))[0])

    @property
    def described(self) -> str:
        """The declaration in one line."""
        if self.values is not None:
            what = f"number, values {', '.join(map(self.text, self.values))}"
        elif self.dates:
            what = f"dates, {self.text(self.low)} to {self.text(self.high)}"
        else:
            what = f"number, {self.text(self.low)} to {self.text(self.high)}, {self.points} points"
            what += " with equal steps of the logarithm" if self.scale == "log" else ""
        what += f", bins {' '.join(self.bin_labels)}" if self.edges else ""
        if self.ends is not None:
            return f"{what}, the difference {self.source}"
        return what if self.view_of is None else f"{what}, a view of {self.view_of!r}"

    def missing_rule(self) -> str:
        """How cells without a number, and those out of range, are counted, as text."""
        coded = [self.text(code) for code in self.missing_values]
        lacking = cells_named(coded, f"not a {'date' if self.dates else 'number'}")
        outside = "nearest declared value" if self.values else "clamped to the bounds"
        if self.scale == "log":
            outside += f", 0 and below to {self.text(self.low)}"
        if self.view_of is not None:
            return f"missing where {self.view_of!r} is; outside: {outside}"
        if self.ends is not None:
            lacking = "without two dates or two numbers"
        if self.allow_missing:
            return f"{lacking}: counted as {MISSING_LABEL!r}; outside: {outside}"
        counted = self.grid[self.missing_code + self.half_points]
        value = self.text(counted) if self.dates else f"{counted:.15g}"
        if not self.dates and self.missing is not None and f"{self.missing:.15g}" != value:
            value += f" (the grid point nearest {self.text(self.missing)})"
        return f"{lacking}: counted as {value}; outside: {outside}"

    def text(self, value: Any) -> str:
        """A declared number, or date, as the shortest text that identifies it."""
        short_text = day_text(value) if self.dates else f"{value:g}"
        return short_text if self.dates or float(short_text) == value else repr(value)

    def _plain(self, key: str) -> Any:
        implied = ("low", "high", "points") if self.values else ("points",) if self.dates else ()
        value: Any = None if key in implied else getattr(self, key)
        if self.dates and key in ("edges", "missing_values"):
            return tuple(map(self.text, value))
        dated = self.dates and value is not None and key in ("low", "high", "missing")
        return self.text(value) if dated else value


def _lacking(low: object, high: object) -> str:
    """The bound that is still to be declared, for a message."""
    if low is None and high is None:
        return ""
    other, which = ("low", "smallest") if low is None else ("high", "largest")
    return f". {other} is missing here: the {which} value that is possible"
