r"""Rules between columns: combinations that cannot occur, and how a row that has one is read.

Rules are public, as levels and bounds are. A row of the private table that breaks one is repaired:
every rule in turn, in the order of their declaration, sets one or more columns of a coded row that
breaks it. A repair is a function of that row alone, so that one row of the table still is one row
of what is measured, whatever it holds, and all sensitivities are those without rules.

That no row ends with a broken rule is proved when the rules are declared, by enumeration over the
columns involved (`check_rules`; section "Proof" of docs/explanation/privacy/rules.md).
"""

from __future__ import annotations

import ast
import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.checks import (
    check_choice,
    check_text,
    columns_named,
    did_you_mean,
    excerpt,
    first_few,
    short,
)
from dpstats.errors import ConditionError, FileFormatError, SchemaError
from dpstats.schema.category import Category, FrozenMapping
from dpstats.schema.column_fields import MISSING_LABEL
from dpstats.schema.conditions import (
    Column,
    Columns,
    cell_index,
    names_in_condition,
    parsed_condition,
    read_combinations,
)
from dpstats.schema.number import Number
from dpstats.schema.text_files import read_text_columns

Mask = NDArray[np.bool_]
MOST_COMBINATIONS = 2**24  # that a proof goes through
_MOST_PROJECTED = 2**20  # for cells that are possible
_PART = 2**20  # at a time
_COMPARISONS = {ast.GtE: np.greater_equal, ast.Gt: np.greater,
                ast.LtE: np.less_equal, ast.Lt: np.less}  # fmt: skip


@dataclass(frozen=True)
class Never:
    """A combination that cannot occur, and what a row that has it is read as.

    Parameters
    ----------
    condition : str
        As in `Proportion`, on declared levels and edges. It does not hold where it depends on a
        cell that is missing.
    set : mapping of column name to value
        What a row with the combination gets instead. Values are levels, numbers, dates or
        ``"(missing)"``.

    Raises
    ------
    SchemaError
        If `set` is empty or no mapping.

    Examples
    --------
    >>> import dpstats as dps
    >>> columns = [
    ...     dps.Number("age", 0, 99, edges=[15]),
    ...     dps.Category("marital", ["never", "married", "widowed"]),
    ... ]
    >>> rule = dps.Never("age < 15 and marital != 'never'", set={"marital": "never"})
    >>> print(dps.Schema(columns, rules=[rule]))
    age      number, 0 to 99, 1025 points, bins [0, 15) [15, 99];
             missing or not a number: counted as 49.5; outside: clamped to the bounds
    marital  category, 3 levels: never, married, widowed;
             missing or undeclared: counted as 'never'
    rule 1: never age < 15 and marital != 'never'; such rows are read with marital = 'never'
    """

    kind: ClassVar[str] = "never"

    condition: str
    set: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_text("the condition of a rule", self.condition, SchemaError)
        if not isinstance(self.set, Mapping) or not self.set:
            raise SchemaError(
                f"the rule never {excerpt(self.condition)} needs set, what rows with this "
                "combination are read as, such as set={'marital': 'never'}"
            )
        plain = {str(name): _plain(self.text, value) for name, value in self.set.items()}
        object.__setattr__(self, "set", FrozenMapping(plain))

    def compiled(self, columns: Columns) -> CompiledRule:
        """The rule on coded rows."""
        named, cells = read_combinations(self.condition, columns)
        if unknown := sorted(set(self.set) - {column.name for column in named}):
            raise SchemaError(f"set names {first_few(unknown)}, which the condition does not name")
        targets = {name: columns[name].code_of(value) for name, value in self.set.items()}
        return _Excluded(self, named, tuple(targets), cells.ravel(), targets)

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"never {self.condition}"

    @property
    def repair(self) -> str:
        """What becomes of rows that break it."""
        values = ", ".join(f"{name} = {value!r}" for name, value in self.set.items())
        return f"such rows are read with {values}"


