"""The mean of a number compared between two groups of unknown size.

Three sums are measured for each group, and a row spreads a total weight of one over them; see
`families.group_moments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpstats.analyses.compared_groups import ComparesGroups, Groups, small_groups, subgroups_of
from dpstats.analyses.moments.mean import NOTES
from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.mean_sampling import MeanSampling, PersonVariance
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.notes import WIDTHS_OF_MEANS, cell_rules, rare_mean
from dpstats.analyses.questions import Asked, Comparison, Interval, means_in_groups
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand
from dpstats.analyses.survey.estimand import means_in_groups as weighted_means
from dpstats.analyses.survey.weighted import SurveyResult, infer_weighted
from dpstats.families.block import Family
from dpstats.families.formula import named_number
from dpstats.families.group_moments import GroupMoments
from dpstats.families.persons import PersonShares
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import EstimateResult, estimated
from dpstats.schema import Schema


@weighted_by_design
@dataclass(frozen=True)
class MeanDifference(ComparesGroups):
    """Mean of a number in one group of rows minus that in another (Welch).

    Parameters
    ----------
    column : str
        A number with `missing=` or `allow_missing=True` in the schema; ``log(income)`` if its
        scale is "log".
    by : str
        Another column, which makes the groups; as in `Difference`.
    groups : pair of levels, optional
        As in `Difference`.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.MeanDifference("income", by="region", groups=("north", "south"))
    MeanDifference(column='income', by='region', groups=('north', 'south'))
    """

    kind: ClassVar[str] = "mean_difference"
    preview_remark: ClassVar[str] = WIDTHS_OF_MEANS

    column: str
    by: str
    groups: Groups | None = None

    def family(self, schema: Schema) -> Family:
        """Size, sum and sum of squares of both groups, in three sums each: it costs 2."""
        return Family((self._block(schema),))

    def _block(self, schema: Schema) -> GroupMoments:
        number, chosen = named_number(schema, self.column), self._chosen(schema)
        return GroupMoments.by(number, schema[self.by], sorted(chosen))

    def estimands(self, schema: Schema) -> list[Estimand]:
        """The difference of the weighted means of both groups."""
        chosen, block = self._chosen(schema), self._block(schema)
        order = [0, 1] if chosen[0] < chosen[1] else [1, 0]
        names = self._labels(schema)
        means = weighted_means(block, names, names, order)
        term = f"mean of {self.column}: {names[0]} - {names[1]}"
        return [means.differences([term], np.array([[1.0, -1.0]]))]

    def person_totals(self, schema: Schema) -> tuple[PersonShares, ...]:
        """Person totals for the sampling variance: those within both groups."""
        block = self._block(schema)
        return (PersonShares(block.number, block.groups),)

    def asked(self, schema: Schema) -> Asked:
        """The means of both groups, and their difference."""
        groups = subgroups_of(self.family(schema), self._chosen(schema))
        first, second = questions = means_in_groups(schema, self.column, groups)
        term = f"mean of {self.column}: {' - '.join(group.label for group in groups)}"
        least = np.array([first.range[0] - second.range[1]])

        def compared(first: Interval, second: Interval) -> Comparison:
            low, high = first[0] - second[1], first[1] - second[0]
            return [term], np.array([low]), np.array([high]), least, -least

        return Asked(questions, compared)

    def title(self, schema: Schema) -> str:
        """Title of the result."""
        first, second = self._labels(schema)
        return f"Mean difference: {self.column}, by {self.by}: {first} against {second}"

    def infer(self, release: ReleaseView) -> MeanDifferenceResult:
        """Estimate with noise-aware and certified intervals."""
        first, second = self._chosen(release.schema)
        answers = release.answers(self.family(release.schema))
        places = (0, 1) if first < second else (1, 0)
        groups = tuple(NoisyMean.of_group(answers, place) for place in places)
        number = named_number(release.schema, self.column)
        middle, half = number.middle, number.half_range
        (block,) = self.person_totals(release.schema)
        sampling = PersonVariance.of(release, block, places) or MeanSampling()
        contrast = Contrast(groups, middle, half, sampling)
        names = self._labels(release.schema)
        notes = [
            "means and sizes: "
            + "; ".join(
                f"{name} {middle + half * group.mean:.6g} in about {round(group.observed[0])} rows"
                for name, group in zip(names, groups, strict=True)
            ),
            *NOTES,
            *small_groups(names, groups),
        ]
        for name, group in zip(names, groups, strict=True):
            if not group.hidden_by_noise:
                notes += rare_mean(f"{self.column} in group {name}", group)
        terms = [f"mean of {self.column}: {names[0]} - {names[1]}"]
        return MeanDifferenceResult(
            title=self.title(release.schema),
            **estimated(terms, contrast),
            rows=answers.rows.with_totals(sampling.from_totals),
            budget=str(release.budget),
            scalar=True,
            notes=[*notes, cell_rules(release.schema, self)],
        )

    def infer_weighted(self, release: ReleaseView) -> WeightedMeanDifference:
        """The weighted difference."""
        return infer_weighted(self, release, WeightedMeanDifference)


@dataclass(frozen=True, repr=False, eq=False)
class MeanDifferenceResult(EstimateResult):
    """The difference of two means, with a test.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number("age", 0, 99, missing=0), dps.Boolean("urban")])
    >>> gap = dps.MeanDifference("age", by="urban")
    >>> plan = dps.plan(schema, {"gap": gap}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "urban": numbers % 100 >= 50})
    >>> result = dps.release(plan, rows, m=2_000).infer(gap)
    >>> abs(float(result) - 50) < 3, result.terms
    (True, ['mean of age: True - False'])
    """

    null_value = 0.0

    @property
    def interval_of(self) -> str:
        """The difference, whose unit the width has."""
        return f"{self.terms[0]}, in its own unit"


@dataclass(frozen=True, repr=False, eq=False)
class WeightedMeanDifference(SurveyResult, MeanDifferenceResult):
    """The difference of two means of a surveyed population."""
