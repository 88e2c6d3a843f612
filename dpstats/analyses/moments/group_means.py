"""Means of a number, or shares of rows with a trait, in every group of rows.

Of a number three sums are measured for each group. A row is in one group, so that any number of
groups has the noise of one; see `families.group_moments`. Shares follow from the table of groups
and trait.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.compared_groups import sets_of_groups, small_groups
from dpstats.analyses.counts.group_shares import GroupCounts, GroupIntervals
from dpstats.analyses.moments.group_means_result import GroupMeansResult, GroupRatesResult
from dpstats.analyses.moments.mean import NOTES
from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.moments.one_way import OneWay
from dpstats.analyses.notes import WIDTHS_OF_MEANS, cell_rules, left_out, rare_mean
from dpstats.analyses.questions import Asked, means_in_groups
from dpstats.checks import listed, short
from dpstats.errors import RequestError, SchemaError
from dpstats.families.block import Family
from dpstats.families.formula import named_number, names_logarithm
from dpstats.families.group_moments import GroupMoments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Indicator, Table
from dpstats.inference.intervals import Several
from dpstats.measured.view import ReleaseView
from dpstats.results.named import Named
from dpstats.schema import MISSING_LABEL, Boolean, Category, Column, Number, Schema
from dpstats.schema.conditions import cell_set

_WELCH = "Welch's F test allows for different variances of the groups"


@dataclass(frozen=True)
class GroupMeans:
    """Mean of a number, or share of rows, in every level of a category, with a test of equality.

    Parameters
    ----------
    column : str
        A number with `missing=` or `allow_missing=True` in the schema; ``log(income)`` if its
        scale is "log". Or a Boolean, a category with two levels (the share of the second one), or a
        condition such as ``"stage in ('III', 'IV')"``. Rows without a value of it are left out.
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
    >>> dps.GroupMeans("readmitted", by="ward")
    GroupMeans(column='readmitted', by='ward', groups=None, given=None)
    """

    kind: ClassVar[str] = "group_means"
    preview_remark: ClassVar[str] = WIDTHS_OF_MEANS

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
        """Three sums of all groups, or the table of groups and trait: each costs 2."""
        if self.trait(schema) is not None:
            columns, _ = self._sets(schema)
            return Family((Table(columns),))
        number = named_number(schema, self.column)
        given = None if self.given is None else Subgroup.of(schema, self.given, [number.name])
        levels = sorted(self._chosen(schema))
        return Family((GroupMoments.by(number, schema[self.by], levels, given),))

    def answered(self, schema: Schema) -> Family:
        """Measured functions, or for shares the counts of each group that follow from them."""
        return self.family(schema) if self.trait(schema) is None else Family(self._counts(schema))

    def trait(self, schema: Schema) -> str | None:
        """The condition whose shares are wanted; None of a number."""
        if not isinstance(self.column, str) or names_logarithm(schema, self.column):
            return None
        if self.column not in schema.names:
            return self.column
        column = schema[self.column]
        if isinstance(column, Number):
            return None
        quoted = f"`{self.column}`"
        if isinstance(column, Boolean):
            return quoted
        labels = [label for label in column.bin_labels if label != MISSING_LABEL]
        if not isinstance(column, Category) or len(labels) != 2:
            raise RequestError(
                f"{self.column!r} has {len(labels)} levels: name those whose share you want, as in "
                f"dps.GroupMeans({quoted + ' == ' + repr(labels[0])!r}, by={self.by!r})"
            )
        return f"{quoted} == {list(column.levels)[1]!r}"

    def _sets(
        self, schema: Schema
    ) -> tuple[tuple[Column, ...], list[tuple[NDArray[np.bool_], str]]]:
        trait = self.trait(schema)
        assert trait is not None
        given = None if self.given is None else Subgroup.of(schema, self.given, [])
        return sets_of_groups(schema, trait, self.by, self._chosen(schema), given)

    def _counts(self, schema: Schema) -> tuple[Indicator, ...]:
        """Rows of each group with the trait, and without it."""
        columns, sets = self._sets(schema)
        return tuple(Indicator(cell_set(columns, cells), label) for cells, label in sets)

    def _rates(self, release: ReleaseView) -> GroupRatesResult:
        schema, chosen = release.schema, self._chosen(release.schema)
        answers = release.answers(self._counts(schema), disjoint=True)
        parts = [answers.subset(slice(2 * i, 2 * i + 2)) for i in range(len(chosen))]
        groups = [GroupCounts(part) for part in parts]
        names = tuple(schema[self.by].bin_labels[level] for level in chosen)
        terms = [f"{self.by}={name}" for name in names]
        one_way = OneWay(tuple(NoisyMean.of_trait(answers, 2 * i) for i in range(len(chosen))))
        used = tuple(itertools.compress(names, one_way.levels.used))
        notes = [*small_groups(names, groups), *left_out(
            "tests", {self.by: used}, {self.by: names}, [self.by]
        )]  # fmt: skip
        rows = answers.rows.with_totals(False)
        given = "" if self.given is None else f", given {self.given}"
        sampling = np.array([group.sampling_variance for group in groups])
        trait = str(self.trait(schema)).replace("`", "")
        return GroupRatesResult(
            title=f"Shares of rows with {trait}, by {self.by}{given}",
            terms=terms,
            params=Named([group.risk for group in groups], terms),
            sampling_variance=sampling * rows.rows_per_person,
            privacy_variance=np.array([group.privacy_variance for group in groups]),
            intervals=Several(tuple(GroupIntervals(part) for part in parts)),
            rows=rows,
            budget=str(release.budget),
            notes=[*notes, cell_rules(schema, self)],
            groups=names,
            one_way=one_way,
            answers=answers,
        )

    def compared(self, schema: Schema) -> tuple[Subgroup, ...]:
        """The groups of rows whose means are compared, in order."""
        chosen = self._chosen(schema)
        (block,) = self.family(schema).blocks
        assert isinstance(block, GroupMoments)
        groups = dict(zip(sorted(chosen), block.groups, strict=True))
        return tuple(groups[level] for level in chosen)

    def asked(self, schema: Schema) -> Asked | None:
        """The mean in every group; none of rates."""
        if self.trait(schema) is not None:
            return None
        return Asked(means_in_groups(schema, self.column, self.compared(schema)))

    def infer(self, release: ReleaseView) -> GroupMeansResult:
        """Estimates with noise-aware and certified intervals."""
        if self.trait(release.schema) is not None:
            return self._rates(release)
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
            intervals=Several(means),
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
