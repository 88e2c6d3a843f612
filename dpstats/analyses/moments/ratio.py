"""The ratio of the sums of two numbers, of all rows or in groups of them.

Limits are those values r for which the interval of the mean of y - r x contains zero (Fieller
1954): intervals of means serve for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.compared_groups import check_by, chosen_bins, small_groups
from dpstats.analyses.moments.mean import NOTES
from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.mean_sampling import MeanSampling, PersonVariance
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.notes import WIDTHS_OF_MEANS, cell_rules, rare_mean
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, possible_ratios, ratios_in_groups
from dpstats.analyses.survey.weighted import SurveyResult, infer_weighted
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Method, Target
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.group_moments import TO_MOMENTS, PairMoments, groups_by
from dpstats.families.persons import PersonShares
from dpstats.families.subgroups import EVERY_CELL, Subgroup
from dpstats.inference.person_forms import measured_totals
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import EstimateResult, OneParameter, estimated
from dpstats.roots import find_roots_near
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    from dpstats.inference.intervals import Ends
    from dpstats.measured.answers import Answers

_SUMS = tuple(np.outer(TO_MOMENTS[i], TO_MOMENTS[j]).ravel() for i, j in
              ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)))  # fmt: skip
"""Size, sums of two numbers, of their squares and product (unit scale) as sums of nine parts."""
E = TypeVar("E", bound=EstimateResult)
_TOLERANCE = 5e-7  # of an end, in half widths; ends are moved outwards by it
_FARTHEST = 1e9  # half widths; an end beyond is infinite, or the end of what is possible
_OPEN = (
    "some intervals have no ends: the noise or the sampling error does not separate the "
    "denominator from zero; use more rows or more budget"
)


@weighted_by_design
@dataclass(frozen=True)
class Ratio:
    """The sum of one number over that of another, such as costs per unit of income.

    It is also the ratio of their means. Rows without a value of either number are not used.

    Parameters
    ----------
    numerator : str
        A number with `missing=` or ``allow_missing=True`` in the schema.
    denominator : str
        Another one, which is declared from 0 or more.
    by : str, optional
        A ratio in every group: levels of a category, false and true of a Boolean, bins of a
        number.
    given : str, optional
        The rows with this condition, such as ``"age >= 65"``, which may not involve `by`.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Ratio("rent", "income", by="region")
    Ratio(numerator='rent', denominator='income', by='region', given=None)
    """

    kind: ClassVar[str] = "ratio"
    preview_remark: ClassVar[str] = WIDTHS_OF_MEANS

    numerator: str
    denominator: str
    by: str | None = None
    given: str | None = None

    def __post_init__(self) -> None:
        if self.by is not None:
            check_by(self.by)

    def family(self, schema: Schema) -> Family:
        """Nine sums of all groups, which cost 2 together."""
        return Family((self._block(schema),))

    def _block(self, schema: Schema) -> PairMoments:
        numbers = self._number(schema, self.numerator), self._number(schema, self.denominator)
        least = numbers[1].middle - numbers[1].half_range
        if least < 0 or numbers[0] == numbers[1]:
            raise RequestError(
                f"the denominator of a ratio must be another number that is never negative; got "
                f"{self.denominator!r} from {least:.10g}: declare it from 0, or exchange the "
                "numbers"
            )
        given = Subgroup.of(schema, self.given, [number.name for number in numbers])
        if self.by is None:
            return PairMoments(numbers, (given or Subgroup(EVERY_CELL),))
        levels = chosen_bins(schema[self.by], None)
        return PairMoments(numbers, groups_by(numbers, schema[self.by], levels, given))

    @staticmethod
    def _number(schema: Schema, name: str) -> Number:
        number = schema[name]
        if not isinstance(number, Number) or number.dates:
            raise RequestError(
                f"{name!r} is not a number: a ratio is of the sums of two numbers; a share of rows "
                "with a condition is dps.Proportion, in groups dps.GroupMeans"
            )
        number.require_linear()
        return number

    def _terms(self, schema: Schema) -> list[str]:
        if self.by is None:
            within = "" if self.given is None else f" | {self.given}"
            return [f"{self.numerator} / {self.denominator}{within}"]
        column = schema[self.by]
        return [f"{self.by}={column.bin_labels[i]}" for i in chosen_bins(column, None)]

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Ratios of weighted sums."""
        terms = self._terms(schema)
        counted = [f"{self.numerator}, {term}" for term in terms]
        if self.by is None:
            counted = [self.numerator + ("" if self.given is None else f" | {self.given}")]
        return [ratios_in_groups(self._block(schema), terms, counted)]

    def person_totals(self, schema: Schema) -> tuple[PersonShares, ...]:
        """Person totals for the sampling variance."""
        block = self._block(schema)
        return (PersonShares(block.numbers[0], block.groups, block.numbers[1]),)

    def title(self, schema: Schema) -> str:
        """Title of the result."""
        by = "" if self.by is None else f", by {self.by}"
        given = "" if self.given is None else f", given {self.given}"
        return f"Ratio: {self.numerator} / {self.denominator}{by}{given}"

    def infer(self, release: ReleaseView) -> RatioResult:
        """Estimates with noise-aware and certified intervals."""
        schema, block = release.schema, self._block(release.schema)
        answers, terms = release.answers(block), self._terms(schema)
        (of_persons,) = self.person_totals(schema)
        totals = measured_totals(release, of_persons)
        parts = [RatioIntervals(answers, i, totals) for i in range(len(terms))]
        notes = [*NOTES, *small_groups(terms, [part.mean_of(1, 0) for part in parts])]
        notes += [f"only {group.described} are used" for group in block.groups if self.by is None]
        for term, part in zip(terms, parts, strict=True):
            for name, mean in ((self.numerator, part.mean_of(1, 0)),
                               (self.denominator, part.mean_of(0, -1))):  # fmt: skip
                if not mean.hidden_by_noise:
                    notes += rare_mean(name if self.by is None else f"{name} in {term}", mean)
        result = RatioResult(
            title=self.title(schema),
            **estimated(terms, parts),
            rows=answers.rows.with_totals(totals is not None),
            budget=str(release.budget),
            scalar=self.by is None,
            notes=[*notes, cell_rules(schema, self)],
        )  # fmt: skip
        # The note is about noise-aware intervals, which bounds do not give.
        return result if answers.bound_only else _noted(result)

    def infer_weighted(self, release: ReleaseView) -> SurveyResult:
        """Weighted estimates."""
        return _noted(infer_weighted(self, release))


