"""One proportion, in the population or within a group.

Overall: the noisy count is Binomial(n, p) plus noise of a known law; both intervals come from that
law alone. Within a group, two disjoint conditions are measured (inside the group with and without
the trait), because the size of the group is private too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.base import AlternativeShares
from dpstats.analyses.counts.group_shares import GroupIntervals
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.analyses.counts.shares_from_totals import SharesFromTotals
from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.mean_sampling import SHARES, PersonVariance
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.notes import (
    WIDTHS_OF_GROUPS,
    WIDTHS_OF_SHARES,
    cell_rules,
    impossible_shares,
    notes_on_cells,
    rare_shares,
    subgroup_note,
)
from dpstats.analyses.questions import Asked, answered_in, question_of_conditions
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, shares_in_groups
from dpstats.analyses.survey.weighted import SurveyResult, infer_weighted
from dpstats.analyses.tables.cells import TableOfCells, crosstab, with_levels
from dpstats.arrays import Floats
from dpstats.checks import Method, Target, check_choice, check_number
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.persons import PersonShares
from dpstats.families.subgroups import EVERY_CELL, Subgroup
from dpstats.families.tables.cells import Cells, Indicator, Partition
from dpstats.measured.answers import Answers
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import EstimateResult, estimated
from dpstats.schema import Column, Schema
from dpstats.schema.conditions import cell_set

if TYPE_CHECKING:
    import pandas as pd


@weighted_by_design
@dataclass(frozen=True)
class Proportion:
    """Proportion of rows for which a condition holds.

    Parameters
    ----------
    condition : str
        Such as ``"smoker == 'yes' and age >= 65"``.
    given : str, optional
        Prevalence within a group: the proportion of rows with `condition` among those with
        `given`.

    Where the condition involves columns with ``allow_missing=True``, it is a proportion of the rows
    that have a value of these. A condition that names ``'(missing)'`` itself is one of all rows.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Proportion("smoker == 'yes'", given="age >= 65")
    Proportion(condition="smoker == 'yes'", given='age >= 65')
    """

    kind: ClassVar[str] = "proportion"

    condition: str
    given: str | None = None

    @property
    def preview_remark(self) -> str:
        """How other rows change the widths of a preview."""
        return WIDTHS_OF_SHARES if self.given is None else WIDTHS_OF_GROUPS

    def family(self, schema: Schema) -> Family:
        """One condition; two disjoint ones within a group."""
        trait = Cells.condition(schema, self.condition)
        group = self._group(schema)
        if group is None:
            return Family((trait,))
        columns, sets = self._sets(schema)
        return Family(tuple(Indicator(cell_set(columns, cells), label) for cells, label in sets))

    def _sets(
        self, schema: Schema
    ) -> tuple[tuple[Column, ...], list[tuple[NDArray[np.bool_], str]]]:
        """Columns, and their cells with the trait and without it, of the group if there is one."""
        trait, group = Cells.condition(schema, self.condition), self._group(schema)
        label = "" if group is None else f" and ({group.name})"
        group = group or Subgroup(EVERY_CELL)
        columns = tuple(c for c in schema if c in trait.columns or c in group.columns)
        inside, holds = group.over(columns), trait.cells.over(columns)
        if not (np.any(inside & holds) and np.any(inside & ~holds)):
            raise RequestError(
                f"{self.condition!r} has the same value in all {group.described}; there is "
                "nothing to estimate"
            )
        return columns, [
            (inside & holds, f"({self.condition}){label}"),
            (inside & ~holds, f"not ({self.condition}){label}"),
        ]

    def person_totals(self, schema: Schema) -> tuple[PersonShares, ...]:
        """Person totals for the sampling variance: rows with the trait and without."""
        return (PersonShares.of_cells(*self._sets(schema)),)

    def _group(self, schema: Schema) -> Subgroup | None:
        return Subgroup.of(schema, self.given, answered_in(schema, self.condition))

    def estimands(self, schema: Schema) -> list[Estimand]:
        """The weighted share, from the rows with the trait and those without."""
        columns, sets = self._sets(schema)
        named = zip((self._term, f"not {self._term}"), sets, strict=True)
        block = Partition.of(columns, {name: cells for name, (cells, _) in named})
        return [shares_in_groups(block, [self._term])]

    def is_of_functions(self, schema: Schema) -> bool:
        """Without a group, it is the mean of its only function."""
        return self.family(schema).size == 1

    def combines(self, schema: Schema) -> bool:
        """Without a group, its answer may be combined from several measurements."""
        return self._group(schema) is None

    def alternative(self, schema: Schema, effect: float) -> AlternativeShares:
        """Rows with the proportion `effect`.

        Raises
        ------
        RequestError
            If it is no proportion.
        """
        p = check_number("the alternative", effect)
        if not 0 <= p <= 1:
            raise RequestError(f"the alternative of a Proportion is in [0, 1]; got {p:g}")
        return AlternativeShares([([0, 1], np.array([p, 1 - p]))], p)

    def asked(self, schema: Schema) -> Asked:
        """The share of rows."""
        self.family(schema)  # refuses what has one value in all rows
        return Asked([question_of_conditions(schema, self.condition, self.given)])

    def title(self, schema: Schema) -> str:
        """Title of the result."""
        given = "" if self.given is None else f", given {self.given}"
        return f"Proportion: {self.condition}{given}"

    def infer_weighted(self, release: ReleaseView) -> WeightedProportions:
        """The weighted share."""
        return infer_weighted(self, release, WeightedProportions)

    def infer(self, release: ReleaseView) -> EstimateResult:
        """Estimate with exact noise-aware and certified intervals."""
        family = self.family(release.schema)
        group = self._group(release.schema)
        (block,) = self.person_totals(release.schema)
        totals = PersonVariance.of(release, block, [0], SHARES)
        if group is None:
            mean = None
            if totals is not None and totals.k > 1:
                share = NoisyMean.of_share(release.answers(family, with_count=True))
                mean = Contrast((share,), 0.0, 1.0, totals)
            return proportions_result(
                self.title(release.schema),
                [self.condition],
                release.answers(family).with_totals,
                str(release.budget),
                scalar=True,
                notes=(cell_rules(release.schema, self),),
                mean=mean,
            )
        answers = release.answers(family, disjoint=True)
        counts, rows = GroupIntervals(answers), answers.rows.with_totals(totals is not None)
        limits: GroupIntervals | SharesFromTotals = counts
        if totals is not None:
            mean = Contrast((NoisyMean.of_trait(answers),), 0.0, 1.0, totals)
            limits = SharesFromTotals(counts, mean)
        notes = [subgroup_note(group, counts.observed_size, counts.size_noise)]
        if counts.hidden_by_noise:
            notes.append(
                "the group is small relative to the noise: ignore the estimate, use the interval"
            )
        else:
            notes += rare_shares(np.array([counts.estimate]), counts.size / rows.rows_per_person)
        return EstimateResult(
            title=self.title(release.schema),
            **estimated([self._term], limits),
            rows=rows,
            budget=str(release.budget),
            scalar=True,
            notes=[*notes, cell_rules(release.schema, self)],
        )

    @property
    def _term(self) -> str:
        return self.condition + ("" if self.given is None else f" | {self.given}")


@dataclass(frozen=True, repr=False, eq=False)
class ProportionResult(EstimateResult):
    """Proportions of all rows, or cells of tables.

    Attributes
    ----------
    tables : tuple of TableOfCells
        The tables whose cells the parameters are, in order; empty for a single condition.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> table = dps.Marginals(["smoker", "region"])
    >>> plan = dps.plan(schema, {"table": table}, budget=dps.PureDP(10))
    >>> rows = pd.DataFrame({"smoker": [True, False] * 5_000, "region": "south"})
    >>> result = dps.release(plan, rows).infer(table)
    >>> print(result.params.round(1)[1::2], result.conf_int().shape)
    [0.5 0.5] (4, 2)
    >>> print(result.crosstab("region", "smoker").round(1))
    smoker  False  True
    region
    north     0.0   0.0
    south     0.5   0.5
    """

    tables: tuple[TableOfCells, ...] = ()

    def to_frame(  # noqa: D102, inherited
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        frame = super().to_frame(alpha=alpha, method=method, target=target)
        return with_levels(frame, self.tables, "term")

    def crosstab(
        self,
        *columns: str,
        values: str | None = None,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> pd.DataFrame:
        """One of the tables as rows and columns, as ``pandas.crosstab`` has them.

        Parameters
        ----------
        *columns : str
            All columns of the table: the last one across, the others down.
        values : str, optional
            Which numbers of `to_frame`: "fitted" (shares of all rows, none negative), "estimate"
            (unbiased ones), "std_error", "conf_low", "conf_high" or "privacy_share". Default:
            "fitted", or "estimate" where a column is not in the synthetic rows.
        alpha, method, target :
            As in `to_frame`.

        Returns
        -------
        DataFrame
            The levels of the last column across, those of the others as index.

        Raises
        ------
        RequestError
            If no table has these columns, or the values are not known.
        """
        frame = EstimateResult.to_frame(self, alpha=alpha, method=method, target=target)
        if not self.tables:
            return crosstab((), columns, ())  # refused
        if values is None:
            values = "estimate" if self.fitted is None else "fitted"
        check_choice("values", values, list(frame.columns[1:]))
        return crosstab(self.tables, columns, frame[values])


@dataclass(frozen=True, repr=False, eq=False)
class WeightedProportions(SurveyResult, ProportionResult):
    """Proportions of a surveyed population, or cells of tables."""


def proportions_result(
    title: str,
    terms: list[str],
    answers: Answers,
    budget: str,
    *,
    scalar: bool = False,
    tables: tuple[TableOfCells, ...] = (),
    notes: Sequence[str] = (),
    fitted: Floats | None = None,
    mean: Contrast | None = None,
) -> ProportionResult:
    """Result for the proportions of some measured conditions or cells.

    `tables` are those whose cells they are, one after the other; `fitted` are their shares under
    the fitted density; `mean` is the only share, from totals of persons.
    """
    stops = list(itertools.accumulate((table.size for table in tables), initial=0))
    pieces = tuple(slice(a, b) for a, b in itertools.pairwise(stops))
    intervals = ProportionIntervals(answers, pieces)
    return ProportionResult(
        title=title,
        **estimated(terms, intervals if mean is None else SharesFromTotals(intervals, mean)),
        rows=answers.rows.with_totals(mean is not None),
        budget=budget,
        scalar=scalar,
        notes=[
            *notes,
            *notes_on_cells(answers),
            *impossible_shares(answers.means, fitted is not None),
            *rare_shares(np.clip(answers.means[~answers.impossible], 0, 1), answers.of_persons.n),
        ],
        fitted=fitted,
        tables=tables,
    )
