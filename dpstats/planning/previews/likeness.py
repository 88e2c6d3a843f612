"""Source of the rows of a preview: guesses, a release, a frame, or nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import columns_named, counted, first_few, short
from dpstats.errors import RequestError
from dpstats.measured.strategy import Strategy
from dpstats.measured.view import ReleaseView
from dpstats.planning.previews.invented import invented
from dpstats.rows.uniform import Uniform
from dpstats.schema import Category, Column, Guesses, Schema
from dpstats.schema.repairs import let_views_agree
from dpstats.schema.totals import CompiledTotal, compile_totals, fixed_rows

if TYPE_CHECKING:
    import pyarrow as pa

    Like = ReleaseView | Guesses | Any  # a frame of any library that speaks Arrow

PRETEND_POINTS = 20_000
_MOST_POINTS = 100_000  # of a frame
_RAKED = 50  # times to several totals

Source = Literal["even", "guesses", "release", "frame"]


@dataclass(frozen=True)
class Likeness:
    """Where simulated rows come from.

    Spread evenly over levels and bins, from guesses, from the density of a release, or drawn from
    a frame, which is held as (m,) codes per column. `given` is whether they were asked for, rather
    than found in the schema.
    """

    source: Source = "even"
    given: bool = False
    guesses: Guesses | None = None
    release: ReleaseView | None = None
    frame: dict[str, Codes] | None = None

    def points(
        self, columns: Schema, rng: np.random.Generator, n: int | None = None
    ) -> tuple[dict[str, Codes], Floats]:
        """Points, (m,) codes per column, and their probabilities (m,): of n rows, if it is known.

        Those of even or guessed rows have the public totals of the schema.
        """
        if self.source == "even":
            points = Uniform().draw(PRETEND_POINTS, columns, None, rng)
            points = columns.repairs(columns.names).repair(let_views_agree(columns, points))
            return points, _with_totals(points, columns, n)
        if self.guesses is not None:
            points = invented(columns, self.guesses, PRETEND_POINTS, rng)
            return points, _with_totals(points, columns, n)
        if self.frame is not None:
            cells = {name: self.frame[name] for name in columns.names}
            rows = _row_count(cells)
            if rows > _MOST_POINTS:
                chosen = rng.choice(rows, _MOST_POINTS, replace=False)
                cells = {name: codes[chosen] for name, codes in cells.items()}
            return _equally_likely(cells)
        assert self.release is not None
        check_columns(columns, self.release)
        candidates = {name: self.release.candidates[name] for name in columns.names}
        return candidates, self.release.weights / self.release.weights.sum()

    def said(self, columns: Schema, n: int) -> str:
        """Which rows, in a sentence that starts with "rows"."""
        if self.source == "release":
            return "rows drawn from the density of another release"
        if self.frame is not None:
            size = counted(_row_count(self.frame), "row")
            return f"rows drawn from the frame of {size}, invented or public, given as like="
        totals = " and weighted to the public totals" if _known_shares(columns, n) else ""
        if self.guesses is None:
            return f"rows drawn evenly over the cells{totals}"
        named = [name for name in columns.names if name in self.guesses.columns]
        others = [name for name in columns.names if name not in self.guesses.columns]
        text = f"rows invented from guesses of {', '.join(named) if others else 'every column'}"
        text += f" and spread evenly over {', '.join(others)}" if others else ""
        return text + totals


def _equally_likely(points: dict[str, Codes]) -> tuple[dict[str, Codes], Floats]:
    rows = _row_count(points)
    return points, np.full(rows, 1 / rows)


def _known_shares(columns: Schema, n: int | None) -> list[tuple[CompiledTotal, float]]:
    """The public totals with their shares of all n rows, or of the population."""
    every = {"table": n, "population": columns.design and columns.design.total}
    return [
        (total, min(total.total.count / rows, 1.0))
        for of, known in every.items()
        if (rows := known or fixed_rows(columns, of))
        for total in compile_totals(columns, of)
    ]


def _with_totals(points: dict[str, Codes], columns: Schema, n: int | None) -> Floats:
    """Probabilities (m,) of points: even ones, raked to the shares that public totals fix."""
    _, density = _equally_likely(points)
    shares = [(total.counts(points), share) for total, share in _known_shares(columns, n)]
    for _ in range(_RAKED if len(shares) > 1 else 1):
        for inside, share in shares:
            mass = density[inside].sum()
            if 0 < mass < 1:
                density *= np.where(inside, share / mass, (1 - share) / (1 - mass))
    return np.asarray(density / density.sum())


def _row_count(cells: dict[str, Codes]) -> int:
    return len(next(iter(cells.values())))


def likeness(like: Like | None, strategy: Strategy) -> Likeness:
    """Read `like=` for the columns of a plan; by default the guesses of its schema."""
    schema = strategy.columns
    if like is None:
        guesses = None if schema.guesses is None else schema.guesses.select(schema.names)
        return Likeness("guesses", guesses=guesses) if guesses else Likeness()
    if isinstance(like, Likeness):
        return like
    if isinstance(like, str | bytes | PathLike):
        raise RequestError(
            "like= takes a release, guesses or a data frame of invented or public rows, and no "
            "path: a preview must never read the private table. Open a release with dps.load, "
            "guesses with dps.Guesses.load"
        )
    if isinstance(like, Guesses):
        like.check(strategy.schema)
        kept = like.select(schema.names)
        return Likeness("guesses", True, guesses=kept) if kept else Likeness("even", True)
    if all(hasattr(like, name) for name in ("schema", "candidates", "weights")):
        check_columns(schema, like)
        return Likeness("release", True, release=like)
    return Likeness("frame", True, frame=_codes(strategy, _table(like)))


def check_columns(wanted: Schema, like: ReleaseView) -> None:
    """Refuse a release whose points are not coded as the plan's columns."""
    for column in wanted:
        if column.name not in like.candidates or like.schema[column.name] != column:
            raise RequestError(
                f"the release given as like= holds no column {column.name!r} declared as in the "
                f"plan; it holds {list(like.candidates)}"
            )