def _noted(result: E) -> E:
    """A result with a note where a 95% interval has no end."""
    opened = not np.isfinite(np.asarray(result.conf_int())).all()
    return replace(result, notes=[*result.notes, _OPEN]) if opened else result


@dataclass(frozen=True)
class RatioIntervals(OneParameter, Cached):
    """Intervals of the ratio of two sums in a group of rows, from answers to `PairMoments`."""

    answers: Answers
    group: int
    totals: Answers | None  # to `PersonShares`

    @cached_property
    def _block(self) -> PairMoments:
        (block,) = self.answers.blocks
        assert isinstance(block, PairMoments)
        return block

    def mean_of(self, a: float, b: float) -> NoisyMean:
        """The mean of a y - b x, in the unit scale of what it can be."""
        nine = len(_SUMS[0])
        own = self.answers.subset(slice(nine * self.group, nine * (self.group + 1)))
        first, second = self._slopes(a, b)
        size, y, x, y_squared, both, x_squared = _SUMS
        mixing = np.array([
            size,
            first * y + second * x,
            first**2 * y_squared + 2 * first * second * both + second**2 * x_squared,
        ])  # fmt: skip
        return NoisyMean.of_parts(own, mixing)

    def _slopes(self, a: float, b: float) -> Floats:
        """Coefficients of y and x in a y - b x, all in unit scale."""
        y, x = self._block.numbers
        slopes = np.array([a * y.half_range, -b * x.half_range])
        return np.asarray(slopes / np.abs(slopes).sum())

    def _contrast(self, a: float, b: float) -> Contrast:
        """Intervals of the mean of a y - b x."""
        y, x = self._block.numbers
        half, middle = abs(a) * y.half_range + abs(b) * x.half_range, a * y.middle - b * x.middle
        sampling = MeanSampling()
        if self.totals is not None:
            first, second = self._slopes(a, b).tolist()
            corners = (-first - second, second - first, first - second, first + second)
            places = tuple(range(4 * self.group, 4 * self.group + 4))
            most = self.totals.rows.rows_per_person
            sampling = PersonVariance(self.totals, (places,), corners, most)
        return Contrast((self.mean_of(a, b),), middle, half, sampling)

    def _at(self, ratio: float) -> Contrast:
        return self._once(ratio, lambda: self._contrast(1.0, ratio))

    @cached_property
    def _below(self) -> float:
        """The mean of x, at least one unit of it in all rows together."""
        x = self._contrast(0.0, -1.0)
        return max(x.estimate, (x.middle + x.half) / x.groups[0].size)

    @cached_property
    def ranges(self) -> tuple[float, float]:
        """Least and largest ratio by the bounds; without an end if all denominators may be zero."""
        return possible_ratios(self._block)

    @cached_property
    def estimate(self) -> float:
        """Estimate."""
        return float(np.clip(self._at(0.0).estimate / self._below, *self.ranges))

    @property
    def sampling_variance(self) -> float:
        """Variance of the estimate's sampling error, to first order."""
        return self._at(self.estimate).sampling_variance / self._below**2

    @property
    def privacy_variance(self) -> float:
        """Variance of the estimate's noise, to first order."""
        return self._at(self.estimate).privacy_variance / self._below**2

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays."""
        return self._limits(alpha, "noise_aware", target)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays."""
        return self._limits(alpha, "certified", target)

    def _limits(self, alpha: float, method: Method, target: Target) -> Ends:
        """The values for which the interval of the mean of y - value x contains zero."""

        def ends(ratios: Floats, which: NDArray[np.intp]) -> Floats:
            found = [np.hstack(self._at(r).conf_int(alpha, method, target))[side]
                     for r, side in zip(ratios.tolist(), which.tolist(), strict=True)]  # fmt: skip
            return np.array(found)

        width = float(np.ptp(self._at(self.estimate).conf_int(alpha, method, target)))
        reach = width / 2 / self._below
        unit = max(reach, 1e-9 * abs(self.estimate), 1e-300)
        guess = self.estimate + reach * np.array([-1.0, 1.0])
        far = self.estimate + _FARTHEST * unit * np.array([[-1.0], [1.0]]) * np.ones(2)
        far = np.clip(far, *self.ranges)
        found = find_roots_near(ends, guess, np.full(2, unit), *far, tolerance=_TOLERANCE * unit)
        low, high = np.clip(found + _TOLERANCE * unit * np.array([-1.0, 1.0]), *self.ranges)
        return np.array([low]), np.array([high])

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """Noise-aware p-value (1,) of the hypothesis that it equals `value`: where limits end."""
        return self._at(value).pvalues(0.0, alternative)


@dataclass(frozen=True, repr=False, eq=False)
class RatioResult(EstimateResult):
    """Ratios of sums of two numbers; a single one with a test.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> numbers = [dps.Number(name, 0, 99, missing=0) for name in ("rent", "income")]
    >>> asked = {"r": dps.Ratio("rent", "income")}
    >>> plan = dps.plan(dps.Schema(numbers), asked, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"rent": [10, 20] * 5_000, "income": [40, 60] * 5_000})
    >>> result = dps.release(plan, rows, m=2_000).infer("r")
    >>> abs(float(result) - 0.3) < 0.02, result.test(0.5).pvalue < 0.01
    (True, True)
    """

    @property
    def interval_of(self) -> str:
        """The ratio, in units of one number for one of the other."""
        return self.title[:1].lower() + self.title[1:]
