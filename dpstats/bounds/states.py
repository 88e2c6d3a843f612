"""States of the columns of a program, and levels that need not be distinguished."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.questions import Question
from dpstats.arrays import Codes
from dpstats.bounds.group_totals import sets_of_rows
from dpstats.families.block import Family
from dpstats.families.tables.cells import Indicator
from dpstats.rows.gibbs import Support
from dpstats.schema import Column, Number

_MOST_COMPARED = 200_000  # states of a question that are gone through to merge levels


@dataclass(frozen=True, eq=False)
class States:
    """States of some columns: every combination of one code of each.

    Attributes
    ----------
    columns : tuple of columns
    codes : tuple of (k,) int64
        The codes of each column that serve as its states.
    """

    columns: tuple[Column, ...]
    codes: tuple[Codes, ...]

    @property
    def size(self) -> int:
        """Number of states, m."""
        return math.prod(len(codes) for codes in self.codes)

    def points(self) -> dict[str, Codes]:
        """Column name -> (m,) codes, in C order."""
        grid = np.meshgrid(*self.codes, indexing="ij") if self.codes else []
        return {c.name: g.ravel() for c, g in zip(self.columns, grid, strict=True)}


def most_states(column: Column, coded: Iterable[str]) -> int:
    """Number of states of a column in a program of all levels."""
    return len(codes_of(column, column.name in coded))


def codes_of(column: Column, coded: bool) -> Codes:
    """Codes that serve as states: all of them, or one in every bin."""
    return Support.of(column, coded).codes


def merged_levels(
    question: Question, measured: Family, columns: tuple[Column, ...]
) -> dict[Column, Codes]:
    """For every column, a number of each bin: bins with one number are not distinguished.

    Neither by the question, nor by a measured condition on the columns or rows in measured groups.
    """
    arrays: list[tuple[tuple[Column, ...], NDArray[Any]]] = [
        (block.columns, block.cells.array)
        for block in measured.blocks
        if isinstance(block, Indicator) and set(block.columns) <= set(columns)
    ]
    arrays += sets_of_rows(measured, columns)
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
