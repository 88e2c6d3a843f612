"""Best linear unbiased combination of everything measured, with the exact law of its noise.

Overlapping tables are combined by orthogonal residuals (`overlapping_tables`), with sets of rows as
tables over columns of their own. One more update uses
separately measured conditions, cells that rules between columns make impossible, and public totals
(docs/explanation/inference/zeros-and-totals.md). Other functions come from the measured block with
the least variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.caching import Cached
from dpstats.checks import first_few
from dpstats.error_rates import bonferroni
from dpstats.errors import NotMeasuredError
from dpstats.families.block import Block
from dpstats.families.merging import BlockIndex
from dpstats.families.tables.cells import ROWS, Indicator, Partition, Table
from dpstats.families.tables.residuals import Residual
from dpstats.measured.measurements import Measurements, NoisyBlock
from dpstats.measured.overlapping_tables import MeasuredTable, OverlappingTables
from dpstats.measured.row_count import RowCount
from dpstats.privacy.weighted_noise import Combination
from dpstats.schema import Category, Column
from dpstats.schema.conditions import cell_set
from dpstats.schema.possible import determined_bins, possible_cells
from dpstats.schema.repairs import Mask
from dpstats.schema.totals import CompiledTotal, compile_totals

if TYPE_CHECKING:
    from dpstats.privacy.laws import LatticeLaw, NoiseLaw

LARGEST_UPDATE = 2 * 10**7  # entries of a matrix of weights; beyond it only the tables are used
MOST_LINKED = 5_000  # cells of linked tables, up to which all their zeros and totals are used
_GAIN = 1e-9  # least relative gain in variance for which a combination replaces a single source
_NO_WEIGHT = 1e-12
_LEAST_VARIANCE = 1e-9
_REDUNDANT = 1e-10  # of a variance
BEYOND_CHANCE = 1e-3

Constraints = Literal["none", "rules", "totals"]
"""Constraints on answers: none, rules between columns, or these and public totals."""

LawKey = tuple[tuple[float, float, int], ...]
"""Terms (weight, scale, count) of a combination of noises; one of weight 1 is an exact sum."""
_EXACT: LawKey = ((1.0, 1e-3, 1),)  # zero to every digit


@dataclass(frozen=True)
class WeightRows:
    """How to compute the weights of some functions of blocks, which are too large to keep."""

    sources: Sources
    blocks: tuple[Block, ...]
    disjoint: bool
    functions: Sequence[int]

    def select(self, chosen: Sequence[int]) -> WeightRows:
        """Weights of some of the functions, by their places."""
        return replace(self, functions=[self.functions[f] for f in chosen])

    def matrix(self) -> Floats:
        """(d, measured functions) weights on the measured noises; other blocks are left out."""
        rows = [estimate.rows(inside) for estimate, inside in self._estimates()]
        return np.concatenate([np.zeros((0, self.sources.size)), *rows])

    def joint_keys(self, law_of: NDArray[np.intp]) -> list[JointKey]:
        """Joint laws of the noise of each function and of the number of rows.

        Where all cells of a measured table have one weight in the number of rows, functions of one
        block with one law differ by an exchange of cells, so one of them serves all.
        """
        exchangeable = not self.sources.is_constrained and all(
            np.ptp(weights) <= _NO_WEIGHT
            for weights in np.split(self.sources.weights_of_count, self.sources.starts[1:])
        )
        keys: list[JointKey] = []
        for estimate, inside in self._estimates():
            laws = law_of[len(keys) : len(keys) + len(inside)]
            which = laws if exchangeable else np.arange(len(inside))
            _, examples, of = np.unique(which, return_index=True, return_inverse=True)
            rows = estimate.rows([inside[i] for i in examples])
            example_keys = [self.sources.joint_key(row) for row in rows]
            keys += [example_keys[i] for i in of]
        return keys

    def _estimates(self) -> Iterator[tuple[BlockEstimate, list[int]]]:
        """Estimate of every block with wanted functions, and their numbers in it."""
        wanted = np.array(self.functions)
        edges = np.cumsum([0, *(block.size for block in self.blocks)])
        for block, first, last in zip(self.blocks, edges[:-1], edges[1:], strict=True):
            inside = wanted[(wanted >= first) & (wanted < last)] - first
            if inside.size:
                yield self.sources.best(block, disjoint=self.disjoint), inside.tolist()


def law_of_key(measurements: Measurements, key: LawKey) -> NoiseLaw:
    """The law of a combination; that of plain sums where it is one."""
    (weight, scale, count), *more = key
    if weight == 1 and not more:
        return measurements.budget.law(scale, count)
    return Combination(
        tuple((weight, measurements.budget.law(scale, count)) for weight, scale, count in key)
    )


JointKey = tuple[tuple[float, float, float, int], ...]
"""Terms (weight in a sum, weight in the number of rows, scale, count) of their joint noise."""


@dataclass
class BlockEstimate:
    """Estimates of the sums of one block."""

    sums: Floats
    variances: Floats
    uniforms: Floats
    laws: list[LawKey]
    rows: Callable[[Sequence[int]], Floats]  # of some of the functions

    def fix(self, exact: Mask, sums: Floats) -> None:
        """Set the sums that are `exact` (d,), which have no noise."""
        rows = self.rows
        self.sums[exact], self.variances[exact] = sums[exact], 0.0
        self.laws = [_EXACT if e else law for e, law in zip(exact, self.laws, strict=True)]
        self.rows = lambda chosen: np.where(exact[list(chosen), np.newaxis], 0.0, rows(chosen))


@dataclass(frozen=True, eq=False)
class _Facts(Cached):
    """Sums of m functions that tables estimate, and that something else says too."""

    rows: Floats  # (m, measured functions) weights of their estimates from the tables
    discrepancies: Floats  # (m,) the sums less these estimates
    measured_by: Codes  # (m,) function that says the sum with noise, -1 where it is exact
    variances: Floats  # (measured functions,) of the noises

    @property
    def least_variance(self) -> float:
        """The least variance of a sum that is said with noise; infinite if there is none."""
        measured = self.measured_by[self.measured_by >= 0]
        return float(self.variances[measured].min()) if len(measured) else np.inf

    @cached_property
    def weights(self) -> Floats:
        """Weights (m, measured functions) of the noises in the discrepancies."""
        weights, noisy = -self.rows, np.flatnonzero(self.measured_by >= 0)
        weights[noisy, self.measured_by[noisy]] += 1
        return weights

    @cached_property
    def _factor(self) -> tuple[Floats, Codes, Floats]:
        """Cholesky factor of the correlations of independent facts, their places, and 1 / sd."""
        from scipy import linalg

        weights = self.weights
        unit = 1 / np.sqrt(np.maximum(weights**2 @ self.variances, 1e-300))
        weights = weights * unit[:, np.newaxis]
        correlations = (weights * self.variances) @ weights.T
        factor, pivots, rank, _ = linalg.lapack.dpstrf(correlations, tol=_REDUNDANT)
        places = np.asarray(pivots[:rank] - 1, dtype=np.int64)
        return factor[:rank, :rank], places, unit[places]

    def improve(self, rows: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """Update d estimates (d,) and their weights (d, measured functions), eq. known-sums."""
        from scipy import linalg

        factor, places, unit = self._factor
        weights = self.weights[places] * unit[:, np.newaxis]
        crossed = (weights * self.variances) @ rows.T
        gain = -linalg.cho_solve((factor, False), crossed).T
        rows, sums = rows + gain @ weights, sums + gain @ (self.discrepancies[places] * unit)
        return np.where(np.abs(rows) > _NO_WEIGHT, rows, 0.0), sums


@dataclass(frozen=True, eq=False)
class Sources(Cached):
    """The measurements, with their tables combined once."""

    measurements: Measurements
    constraints: Constraints = "rules"

    def with_constraints(self, constraints: Constraints) -> Sources:
        """Sources whose answers use these constraints."""
        if constraints == self.constraints:
            return self
        return self._once(
            ("constraints", constraints), lambda: replace(self, constraints=constraints)
        )

    @property
    def is_constrained(self) -> bool:
        """True if answers use more than the noisy sums."""
        schema = self.measurements.schema
        return self.constraints != "none" and (schema.is_linked or bool(self.totals))

    @property
    def totals(self) -> tuple[CompiledTotal, ...]:
        """Public totals of the table that answers use."""
        use = self.constraints == "totals"
        return compile_totals(self.measurements.schema) if use else ()

    def possible_cells(self, columns: Sequence[Column]) -> Mask | None:
        """Cells of some columns that are possible under the rules in use; None where all are."""
        use = self.constraints != "none"
        return possible_cells(self.measurements.schema, columns) if use else None

    @property
    def blocks(self) -> tuple[NoisyBlock, ...]:
        """The measured blocks, with the count of rows if it was measured."""
        return self.measurements.sources

    @cached_property
    def n(self) -> int | None:
        """The number of rows where it is public."""
        return self.measurements.rows.exact

    @cached_property
    def scales(self) -> Floats:
        """Noise scales of all measured functions."""
        return np.concatenate([noisy.scales for noisy in self.blocks])

    @cached_property
    def sums(self) -> Codes:
        """Noisy sums of all measured functions."""
        return np.concatenate([noisy.sums for noisy in self.blocks])

    @property
    def size(self) -> int:
        """Number of measured functions."""
        return len(self.sums)

    @cached_property
    def _laws(self) -> tuple[list[LatticeLaw], NDArray[np.intp]]:
        distinct, which = np.unique(self.scales, return_inverse=True)
        return [self.measurements.budget.law(float(scale)) for scale in distinct], which

    @property
    def laws(self) -> list[LatticeLaw]:
        """The distinct noise laws."""
        return self._laws[0]

    @property
    def law_of(self) -> NDArray[np.intp]:
        """Which law each measured function has."""
        return self._laws[1]

    @cached_property
    def variances(self) -> Floats:
        """Noise variances, above zero: with a huge budget one underflows, and it is divided by."""
        variances = np.maximum([law.variance for law in self.laws], _LEAST_VARIANCE)
        return np.asarray(variances[self.law_of])

    @cached_property
    def starts(self) -> list[int]:
        """Number of the first function of each block."""
        sizes = [noisy.block.size for noisy in self.blocks]
        return [int(start) for start in np.cumsum([0, *sizes])[:-1]]

    @cached_property
    def _index(self) -> BlockIndex:
        return BlockIndex([noisy.block for noisy in self.blocks])

    @cached_property
    def tables(self) -> OverlappingTables:
        """All measured tables and residuals of tables."""
        tables = [
            MeasuredTable(
                noisy.block.columns,
                noisy.sums.reshape(noisy.block.shape).astype(np.float64),
                float(self.variances[start]),
                start,
                isinstance(noisy.block, Residual),
            )
            for noisy, start in zip(self.blocks, self.starts, strict=True)
            if isinstance(noisy.block, Table | Residual)
        ]
        tables += [
            MeasuredTable((sets,), self.sums[start:][: block.size].astype(np.float64),
                          float(self.variances[start]), start)
            for start, block, sets in self._partitions
        ]  # fmt: skip
        return OverlappingTables(tables, self.n)

    @cached_property
    def _partitions(self) -> list[tuple[int, Partition, Column]]:
        """Partitions of all rows: first function, block, and a column with a level for each set."""
        found, schema = list[tuple[int, Partition, Column]](), self.measurements.schema
        for noisy, start in zip(self.blocks, self.starts, strict=True):
            block = noisy.block
            if isinstance(block, Partition) and block.are_conditions(schema):
                if block.derive(ROWS) is None:
                    continue
                name = f"sets of cells {start}"
                while name in schema:
                    name += "'"
                found.append((start, block, Category(name, list(map(str, range(block.size))))))
        return found

    @cached_property
    def rows(self) -> RowCount:
        """The number of rows; where it was measured, also as the total of tables and sets."""
        k = self.measurements.rows_per_person
        if self.n is not None:
            return RowCount(float(self.n), rows_per_person=k)
        estimate = self.best(ROWS, disjoint=False)
        law = law_of_key(self.measurements, estimate.laws[0])
        strategy = self.measurements.strategy
        return RowCount(
            float(estimate.sums[0]),
            law,
            k,
            weight=strategy.row_weight,
            of_table=strategy.public_rows,
        )

    @cached_property
    def weights_of_count(self) -> Floats:
        """Weights (measured functions,) of their noises in the estimated number of rows."""
        if self.n is not None:
            return np.zeros(self.size)
        return np.asarray(self.best(ROWS, disjoint=False).rows([0])[0], dtype=np.float64)

    def joint_key(self, row: Floats) -> JointKey:
        """Joint law of the noise of a sum, a row of weights, and of the number of rows."""
        count = self.weights_of_count
        used = np.flatnonzero((np.abs(row) > _NO_WEIGHT) | (np.abs(count) > _NO_WEIGHT))
        # the noise is symmetric, so both signs may change together
        sign = np.where(row[used] < -_NO_WEIGHT, -1.0, 1.0)
        # Pairs as complex numbers, which sort far faster than columns do.
        pairs = np.round(sign * row[used], 12) + 1j * np.round(sign * count[used], 12)
        distinct, which = np.unique(pairs, return_inverse=True)
        counts = np.zeros((len(distinct), len(self.laws)), dtype=np.int64)
        np.add.at(counts, (which, self.law_of[used]), 1)
        return tuple(
            (
                float(distinct[i].real),
                float(distinct[i].imag),
                self.laws[j].scale,
                int(counts[i, j]),
            )
            for i, j in np.argwhere(counts).tolist()
        )

    def as_measured(self, block: Block) -> Block:
        """The block itself, or what was measured in its place; see `Block.settles`."""
        every = (*self.measurements.measured, *self.measurements.scores)
        return next((noisy.block for noisy in every if noisy.block.settles(block)), block)

    def best(self, block: Block, *, disjoint: bool) -> BlockEstimate:
        """The best single source, or the combination of several where it has less variance.

        With `disjoint` the combination only where there is no single source. The number of rows
        never rests on totals, since what is certified needs it.
        """
        if block == ROWS and self.totals:
            return self.with_constraints("rules").best(block, disjoint=disjoint)
        if isinstance(block, Indicator) and self._holds_always(block):
            return self._all_rows()
        if isinstance(block, Indicator) and self.n is not None:
            for total in self.totals:
                if cell_set(total.columns, total.counted) == block.cells:
                    return self._exact(float(total.total.count))
        estimate = self._single(block, complements=not disjoint and self.n is not None)
        impossible = self.impossible(block)
        if impossible.any():
            estimate.fix(impossible, np.zeros(block.size))
        single = not np.any(np.isinf(estimate.variances))
        if not (disjoint and single) and isinstance(block, Table | Indicator):
            combined = self._combined(block)
            if combined is not None and np.any(
                combined.variances < estimate.variances * (1 - _GAIN)
            ):
                # A uniform of one source is independent of every noise, so it serves both.
                combined.uniforms = np.where(
                    np.isinf(estimate.variances), combined.uniforms, estimate.uniforms
                )
                estimate = combined
                if impossible.any():
                    estimate.fix(impossible, np.zeros(block.size))
        if np.any(np.isinf(estimate.variances)):
            raise _not_measured(block, estimate.variances)
        return estimate

    def impossible(self, block: Block) -> Mask:
        """Which functions of a block (d,) are zero in every row that the rules allow."""
        tabled = isinstance(block, Table | Indicator)
        possible = self.possible_cells(block.columns) if tabled else None
        if possible is None:
            return np.zeros(block.size, np.bool_)
        if isinstance(block, Indicator):
            return np.array([not np.any(block.cells.array & possible)])
        return ~possible.ravel()

    def _holds_always(self, condition: Indicator) -> bool:
        possible = self.possible_cells(condition.columns)
        return possible is not None and bool(np.all(condition.cells.array >= possible))

    def _all_rows(self) -> BlockEstimate:
        """The number of rows, as the sum of a function that is one in every row."""
        return self.best(ROWS, disjoint=False) if self.n is None else self._exact(float(self.n))

    def _exact(self, count: float) -> BlockEstimate:
        zero, uniform = np.zeros(1), self._stored_uniforms.sum()
        return BlockEstimate(
            zero + count, zero, zero + uniform - np.rint(uniform), [_EXACT],
            lambda chosen: np.zeros((len(chosen), self.size)),
        )  # fmt: skip

    @cached_property
    def _possible(self) -> Mask:
        """Which of the measured functions are not zero in every row that the rules allow."""
        return ~np.concatenate([self.impossible(noisy.block) for noisy in self.blocks])

    def _single(self, wanted: Block, *, complements: bool) -> BlockEstimate:
        """Every function from one measured block: sums of its cells, exact integers."""
        estimate = BlockEstimate(
            np.zeros(wanted.size),
            np.full(wanted.size, np.inf),
            np.zeros(wanted.size),
            [((1.0, 1.0, 1),)] * wanted.size,
            lambda chosen: _rows_of(chosen, members, signs, self.size),
        )
        members = [np.zeros(0, np.int64)] * wanted.size
        signs = [1] * wanted.size
        for i in sorted(self._index.of(wanted)):
            noisy, start = self.blocks[i], self.starts[i]
            derivation = noisy.block.derive(wanted, complements=complements)
            if derivation is None:
                continue
            order = np.argsort(derivation.member, kind="stable")
            first = np.searchsorted(derivation.member[order], np.arange(wanted.size + 1))
            possible = self._possible[start : start + noisy.block.size]
            sums = derivation.apply(np.where(possible, noisy.sums, 0), self.n or 0)
            for f in np.flatnonzero(derivation.terms > 0):
                # Members of a wanted function are cells of a table, or one moment: equal scales.
                member = order[first[f] : first[f + 1]]
                member = member[possible[member]] if not possible[member].all() else member
                if not len(member):  # the function is zero in every row, or one
                    continue
                variance = self.variances[start + member[0]] * len(member)
                if variance >= estimate.variances[f]:
                    continue
                estimate.variances[f], estimate.sums[f] = variance, sums[f]
                uniform = derivation.sign * noisy.uniforms[member].sum()
                estimate.uniforms[f] = uniform - np.rint(uniform)  # uniform again, modulo one
                estimate.laws[f] = ((1.0, float(noisy.scales[member[0]]), len(member)),)
                members[f], signs[f] = start + member, derivation.sign
        return estimate

    def _combined(self, wanted: Table | Indicator) -> BlockEstimate | None:
        """All tables together, then the facts about sums that they estimate."""
        if not self.tables.tables:
            return None
        small = wanted.size * self.size <= LARGEST_UPDATE
        facts = self._facts_about(wanted.columns) if small else None
        if isinstance(wanted, Table) and facts is None:
            estimate = self._combined_table(wanted)
            if estimate is not None:
                return estimate
        if not small:
            return None
        weighted = self._weighted(*self._tabled(wanted))
        if weighted is None:
            return None
        rows, sums = weighted
        exact = np.zeros(len(rows), np.bool_)
        if facts is not None:
            least = np.minimum(rows**2 @ self.variances, facts.least_variance)
            rows, sums = facts.improve(rows, sums)
            exact = rows**2 @ self.variances <= _REDUNDANT * least
            if self.n is None and self.totals and np.any(exact & ~self.impossible(wanted)):
                return self.with_constraints("rules")._combined(wanted)
        uniforms = self._uniforms_of_cells(wanted) if isinstance(wanted, Table) else None
        if uniforms is None:
            stored = self._stored_uniforms
            uniforms = np.where(exact, stored.sum(), (np.abs(rows) > _NO_WEIGHT) @ stored)
        estimate = BlockEstimate(
            sums,
            rows**2 @ self.variances,
            uniforms - np.rint(uniforms),
            [self._key(row) for row in rows],
            lambda chosen: rows[chosen],
        )
        if exact.any():
            estimate.fix(exact, np.rint(sums) + 0.0)  # no -0
        return estimate

    def _conditions_of(self, block: Block) -> tuple[Indicator, ...]:
        """The conditions that a block measures."""
        if isinstance(block, Partition) and block.are_conditions(self.measurements.schema):
            return block.conditions
        return (block,) if isinstance(block, Indicator) else ()

    def _tabled(self, wanted: Table | Indicator) -> tuple[tuple[Column, ...], Floats]:
        """Columns, and a block's functions (d, bins...) of them; of sets of rows if it follows."""
        if isinstance(wanted, Indicator):
            for _, block, sets in self._partitions:
                if (derivation := block.derive(wanted)) is not None:
                    return (sets,), (derivation.member == 0)[np.newaxis].astype(np.float64)
        return wanted.columns, _functions_of(wanted)

    def _combined_table(self, wanted: Table) -> BlockEstimate | None:
        """All cells of a table by residuals, never as a matrix; they have the same law."""
        if not wanted.columns and self.n is not None:
            return self._exact(float(self.n))
        estimate = self.tables.table(wanted.columns)
        if estimate is None:
            return None

        def rows_of(chosen: Sequence[int]) -> Floats:
            rows = self.tables.rows(wanted.columns, _cells_of(wanted, chosen), self.size)
            assert rows is not None  # the table can be estimated
            return rows

        row, uniforms = rows_of([0])[0], self._uniforms_of_cells(wanted)
        assert uniforms is not None  # the table is held
        return BlockEstimate(
            estimate.ravel(),
            np.full(wanted.size, row**2 @ self.variances),
            uniforms - np.rint(uniforms),
            [self._key(row)] * wanted.size,
            rows_of,
        )

    def _uniforms_of_cells(self, wanted: Table) -> Floats | None:
        """Uniforms of the cells of some columns, from a block that holds them; None without one.

        They are sums over its other columns: no two cells share one, so that modulo one they are
        independent, as well as of all counts and noises.
        """
        holding = self.tables.shares(frozenset(wanted.columns))
        if not holding:
            return None
        held = holding[0][0]
        own = self._stored_uniforms[held.start :][: held.counts.size].reshape(held.counts.shape)
        others = tuple(i for i, c in enumerate(held.columns) if c not in wanted.columns)
        return np.asarray(own.sum(axis=others)).ravel()

    @cached_property
    def _stored_uniforms(self) -> Floats:
        """Uniforms of all measured functions."""
        return np.concatenate([noisy.uniforms for noisy in self.blocks])

    def _weighted(
        self, columns: tuple[Column, ...], functions: Floats
    ) -> tuple[Floats, Floats] | None:
        """Weights (d, measured functions) and estimates (d,) of functions from all tables.

        Where tables do not give them, a column that follows from another is replaced by that one.
        """
        weighted = self._weighted_as_asked(columns, functions)
        for by, column, follows in self._determined:
            if weighted is None and column in columns:
                return self._weighted(*self._read_off(columns, functions, by, column, follows))
        return weighted

    def _weighted_as_asked(
        self, columns: tuple[Column, ...], functions: Floats
    ) -> tuple[Floats, Floats] | None:
        rows = self.tables.rows(columns, functions, self.size)
        if rows is None:
            return None
        level = (self.n or 0) * functions.reshape(len(rows), -1).mean(axis=1)
        return rows, np.asarray(level + rows @ self.sums)

    def _read_off(
        self, columns: tuple[Column, ...], functions: Floats,
        by: Column, column: Column, follows: Codes,
    ) -> tuple[tuple[Column, ...], Floats]:  # fmt: skip
        """Functions of a column that follows from another, of that one instead (eq. read-off)."""
        axis = 1 + columns.index(column)
        of_by = np.take(functions, follows, axis=axis)
        axes = [by if c == column else c for c in columns]
        if by in columns:  # it has two axes now
            of_by = np.diagonal(of_by, axis1=1 + columns.index(by), axis2=axis)
            axes = [*(c for c in columns if c not in (by, column)), by]
        order = tuple(c for c in self.measurements.schema if c in axes)
        return order, of_by.transpose(0, *(1 + axes.index(c) for c in order))

    @cached_property
    def _determined(self) -> list[tuple[Column, Column, Codes]]:
        """Columns that follow from another in every row: that one, the column, and its bins."""
        use = self.constraints != "none"
        return determined_bins(self.measurements.schema) if use else []

    def _facts_about(self, columns: tuple[Column, ...]) -> _Facts | None:
        linked = self._linked_to(columns)
        return self._once(("facts", linked), lambda: self._facts(linked))

    def _linked_to(self, columns: tuple[Column, ...]) -> tuple[int, ...]:
        """Numbers of the measured blocks whose facts are used in answers about some columns.

        All linked blocks, if they have up to `MOST_LINKED` cells. Otherwise the nearest of those
        that have only these columns, or have all of them.
        """
        linked, own = self._links(columns)
        sizes = {i: self.blocks[i].block.size for i in linked}
        if sum(sizes.values()) > MOST_LINKED:
            wanted = {c.name for c in columns}
            nearest = sorted(linked, key=lambda i: (not own[i] <= wanted, len(own[i] - wanted)))
            about = [i for i in nearest if own[i] <= wanted or own[i] >= wanted]
            cells = np.cumsum([sizes[i] for i in about])
            linked = set(about[: int(np.searchsorted(cells, MOST_LINKED, side="right"))])
        return tuple(sorted(linked))

    def _links(self, columns: tuple[Column, ...]) -> tuple[set[int], dict[int, set[str]]]:
        """Numbers of the blocks that share a column, even through others; names by block.

        Where the number of rows is estimated all are linked: they share it.
        """
        names, linked = {c.name for c in columns}, set[int]()
        own = {
            i: {c.name for c in noisy.block.columns}
            for i, noisy in enumerate(self.blocks)
            if isinstance(noisy.block, Table | Residual | Indicator)
            or self._conditions_of(noisy.block)
        }
        if self.n is None:
            linked = set(own)
        while more := {i for i in own if i not in linked and own[i] & names}:
            linked |= more
            names = names.union(*(own[i] for i in more))
        return linked, own

    def constraint_notes(self, columns: tuple[Column, ...]) -> list[str]:
        """Notes on how answers about some columns use rules and totals."""
        schema = self.measurements.schema
        if self.constraints == "none" or not (schema.rules or schema.views or schema.totals):
            return []
        linked, own = self._links(columns)
        names = {c.name for c in columns}.union(*(own[i] for i in linked))
        notes = [
            f"the noisy answers contradict a public total: if it is right that {compiled.total}, "
            "noise this large occurs less than once in a thousand times; answers that use the "
            "total may be wrong"
            for compiled in self.contradicted
            if not columns or compiled.names & names
        ]
        cells = sum(self.blocks[i].block.size for i in linked)
        if cells > MOST_LINKED:
            notes.append(
                f"the linked tables have {cells:,} cells, more than {MOST_LINKED:,}: these answers "
                "do not use rules and totals about other columns, and have more noise than the "
                "best ones"
            )
        return notes

    @cached_property
    def contradicted(self) -> tuple[CompiledTotal, ...]:
        """Totals in use that the answers without totals are too far from."""
        contradicted, without = [], self.with_constraints("rules")
        for compiled in self.totals:
            total = compiled.total
            condition = Indicator(cell_set(compiled.columns, compiled.counted), str(total))
            try:
                estimate = without.best(condition, disjoint=False)
            except NotMeasuredError:
                continue
            law = law_of_key(self.measurements, estimate.laws[0])
            distance = abs(float(estimate.sums[0]) - total.count)
            if float(law.tail(distance)) < bonferroni(BEYOND_CHANCE, len(self.totals)):
                contradicted.append(compiled)
        return tuple(contradicted)

    def _facts(self, linked: tuple[int, ...]) -> _Facts | None:
        """Measured conditions, impossible cells, determined columns and totals of some blocks."""
        facts: list[tuple[Floats, Floats, int]] = []  # rows, discrepancies, measured_by

        def add(columns: tuple[Column, ...], functions: Floats, sums: Floats,
                measured_by: int = -1) -> None:  # fmt: skip
            weighted = self._weighted_as_asked(columns, functions)
            if weighted is not None:
                facts.append((weighted[0], sums - weighted[1], measured_by))

        seen = set[tuple[Column, ...]]()
        for i in linked:
            block, start = self.blocks[i].block, self.starts[i]
            conditions = self._conditions_of(block)
            for f, condition in enumerate(conditions, start):
                noisy = self.sums[[f]].astype(np.float64)
                add(condition.columns, _functions_of(condition), noisy, measured_by=f)
            if not conditions and block.columns not in seen and self.constraints != "none":
                seen.add(block.columns)
                table = Table(block.columns)
                zeros = np.flatnonzero(self.impossible(table)).tolist()
                if zeros:
                    add(table.columns, _cells_of(table, zeros), np.zeros(len(zeros)))
                for by, column, follows in self._determined:
                    if column in table.columns and by not in table.columns:
                        cells = _functions_of(table)
                        read_off = self._read_off(table.columns, cells, by, column, follows)
                        direct = self._weighted_as_asked(table.columns, cells)
                        other = self._weighted_as_asked(*read_off)
                        if direct is not None and other is not None:
                            facts.append((direct[0] - other[0], other[1] - direct[1], -1))
        names = {c.name for i in linked for c in self.blocks[i].block.columns}
        for total in self.totals:
            if total.names <= names:
                function = total.counted[np.newaxis].astype(np.float64)
                add(total.columns, function, np.array([float(total.total.count)]))
        if not facts:
            return None
        rows, discrepancies, measured_by = zip(*facts, strict=True)
        return _Facts(
            np.concatenate(rows),
            np.concatenate(discrepancies),
            np.repeat(measured_by, [len(part) for part in rows]),
            self.variances,
        )

    def _key(self, row: Floats) -> LawKey:
        """Law of a combination, equal weights (up to sign: the noise is symmetric) together."""
        used = np.flatnonzero(np.abs(row) > _NO_WEIGHT)
        pairs = np.round(np.abs(row[used]), 12) + 1j * self.scales[used]
        distinct, counts = np.unique(pairs, return_counts=True)
        return (
            tuple(
                (pair.real, pair.imag, count)
                for pair, count in zip(distinct.tolist(), counts.tolist(), strict=True)
            )
            or _EXACT
        )


