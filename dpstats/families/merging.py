"""The blocks of several analyses in one family, without those that follow as well from others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_

import numpy as np
from numpy.typing import NDArray

from dpstats.families.block import Block, Family
from dpstats.families.tables.cells import Indicator, Partition
from dpstats.schema import Column

Variances = Callable[[Sequence[Block], Sequence[int]], Sequence[float]]

_EQUAL = 1 + 1e-9  # so that equal variances are equal in floating point


def merge(
    wanted: Iterable[Block],
    variances: Variances,
    *,
    complements: bool = True,
    whole: bool = False,
) -> Family:
    """Merge the blocks that several analyses need into one family.

    Exact duplicates are measured once. Another function is dropped only when deriving it from
    a block that is kept has no more noise variance than measuring it as well would have.

    Parameters
    ----------
    wanted : iterable of blocks
    variances : callable
        For a list of blocks and the numbers of some of them, the noise variance (natural units)
        that the budget would put on one function of each of these; computed from public numbers
        only.
    complements : bool
        Whether a condition follows from its complement: only if the number of rows is public.
    whole : bool
        Whether all functions of a block are needed from one block, as contrasts of units are.

    Notes
    -----
    Blocks are visited from the largest to the smallest, so that the block that another is
    derived from has been decided before, and again until none is dropped. With equal noise and
    a public number of rows every drop lowers the noise of those that are kept; with shares, or
    a measured count, a later drop may raise it a little, which affects accuracy only.
    """
    kept, before = list(dict.fromkeys(wanted)), 0
    while len(kept) != before:
        before = len(kept)
        kept = _dropped(kept, variances, complements, whole=whole)
    return Family(tuple(kept))


def with_other_rows(blocks: Iterable[Block]) -> list[Block]:
    """Blocks with conditions in sets of which no row is in two, and the set of all other rows.

    A row that comes or goes changes one set: together they have the sensitivity of one condition,
    and add up to the number of rows (eq. conditions-and-others of
    docs/explanation/privacy/privacy.md).
    """
    others, sets = list[Block](), defaultdict[tuple[Column, ...], list[list[Indicator]]](list)
    for block in blocks:
        if not isinstance(block, Indicator) or block.cells.array.all():
            others.append(block)
        elif held := next((h for h in sets[block.columns] if _are_apart(h, block)), None):
            held.append(block)
        else:
            sets[block.columns].append([block])
    return [*others, *(_with_rest(held) for of_columns in sets.values() for held in of_columns)]


def _are_apart(held: Sequence[Indicator], block: Indicator) -> bool:
    """True if a condition has no cell in common with others of the same columns."""
    return not any(np.any(one.cells.array & block.cells.array) for one in held)


def _with_rest(held: Sequence[Indicator]) -> Partition:
    """Partition into conditions and the rows of none, if there can be such."""
    sets, labels = [one.cells.mask for one in held], [one.label for one in held]
    rest = ~np.any([one.cells.array for one in held], axis=0)
    if rest.any():
        sets.append(rest.tobytes())
        labels.append("all other rows")
    return Partition(held[0].columns, tuple(sets), tuple(labels), rest=bool(rest.any()))


def _dropped(
    blocks: Sequence[Block],
    variances: Variances,
    complements: bool,
    *,
    whole: bool,
) -> list[Block]:
    """One pass of `merge` over distinct blocks."""
    kept = dict(enumerate(blocks))
    sources = BlockIndex(blocks)
    for i in sorted(kept, key=lambda i: -blocks[i].size):
        block = blocks[i]
        terms = {
            j: counts
            for j in sources.of(block)
            # A large block is not split for a single function: together they cost less.
            if j != i and j in kept and (kept[j].size > 1 or kept[j].columns == block.columns)
            if (counts := kept[j].terms_of(block, complements=complements)) is not None
        }
        if not terms:
            continue
        (measured,) = _chosen_variances(kept, variances, [i])
        others = {j: b for j, b in kept.items() if j != i}
        without = _chosen_variances(others, variances, list(terms))
        follows = {
            j: (counts > 0) & (counts * variance <= measured * _EQUAL)
            for (j, counts), variance in zip(terms.items(), without, strict=True)
        }
        if whole:
            follows = {j: part for j, part in follows.items() if part.all()}
        if np.any(list(follows.values()), axis=0).all():
            kept = others
            continue
        parts = [
            part for j, part in follows.items() if not _determines(block, kept[j], complements)
        ]
        if (dropped := np.any([np.zeros(block.size, np.bool_), *parts], axis=0)).any():
            kept[i] = block.restrict(~dropped)
    return list(dict.fromkeys(kept.values()))


def _determines(block: Block, other: Block, complements: bool) -> bool:
    """True if all functions of another block follow from this one.

    The other block is then dropped: functions cost no more together than in two parts.
    """
    terms = block.terms_of(other, complements=complements)
    return terms is not None and bool(np.all(terms > 0))


def _chosen_variances(
    kept: Mapping[int, Block], variances: Variances, chosen: Sequence[int]
) -> Sequence[float]:
    """Variances of the chosen blocks when all that are kept are measured."""
    place = {number: at for at, number in enumerate(kept)}
    return variances(list(kept.values()), [place[number] for number in chosen])


class BlockIndex:
    """Finds the blocks that functions of another one may follow from, without trying every pair.

    A function follows only from a table or moments that hold its columns, or from a condition on
    the same columns.

    Parameters
    ----------
    blocks : sequence of blocks
        Numbered in this order.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._conditions: dict[tuple[str, ...], list[int]] = {}
        others: dict[int, tuple[str, ...]] = {}
        for i, block in enumerate(blocks):
            names = _names(block)
            if block.joint and block.size == 1:
                self._conditions.setdefault(names, []).append(i)
            else:
                others[i] = names
        self._others = ColumnIndex(others)

    def of(self, wanted: Block) -> Iterator[int]:
        """Numbers of the blocks that some function of `wanted` may follow from."""
        names = _names(wanted)
        yield from self._conditions.get(names, ())
        yield from self._others.with_all(names) if wanted.joint else self._others.with_any(names)

    def derivable(self, wanted: Block, *, complements: bool = True) -> NDArray[np.bool_]:
        """(d,) whether each function of a block follows from one of the blocks by itself."""
        follows = np.zeros(wanted.size, dtype=np.bool_)
        for i in self.of(wanted):
            terms = self._blocks[i].terms_of(wanted, complements=complements)
            if terms is not None:
                follows |= terms > 0
        return follows


class ColumnIndex:
    """Finds the sets of columns that hold some: for each column, the bits of one integer.

    Parameters
    ----------
    sets : mapping of number to names of columns
    """

    def __init__(self, sets: Mapping[int, Iterable[str]]) -> None:
        self._all = sum(1 << i for i in sets)
        self._holding: dict[str, int] = {}
        for i, names in sets.items():
            for name in names:
                self._holding[name] = self._holding.get(name, 0) | 1 << i

    def with_all(self, names: Iterable[str]) -> Iterator[int]:
        """Numbers, ascending, of the sets that hold all of these columns."""
        return _bits(reduce(and_, (self._holding.get(name, 0) for name in names), self._all))

    def with_any(self, names: Iterable[str]) -> Iterator[int]:
        """Numbers, ascending, of the sets that hold one of them at least."""
        return _bits(reduce(or_, (self._holding.get(name, 0) for name in names), 0))


def _bits(number: int) -> Iterator[int]:
    while number:
        last = number & -number
        yield last.bit_length() - 1
        number ^= last


def _names(block: Block) -> tuple[str, ...]:
    return tuple(column.name for column in block.columns)
