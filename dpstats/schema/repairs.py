"""Rules between columns on coded rows: which rows break one, and how these are repaired.

A repair is a function of one row. Views are repaired in every row: their codes follow from those
of their source, before the first rule and after each rule that changes it
(docs/explanation/privacy/rules.md, eq. 1 and section "Views").
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.errors import ConditionError, SchemaError
from dpstats.schema.conditions import Column, cell_index
from dpstats.schema.number import Number

if TYPE_CHECKING:
    import pyarrow as pa

    from dpstats.schema.schema import Schema


Mask = NDArray[np.bool_]
ANY = np.iinfo(np.int64).min  # of a column, whatever its code is


@dataclass(frozen=True)
class OnColumns(ABC):
    """A statement about some columns: a rule between them, or a public total."""

    columns: tuple[Column, ...]  # all that it depends on
    # whether it depends on bins alone, not on the codes within them
    in_bins: bool = field(default=True, kw_only=True)

    @property
    def names(self) -> set[str]:
        """Names of its columns."""
        return {column.name for column in self.columns}

    @abstractmethod
    def cells(self) -> Mask:
        """Cells that it is about, bool with an axis for each column."""


@dataclass(frozen=True)
class CompiledRule(OnColumns):
    """A rule on coded rows."""

    text: str  # the rule in words
    changes: tuple[str, ...]  # names of the columns that a repair sets

    @abstractmethod
    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows break the rule, (n,)."""

    @abstractmethod
    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """New codes of the changed columns, of rows that break the rule."""

    def cells(self) -> Mask:
        """Cells that hold no allowed row, bool with an axis for each column."""
        codes = codes_of_cells(self.columns)
        return self.broken(codes).reshape([column.bins for column in self.columns])


@dataclass(frozen=True)
class ExcludedCells(CompiledRule):
    """Cells that cannot occur, and the codes that are set instead."""

    excluded: Mask
    targets: Mapping[str, int]

    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows are in an excluded cell, (n,)."""
        return np.asarray(self.excluded[cell_index(self.columns, codes)])

    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """The set codes, for all rows."""
        return {name: np.full_like(codes[name], code) for name, code in self.targets.items()}


@dataclass(frozen=True)
class DeterminedColumn(CompiledRule):
    """A code of the second column for each code of the first, at index code - smallest code.

    Where that is `ANY`, the second may have any. With `in_bins` any code in the bin of that one
    will do.
    """

    codes: Codes

    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows have another code, or bin, than follows, (n,)."""
        column, code, wanted = self.columns[1], codes[self.columns[1].name], self._wanted(codes)
        given = wanted != ANY
        if self.in_bins:
            code, wanted = column.bins_of(code), column.bins_of(np.where(given, wanted, code))
        return np.asarray(given & (code != wanted))

    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """Codes that follow, for all rows."""
        return {self.columns[1].name: self._wanted(codes)}

    def _wanted(self, codes: Mapping[str, Codes]) -> Codes:
        by = self.columns[0]
        return self.codes[codes[by.name] - by.code_range[0]]


