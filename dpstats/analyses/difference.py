"""Two groups compared: risk difference, risk ratio and odds ratio of a condition.

Four disjoint sets of rows are counted, each group with and without the trait, because the sizes of
the groups are private too; see `inference.two_groups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpstats.analyses.base import Answering
from dpstats.answers import Answers
from dpstats.columns import MISSING_LABEL, Boolean, Category, Column
from dpstats.errors import RequestError, SchemaError
from dpstats.families.block import Family, Floats
from dpstats.families.cells import Cells, Indicator, Table
from dpstats.families.conditions import cell_set
from dpstats.inference.checks import Alternative, check_alternative
from dpstats.inference.conditional import conditional_certified
from dpstats.inference.two_groups import (
    LEAST_PVALUE,
    MEASURES,
    GroupCounts,
    Measure,
    measure_interval,
    measure_of,
    measure_pvalue,
)
from dpstats.results import EstimateResult, HypothesisResult, Method, Target
from dpstats.schema import Schema

_TABLE_CELLS = 4  # a table costs 2, four conditions cost 4: sums of fewer cells have less noise


@dataclass(frozen=True)
class Difference:
    """Proportion of rows for which a condition holds, compared between two groups.

    Parameters
    ----------
    condition : str
        The trait, such as ``"smoker == 'yes'"``; it may not involve the column `by`.
    by : str
        A column with two levels or bins (a level for missing cells aside), or a Boolean column,
        for which the groups are true and false in this order.
    groups : pair of levels, optional
        Which levels to compare, and in which order; needed where the column has more than two. A
        bin of a number goes by its label, such as ``"[0, 18)"``. Rows of other levels are left
        out.

    Examples
    --------
    >>> Difference("smoker == 'yes'", by="region", groups=("north", "south"))
    Difference(condition="smoker == 'yes'", by='region', groups=('north', 'south'))
    """

    kind: ClassVar[str] = "difference"

    condition: str
    by: str
    groups: Sequence[str | int | float | bool] | None = None

    def __post_init__(self) -> None:
        if self.groups is None:
            return
        if isinstance(self.groups, str) or not isinstance(self.groups, Sequence):
            raise RequestError(f"groups must be a pair of levels, got {self.groups!r}")
        object.__setattr__(self, "groups", tuple(self.groups))

    def family(self, schema: Schema) -> Family:
        """The table of the columns, or four disjoint conditions where that has less noise."""
        counts, _ = self._counts(schema)
        columns = tuple(c for c in schema if any(c in block.columns for block in counts))
        most = max(int(block.cells.over(columns).sum()) for block in counts)
        if most < _TABLE_CELLS:
            return Family((Table(columns),))
        return Family(tuple(counts))

    def infer(self, release: Answering) -> DifferenceResult:
        """Estimates with noise-aware and certified intervals."""
        counts, names = self._counts(release.schema)
        answers = release.answers(counts, disjoint=True)
        return _result(self, names, answers, str(release.budget))

    def _counts(self, schema: Schema) -> tuple[list[Indicator], list[str]]:
        """The four sets of rows (group 1 with, without; group 2 with, without), and the groups."""
        trait = Cells.condition(schema, self.condition)
        column = schema[self.by]
        if column in trait.columns:
            raise RequestError(
                f"{self.condition!r} involves {self.by!r}, which makes the groups; compare groups "
                "of another column"
            )
        chosen = self._bins(column)
        columns = tuple(c for c in schema if c in trait.columns or c == column)
        holds = trait.cells.over(columns)
        shape = [c.bins if c == column else 1 for c in columns]
        blocks = []
        for i in chosen:
            inside = (np.arange(column.bins) == i).reshape(shape)
            name = f"{self.by}={column.bin_labels[i]}"
            blocks += [
                Indicator(cell_set(columns, inside & holds), f"({self.condition}) and {name}"),
                Indicator(cell_set(columns, inside & ~holds), f"not ({self.condition}) and {name}"),
            ]
        return blocks, [column.bin_labels[i] for i in chosen]

    def _bins(self, column: Column) -> tuple[int, int]:
        labels = column.bin_labels
        if self.groups is None:
            known = [i for i, label in enumerate(labels) if label != MISSING_LABEL]
            if len(known) != 2:
                raise RequestError(
                    f"{self.by!r} has {len(known)} levels or bins, {list(labels)}; give two of "
                    "them, as in groups=(first, second)"
                )
            return (known[1], known[0]) if isinstance(column, Boolean) else (known[0], known[1])
        found = [_bin_of(column, level) for level in self.groups]
        if len(found) != 2 or found[0] == found[1]:
            raise RequestError(f"groups must be two different levels, got {list(self.groups)}")
        return found[0], found[1]


def _bin_of(column: Column, level: object) -> int:
    if isinstance(column, Category):
        try:
            return column.index(level)
        except SchemaError as error:
            raise RequestError(f"groups: {error}") from None
    if column.values and not column.edges and level in column.values:
        return column.values.index(level)
    if level in column.bin_labels:
        return column.bin_labels.index(level)
    raise RequestError(
        f"groups: {level!r} is not a bin of {column.name!r}; bins: {list(column.bin_labels)}"
    )


@dataclass(frozen=True, repr=False)
class DifferenceResult(EstimateResult):
    """Risk difference p1 - p2, risk ratio p1/p2 and odds ratio, with a test of each."""

    def test(
        self,
        value: float | None = None,
        alternative: Alternative = "two-sided",
        measure: Measure = "difference",
    ) -> HypothesisResult:
        """Test whether a measure equals `value`.

        Parameters
        ----------
        value : float, optional
            In [-1, 1] for the difference, not negative for the ratios. Default: no difference,
            which is 0, or 1 for the ratios.
        alternative : {"two-sided", "larger", "smaller"}
            "larger" is for the alternative that the measure is above `value`.
        measure : {"difference", "ratio", "odds ratio"}

        Raises
        ------
        RequestError
            If an argument is out of its range.
        """
        check_alternative(alternative)
        if measure not in MEASURES:
            raise RequestError(f"measure must be one of {list(MEASURES)}, got {measure!r}")
        i = MEASURES.index(measure)
        value = (0.0 if i == 0 else 1.0) if value is None else float(value)
        if not (-1 <= value <= 1 if i == 0 else 0 <= value < np.inf):
            raise RequestError(f"value={value:g} is not possible for the {self.terms[i]}")
        assert isinstance(self.intervals, DifferenceIntervals)
        pvalue = self.intervals.pvalue(measure, value, alternative)
        error = float(self.bse[i])
        return HypothesisResult(
            self.title,
            f"{self.terms[i]} = {value:g} in the population",
            (float(self.params[i]) - value) / error if 0 < error < np.inf else 0.0,
            pvalue,
            alternative,
            self._footer("noise_aware", "population"),
        )


def _result(
    analysis: Difference, names: list[str], answers: Answers, budget: str
) -> DifferenceResult:
    intervals = DifferenceIntervals(answers)
    groups = intervals.groups
    risks = [np.array(group.risk) for group in groups]
    params = np.array([measure_of(risks[0], risks[1], measure) for measure in MEASURES])
    sizes = [min(max(group.yes + group.no, 1.0), float(answers.n)) for group in groups]
    parts = [group.variances(risk, s) for group, risk, s in zip(groups, risks, sizes, strict=True)]
    squares = _gradients(float(risks[0]), float(risks[1])) ** 2  # (3, 2)
    sampling, privacy = (squares @ np.array([part[i] for part in parts]) for i in (0, 1))
    unbounded = np.isnan(sampling)
    params[np.isnan(params)] = 1.0  # 0/0 shows no difference; its intervals tell what is known
    sampling[unbounded], privacy[unbounded] = np.inf, 0.0
    notes = [
        "risks and sizes: "
        + "; ".join(
            f"{name} {float(risk):.4f} of about {size:.0f} rows"
            for name, risk, size in zip(names, risks, sizes, strict=True)
        ),
        f"a p-value is never below {LEAST_PVALUE:g}, the error allowed for the unknown sizes",
    ]
    for name, group in zip(names, groups, strict=True):
        sd = float(np.sqrt(group.law_yes.variance + group.law_no.variance))
        if group.yes + group.no <= 2 * sd:
            notes.append(
                f"group {name} is small against the privacy noise (sd {sd:.0f} rows): trust the "
                "intervals only"
            )
    if np.any(unbounded):
        notes.append("a ratio to a risk of 0 (or odds of a risk of 1) has no standard error (inf)")
    return DifferenceResult(
        title=f"Difference: {analysis.condition}, by {analysis.by}: {names[0]} against {names[1]}",
        terms=["risk difference", "risk ratio", "odds ratio"],
        params=params,
        sampling_variance=sampling,
        privacy_variance=privacy,
        intervals=intervals,
        nobs=answers.n,
        budget=budget,
        notes=notes,
    )


def _gradients(p: float, q: float) -> Floats:
    """Derivatives (3, 2) of the measures by both risks; nan where a measure is not finite."""
    rows = [(1.0, -1.0), (np.nan, np.nan), (np.nan, np.nan)]
    if q > 0:
        rows[1] = (1 / q, -p / q**2)
        if p < 1:
            rows[2] = ((1 - q) / q / (1 - p) ** 2, -p / (1 - p) / q**2)
    return np.array(rows)


@dataclass(frozen=True)
class DifferenceIntervals:
    """Intervals and tests of the three measures from four noisy counts.

    Noise-aware: see `inference.two_groups`; valid whatever the sizes of the groups. Certified:
    both risks are in their certified intervals at alpha/2 each, so a measure is between its
    extremes there, which are at corners. For the private table itself both methods are that.
    """

    answers: Answers
    count: int = 3

    @property
    def groups(self) -> tuple[GroupCounts, GroupCounts]:
        """The counts of the two groups."""
        sums, uniforms, law = self.answers.sums, self.answers.uniforms, self.answers.law
        one, two = (
            GroupCounts(
                float(sums[i]), float(sums[i + 1]), float(uniforms[i]), float(uniforms[i + 1]),
                law(i), law(i + 1),
            )
            for i in (0, 2)
        )  # fmt: skip
        return one, two

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper ends (d,), of the ratios in [0, inf]."""
        found = None
        if method == "noise_aware" and target == "population":
            found = measure_interval(*self.groups, self.answers.n, alpha)
        # If no pair of risks is likely at all, the certified interval can only cover more.
        low, high = self._certified(alpha, target) if found is None else found
        return low[: self.count], high[: self.count]

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Ends that hold for all three together: certified ones do; else by Bonferroni."""
        if method == "certified" or target == "table":
            return self.conf_int(alpha, method, target)
        return self.conf_int(alpha / 3, method, target)

    def _certified(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        (p_low, p_high), (q_low, q_high) = (
            conditional_certified(
                group.yes, group.no, group.law_yes, group.law_no, alpha / 2,
                n=self.answers.n, target=target,
            )
            for group in self.groups
        )  # fmt: skip
        low = np.array([measure_of(p_low, q_high, measure) for measure in MEASURES])
        high = np.array([measure_of(p_high, q_low, measure) for measure in MEASURES])
        # 0/0: the other risk alone says nothing
        return np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), np.inf, high)

    def first(self, count: int) -> DifferenceIntervals:
        """The same for the first few measures."""
        return replace(self, count=count)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) of: each measure equals `value`; nan where that is not possible."""
        possible = [-1 <= value <= 1, 0 <= value < np.inf, 0 <= value < np.inf]
        return np.array(
            [
                self.pvalue(measure, value, alternative) if fits else np.nan
                for measure, fits in zip(MEASURES, possible, strict=True)
            ][: self.count]
        )

    def pvalue(self, measure: Measure, value: float, alternative: Alternative) -> float:
        """P-value of one measure, valid whatever the sizes of the groups."""
        return measure_pvalue(*self.groups, self.answers.n, measure, value, alternative)
