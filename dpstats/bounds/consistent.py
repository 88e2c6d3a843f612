"""The tables that agree with a release, as far as a question is concerned.

What is kept are functions of a few columns: those of the question, and more where the domain stays
small. Their sums are within bounds that hold jointly with probability 1 - alpha, so the private
table is among those that agree with them; to leave out functions, or columns, only adds tables.

Alpha is divided by a rule that knows no answer. Most is for the least measurable sets around the
rows that a question counts, and the largest inside them: those limit it by themselves. As much is
for sums over groups of rows, which follow from measured ones; see `group_totals`. Bounds on single
cells add up over the levels that a question does not distinguish. So the next part is for tables of
the levels merged as the question merges them, which have a noise of their own, and only the last
for tables of all levels, where the domain is small enough for a program over them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.questions import Interval, Question
from dpstats.arrays import Codes, Floats, within
from dpstats.bounds.group_totals import (
    Sums,
    joint_ends,
    known_from,
    sets_of_rows,
    sums_that_follow,
    that_tell_groups,
)
from dpstats.bounds.programs import Program
from dpstats.error_rates import for_program
from dpstats.families.block import Block, Family
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import ROWS, Indicator, Table
from dpstats.measured.answers import answer, joint_noise_quantiles
from dpstats.measured.combining import Sources
from dpstats.rows.gibbs import Support
from dpstats.schema import Column, Number
from dpstats.schema.conditions import MAX_CELLS, cell_set
from dpstats.schema.repairs import compile_rules

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_MOST_COMPARED = 200_000  # states of a question that are gone through to merge levels
MOST_STATES = 12_000  # of a program
SMALL = 500  # states up to which the columns that a question does not name are kept too
MOST_POSSIBLE = 200_000  # the same where levels cannot be merged
MOST_MERGED = 2_000  # cells of a table of merged levels
_MOST_SUBSETS = 4  # columns of a measured table of which all margins are used
_ROUNDING = 1e-6  # of a sum, before it is rounded to a whole number
Blocks = list[Block]


@dataclass(frozen=True, eq=False)
class States:
    """States of some columns: every combination of one code of each."""

    columns: tuple[Column, ...]
    codes: tuple[Codes, ...]  # that serve as states of each column

    @property
    def size(self) -> int:
        """Number of states, m."""
        return math.prod(len(codes) for codes in self.codes)

    def points(self) -> dict[str, Codes]:
        """Column name -> (m,) codes, in C order."""
        grid = np.meshgrid(*self.codes, indexing="ij") if self.codes else []
        return {c.name: g.ravel() for c, g in zip(self.columns, grid, strict=True)}


def codes_of(column: Column, coded: bool) -> Codes:
    """Codes that serve as states: all of them, or one in every bin."""
    return Support.of(column, coded).codes


def merged_levels(
    sources: Sources, question: Question, measured: Family, columns: tuple[Column, ...]
) -> dict[Column, Codes]:
    """Number of each bin by column: bins with one number are not distinguished.

    Neither by the question, nor by measured conditions, groups, rules or totals.
    """
    arrays: list[tuple[tuple[Column, ...], NDArray[Any]]] = [
        (block.columns, block.cells.array)
        for block in measured.blocks
        if isinstance(block, Indicator) and set(block.columns) <= set(columns)
    ]
    arrays += sets_of_rows(measured, columns)
    rules = compile_rules(sources.measurements.schema) if sources.constraints != "none" else ()
    arrays += [
        (statement.columns, statement.cells())
        for statement in (*rules, *sources.totals)
        if set(statement.columns) <= set(columns)
    ]
    own = question.columns
    states = States(own, tuple(codes_of(c, c in question.coded) for c in own))
    compared = not question.coded or states.size <= _MOST_COMPARED
    if own and compared:
        shape = [len(codes) for codes in states.codes]
        arrays += [(own, part.reshape(shape)) for part in question.parts(states.points())]
    return {
        column: np.arange(column.bins)
        if column in question.coded or (column in own and not compared)
        else _numbered(column, arrays)
        for column in columns
    }


def _numbered(column: Column, arrays: Sequence[tuple[tuple[Column, ...], NDArray[Any]]]) -> Codes:
    slices = [  # + 0: of -0 and 0 the bytes would differ
        np.moveaxis(array + 0, own.index(column), 0) for own, array in arrays if column in own
    ]
    number_of: dict[tuple[bytes, ...], int] = {}
    return np.array(
        [
            number_of.setdefault(tuple(slab[i].tobytes() for slab in slices), len(number_of))
            for i in range(column.bins)
        ],
        dtype=np.int64,
    )


def state_codes(column: Column, coded: set[str], question: Question) -> Codes:
    """Codes of a column that serve as states.

    All where functions depend on them. Where only the question does and is monotone on either side
    of 0, it has its extremes at the first and the last of each bin, and next to 0.
    """
    asked = column in question.coded
    if column.name in coded or not asked or not question.monotone:
        return codes_of(column, asked or column.name in coded)
    assert isinstance(column, Number)
    codes = column.codes_in_use
    middle = [codes[codes <= 0][-1:], codes[codes >= 0][:1]]
    return np.unique(np.concatenate([*column.bin_codes, *middle]))


def first_of(column: Column, numbers: Codes) -> Codes:
    """One code of every set of merged bins."""
    _, first = np.unique(numbers, return_index=True)
    return codes_of(column, False)[first]


class TooManyStates(Exception):
    """A question distinguishes more combinations of levels than a program may have."""


@dataclass(frozen=True, eq=False)
class Consistent:
    """The tables that agree with some measured functions."""

    program: Program  # over m states of some columns
    numerator: Floats  # (m,) the question in these states
    denominator: Floats
    known_from: str  # the columns of the functions whose sums are bounded


def possible_range(sources: Sources, question: Question) -> Interval:
    """Extremes of a question over all states that the rules allow, where these are few."""
    states = States(
        question.columns, tuple(state_codes(c, set(), question) for c in question.columns)
    )
    if not question.columns or states.size > MOST_POSSIBLE:
        return question.range
    numerator, denominator = question.parts(states.points())
    allowed = _allowed(sources, states, {})
    inside = (denominator > 0) & allowed
    if not inside.any():  # no row can be in the group
        return question.range
    values = numerator[inside]
    low, high = float(values.min()), float(values.max())
    outside = (denominator <= 0) & allowed
    beyond = bool(np.any(numerator[outside] != 0))  # rows that only the numerator counts
    return max(low, question.range[0]), question.range[1] if beyond else high


def _allowed(sources: Sources, states: States, merged: Mapping[Column, Codes]) -> NDArray[np.bool_]:
    """Which states (m,) have a row that the rules allow, in any of the bins merged with theirs."""
    columns, shape = states.columns, [column.bins for column in states.columns]
    possible = sources.possible_cells(columns) if math.prod(shape) <= MAX_CELLS else None
    if possible is None:
        return np.ones(states.size, np.bool_)
    allowed: NDArray[Any] = possible
    for axis, (column, codes) in enumerate(zip(columns, states.codes, strict=True)):
        number_of = np.arange(column.bins)
        if column in merged and np.array_equal(codes, first_of(column, merged[column])):
            number_of = merged[column]
        same = (number_of[column.bins_of(codes)][:, np.newaxis] == number_of).astype(float)
        allowed = np.moveaxis(np.tensordot(same, allowed, axes=(1, axis)), 0, axis) > 0
    return np.asarray(allowed.ravel(), dtype=np.bool_)


def touched(sources: Sources, columns: Iterable[Column]) -> bool:
    """True if some measured function, or a total that is used, depends on one of these columns."""
    names = set(sources.measurements.published.answering.column_names)
    names = names.union(*(total.names for total in sources.totals))
    return not names.isdisjoint(column.name for column in columns)


def consistent(sources: Sources, question: Question, alpha: float) -> Consistent:
    """Tables that agree with a release with probability 1 - alpha, for one question.

    Eq. tables-that-agree of docs/explanation/inference/what-a-release-can-answer.md.
    Which functions are used depends on what was measured and on the question, never on an answer.
    TooManyStates if the question distinguishes more combinations of levels than a program may have.
    """
    measured = sources.measurements.published.answering
    columns = _columns_for(sources, measured, question)
    merged = merged_levels(sources, question, measured, columns)
    coarse = _of_merged(sources, measured, columns, merged)
    fine, totals, states = _fine(sources, measured, question, columns, merged)
    around = _around(question, measured, merged)
    shares = for_program(alpha, [bool(kind) for kind in (around, totals, coarse, fine)])
    found, rows = [], None
    for blocks, share in ((around, shares[0]), (coarse, shares[2]), (fine, shares[3])):
        if blocks:
            found.append(_ends(sources, blocks, share, rows))
            rows = found[-1][2]
    if totals:
        low, high, count = joint_ends(sources, totals, shares[1], with_count=rows is None)
        rows = rows or count or _public(sources)
        found.append((*_limits([one.block for one in totals], low, high, rows), rows))
    if rows is None:
        found.append(_ends(sources, [], alpha, None))
        rows = found[-1][2]
    names = {c.name for c in columns}
    public = [total for total in sources.totals if total.names <= names]
    counts = np.array([float(compiled.total.count) for compiled in public])
    found.append((counts, counts, rows))
    blocks = [*around, *coarse, *fine, *(one.block for one in totals)]
    blocks += [Indicator(cell_set(t.columns, t.counted), "total") for t in public]
    points = states.points()
    allowed = np.flatnonzero(_allowed(sources, states, merged))
    points = {name: codes[allowed] for name, codes in points.items()}
    numerator, denominator = question.parts(points)
    lows, highs, _ = zip(*found, strict=True)
    return Consistent(
        Program(
            _matrix(blocks, points, len(allowed)), np.concatenate(lows), np.concatenate(highs), rows
        ),
        numerator,
        denominator,
        known_from(sources, [*around, *coarse, *fine, *(one.block for one in totals)]),
    )


def _matrix(blocks: Blocks, points: dict[str, Codes], size: int) -> csr_array[Any]:
    from scipy import sparse

    if not blocks:
        return sparse.csr_array((0, size))
    every = sparse.csr_array(np.ones((1, size)))  # of no columns: all rows
    rows = [block.evaluate(points).matrix() if block.columns else every for block in blocks]
    stacked: csr_array[Any] = sparse.vstack(rows, format="csr")
    return stacked


def _ends(
    sources: Sources, blocks: Blocks, alpha: float, rows: tuple[float, float] | None
) -> tuple[Floats, Floats, tuple[float, float]]:
    """Whole-number bounds on the sums, and jointly on the number of rows if it is unknown."""
    if sources.n is not None:
        rows = _public(sources)
    counted = rows is None
    if not blocks and rows is not None:
        return np.empty(0), np.empty(0), rows
    answers = answer(sources, blocks or [ROWS], with_count=counted and bool(blocks))
    q = joint_noise_quantiles(answers, alpha)
    low = np.ceil(answers.sums - q - _ROUNDING)
    high = np.floor(answers.sums + q + _ROUNDING)
    size = sum(block.size for block in blocks)
    if rows is None:
        rows = (max(1.0, low[-1]), max(1.0, high[-1]))
    return (*_limits(blocks, low[:size], high[:size], rows), rows)


def _public(sources: Sources) -> tuple[float, float]:
    assert sources.n is not None
    return float(sources.n), float(sources.n)


def _limits(
    blocks: Blocks, low: Floats, high: Floats, rows: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Bounds on sums that say something: what any rows have is no bound."""
    some = low <= high  # a noise below one half may leave no whole number
    low, high = np.where(some, low, -np.inf), np.where(some, high, np.inf)
    least, most = _ranges(blocks)
    ends = np.stack([least * rows[0], least * rows[1], most * rows[0], most * rows[1]])
    least, most = ends.min(axis=0), ends.max(axis=0)
    low, high = within(low, high, least, most)
    low[low <= least] = -np.inf  # says nothing
    high[high >= most] = np.inf
    return low, high


