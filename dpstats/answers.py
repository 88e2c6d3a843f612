"""The one door to the measurements: what a release says about wanted functions, with exact noise.

Every wanted function gets the best linear unbiased combination of what was measured: overlapping
tables by orthogonal residuals (`residuals`), conditions measured beside them by one more update,
other functions from the measured block with the least variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.columns import Codes, Column
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Block, Family, Floats, bounds_of
from dpstats.families.cells import ROWS, Indicator, Table
from dpstats.measurements import Measurements
from dpstats.privacy.combinations import Combination
from dpstats.residuals import MeasuredTable, OverlappingTables
from dpstats.row_count import RowCount
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.privacy.laws import LatticeLaw, NoiseLaw

LARGEST_UPDATE = 2 * 10**7  # entries of a matrix of weights; beyond it tables answer alone
_GAIN = 1e-9
_NOTHING = 1e-12
_LEAST_VARIANCE = 1e-9

LawKey = tuple[tuple[float, float, int], ...]
"""Parts (weight, scale, count) of a combination of noises; one part of weight 1 is an exact sum."""


class Asking(Protocol):
    """An analysis, as far as it matters here."""

    def family(self, schema: Schema) -> Family:
        """The functions it asks for."""


@dataclass(frozen=True)
class Answers:
    """Estimates of d wanted sums, with the law of each one's noise.

    Attributes
    ----------
    names : list of str
    sums : (d,) float64
        Noisy sums over the private rows, in integer units; integers where no averaging was done.
    bounds : (d,) int64
        B_f; the noisy mean in unit scale is sums / (n bounds).
    rows : RowCount
        Number of private rows, or the best estimate of it.
    uniforms : (d,) float64
        Uniform on (-1/2, 1/2), independent of the noise: the law of sums + uniforms is continuous.
    law_table : list of laws
        The distinct laws of the noise on the sums.
    law_of : (d,) int64
        Index into `law_table`.
    """

    names: list[str]
    sums: Floats
    bounds: Codes
    rows: RowCount
    uniforms: Floats
    law_table: list[NoiseLaw]
    law_of: NDArray[np.intp]
    _rows: _Rows = field(repr=False)
    _measured: tuple[list[LatticeLaw], NDArray[np.intp]] = field(repr=False)

    @property
    def n(self) -> int:
        """Number of private rows; estimated, and at least 1, where it is not public."""
        return self.rows.value

    @cached_property
    def means(self) -> Floats:
        """Noisy means in unit scale, (d,) float64, unclipped."""
        return self.sums / (self.n * self.bounds)

    @cached_property
    def noise_variances(self) -> Floats:
        """Variance of the noise on the means, unit scale, (d,) float64."""
        variances = np.array([law.variance for law in self.law_table])[self.law_of]
        return variances / (self.n * self.bounds.astype(np.float64)) ** 2

    def part(self, piece: slice) -> Answers:
        """The answers to some of the functions."""
        return replace(
            self,
            names=self.names[piece],
            sums=self.sums[piece],
            bounds=self.bounds[piece],
            uniforms=self.uniforms[piece],
            law_of=self.law_of[piece],
            _rows=replace(self._rows, pieces=(*self._rows.pieces, piece)),
        )

    def law(self, f: int) -> NoiseLaw:
        """The noise law of function number f."""
        return self.law_table[int(self.law_of[f])]

    @cached_property
    def weights(self) -> Floats:
        """The noise on the sums as weights (d, |F|) on the independent measured noises."""
        return self._rows.matrix()

    @cached_property
    def independent(self) -> bool:
        """Whether no measured noise enters two of the answers."""
        return bool(np.all(np.count_nonzero(self.weights, axis=0) <= 1))

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance (d, d) of the noise on the sums."""
        laws, which = self._measured
        variances = np.array([law.variance for law in laws])[which]
        return np.asarray((self.weights * variances) @ self.weights.T)

    @cached_property
    def noise_groups(self) -> list[tuple[Floats, LatticeLaw]]:
        """The same in fewer terms: weights (d,), and the law of the sum that they multiply."""
        laws, which = self._measured
        scales = np.array([law.scale for law in laws])[which]
        columns = np.round(np.vstack([self.weights, scales]), 12)
        distinct, first, counts = np.unique(columns, axis=1, return_index=True, return_counts=True)
        used = np.flatnonzero(np.any(distinct[:-1] != 0, axis=0))
        return [
            (distinct[:-1, i], replace(laws[which[first[i]]], terms=int(counts[i]))) for i in used
        ]


