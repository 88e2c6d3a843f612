"""Means of numbers, from their first and second moments.

Of all rows, size known or measured once, or of a subgroup: the rows with a condition and a value.
The size of a subgroup is private, so it is measured along with the sums; see
`families.group_moments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.mean_sampling import MeanSampling, PersonVariance
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.notes import WIDTHS_OF_MEANS, cell_rules, rare_mean, subgroup_note
from dpstats.analyses.questions import Asked, question_of_mean
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, means_in_groups
from dpstats.analyses.survey.weighted import SurveyResult, infer_weighted
from dpstats.checks import listed, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.formula import named_number
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.persons import PersonShares
from dpstats.families.subgroups import EVERY_CELL, Subgroup
from dpstats.inference.confidence_law import BEYOND_DRAWS
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import EstimateResult, estimated
from dpstats.schema import Schema

NOTES = (
    "sampling variances are those of the t interval: with few rows or a very skewed number use the "
    "certified interval",
    BEYOND_DRAWS,
)


@weighted_by_design
@dataclass(frozen=True)
class Mean:
    """Means of numbers, in their own units.

    They are means of the values as the schema codes them: clamped to the bounds, rounded to the
    grid. The squares are measured as well, for the standard error: a number costs 2.25 where its
    mean alone would cost 2. Within a subgroup it costs 2.

    Parameters
    ----------
    columns : str or sequence of str
        One number, or several; each with `missing=` or ``allow_missing=True`` in the schema. In the
        second case its mean is that of the rows that have a value of it. ``log(income)`` for a
        number with ``scale="log"``: exp of the estimate and of the limits is then the geometric
        mean with its limits.
    given : str, optional
        Means of the rows with this condition, such as ``"age >= 65"``.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Mean(["age", "income"], given="region == 'north'")
    Mean(columns=('age', 'income'), given="region == 'north'")
    """

    kind: ClassVar[str] = "mean"
    preview_remark: ClassVar[str] = WIDTHS_OF_MEANS

    columns: str | Sequence[str]
    given: str | None = None

    def __post_init__(self) -> None:
        given = listed(self.columns)
        if isinstance(given, str):
            return
        names = isinstance(given, Sequence) and all(isinstance(name, str) for name in given)
        if not names or not given or len(set(given)) < len(given):
            raise RequestError(f"give one number, or a list of different ones; got {short(given)}")
        object.__setattr__(self, "columns", tuple(given))

    def family(self, schema: Schema) -> Family:
        """First and second moment of every column, one block each."""
        return Family(tuple(self._block(schema, name) for name in self._names))

    def _block(self, schema: Schema, name: str) -> Moments | GroupMoments:
        number = named_number(schema, name)
        group = Subgroup.of(schema, self.given, [number.name])
        if group is None:
            return Moments.of(schema, [number.name], logs=True)
        return GroupMoments(number, (group,))

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Weighted means, column by column."""
        within = "" if self.given is None else f" | {self.given}"
        found = []
        for name in self._names:
            number = named_number(schema, name)
            group = Subgroup.of(schema, self.given, [number.name]) or Subgroup(EVERY_CELL)
            block = GroupMoments(number, (group,))
            term = name + within
            found.append(means_in_groups(block, [f"mean of {term}"], [term], [0]))
        return found

    def person_totals(self, schema: Schema) -> tuple[PersonShares, ...]:
        """Person totals for the sampling variance, one block for every column."""
        return tuple(self._totals(schema, name) for name in self._names)

    def _totals(self, schema: Schema, name: str) -> PersonShares:
        number = named_number(schema, name)
        group = Subgroup.of(schema, self.given, [number.name])
        return PersonShares.of_all(number) if group is None else PersonShares(number, (group,))

    def asked(self, schema: Schema) -> Asked:
        """The means, in their own units."""
        within = "" if self.given is None else f" | {self.given}"
        numbers = [named_number(schema, name) for name in self._names]
        groups = [Subgroup.of(schema, self.given, [number.name]) for number in numbers]
        terms = [name + within for name in self._names]
        found = zip(numbers, groups, terms, strict=True)
        return Asked([question_of_mean(schema, *one) for one in found])

    def title(self, schema: Schema) -> str:
        """Title of the result."""
        several = "" if isinstance(self.columns, str) else "s"
        return f"Mean{several}" + ("" if self.given is None else f", given {self.given}")

    def infer(self, release: ReleaseView) -> MeanResult:
        """Estimates with noise-aware and certified intervals."""
        blocks = self.family(release.schema).blocks
        answers = release.answers(blocks, with_count=True)
        contrasts: list[Contrast] = []
        notes = [*NOTES]
        start = 0
        for name, block in zip(self._names, blocks, strict=True):
            if isinstance(block, GroupMoments):
                part = answers.subset(slice(start, start + block.size))
                mean = NoisyMean.of_group(part, 0)
                about = subgroup_note(block.groups[0], float(mean.observed[0]), mean.size_noise)
                notes.append(f"mean of {name}: {about}")
            else:
                mean = NoisyMean.of_column(answers, start)
            totals = PersonVariance.of(release, self._totals(release.schema, name), [0])
            number = named_number(release.schema, name)
            scale = number.middle, number.half_range
            contrasts.append(Contrast((mean,), *scale, totals or MeanSampling()))
            notes += _remarks(name, contrasts[-1])
            start += block.size
        within = "" if self.given is None else f" | {self.given}"
        terms = [f"mean of {name}{within}" for name in self._names]
        return MeanResult(
            title=self.title(release.schema),
            **estimated(terms, contrasts),
            rows=answers.rows.with_totals(all(c.sampling.from_totals for c in contrasts)),
            budget=str(release.budget),
            scalar=isinstance(self.columns, str),
            notes=[*notes, cell_rules(release.schema, self)],
            dates=[
                term
                for term, name in zip(terms, self._names, strict=True)
                if named_number(release.schema, name).dates
            ],
        )

    def infer_weighted(self, release: ReleaseView) -> WeightedMean:
        """Weighted means."""
        return infer_weighted(self, release, WeightedMean)

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)


def _remarks(name: str, contrast: Contrast) -> list[str]:
    (group,) = contrast.groups
    if group.hidden_by_noise:
        return [f"the noise exceeds the signal in {name}: ignore the estimate, use the interval"]
    if group.variance <= 2 * group.variance_noise:
        return [
            f"the variance of {name} is small relative to its noise (sd "
            f"{contrast.half**2 * group.variance_noise:.3g}); intervals allow for that",
            *rare_mean(name, group),
        ]
    return rare_mean(name, group)


@dataclass(frozen=True, repr=False, eq=False)
class MeanResult(EstimateResult):
    """Means; a single one with a test.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number("age", 0, 99, missing=0)])
    >>> mean = dps.Mean("age")
    >>> plan = dps.plan(schema, {"mean": mean}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"age": [x % 100 for x in range(10_000)]})
    >>> result = dps.release(plan, rows, m=2_000).infer(mean)
    >>> abs(float(result) - 49.5) < 1, result.test(60).pvalue < 0.01
    (True, True)
    """

    @property
    def interval_of(self) -> str:
        """The first mean, whose unit the width has."""
        unit = "days" if self.terms[0] in self.dates else "its own unit"
        return f"{self.terms[0]}, in {unit}"

    @property
    def terms_by_unit(self) -> list[list[str]]:
        """Every mean by itself: other columns have other units."""
        return [[term] for term in self.terms]


@dataclass(frozen=True, repr=False, eq=False)
class WeightedMean(SurveyResult, MeanResult):
    """Means of a surveyed population."""
