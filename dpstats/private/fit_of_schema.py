"""How a table fits a declared schema: exact counts, for the custodian's screen only.

Nothing here is private, and nothing that is published may depend on it: `measure` and `release`
never call it, and a program must not decide by its result. A person who sees that the declaration
is wrong corrects it to what is publicly known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.checks import counted, first_few
from dpstats.errors import DataError, DpstatsError, RequestError
from dpstats.planning.plan import Plan
from dpstats.private.design_rows import DesignRows
from dpstats.private.header import is_row
from dpstats.private.keys import codes_of_keys
from dpstats.private.likely_meaning import (
    DECLARE_ENCODING,
    EXCHANGED,
    advise_on,
    find_alike,
    find_delimiter,
)
from dpstats.private.measure import check_rows
from dpstats.private.persons import of_persons
from dpstats.private.sources import Source, describe_failure, without_rows
from dpstats.private.tables import find_source
from dpstats.results.rendering import Page
from dpstats.schema import Category, Column, Design, Schema, arrow
from dpstats.schema.dates import day_text
from dpstats.schema.design import unit_keys
from dpstats.schema.repairs import CompiledView, Repairs
from dpstats.schema.totals import compile_totals

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Fit of the schema (not private: do not publish)"
SHOWN = 4  # values of a column that are listed
MOST_VALUES = 1_000  # distinct values that are counted at a time
LONGEST = 32  # characters of a value that are kept
_MOST_UNITS = 1_000_000  # that are counted


def check(plan: Plan, data: object, *, order: str | None = None) -> SchemaFit:
    """Show how a private table fits the schema of a plan; spends no budget and is not private.

    The result is for the custodian's screen. It holds exact counts and values of cells: publish
    neither it nor anything that was decided by it. A schema that is changed because of it has
    learned from the data, so change levels and bounds only to what is publicly known, such as the
    code book, and record the source in the column's `note`.

    Parameters
    ----------
    plan : Plan
    data : path, DataFrame, Table or stream
        As in `measure`; a stream is used up. The used columns of a Spark DataFrame come to the
        driver, one partition at a time.
    order : str, optional
        As in `measure`, for plans with ``person=``.

    Returns
    -------
    SchemaFit
        For every column that the plan reads, in the rows that it uses: missing, undeclared and
        clamped cells, the commonest values outside the declaration, what they may mean, and as what
        undeclared ones count. It also says whether `release` would refuse the number of rows. It
        prints as a table; `to_frame()` has it as a pandas DataFrame.

    Raises
    ------
    DataError
        If the table cannot be read, or lacks its header line; never with a cell in the message.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Category("sex", ["female", "male"])])
    >>> plan = dps.plan(schema, {"men": dps.Proportion("sex == 'male'")}, budget=dps.PureDP(1))
    >>> dps.check(plan, pd.DataFrame({"sex": ["female", "Male", "Male", None]}))
    Fit of the schema (not private: do not publish)
    4 rows
    <BLANKLINE>
         missing  undeclared  clamped  commonest outside
    ----------------------------------------------------
    sex        1           2        0  'Male' (2)
    <BLANKLINE>
    sex: 'Male': did you mean 'male'?
    sex: missing or undeclared: counted as 'female'
    """
    if not isinstance(plan, Plan):
        raise RequestError(f"check needs a plan, made by dps.plan; got {type(plan).__name__}")
    schema, key = plan.read_columns.stored, plan.person
    source = find_source(data, schema, key, order)
    wanted = list(dict.fromkeys([*schema.raw.names, *([] if key is None else [key])]))
    absent = tuple(name for name in wanted if name not in source.fields)
    present = [column for column in schema if not set(absent).intersection(column.raw_names)]
    if not present and source.first_line and _lacks_header(source.fields, plan.schema):
        row = ", and looks like a row of data (not shown)" if source.fields else ""
        raise DataError(
            f"the table lacks its header line: {source.first_line}{row}. Put a line with the names "
            "of all columns, in the order of the file, above it; the schema has "
            f"{list(plan.schema.raw.names)}"
        )
    if present:
        known_key = key if key not in absent else None
        readable = schema.select(column.name for column in present)
        raw = (replace(readable, design=None) if absent else readable).raw
        source.check_names(replace(raw, person=known_key))
    used, of_keys, weighted = source, Counter[str](), plan.schema.design
    if key is not None and not (absent if weighted else key in absent):
        used = of_persons(source, key, plan.rows_per_person, None, of_keys, weighted)
    repairs = plan.read_columns.repairs(plan.read_columns.names)
    rows, columns, broken, totals, design = without_rows(
        partial(_counts_of, used, present, None if absent else repairs),
        partial(describe_failure, line=True),
    )
    refused = "" if absent else _refused(rows, plan)
    persons = "" if used is source else plan.neighbours.persons
    if scaled := of_keys["scaled"]:
        persons += f"; those of {counted(scaled, 'key')} are scaled"
    if unused := of_keys["keyless"]:
        rest = "row without a key is" if unused == 1 else "rows without a key are"
        persons += f"; {unused:,} {rest} not used"
    if not absent:
        note = "" if refused else plan.neighbours.counts_are_public
        return SchemaFit(
            rows, columns, persons=persons, refused=refused, note=note, broken=broken,
            totals=totals, design=design,
        )  # fmt: skip
    line = source.first_line or f"it has {len(source.fields)} columns"
    return SchemaFit(rows, columns, absent, tuple(map(str, source.fields)), line, persons)


def _refused(rows: int, plan: Plan) -> str:
    """Why a release would refuse this number of rows, where it is public; "" if it would not."""
    try:
        check_rows(rows, plan)
    except DpstatsError as error:
        return str(error).partition("; nothing was")[0]
    return ""


def _lacks_header(fields: Sequence[str], schema: Schema) -> bool:
    """True if a first line without a name of the schema is a row rather than other names."""
    if any(find_alike(name, fields) for name in (*schema.names, *schema.raw.names)):
        return False
    levels = {str(level) for column in schema if isinstance(column, Category)
              for level in column.stored}  # fmt: skip
    return is_row(fields) or not levels.isdisjoint(fields)


@dataclass
class ColumnFit:
    """How one column fits, counted over the batches so far in bounded memory; not private.

    Attributes
    ----------
    column : Column
    decimal : str
        The decimal mark of a text file.
    missing : int
        Empty cells, null, NaN, and declared codes for a missing cell.
    undeclared : int
        Cells that hold no declared level, or no number (no date) where one is declared.
    clamped : int
        Numbers outside the bounds, or that are none of the declared values.
    values : Counter of str
        Undeclared or clamped values; counts are lower bounds where there are more than a thousand.
    """

    column: Column
    decimal: str = "."
    missing: int = 0
    undeclared: int = 0
    clamped: int = 0
    values: Counter[str] = field(default_factory=Counter, repr=False)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the cells of one batch, coded as for the sums."""
        ends = [arrow.plain(batch.column(name)) for name in self.column.raw_names]
        values = ends[0] if len(ends) == 1 else self.column.cells(batch)
        missing, undeclared, clamped = _outside(values, self.column, ends)
        self.missing += int(missing.sum())
        self.undeclared += int(undeclared.sum())
        self.clamped += int(clamped.sum())
        if len(ends) == 1:
            self.values.update(_texts(values.filter(pa.array(undeclared | clamped))))
        else:
            self.values.update(_texts(values.filter(pa.array(clamped))))
            for cells in ends:
                self.values.update(_texts(cells.filter(pa.array(undeclared & _is_neither(cells)))))
        _forget_rare(self.values)

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def commonest(self) -> tuple[tuple[str, int], ...]:
        """The commonest values with their counts, as the file has them."""
        return self._outside[:SHOWN]

    @property
    def advice(self) -> tuple[str, ...]:
        """Likely meaning of the values."""
        return advise_on(self.column, dict(self._outside), self.decimal)

    @property
    def _outside(self) -> tuple[tuple[str, int], ...]:
        column = self.column
        text = column.holds_text if isinstance(column, Category) else column.dates
        if self.decimal == "," and not text:
            return _ordered({v.translate(EXCHANGED): times for v, times in self.values.items()})
        return _ordered(self.values)


