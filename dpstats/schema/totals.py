"""Public totals: how many rows have a condition, known before anything is measured.

A total of the private table is a fact that its custodian asserts of the rows as they are read.
Answers may be combined under it; nothing that is certified rests on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import check_choice, check_text, check_whole, did_you_mean, first_few, short
from dpstats.errors import ConditionError, SchemaError
from dpstats.schema.conditions import Columns, cell_index, read_combinations
from dpstats.schema.rules import (
    Combinations,
    CompiledRule,
    Mask,
    WithRules,
    allowed_by,
    compile_rules,
    linked_rules,
)

_KEYS = ("condition", "count", "of")
_MOST_ROWS = 10**15
_MOST_TOTALS = 1_000
_INFEASIBLE = 2  # status of `scipy.optimize.linprog`


@dataclass(frozen=True)
class Total:
    """A public number of rows with a condition.

    Parameters
    ----------
    condition : str
        As in `Proportion`, on declared levels and edges. It does not hold where it depends on a
        cell that is missing.
    count : int
        How many rows have it, at least 0.
    of : {"table", "population"}
        Whether the count is of the rows of the private table, as they are read after the rules
        between columns; or of the population that they are a sample of, which limits no count of
        the table.

    Raises
    ------
    SchemaError

    Examples
    --------
    >>> import dpstats as dps
    >>> columns = [dps.Category("sex", ["f", "m"]), dps.Boolean("smoker")]
    >>> women = dps.Total("sex == 'f'", 5_200, of="table")
    >>> print(dps.Schema(columns, totals=[women]).totals[0])
    5,200 rows of the table have sex == 'f'
    """

    condition: str
    count: int
    of: Literal["table", "population"]

    def __post_init__(self) -> None:
        check_text("the condition of a total", self.condition, SchemaError)
        count: object = self.count
        if isinstance(count, np.integer):
            object.__setattr__(self, "count", int(count))
        check_whole(f"the count of {self.condition!r}", self.count, 0, _MOST_ROWS, SchemaError)
        check_choice(f"of, whose rows the total of {self.condition!r} counts",
                     self.of, ("table", "population"), SchemaError)  # fmt: skip

    def __str__(self) -> str:
        rows = "row" if self.count == 1 else "rows"
        has = "has" if self.count == 1 else "have"
        return f"{self.count:,} {rows} of the {self.of} {has} {self.condition}"

    def compiled(self, columns: Columns) -> CompiledTotal:
        """The total on coded rows."""
        named, cells = read_combinations(self.condition, columns)
        return CompiledTotal(self, named, (), cells)


@dataclass(frozen=True)
class CompiledTotal(CompiledRule):
    """The cells of the columns of a condition whose rows are counted."""

    rule: Total  # type: ignore[assignment]
    cells: Mask

    def broken(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows are counted, (n,)."""
        return np.asarray(self.cells.ravel()[cell_index(self.columns, codes)])

    def repaired(self, codes: Mapping[str, Codes]) -> dict[str, Codes]:
        """Nothing: a total is no rule."""
        return {}


class WithTotals(WithRules, Protocol):
    """Columns with rules and public totals, a `Schema`."""

    @property
    def totals(self) -> Sequence[Total]:
        """The totals, in declared order."""


class CheckedTotals(tuple[Total, ...]):
    """Totals of a part of a schema whose totals are checked."""

    __slots__ = ()


def read_totals(plain: object) -> tuple[Total, ...]:
    """Totals from plain data, a list of mappings as in a schema file.

    Raises
    ------
    SchemaError
    """
    if isinstance(plain, str | Mapping) or not isinstance(plain, Sequence):
        raise SchemaError("totals must be a list of tables ([[total]] in TOML)")
    return tuple(map(_read_total, plain))


def _read_total(plain: object) -> Total:
    if not isinstance(plain, Mapping) or not {*_KEYS} <= set(plain):
        raise SchemaError(f"a total needs the keys {list(_KEYS)}, got {short(plain)}")
    if unknown := sorted(str(key) for key in plain if key not in _KEYS):
        raise SchemaError(
            f"a total has unknown keys {first_few(unknown)}{did_you_mean(unknown, _KEYS)}"
        )
    return Total(**plain)


