"""Two groups to compare, named by levels or bins of a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.counts.group_shares import GroupIntervals
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.questions import answered_in
from dpstats.checks import check_text, listed, short
from dpstats.errors import RequestError, SchemaError
from dpstats.families.block import Family
from dpstats.families.group_moments import GroupMoments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells
from dpstats.schema import MISSING_LABEL, Boolean, Column, Schema

Groups = Sequence[str | int | float | bool]


class ComparesGroups:
    """An analysis with the parameters `by` and `groups`, as `Difference` documents them."""

    by: str
    groups: Groups | None

    def __post_init__(self) -> None:
        """Keep the pair as a tuple; its levels are checked once there is a schema."""
        check_by(self.by)
        groups = listed(self.groups)
        if groups is None:
            return
        if isinstance(groups, str) or not isinstance(groups, Sequence):
            raise RequestError(f"groups must be a pair of levels, got {short(groups)}")
        if len(groups) != 2:
            raise RequestError(f"groups must be two different levels, got {short(groups)}")
        object.__setattr__(self, "groups", tuple(groups))

    def _chosen(self, schema: Schema) -> tuple[int, int]:
        """Indices of the two bins of `by` to compare, in order; RequestError if there are none."""
        column = schema[self.by]
        bins = chosen_bins(column, self.groups)
        if self.groups is None and len(bins) != 2:
            raise RequestError(
                f"{column.name!r} has {len(bins)} levels or bins, {list(column.bin_labels)}; name "
                "two of them, as in groups=(first, second)"
            )
        if len(bins) != 2 or bins[0] == bins[1]:
            raise RequestError(f"groups must be two different levels, got {short(self.groups)}")
        by_default = self.groups is None and isinstance(column, Boolean)
        return (bins[1], bins[0]) if by_default else (bins[0], bins[1])

    def _labels(self, schema: Schema) -> list[str]:
        """Labels of the two."""
        return [schema[self.by].bin_labels[i] for i in self._chosen(schema)]


def sets_of_groups(
    schema: Schema, condition: str, by: str, chosen: Sequence[int], given: Subgroup | None = None
) -> tuple[tuple[Column, ...], list[tuple[NDArray[np.bool_], str]]]:
    """Cells of each group with a trait, and without it, over the columns that these depend on.

    Rows without a value of a column in the condition are in none.
    """
    trait, column = Cells.condition(schema, condition), schema[by]
    if column in trait.columns:
        raise RequestError(
            f"{condition!r} involves {by!r}, the column of the groups; compare groups of another "
            "column"
        )
    more = () if given is None else given.columns
    columns = tuple(c for c in schema if c in trait.columns or c == column or c in more)
    holds = trait.cells.over(columns)
    answered = Subgroup.of(schema, None, answered_in(schema, condition))
    known = np.ones(1, dtype=np.bool_) if answered is None else answered.over(columns)
    if given is not None:
        known = known & given.over(columns)
    shape, sets = [c.bins if c == column else 1 for c in columns], []
    for i in chosen:
        inside = (np.arange(column.bins) == i).reshape(shape)
        name = f"{by}={column.bin_labels[i]}"
        sets += [
            (inside & known & marked, f"{text} and {name}")
            for marked, text in ((holds, f"({condition})"), (~holds, f"not ({condition})"))
        ]
    return columns, sets


def subgroups_of(family: Family, chosen: Sequence[int]) -> tuple[Subgroup, ...]:
    """Groups of rows of a block of `GroupMoments`, in the order of their levels in `chosen`."""
    (block,) = family.blocks
    assert isinstance(block, GroupMoments)
    groups = dict(zip(sorted(chosen), block.groups, strict=True))
    return tuple(groups[level] for level in chosen)


def small_groups(names: Sequence[str], groups: Sequence[GroupIntervals | NoisyMean]) -> list[str]:
    """A note on each group that is small relative to the noise on its size."""
    return [
        f"group {name} is empty or small relative to the noise (sd {group.size_noise:.2g} rows): "
        "ignore the estimate, use the intervals"
        for name, group in zip(names, groups, strict=True)
        if group.hidden_by_noise
    ]


def check_by(by: object) -> None:
    """Refuse several columns of groups."""
    check_text("by= takes one column, whose name", by)


def chosen_bins(column: Column, groups: Groups | None) -> list[int]:
    """Numbers of the bins of some levels; by default of all but that of missing cells."""
    if groups is None:
        return [i for i, label in enumerate(column.bin_labels) if label != MISSING_LABEL]
    try:
        return [column.index(level) for level in groups]
    except SchemaError as error:
        raise RequestError(f"groups: {error}") from None