def _ranges(blocks: Blocks) -> tuple[Floats, Floats]:
    pairs = [block.ranges for block in blocks]
    if not pairs:
        return np.empty(0), np.empty(0)
    low, high = zip(*pairs, strict=True)
    return np.concatenate(low).astype(np.float64), np.concatenate(high).astype(np.float64)


def _columns_for(sources: Sources, measured: Family, question: Question) -> tuple[Column, ...]:
    """The question's columns, and others: all in a small domain, else those that link its own."""
    schema = sources.measurements.schema
    named = measured.column_names
    every = tuple(c for c in schema if c in question.columns or c.name in named)
    coded = measured.coded_columns | {c.name for c in question.coded}
    if math.prod(len(codes_of(c, c.name in coded)) for c in every) <= SMALL:
        return every
    own = list(question.columns)

    def in_order(columns: set[Column]) -> list[Column]:
        return sorted(columns, key=lambda c: (c.bins, schema.names.index(c.name)))

    for column in in_order(set(every) - set(own)):
        size = math.prod(len(codes_of(c, c.name in coded)) for c in (*own, column))
        if size <= MOST_STATES and _links(measured, column, question.columns):
            own.append(column)
    merged = merged_levels(sources, question, measured, tuple(own))
    for column in in_order(that_tell_groups(measured, merged)):
        more = merged_levels(sources, question, measured, (*own, column))
        size = math.prod(
            len(codes_of(c, True)) if c.name in coded else int(numbers.max()) + 1
            for c, numbers in more.items()
        )
        if size <= MOST_STATES:
            own.append(column)
    return tuple(c for c in schema if c in own)