def answer(
    measurements: Measurements,
    wanted: Family | Block | Sequence[Block] | Asking,
    *,
    disjoint: bool = False,
) -> Answers:
    """Answer wanted functions from what was measured.

    Parameters
    ----------
    measurements : Measurements
    wanted : Family, block, sequence of blocks, or analysis
        An analysis stands for the family that it asks for.
    disjoint : bool
        Answer every function as a plain sum of measured ones from one block, so that disjoint
        conditions have independent noise.

    Raises
    ------
    RequestError
        If `wanted` holds anything but blocks, or nothing.
    NotMeasuredError
        Naming what is missing and what was measured.
    """
    blocks = blocks_of(wanted, measurements.schema)
    door = _Door(measurements)
    parts = [door.best(block, disjoint=disjoint) for block in blocks]
    keys = [key for part in parts for key in part.laws]
    distinct = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return Answers(
        names=[name for block in blocks for name in block.names],
        sums=np.concatenate([part.sums for part in parts]),
        bounds=np.concatenate([bounds_of(block) for block in blocks]),
        rows=door.rows,
        uniforms=np.concatenate([part.uniforms for part in parts]),
        law_table=[_law(measurements, key) for key in distinct],
        law_of=np.array([distinct[key] for key in keys], dtype=np.intp),
        _rows=_Rows(measurements, tuple(blocks), disjoint),
        _measured=(door.laws, door.law_of),
    )


def blocks_of(wanted: object, schema: Schema) -> Sequence[Block]:
    """The blocks of what is wanted, or a RequestError that says what may be wanted."""
    if callable(getattr(wanted, "family", None)) and not isinstance(wanted, type):
        wanted = wanted.family(schema)  # type: ignore[attr-defined]
    if isinstance(wanted, Family):
        return wanted.blocks
    several = isinstance(wanted, Sequence) and not isinstance(wanted, str)
    blocks: Sequence[Any] = wanted if several else [wanted]  # type: ignore[assignment]
    for block in blocks:
        if isinstance(block, type) or not hasattr(block, "derive"):
            raise RequestError(
                "answers takes an analysis, a family, a block such as dps.Cells.table(schema, "
                f"[...]), or a list of blocks; got {block!r}"
            )
    if not blocks:
        raise RequestError("answers takes at least one block; got an empty list")
    return blocks


@dataclass(frozen=True)
class _Rows:
    """How to find the weights again; they are large, so only on demand."""

    measurements: Measurements
    blocks: tuple[Block, ...]
    disjoint: bool
    pieces: tuple[slice, ...] = ()

    def matrix(self) -> Floats:
        door = _Door(self.measurements)
        parts = (door.best(block, disjoint=self.disjoint) for block in self.blocks)
        rows = np.concatenate([part.rows() for part in parts])
        for piece in self.pieces:
            rows = rows[piece]
        return rows


def _law(measurements: Measurements, key: LawKey) -> NoiseLaw:
    (weight, scale, count), *more = key
    if weight == 1 and not more:
        return measurements.budget.law(scale, count)
    return Combination(
        tuple((weight, measurements.budget.law(scale, count)) for weight, scale, count in key)
    )


@dataclass
class _Part:
    """Answers to one block."""

    sums: Floats
    variances: Floats
    uniforms: Floats
    laws: list[LawKey]
    rows: Callable[[], Floats]


