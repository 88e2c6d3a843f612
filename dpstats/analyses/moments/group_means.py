"""Means of a number, or shares of rows with a trait, in every group of rows.

Of a number three sums are measured for each group. A row is in one group, so that any number of
groups has the noise of one; see `families.group_moments`. Shares follow from the table of groups
and trait.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.compared_groups import (
    check_by,
    chosen_bins,
    sets_of_groups,
    small_groups,
    subgroups_of,
)
from dpstats.analyses.counts.group_shares import DifferenceIntervals, GroupIntervals
from dpstats.analyses.moments.mean import NOTES
from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.moments.one_way import OneWay
from dpstats.analyses.notes import WIDTHS_OF_MEANS, cell_rules, left_out, rare_mean
from dpstats.analyses.questions import Asked, means_in_groups
from dpstats.analyses.regression.contrasts import FTestResult
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, shares_in_groups, squares_of_cells
from dpstats.analyses.survey.estimand import means_in_groups as weighted_means
from dpstats.analyses.survey.rao_scott import Covariances, FirstOrder, first_order
from dpstats.analyses.survey.weighted import (
    ByDesign,
    DesignIntervals,
    SurveyResult,
    infer_weighted,
)
from dpstats.arrays import Codes, Floats
from dpstats.checks import Alternative, Method, Target, check_choice, listed, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.formula import named_number, names_logarithm
from dpstats.families.group_moments import GroupMoments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Indicator, Partition, Table
from dpstats.inference.declared_levels import DeclaredLevels
from dpstats.inference.intervals import Several
from dpstats.inference.simulation import calibration_generator, draw_noise
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import Estimated, EstimateResult, estimated
from dpstats.results.hypothesis import ADJUSTED, Adjustment, HypothesisResult, adjusted
from dpstats.results.named import Named
from dpstats.results.rendering import MOST, fixed, shown_pvalue, significant
from dpstats.schema import MISSING_LABEL, Boolean, Category, Column, Number, Schema
from dpstats.schema.conditions import cell_set

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.answers import Answers


_WELCH = "Welch's F test allows for different variances of the groups"


@weighted_by_design
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
        check_by(self.by)
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

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Weighted means or shares of all groups."""
        chosen = self._chosen(schema)
        terms = [f"{self.by}={schema[self.by].bin_labels[level]}" for level in chosen]
        within = "" if self.given is None else f" | {self.given}"
        counted = [f"{self.column}, {term}{within}" for term in terms]
        if self.trait(schema) is not None:
            columns, sets = self._sets(schema)
            traits = Partition.of(columns, {label: cells for cells, label in sets})
            return [replace(shares_in_groups(traits, terms), counted=counted)]
        number = named_number(schema, self.column)
        given = None if self.given is None else Subgroup.of(schema, self.given, [number.name])
        block = GroupMoments.by(number, schema[self.by], sorted(chosen), given)
        order = [sorted(chosen).index(level) for level in chosen]
        return [weighted_means(block, terms, counted, order)]

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

    def asked(self, schema: Schema) -> Asked | None:
        """The mean in every group; none of rates."""
        if self.trait(schema) is not None:
            return None
        groups = subgroups_of(self.family(schema), self._chosen(schema))
        return Asked(means_in_groups(schema, self.column, groups))

    def title(self, schema: Schema) -> str:
        """Title of the result."""
        trait = self.trait(schema)
        what = self.column if trait is None else f"rows with {trait.replace('`', '')}"
        given = "" if self.given is None else f", given {self.given}"
        return f"{'Means' if trait is None else 'Shares'} of {what}, by {self.by}{given}"

    def infer(self, release: ReleaseView) -> GroupMeansResult:
        """Estimates with noise-aware and certified intervals."""
        schema, chosen = release.schema, self._chosen(release.schema)
        names = tuple(schema[self.by].bin_labels[level] for level in chosen)
        terms, trait = [f"{self.by}={name}" for name in names], self.trait(schema)
        kind: type[GroupMeansResult] = GroupMeansResult
        limits: Sequence[Contrast | GroupIntervals]
        if trait is None:
            answers, order = release.answers(self.family(schema)), sorted(chosen)
            groups = tuple(NoisyMean.of_group(answers, order.index(i)) for i in chosen)
            number = named_number(schema, self.column)
            limits = [Contrast((group,), number.middle, number.half_range) for group in groups]
            notes = [*NOTES, _WELCH, *small_groups(names, groups)]
            fields: dict[str, Any] = {"dates": terms if number.dates else ()}
        else:
            answers = release.answers(self._counts(schema), disjoint=True)
            places = [slice(2 * i, 2 * i + 2) for i in range(len(chosen))]
            groups = tuple(NoisyMean.of_trait(answers, place.start) for place in places)
            limits = shares = [GroupIntervals(answers.subset(place)) for place in places]
            notes = small_groups(names, shares)
            kind, fields = GroupRatesResult, {"answers": answers}
        one_way, of = OneWay(groups), "tests and effect sizes" if trait is None else "tests"
        used = tuple(itertools.compress(names, one_way.levels.used))
        notes += left_out(of, {self.by: used}, {self.by: names}, [self.by])
        for name, group in zip(names, groups, strict=True):
            if trait is None and not group.hidden_by_noise:
                notes += rare_mean(f"{self.column} in group {name}", group)
        return kind(
            title=self.title(schema),
            **estimated(terms, limits),
            rows=answers.rows.of_persons,
            budget=str(release.budget),
            notes=[*notes, cell_rules(schema, self)],
            groups=names,
            one_way=one_way,
            **fields,
        )

    def infer_weighted(self, release: ReleaseView) -> WeightedGroupMeans:
        """Weighted means or shares of all groups."""
        schema = release.schema
        groups = tuple(schema[self.by].bin_labels[level] for level in self._chosen(schema))
        return infer_weighted(self, release, WeightedGroupMeans, groups=groups)

    def _chosen(self, schema: Schema) -> list[int]:
        """Indices of the levels or bins of `by`, in order."""
        column = schema[self.by]
        bins = chosen_bins(column, self.groups)
        if len(set(bins)) < max(len(bins), 2):
            raise RequestError(
                f"groups must be two or more different levels or bins of {self.by!r}, got "
                f"{[column.bin_labels[i] for i in bins]}"
                + ("; add edges to the schema" if len(bins) == 1 else "")
            )
        return bins