@dataclass
class DesignFit:
    """How weights and units fit the design of a survey, in the batches so far; not private.

    Attributes
    ----------
    design : Design
    unusable, clamped, capped : int
        Weights that are missing, not finite or not positive; usable ones outside the declared
        bounds; and those above the cap.
    strata, units : Counter of str
        Strata that are not declared, and units that are not declared in their stratum; "" for
        cells without a key.
    undeclared : int
        Rows of a unit that is not declared in its stratum; 0 if no units are listed.
    used, total : int, float
        Rows with a usable weight, and the sum of these within the bounds, before the cap.
    """

    design: Design
    unusable: int = 0
    clamped: int = 0
    capped: int = 0
    strata: Counter[str] = field(default_factory=Counter, repr=False)
    units: Counter[str] = field(default_factory=Counter, repr=False)
    undeclared: int = 0
    used: int = 0
    total: float = 0.0
    _hashes: set[int] = field(default_factory=set, repr=False)
    _pairs: set[tuple[int, int]] = field(default_factory=set, repr=False)

    @cached_property
    def _rows(self) -> DesignRows:
        return DesignRows(self.design)

    @cached_property
    def _named(self) -> dict[tuple[int, int], str]:
        """Names of declared units by their stratum and key."""
        keys = {key: k for k, key in enumerate(unit_keys(self.design))}
        return {
            (h, keys[unit]): f"{stratum} {unit}".lstrip()
            for h, (stratum, units) in enumerate(self.design.listed_units)
            for unit in units
        }

    def add(self, batch: pa.RecordBatch) -> Floats:
        """Count the rows of one batch, read as for the sums; their weights (n,), zero if unused."""
        weights, clamped, usable = self._rows.clamped(batch)
        self.unusable += int(np.count_nonzero(~usable))
        self.used += int(np.count_nonzero(usable))
        with np.errstate(over="ignore"):
            self.total += float(clamped[usable].sum())
        self.clamped += int(np.count_nonzero(usable & (clamped != weights)))
        self.capped += int(np.count_nonzero(usable & (clamped > (self.design.cap or np.inf))))
        if self.design.unit is not None:
            self._add_units(batch, self.design.unit)
        return np.where(usable, clamped, 0.0)

    def _add_units(self, batch: pa.RecordBatch, unit_name: str) -> None:
        if len(self._hashes) < _MOST_UNITS:
            self._hashes.update(self._rows.hashes(batch))
        if not self._named:
            return
        stratum, unit = self._rows.declared(batch)
        distinct, which = np.unique(np.stack([stratum, unit]), axis=1, return_inverse=True)
        pairs = list(map(tuple, distinct.T.tolist()))
        self._pairs.update(pairs)
        undeclared = np.array([pair not in self._named for pair in pairs], np.bool_)[which.ravel()]
        self.undeclared += int(np.count_nonzero(undeclared))
        self.units.update(_keys_of(batch.column(unit_name), undeclared))
        if self.design.strata is not None:
            self.strata.update(_keys_of(batch.column(self.design.strata), stratum < 0))
        _forget_rare(self.units)
        _forget_rare(self.strata)

    @property
    def empty(self) -> tuple[str, ...]:
        """Declared units without a row."""
        return tuple(name for pair, name in self._named.items() if pair not in self._pairs)

    @property
    def outside(self) -> bool:
        """True if a weight or unit is not as declared."""
        unusable = self.unusable and self.design.missing is None
        return bool(unusable or self.clamped or self.undeclared)

    @property
    def lines(self) -> list[str]:
        """Lines on what is not as declared, or one that all is."""
        design, lines = self.design, list[str]()

        def count(rows: int, text: str) -> None:
            if rows:
                lines.append(f"{rows:,} row{'s' * (rows != 1)} {text}")

        used = "not used" if design.missing is None else f"counted as {design.missing:.10g}"
        count(self.unusable, f"of a weight that is missing or not positive: {used}")
        above = "" if design.high is None else f" or above {design.high:.10g}"
        count(self.clamped, f"of a weight below {design.low:.10g}{above}: clamped to that")
        count(self.capped, f"of a weight above the cap, {design.cap:.10g}: counted as that")
        among = f" (the commonest: {_listed(_ordered(self.units))})" if self.units else ""
        count(self.undeclared, f"of a unit that is not declared in its stratum{among}")
        if self.strata:
            lines.append(f"strata that are not declared: {_listed(_ordered(self.strata))}")
        if self.empty:
            units = "unit has" if len(self.empty) == 1 else "units have"
            lines.append(f"{len(self.empty):,} declared {units} no row: {first_few(self.empty)}")
        lines = lines or ["weights and units are as declared"]
        if self.used:
            total = "" if design.total is None else f" (declared {design.total:,.10g})"
            lines.append(f"mean of the weights {self.total / self.used:,.6g} (declared "
                         f"{design.mean:,.10g}), sum {self.total:,.6g}{total}")  # fmt: skip
        if design.unit is not None:
            number, seen = design.number_of_units, len(self._hashes)
            declared = "not declared" if number is None else f"declared {number:,}"
            above = " or more" if seen >= _MOST_UNITS else ""
            lines.append(f"{seen:,}{above} units have rows ({declared})")
        return [f"design: {line}" for line in lines]


