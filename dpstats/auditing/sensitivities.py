"""What a row was seen to change, against what a plan claims: block by block, and all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpstats.arrays import Floats
from dpstats.auditing.findings import BlockAudit, LossAudit
from dpstats.auditing.pairs import (
    Distance,
    Pair,
    Rows,
    columns_of,
    farthest,
    random_rows,
    row_at,
    sums_of_rows,
)
from dpstats.checks import Progress
from dpstats.families.block import Block
from dpstats.measured.contents import kind_of
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.privacy.laws import POWERS

_TOGETHER = 64  # rows whose sums are compared with those of each
_PILOTS = (0.0, 1.0, -3.0, np.inf)  # coefficients of a second stage that comes later; any may come


@dataclass(frozen=True)
class Tables:
    """Two neighbouring tables, and what is measured of them.

    Attributes
    ----------
    blocks : tuple of PlannedBlock
        Those of the plan, at the pilot that was worst.
    sums : pair of lists of (d,) int64
        Of each block over the first table, and over the other.
    """

    blocks: tuple[PlannedBlock, ...]
    sums: tuple[list[np.ndarray[Any, np.dtype[np.int64]]], ...]


def audit_blocks(
    strategy: Strategy, rng: np.random.Generator, progress: Progress | None = None
) -> tuple[list[BlockAudit], LossAudit, Tables]:
    """Search for the largest change of every block, and for the largest loss of them all.

    The search compares floats. What it finds is computed again in rationals, from the sums that
    would be measured and the scales of the noise as they are drawn.
    """
    found: list[BlockAudit] = []
    pairs: list[Pair] = []
    worst: list[PlannedBlock] = []
    for number, planned in enumerate(strategy.blocks):
        if progress is not None:
            progress("looking for rows that change the sums most", number, len(strategy.blocks) + 1)
        pilots = [planned.at(c) for c in _PILOTS] if planned.pending else [planned]
        tried = [(_of_block(strategy, one.block, rng), one) for one in pilots]
        (audited, pair), one = max(tried, key=lambda result: result[0][0].reached)
        found.append(audited)
        pairs.append(pair)
        worst.append(one)
    loss, tables = _of_plan(replace(strategy, blocks=tuple(worst)), pairs, rng)
    return found, loss, tables


def _of_block(
    strategy: Strategy, block: Block, rng: np.random.Generator
) -> tuple[BlockAudit, Pair]:
    power = POWERS[strategy.budget.noise]
    columns = columns_of(strategy.columns, [block])
    pair = farthest(
        Distance((block,), (1 / block.bounds,), power),
        columns,
        replaced=strategy.unit == "replace",
        rng=rng,
    )
    moved = _moved(block, pair, strategy.rows_per_person)
    reached = _size(moved, block.bounds.tolist(), power)
    claimed = block.moved_by(strategy.neighbours)
    return BlockAudit(
        kind=kind_of(block),
        first_function=block.names[0],
        functions=block.size,
        rows=pair.tried,
        every=pair.every and block.degree == 1,  # persons may have different rows
        reached=reached,
        claimed=claimed.l1 if power == 1 else claimed.l2_squared,
        additive=_adds(block, random_rows(columns, _TOGETHER, rng)),
    ), pair


def _of_plan(
    strategy: Strategy, pairs: Sequence[Pair], rng: np.random.Generator
) -> tuple[LossAudit, Tables]:
    """The privacy loss: changes over scales, or their squares over twice the squared scales."""
    power = POWERS[strategy.budget.noise]
    blocks = tuple(planned.block for planned in strategy.blocks)
    scales, k = strategy.block_scales, strategy.rows_per_person
    pair = farthest(
        Distance(
            blocks, tuple(k**b.degree / s for b, s in zip(blocks, scales, strict=True)), power
        ),
        columns_of(strategy.columns, blocks),
        replaced=strategy.unit == "replace",
        rng=rng,
        starts=pairs,
    )
    moved = [change for block in blocks for change in _moved(block, pair, k)]
    reached = _size(moved, np.concatenate(scales).tolist(), power) / power
    sums = tuple(
        [k**block.degree * np.array(sums_of_rows(block, side), dtype=np.int64) for block in blocks]
        for side in (pair.row, pair.other)
    )
    audited = LossAudit(reached, strategy.budget.total, pair.every)
    return audited, Tables(strategy.blocks, sums)


def _size(moved: Sequence[int], units: Sequence[float], power: int) -> Fraction:
    """The exact sum of changes, each in its unit, or of their squares."""
    of_unit: dict[float, int] = {}
    for change, unit in zip(moved, units, strict=True):
        of_unit[unit] = of_unit.get(unit, 0) + change**power
    parts = (total / Fraction(unit) ** power for unit, total in of_unit.items())
    return sum(parts, Fraction(0))


def _moved(block: Block, pair: Pair, rows: int) -> list[int]:
    """Changes (d,) of the sums by a person with so many rows, all equal."""
    sides = sums_of_rows(block, pair.row), sums_of_rows(block, pair.other)
    return [rows**block.degree * abs(a - b) for a, b in zip(*sides, strict=True)]


def _adds(block: Block, rows: Rows) -> bool:
    """Whether sums over rows are those of every row by itself, which are what was searched."""
    searched: Floats = Distance((block,), (np.ones(block.size),), 1).values(rows)[0]
    single = [sums_of_rows(block, row_at(rows, i)) for i in range(len(searched))]
    together = [sum(column) for column in zip(*single, strict=True)]
    return np.array_equal(np.rint(searched), single) and sums_of_rows(block, rows) == together