def compile_totals(schema: WithTotals, of: str = "table") -> tuple[CompiledTotal, ...]:
    """The totals of the table, or of the population, on coded rows."""
    return _compiled(schema, of) if schema.totals else ()


@lru_cache(maxsize=64)
def _compiled(schema: WithTotals, of: str) -> tuple[CompiledTotal, ...]:
    compiled = []
    for total in schema.totals:
        if total.of == of:
            try:
                compiled.append(total.compiled(schema))
            except (ConditionError, SchemaError) as error:
                raise SchemaError(f"total of {total.condition!r}: {error}") from None
    return tuple(compiled)


def check_totals(schema: WithTotals, n: int | None = None) -> None:
    """Refuse totals that no table has, of n rows where that is public.

    Raises
    ------
    SchemaError
        With the first total that contradicts others, the rules between columns or n.
    """
    if len(schema.totals) > _MOST_TOTALS:
        raise SchemaError(f"{len(schema.totals):,} totals; at most {_MOST_TOTALS:,} are allowed")
    for of, rows in (("table", n), ("population", None)):
        for totals, having in _memberships(schema, of):
            if _feasible(totals, having, rows):
                continue
            first = next(
                i for i in range(len(totals)) if not _feasible(totals[: i + 1], having, rows)
            )
            others = [
                str(total)
                for i, total in enumerate(totals[:first])
                if _feasible([*totals[:i], *totals[i + 1 : first + 1]],
                             np.delete(having, i, axis=1), rows)
            ]  # fmt: skip
            known = "" if rows is None else f" in a table of {rows:,} rows"
            if others:
                why = f"contradicts {first_few(others)}{known}"
            else:
                why = f"is not possible{known or ' under the rules between columns'}"
            raise SchemaError(f"the total {str(totals[first])!r} {why}: change a count")


def fixed_rows(schema: WithTotals) -> int | None:
    """The number of rows that totals of the table add up to, if they do."""
    from scipy import optimize

    for totals, having in _memberships(schema, "table"):
        counts = np.array([float(total.count) for total in totals])
        ends = [
            optimize.linprog(sign * np.ones(len(having)), A_eq=having.T, b_eq=counts)
            for sign in (1.0, -1.0)
        ]
        if all(end.success for end in ends):
            least, most = (abs(float(end.fun or 0.0)) for end in ends)
            if most - least < 0.5:  # whole numbers
                return round(least)
    return None


def _memberships(schema: WithTotals, of: str) -> Iterator[tuple[list[Total], Floats]]:
    """Totals that are linked by columns or rules, and which of them possible rows can be in.

    The second is (m, totals): a row for every combination of totals that a row can have.
    """
    totals = compile_totals(schema, of)
    for together in linked_rules([*compile_rules(schema), *totals]):
        own = [rule for rule in together if isinstance(rule, CompiledTotal)]
        rules = [rule for rule in together if not isinstance(rule, CompiledTotal)]
        if not own:
            continue
        seen = set[bytes]()
        for _, codes in Combinations.of(schema, together).parts():
            inside = np.array([total.broken(codes) for total in own])
            if rules:
                inside = inside[:, allowed_by(rules, codes)]
            seen |= {row.tobytes() for row in np.unique(inside.T, axis=0)}
        having = np.array([np.frombuffer(row, np.bool_) for row in sorted(seen)])
        yield [total.rule for total in own], having.astype(np.float64)


def _feasible(totals: Sequence[Total], having: Floats, rows: int | None) -> bool:
    """Whether some table has the first totals, and so many rows."""
    from scipy import optimize

    matrix, counts = having[:, : len(totals)].T, [float(total.count) for total in totals]
    if rows is not None:
        matrix = np.vstack([matrix, np.ones(len(having))])
        counts.append(float(rows))
    scale = max(1.0, *counts)
    found = optimize.linprog(
        np.zeros(len(having)), A_eq=matrix, b_eq=np.array(counts) / scale, method="highs"
    )
    return bool(found.status != _INFEASIBLE)