SIMULATIONS = 10_000
SIMULATED = f"the p-value is from {SIMULATIONS:,} simulated tables"
_ROUNDING = 1e-20  # of squares
_NO_TEST = "there is no test, since fewer than two groups surely have rows"


@dataclass(frozen=True, repr=False, eq=False)
class ComparedGroups(EstimateResult):
    """Values of k groups, with a test that they are equal and the differences of all pairs.

    Attributes
    ----------
    groups : tuple of str
        Labels of the k groups, in the order of `terms`.
    """

    groups: tuple[str, ...] = field(kw_only=True)

    @property
    @abstractmethod
    def _levels(self) -> DeclaredLevels:
        """Which groups surely have rows."""

    @property
    @abstractmethod
    def _equal(self) -> HypothesisResult:
        """The test of `anova`."""

    @abstractmethod
    def _differences(self) -> Estimated | Sequence[Estimated]:
        """Intervals of the differences of all pairs, which are in order."""

    @abstractmethod
    def _lines(self) -> list[str]:
        """Lines of a summary on the test."""

    @property
    def used(self) -> tuple[str, ...]:
        """Groups that tests and effect sizes use: those with more rows than noise alone makes."""
        return tuple(itertools.compress(self.groups, self._levels.used))

    def anova(self) -> HypothesisResult:
        """Test that the groups `used` have one mean, or one share.

        Means by Welch's F test: variances may differ, and without noise it is the test of
        ``scipy.stats.f_oneway(..., equal_var=False)`` and of statsmodels' ``anova_oneway``. Shares
        by simulation, with a p-value of at least 1e-4, without noise about that of the chi-square
        test of independence. Both in a survey by the F test of first order of Rao and Scott.

        The p-value allows for sampling, for the noise, and for an empty group among those used.
        Where fewer than two groups are used it is 1.

        Returns
        -------
        HypothesisResult
        """
        return self._equal

    def single_test(self, value: float | None = None) -> HypothesisResult:
        """The test of equality."""
        return self.anova().single_test(value)

    def pairwise(self, *, adjust: Adjustment = "holm") -> PairwiseResult:
        """Differences of all pairs of groups, each with intervals and a test.

        Only pairs of `used` groups are tested; the p-value of another pair is 1. All pairs count in
        the adjustment, as noisy sizes choose those that are tested: leave groups that you do not
        compare out of `groups` of the analysis.

        Parameters
        ----------
        adjust : {"holm", "fdr_bh", "none"}
            Of the p-values, for the number of pairs. Intervals are those of each difference by
            itself unless you ask for ``conf_int(simultaneous=True)``.

        Returns
        -------
        PairwiseResult

        Raises
        ------
        RequestError
            If `adjust` is not known.
        """
        check_choice("adjust", adjust, list(ADJUSTED))
        tested = np.array([all(pair) for pair in itertools.combinations(self._levels.used, 2)])
        fields = pairwise_fields(
            self, "Differences", self.groups, self._differences(), adjust, tested
        )
        return self._pairs(**fields)

    def _pairs(self, **fields: Any) -> PairwiseResult:
        return PairwiseResult(**fields)

    def _head(self, alpha: float, target: Target) -> list[str]:
        return [self.title, *(self._lines() if target == "population" else [])]


