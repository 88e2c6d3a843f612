"""Questions to a release: the mean of a function over the rows that satisfy a condition.

Every question is a ratio of two sums over the private rows, a numerator and a denominator; that of
a mean over all rows is their number. It need not be measured, nor follow from what was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.formula import named_number
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator, Table
from dpstats.families.tables.inside_bins import BinOffsets
from dpstats.schema import Column, Number, Schema
from dpstats.schema.conditions import cell_index, names_missing, parsed_condition

Points = Mapping[str, Codes]
Parts = tuple[Floats, Floats]
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Question:
    """A ratio of two sums over the private rows."""

    term: str
    columns: tuple[Column, ...]  # that it depends on
    # Numerator and denominator (m,) at points, column name -> (m,) codes. The second is 0 or 1.
    parts: Callable[[Points], Parts]
    # Ends that the ratio cannot be beyond, whatever the rows; see
    # `consistent.possible_range`.
    range: tuple[float, float]
    of_all: bool  # whether the denominator counts all rows
    share: bool  # whether the numerator counts some of the rows that the denominator counts
    coded: tuple[Column, ...] = ()  # those of which the codes matter, not only the bins
    # whether the parts are, for given bins, monotone in each code on either side of 0
    monotone: bool = False
    # which rows it is about, where not all, and what a ratio takes for granted
    notes: tuple[str, ...] = ()


class Asked(NamedTuple):
    """Questions of an analysis, which need not have been measured, and how they are compared."""

    questions: list[Question]  # one for each parameter, unless they are compared
    # from the ends of two questions: terms, least and largest values of the parameters, and the
    # values that these cannot be beyond
    compared: Callable[[Interval, Interval], Comparison] | None = None


Comparison = tuple[list[str], Floats, Floats, Floats, Floats]


def answered_in(schema: Schema, condition: str) -> list[str]:
    """Columns of a condition that may be missing, unless it names '(missing)' itself."""
    if names_missing(parsed_condition(condition)[0]):
        return []
    return [c.name for c in Cells.condition(schema, condition).columns if c.allow_missing]


def question_of_conditions(
    schema: Schema,
    condition: str,
    given: str | None = None,
    minus: str | None = None,
    over: str | None = None,
) -> Question:
    """The share of rows with a condition, less that with another, or in ratio to it.

    Of the rows that satisfy `given` and have a value of the columns in the conditions, as in
    `dps.Proportion`.
    """
    if minus is not None and over is not None:
        raise RequestError("give minus= for a difference or over= for a ratio, not both")
    other = minus if over is None else over
    texts = [condition] if other is None else [condition, other]
    asked = [Cells.condition(schema, text) for text in texts]
    named = [name for text in texts for name in answered_in(schema, text)]
    group = Subgroup.of(schema, given, named)
    used = {c for block in asked for c in block.columns}
    used |= set() if group is None else set(group.columns)
    columns = tuple(c for c in schema if c in used)
    holds = [block.cells.over(columns) for block in asked]
    inside = np.ones_like(holds[0]) if group is None else group.over(columns)
    joint = [inside & one for one in holds]
    if over is not None and not joint[1].any():
        raise RequestError(
            f"{over!r} holds for none of the rows that are asked about, so there is no ratio to "
            "their share; give over= a condition that such rows can have"
        )
    mark = {"minus": " - ", "over": " / "}["minus" if over is None else "over"]
    within = "" if given is None else f" | {given}"
    return Question(
        mark.join(texts) + within,
        columns,
        _parts_of_cells(columns, joint, inside, ratio=over is not None),
        (0.0, np.inf) if over is not None else (-1.0, 1.0) if minus is not None else (0.0, 1.0),
        of_all=over is None and bool(inside.all()),
        share=minus is None and (over is None or not np.any(joint[0] & ~joint[1])),
        notes=(
            *(() if group is None else (f"of {group.described}",)),
            *(() if over is None else (f"if there is a row with {over}: else there is no ratio",)),
        ),
    )


def _parts_of_cells(
    columns: tuple[Column, ...],
    joint: list[NDArray[np.bool_]],
    inside: NDArray[np.bool_],
    *,
    ratio: bool,
) -> Callable[[Points], Parts]:
    """Numerator and denominator from cells: of one condition, or of two."""
    first = joint[0].astype(np.float64)
    second = joint[-1].astype(np.float64)
    above = first if ratio or len(joint) == 1 else first - second
    below = second if ratio else inside.astype(np.float64)

    def parts(points: Points) -> Parts:
        cells = cell_index(columns, points)
        return above.ravel()[cells], below.ravel()[cells]

    return parts


def questions_of_family(family: Family | Block) -> list[Question]:
    """Means of functions over all rows, in unit scale."""
    blocks = family.blocks if isinstance(family, Family) else (family,)
    return [
        _question_of_function(block, f, name, (low, high))
        for block in blocks
        for f, (name, low, high) in enumerate(
            zip(block.names, *(ends / block.bounds for ends in block.ranges), strict=True)
        )
    ]


def _question_of_function(block: Block, f: int, name: str, ends: Interval) -> Question:
    """The mean of function number f of a block, which is between two ends."""
    if isinstance(block, Moments):  # the others may be of more columns
        block, f = block.restrict(np.arange(block.size) == f), 0

    def parts(points: Points) -> Parts:
        one = np.zeros(block.size)  # of each question while it is asked: a table has many
        one[f] = 1 / block.bounds[f]
        values = block.evaluate(points).combine(one)
        return values, np.ones_like(values)

    share = isinstance(block, Table | Indicator)
    low, high = map(float, ends)
    return Question(
        name, block.columns, parts, (low, high), of_all=True, share=share,
        coded=block.coded, monotone=isinstance(block, Moments | GroupMoments | BinOffsets),
    )  # fmt: skip


def question_of_mean(schema: Schema, number: Number, group: Subgroup | None, term: str) -> Question:
    """The mean of a number in its own units, of all rows or of a group."""
    used = {number} | (set() if group is None else set(group.columns))
    columns = tuple(c for c in schema if c in used)

    def parts(points: Points) -> Parts:
        codes = points[number.name]
        inside = np.ones(len(codes)) if group is None else group.holds(points).astype(np.float64)
        return inside * (number.middle + number.half_range * number.units_of(codes)), inside

    return Question(
        term,
        columns,
        parts,
        (number.middle - number.half_range, number.middle + number.half_range),
        of_all=group is None,
        share=False,
        coded=(number,),
        monotone=True,
        notes=() if group is None else (f"of {group.described}",),
    )


def means_in_groups(schema: Schema, column: str, groups: Sequence[Subgroup]) -> list[Question]:
    """Means of a number in its own units, in groups of rows."""
    number = named_number(schema, column)
    return [
        question_of_mean(schema, number, group, f"mean of {column}, {group.label}")
        for group in groups
    ]


def question_of_share(with_trait: Block, without: Block) -> Question:
    """Share of the first of two mutually exclusive conditions among the rows with either."""
    columns = tuple(dict.fromkeys((*with_trait.columns, *without.columns)))
    unit = np.ones(1)

    def parts(points: Points) -> Parts:
        yes, no = (block.evaluate(points).combine(unit) for block in (with_trait, without))
        return yes, yes + no

    return Question(
        with_trait.names[0], columns, parts, (0.0, 1.0), of_all=False, share=True
    )  # fmt: skip
