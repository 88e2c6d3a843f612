"""The public description of a private table: its columns, declared and never learned."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats import files
from dpstats.arrays import Codes
from dpstats.checks import counted, did_you_mean, excerpt, first_few, short
from dpstats.display import as_html, html_table
from dpstats.errors import ConditionError, SchemaError
from dpstats.schema.category import Boolean, Category
from dpstats.schema.column_fields import COUNT, WEIGHT
from dpstats.schema.conditions import Column
from dpstats.schema.design import Design
from dpstats.schema.guesses import Guesses
from dpstats.schema.number import Number
from dpstats.schema.possible import check_rules
from dpstats.schema.read_from import Ends, RawColumns
from dpstats.schema.repairs import CompiledRule, Repairs, compile_rules, compile_views, with_views
from dpstats.schema.rules import Rule, names_in_rule, read_rules, rule_to_dict
from dpstats.schema.text_files import TextFile
from dpstats.schema.toml_files import check_keys, read_toml
from dpstats.schema.totals import Total, check_totals, read_totals

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_KINDS: Mapping[str, type[Column]] = {"boolean": Boolean, "category": Category, "number": Number}
_KEYS = {kind: frozenset({"name", *column._keys}) for kind, column in _KINDS.items()}
_TELLING = ("levels", "low", "high", "values")  # keys that say which kind a column is

_MOST_COLUMNS = 10_000
_RULES_SHOWN = 6  # different rules for missing cells in one line
T = TypeVar("T")


class _Checked(tuple[T, ...]):
    """Rules or totals of a part of a schema, which were checked with the whole."""

    __slots__ = ()


@dataclass(frozen=True)
class Schema:
    """The columns of a private table.

    Parameters
    ----------
    columns : sequence of Boolean, Category or Number
    guesses : Guesses, optional
        Public guesses of how the columns vary, for previews alone. Two schemas that differ in them
        are equal: they decide nothing that is measured.
    file : mapping, optional
        How a .csv or .tsv file of the table is written, where it is not UTF-8 with decimal points:
        ``{"encoding": "latin-1", "decimal": ",", "delimiter": "|"}`` or some of these. Two schemas
        that differ in it are equal.
    rules : sequence of Never, Determines or Order, optional
        What holds between columns. Rows of the table that break a rule are read as it says, in
        this order, and synthetic rows break none.
    totals : sequence of Total, optional
        Public numbers of rows with a condition.
    design : Design, optional
        How rows were drawn, if they are a sample survey: analyses are then weighted, and of the
        population. The columns of weights, strata and units need not be among `columns`.
    hidden : sequence of Number
        Sources of several of the columns that are none of them. Set by `select`.

    Raises
    ------
    SchemaError
        For no columns, duplicate names, anything that is not a column, or guesses that do not fit;
        for rules that contradict each other, or leave a level without any row; for totals that no
        table has.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema(
    ...     [dps.Category("smoker", ["no", "yes"]), dps.Number("age", 0, 120, edges=[18, 65])]
    ... )
    >>> schema.names
    ('smoker', 'age')
    >>> schema["age"].bin_labels
    ('[0, 18)', '[18, 65)', '[65, 120]')
    """

    columns: Sequence[Column]
    guesses: Guesses | None = field(default=None, compare=False, repr=False)
    file: Mapping[str, str] | TextFile | None = field(default=None, compare=False, repr=False)
    rules: Sequence[Rule] = field(default=(), repr=False)
    totals: Sequence[Total] = field(default=(), repr=False)
    hidden: Sequence[Number] = field(default=(), repr=False)
    design: Design | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.file is not None and not isinstance(self.file, TextFile):
            object.__setattr__(self, "file", TextFile.from_dict(self.file))
        self._check_type("columns", Category | Number, "dps.Boolean, dps.Category and dps.Number")
        columns = tuple(self.columns)
        if len(columns) > _MOST_COLUMNS:
            raise SchemaError(
                f"a schema of {len(columns)} columns; at most {_MOST_COLUMNS} are allowed: declare "
                "those that some analysis may use"
            )
        names = Counter(column.name for column in columns)
        twice = sorted(name for name, times in names.items() if times > 1)
        if twice:
            raise SchemaError(f"columns declared more than once: {first_few(twice)}")
        if not columns:
            raise SchemaError("a schema needs at least one column")
        if reserved := [name for name in (WEIGHT, COUNT) if name in names]:
            raise SchemaError(
                f"no column may be named {reserved[0]!r}, as weighted candidates have a column of "
                "that name: rename it in the table and in the schema"
            )
        if not isinstance(self.rules, _Checked):
            columns = tuple(map(self._with_missing_of_source, columns))
            object.__setattr__(self, "columns", columns)
        if self.guesses is not None:
            if not isinstance(self.guesses, Guesses):
                raise SchemaError(f"guesses must be dps.Guesses(...), got {short(self.guesses)}")
            self.guesses.check(columns)
        if self.design is not None and not isinstance(self.design, Design):
            raise SchemaError(f"design must be dps.Design(...), got {short(self.design)}")
        self._check_type("rules", Rule, "dps.Never, dps.Determines and dps.Order")
        self._check_type("totals", Total, "dps.Total")
        if (self.rules or self.views) and not isinstance(self.rules, _Checked):
            check_rules(self)
        if self.totals and not isinstance(self.totals, _Checked):
            known = None if self.design is None else self.design.total
            check_totals(self, population=None if known is None else round(known))

    def _check_type(self, what: str, kind: Any, allowed: str) -> None:
        """Refuse columns, rules or totals that are none, and make a tuple of them."""
        declared = getattr(self, what)
        if isinstance(declared, str) or not isinstance(declared, Iterable):
            raise SchemaError(f"{what} of a schema are a list of {allowed}")
        declared = declared if isinstance(declared, _Checked) else tuple(declared)
        for value in declared:
            if not isinstance(value, kind):
                raise SchemaError(f"{what} of a schema are {allowed}, got {type(value).__name__}")
        object.__setattr__(self, what, declared)

    def _with_missing_of_source(self, column: Column) -> Column:
        """The column; a view with the missing cells of its source."""
        if isinstance(column, Number) and column.ends is not None:
            self._check_ends(column, column.ends)
        if not isinstance(column, Number) or column.view_of is None:
            return column
        try:
            source = self[column.view_of]
        except SchemaError as error:
            raise SchemaError(f"column {column.name!r}: source: {error}") from None
        if not isinstance(source, Number):
            raise SchemaError(f"column {column.name!r}: its source {source.name!r} is no number")
        return column.as_view_of(source)

    def _check_ends(self, column: Number, ends: Ends) -> None:
        """Refuse a difference of columns that the table has not, or that could be a view."""
        if (view := " - ".join(ends)) in self:
            raise SchemaError(
                f"column {column.name!r}: source={view!r} is a difference, and also the name of a "
                f"column; for a view of that, put it in backticks: source='`{view}`'"
            )
        elsewhere = [c.name for c in self if isinstance(c, Number) and c.source is not None]
        for name in ends:
            if name in elsewhere:
                raise SchemaError(
                    f"column {column.name!r}: its source subtracts columns of the table, and "
                    f"{name!r} has a source itself; name the columns that it is read from"
                )

    @cached_property
    def views(self) -> Mapping[str, Number]:
        """Columns that are views of others of this schema, by name."""
        views = {c.name: c for c in self.columns if isinstance(c, Number) and c.view_of is not None}
        sources = set(self.names) if views else ()
        return {name: view for name, view in views.items() if view.view_of in sources}

    @property
    def is_linked(self) -> bool:
        """True if rules or views link some of the columns."""
        return bool(self.rules or self.views or self.hidden)

    @property
    def stored(self) -> Schema:
        """The columns that do not follow from others: all but the views of these."""
        return self.select(n for n in self.names if n not in self.views) if self.views else self

    @property
    def raw(self) -> RawColumns:
        """The columns of the table: those that are stored, with the ends of differences instead."""
        stored = self.stored.columns
        names = dict.fromkeys(name for column in stored for name in column.raw_names)
        if self.design is not None:
            names |= dict.fromkeys(self.design.raw_names)
        texts = {c.name for c in stored if (c.dates if isinstance(c, Number) else c.holds_text)}
        return RawColumns(tuple(names), names.keys() - texts, self.written, self.design is not None)

    @property
    def written(self) -> TextFile:
        """How a delimited file of the table is written."""
        return self.file if isinstance(self.file, TextFile) else TextFile()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Column:
        if not isinstance(name, str):
            raise SchemaError(
                f"one column is given by its name, such as {self.names[0]!r}; got {short(name)}"
            )
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(
            f"the schema has no column {short(name)}{did_you_mean(name, self.names)}; columns: "
            f"{list(self.names)}"
        )

    def select(self, names: Iterable[str]) -> Schema:
        """The schema of some columns, in its order, with the rules and totals between them.

        Parameters
        ----------
        names : iterable of str

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            For a name that is no column.
        """
        wanted = set(names)
        for name in wanted:
            self[name]
        columns = [column for column in self.columns if column.name in wanted]
        kept = None if self.guesses is None else self.guesses.select([c.name for c in columns])
        rules = _Checked(one for one in self.rules if names_in_rule(one, self.names) <= wanted)
        totals = _Checked(one for one in self.totals if names_in_rule(one, self.names) <= wanted)
        sources = Counter(c.view_of for c in columns if isinstance(c, Number) and c.view_of)
        several = {name for name, times in sources.items() if times > 1} - wanted
        every = (*self.hidden, *self.columns) if several else ()
        hidden = tuple(c for c in every if isinstance(c, Number) and c.name in several)
        return Schema(columns, kept, self.file, rules, totals, hidden, self.design)

    def repairs(self, names: Iterable[str]) -> Repairs:
        """How some columns are read from a table whose rows may break rules.

        Seen from the last rule to the first, one matters if it changes a column that is needed;
        then all of its columns are. Views need their source at any time.
        """
        needed, rules = self._with_sources(names), list[CompiledRule]()
        for rule in reversed(compile_rules(self)):
            if needed & set(rule.changes):
                needed |= self._with_sources(rule.names)
                rules.append(rule)
        return Repairs(self.select(needed), tuple(reversed(rules)))

    def _with_sources(self, names: Iterable[str]) -> set[str]:
        wanted = set(names)
        return wanted | {str(self.views[name].view_of) for name in wanted & self.views.keys()}

    def encode(self, batch: pa.RecordBatch) -> dict[str, Codes]:
        """Codes of every column of this schema, name -> (n,) int64; total on cells.

        The batch has the columns `raw`. Views have the code that follows from that of their source.
        """
        return self.with_views({c.name: c.encode(c.cells(batch)) for c in self.stored})

    def with_views(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """Codes of the stored columns, and those of views that follow, name -> (n,) int64."""
        return with_views(compile_views(self) if self.views else (), codes)

    def decode(self, codes: Mapping[str, Codes]) -> dict[str, NDArray[Any]]:
        """Values in original units, name -> (n,) array, for the columns that `codes` holds."""
        return {c.name: c.decode(codes[c.name]) for c in self.columns if c.name in codes}

    def draw_inside(self, cells: Codes, rng: np.random.Generator) -> dict[str, Codes]:
        """Points inside cells (flat indices over all bins, C order), uniform on the grid there."""
        bins = np.unravel_index(cells, [column.bins for column in self])
        return {
            column.name: column.draw_inside(np.asarray(index, dtype=np.int64), rng)
            for column, index in zip(self, bins, strict=True)
        }

    def to_frame(self, codes: Mapping[str, Codes]) -> pd.DataFrame:
        """Decoded rows.

        Parameters
        ----------
        codes : mapping of column name to (n,) int64
            As of `encode`.

        Returns
        -------
        DataFrame
            One column per name, in original units; text levels are a pandas Categorical.
        """
        import pandas as pd

        frame: dict[str, Any] = {}
        for name, values in self.decode(codes).items():
            column = self[name]
            if isinstance(column, Category) and values.dtype == np.object_:
                labels: Any = list(column.labels)
                frame[name] = pd.Categorical.from_codes(codes[name], categories=labels)
            else:
                frame[name] = values
        return pd.DataFrame(frame)

    def with_even_edges(self, names: Collection[str]) -> Schema:
        """The schema with `Number.with_even_edges` for some numbers."""
        columns = [
            c.with_even_edges() if c.name in names and isinstance(c, Number) else c for c in self
        ]
        return replace(self, columns=columns)

    @property
    def declared(self) -> Schema:
        """The schema without edges that were not declared."""
        columns = [
            replace(c, edges=(), even_edges=False) if isinstance(c, Number) and c.even_edges else c
            for c in self
        ]
        return replace(self, columns=columns)

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data, one mapping per column, as in a schema file."""
        return [column.to_dict() for column in self.columns]

    @property
    def between_columns(self) -> dict[str, Any]:
        """Plain data of rules, totals and the design, without those that are not declared."""
        plain = {
            "rules": [rule_to_dict(rule) for rule in self.rules],
            "totals": [asdict(total) for total in self.totals],
            "design": None if self.design is None else self.design.to_dict(),
        }
        return {name: value for name, value in plain.items() if value}

    @classmethod
    def from_dict(
        cls,
        columns: Sequence[Mapping[str, Any]],
        guesses: Any = None,
        file: Any = None,
        rules: Any = (),
        totals: Any = (),
        folder: Path | None = None,
        design: Any = None,
    ) -> Schema:
        """Inverse of `to_dict`; `kind` is optional where the other keys imply it.

        `guesses` are those of `Guesses.to_dict`, `rules`, `totals` and `design` those of
        `between_columns`, and `file` is as in a schema: the columns hold none of them. With a
        `folder`, rules may name files in it.
        """
        if isinstance(columns, str | Mapping) or not isinstance(columns, Sequence):
            raise SchemaError("columns must be a list of tables ([[column]] in TOML)")
        guessed = None if guesses is None else Guesses.from_dict(guesses)
        between = read_rules(rules, folder), read_totals(totals)
        drawn = None if design is None else Design.from_dict(design)
        return cls(list(map(_column, columns)), guessed, file, *between, design=drawn)

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        r"""Read a schema from a TOML file with one ``[[column]]`` table per column.

        A ``[guesses]`` table holds `Guesses`, a ``[file]`` table how a delimited text file is
        written, each ``[[rule]]`` table a rule between columns, each ``[[total]]`` table a public
        number of rows, and a ``[design]`` table a `Design`.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            For a file that cannot be read, unknown keys or impossible columns.

        Examples
        --------
        >>> import dpstats as dps
        >>> from pathlib import Path
        >>> text = "[[column]]\nname = 'age'\nlow = 0\nhigh = 120\nedges = [18, 65]"
        >>> written = Path("survey.toml").write_text(text)
        >>> print(dps.Schema.load("survey.toml"))
        age  number, 0 to 120, 1025 points, bins [0, 18) [18, 65) [65, 120];
            missing or not a number: counted as 60; outside: clamped to the bounds
        """
        document = read_toml(path)
        with files.named_in_errors(Path(path)):
            check_keys(document)
            if "column" not in document:
                where = "; it is in the file that schema = names" if "schema" in document else ""
                raise SchemaError(f"there are no [[column]] tables{where}")
            between = document.get("rule", ()), document.get("total", ())
            rest = document.get("guesses"), document.get("file"), *between
            return cls.from_dict(
                document["column"], *rest, folder=Path(path).parent, design=document.get("design")
            )

    @classmethod
    def from_frictionless(
        cls,
        document: Mapping[str, Any] | str | Path,
        *,
        add: Mapping[str, Mapping[str, Any]] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Schema:
        """The schema that a Frictionless Table Schema declares.

        A field with ``constraints.enum`` (or ``categories``) is a `Category`, one with
        ``minimum`` and ``maximum`` a `Number`. Unless ``constraints.required`` is true, cells may
        be missing (``allow_missing=True``). Other constraints have no counterpart and do not
        matter here.

        Parameters
        ----------
        document : mapping or path of a JSON file
            A Table Schema, or a Data Package with a single resource.
        add : mapping of column name to keys of a schema file, optional
            What the document does not say, such as ``{"sex": {"levels": ["f", "m"]}}``. It
            replaces what the document says; a key with None is removed.
        columns : sequence of str, optional
            The columns to take; default all. A rule that names another column is left out, with a
            warning.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            With the list of what must be added, column by column: text without levels, numbers
            without bounds. Nothing is guessed.

        Examples
        --------
        >>> import dpstats as dps
        >>> fields = [
        ...     {"name": "smoker", "type": "boolean", "constraints": {"required": True}},
        ...     {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}},
        ...     {"name": "region", "type": "string"},
        ... ]
        >>> schema = dps.Schema.from_frictionless(
        ...     {"fields": fields}, add={"region": {"levels": ["north", "south"]}}
        ... )
        >>> schema["age"]
        Number(name='age', low=0, high=120, points=121, edges=(), closed='left', values=None,
               missing=None, allow_missing=True, note='', dates=False, scale='linear',
               missing_values=(), source=None)
        >>> dps.Schema.from_frictionless({"fields": fields})
        Traceback (most recent call last):
            ...
        dpstats.errors.SchemaError: ... region: levels (constraints.enum, or categories)...
        """
        from dpstats.schema.foreign import completed, document_of
        from dpstats.schema.frictionless import declared_between, declared_fields

        plain = document_of(document)
        fields, between = declared_fields(plain), declared_between(plain)
        declared = completed(fields, add, columns)
        rules, totals = read_rules(between["rules"]), read_totals(between["totals"])
        if columns is not None:
            names = [field.name for field in fields]
            rules, totals = _keep_within(set(columns), names, rules, totals)
        design = None if between["design"] is None else Design.from_dict(between["design"])
        return cls(list(map(_column, declared)), rules=rules, totals=totals, design=design)

    def to_frictionless(self) -> dict[str, Any]:
        """A Frictionless Table Schema of the columns; `from_frictionless` gives them back.

        What the standard has no word for, such as edges, points of a grid and rules between
        columns, is in a property ``dpstats`` of each field and of the whole, which other programs
        ignore. Views and differences are fields too: the private table has none, published rows
        have.

        Returns
        -------
        dict

        Examples
        --------
        >>> import dpstats as dps
        >>> dps.Schema([dps.Number("age", 0, 120, points=121)]).to_frictionless()["fields"]
        [{'name': 'age', 'type': 'integer',
          'constraints': {'required': True, 'minimum': 0, 'maximum': 120}}]
        """
        from dpstats.schema.frictionless import OWN, to_frictionless

        own = {OWN: self.between_columns} if self.between_columns else {}
        return to_frictionless(self.columns) | own

    @classmethod
    def from_smartnoise(
        cls,
        document: Mapping[str, Any] | str | Path,
        *,
        table: str | None = None,
        add: Mapping[str, Mapping[str, Any]] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Schema:
        """The schema that metadata of SmartNoise SQL declare.

        Columns of type int and float with ``lower`` and ``upper`` are a `Number`. Cells may be
        missing unless ``nullable`` is false; ``missing_value`` is ``missing=``. A column with
        ``private_id`` identifies people and is left out. ``rows`` is no part of a schema.

        Parameters
        ----------
        document : mapping or path
            The metadata, or a file of them in YAML (which needs PyYAML) or JSON.
        table : str, optional
            Name of the table; needed if there are several.
        add, columns :
            As in `from_frictionless`. Strings always need levels: the metadata hold none.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            With the list of what must be added; or if a person may have several rows.

        Examples
        --------
        >>> import dpstats as dps
        >>> columns = {"age": {"type": "int", "lower": 0, "upper": 100}, "sex": {"type": "string"}}
        >>> metadata = {"": {"PUMS": {"PUMS": {"row_privacy": True, **columns}}}}
        >>> schema = dps.Schema.from_smartnoise(metadata, add={"sex": {"levels": [0, 1]}})
        >>> schema["sex"].bin_labels
        ('0', '1', '(missing)')
        """
        from dpstats.schema.foreign import completed, document_of
        from dpstats.schema.smartnoise import declared_columns

        declared = declared_columns(document_of(document), table)
        return cls.from_dict(completed(declared, add, columns))

    def to_smartnoise(self, table: str) -> dict[str, Any]:
        """Metadata of SmartNoise SQL for one table of these columns, one row per person.

        Levels, edges, grids, codes for missing cells and the bounds of dates have no counterpart
        and are left out, as are views and differences, which the table has not.

        Parameters
        ----------
        table : str
            Name of the table.

        Returns
        -------
        dict

        Examples
        --------
        >>> import dpstats as dps
        >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Number("age", 0, 120, missing=40)])
        >>> schema.to_smartnoise("survey")[""][""]["survey"]["age"]
        {'type': 'float', 'lower': 0, 'upper': 120, 'missing_value': 40}
        """
        from dpstats.schema.smartnoise import to_smartnoise

        return to_smartnoise((c for c in self.stored if c.raw_names == (c.name,)), table)

    def missing_rules(self) -> str:
        """How cells outside the declaration are counted, in one line.

        Columns that share a rule are listed together. Only the first few rules are shown; `str`
        has them all.
        """
        alike: dict[str, list[str]] = {}
        for column in self.columns:
            alike.setdefault(column.missing_rule(), []).append(column.name)
        first_rules = list(alike.items())[:_RULES_SHOWN]
        rules = [f"{', '.join(names)}: {rule}" for rule, names in first_rules]
        hidden = len(self.columns) - sum(len(names) for _, names in first_rules)
        if hidden:
            rules.append(f"{counted(hidden, 'more column')}: see the schema")
        return f"Cells outside the declaration: {'. '.join(rules)}"

    def __str__(self) -> str:
        width = max(map(len, self.names))
        notes = (f" [{column.note}]" if column.note else "" for column in self)
        lines = [
            f"{column.name:<{width}}  {column.described}; {column.missing_rule()}{note}"
            for column, note in zip(self, notes, strict=True)
        ]
        return "\n".join([*lines, *self.rule_lines])

    @property
    def rule_lines(self) -> list[str]:
        """The rules and totals as text, one line for each."""
        rules = [f"rule {i}: {rule.text}; {rule.repair}" for i, rule in enumerate(self.rules, 1)]
        totals = [f"total {i}: {total}" for i, total in enumerate(self.totals, 1)]
        return rules + totals + ([] if self.design is None else [f"design: {self.design}"])

    def _repr_html_(self) -> str:
        header = ["column", "declared", "cells outside the declaration", "note"]
        rows = [[c.name, c.described, c.missing_rule(), c.note] for c in self.columns]
        return as_html("dpstats schema", self.rule_lines, table=html_table(header, rows))


def _keep_within(
    taken: set[str], names: Sequence[str], rules: Sequence[Rule], totals: Sequence[Total]
) -> tuple[tuple[Rule, ...], tuple[Total, ...]]:
    """Rules and totals on columns that are taken; warn of those on others of all `names`."""
    left_out = []

    def is_within(statement: Rule | Total) -> bool:
        text = str(statement) if isinstance(statement, Total) else statement.text
        try:
            within = names_in_rule(statement, names) <= taken
        except ConditionError as error:
            kind = "total" if isinstance(statement, Total) else "rule"
            raise SchemaError(f"{kind} {text!r}: {error}") from None
        if not within:
            left_out.append(text)
        return within

    kept = tuple(filter(is_within, rules)), tuple(filter(is_within, totals))
    if left_out:
        warnings.warn(
            "rules and totals on columns that are not taken are left out: "
            f"{first_few(left_out)}; rows that break such a rule are read as they are",
            stacklevel=3,
        )
    return kept


def _column(plain: Mapping[str, Any]) -> Column:
    if not isinstance(plain, Mapping):
        raise SchemaError(f"a column must be a table of keys, got {short(plain)}")
    given = dict(plain)
    name = given.get("name")
    where = f"column {excerpt(name) if isinstance(name, str) else short(name)}"
    number = {"low", "high", "values"} & set(given)
    kind = given.pop("kind", "category" if "levels" in given else "number" if number else None)
    if not isinstance(kind, str) or kind not in _KINDS:
        got = f"{short(kind)}{did_you_mean(kind, _KINDS)}"
        if kind is None:
            keys = sorted(set(given) - {"name"})
            got = f"the keys {first_few(keys)}{did_you_mean(keys, _TELLING)}"
        raise SchemaError(
            f"{where}: give levels, or low and high, or values, "
            f"or kind = one of {sorted(_KINDS)}; got {got}"
        )
    check_keys(given, _KEYS[kind], f"{where}, a {kind}")
    try:
        return _KINDS[kind](**given)
    except TypeError:
        needs = "a name and levels" if kind == "category" else "a name"
        raise SchemaError(f"{where}: a {kind} needs {needs}") from None