@dataclass(frozen=True)
class Determines:
    """A column that follows from another, such as a region from a municipality.

    Parameters
    ----------
    column : str
        The column that follows.
    by : str
        The one that it follows from.
    mapping : mapping of level to level, sequence of pairs, or path
        For every level (or bin, by its label) of `by`, the level of `column`, which is a category.
        Without an entry for ``"(missing)"``, rows without a value of `by` may have any. A path is
        that of a public .csv file with two columns of these names; it is read at once, and what it
        holds is part of the rule.

    Raises
    ------
    SchemaError

    Examples
    --------
    >>> import dpstats as dps
    >>> columns = [
    ...     dps.Category("town", ["Ely", "Cambridge", "Norwich"]),
    ...     dps.Category("county", ["Cambridgeshire", "Norfolk"]),
    ... ]
    >>> towns = {"Ely": "Cambridgeshire", "Cambridge": "Cambridgeshire", "Norwich": "Norfolk"}
    >>> schema = dps.Schema(columns, rules=[dps.Determines("county", by="town", mapping=towns)])
    >>> schema.rules[0].text
    'county follows from town'
    """

    kind: ClassVar[str] = "determines"

    column: str
    by: str
    mapping: Mapping[Any, Any] | str | Path

    def __post_init__(self) -> None:
        for what in ("column", "by"):
            check_text(f"{what} of a rule", getattr(self, what), SchemaError)
        if self.column == self.by:
            raise SchemaError(f"{self.text}: a column cannot follow from itself")
        pairs: Any = self.mapping
        if isinstance(pairs, str | Path):
            pairs = self._read(Path(pairs))
        if isinstance(pairs, Mapping):
            pairs = list(pairs.items())
        if not isinstance(pairs, Sequence) or isinstance(pairs, str) or not pairs:
            raise SchemaError(f"{self.text}: mapping must give a value for every level")
        if not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs):
            raise SchemaError(f"{self.text}: mapping must be pairs of a level and a value")
        plain = [tuple(_plain(self.text, part) for part in pair) for pair in pairs]
        if twice := [level for level, times in Counter(k for k, _ in plain).items() if times > 1]:
            raise SchemaError(f"{self.text}: the mapping has {short(twice[0])} twice")
        object.__setattr__(self, "mapping", FrozenMapping(plain))

    def _read(self, path: Path) -> list[tuple[str, str]]:
        """Pairs of a public file of two columns."""
        names = self.by, self.column
        try:
            held = read_text_columns(path)
        except FileFormatError as error:
            raise SchemaError(f"{self.text}: {error}") from None
        if lacking := [name for name in names if name not in held]:
            raise SchemaError(
                f"{self.text}: {path.name} has no {columns_named(lacking)}; it has "
                f"{first_few(list(held))}"
            )
        return list(zip(*(held[name] for name in names), strict=True))

    def compiled(self, columns: Columns) -> CompiledRule:
        """The rule on coded rows."""
        by, column = columns[self.by], columns[self.column]
        if not isinstance(column, Category):
            raise SchemaError(f"{self.column!r} is a number; what follows must be a category")
        if isinstance(by, Number) and not by.edges and not by.values:
            raise SchemaError(f"{self.by!r} has no bins to follow from; declare its edges")
        labels, values = by.bin_labels, column.bin_labels
        places, codes = ({label: i for i, label in enumerate(own)} for own in (labels, values))
        follows = np.full(by.bins, -1, dtype=np.int64)
        free = np.ones(by.bins, dtype=np.bool_)
        assert isinstance(self.mapping, Mapping)
        for level, value in self.mapping.items():
            # What files hold is text, whatever the levels are.
            place = places[level] if level in places else by.index(level)
            if not free[place]:
                raise SchemaError(f"the mapping has {short(level)} twice")
            code = codes[value] if value in codes else column.code_of(value)
            free[place], follows[place] = False, code
        lacking = [label for label, is_free in zip(labels, free, strict=True) if is_free]
        if lacking := [label for label in lacking if label != MISSING_LABEL]:
            raise SchemaError(f"the mapping has no value for {first_few(lacking)}")
        return _Followed(self, (by, column), (self.column,), follows, free)

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"{self.column} follows from {self.by}"

    @property
    def repair(self) -> str:
        """What becomes of rows that break it."""
        return f"other rows are read with the {self.column} of their {self.by}"


