"""One proportion, in the population or within a group.

Overall: the noisy count is Binomial(n, p) plus noise of a known law; both intervals come from that
law alone. Within a group, two disjoint conditions are measured (inside the group with and without
the trait), because the size of the group is private too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.cells import Cells
from dpstats.inference.counts.proportion_intervals import GroupIntervals, ProportionIntervals
from dpstats.measured.answers import Answers
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import EstimateResult
from dpstats.results.named import Named
from dpstats.schema import Schema
from dpstats.spending import LEAST_OF_COUNT


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

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Proportion("smoker == 'yes'", given="age >= 65")
    Proportion(condition="smoker == 'yes'", given='age >= 65')
    """

    kind: ClassVar[str] = "proportion"

    condition: str
    given: str | None = None

    def family(self, schema: Schema) -> Family:
        """One condition; two disjoint ones within a group."""
        if self.given is None:
            return Family((Cells.condition(schema, self.condition),))
        texts = (
            f"({self.condition}) and ({self.given})",
            f"not ({self.condition}) and ({self.given})",
        )
        for text in (self.condition, self.given):
            Cells.condition(schema, text)  # so that an error names the text the user wrote
        with_trait, without = (Cells.condition(schema, text) for text in texts)
        if with_trait.columns == without.columns and not np.any(
            with_trait.cells.array != without.cells.array
        ):
            raise RequestError(
                f"{self.condition!r} has the same value in all rows with {self.given!r}; there is "
                "nothing to estimate"
            )
        return Family((with_trait, without))

    def infer(self, release: ReleaseView) -> EstimateResult:
        """Estimate with exact noise-aware and certified intervals."""
        family = self.family(release.schema)
        if self.given is None:
            return proportions_result(
                f"Proportion: {self.condition}",
                [self.condition],
                release.answers(family),
                str(release.budget),
                scalar=True,
            )
        answers = release.answers(family, disjoint=True)
        return _group_result(self, answers, str(release.budget))


def proportions_result(
    title: str,
    terms: list[str],
    answers: Answers,
    budget: str,
    *,
    scalar: bool = False,
    tables: tuple[slice, ...] = (),
) -> EstimateResult:
    """Result for the proportions of some measured conditions or cells.

    Each slice of `tables` holds all cells of one table, for simultaneous intervals.
    """
    estimate = np.clip(answers.means, 0, 1)
    # T / N moves by (Z - p Z_N) / n; the covariance of the two is neglected.
    count = answers.rows.law
    noisy_count = 0.0 if count is None else count.variance / answers.n**2
    return EstimateResult(
        title=title,
        terms=terms,
        params=Named(estimate, terms),
        sampling_variance=estimate * (1 - estimate) / answers.n,
        privacy_variance=answers.noise_variances + estimate**2 * noisy_count,
        intervals=ProportionIntervals(answers, tables),
        rows=answers.rows,
        budget=budget,
        scalar=scalar,
    )


def _group_result(analysis: Proportion, answers: Answers, budget: str) -> EstimateResult:
    intervals = GroupIntervals(answers)
    group = intervals.group
    size = group.size(answers.n)
    sampling, privacy = group.variances(group.risk, size)
    notes = [
        f"the group holds about {size:.0f} rows (noise sd {group.size_noise:.0f} rows)",
        f"no p-value is below {LEAST_OF_COUNT:g}, the error probability spent on the unknown size "
        "of the group",
    ]
    if group.hidden_by_noise:
        notes.append(
            "the group is small relative to the noise: ignore the estimate, use the interval"
        )
    terms = [f"{analysis.condition} | {analysis.given}"]
    return EstimateResult(
        title=f"Proportion: {analysis.condition}, given {analysis.given}",
        terms=terms,
        params=Named([group.risk], terms),
        sampling_variance=np.array([sampling]),
        privacy_variance=np.array([privacy]),
        intervals=intervals,
        rows=answers.rows,
        budget=budget,
        scalar=True,
        notes=notes,
    )
