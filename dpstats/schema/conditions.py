"""Conditions such as ``"smoker == 'yes' and age >= 65"``, read into sets of cells.

A condition is read once against the schema, into a set of cells of the table over the columns that
it depends on. Two spellings of one condition are therefore one test function.
"""

from __future__ import annotations

import ast
import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.checks import did_you_mean, excerpt, short
from dpstats.errors import ConditionError, FileFormatError
from dpstats.schema.category import Boolean, Category
from dpstats.schema.column_fields import MISSING_LABEL
from dpstats.schema.number import Number

if TYPE_CHECKING:
    from dpstats.schema.schema import Schema

Column = Category | Number
GRAMMAR = (
    "a condition combines comparisons with and, or, not and parentheses: "
    "column == level, !=, <, <=, >, >=, column in [level, ...], or a Boolean column by its name; "
    "column != '(missing)' for the rows with a value, where the schema has allow_missing=True; "
    "put names that are not identifiers, or are words of Python such as class, in backticks"
)
MAX_CELLS = 2**22
MOST_CHARACTERS = 20_000  # files hold it as the name of a function

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_WORDS = {"&": " and ", "|": " or ", "~": " not "}
_PART = re.compile(  # a quoted level, a name in backticks, what is refused, and what is replaced
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|`([^`]*)`|(["'`#])|([&|~\r\n])""", re.DOTALL
)