@dataclass(frozen=True)
class Order:
    """An order of two numbers or dates, such as a discharge that is not before the admission.

    Parameters
    ----------
    comparison : str
        Two columns with ``>=``, ``>``, ``<=`` or ``<`` between them. Rows where one of them is
        missing may have any value of the other.
    change : str, optional
        The column that gives way in a row that breaks the rule: it becomes the nearest value that
        does not. By default the first.

    Raises
    ------
    SchemaError

    Examples
    --------
    >>> import dpstats as dps
    >>> columns = [dps.Number(c, "2024-01-01", "2024-12-31") for c in ("admission", "discharge")]
    >>> schema = dps.Schema(columns, rules=[dps.Order("discharge >= admission")])
    >>> schema.rules[0].repair
    'other rows are read with the nearest possible discharge'
    """

    kind: ClassVar[str] = "order"

    comparison: str
    change: str | None = None

    def __post_init__(self) -> None:
        *names, _ = self._read()
        if names[0] == names[1]:
            raise SchemaError(f"{self.text}: an order compares two columns")
        if self.change is None:
            object.__setattr__(self, "change", names[0])
        check_choice(f"{self.text}: change", self.change, names, SchemaError)

    @property
    def names(self) -> set[str]:
        """Names of both columns."""
        return set(self._read()[:2])

    def _read(self) -> tuple[str, str, Any]:
        try:
            tree, quoted = parsed_condition(self.comparison)
        except ConditionError as error:
            raise SchemaError(str(error)) from None
        match tree:
            case ast.Compare(ast.Name(left), [op], [ast.Name(right)]) if type(op) in _COMPARISONS:
                compare = _COMPARISONS[type(op)]
                return quoted.get(left, left), quoted.get(right, right), compare
        raise SchemaError(
            f"an order compares two columns by >=, >, <= or <, such as 'discharge >= admission', "
            f"got {excerpt(self.comparison)}"
        )

    def compiled(self, columns: Columns) -> CompiledRule:
        """The rule on coded rows."""
        *names, compare = self._read()
        left, right = (columns[name] for name in names)
        if not isinstance(left, Number) or not isinstance(right, Number):
            raise SchemaError("both must be numbers, or both dates")
        if left.dates != right.dates:
            raise SchemaError("a date cannot be compared with a number")
        changed, other = (left, right) if self.change == left.name else (right, left)
        from_below = (changed is left) == (compare in (np.greater, np.greater_equal))
        strict = compare in (np.greater, np.less)
        codes = changed.codes_in_use
        grid = changed.grid[codes + changed.half_points]
        if from_below:
            place = np.searchsorted(grid, other.grid, side="right" if strict else "left")
        else:
            place = np.searchsorted(grid, other.grid, side="left" if strict else "right") - 1
        used = place[other.codes_in_use + other.half_points]
        if used.min() < 0 or used.max() >= len(codes):
            raise SchemaError(
                f"some {other.name} allows no {changed.name} within its bounds; declare wider "
                f"bounds of {changed.name}"
            )
        nearest = codes[np.clip(place, 0, len(codes) - 1)]
        return _Ordered(self, (left, right), (changed.name,), compare, other, nearest)

    @property
    def text(self) -> str:
        """The rule in words."""
        return self.comparison

    @property
    def repair(self) -> str:
        """What becomes of rows that break it."""
        return f"other rows are read with the nearest possible {self.change}"


@dataclass(frozen=True)
class View:
    """What holds between a number and its `source`: nobody declares it as a rule of its own."""

    column: str
    by: str

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"{self.column} is a view of {self.by}"


Rule = Never | Determines | Order
_KINDS: dict[str, type[Rule]] = {kind.kind: kind for kind in (Never, Determines, Order)}
_FIRST = {"never": "condition", "determines": "column", "order": "comparison"}