def _links(measured: Family, column: Column, own: tuple[Column, ...]) -> bool:
    """True if a column says more of the question's: through a condition, or between two of them."""
    together = [set(block.columns) for block in measured.blocks if column in block.columns]
    if any(
        isinstance(block, Indicator) and column in block.columns and set(own) & set(block.columns)
        for block in measured.blocks
    ):
        return True
    linked = [c for c in own if any(c in columns for columns in together)]
    return any(
        not any({one, other} <= set(block.columns) for block in measured.blocks)
        for one, other in itertools.combinations(linked, 2)
    )


def _subsets(measured: Family, columns: tuple[Column, ...]) -> list[tuple[Column, ...]]:
    """Sets of the columns whose tables follow from a measured one, small ones first."""
    found: dict[tuple[Column, ...], None] = {}
    for block in measured.blocks:
        if not isinstance(block, Table):
            continue
        own = tuple(c for c in columns if c in block.columns and c.bins > 1)
        sizes = range(1, len(own) + 1) if len(own) <= _MOST_SUBSETS else (1, 2, len(own))
        for size in sizes:
            found |= dict.fromkeys(itertools.combinations(own, size))
    return sorted(found, key=len)


def _of_merged(
    sources: Sources, measured: Family, columns: tuple[Column, ...], merged: dict[Column, Codes]
) -> Blocks:
    """Measured conditions, and the cells of tables of merged levels."""
    blocks: Blocks = [
        block
        for block in measured.blocks
        if isinstance(block, Indicator) and set(block.columns) <= set(columns)
    ]
    for subset in _subsets(measured, columns):
        sizes = [int(merged[c].max()) + 1 for c in subset]
        if min(sizes) == 1 or math.prod(sizes) > MOST_MERGED:
            continue
        if all(size == c.bins for size, c in zip(sizes, subset, strict=True)):
            blocks.append(Table(subset))
            continue
        cells = list(itertools.product(*map(range, sizes)))
        if len(subset) == 1 and sources.n is not None:
            cells = cells[1:] if len(cells) == 2 else cells  # the other is the rest of the rows
        for cell in cells:
            mask = np.ones([1] * len(subset), dtype=np.bool_)
            for axis, (column, group) in enumerate(zip(subset, cell, strict=True)):
                shape = [-1 if i == axis else 1 for i in range(len(subset))]
                mask = mask & (merged[column] == group).reshape(shape)
            blocks.append(Indicator(cell_set(subset, mask), "merged"))
    return list(dict.fromkeys(blocks))


