"""One proportion, in the population or within a group.

Overall: the noisy count is Binomial(n, p) plus noise of a known law; both intervals come from that
law alone. Within a group, two disjoint conditions are measured (inside the group with and without
the trait), because the size of the group is private too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpstats.analyses.notes import cell_rules, rare_shares, subgroup_note
from dpstats.arrays import Floats
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.cells import Cells, Indicator
from dpstats.families.conditions import cell_set
from dpstats.families.subgroups import Subgroup
from dpstats.inference.counts.proportion_intervals import GroupIntervals, ProportionIntervals
from dpstats.measured.answers import Answers
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import EstimateResult
from dpstats.results.named import Named
from dpstats.schema import MISSING_LABEL, Schema
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

    def family(self, schema: Schema) -> Family:
        """One condition; two disjoint ones within a group."""
        trait = Cells.condition(schema, self.condition)
        group = self._group(schema)
        if group is None:
            return Family((trait,))
        columns = tuple(c for c in schema if c in trait.columns or c in group.columns)
        inside, holds = group.over(columns), trait.cells.over(columns)
        if not np.any(inside & holds) or not np.any(inside & ~holds):
            raise RequestError(
                f"{self.condition!r} has the same value in all {group.described}; there is "
                "nothing to estimate"
            )
        label = group.name
        return Family((
            Indicator(cell_set(columns, inside & holds), f"({self.condition}) and ({label})"),
            Indicator(cell_set(columns, inside & ~holds), f"not ({self.condition}) and ({label})"),
        ))  # fmt: skip

    def _group(self, schema: Schema) -> Subgroup | None:
        return Subgroup.of(schema, self.given, answered_in(schema, self.condition))

    def combines(self, schema: Schema) -> bool:
        """Without a group, its answer may be combined from several measurements."""
        return self._group(schema) is None

    def infer(self, release: ReleaseView) -> EstimateResult:
        """Estimate with exact noise-aware and certified intervals."""
        family = self.family(release.schema)
        group = self._group(release.schema)
        if group is None:
            return proportions_result(
                f"Proportion: {self.condition}",
                [self.condition],
                release.answers(family),
                str(release.budget),
                scalar=True,
                notes=(cell_rules(release.schema, self),),
            )
        answers = release.answers(family, disjoint=True)
        rules = cell_rules(release.schema, self)
        return _group_result(self, group, answers, str(release.budget), rules)


def answered_in(schema: Schema, condition: str) -> list[str]:
    """Columns of a condition that may be missing, unless it names '(missing)' itself."""
    if MISSING_LABEL in condition:
        return []
    return [c.name for c in Cells.condition(schema, condition).columns if c.allow_missing]


def proportions_result(
    title: str,
    terms: list[str],
    answers: Answers,
    budget: str,
    *,
    scalar: bool = False,
    tables: tuple[slice, ...] = (),
    notes: Sequence[str] = (),
    fitted: Floats | None = None,
) -> EstimateResult:
    """Result for the proportions of some measured conditions or cells.

    Each slice of `tables` holds all cells of one table, for simultaneous intervals; `fitted` are
    their shares under the fitted density.
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
        notes=[*notes, *rare_shares(estimate, answers.n)],
        fitted=fitted,
    )


def _group_result(
    analysis: Proportion, about: Subgroup, answers: Answers, budget: str, rules: str
) -> EstimateResult:
    intervals = GroupIntervals(answers)
    group = intervals.group
    size = group.size(answers.n)
    sampling, privacy = group.variances(group.risk, size)
    notes = [
        subgroup_note(about, size, group.size_noise),
        f"no p-value is below {LEAST_OF_COUNT:g}, the error probability spent on the unknown size "
        "of the group",
    ]
    if group.hidden_by_noise:
        notes.append(
            "the group is small relative to the noise: ignore the estimate, use the interval"
        )
    else:
        notes += rare_shares(np.array([group.risk]), size)
    notes.append(rules)
    within = "" if analysis.given is None else f" | {analysis.given}"
    terms = [f"{analysis.condition}{within}"]
    return EstimateResult(
        title=f"Proportion: {analysis.condition}"
        + ("" if analysis.given is None else f", given {analysis.given}"),
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