@dataclass(frozen=True)
class CompiledRule(ABC):
    """A rule on coded rows.

    Attributes
    ----------
    rule : Rule or View
    columns : tuple of columns
        All that it depends on.
    changes : tuple of str
        Names of those that a repair sets.
    in_bins : bool
        Whether it depends on bins alone, not on the codes within them.
    """

    rule: Rule | View
    columns: tuple[Column, ...]
    changes: tuple[str, ...]
    in_bins: bool = field(default=True, kw_only=True)

    @property
    def names(self) -> set[str]:
        """Names of its columns."""
        return {column.name for column in self.columns}

    @abstractmethod
    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows break the rule, (n,)."""

    def impossible(self) -> Mask:
        """Cells of its columns of which no row is allowed, bool with an axis for each column."""
        codes = _codes_of_cells(self.columns)
        return self.broken(codes).reshape([column.bins for column in self.columns])

    @abstractmethod
    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """New codes of the changed columns, of rows that break it."""


@dataclass(frozen=True)
class _Excluded(CompiledRule):
    """Cells that cannot occur, and the codes that are set instead."""

    cells: Mask
    targets: Mapping[str, int]

    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        return np.asarray(self.cells[cell_index(self.columns, codes)])

    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        return {name: np.full_like(codes[name], code) for name, code in self.targets.items()}


@dataclass(frozen=True)
class _Followed(CompiledRule):
    """A code of the second column for every bin of the first, unless any is free to occur."""

    follows: Codes
    free: Mask

    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        by, column = self.columns
        bins = by.bins_of(codes[by.name])
        wanted = column.bins_of(np.where(self.free[bins], codes[column.name], self.follows[bins]))
        return np.asarray(column.bins_of(codes[column.name]) != wanted)

    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        by, column = self.columns
        return {column.name: self.follows[by.bins_of(codes[by.name])]}


@dataclass(frozen=True)
class _Ordered(CompiledRule):
    """A comparison, and the nearest code of the changed number for each grid point of the other."""

    compare: Any
    other: Number
    nearest: Codes
    in_bins: bool = field(default=False, kw_only=True)

    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        known, values = list[Mask](), list[Floats]()
        for column in self.columns:
            assert isinstance(column, Number)
            known.append(column.has_value(codes[column.name]))
            places = np.where(known[-1], codes[column.name], 0) + column.half_points
            values.append(column.grid[places])
        return np.asarray(known[0] & known[1] & ~self.compare(*values))

    def impossible(self) -> Mask:
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
        return {self.changes[0]: self.nearest[codes[self.other.name] + self.other.half_points]}


@dataclass(frozen=True)
class CompiledView(CompiledRule):
    """The code of a view for each code of its source, at index code + K.

    With `in_bins` any code in the bin that follows will do, for a proof.
    """

    codes: Codes
    in_bins: bool = field(default=False, kw_only=True)

    @classmethod
    def of(cls, view: Number, source: Number) -> CompiledView:
        """A view and its source."""
        names = View(view.name, source.name)
        return cls(names, (source, view), (view.name,), view.codes_by_source(source))

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

    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows have another code, or bin, than follows, (n,)."""
        code, wanted = codes[self.view.name], self.repaired(codes)[self.view.name]
        if self.in_bins:
            code, wanted = self.view.bins_of(code), self.view.bins_of(wanted)
        return np.asarray(code != wanted)

    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """Codes that follow from those of the source, for all rows."""
        return {self.view.name: self.codes[codes[self.source.name] + self.source.half_points]}

    def impossible(self) -> Mask:
        """Pairs of bins without a code of the source in both."""
        codes = {self.source.name: self.source.all_codes}
        shape = [column.bins for column in self.columns]
        impossible = np.ones(math.prod(shape), np.bool_)
        impossible[cell_index(self.columns, codes | self.repaired(codes))] = False
        return impossible.reshape(shape)


def repaired(codes: Mapping[str, Codes], rules: Sequence[CompiledRule]) -> dict[str, Codes]:
    """Codes of rows after some rules in turn, name -> (n,) int64; views always follow at once."""
    changed = dict(codes)
    views = [rule for rule in rules if isinstance(rule, CompiledView)]
    for rule in _with_views(rules, views):
        rows = np.flatnonzero(rule.broken(changed))
        if len(rows):
            some = {name: changed[name][rows] for name in rule.names}
            for name, new in rule.repaired(some).items():
                changed[name] = changed[name].copy()
                changed[name][rows] = new
    return changed


def _with_views(
    rules: Iterable[CompiledRule], views: Sequence[CompiledView]
) -> Iterator[CompiledRule]:
    for rule in rules:
        yield rule
        yield from (view for view in views if view.source.name in rule.changes)


