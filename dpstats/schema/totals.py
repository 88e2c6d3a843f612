"""Public totals: numbers of rows with a condition that are known before anything is measured.

The custodian asserts that a total of the private table is right. Noise-aware answers use totals,
certified statements do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import check_choice, check_text, check_whole, first_few, short
from dpstats.errors import ConditionError, SchemaError
from dpstats.schema.conditions import cell_index, read_combinations
from dpstats.schema.possible import Combinations, allowed_by, linked_rules
from dpstats.schema.repairs import CompiledRule, Mask, OnColumns, compile_rules
from dpstats.schema.toml_files import check_keys

if TYPE_CHECKING:
    from dpstats.schema.schema import Schema

_KEYS = ("condition", "count", "of")
_MOST_ROWS = 10**15
_MOST_TOTALS = 1_000
_INFEASIBLE = 2  # status of `scipy.optimize.milp`
_SECONDS = 5.0  # after which a table is taken to exist


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
        between columns; a plan with ``person=``, which may leave out rows, refuses such totals.
        With "population", the population that these rows are a sample of: what the weights of a
        survey's `Design` add up to over the rows with the condition. Weighted estimates use it,
        where the office adjusted the weights to the total after it cut them at a largest weight
        (``high=``, and a ``cap=`` that is no smaller); no other answer does.

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

    def compiled(self, columns: Schema) -> CompiledTotal:
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


def read_totals(plain: object) -> tuple[Total, ...]:
    """Totals from plain data, a list of mappings as in a schema file."""
    if isinstance(plain, str | Mapping) or not isinstance(plain, Sequence):
        raise SchemaError("totals must be a list of tables ([[total]] in TOML)")
    return tuple(map(_read_total, plain))


def _read_total(plain: object) -> Total:
    if not isinstance(plain, Mapping) or not {*_KEYS} <= set(plain):
        raise SchemaError(f"a total needs the keys {list(_KEYS)}, got {short(plain)}")
    check_keys(plain, _KEYS, "a total")
    return Total(**plain)


def compile_totals(schema: Schema, of: str = "table") -> tuple[CompiledTotal, ...]:
    """The totals of the table, or of the population, on coded rows."""
    return _compiled(schema, of) if schema.totals else ()


@lru_cache(maxsize=64)
def _compiled(schema: Schema, of: str) -> tuple[CompiledTotal, ...]:
    compiled = []
    for total in schema.totals:
        if total.of == of:
            try:
                compiled.append(total.compiled(schema))
            except (ConditionError, SchemaError) as error:
                raise SchemaError(f"total of {total.condition!r}: {error}") from None
    return tuple(compiled)


def check_totals(schema: Schema, n: int | None = None, population: int | None = None) -> None:
    """Refuse totals that no table of n rows has, or no population of a size, if public."""
    if not schema.totals:
        return
    if len(schema.totals) > _MOST_TOTALS:
        raise SchemaError(f"{len(schema.totals):,} totals; at most {_MOST_TOTALS:,} are allowed")
    for of, rows in (("table", n), ("population", population)):
        tables = _Tables.from_schema(schema, of)
        if tables.exist(tables.totals, rows):
            continue
        first = next(
            i for i in range(len(tables.totals)) if not tables.exist(tables.totals[: i + 1], rows)
        )
        before, total = tables.totals[:first], tables.totals[first]
        others = [
            str(other)
            for i, other in enumerate(before)
            if tables.exist([*before[:i], *before[i + 1 :], total], rows)
        ]
        in_table = "" if rows is None else f" in a {of} of {rows:,} rows"
        if others:
            why = f"contradicts {first_few(others)}{in_table}"
        else:
            why = f"is not possible{in_table or ' under the rules between columns'}"
        raise SchemaError(f"the total {str(total)!r} {why}: change a count")


@lru_cache(maxsize=64)
def fixed_rows(schema: Schema, of: str = "table") -> int | None:
    """The number of rows, if the totals of the table, or of the population, determine it."""
    return _Tables.from_schema(schema, of).rows if compile_totals(schema, of) else None


@dataclass(frozen=True)
class _Tables:
    """The tables that some totals allow, as a program in whole numbers of rows.

    For each group of totals that are linked by columns or rules, rows are counted by which of the
    totals they have; the groups have as many rows.
    """

    totals: list[Total]  # all of them, group after group
    # (totals + groups, m + 1): rows of the totals, then of the groups less all rows, the last
    # variable
    matrix: Floats

    @classmethod
    def from_schema(cls, schema: Schema, of: str) -> _Tables:
        """Tables that the totals of a schema allow: those of the table, or of the population."""
        from scipy import linalg

        groups = list(_memberships(schema, of))
        having = linalg.block_diag(*(matrix.T for _, matrix in groups))
        sizes = linalg.block_diag(*(np.ones((1, len(matrix))) for _, matrix in groups))
        matrix = np.vstack([
            np.hstack([having, np.zeros((len(having), 1))]),
            np.hstack([sizes, -np.ones((len(sizes), 1))]),
        ])  # fmt: skip
        return cls([total for totals, _ in groups for total in totals], matrix)

    def exist(self, totals: Sequence[Total], rows: int | None) -> bool:
        """True if some table has these totals, and this number of rows if it is given."""
        return self._solved(totals, rows, 0.0) is not None

    @property
    def rows(self) -> int | None:
        """The number of rows, if it is the same in all tables."""
        least, most = (self._solved(self.totals, None, sign) for sign in (1.0, -1.0))
        return least if least is not None and least == most else None

    def _solved(self, totals: Sequence[Total], rows: int | None, sign: float) -> int | None:
        """Fewest rows of such a table, most with the sign -1, any with 0; None without one.

        Where the solver finds neither in some seconds, a table is taken to exist.
        """
        from scipy import optimize

        if not self.totals:
            return rows or 0
        used = [total in totals for total in self.totals]
        chosen = np.append(used, np.ones(len(self.matrix) - len(used), np.bool_))
        counts = [total.count for total in self.totals if total in totals]
        counts += [0] * (len(self.matrix) - len(used))
        upper = np.full(self.matrix.shape[1], float(_MOST_ROWS))
        lower = np.zeros(self.matrix.shape[1])
        if rows is not None:
            lower[-1] = upper[-1] = rows
        cost = np.zeros(len(upper))
        cost[-1] = sign
        found = optimize.milp(
            cost,
            integrality=np.ones(len(upper), np.int64),
            bounds=optimize.Bounds(lower, upper),
            constraints=optimize.LinearConstraint(self.matrix[chosen], counts, counts),
            options={"time_limit": _SECONDS},
        )
        if found.status == _INFEASIBLE or found.x is None:
            return None if found.status == _INFEASIBLE else 0
        return round(float(found.x[-1]))


def _memberships(schema: Schema, of: str) -> Iterator[tuple[list[Total], Floats]]:
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