class _Door:
    """The measurements, with their tables combined once."""

    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        self.sources = measurements.sources
        self.scales = np.concatenate([noisy.scales for noisy in self.sources])
        self.sums = np.concatenate([noisy.sums for noisy in self.sources])
        self.size = len(self.sums)
        distinct, which = np.unique(self.scales, return_inverse=True)
        self.laws = [measurements.budget.law(float(scale)) for scale in distinct]
        self.law_of = which
        # A variance may underflow to zero for a huge budget; precisions stay finite.
        self.variances = np.maximum([law.variance for law in self.laws], _LEAST_VARIANCE)[which]
        starts = np.cumsum([0, *(noisy.block.size for noisy in self.sources)])
        self.starts = [int(start) for start in starts[:-1]]
        tables = [
            MeasuredTable(
                noisy.block.columns,
                noisy.sums.reshape(noisy.block.shape).astype(np.float64),
                float(self.variances[start]),
                start,
            )
            for noisy, start in zip(self.sources, self.starts, strict=True)
            if isinstance(noisy.block, Table)
        ]
        self.n = measurements.n if measurements.count is None else None  # None: not public
        self.tables = OverlappingTables(tables, self.n)

    @cached_property
    def rows(self) -> RowCount:
        """The number of rows; where it was measured, also as the total of all tables."""
        if self.n is not None:
            return RowCount(float(self.n))
        found = self.best(ROWS, disjoint=False)
        return RowCount(float(found.sums[0]), _law(self.measurements, found.laws[0]))

    def best(self, block: Block, *, disjoint: bool) -> _Part:
        """The best single source, or the combination of several where it has less variance."""
        part = self._single(block, complements=not disjoint and self.n is not None)
        if not disjoint and isinstance(block, Table | Indicator):
            combined = self._combined(block)
            if combined is not None and np.any(combined.variances < part.variances * (1 - _GAIN)):
                # A uniform of one source is independent of every noise, so it serves both.
                combined.uniforms = np.where(
                    np.isinf(part.variances), combined.uniforms, part.uniforms
                )
                part = combined
        if np.any(np.isinf(part.variances)):
            raise _not_measured(self.measurements, block, part.variances)
        return part

    def _single(self, wanted: Block, *, complements: bool) -> _Part:
        """Every function from one measured block: sums of its cells, exact integers."""
        part = _Part(
            np.zeros(wanted.size),
            np.full(wanted.size, np.inf),
            np.zeros(wanted.size),
            [((1.0, 1.0, 1),)] * wanted.size,
            lambda: _rows_of(members, signs, self.size),
        )
        members = [np.zeros(0, np.int64)] * wanted.size
        signs = [1] * wanted.size
        for noisy, start in zip(self.sources, self.starts, strict=True):
            derivation = noisy.block.derive(wanted, complements=complements)
            if derivation is None:
                continue
            order = np.argsort(derivation.member, kind="stable")
            first = np.searchsorted(derivation.member[order], np.arange(wanted.size + 1))
            sums = derivation.apply(noisy.sums, self.n or 0)
            for f in np.flatnonzero(derivation.terms > 0):
                # Members of a wanted function are cells of a table, or one moment: equal scales.
                member = order[first[f] : first[f + 1]]
                variance = self.variances[start + member[0]] * len(member)
                if variance >= part.variances[f]:
                    continue
                part.variances[f], part.sums[f] = variance, sums[f]
                uniform = derivation.sign * noisy.uniforms[member].sum()
                part.uniforms[f] = uniform - np.rint(uniform)  # uniform again, modulo one
                part.laws[f] = ((1.0, float(noisy.scales[member[0]]), len(member)),)
                members[f], signs[f] = start + member, derivation.sign
        return part

    def _combined(self, wanted: Table | Indicator) -> _Part | None:
        """All tables together, then the measured conditions that they also estimate."""
        if not self.tables.tables:
            return None
        conditions = self._conditions_seen
        if isinstance(wanted, Table) and (
            not conditions or wanted.size * self.size > LARGEST_UPDATE
        ):
            return self._combined_table(wanted)
        functions = _functions_of(wanted)
        rows = self._rows(wanted.columns, functions)
        if rows is None:
            return None
        sums = self._value(functions, rows)
        if conditions:
            rows, sums = self._updated(rows, sums, conditions)
        uniforms = np.concatenate([noisy.uniforms for noisy in self.sources])
        uniform = (np.abs(rows) > _NOTHING) @ uniforms
        return _Part(
            sums,
            rows**2 @ self.variances,
            uniform - np.rint(uniform),
            [self._key(row) for row in rows],
            lambda: rows,
        )

    def _combined_table(self, wanted: Table) -> _Part | None:
        """All cells of a table by residuals, never as a matrix; they have the same law."""
        estimate = self.tables.table(wanted.columns)
        if estimate is None:
            return None
        first = np.zeros((1, *wanted.shape))
        first.flat[0] = 1
        row = _present(self._rows(wanted.columns, first))[0]
        return _Part(
            estimate.ravel(),
            np.full(wanted.size, row**2 @ self.variances),
            np.zeros(wanted.size),
            [self._key(row)] * wanted.size,
            lambda: _present(self._rows(wanted.columns, _functions_of(wanted))),
        )

    def _rows(self, columns: tuple[Column, ...], functions: Floats) -> Floats | None:
        weights = self.tables.weights(columns, functions)
        if weights is None:
            return None
        rows = np.zeros((len(functions), self.size))
        for table, part in weights:
            rows[:, table.start : table.start + table.counts.size] = part.reshape(len(rows), -1)
        return rows

    def _value(self, functions: Floats, rows: Floats) -> Floats:
        level = (self.n or 0) * functions.reshape(len(rows), -1).mean(axis=1)
        return np.asarray(level + rows @ self.sums)

    @cached_property
    def _conditions_seen(self) -> list[tuple[int, Floats, float]]:
        """Measured conditions that tables estimate too: position, weights and value of that."""
        seen = []
        for noisy, start in zip(self.sources, self.starts, strict=True):
            if isinstance(noisy.block, Indicator):
                function = _functions_of(noisy.block)
                rows = self._rows(noisy.block.columns, function)
                if rows is not None:
                    seen.append((start, rows[0], float(self._value(function, rows)[0])))
        return seen

    def _updated(
        self, rows: Floats, sums: Floats, conditions: list[tuple[int, Floats, float]]
    ) -> tuple[Floats, Floats]:
        """Best linear update by separately measured conditions (their noise is independent)."""
        at = np.array([position for position, _, _ in conditions])
        seen = np.stack([row for _, row, _ in conditions])
        surprise = self.sums[at] - np.array([value for _, _, value in conditions])
        covariance = (seen * self.variances) @ seen.T + np.diag(self.variances[at])
        gain = np.linalg.solve(covariance, (seen * self.variances) @ rows.T).T
        own = np.zeros_like(seen)
        own[np.arange(len(at)), at] = 1
        return rows + gain @ (own - seen), sums + gain @ surprise

    def _key(self, row: Floats) -> LawKey:
        """Law of a combination, equal weights (up to sign: the noise is symmetric) together."""
        used = np.flatnonzero(np.abs(row) > _NOTHING)
        # Pairs as complex numbers, which sort far faster than columns do.
        pairs = np.round(np.abs(row[used]), 12) + 1j * self.scales[used]
        distinct, counts = np.unique(pairs, return_counts=True)
        return tuple(
            (pair.real, pair.imag, count)
            for pair, count in zip(distinct.tolist(), counts.tolist(), strict=True)
        )