@dataclass(frozen=True, repr=False)
class SchemaFit:
    """How a table fits a schema: for the custodian's screen, and not private.

    Attributes
    ----------
    rows : int
        The exact number of rows; 0 if no column of the plan was found.
    columns : tuple of ColumnFit
    absent : tuple of str
        Columns of the plan that the table lacks.
    fields : tuple of str
        Names in the table, or the fields of a file's first line, where columns are absent.
    found : str
        What these fields are.
    persons : str
        Which rows are used, where the plan knows persons by a column of keys; all else is of these.
        Also how many have no key, unless an engine chose the rows.
    refused : str
        Why `release` would refuse the number of rows; "" if it would not.
    note : str
        What is public of the number of rows, where the plan knows persons and replaces their rows.
    broken : tuple of (str, int)
        Rules between columns, as text, and how many rows break each; these are read as it says.
    totals : tuple of (str, int)
        Public totals of the table, as text, and how many rows have the condition as they are read;
        in a survey those of the population, and what the weights of these rows add up to.
    design : DesignFit or None
        How weights and units fit the design of a survey, if the schema has one.
    """

    rows: int
    columns: tuple[ColumnFit, ...]
    absent: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    found: str = ""
    persons: str = ""
    refused: str = ""
    note: str = ""
    broken: tuple[tuple[str, int], ...] = ()
    totals: tuple[tuple[str, int], ...] = ()
    design: DesignFit | None = None

    @property
    def unread(self) -> tuple[str, ...]:
        """Columns of which no cell can be read: as a level, number or date, weight or unit."""
        unread = [
            c.name for c in self.columns if c.undeclared and c.missing + c.undeclared == self.rows
        ]
        if self.design is not None and self.rows:
            fit, design = self.design, self.design.design
            unread += [design.weights] * (fit.unusable == self.rows)
            unread += [str(design.unit)] * (fit.undeclared == self.rows)
        return tuple(dict.fromkeys(unread))

    def to_frame(self) -> pd.DataFrame:
        """One row per column: column, missing, undeclared, clamped, commonest, advice."""
        import pandas as pd

        rows = [
            [c.name, c.missing, c.undeclared, c.clamped, _listed(c.commonest), " ".join(c.advice)]
            for c in self.columns
        ]
        names = ["column", "missing", "undeclared", "clamped", "commonest", "advice"]
        return pd.DataFrame(rows, columns=names)

    def _page(self) -> Page:
        cells = [[c.name, *(f"{count:,}" for count in (c.missing, c.undeclared, c.clamped)),
                  _listed(c.commonest)] for c in self.columns]  # fmt: skip
        advice = []
        for c in self.columns:
            lines = (*c.advice, *([c.column.missing_rule()] if c.undeclared else []))
            advice += [f"{c.name}: {line}" for line in lines]
        if self.unread:
            advice.append(f"no cell can be read of: {', '.join(map(repr, self.unread))}")
        if self.absent:
            if any("\ufffd" in name for name in self.fields):
                advice.append(f"the names are not UTF-8: {DECLARE_ENCODING}")
            if mark := find_delimiter(self.fields, self.absent):
                advice.append(
                    f"names in the first line are separated by {mark!r}: declare delimiter = "
                    f"{mark!r} under [file] of the schema, if the table is a text file"
                )
            advice += [
                f"the table has no column {name!r}"
                + "".join(f": did you mean {near!r}?" for near in find_alike(name, self.fields)[:1])
                for name in self.absent
            ]
            advice.append(f"{self.found}: {', '.join(map(repr, self.fields))}")
        outside = any(c.undeclared or c.clamped for c in self.columns) or (
            self.design is not None and self.design.outside
        )
        if self.refused:
            advice.append(f"a release would be refused: {self.refused}")
        advice += [self.note] if self.note else []
        if not self.refused and self.columns and not self.absent and not self.rows:
            advice.append("no row is used" if self.persons else "the table has no rows")
        advice += [
            f"rule {text!r}: {count:,} row{'s' * (count != 1)} break it"
            for text, count in self.broken
        ]
        here = "counted here" if self.design is None else "weights here add up to"
        advice += [f"total: {text}; {here}: {count:,}" for text, count in self.totals]
        if self.rows and not self.absent and not outside:
            advice.append("every cell that is not missing fits its declaration")
        advice += [] if self.design is None else self.design.lines
        used = self.persons and f": {self.persons}"
        header = ["", "missing", "undeclared", "clamped", "commonest outside"]
        return Page(
            TITLE,
            [f"{self.rows:,} row{'s' * (self.rows != 1)}{used}"] if self.columns else [],
            header if self.columns else [],
            cells,
            after=advice,
            words=(0, len(header) - 1),
        )

    def __repr__(self) -> str:
        return self._page().text()

    def fitted(self) -> str:
        """The text with lines and columns that fit the terminal."""
        return self._page().fitted()

    def _repr_html_(self) -> str:
        return self._page().html()