@dataclass(frozen=True)
class OrderedNumbers(CompiledRule):
    """A comparison, and the nearest code of the changed number for each grid point of the other."""

    compare: Any
    other: Number
    nearest: Codes
    in_bins: bool = field(default=False, kw_only=True)

    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows have two values out of order, (n,)."""
        has_value, values = list[Mask](), list[Floats]()
        for column in self.columns:
            assert isinstance(column, Number)
            has_value.append(column.has_value(codes[column.name]))
            places = np.where(has_value[-1], codes[column.name], 0) + column.half_points
            values.append(column.grid[places])
        return np.asarray(has_value[0] & has_value[1] & ~self.compare(*values))

    def cells(self) -> Mask:
        """Pairs of bins without points in order: not even their ends are, and bins are runs."""
        ends = [column.bin_codes for column in self.columns if isinstance(column, Number)]
        either = [
            self.broken({c.name: codes for c, codes in zip(self.columns, pair, strict=True)})
            for first, second in itertools.product(*ends)
            for pair in [[first.repeat(len(second)), np.tile(second, len(first))]]
        ]
        shape = [column.bins for column in self.columns]
        return np.asarray(np.all(either, axis=0).reshape(shape))

    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """Nearest codes in order with the other number, for all rows."""
        return {self.changes[0]: self.nearest[codes[self.other.name] + self.other.half_points]}


@dataclass(frozen=True)
class CompiledView(DeterminedColumn):
    """A view of a number, which follows from its code; for a proof, `in_bins`."""

    in_bins: bool = field(default=False, kw_only=True)

    @classmethod
    def of(cls, view: Number, source: Number) -> CompiledView:
        """A view and its source."""
        text = f"{view.name} is a view of {source.name}"
        return cls((source, view), text, (view.name,), view.codes_by_source(source))

    @property
    def view(self) -> Number:
        """The column that follows."""
        assert isinstance(self.columns[1], Number)
        return self.columns[1]

    @property
    def source(self) -> Number:
        """The column that it follows from."""
        assert isinstance(self.columns[0], Number)
        return self.columns[0]

    def cells(self) -> Mask:
        """Pairs of bins without a code of the source in both."""
        codes = with_views([self], {self.source.name: self.source.all_codes})
        return empty_cells(self.columns, codes)


def with_views(views: Iterable[CompiledView], codes: Mapping[str, Codes]) -> dict[str, Codes]:
    """Codes of rows with those of views, each set to what follows from its source."""
    every = dict(codes)
    for view in views:
        every |= view.repaired(every)
    return every


def codes_of_bins(column: Column) -> Codes:
    """A code in every bin of a column, (bins,)."""
    return column.bin_codes[0] if isinstance(column, Number) else np.arange(column.bins)


def codes_of_cells(columns: Sequence[Column]) -> dict[str, Codes]:
    """A row in every cell of some columns, in C order, as codes."""
    shape = [column.bins for column in columns]
    places = np.unravel_index(np.arange(math.prod(shape)), shape)
    return {c.name: codes_of_bins(c)[at] for c, at in zip(columns, places, strict=True)}


def empty_cells(columns: Sequence[Column], codes: Mapping[str, Codes]) -> Mask:
    """Cells of some columns that hold none of the rows, bool with an axis for each column."""
    shape = [column.bins for column in columns]
    empty = np.ones(math.prod(shape), np.bool_)
    empty[cell_index(columns, codes)] = False
    return empty.reshape(shape)


def repaired(codes: Mapping[str, Codes], rules: Sequence[CompiledRule]) -> dict[str, Codes]:
    """Codes of rows after some rules in turn, name -> (n,) int64; views always follow at once."""
    changed = dict(codes)
    views = [rule for rule in rules if isinstance(rule, CompiledView)]
    for rule in _with_views_after_changes(rules, views):
        rows = np.flatnonzero(rule.broken(changed))
        if len(rows):
            of_rows = {name: changed[name][rows] for name in rule.names}
            for name, new in rule.repaired(of_rows).items():
                changed[name] = changed[name].copy()
                changed[name][rows] = new
    return changed


def _with_views_after_changes(
    rules: Iterable[CompiledRule], views: Sequence[CompiledView]
) -> Iterator[CompiledRule]:
    for rule in rules:
        yield rule
        yield from (view for view in views if view.source.name in rule.changes)


def compile_rules(schema: Schema) -> tuple[CompiledRule, ...]:
    """The views and the rules of a schema on coded rows, in the order in which they apply."""
    return _compiled(schema) if schema.is_linked else ()  # else columns need not be hashed


@lru_cache(maxsize=64)
def _compiled(schema: Schema) -> tuple[CompiledRule, ...]:
    compiled = list[CompiledRule](compile_views(schema))
    for rule in schema.rules:
        try:
            compiled.append(rule.compiled(schema))
            for view in schema.views.keys() & set(compiled[-1].changes):
                raise SchemaError(
                    f"{view!r} is a view and cannot give way; change its source, "
                    f"{schema.views[view].view_of!r}"
                )
        except (ConditionError, SchemaError) as error:
            raise SchemaError(f"rule {rule.text!r}: {error}") from None
    return tuple(compiled)


@lru_cache(maxsize=64)
def compile_views(schema: Schema) -> tuple[CompiledView, ...]:
    """The views of a schema on coded rows."""
    compiled = []
    for view in schema.views.values():
        source = schema[str(view.view_of)]
        assert isinstance(source, Number)
        compiled.append(CompiledView.of(view, source))
    return tuple(compiled)


def views_by_source(schema: Schema) -> list[tuple[CompiledView, ...]]:
    """Views of a schema, in groups with one source each; hidden sources included."""
    views = list(compile_views(schema))
    for source in schema.hidden:
        columns = (c for c in schema if isinstance(c, Number) and c.view_of == source.name)
        views += [CompiledView.of(view, source) for view in columns]
    sources = dict.fromkeys(view.source for view in views)
    return [tuple(view for view in views if view.source == source) for source in sources]


def let_views_agree(
    schema: Schema, codes: Mapping[str, Codes], leading: Collection[str] = ()
) -> dict[str, Codes]:
    """Codes of rows in which every number and its views are set to agree.

    One column of each group decides about the others: one that is `leading`
    if there is one, else the number itself, or its first view where the number is hidden.
    """
    agreeing = dict(codes)
    for views in views_by_source(schema):
        source = views[0].source
        columns = [c for c in (source, *(view.view for view in views)) if c.name in codes]
        lead = next((column for column in columns if column.name in leading), columns[0])
        of_lead = source.codes_by_source(lead)[codes[lead.name] + lead.half_points]
        agreeing = with_views(views, agreeing | {source.name: of_lead})
    return {name: agreeing[name] for name in codes}


@dataclass(frozen=True)
class Repairs:
    """Rules that decide how some columns are read, in the order in which they apply."""

    schema: Any  # the columns that must be known: the wanted ones, and those that decide about them
    rules: tuple[CompiledRule, ...] = ()

    def encode(self, batch: pa.RecordBatch) -> dict[str, Codes]:
        """Codes of the rows of a table as they are read, name -> (n,) int64; total on cells."""
        return self.repair(self.schema.encode(batch))

    def repair(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """Codes of rows after all rules, from those of their cells, name -> (n,) int64."""
        return repaired(codes, self.rules)

    def breaking(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows break a rule, (n,)."""
        none = np.zeros(len(next(iter(codes.values()))), np.bool_)
        return np.asarray(np.any([none, *(rule.broken(codes) for rule in self.rules)], axis=0))

    def broken(self, codes: Mapping[str, Codes]) -> Codes:
        """Numbers of rows that break each rule, (rules,)."""
        counts = [np.count_nonzero(rule.broken(codes)) for rule in self.rules]
        return np.array(counts, dtype=np.int64)
