"""Means of a number in every group of rows, with an analysis of variance.

Three sums are measured for each group. A row is in one group, so that any number of groups has the
noise of one; see `families.group_moments`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpstats.analyses.compared_groups import small_groups
from dpstats.analyses.moments.mean import NOTES
from dpstats.analyses.notes import cell_rules, left_out, rare_mean
from dpstats.checks import listed, short
from dpstats.errors import RequestError, SchemaError
from dpstats.families.block import Family
from dpstats.families.formula import named_number
from dpstats.families.group_moments import GroupMoments
from dpstats.families.subgroups import Subgroup
from dpstats.inference.moments.mean_intervals import Contrast, MeanIntervals
from dpstats.inference.moments.noisy_mean import NoisyMean
from dpstats.inference.moments.one_way import OneWay
from dpstats.measured.view import ReleaseView
from dpstats.results.group_means import GroupMeansResult
from dpstats.results.named import Named
from dpstats.schema import MISSING_LABEL, Schema

_WELCH = "Welch's F test allows for different variances of the groups"


@dataclass(frozen=True)
class GroupMeans:
    """Mean of a number in every level of a category, with an analysis of variance.

    Parameters
    ----------
    column : str
        A number with `missing=` or `allow_missing=True` in the schema; ``log(income)`` if its
        scale is "log". Rows without a value of it are left out.
    by : str
        Another column, which makes the groups: levels of a category, false and true of a Boolean,
        bins of a number.
    groups : sequence of levels, optional
        Two or more of them, in the order you want; by default all but "(missing)".
    given : str, optional
        Means of the rows with this condition, which may not involve `by`.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.GroupMeans("income", by="region", given="age >= 65")
    GroupMeans(column='income', by='region', groups=None, given='age >= 65')
    """

    kind: ClassVar[str] = "group_means"

    column: str
    by: str
    groups: Sequence[str | int | float | bool] | None = None
    given: str | None = None

    def __post_init__(self) -> None:
        groups = listed(self.groups)
        if groups is None:
            return
        if isinstance(groups, str) or not isinstance(groups, Sequence) or len(groups) < 2:
            raise RequestError(f"groups must be two or more levels, got {short(groups)}")
        object.__setattr__(self, "groups", tuple(groups))

    def family(self, schema: Schema) -> Family:
        """Size, sum and sum of squares of all groups, in three sums each: it costs 2."""
        number = named_number(schema, self.column)
        given = None if self.given is None else Subgroup.of(schema, self.given, [number.name])
        levels = sorted(self._chosen(schema))
        return Family((GroupMoments.by(number, schema[self.by], levels, given),))

    def compared(self, schema: Schema) -> tuple[Subgroup, ...]:
        """The groups of rows whose means are compared, in order."""
        chosen = self._chosen(schema)
        (block,) = self.family(schema).blocks
        assert isinstance(block, GroupMoments)
        groups = dict(zip(sorted(chosen), block.groups, strict=True))
        return tuple(groups[level] for level in chosen)

    def infer(self, release: ReleaseView) -> GroupMeansResult:
        """Estimates with noise-aware and certified intervals."""
        chosen, schema = self._chosen(release.schema), release.schema
        answers = release.answers(self.family(schema))
        places = {level: place for place, level in enumerate(sorted(chosen))}
        groups = tuple(NoisyMean.of_group(answers, places[level]) for level in chosen)
        number = named_number(schema, self.column)
        means = tuple(Contrast((group,), number.middle, number.half_range) for group in groups)
        names = tuple(schema[self.by].bin_labels[level] for level in chosen)
        terms = [f"{self.by}={name}" for name in names]
        one_way = OneWay(groups)
        used = tuple(itertools.compress(names, one_way.levels.used))
        notes = [*NOTES, _WELCH, *small_groups(names, groups)]
        notes += left_out("tests and effect sizes", {self.by: used}, {self.by: names}, [self.by])
        for name, group in zip(names, groups, strict=True):
            if not group.hidden_by_noise:
                notes += rare_mean(f"{self.column} in group {name}", group)
        given = "" if self.given is None else f", given {self.given}"
        return GroupMeansResult(
            title=f"Means of {self.column}, by {self.by}{given}",
            terms=terms,
            params=Named([mean.estimate for mean in means], terms),
            sampling_variance=np.array([mean.sampling_variance for mean in means]),
            privacy_variance=np.array([mean.privacy_variance for mean in means]),
            intervals=MeanIntervals(means),
            rows=answers.rows.of_persons,
            budget=str(release.budget),
            notes=[*notes, cell_rules(schema, self)],
            dates=terms if number.dates else (),
            groups=names,
            one_way=one_way,
        )

    def _chosen(self, schema: Schema) -> list[int]:
        """Indices of the levels or bins of `by`, in order."""
        column = schema[self.by]
        if self.groups is None:
            found = [i for i, label in enumerate(column.bin_labels) if label != MISSING_LABEL]
        else:
            try:
                found = [column.index(level) for level in self.groups]
            except SchemaError as error:
                raise RequestError(f"groups: {error}") from None
        if len(set(found)) < max(len(found), 2):
            raise RequestError(
                f"groups must be two or more different levels or bins of {self.by!r}, got "
                f"{[column.bin_labels[i] for i in found]}"
                + ("; add edges to the schema" if len(found) == 1 else "")
            )
        return found
