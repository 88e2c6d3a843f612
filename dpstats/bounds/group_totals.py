"""Sums over groups of rows that add up to sums over more rows.

Let functions h 1[x in G_i] be measured, with G_1, ..., G_k disjoint. For any set I of groups,

    sum over i in I of sum_x h(x) 1[x in G_i] c_x = sum_x h(x) 1[x in U] c_x,  U the union over I,

for every table c: over a partition, the sum of h over all rows. The noise on the left is a sum of
|I| independent ones, which is far less than |I| bounds on one. A union is of use in a program over
some columns, with levels merged, if it depends on nothing else. The least such unions are found:
groups that share a set of merged cells go together, and none that shares one with rows outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.error_rates import bonferroni
from dpstats.families.block import Block, Family
from dpstats.families.features import Term, is_level
from dpstats.families.group_moments import PARTS, TO_MOMENTS, GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import ROWS, Indicator
from dpstats.families.tables.inside_bins import BinOffsets
from dpstats.measured.combining import Sources
from dpstats.schema import Column
from dpstats.schema.conditions import cell_set

UNKNOWN = "nothing that limits it"
Numbering = Mapping[Column, Codes]
"""For the columns of a program, a number of each bin: bins with one number are merged."""


@dataclass(frozen=True, eq=False)
class Sums:
    """The d sums of a block, each from some measured functions.

    The noises of a block are independent and symmetric, so a combination with weights 1 and -1 of k
    of them, all of one scale, has the law of a sum of k. A sum that is a multiple of another, such
    as 4 K^2 times a number of rows, is divided by it: what it bounds is a whole number again.
    """

    block: Block
    members: tuple[Codes, ...]  # (k,) each: numbers in `Sources` of functions of one scale
    signs: Codes  # (k,) weights of the members, 1 or -1
    unit: int = 1  # the combination is so many times the function's sum

    @property
    def measured(self) -> bool:
        """True if the functions are themselves measured ones."""
        return self.unit == 1 and all(len(own) == 1 for own in self.members)

    def variance(self, sources: Sources) -> float:
        """Largest variance of the noise on a function, in units of its sum."""
        return max(float(sources.variances[own].sum()) for own in self.members) / self.unit**2

    def ends(self, sources: Sources, error: float) -> tuple[Floats, Floats]:
        """Whole numbers (d,) that each sum is between, but for a probability `error` at most."""
        law, lows, highs = sources.measurements.budget.law, [], []
        for own in self.members:
            total = int(sources.sums[own] @ self.signs)
            q = int(law(float(sources.scales[own[0]]), len(own)).quantile(error))
            lows.append(-((q - total) // self.unit))  # rounded up
            highs.append((total + q) // self.unit)
        return np.array(lows, dtype=np.float64), np.array(highs, dtype=np.float64)


def joint_ends(
    sources: Sources, sums: Sequence[Sums], alpha: float, *, with_count: bool
) -> tuple[Floats, Floats, tuple[float, float] | None]:
    """Bounds (d,) on all sums, and on the number of rows if asked, jointly (Bonferroni)."""
    law = sources.rows.law if with_count else None
    each = bonferroni(alpha, sum(one.block.size for one in sums) + (law is not None))
    rows = None
    if law is not None:
        low, high = sources.rows.within(law.quantile(each))
        rows = (float(low), float(high))
    lows, highs = zip(*(one.ends(sources, each) for one in sums), strict=True)
    return np.concatenate(lows), np.concatenate(highs), rows


def known_from(sources: Sources, blocks: Iterable[Block]) -> str:
    """Name the columns of the measured functions that an interval is known from."""
    used = {column for block in blocks for column in block.columns}
    names = [column.name for column in sources.measurements.schema if column in used]
    return f"measured functions of {', '.join(names)}" if names else UNKNOWN


@dataclass(frozen=True, eq=False)
class _Groups:
    columns: tuple[Column, ...]  # of the cells, those that may be missing among them
    number_of: NDArray[np.int64]  # one axis per column: the group of each cell, -1 for none

    def masks(self, columns: tuple[Column, ...]) -> Iterator[tuple[tuple[Column, ...], Any]]:
        """The cells of some columns with rows in groups, and those with no others."""
        kept = tuple(c for c in self.columns if c in columns)
        dropped = tuple(i for i, c in enumerate(self.columns) if c not in columns)
        inside = self.number_of >= 0
        yield kept, inside.any(axis=dropped)
        yield kept, inside.all(axis=dropped)

    def unions(self, numbering: Numbering) -> list[tuple[Codes, NDArray[np.bool_]]]:
        """The least unions that depend on numbered bins only: groups, and cells of `kept`."""
        from scipy import sparse

        groups, fibres = self.number_of.ravel(), self._fibres(numbering)
        held, count = groups >= 0, int(self.number_of.max()) + 1
        size = count + int(fibres.max()) + 1
        edges = np.ones(int(held.sum()), dtype=np.int8), (groups[held], count + fibres[held])
        graph = sparse.coo_array(edges, shape=(size, size))
        _, part_of = sparse.csgraph.connected_components(graph, directed=False)
        open_parts = set(part_of[count + np.unique(fibres[~held])].tolist())
        dropped = tuple(i for i, c in enumerate(self.columns) if c not in numbering)
        found = []
        for part in dict.fromkeys(part_of[:count].tolist()):
            if part not in open_parts:
                own = np.flatnonzero(part_of[:count] == part)
                cells = np.isin(self.number_of, own).any(axis=dropped)
                found.append((own.astype(np.int64), np.asarray(cells)))
        return found

    def kept(self, numbering: Numbering) -> tuple[Column, ...]:
        """The columns of the cells of `unions`."""
        return tuple(c for c in self.columns if c in numbering)

    def _fibres(self, numbering: Numbering) -> Codes:
        """A number of each cell: cells with one number are not distinguished."""
        fibres = np.zeros(self.number_of.shape, dtype=np.int64)
        for axis, column in enumerate(self.columns):
            if column in numbering:
                numbers = np.asarray(numbering[column])
                along = numbers.reshape([-1 if i == axis else 1 for i in range(fibres.ndim)])
                fibres = fibres * (int(numbers.max()) + 1) + along
        return fibres.ravel()


def sets_of_rows(
    measured: Family, columns: tuple[Column, ...]
) -> Iterator[tuple[tuple[Column, ...], Any]]:
    """Cells of some columns whose rows measured groups cover: levels that differ in them differ."""
    for block in measured.blocks:
        if not set(columns) & set(block.columns):
            continue
        if isinstance(block, GroupMoments):
            yield from _groups_of(block).masks(columns)
        elif isinstance(block, Moments) and block.given is not None:
            own = block.given.columns
            mask = np.where(block.given.over(own), 0, -1)
            yield from _Groups(own, mask).masks(columns)


def that_tell_groups(measured: Family, numbering: Numbering) -> set[Column]:
    """Columns that are lacking to say which rows the groups of the numbered columns cover."""
    found: set[Column] = set()
    for block in measured.blocks:
        if isinstance(block, GroupMoments) and set(block.columns) & set(numbering):
            groups = _groups_of(block)
            if not groups.unions(numbering):
                found |= set(groups.columns)
    return found - set(numbering)


def sums_that_follow(sources: Sources, numbering: Numbering) -> list[Sums]:
    """Sums of functions of numbered bins and unmerged codes, each from the block of least noise."""
    found: dict[Block, Sums] = {}
    for noisy, start in zip(sources.blocks, sources.starts, strict=True):
        for sums in _of_block(sources, noisy.block, start, numbering):
            if any(np.ptp(sources.scales[own]) > 0 for own in sums.members):
                continue
            before = found.get(sums.block)
            if before is None or sums.variance(sources) < before.variance(sources):
                found[sums.block] = sums
    return list(found.values())


def _of_block(sources: Sources, block: Block, start: int, numbering: Numbering) -> Iterator[Sums]:
    if block.calibrates:
        return
    if isinstance(block, GroupMoments):
        yield from _of_group_moments(sources, block, start, numbering)
    elif isinstance(block, Moments):
        yield from _of_moments(sources, block, start, numbering)
    elif isinstance(block, BinOffsets):
        yield from _of_offsets(block, start, numbering)


def _groups_of(block: GroupMoments) -> _Groups:
    columns = block.groups[0].columns
    number_of = np.full([c.bins for c in columns], -1, dtype=np.int64)
    for i, group in enumerate(block.groups):
        number_of[group.over(columns)] = i
    return _Groups(columns, number_of)


def _of_group_moments(
    sources: Sources, block: GroupMoments, start: int, numbering: Numbering
) -> Iterator[Sums]:
    """Number of rows, and sum and sum of squares of the number, where it is one of the columns.

    The parts are (K-x)^2, 2 (K^2-x^2), (K+x)^2 for a code x: they add up to 4 K^2, the last less
    the first is 4 K x, and the first and last less the middle one are 4 x^2.
    """
    k, name = block.number.half_points, (block.number.name, None)
    terms: list[Term] = [(), (name,), (name, name)] if block.number in numbering else [()]
    groups = _groups_of(block)
    for own, cells in groups.unions(numbering):
        given = _subgroup(groups.kept(numbering), cells, block.groups[0].answered)
        for term, weights, unit in zip(terms, TO_MOMENTS, (4 * k**2, 4 * k, 4), strict=False):
            function = _function(sources, term, given)
            if function is not None:
                used = np.flatnonzero(weights)
                members = (start + len(PARTS) * own[:, np.newaxis] + used).ravel()
                signs = np.tile(weights[used].astype(np.int64), len(own))
                yield Sums(function, (members,), signs, unit)


def _of_moments(
    sources: Sources, block: Moments, start: int, numbering: Numbering
) -> Iterator[Sums]:
    """Products with indicators of levels, added over the levels."""
    columns = {c.name: c for c in block.columns}
    within = () if block.given is None else block.given.columns
    answered = () if block.given is None else block.given.answered
    alike: dict[tuple[Term, tuple[str, ...]], list[int]] = {}
    for f, term in enumerate(block.terms):
        rest = tuple(feature for feature in term if not is_level(feature))
        if all(_distinguished(columns[name], level, numbering) for name, level in rest):
            levels = tuple(feature[0] for feature in term if is_level(feature))
            alike.setdefault((rest, levels), []).append(f)
    for (rest, levels), terms in alike.items():
        axes = tuple(c for c in block.columns if c.name in levels or c in within)
        number_of = np.full([c.bins for c in axes], -1, dtype=np.int64)
        for i, f in enumerate(terms):
            at = dict(feature for feature in block.terms[f] if is_level(feature))
            number_of[tuple(at.get(c.name, slice(None)) for c in axes)] = i
        if block.given is not None:
            number_of[~block.given.over(axes)] = -1
        groups = _Groups(axes, number_of)
        for own, cells in groups.unions(numbering):
            given = _subgroup(groups.kept(numbering), cells, answered)
            function = _function(sources, rest, given)
            if function is not None:
                members = start + np.array(terms)[own]
                yield Sums(function, (members,), np.ones(len(members), np.int64))


def _distinguished(column: Column, level: int | None, numbering: Numbering) -> bool:
    """True if a feature depends on numbered bins or, if it is a number, on codes."""
    if column not in numbering:
        return False
    return level is None or int(numbering[column].max()) + 1 == column.bins


def _of_offsets(block: BinOffsets, start: int, numbering: Numbering) -> Iterator[Sums]:
    """Offsets in the bins, added over the cells of columns that a program does not have."""
    kept = tuple(c for c in block.columns if c in numbering)
    if not any(c.name == block.number for c in kept) or any(
        c.name != block.number and numbering[c].max() + 1 < c.bins for c in kept
    ):
        return
    wanted = BinOffsets(kept, block.number)
    derivation = block.table.derive(wanted.table)
    assert derivation is not None
    members = tuple(start + np.flatnonzero(derivation.member == f) for f in range(wanted.size))
    yield Sums(wanted, members, np.ones(len(members[0]), np.int64))


def _subgroup(
    columns: tuple[Column, ...], cells: NDArray[np.bool_], answered: tuple[Column, ...]
) -> Subgroup | None:
    """The rows in some cells that have a value of some columns; None for all rows."""
    for axis, column in enumerate(columns):
        if column in answered:  # its last bin is excluded whatever the cells are
            along = np.moveaxis(cells, axis, 0)
            along[-1] = along[0]
    found = cell_set(columns, cells)
    return Subgroup(found, answered) if found.columns or answered else None


def _function(sources: Sources, term: Term, given: Subgroup | None) -> Block | None:
    """A product of features among some rows; None for what is public, the number of all rows."""
    schema = sources.measurements.schema
    if term:
        return Moments.of_terms(schema, [term], given=given)
    if given is None:
        return ROWS if sources.n is None else None
    columns = tuple(c for c in schema if c in given.columns)
    return Indicator(cell_set(columns, given.over(columns)), given.name)