def _table(frame: Any) -> pa.Table:
    """A frame of public rows as an Arrow table."""
    import pyarrow as pa

    from dpstats.schema import arrow

    with suppress(pa.ArrowException, TypeError, ValueError, AttributeError):
        if type(frame).__module__.partition(".")[0] == "pandas":
            return arrow.public_table(frame)
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
    raise RequestError(
        "like= must be a release, guesses or a data frame of invented or public rows (pandas, "
        f"polars or Arrow), got {short(frame)}"
    )


def _codes(strategy: Strategy, table: pa.Table) -> dict[str, Codes]:
    """Codes of public rows, as those of a private table would be.

    Synthetic rows may stand in for them: they lack the columns that only rules or views need.
    """
    import pyarrow as pa

    present, schema = set(table.column_names), strategy.read_columns

    def lacking_of(schema: Schema) -> list[str]:
        columns = [c for c in schema.stored if not present.issuperset(c.raw_names)]
        return [column.name for column in columns if column.name not in present]

    if lacking_of(schema):
        schema = strategy.columns
    if lacking := lacking_of(schema):
        raise RequestError(
            f"the frame given as like= has no {columns_named(lacking)}, which the plan needs; it "
            f"has {first_few(table.column_names)}"
        )
    if not table.num_rows:
        raise RequestError("the frame given as like= has no rows")
    names = {name for column in schema.stored for name in (column.name, *column.raw_names)}
    chosen = table.select(sorted(names & present)).combine_chunks()
    cells = [c.chunk(0) if c.num_chunks == 1 else pa.concat_arrays(c.chunks) for c in chosen]
    rows = pa.RecordBatch.from_arrays(cells, names=chosen.column_names)
    codes = {column.name: _codes_of(column, rows) for column in schema.stored}
    return schema.repairs(schema.names).repair(schema.with_views(codes))


def _codes_of(column: Column, rows: pa.RecordBatch) -> Codes:
    """Codes of public cells: stored values, or labels as those of synthetic rows.

    These have a difference itself, in a column of its name.
    """
    from dpstats.schema import arrow

    stored_by_name = column.name in rows.schema.names
    values = rows.column(column.name) if stored_by_name else column.cells(rows)
    if isinstance(column, Category) and column.labels[: len(column.stored)] != column.stored:
        labels = arrow.level_codes(values, column.bin_labels, missing=-1, other=-1)
        if np.mean(labels >= 0) > 0.5:
            return np.where(labels >= 0, labels, column.missing_code)
    return column.encode(values)