def _rows_of(
    chosen: Sequence[int], members: Sequence[Codes], signs: Sequence[int], size: int
) -> Floats:
    rows = np.zeros((len(chosen), size))
    for row, f in zip(rows, chosen, strict=True):
        row[members[f]] = signs[f]
    return rows


def _functions_of(wanted: Table | Indicator) -> Floats:
    """Values (d, bins of each column...) of the functions on the cells of their columns."""
    if isinstance(wanted, Table):
        return _cells_of(wanted, range(wanted.size))
    return wanted.cells.array[np.newaxis].astype(np.float64)


def _cells_of(table: Table, chosen: Sequence[int]) -> Floats:
    functions = np.zeros((len(chosen), table.size))
    functions[np.arange(len(chosen)), list(chosen)] = 1
    return functions.reshape(-1, *table.shape)


def _not_measured(wanted: Block, variances: Floats) -> NotMeasuredError:
    lacking = [name for name, v in zip(wanted.names, variances, strict=True) if np.isinf(v)]
    columns = ", ".join(repr(column.name) for column in wanted.columns)
    return NotMeasuredError(
        f"this release has no measurement of {columns or 'all rows'} that gives "
        f"{first_few(lacking, 1)}; release.measured() lists what there is, and the custodian can "
        "plan it"
    )