def read_rules(plain: object, folder: Path | None = None) -> tuple[Rule, ...]:
    """Rules from plain data, a list of mappings as in a schema file.

    A mapping may name a file in the folder of the schema file, and nowhere else: archives and
    documents of others never open one.

    Raises
    ------
    SchemaError
    """
    if isinstance(plain, str | Mapping) or not isinstance(plain, Sequence):
        raise SchemaError("rules must be a list of tables ([[rule]] in TOML)")
    return tuple(_read_rule(rule, folder) for rule in plain)


def _read_rule(plain: object, folder: Path | None) -> Rule:
    kinds = [kind for kind in _KINDS if isinstance(plain, Mapping) and kind in plain]
    if len(kinds) != 1 or not isinstance(plain, Mapping):
        raise SchemaError(f"a rule has one of the keys {list(_KINDS)}, got {short(plain)}")
    kind = _KINDS[kinds[0]]
    given = {_FIRST.get(key, key): value for key, value in plain.items()}
    known = [part.name for part in fields(kind)]
    if unknown := sorted(key for key in map(str, given) if key not in known):
        raise SchemaError(
            f"a rule with the key {kinds[0]!r} has unknown keys {first_few(unknown)}"
            f"{did_you_mean(unknown, known)}"
        )
    if isinstance(path := given.get("mapping"), str):
        if folder is None:
            raise SchemaError(
                f"the mapping of a rule is {short(path)}; a file can be named in a schema file and "
                "in dps.Determines, and its pairs belong here"
            )
        given["mapping"] = folder / path
    try:
        return kind(**{str(key): value for key, value in given.items()})
    except TypeError:
        raise SchemaError(
            f"a rule with the key {kinds[0]!r} needs {' and '.join(known[1:])}"
        ) from None


def _plain(rule: str, value: Any) -> Any:
    """A value of a rule as files hold it: text, a number, or true or false; dates as text."""
    if isinstance(value, date):
        return value.isoformat()[:10]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, str | int | float | bool):
        raise SchemaError(f"{rule}: {short(value)} is no level, number or date")
    return value


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """Plain data of a rule, as in a schema file."""
    first = _FIRST[rule.kind]
    plain = {rule.kind: getattr(rule, first)}
    for part in fields(rule):
        if part.name != first:
            value = getattr(rule, part.name)
            if isinstance(value, Mapping):  # keys of a mapping may be numbers
                value = [*map(list, value.items())] if rule.kind == "determines" else dict(value)
            plain[part.name] = value
    return plain


def names_in_rule(rule: Any, columns: Collection[str]) -> set[str]:
    """Names of the columns that a rule or a total depends on; unknown ones as it has them.

    Raises
    ------
    SchemaError
    """
    if not isinstance(rule, Determines | Order):
        try:
            return names_in_condition(rule.condition, columns)
        except ConditionError as error:
            raise SchemaError(f"rule {getattr(rule, 'text', rule.condition)!r}: {error}") from None
    return {rule.column, rule.by} if isinstance(rule, Determines) else rule.names


class ProvedRules(tuple[Rule, ...]):
    """Rules of some columns of a schema whose rules are proved: by themselves they need not be."""

    __slots__ = ()