def _around(question: Question, measured: Family, merged: dict[Column, Codes]) -> Blocks:
    """The least measurable sets of rows around those that a share counts, the largest inside."""
    if not question.share:
        return []
    own = question.columns
    states = States(own, tuple(first_of(c, merged[c]) for c in own))
    shape = [len(codes) for codes in states.codes]
    held = question.parts(states.points())[0].reshape(shape) > 0
    subsets = _subsets(measured, own)
    blocks: Blocks = []
    for subset in subsets:
        if any(set(subset) < set(other) for other in subsets):
            continue
        others = tuple(i for i, c in enumerate(own) if c not in subset)
        for mask in map(np.asarray, (held.any(axis=others), held.all(axis=others))):
            if mask.any() and not mask.all():
                levels = mask[np.ix_(*(merged[c] for c in subset))]
                blocks.append(Indicator(cell_set(subset, levels), "around"))
    return list(dict.fromkeys(blocks))


def _fine(
    sources: Sources,
    measured: Family,
    question: Question,
    columns: tuple[Column, ...],
    merged: dict[Column, Codes],
) -> tuple[Blocks, list[Sums], States]:
    """Functions of all levels, sums that follow, and the states: as many as a program may have."""
    tables: Blocks = [
        Table(subset)
        for subset in _subsets(measured, columns)
        if any(merged[c].max() + 1 < c.bins for c in subset)
    ]
    totals = sums_that_follow(sources, merged)
    itself = [one.block for one in totals if one.measured]
    others = [block for block in _others(measured, columns) if not _all_in(block, itself)]
    of_counts = [one for one in totals if not one.block.coded]
    coded = {c.name for block in others for c in block.coded}
    by_codes = {c.name for one in totals for c in one.block.coded}
    whole: list[tuple[Blocks, list[Sums], set[str], bool]] = [
        ([*tables, *others], totals, coded | by_codes, True),
        ([], totals, by_codes, False),
        (tables, of_counts, set(), True),
    ]
    if not by_codes:
        del whole[1]
    for used, sums, names, all_levels in whole:
        states = States(
            columns,
            tuple(
                state_codes(c, names, question)
                if all_levels or c.name in names or c in question.coded
                else first_of(c, merged[c])
                for c in columns
            ),
        )
        if states.size <= MOST_STATES:
            return used, sums, states
    states = States(
        columns,
        tuple(
            state_codes(c, set(), question) if c in question.coded else first_of(c, merged[c])
            for c in columns
        ),
    )
    if states.size > MOST_POSSIBLE:
        raise TooManyStates(
            f"{question.term!r} distinguishes {states.size} combinations of levels, more than "
            f"{MOST_POSSIBLE}: its interval is what is possible without any measurement; ask about "
            "fewer columns or levels"
        )
    return [], of_counts, states


def _all_in(block: Block, measured: Iterable[Block]) -> bool:
    """True if every function of a block is one of some measured ones."""
    found = np.zeros(block.size, dtype=np.bool_)
    for one in measured:
        derivation = one.derive(block, complements=False)
        if derivation is not None:
            found |= derivation.terms == 1
    return bool(found.all())


def _others(measured: Family, columns: tuple[Column, ...]) -> Blocks:
    found: Blocks = []
    for block in measured.blocks:
        if isinstance(block, Table | Indicator):
            continue
        if set(block.columns) <= set(columns):
            found.append(block)
        elif isinstance(block, Moments) and block.given is None:
            names = {c.name for c in columns}
            kept = np.array([{name for name, _ in term} <= names for term in block.terms])
            if kept.any():
                found.append(block.restrict(kept))
    return found