@dataclass(frozen=True)
class CellSet:
    """A set of cells of the table over `columns`."""

    columns: tuple[Column, ...]  # only those the condition depends on, in the order of the schema
    mask: bytes  # one byte (0 or 1) per cell of the table, in C order

    @property
    def array(self) -> NDArray[np.bool_]:
        """Boolean array with one axis per column, of length its number of bins."""
        return np.frombuffer(self.mask, dtype=np.bool_).reshape([c.bins for c in self.columns])

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the columns, and the cells as flat indices."""
        cells = np.flatnonzero(self.array).tolist()
        return {"columns": [column.name for column in self.columns], "cells": cells}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> CellSet:
        """Inverse of `to_dict`."""
        columns = tuple(schema[name] for name in plain["columns"])
        if len(set(columns)) < len(columns):
            raise FileFormatError("a condition names a column twice")
        cells = math.prod(c.bins for c in columns)
        if cells > MAX_CELLS:
            raise FileFormatError(f"a condition over {cells} cells, more than {MAX_CELLS}")
        mask = np.zeros(cells, dtype=np.bool_)
        mask[plain["cells"]] = True
        return cls(columns, mask.tobytes())

    def over(self, columns: tuple[Column, ...]) -> NDArray[np.bool_]:
        """Cells of the set in a table, True or False; `columns` must include those of the set."""
        axes = [columns.index(column) for column in self.columns]
        array = np.transpose(self.array, np.argsort(axes))
        shape = [c.bins if i in axes else 1 for i, c in enumerate(columns)]
        return np.broadcast_to(array.reshape(shape), [c.bins for c in columns])


def cell_index(columns: Sequence[Column], codes: Mapping[str, Codes]) -> Codes:
    """Flat index (C order) of the table cell that each row falls in, (n,) int64."""
    if not columns:
        return np.zeros((), dtype=np.int64)
    first, *others = columns
    index = np.array(first.bins_of(codes[first.name]), dtype=np.int64)
    for column in others:
        index *= column.bins
        index += column.bins_of(codes[column.name])
    return index


def parsed_condition(text: str) -> tuple[ast.expr, dict[str, str]]:
    """Expression of a condition, read without a schema, and the names that were in backticks."""
    if not isinstance(text, str) or not text.strip():
        raise ConditionError(f"a condition must be non-empty text, got {short(text)}; {GRAMMAR}")
    if len(text) > MOST_CHARACTERS:
        raise ConditionError(
            f"a condition has {len(text)} characters; at most {MOST_CHARACTERS} are allowed: "
            f"{text[:40]!r}..."
        )
    source, quoted = _rewrite(text)
    source = source.strip()
    try:
        tree = ast.parse(source, mode="eval").body
        for node in ast.walk(tree) if not source.isascii() else ():
            if isinstance(node, ast.Name):  # as written: Python changes letters such as a ligature
                node.id = ast.get_source_segment(source, node) or node.id
        return tree, quoted
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        dates = "; dates need quotes" if re.search(r"\d{4}-\d\d-\d\d", text) else ""
        raise ConditionError(
            f"cannot read the condition {excerpt(text)}{dates}; {GRAMMAR}"
        ) from None


def names_missing(node: ast.expr) -> bool:
    """True if a condition, or a part of one, compares with ``"(missing)"`` itself."""
    return any(
        isinstance(part, ast.Constant) and part.value == MISSING_LABEL for part in ast.walk(node)
    )


def names_in_condition(text: str, columns: Collection[str]) -> set[str]:
    """Names in a condition on some columns, as these have them where they do."""
    tree, quoted = parsed_condition(text)
    written = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {
        quoted.get(name) or (name if name in columns else unicodedata.normalize("NFKC", name))
        for name in written
    }


def read_condition(text: str, schema: Schema) -> CellSet:
    """Read a condition against a schema.

    See `GRAMMAR`; ``&``, ``|`` and ``~`` are read as ``and``, ``or`` and ``not``, with their
    precedence.
    """
    columns, full = _read(text, schema, missing_differs=True)
    return cell_set(columns, full)


def read_combinations(text: str, schema: Schema) -> tuple[tuple[Column, ...], NDArray[np.bool_]]:
    """Read a condition of a rule: the columns that it names, and the cells where it holds.

    It holds only where it does so whatever is missing. A comparison with a missing cell is neither
    true nor false, except one with ``"(missing)"`` itself, and ``not``, ``and`` and ``or`` follow
    Kleene's logic, as in SQL.
    """
    return _read(text, schema, missing_differs=False)


def _read(
    text: str, schema: Schema, *, missing_differs: bool
) -> tuple[tuple[Column, ...], NDArray[np.bool_]]:
    tree, quoted = parsed_condition(text)
    reader = _Reader(text, schema, quoted, missing_differs)
    try:
        names = reader.columns_of(tree)
        columns = tuple(column for column in schema if column.name in names)
        cells = math.prod(column.bins for column in columns)
        if cells > MAX_CELLS:
            raise ConditionError(
                f"{excerpt(text)} spans {cells} cells over {len(columns)} columns, more than "
                f"{MAX_CELLS}; use fewer columns or coarser bins"
            )
        full = np.broadcast_to(reader.evaluate(tree, columns)[0], [c.bins for c in columns])
    except RecursionError:
        raise ConditionError(f"the condition is nested too deeply; {GRAMMAR}") from None
    if full.all() or not full.any():
        raise ConditionError(
            f"{excerpt(text)} is always {bool(full.all())}; it needs no measurement"
        )
    return columns, full


def cell_set(columns: tuple[Column, ...], full: NDArray[np.bool_]) -> CellSet:
    """The set of cells marked in `full`, without the columns it does not depend on."""
    kept = list(columns)
    for axis in reversed(range(len(columns))):
        first = np.take(full, [0], axis=axis)
        if np.array_equal(np.broadcast_to(first, full.shape), full):
            full = np.take(full, 0, axis=axis)
            del kept[axis]
    return CellSet(tuple(kept), np.ascontiguousarray(full, dtype=np.bool_).tobytes())


def _rewrite(text: str) -> tuple[str, dict[str, str]]:
    """Replace & | ~ by words and backticked names by placeholders, outside quoted levels."""
    quoted: dict[str, str] = {}

    def replaced(found: re.Match[str]) -> str:
        level, name, refused, mark = found.groups()
        if refused == "#":  # Python would skip what follows as a comment
            raise ConditionError(
                f"cannot read the condition {excerpt(text)}: # is not allowed; {GRAMMAR}"
            )
        if refused is not None:
            raise ConditionError(f"{excerpt(text)} has an unclosed {refused}; {GRAMMAR}")
        if name is None:
            return level or _WORDS.get(mark, " ")
        placeholder = f"_quoted_{len(quoted)}_"
        while placeholder in text:  # a column could have this very name
            placeholder += "_"
        quoted[placeholder] = name
        return f" {placeholder} "

    return _PART.sub(replaced, text), quoted


@dataclass(frozen=True)
class _Reader:
    text: str
    schema: Schema
    quoted: dict[str, str]
    missing_differs: bool  # a missing cell from every value; else nothing is known of it

    def _refuse(self, why: str) -> ConditionError:
        return ConditionError(f"cannot read the condition {excerpt(self.text)}: {why}; {GRAMMAR}")

    def _column(self, node: ast.expr) -> Column:
        if not isinstance(node, ast.Name):
            raise self._refuse("the left side of a comparison must be a column")
        name = self.quoted.get(node.id, node.id)
        if name not in self.schema and node.id not in self.quoted:
            name = unicodedata.normalize("NFKC", name)
        if name not in self.schema:
            raise ConditionError(
                f"{excerpt(self.text)} names an unknown column {short(name)}"
                f"{did_you_mean(name, self.schema.names)}; columns: {list(self.schema.names)}"
            )
        return self.schema[name]

    def columns_of(self, node: ast.expr) -> set[str]:
        match node:
            case ast.BoolOp(values=values):
                return set().union(*(self.columns_of(value) for value in values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.columns_of(operand)
            case ast.Compare(left=left):
                return {self._column(left).name}
            case ast.Name():
                return {self._column(node).name}
            case _:
                raise self._refuse(f"{excerpt(ast.unparse(node))} is not allowed")

    def evaluate(
        self, node: ast.expr, columns: tuple[Column, ...]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Where a condition is true, and where it is false."""
        known = self.missing_differs
        match node:
            case ast.BoolOp(op=op, values=values):
                true, false = self.evaluate(values[0], columns)
                for value in values[1:]:
                    is_true, is_false = self.evaluate(value, columns)
                    if isinstance(op, ast.And):
                        true, false = true & is_true, false | is_false
                    else:
                        true, false = true | is_true, false & is_false
                return true, false
            case ast.UnaryOp(operand=operand):
                return self.evaluate(operand, columns)[::-1]
            case ast.Compare():
                column, bins = self._compare(node)
                known = known or names_missing(node)
            case _:
                column = self._column(node)
                if not isinstance(column, Boolean):
                    raise self._refuse(f"{column.name!r} alone is not true or false; compare it")
                bins = column.bins_where("==", True)
        axis = columns.index(column)
        shape = [c.bins if i == axis else 1 for i, c in enumerate(columns)]
        true = np.isin(np.arange(column.bins), list(bins))
        false = ~true
        if column.allow_missing and not known:
            true[-1] = false[-1] = False
        return true.reshape(shape), false.reshape(shape)

    def _compare(self, node: ast.Compare) -> tuple[Column, frozenset[int]]:
        if len(node.ops) > 1:
            raise self._refuse("chained comparisons are not allowed; join two with and")
        column, op, right = self._column(node.left), node.ops[0], node.comparators[0]
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
                raise self._refuse("in needs a list of levels, such as ['a', 'b']")
            chosen = frozenset[int]().union(
                *(column.bins_where("==", self._constant(item)) for item in right.elts)
            )
            every = frozenset(range(column.bins))
            return column, chosen if isinstance(op, ast.In) else every - chosen
        if type(op) not in _COMPARISONS:
            raise self._refuse("is and is not are not comparisons of values")
        return column, column.bins_where(_COMPARISONS[type(op)], self._constant(right))

    def _constant(self, node: ast.expr) -> Any:
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            sign, node = (-1 if isinstance(node.op, ast.USub) else 1), node.operand
            if not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
                raise self._refuse("only a number can carry a sign")
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str | int | float):
            raise self._refuse("the right side of a comparison must be a level or a number")
        return sign * node.value if sign == -1 else node.value