def _ordered(values: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Values with their counts, the commonest first."""
    return tuple(sorted(values.items(), key=lambda item: (-item[1], item[0])))


def _listed(commonest: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{value!r} ({count:,})" for value, count in commonest[:SHOWN])


_Counts = tuple[tuple[str, int], ...]


def _counts_of(
    source: Source, columns: Sequence[Column], repairs: Repairs | None
) -> tuple[int, tuple[ColumnFit, ...], _Counts, _Counts, DesignFit | None]:
    """The number of rows, and the fit of columns, rules, totals and design."""
    rows, fits = 0, tuple(ColumnFit(column, source.decimal) for column in columns)
    rules = () if repairs is None else repairs.rules
    drawn = None if repairs is None else repairs.schema.design
    of = "table" if drawn is None else "population"
    totals = () if repairs is None else compile_totals(repairs.schema, of)
    design = None if drawn is None else DesignFit(drawn)
    names = list(dict.fromkeys([
        *(name for column in columns for name in column.raw_names),
        *(() if drawn is None else drawn.raw_names),
    ]))  # fmt: skip
    broken, having = np.zeros(len(rules), np.int64), np.zeros(len(totals))
    for batch in source.batches(names) if columns else ():
        rows += batch.num_rows
        for fit in fits:
            fit.add(batch)
        weights = np.ones(batch.num_rows) if design is None else design.add(batch)
        if repairs is not None and (rules or totals):
            cells = repairs.schema.encode(batch)
            broken += repairs.broken(cells)
            read = repairs.repair(cells)
            for place, total in enumerate(totals):
                having[place] += weights[total.counts(read)].sum()
    broken_rules = tuple(
        (rule.text, count)
        for rule, count in zip(rules, broken.tolist(), strict=True)
        if not isinstance(rule, CompiledView)  # the table has none
    )
    shown = [str(compiled.total) for compiled in totals]
    having_each = tuple(zip(shown, map(round, having.tolist()), strict=True))
    return rows, fits, broken_rules, having_each, design


def _forget_rare(values: Counter[str]) -> None:
    """Keep the commonest where there are many, so that counts become lower bounds."""
    if len(values) > MOST_VALUES:
        kept = dict(values.most_common(MOST_VALUES // 2))
        values.clear()
        values.update(kept)


def _keys_of(cells: pa.Array, some: NDArray[np.bool_]) -> Counter[str]:
    """Short texts of the keys of some rows, counted; "" for cells without one."""
    codes, keys = codes_of_keys(cells)
    names = [*map(_shortened, keys), ""]
    numbers, counts = np.unique(codes[some], return_counts=True)
    totals: Counter[str] = Counter()
    for number, times in zip(numbers.tolist(), counts.tolist(), strict=True):
        totals[names[number]] += times
    return totals


def _outside(
    values: pa.Array, column: Column, ends: Sequence[pa.Array]
) -> tuple[NDArray[np.bool_], ...]:
    """Which cells are missing, undeclared and clamped; missing where one of `ends` is."""
    if isinstance(column, Category):
        codes = arrow.level_codes(values, column.stored, -1, -2, column.missing_values)
        return codes == -1, codes == -2, np.zeros(len(codes), dtype=np.bool_)
    cells = arrow.days(values) if column.dates else arrow.floats(values)
    absent = np.any([arrow.absent(cells, numbers=True) for cells in ends], axis=0)
    missing = absent | column.is_missing_value(cells)
    if column.values is not None:
        clamped = ~np.isin(cells, np.asarray(column.values, dtype=np.float64))
    else:
        clamped = (cells < column.low) | (cells > column.high)  # type: ignore[operator]
    unread = np.isnan(cells)
    return missing, unread & ~missing, clamped & ~unread & ~missing


def _is_neither(values: pa.Array) -> NDArray[np.bool_]:
    """Which cells are no finite number and no date."""
    return np.asarray(~np.isfinite(arrow.floats(values)) & np.isnan(arrow.days(values)))


def _texts(values: pa.Array) -> Counter[str]:
    """Cells as short texts, counted."""
    kind = values.type
    show: Callable[[Any], str]
    if arrow.holds_text(kind):
        values = pc.binary_slice(values, 0, 4 * LONGEST)
        show = _shortened
    elif arrow.holds_dates(kind):
        values, show = pa.array(arrow.days(values)), day_text
    elif pa.types.is_boolean(kind):
        show = _truth
    else:
        numbers = arrow.floats(values)
        if np.isnan(numbers).any():  # of a type that holds no numbers
            return Counter({f"({kind})": len(values)})
        values, show = pa.array(numbers), arrow.spelled
    counts: Counter[str] = Counter()
    for pair in pc.value_counts(values).to_pylist():
        counts[show(pair["values"])] += pair["counts"]
    return counts


def _shortened(cell: bytes) -> str:
    text = cell.decode("utf-8", "replace")
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _truth(cell: bool) -> str:
    return str(cell).lower()
