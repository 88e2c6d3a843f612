"""Public totals: numbers of rows with a condition that are known before anything is measured.

The custodian asserts that a total of the private table is right. Noise-aware answers use totals,
certified statements do not.
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
from dpstats.schema.possible import Combinations, allowed_by, linked_rules
from dpstats.schema.repairs import CompiledRule, Mask, OnColumns, WithRules, compile_rules

_KEYS = ("condition", "count", "of")
_MOST_ROWS = 10**15
_MOST_TOTALS = 1_000
_INFEASIBLE = 2  # status of `scipy.optimize.linprog`


@dataclass(frozen=True)
class Total:
    """A public number of rows with a condition.

    A total of the table is an assertion: answers that use it are wrong if it is wrong. Never count
    private rows for it, since that count would be published without noise.

    Parameters
    ----------
    condition : str
        As in `Proportion`, on declared levels and edges. It does not hold where it depends on a
        cell that is missing.
    count : int
        How many rows have it, at least 0.
    of : {"table", "population"}
        With "table", counted are the rows of the private table, as they are read under the rules
        between columns. With "population", the population that these rows are a sample of: the
        total is kept with the schema, and no answer uses it.

    Raises
    ------
    SchemaError
        If the condition is no text, the count is no whole number from 0 to 10^15, or `of` is
        neither. That the condition fits the columns is checked by `Schema`.

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
        check_choice(
            f"of in the total of {self.condition!r}", self.of, ("table", "population"), SchemaError
        )

    def __str__(self) -> str:
        rows = "row" if self.count == 1 else "rows"
        has = "has" if self.count == 1 else "have"
        return f"{self.count:,} {rows} of the {self.of} {has} {self.condition}"

    def compiled(self, columns: Columns) -> CompiledTotal:
        """The total on coded rows."""
        named, cells = read_combinations(self.condition, columns)
        return CompiledTotal(named, self, cells)


@dataclass(frozen=True)
class CompiledTotal(OnColumns):
    """A total on coded rows, and the cells of its columns whose rows it counts."""

    total: Total
    counted: Mask

    def cells(self) -> Mask:
        """Cells whose rows are counted, bool with an axis for each column."""
        return self.counted

    def counts(self, codes: Mapping[str, Codes]) -> Mask:
        """Which rows are counted, (n,)."""
        return np.asarray(self.counted.ravel()[cell_index(self.columns, codes)])


class WithTotals(WithRules, Protocol):
    """Columns with rules and public totals, a `Schema`."""

    @property
    def totals(self) -> Sequence[Total]:
        """The totals, in declared order."""


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
            in_table = "" if rows is None else f" in a table of {rows:,} rows"
            if others:
                why = f"contradicts {first_few(others)}{in_table}"
            else:
                why = f"is not possible{in_table or ' under the rules between columns'}"
            raise SchemaError(f"the total {str(totals[first])!r} {why}: change a count")


def fixed_rows(schema: WithTotals) -> int | None:
    """The number of rows, if the totals of the table determine it."""
    from scipy import optimize

    least, most = 0.0, np.inf
    for totals, having in _memberships(schema, "table"):
        counts, rows = np.array([float(total.count) for total in totals]), np.ones(len(having))
        fewest = optimize.linprog(rows, A_eq=having.T, b_eq=counts)
        largest = optimize.linprog(-rows, A_eq=having.T, b_eq=counts)
        if fewest.success:
            least = max(least, float(fewest.fun or 0.0))
        if largest.success:  # else any number of rows has no total
            most = min(most, -float(largest.fun or 0.0))
    return round(least) if most - least < 0.5 else None  # whole numbers


def _memberships(schema: WithTotals, of: str) -> Iterator[tuple[list[Total], Floats]]:
    """Groups of totals that are linked by columns or rules, and by which totals a row can count.

    The second is (m, totals): one line for every combination of totals that can count one row.
    """
    statements: list[OnColumns] = [*compile_rules(schema), *compile_totals(schema, of)]
    for together in linked_rules(statements):
        totals = [one for one in together if isinstance(one, CompiledTotal)]
        rules = [one for one in together if isinstance(one, CompiledRule)]
        if not totals:
            continue
        seen = set[bytes]()
        for _, codes in Combinations.of(schema, together).parts():
            inside = np.array([total.counts(codes) for total in totals])
            if rules:
                inside = inside[:, allowed_by(rules, codes)]
            seen |= {row.tobytes() for row in np.unique(inside.T, axis=0)}
        having = np.array([np.frombuffer(row, np.bool_) for row in sorted(seen)])
        yield [compiled.total for compiled in totals], having.astype(np.float64)


def _feasible(totals: Sequence[Total], having: Floats, rows: int | None) -> bool:
    """Whether some table has these totals, the first columns of `having`, and so many rows."""
    from scipy import optimize

    matrix, counts = having[:, : len(totals)].T, [float(total.count) for total in totals]
    if rows is not None:
        matrix = np.vstack([matrix, np.ones(len(having))])
        counts.append(float(rows))
    scale = max(1.0, *counts)
    program = optimize.linprog(
        np.zeros(len(having)), A_eq=matrix, b_eq=np.array(counts) / scale, method="highs"
    )
    return bool(program.status != _INFEASIBLE)