def _rows_of(members: Sequence[Codes], signs: Sequence[int], size: int) -> Floats:
    """Plain sums as rows of weights."""
    rows = np.zeros((len(members), size))
    for row, member, sign in zip(rows, members, signs, strict=True):
        row[member] = sign
    return rows


def _functions_of(wanted: Table | Indicator) -> Floats:
    """Values (d, bins of each column...) of the functions on the cells of their columns."""
    if isinstance(wanted, Table):
        return np.eye(wanted.size).reshape(-1, *wanted.shape)
    return wanted.cells.array[np.newaxis].astype(np.float64)


def _present(rows: Floats | None) -> Floats:
    assert rows is not None  # the caller has seen that the table can be estimated
    return rows


def _not_measured(measurements: Measurements, wanted: Block, variances: Floats) -> NotMeasuredError:
    lacking = [name for name, v in zip(wanted.names, variances, strict=True) if np.isinf(v)]
    columns = tuple(column.name for column in wanted.columns)
    measured = dict.fromkeys(
        repr(block.names[0]) if block.size == 1 else str(tuple(c.name for c in block.columns))
        for block in measurements.family.blocks
    )
    shown = ", ".join(list(measured)[:8]) + (", ..." if len(measured) > 8 else "")
    return NotMeasuredError(
        f"this release has no measurement of {columns} that gives {lacking[0]!r}"
        + (f" and {len(lacking) - 1} more" if lacking[1:] else "")
        + f"; measured: {shown}; ask the custodian for "
        + ("their moments" if wanted.needs_codes else f"dps.Marginals({list(columns)})")
    )
