"""Rules between columns: combinations that cannot occur, and how a row that has one is read.

Rules are public, as levels and bounds are. A row of the private table that breaks one is repaired:
every rule in turn, in the order of their declaration, sets one or more columns of a coded row that
breaks it. A repair is a function of that row alone, so that one row of the table still is one row
of what is measured, whatever it holds, and all sensitivities are those without rules.

That no row ends with a broken rule is proved when the rules are declared (`possible.check_rules`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.checks import (
    check_choice,
    check_text,
    columns_named,
    excerpt,
    first_few,
    listed,
    short,
)
from dpstats.errors import ConditionError, FileFormatError, SchemaError
from dpstats.schema.category import Category, FrozenMapping
from dpstats.schema.column_fields import MISSING_LABEL
from dpstats.schema.conditions import (
    names_in_condition,
    parsed_condition,
    read_combinations,
)
from dpstats.schema.number import Number
from dpstats.schema.repairs import (
    ANY,
    CompiledRule,
    DeterminedColumn,
    ExcludedCells,
    OrderedNumbers,
)
from dpstats.schema.text_files import read_text_columns
from dpstats.schema.toml_files import check_keys

if TYPE_CHECKING:
    from dpstats.schema.schema import Schema

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

    def compiled(self, columns: Schema) -> CompiledRule:
        """The rule on coded rows."""
        named, cells = read_combinations(self.condition, columns)
        if unknown := sorted(set(self.set) - {column.name for column in named}):
            raise SchemaError(f"set names {first_few(unknown)}, which the condition does not name")
        targets = {name: columns[name].code_of(value) for name, value in self.set.items()}
        return ExcludedCells(named, self.text, tuple(targets), cells.ravel(), targets)

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"never {self.condition}"

    @property
    def repair(self) -> str:
        """Description of how rows that break the rule are read."""
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

    def compiled(self, columns: Schema) -> CompiledRule:
        """The rule on coded rows."""
        by, column = columns[self.by], columns[self.column]
        if not isinstance(column, Category):
            raise SchemaError(f"{self.column!r} is a number; what follows must be a category")
        if isinstance(by, Number) and not by.edges and not by.values:
            raise SchemaError(f"{self.by!r} has no bins to follow from; declare its edges")
        labels, values = by.bin_labels, column.bin_labels
        places, codes = ({label: i for i, label in enumerate(own)} for own in (labels, values))
        follows = np.full(by.bins, ANY, dtype=np.int64)
        assert isinstance(self.mapping, Mapping)
        for level, value in self.mapping.items():
            # What files hold is text, whatever the levels are.
            place = places[level] if level in places else by.index(level)
            if follows[place] != ANY:
                raise SchemaError(f"the mapping has {short(level)} twice")
            follows[place] = codes[value] if value in codes else column.code_of(value)
        lacking = [labels[place] for place in np.flatnonzero(follows == ANY)]
        if lacking := [label for label in lacking if label != MISSING_LABEL]:
            raise SchemaError(f"the mapping has no value for {first_few(lacking)}")
        least, most = by.code_range
        of_code = follows[by.bins_of(np.arange(least, most + 1))]
        return DeterminedColumn((by, column), self.text, (self.column,), of_code)

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"{self.column} follows from {self.by}"

    @property
    def repair(self) -> str:
        """Description of how rows that break the rule are read."""
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

    def compiled(self, columns: Schema) -> CompiledRule:
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
        changes = (changed.name,)
        return OrderedNumbers((left, right), self.text, changes, compare, other, nearest)

    @property
    def text(self) -> str:
        """The rule in words."""
        return self.comparison

    @property
    def repair(self) -> str:
        """Description of how rows that break the rule are read."""
        return f"other rows are read with the nearest possible {self.change}"


Rule = Never | Determines | Order
_KINDS: dict[str, type[Rule]] = {kind.kind: kind for kind in (Never, Determines, Order)}
_FIRST = {name: fields(kind)[0].name for name, kind in _KINDS.items()}


def read_rules(plain: object, folder: Path | None = None) -> tuple[Rule, ...]:
    """Rules from plain data, a list of mappings as in a schema file.

    A mapping may name a file in the folder of the schema file, and nowhere else: archives and
    documents of others never open one.
    """
    if isinstance(plain, str | Mapping) or not isinstance(plain, Sequence):
        raise SchemaError("rules must be a list of tables ([[rule]] in TOML)")
    return tuple(_read_rule(rule, folder) for rule in plain)


def _read_rule(plain: object, folder: Path | None) -> Rule:
    kinds = [kind for kind in _KINDS if isinstance(plain, Mapping) and kind in plain]
    if len(kinds) != 1 or not isinstance(plain, Mapping):
        raise SchemaError(f"a rule has one of the keys {list(_KINDS)}, got {short(plain)}")
    kind = _KINDS[kinds[0]]
    given = {_FIRST.get(str(key), str(key)): value for key, value in plain.items()}
    known = [part.name for part in fields(kind)]
    check_keys(given, known, f"a rule with the key {kinds[0]!r}")
    if isinstance(path := given.get("mapping"), str):
        if folder is None:
            raise SchemaError(
                f"the mapping of a rule is {short(path)}; a file can be named in a schema file and "
                "in dps.Determines, and its pairs belong here"
            )
        given["mapping"] = folder / path
    try:
        return kind(**given)
    except TypeError:
        raise SchemaError(
            f"a rule with the key {kinds[0]!r} needs {' and '.join(known[1:])}"
        ) from None


def _plain(rule: str, value: Any) -> Any:
    """A value of a rule as files hold it: text, a number, or true or false; dates as text."""
    value = listed(value)
    if isinstance(value, date):
        return value.isoformat()[:10]
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
    """Names of the columns that a rule or a total depends on; unknown ones as it has them."""
    match rule:
        case Determines():
            return {rule.column, rule.by}
        case Order():
            return rule.names
        case _:
            return names_in_condition(rule.condition, columns)
