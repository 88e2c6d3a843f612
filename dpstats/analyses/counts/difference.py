"""Two groups compared: risk difference, risk ratio and odds ratio of a condition.

Four disjoint sets of rows are counted, each group with and without the trait, because the sizes of
the groups are private too; see `analyses.counts.group_shares`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.base import AlternativeShares
from dpstats.analyses.compared_groups import ComparesGroups, Groups, sets_of_groups, small_groups
from dpstats.analyses.counts.group_shares import (
    MEASURES,
    DifferenceIntervals,
    limits_of_measures,
    measure_gradients,
)
from dpstats.analyses.counts.shares_from_totals import DifferenceFromTotals
from dpstats.analyses.moments.mean_sampling import SHARES, PersonVariance
from dpstats.analyses.notes import WIDTHS_OF_GROUPS, cell_rules
from dpstats.analyses.questions import Asked, Comparison, Interval, question_of_share
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, shares_in_groups
from dpstats.analyses.survey.weighted import SurveyResult, infer_weighted
from dpstats.arrays import Floats
from dpstats.checks import Alternative, check_finite, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.persons import PersonShares
from dpstats.families.tables.cells import Indicator, Partition, Table
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import EstimateResult, estimated
from dpstats.results.hypothesis import HypothesisResult
from dpstats.schema import Column, Schema
from dpstats.schema.conditions import cell_set

_TERMS = ("risk difference", "risk ratio", "odds ratio")
_POSSIBLE = np.array([-1.0, 0.0, 0.0]), np.array([1.0, np.inf, np.inf])
_TABLE_CELLS = 4  # a table costs 2, four conditions cost 4: sums of fewer cells have less noise


@weighted_by_design
@dataclass(frozen=True)
class Difference(ComparesGroups):
    """Proportion of rows for which a condition holds, compared between two groups.

    Parameters
    ----------
    condition : str
        The trait, such as ``"smoker == 'yes'"``; it may not involve the column `by`. Rows without
        a value of a column in it are excluded, as in `Proportion`.
    by : str
        A column with two levels or bins (a level for missing cells aside), or a Boolean column,
        for which the groups are true and false in this order.
    groups : pair of levels, optional
        Which levels to compare, and in which order; needed where the column has more than two. A
        bin of a number is named by its label, such as ``"[0, 18)"``. Rows of other levels are
        excluded.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Difference("smoker == 'yes'", by="region", groups=("north", "south"))
    Difference(condition="smoker == 'yes'", by='region', groups=('north', 'south'))
    """

    kind: ClassVar[str] = "difference"
    preview_remark: ClassVar[str] = WIDTHS_OF_GROUPS

    condition: str
    by: str
    groups: Groups | None = None

    def family(self, schema: Schema) -> Family:
        """The table of the columns, or four disjoint conditions where that has less noise."""
        counts = self._counts(schema)
        columns = tuple(c for c in schema if any(c in block.columns for block in counts))
        most = max(int(block.cells.over(columns).sum()) for block in counts)
        if most < _TABLE_CELLS:
            return Family((Table(columns),))
        return Family(tuple(counts))

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Weighted risks of both groups, compared in three ways."""
        columns, sets = self._sets(schema)
        block = Partition.of(columns, {label: cells for cells, label in sets})
        risks = shares_in_groups(block, self._labels(schema))
        compared = risks.combined(list(_TERMS), _compare, _slopes, _POSSIBLE, _limits)
        return [replace(compared, logarithmic=np.array([False, True, True]))]

    def answered(self, schema: Schema) -> Family:
        """The four disjoint conditions, which follow from the table."""
        return Family(tuple(self._counts(schema)))

    def asked(self, schema: Schema) -> Asked:
        """The shares of both groups, and how they are compared."""
        counts = self.answered(schema).blocks  # with the trait and without it
        questions = [question_of_share(*counts[:2]), question_of_share(*counts[2:])]

        def compared(first: Interval, second: Interval) -> Comparison:
            p, q = (np.array(ends)[:, np.newaxis] for ends in (first, second))
            low, high = limits_of_measures((p[0], p[1]), (q[0], q[1]))
            both = " and ".join(question.term for question in questions)
            return [f"{m} of {both}" for m in MEASURES], low, high, *_POSSIBLE

        return Asked(questions, compared)

    def alternative(self, schema: Schema, effect: float | Sequence[float]) -> AlternativeShares:
        """Rows with both risks, or with a difference of risks around one half.

        Raises
        ------
        RequestError
            If these are no risks.
        """
        given = check_finite("alternative", effect)
        risks = [0.5 + given / 2, 0.5 - given / 2] if given.ndim == 0 else list(given)
        if len(risks) != 2 or not all(0 <= risk <= 1 for risk in risks):
            raise RequestError(
                "the alternative of a Difference is a difference in [-1, 1], around one half, or "
                f"both risks; got {short(effect)}"
            )
        groups = [([2 * i, 2 * i + 1], np.array([p, 1 - p])) for i, p in enumerate(risks)]
        return AlternativeShares(groups, float(risks[0] - risks[1]), 0.0)

    def title(self, schema: Schema) -> str:
        """Title of the result."""
        first, second = self._labels(schema)
        return f"Difference: {self.condition}, by {self.by}: {first} against {second}"

    def infer(self, release: ReleaseView) -> DifferenceResult:
        """Estimates with noise-aware and certified intervals."""
        answers = release.answers(self._counts(release.schema), disjoint=True)
        names = self._labels(release.schema)
        (block,) = self.person_totals(release.schema)
        totals = PersonVariance.of(release, block, [0, 1], SHARES)
        intervals = DifferenceIntervals(answers)
        if totals is not None:
            intervals = DifferenceFromTotals(answers, totals=totals)
        groups = intervals.groups
        notes = [
            "risks and sizes: "
            + "; ".join(
                f"{name} {group.estimate:.4f} of about {round(group.observed_size)} rows"
                for name, group in zip(names, groups, strict=True)
            ),
            *small_groups(names, groups),
            cell_rules(release.schema, self),
        ]
        if np.isinf(intervals.sampling_variance).any():
            notes.append(
                "a ratio to a risk of 0 (or odds of a risk of 1) has an infinite standard error"
            )
        return DifferenceResult(
            title=self.title(release.schema),
            **estimated(list(_TERMS), intervals),
            rows=answers.rows.with_totals(totals is not None),
            budget=str(release.budget),
            notes=notes,
        )

    def infer_weighted(self, release: ReleaseView) -> WeightedDifference:
        """Weighted risks of both groups, compared."""
        return infer_weighted(self, release, WeightedDifference)

    def person_totals(self, schema: Schema) -> tuple[PersonShares, ...]:
        """Person totals for the sampling variance: rows in each of the four sets."""
        return (PersonShares.of_cells(*self._sets(schema)),)

    def _counts(self, schema: Schema) -> list[Indicator]:
        """The four sets of rows as conditions."""
        columns, sets = self._sets(schema)
        return [Indicator(cell_set(columns, cells), label) for cells, label in sets]

    def _sets(
        self, schema: Schema
    ) -> tuple[tuple[Column, ...], list[tuple[NDArray[np.bool_], str]]]:
        """The four sets of rows: group 1 with, without; group 2 with, without."""
        return sets_of_groups(schema, self.condition, self.by, self._chosen(schema))