@dataclass(frozen=True, repr=False, eq=False)
class GroupMeansResult(ComparedGroups):
    """Means of a number in groups, with an analysis of variance and all differences.

    Attributes
    ----------
    groups : tuple of str
    one_way : OneWay
        The noisy moments of the groups.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> places = ["north", "south", "west"]
    >>> schema = dps.Schema([dps.Number("pay", 0, 99, missing=0), dps.Category("region", places)])
    >>> means = dps.GroupMeans("pay", by="region")
    >>> plan = dps.plan(schema, {"means": means}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(9_000))
    >>> region = (numbers % 3).map({0: "north", 1: "south", 2: "west"})
    >>> rows = pd.DataFrame({"pay": numbers % 50 + 20 * (numbers % 3 == 2), "region": region})
    >>> result = dps.release(plan, rows, m=2_000).infer("means")
    >>> print(abs(result.params["region=west"] - 44.5) < 3, result.anova().pvalue < 0.001)
    True True
    >>> result.pairwise().terms
    ['north - south', 'north - west', 'south - west']
    """

    one_way: OneWay = field(kw_only=True, compare=False)

    @property
    def interval_of(self) -> str:
        """The means, whose unit the widths have."""
        return f"means of {self.title.removeprefix('Means of ')}, in its own unit"

    @property
    def sizes(self) -> Named:
        """Noisy numbers of rows (k,), unbiased; without intervals, which `Marginals` has."""
        found = [float(group.observed[0]) for group in self.one_way.groups]
        return Named(found[: len(self.terms)], self.terms)

    @property
    def _levels(self) -> DeclaredLevels:
        return self.one_way.levels

    @property
    def eta_squared(self) -> float:
        """Share of the variance that is between the groups `used`; nan of fewer than two.

        From noisy moments, without an interval.
        """
        return self.one_way.used.eta_squared

    @property
    def omega_squared(self) -> float:
        """Eta squared less the bias of sampling, at least 0; without an interval."""
        return self.one_way.used.omega_squared

    @cached_property
    def _equal(self) -> HypothesisResult:
        statistic, pvalue, df_num, df_denom = self.one_way.test()
        tested = self.used if len(self.used) > 1 else self.groups
        return FTestResult(
            f"Welch's analysis of variance, {self.title}",
            f"the means of {', '.join(tested)} are equal in the population",
            statistic, pvalue, "two-sided", self._footer("noise_aware", "population"),
            df_num=df_num, df_denom=df_denom,
            notes=() if len(self.used) > 1 else (_NO_TEST,),
        )  # fmt: skip

    def _differences(self) -> Sequence[Estimated]:
        assert isinstance(self.intervals, Several)
        parts = cast("tuple[Contrast, ...]", self.intervals.parts)
        return [
            replace(first, groups=(*first.groups, *second.groups))
            for first, second in itertools.combinations(parts, 2)
        ]

    def summary(
        self,
        *,
        alpha: float = 0.05,
        target: Target = "population",
        most: int = MOST,
        simultaneous: bool = False,
        adjust: Adjustment | None = None,
    ) -> str:
        """Text table of the means; with `adjust` the differences of all pairs follow.

        Parameters
        ----------
        alpha, target, most, simultaneous :
            As in `EstimateResult.summary`.
        adjust : {"holm", "fdr_bh", "none"}, optional
            See `pairwise`.

        Returns
        -------
        str
        """
        options: dict[str, Any] = {"alpha": alpha, "target": target, "most": most,
                                   "simultaneous": simultaneous}  # fmt: skip
        means = super().summary(**options)
        if adjust is None:
            return means
        return f"{means}\n\n{self.pairwise(adjust=adjust).summary(**options)}"

    def to_frame(  # noqa: D102, inherited
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        frame = super().to_frame(alpha=alpha, method=method, target=target)
        return frame.assign(size=np.asarray(self.sizes))

    def _shown(self, alpha: float, target: Target, most: int) -> pd.DataFrame:
        shown = super()._shown(alpha, target, most)
        return _without_estimates(shown, ~self.one_way.levels.used)

    def _lines(self) -> list[str]:
        test = self._equal
        if not isinstance(test, FTestResult) or len(self.used) < 2:
            return [f"Welch's F: {_NO_TEST}"]
        return [
            f"Welch's F {significant(test.statistic)} on {test.df_num:g} and "
            f"{significant(test.df_denom)} df, p-value {shown_pvalue(test.pvalue)} "
            "(allows for the noise)",
            f"eta squared {fixed(self.eta_squared, 3)}, omega squared "
            f"{fixed(self.omega_squared, 3)}: from noisy moments, without intervals",
        ]


@dataclass(frozen=True, repr=False, eq=False)
class GroupRatesResult(GroupMeansResult):
    """Shares of rows with a trait in groups, with a test that they are equal and all differences.

    Attributes
    ----------
    answers : Answers
        Of each group the rows with the trait, then those without.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("ill"), dps.Boolean("urban")])
    >>> rates = dps.GroupMeans("ill", by="urban")
    >>> plan = dps.plan(schema, {"rates": rates}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"urban": [True, False] * 4_000})
    >>> rows["ill"] = rows["urban"] & (rows.index % 10 > 0)
    >>> result = dps.release(plan, rows).infer("rates")
    >>> print(result.params["urban=True"] > 0.7, result.anova().pvalue < 0.001)
    True True
    >>> result.pairwise().terms
    ['False - True']
    """

    answers: Answers = field(kw_only=True, compare=False)

    @property
    def interval_of(self) -> str:
        """The shares."""
        return self.title[:1].lower() + self.title[1:]

    @cached_property
    def _equal(self) -> HypothesisResult:
        levels, answers = self.one_way.levels, self.answers.of_persons
        used = levels.used
        statistic = equal_shares_test(answers, used)[0] if used.sum() > 1 else np.nan
        pvalue = levels.pvalue(
            lambda some: equal_shares_test(answers, some)[1] if some.sum() > 1 else None
        )
        return HypothesisResult(
            f"Test of equal shares, {self.title}",
            f"the shares of {', '.join(self.used if used.sum() > 1 else self.groups)} are equal in "
            "the population",
            statistic, pvalue, "two-sided", self._footer("noise_aware", "population"),
            notes=(SIMULATED,) if used.sum() > 1 else (_NO_TEST,),
        )  # fmt: skip

    def _differences(self) -> Sequence[Estimated]:
        pairs = itertools.combinations(range(len(self.groups)), 2)
        places = [[2 * i, 2 * i + 1, 2 * j, 2 * j + 1] for i, j in pairs]
        return [DifferenceIntervals(self.answers.subset(four), slice(1)) for four in places]

    def _lines(self) -> list[str]:
        if len(self.used) < 2:
            return [f"equal shares: {_NO_TEST}"]
        return [
            f"test of equal shares: p-value {shown_pvalue(self._equal.pvalue)} "
            f"(allows for the noise; from {SIMULATIONS:,} simulated tables)"
        ]


@dataclass(frozen=True, repr=False, eq=False)
class PairwiseResult(EstimateResult):
    """Differences of all pairs of group means.

    `test` is of one pair that was chosen beforehand: its p-value is not adjusted.

    Attributes
    ----------
    adjust : {"holm", "fdr_bh", "none"}
        How `pvalues` and those of the table are adjusted.
    tested : (d,) bool
        Pairs of groups that surely have rows; the p-value of others is 1.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number("pay", 0, 99, missing=0), dps.Boolean("urban")])
    >>> means = dps.GroupMeans("pay", by="urban")
    >>> plan = dps.plan(schema, {"means": means}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"pay": [30, 50] * 4_000, "urban": [False, True] * 4_000})
    >>> pairs = dps.release(plan, rows).infer("means").pairwise()
    >>> print(abs(pairs.params["False - True"] + 20) < 4, pairs.pvalues["False - True"] < 0.01)
    True True
    """

    interval_of: ClassVar[str] = "differences of means, in their own unit"
    null_value = 0.0

    adjust: Adjustment = field(default="holm", kw_only=True)
    tested: NDArray[np.bool_] = field(kw_only=True, compare=False)

    def _pvalue(self, i: int, value: float, alternative: Alternative) -> float:
        return super()._pvalue(i, value, alternative) if self.tested[i] else 1.0

    @cached_property
    def p_unadjusted(self) -> Named:
        """(d,) two-sided noise-aware p-values of: the two means are equal."""
        found = self.intervals.pvalues(0.0, "two-sided")
        return Named(np.where(self.tested, found, 1.0), self.terms)

    @property
    def pvalues(self) -> Named:
        """(d,) p-values, adjusted as `adjust` says."""
        return Named(adjusted(np.asarray(self.p_unadjusted), self.adjust), self.terms)

    def _first(self, count: int) -> Self:
        return replace(super()._first(count), tested=self.tested[:count])

    def to_frame(  # noqa: D102, inherited
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        frame = super().to_frame(alpha=alpha, method=method, target=target)
        if target == "table":
            return frame
        errors = np.asarray(self.bse)
        known = (errors > 0) & self.tested
        scores = np.divide(self.params, errors, out=np.full(len(errors), np.nan), where=known)
        return frame.assign(
            statistic=np.asarray(scores), p_value=np.asarray(self.pvalues),
            p_unadjusted=np.asarray(self.p_unadjusted),
        )  # fmt: skip

    def _shown(self, alpha: float, target: Target, most: int) -> pd.DataFrame:
        shown = _without_estimates(super()._shown(alpha, target, most), ~self.tested)
        if target == "table":
            return shown
        return shown.assign(p_value=np.asarray(self.pvalues)[shown.index])  # adjusted for all pairs


@dataclass(frozen=True, repr=False, eq=False)
class WeightedPairs(ByDesign, PairwiseResult):
    """Differences of all pairs of groups in a survey."""


def pairwise_fields(
    result: EstimateResult, heading: str, groups: Sequence[str],
    limits: Estimated | Sequence[Estimated], adjust: Adjustment, tested: NDArray[np.bool_],
) -> dict[str, Any]:  # fmt: skip
    """Fields of a `PairwiseResult` on all pairs of some groups, from limits of differences."""
    terms = [f"{first} - {second}" for first, second in itertools.combinations(groups, 2)]
    notes = [note for note in result.notes if note != _WELCH]
    return {
        "title": f"{heading}, {result.title}",
        **estimated(terms, limits),
        "rows": result.rows,
        "budget": result.budget,
        "notes": [f"p-values are {ADJUSTED[adjust][1]} pairs", *notes],
        "adjust": adjust,
        "tested": tested,
    }


@dataclass(frozen=True, repr=False, eq=False)
class WeightedGroupMeans(SurveyResult, ComparedGroups):
    """Means of a number, or shares, in groups of a survey, with a test and all differences.

    Attributes
    ----------
    groups : tuple of str

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> design = dps.Design("weight", mean=2, cap=3, unit="school", units=list(range(40)))
    >>> columns = [dps.Boolean("ill"), dps.Category("region", ["north", "south", "west"])]
    >>> schema, rates = dps.Schema(columns, design=design), dps.GroupMeans("ill", by="region")
    >>> plan = dps.plan(schema, {"rates": rates}, budget=dps.PureDP(5), n=6_000)
    >>> rows = pd.DataFrame({"ill": [True, False, False, True, True, False] * 1_000, "weight": 2})
    >>> rows["region"], rows["school"] = ["north", "south", "west"] * 2_000, rows.index // 150
    >>> result = dps.release(plan, rows).infer("rates")
    >>> result.pairwise().terms, result.anova().pvalue < 0.01
    (['north - south', 'north - west', 'south - west'], True)
    """

    @property
    def interval_of(self) -> str:
        """The means or shares."""
        return self.title[:1].lower() + self.title[1:]

    @cached_property
    def _members(self) -> Floats:
        """Functions (k, d) whose totals add up to the weights of each group."""
        (part,) = self.parts
        assert part.estimand.moving is not None
        return np.where(part.estimand.moving(part.totals.values) > 0, 1.0, 0.0)

    @cached_property
    def _weights(self) -> Floats:
        """Noisy sums (k,) of the weights of each group."""
        return np.asarray(self._members @ self.parts[0].totals.values)

    @cached_property
    def _levels(self) -> DeclaredLevels:
        return DeclaredLevels.of(self._weights, self.parts[0].noise_laws(self._members))

    def _independent(self, places: Codes) -> Floats:
        """Sampling variances (k,) of independent rows; of shares, as if all had the same."""
        (part,) = self.parts
        if part.estimand.squares is not squares_of_cells or part.totals.known.names:
            return np.asarray(part.independent[places])
        weights = self._weights[places]
        share = np.clip(weights @ part.params[places] / np.maximum(weights.sum(), 1e-300), 0, 1)
        return np.asarray(part.totals.design.coded_mean * share * (1 - share) / weights)

    def _test_of(self, used: NDArray[np.bool_]) -> FirstOrder | None:
        """The test that some groups are equal; None of fewer than two."""
        (part,), every, places = self.parts, np.eye(len(used)), np.flatnonzero(used)
        if len(places) < 2:
            return None
        rounding = _ROUNDING * np.max(part.params[places] ** 2)
        variances = np.maximum(self._independent(places), rounding)  # of known ones too
        independent = np.diag(variances[1:]) + variances[0]
        parts = Covariances.of(part, every[places[1:]] - every[places[0]], independent)
        apart = part.params[places[1:]] - part.params[places[0]]
        return first_order(apart, independent + parts.noise, parts)

    @cached_property
    def _equal(self) -> HypothesisResult:
        found = self._test_of(self._levels.used)
        statistic = np.nan if found is None else found.statistic
        df_num, df_denom = (np.nan, np.nan) if found is None else found.df

        def pvalue(some: NDArray[np.bool_]) -> float | None:
            test = self._test_of(some)
            return None if test is None else test.pvalue

        return FTestResult(
            f"Test of equality, {self.title}",
            f"the values of {', '.join(self.used if found else self.groups)} are equal in the "
            "population",
            statistic, self._levels.pvalue(pvalue), "two-sided",
            self._footer("noise_aware", "population"), df_num=df_num, df_denom=df_denom,
            notes=() if found else (_NO_TEST,),
        )  # fmt: skip

    def _differences(self) -> DesignIntervals:
        (part,), every = self.parts, np.eye(len(self.groups))
        i, j = np.triu_indices(len(every), 1)
        terms = [f"{self.groups[a]} - {self.groups[b]}" for a, b in zip(i, j, strict=True)]
        return DesignIntervals((part.along(terms, every[i] - every[j]),))

    def _pairs(self, **fields: Any) -> WeightedPairs:
        return WeightedPairs(**fields, design=self.design)

    def _lines(self) -> list[str]:
        return [f"equal groups: {self._equal._evidence()}p-value "
                f"{shown_pvalue(self._equal.pvalue)} (allows for the noise)"]  # fmt: skip


def _without_estimates(shown: pd.DataFrame, unused: NDArray[np.bool_]) -> pd.DataFrame:
    """Printed rows without the estimates of groups that may have no rows: these are noise alone."""
    hidden = unused[shown.index]
    return shown.assign(
        estimate=shown["estimate"].mask(hidden), std_error=shown["std_error"].mask(hidden)
    )


_EQUAL = 5  # a purpose of draws, distinct from those of shares


def equal_shares_test(answers: Answers, used: NDArray[np.bool_]) -> tuple[float, float]:
    """Statistic and p-value of: k groups have one share.

    The statistic sums over groups the squares of D_g = T_g - p N_g over their variance, with p the
    share of all of them (eq. 4 of docs/explanation/inference/shares-and-tables.md). It is simulated
    with p, the noisy sizes and the known law of the noise.
    """
    rng = calibration_generator(answers, _EQUAL)
    noise = draw_noise(answers, SIMULATIONS, rng)[:, np.repeat(used, 2)]
    kept = np.flatnonzero(np.repeat(used, 2))
    covariance = answers.noise_covariance[np.ix_(kept, kept)]
    counts = answers.sums[kept]
    sizes = np.maximum(np.rint(counts[::2] + counts[1::2]), 1).astype(np.int64)
    share = float(_pooled(counts[np.newaxis])[0])
    drawn = rng.binomial(sizes, share, (SIMULATIONS, len(sizes))).astype(np.float64)
    simulated = np.empty_like(noise)
    simulated[:, ::2], simulated[:, 1::2] = drawn, sizes - drawn
    statistic = float(_statistic(counts[np.newaxis], covariance)[0])
    larger = np.count_nonzero(_statistic(simulated + noise, covariance) >= statistic)
    return statistic, (1 + float(larger)) / (1 + SIMULATIONS)


def _pooled(counts: Floats) -> Floats:
    """Share (m,) of all groups, from counts (m, 2k)."""
    yes, rows = counts[:, ::2].sum(axis=1), counts.sum(axis=1)
    return np.where(rows > 0, np.clip(yes / np.maximum(rows, 1e-300), 0, 1), 0.5)


def _statistic(counts: Floats, covariance: Floats) -> Floats:
    """(m,) from counts (m, 2k) with noise of this covariance."""
    share = _pooled(counts)[:, np.newaxis]
    yes, no = counts[:, ::2], counts[:, 1::2]
    own, other = covariance[::2, ::2].diagonal(), covariance[1::2, 1::2].diagonal()
    both = covariance[::2, 1::2].diagonal()
    noise = (1 - share) ** 2 * own - 2 * share * (1 - share) * both + share**2 * other
    variance = np.maximum(yes + no, 0) * share * (1 - share) + noise
    difference = (1 - share) * yes - share * no
    return np.asarray(np.sum(difference**2 / np.maximum(variance, 1e-300), axis=1))