class WithRules(Columns, Protocol):
    """Columns with rules between them, a `Schema`."""

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules, in declared order."""

    @property
    def views(self) -> Mapping[str, Number]:
        """Views whose source is one of the columns, by name."""

    @property
    def hidden(self) -> Sequence[Number]:
        """Sources of several of the columns that are none of them."""

    def __hash__(self) -> int: ...


def compile_rules(schema: WithRules) -> tuple[CompiledRule, ...]:
    """The views and the rules of a schema on coded rows, in the order in which they apply."""
    linked = schema.rules or schema.views
    return _compiled(schema) if linked else ()  # without any, columns need not be hashed


@lru_cache(maxsize=64)
def _compiled(schema: WithRules) -> tuple[CompiledRule, ...]:
    compiled = list[CompiledRule](compile_views(schema))
    for rule in schema.rules:
        try:
            compiled.append(rule.compiled(schema))
            for view in schema.views.keys() & set(compiled[-1].changes):
                raise SchemaError(
                    f"{view!r} is a view and cannot give way; change its source, "
                    f"{schema.views[view].source!r}"
                )
        except (ConditionError, SchemaError) as error:
            raise SchemaError(f"rule {rule.text!r}: {error}") from None
    return tuple(compiled)


@lru_cache(maxsize=64)
def compile_views(schema: WithRules) -> tuple[CompiledView, ...]:
    """The views of a schema on coded rows."""
    compiled = []
    for view in schema.views.values():
        source = schema[str(view.source)]
        assert isinstance(source, Number)
        compiled.append(CompiledView.of(view, source))
    return tuple(compiled)


def views_by_source(schema: WithRules) -> list[tuple[CompiledView, ...]]:
    """All views of each number, also of those that are not there."""
    views = list(compile_views(schema))
    for source in schema.hidden:
        own = (c for c in schema if isinstance(c, Number) and c.source == source.name)
        views += [CompiledView.of(view, source) for view in own]
    sources = dict.fromkeys(view.source for view in views)
    return [tuple(view for view in views if view.source == source) for source in sources]


def led(
    schema: WithRules, codes: Mapping[str, Codes], leading: Collection[str] = ()
) -> dict[str, Codes]:
    """Codes of rows whose numbers and views follow from one of them, of `leading` if it can be.

    Views of a number that is not there have those of one of its values.
    """
    agreeing = dict(codes)
    for views in views_by_source(schema):
        source = views[0].source
        columns = [c for c in (source, *(view.view for view in views)) if c.name in codes]
        lead = next((column for column in columns if column.name in leading), columns[0])
        of_lead = source.codes_by_source(lead)[codes[lead.name] + lead.half_points]
        agreeing[source.name] = of_lead
        for view in views:
            agreeing |= view.repaired(agreeing)
    return {name: agreeing[name] for name in codes}


def impossible_pairs(schema: WithRules) -> list[tuple[str, str, Mask]]:
    """Pairs of columns with the cells (bins, bins) that rules on these two alone do not allow.

    Two views of one number are such a pair as well.
    """
    pairs = [
        (rule.columns[0].name, rule.columns[1].name, rule.impossible())
        for rule in compile_rules(schema)
        if len(rule.columns) == 2
    ]
    for views in views_by_source(schema):
        for two in itertools.combinations(views, 2):
            pairs.append((two[0].view.name, two[1].view.name, _impossible(two)))
    return pairs


def _impossible(views: Sequence[CompiledView]) -> Mask:
    """Cells of some views of a number in which it has no value."""
    codes = {views[0].source.name: views[0].source.all_codes}
    for view in views:
        codes |= view.repaired(codes)
    columns = [view.view for view in views]
    shape = [column.bins for column in columns]
    impossible = np.ones(math.prod(shape), np.bool_)
    impossible[cell_index(columns, codes)] = False
    return impossible.reshape(shape)


def determined_bins(schema: WithRules) -> list[tuple[Column, Column, Codes]]:
    """Columns that follow from another in every row: that one, the column, and its bins (bins,)."""
    return [
        (by, column, column.bins_of(rule.follows))
        for rule in compile_rules(schema)
        if isinstance(rule, _Followed) and not rule.free.any()
        for by, column in [rule.columns]
    ]


@lru_cache(maxsize=64)
def check_rules(schema: WithRules) -> None:
    """Prove that no repaired row breaks a rule, and that every level remains possible.

    Rules that share columns are taken together, directly or through others. Bins between which none
    of them distinguishes count as one.

    Raises
    ------
    SchemaError
        If a row would break a rule after all repairs, if no row with some level is allowed, or if
        there are more than `MOST_COMBINATIONS` to go through.
    """
    for together in linked_rules(compile_rules(schema)):
        if len(together) == 1 and isinstance(together[0], _Ordered):
            impossible = together[0].impossible()  # its repair is proved by how it is made
            for axis, column in enumerate(together[0].columns):
                _check_possible(column, ~np.all(impossible, axis=1 - axis), together)
            continue
        every = Combinations.of(schema, together)
        possible = [np.zeros(size, np.bool_) for size in every.shape]
        for places, codes in every.parts():
            allowed = allowed_by(together, codes)
            for seen, at in zip(possible, places, strict=True):
                seen[at[allowed]] = True
            after = repaired(codes, together)
            for rule in together:
                rows = np.flatnonzero(rule.broken(after))
                if len(rows):
                    cells = {name: int(code[rows[0]]) for name, code in codes.items()}
                    raise SchemaError(_unrepaired(rule, together, every.columns, cells))
        for column, of_column, seen in zip(every.columns, every.classes, possible, strict=True):
            _check_possible(column, np.any(of_column.of_bin & seen, axis=1), together)


def allowed_by(rules: Sequence[CompiledRule], codes: Mapping[str, Codes]) -> Mask:
    """Which rows break none of some rules, (n,)."""
    return np.asarray(~np.any([rule.broken(codes) for rule in rules], axis=0))


def possible_cells(schema: WithRules, columns: Sequence[Column]) -> Mask | None:
    """Cells of the table over some columns that a row may be in; None where all are.

    A cell counts as possible where too many columns decide about it to go through them all.
    """
    linked = schema.rules or schema.views
    return _possible_cells(schema, tuple(columns)) if linked else None


@lru_cache(maxsize=4096)
def _possible_cells(schema: WithRules, columns: tuple[Column, ...]) -> Mask | None:
    possible: Mask | None = None
    for together in linked_rules(compile_rules(schema)):
        own = [c for c in columns if any(c.name in rule.names for rule in together)]
        if len(own) < 2:  # every level is possible
            continue
        every = Combinations.of(schema, together, limited=False)
        if every.size > _MOST_PROJECTED:
            together = [rule for rule in together if rule.names <= {c.name for c in own}]
            if not together:
                continue
            every = Combinations.of(schema, together, limited=False)
            own = [c for c in own if c in every.columns]
            if every.size > MOST_COMBINATIONS:
                continue
        axes = [every.columns.index(c) for c in own]
        seen = np.zeros([every.shape[axis] for axis in axes], np.bool_)
        for places, codes in every.parts():
            allowed = allowed_by(together, codes)
            seen[tuple(places[axis][allowed] for axis in axes)] = True
        for axis, at in enumerate(axes):  # from classes of a column to its bins
            of_bin = every.classes[at].of_bin.astype(np.int64)
            seen = np.moveaxis(np.tensordot(of_bin, seen, axes=(1, axis)), 0, axis) > 0
        order = np.argsort([columns.index(c) for c in own])
        spread = seen.transpose(order).reshape([c.bins if c in own else 1 for c in columns])
        possible = spread if possible is None else possible & spread
    if possible is None or possible.all():
        return None
    whole: Mask = np.broadcast_to(possible, [c.bins for c in columns])
    return whole


def _unrepaired(
    rule: CompiledRule,
    together: Sequence[CompiledRule],
    involved: Sequence[Column],
    cells: Mapping[str, int],
) -> str:
    """A message on a rule that some row breaks after all repairs."""
    row = ", ".join(
        f"{column.name} {column.bin_labels[int(column.bins_of(np.array([cells[column.name]]))[0])]}"
        for column in involved
    )
    others = [
        other.rule.text
        for other in together
        if other is not rule and not isinstance(other, CompiledView)
    ]
    why = f"and {first_few(others)} contradict each other" if others else "is not met by its repair"
    return (
        f"rule {rule.rule.text!r} {why}: a row with {row} still breaks the first after all "
        "repairs; change what they set, or their order"
    )


def _check_possible(column: Column, possible: Mask, together: Sequence[CompiledRule]) -> None:
    labels = [label for label, seen in zip(column.bin_labels, possible, strict=True)
              if not seen and label != MISSING_LABEL]  # fmt: skip
    if labels and not (isinstance(column, Number) and column.even_edges):  # nobody declared those
        texts = [rule.rule.text for rule in together if column.name in rule.names]
        raise SchemaError(
            f"no row with {column.name} {labels[0]} is allowed by the rules {first_few(texts)}: "
            "declare the column without it, or change a rule"
        )


def linked_rules(rules: Sequence[CompiledRule]) -> list[list[CompiledRule]]:
    """Rules in groups without a column in common, each in declared order.

    Views are in bins: any code in the bin that follows is gone through where a rule needs codes.
    """
    rules = [replace(r, in_bins=True) if isinstance(r, CompiledView) else r for r in rules]
    groups: list[tuple[set[str], list[int]]] = []
    for place, rule in enumerate(rules):
        joined = [group for group in groups if group[0] & rule.names]
        groups = [group for group in groups if not group[0] & rule.names]
        names = rule.names.union(*(group[0] for group in joined))
        places = sorted([place, *itertools.chain.from_iterable(group[1] for group in joined)])
        groups.append((names, places))
    return [[rules[place] for place in places] for _, places in groups]


@dataclass(frozen=True)
class _Classes:
    """Codes of a column, each for all that no rule distinguishes from it.

    Attributes
    ----------
    codes : (c,) int64
        One code of each class.
    of_bin : (bins, c) bool
        The classes that every bin has.
    """

    codes: Codes
    of_bin: Mask

    @classmethod
    def of(cls, column: Column, rules: Sequence[CompiledRule]) -> _Classes:
        """Classes of the bins, or of all codes where a rule depends on these.

        Those of a number with views are of cells of its bins and theirs.
        """
        own = [rule for rule in rules if column.name in rule.names]
        views = [r for r in own if isinstance(r, CompiledView)]
        if isinstance(column, Number) and (views or not all(rule.in_bins for rule in own)):
            codes = column.all_codes
            if all(rule.in_bins for rule in own):
                every, columns = {column.name: codes}, [column]
                for view in (view for view in views if view.source == column):
                    every |= view.repaired(every)
                    columns.append(view.view)
                codes = codes[np.unique(cell_index(columns, every), return_index=True)[1]]
            return cls(codes, column.bins_of(codes) == np.arange(column.bins)[:, np.newaxis])
        slices = [_slices(rule, column) for rule in own]
        _, first, of_bin = np.unique(
            np.hstack(slices), axis=0, return_index=True, return_inverse=True
        )
        classes = of_bin.ravel()[:, np.newaxis] == np.arange(len(first))
        return cls(_codes_of_bins(column)[first], classes)


def _codes_of_bins(column: Column) -> Codes:
    return column.bin_codes[0] if isinstance(column, Number) else np.arange(column.bins)


def _codes_of_cells(columns: Sequence[Column]) -> dict[str, Codes]:
    """A code in every bin, for all cells of some columns in C order."""
    shape = [column.bins for column in columns]
    places = np.unravel_index(np.arange(math.prod(shape)), shape)
    return {c.name: _codes_of_bins(c)[at] for c, at in zip(columns, places, strict=True)}


def _slices(rule: CompiledRule, column: Column) -> Mask:
    """Which combinations with each bin of a column break a rule, (bins, others) bool."""
    axis = [c.name for c in rule.columns].index(column.name)
    return np.asarray(np.moveaxis(rule.impossible(), axis, 0).reshape(column.bins, -1))


@dataclass(frozen=True)
class Combinations:
    """All combinations of the columns of some rules.

    Bins, or codes where a rule depends on these, count as one where no rule distinguishes them.
    """

    columns: list[Column]
    classes: list[_Classes]

    @classmethod
    def of(
        cls, schema: WithRules, rules: Sequence[CompiledRule], *, limited: bool = True
    ) -> Combinations:
        """Those of the columns of some rules.

        Raises
        ------
        SchemaError
            If they are `limited` and more than `MOST_COMBINATIONS`.
        """
        names = set[str]().union(*(rule.names for rule in rules))
        columns = [column for column in schema if column.name in names]
        found = cls(columns, [_Classes.of(column, rules) for column in columns])
        if limited and found.size > MOST_COMBINATIONS:
            raise SchemaError(
                f"the rules on {first_few(sorted(names))} distinguish {found.size:,} "
                f"combinations, more than {MOST_COMBINATIONS:,}: declare fewer levels, bins or "
                "points of these columns"
            )
        return found

    @property
    def shape(self) -> list[int]:
        """Number of classes of each column."""
        return [len(of_column.codes) for of_column in self.classes]

    @property
    def size(self) -> int:
        """Number of combinations."""
        return math.prod(self.shape)

    def parts(self) -> Iterator[tuple[tuple[NDArray[np.intp], ...], dict[str, Codes]]]:
        """Places of all combinations among the classes, and their codes, some at a time."""
        for first in range(0, self.size, _PART):
            some = np.arange(first, min(first + _PART, self.size))
            places = np.unravel_index(some, self.shape)
            yield (
                places,
                {
                    column.name: of_column.codes[at]
                    for column, of_column, at in zip(
                        self.columns, self.classes, places, strict=True
                    )
                },
            )