@dataclass(frozen=True, repr=False, eq=False)
class DifferenceResult(EstimateResult):
    """Risk difference p1 - p2, risk ratio p1/p2 and odds ratio, with a test of each.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Boolean("urban")])
    >>> gap = dps.Difference("smoker", by="urban")
    >>> plan = dps.plan(schema, {"gap": gap}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> rows["urban"] = [True] * 2_000 + [False] * 5_000 + [True] * 3_000
    >>> result = dps.release(plan, rows).infer(gap)
    >>> result.terms
    ['risk difference', 'risk ratio', 'odds ratio']
    >>> print(result.params["risk ratio"].round())
    2.0
    >>> result.test(1, "larger", term="risk ratio").headline
    'p < 1e-06'
    """

    @property
    def interval_of(self) -> str:
        """The risk difference; ratios have other units."""
        return self.terms[0]

    def single_test(self, value: float | None = None) -> HypothesisResult:
        """The test of the risk difference."""
        return self.test(value)

    @property
    def terms_by_unit(self) -> list[list[str]]:
        """The difference, and both ratios."""
        return [self.terms[:1], self.terms[1:]]

    def test(  # type: ignore[override]  # no difference of shares is a date
        self,
        value: float | None = None,
        alternative: Alternative = "two-sided",
        *,
        term: str | None = None,
    ) -> HypothesisResult:
        """Test whether a measure equals `value`.

        Parameters
        ----------
        value : float, optional
            In [-1, 1] for the difference, at least 0 for ratios; by default 0, or 1 for ratios.
        alternative : {"two-sided", "larger", "smaller"}
        term : {"risk difference", "risk ratio", "odds ratio"}, optional
            Default: the risk difference.

        Returns
        -------
        HypothesisResult

        Raises
        ------
        RequestError
            If an argument is out of its range.
        """
        i = 0 if term is None else self._place(term)
        if value is None:
            value = 0.0 if i == 0 else 1.0
        return super().test(value, alternative, term=self.terms[i])


@dataclass(frozen=True, repr=False, eq=False)
class WeightedDifference(SurveyResult, DifferenceResult):
    """Two risks of a surveyed population compared, with a test of each measure."""


def _compare(risks: Floats) -> Floats:
    """Difference, ratio and odds ratio (3,) of two risks."""
    p, q = np.clip(risks, 1e-12, 1 - 1e-12)
    return np.array([risks[0] - risks[1], p / q, p * (1 - q) / (q * (1 - p))])


def _slopes(risks: Floats) -> Floats:
    """Derivatives (3, 2) of these by both risks."""
    return measure_gradients(*np.clip(risks, 1e-12, 1 - 1e-12).tolist())


def _limits(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Limits (3,) from those of both risks."""
    low, high = np.clip([low, high], 0, 1)
    return limits_of_measures((low[:1], high[:1]), (low[1:], high[1:]))
