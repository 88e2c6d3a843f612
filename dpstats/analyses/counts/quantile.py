"""Quantiles and the distribution function of a number, at its declared edges or values.

Everything follows from the table of the one column. Between two edges nothing is measured, so
intervals for quantiles end at edges; they need no smoothness and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpstats.analyses.counts.distribution import DistributionIntervals, DistributionOfAllRows
from dpstats.analyses.counts.group_shares import GroupIntervals
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.analyses.counts.quantile_result import QuantileIntervals, QuantileResult
from dpstats.analyses.notes import WIDTHS_OF_GROUPS, cell_rules, subgroup_notes
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, shares_below
from dpstats.arrays import Codes
from dpstats.checks import as_float, listed, short
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator, Partition
from dpstats.inference.intervals import Several
from dpstats.measured.view import ReleaseView
from dpstats.results.named import Named
from dpstats.schema import Column, Number, Schema
from dpstats.schema.conditions import cell_set

_MOST_CONTRASTED = 8  # bins of which contrasts between units are measured one by one


@weighted_by_design
@dataclass(frozen=True)
class Quantile:
    """Quantiles of a number, and its distribution function.

    Parameters
    ----------
    column : str
        A Number with declared edges or values.
    probability : float or sequence of float
        In (0, 1); 0.5 is the median. Arrays and pandas Series are sequences too.
    given : str, optional
        Quantiles in the rows with this condition, such as ``"region == 'north'"``; it may not
        involve the column itself. Rows without a value of the column are left out in any case,
        where the schema has ``allow_missing=True``.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Quantile("age", [0.25, 0.5, 0.75])
    Quantile(column='age', probability=(0.25, 0.5, 0.75), given=None)
    """

    kind: ClassVar[str] = "quantile"
    ends_at_edges: ClassVar[bool] = True  # intervals end at declared edges, so finer ones help
    preview_remark: ClassVar[str] = WIDTHS_OF_GROUPS

    column: str
    probability: float | Sequence[float] = 0.5
    given: str | None = None

    def __post_init__(self) -> None:
        asked: Any = listed(self.probability)
        several = isinstance(asked, Sequence)
        given = tuple(asked) if several and not isinstance(asked, str) else (asked,)
        for i, p in enumerate(given, 1):
            number = isinstance(p, int | float | np.floating) and not isinstance(p, bool)
            if not number or not 0 < p < 1:
                which = f"number {i} of them is not" if several else f"got {short(p)}"
                raise RequestError(f"a probability must be a number between 0 and 1; {which}")
        given = tuple(as_float(p) for p in given)
        if not given or len(set(given)) < len(given):
            raise RequestError(
                f"give one probability, or a list of different ones; got {short(asked)}"
            )
        object.__setattr__(self, "probability", given if several else given[0])

    def family(self, schema: Schema) -> Family:
        """The table of the column: it costs 2, however many edges there are.

        Given a condition, the table of the column and those of the condition.
        """
        number = self.number(schema)
        group = self._group(schema)
        columns = () if group is None else group.cells.columns
        return Family((Cells.table(schema, [number.name, *(column.name for column in columns)]),))

    def estimands(self, schema: Schema) -> list[Estimand]:
        """The weighted distribution function at all edges.

        Of many bins, contrasts are those of four sets of them: their noise is that of as many sums.
        """
        number, group = self.number(schema), self._group(schema)
        names = [f"{number.name} in the first {j} bins" for j in range(1, number.value_bins)]
        bins = np.arange(number.value_bins)
        of_bins: Block = Cells.table(schema, [number.name])
        columns: tuple[Column, ...] = (number,)
        if group is not None:
            columns = tuple(c for c in schema if c == number or c in group.columns)
            of_bins = _in_sets(columns, number, group, bins)
        shares = shares_below(of_bins, names)
        if len(bins) <= _MOST_CONTRASTED:
            return [shares]
        return [replace(shares, contrasted=_in_sets(columns, number, group, bins * 4 // len(bins)))]

    def _group(self, schema: Schema) -> Subgroup | None:
        group = Subgroup.of(schema, self.given, [self.column])
        if group is not None and schema[self.column] in group.cells.columns:
            raise RequestError(
                f"given={self.given!r} involves {self.column!r} itself; take a condition on other "
                "columns"
            )
        return group

    def answered(self, schema: Schema) -> Family:
        """The rows below every edge, which follow from the table.

        In a subgroup, also those not below every edge, and all of them, last.
        """
        number, group = self.number(schema), self._group(schema)
        edges = range(1, number.value_bins)
        if group is None:
            return Family(tuple(_below(number, j) for j in edges))
        columns = tuple(c for c in schema if c == number or c in group.columns)
        axis = [c.bins if c == number else 1 for c in columns]
        bins, inside = np.arange(number.bins).reshape(axis), group.over(columns)
        marked = [(bins < j, f"in the first {j} bins") for j in edges]
        marked += [(bins >= j, f"not in the first {j} bins") for j in edges]
        marked += [(bins >= 0, "in any bin")]
        return Family(tuple(
            Indicator(cell_set(columns, inside & held), f"{number.name} {where}, {group.name}")
            for held, where in marked
        ))  # fmt: skip

    def _distribution(self, release: ReleaseView) -> DistributionIntervals:
        blocks = self.answered(release.schema).blocks
        if self._group(release.schema) is None:
            answers = release.answers(blocks).with_totals
            return DistributionOfAllRows(answers, ProportionIntervals(answers))
        edges = len(blocks) // 2
        below, above, every = blocks[:edges], blocks[edges:-1], blocks[-1]
        both = [block for pair in zip(below, above, strict=True) for block in pair]
        pairs = release.answers(both, disjoint=True)
        shares = (GroupIntervals(pairs.subset(slice(2 * j, 2 * j + 2))) for j in range(edges))
        whole = release.answers([*below, every], disjoint=True).of_counted_rows()
        return DistributionIntervals(whole.subset(slice(edges)), Several(tuple(shares)), whole)

    def infer(self, release: ReleaseView) -> QuantileResult:
        """Estimates with noise-aware and certified intervals."""
        number = self.number(release.schema)
        distribution = self._distribution(release)
        intervals = QuantileIntervals(distribution, number, self.probabilities)
        answers = distribution.answers
        notes = [
            *subgroup_notes(self._group(release.schema), answers.rows),
            *answers.constraint_notes,
        ]
        rows, budget = answers.rows.of_persons, str(release.budget)
        return QuantileResult(**self.fields(intervals, notes, release), rows=rows, budget=budget)

    def infer_weighted(self, release: ReleaseView) -> QuantileResult:
        """Quantiles of a survey's population, with Woodruff limits."""
        from dpstats.analyses.survey.quantile import weighted_quantiles

        return weighted_quantiles(self, release)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probabilities as a tuple, one or several."""
        return tuple(np.atleast_1d(np.asarray(self.probability, dtype=np.float64)).tolist())

    def fields(
        self, intervals: QuantileIntervals, notes: Sequence[str], release: ReleaseView
    ) -> dict[str, Any]:
        """Fields of the result that follow from its intervals."""
        number = intervals.number
        points = [intervals.estimate(p) for p in self.probabilities]
        notes = [
            *notes,
            "an interval ends at declared edges or values: nothing is measured between them",
        ]
        if not intervals.discrete:
            notes.append(
                "an estimate spreads the rows evenly inside its bin; its standard error allows for "
                "their unknown positions"
            )
        else:
            notes.append(
                "a quantile of declared values has an infinite standard error: use its interval"
            )
        terms = [f"{self.column}: quantile {p:.15g}" for p in self.probabilities]
        return {
            "title": f"Quantiles of {self.column}"
            + ("" if self.given is None else f", given {self.given}"),
            "terms": terms,
            "params": Named([point[0] for point in points], terms),
            "sampling_variance": np.array([point[1] for point in points]),
            "privacy_variance": np.array([point[2] for point in points]),
            "intervals": intervals,
            "scalar": not isinstance(self.probability, Sequence),
            "notes": [*notes, cell_rules(release.schema, self)],
            "dates": terms if number.dates else (),
        }

    def number(self, schema: Schema) -> Number:
        """The column, which needs two bins at least.

        Raises
        ------
        RequestError
        """
        column = schema[self.column]
        if not isinstance(column, Number):
            raise RequestError(
                f"{self.column!r} is not a number: it has no quantiles; for the shares of its "
                f"levels use dps.Marginals([{self.column!r}], 1)"
            )
        if column.value_bins < 2:
            raise RequestError(
                f"{self.column!r} has a single bin; add edges=[...] to the schema, the points at "
                "which its distribution function is measured"
            )
        return column


def _in_sets(
    columns: tuple[Column, ...], number: Number, group: Subgroup | None, set_of: Codes
) -> Partition:
    """Rows of a group in sets of consecutive bins of a number: the set of each bin is given."""
    at = np.append(set_of, np.full(number.bins - len(set_of), -1))
    at = at.reshape([c.bins if c == number else 1 for c in columns])
    inside = np.bool_(True) if group is None else group.over(columns)
    sets = {}
    for i in range(set_of[-1] + 1):
        first, *others = (number.bin_labels[j] for j in np.flatnonzero(set_of == i))
        sets[f"{number.name}={first}" + (f" to {others[-1]}" if others else "")] = inside & (
            at == i
        )
    return Partition.of(columns, sets)


def _below(number: Number, j: int) -> Indicator:
    """Rows in the first j bins."""
    mask = np.arange(number.bins) < j
    return Indicator(cell_set((number,), mask), f"{number.name} in the first {j} bins")
