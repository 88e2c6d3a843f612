"""Survival curves and cumulative incidences at declared edges of time, by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.analyses.base import AlternativeShares
from dpstats.analyses.notes import WIDTHS_OF_GROUPS, cell_rules
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand
from dpstats.analyses.survival.curves import (
    GroupCurve,
    curves_of,
    extended,
    joined,
)
from dpstats.analyses.survival.follow_up import (
    FollowUp,
    RiskSets,
    Ties,
    follow_up_of,
    time_text,
)
from dpstats.analyses.survival.survival_result import SurvivalResult
from dpstats.checks import check_finite, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.tables.cells import Indicator, Partition
from dpstats.measured.view import ReleaseView
from dpstats.results.base import OF_POPULATION
from dpstats.results.estimates import estimated
from dpstats.schema import Schema

_CERTIFIED = (
    f"{OF_POPULATION}; certified limits are those of the table's own curve, and use only the law "
    "of the noise"
)
_MOST_CELLS = 5_000
_NOT_CERTIFIED = "there are no certified limits with several kinds of events, or with entry"


@weighted_by_design
@dataclass(frozen=True)
class Survival:
    """Survival, or cumulative incidence of several kinds of events, at declared times.

    Parameters
    ----------
    time : str
        A number with declared edges (or values): the time of the event, or of the end of
        follow-up. The curve is measured at the edges.
    event : str or sequence of str
        A Boolean column or a condition, such as ``"status == 'dead'"``: whether the row had the
        event at its time; otherwise it is censored. Several conditions that exclude each other are
        kinds of events, of which the cumulative incidences (Aalen and Johansen) are estimated.
    by : str or sequence of str, optional
        Columns whose levels or bins make the groups.
    given : str, optional
        Curves of the rows with this condition, which may not involve the other columns.
    entry : str, optional
        A number on the scale of `time`, with its edges: when a row came under observation. A row
        is at risk from the bin after, half of them in the bin itself (all of them in the first
        bin, which should start where most enter); of declared times, at those above its entry.
        No row may lack it, its time or its event.
    ties : {"half", "last"}, optional
        Whether half of the rows that are censored in a bin are at risk in it (the actuarial
        estimate), or all (that of Kaplan and Meier with all times of a bin at its end). By default
        half for edges, and all for declared values.

    Raises
    ------
    RequestError
        If a parameter is no name, condition or choice.

    References
    ----------
    Kaplan, E. L. and Meier, P. (1958). Nonparametric estimation from incomplete observations.
    J. Amer. Statist. Assoc. 53, 457-481.
    Fay, M. P., Brittain, E. H. and Proschan, M. A. (2013). Pointwise confidence intervals for a
    survival distribution with small samples or heavy censoring. Biostatistics 14, 723-736.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Survival("days", "died", by="arm")
    Survival(time='days', event='died', by='arm', given=None, entry=None, ties=None)
    """

    kind: ClassVar[str] = "survival"
    preview_remark: ClassVar[str] = WIDTHS_OF_GROUPS

    time: str
    event: str | Sequence[str]
    by: str | Sequence[str] | None = None
    given: str | None = None
    entry: str | None = None
    ties: Ties | None = None

    def __post_init__(self) -> None:
        asked = self.follow_up
        object.__setattr__(
            self, "event", asked.events if len(asked.events) > 1 else asked.events[0]
        )
        if self.by is not None:
            object.__setattr__(self, "by", asked.by if len(asked.by) > 1 else asked.by[0])

    @property
    def follow_up(self) -> FollowUp:
        """The columns of the follow-up."""
        return follow_up_of(self.time, self.event, self.by, self.given, self.entry, self.ties)

    def family(self, schema: Schema) -> Family:
        """The table of time, events and groups; with `entry` also that of entry and groups."""
        return self._tables(schema)

    def _tables(self, schema: Schema) -> Family:
        asked = self.follow_up
        family = asked.family(schema)
        cells = len(asked.groups(schema)) * asked.clock(schema).value_bins
        cells *= len(asked.events) + 1
        if cells > _MOST_CELLS:
            raise RequestError(
                f"these curves have {cells} cells of group, time and event, and at most "
                f"{_MOST_CELLS} are allowed: name fewer groups, or declare fewer edges of "
                f"{self.time!r}"
            )
        return family

    def answered(self, schema: Schema) -> Family:
        """The rows of each group by bin of time and event, which follow from the table."""
        return self.follow_up.answered(schema)

    def combines(self, schema: Schema) -> bool:
        """Its answers may be combined from several measurements."""
        return True

    def alternative(self, schema: Schema, effect: float | Sequence[float]) -> AlternativeShares:
        """Two even groups with constant hazards, all followed to the last edge.

        `effect` is the survival of both groups at the last edge, or the hazard ratio of the second
        group to a first one of which half survives it.

        Raises
        ------
        RequestError
            If there are not two groups, or these are no such numbers.
        """
        asked = self.follow_up
        given = check_finite("alternative", effect)
        if len(asked.groups(schema)) != 2 or len(asked.events) > 1 or asked.entry is not None:
            raise RequestError("power is that of a log-rank test of two groups and one event")
        ratio = given.ndim == 0 and float(given) > 0
        ends = [0.5, 0.5 ** float(given)] if ratio else np.atleast_1d(given).tolist()
        if len(ends) != 2 or not all(0 < end < 1 for end in ends):
            raise RequestError(
                "the alternative of a Survival is a hazard ratio, or the survival of both groups "
                f"at the last edge; got {short(effect)}"
            )
        cuts, bins = asked.cuts(schema), asked.clock(schema).value_bins
        passed = (cuts[1:-1] - cuts[0]) / (cuts[-2] - cuts[0])
        groups = []
        for g, end in enumerate(ends):
            after = end**passed
            died = -np.diff(after, prepend=1.0)
            shares = np.zeros(2 * bins)
            shares[: 2 * (bins - 1) : 2], shares[-1] = died, end
            members = list(range(2 * bins * g, 2 * bins * (g + 1)))
            groups.append((members, shares))
        return AlternativeShares(groups, float(np.log(np.log(ends[1]) / np.log(ends[0]))), 0.0)

    def infer(self, release: ReleaseView) -> SurvivalResult:
        """Curves with noise-aware and certified intervals, and what follows from them."""
        risk, one = RiskSets.from_release(self.follow_up, release), len(self.follow_up.events) == 1
        curves = self.curves(release.schema, risk)
        edges = len(self.follow_up.cuts(release.schema)) - 2
        parts = [
            extended(part, edges, falling=one)
            for curve in curves
            for part in ([curve.survival] if one else curve.incidences)
        ]
        fields = self.fields(release.schema, curves)
        return SurvivalResult(
            **{**fields, **estimated(fields["terms"], joined(parts))},
            rows=risk.answers.rows.of_persons,
            budget=str(release.budget),
        )

    def estimands(self, schema: Schema) -> list[Estimand]:
        """The weighted curves of all groups, at all edges."""
        asked = self.follow_up
        if asked.entry is not None or len(asked.events) > 1:
            raise RequestError(
                "with a survey design a Survival has one kind of event and no entry=; ask for a "
                "Survival of each event, or of any of them"
            )
        (table,) = self._tables(schema).blocks
        sets = {}
        for cell in asked.answered(schema).blocks:
            assert isinstance(cell, Indicator)
            sets[cell.label] = cell.cells.over(table.columns)
        shape = len(asked.groups(schema)), asked.clock(schema).value_bins, 1
        return [
            curves_of(Partition.of(table.columns, sets), shape, half=asked.halves_censored(schema))
        ]

    def infer_weighted(self, release: ReleaseView) -> SurvivalResult:
        """Weighted curves with limits by the survey design, and what follows from them."""
        from dpstats.analyses.survey.survival import weighted_survival

        return weighted_survival(self, release)

    def curves(self, schema: Schema, risk: RiskSets) -> tuple[GroupCurve, ...]:
        """Curves of all groups, to the last edge after which a group surely has rows."""
        asked = self.follow_up
        edges = len(asked.cuts(schema)) - 2
        groups = range(len(asked.groups(schema)))
        return tuple(GroupCurve(risk, g, min(risk.bins_with_rows([g]), edges)) for g in groups)

    def fields(self, schema: Schema, curves: Sequence[GroupCurve]) -> dict[str, Any]:
        """Fields of the result that follow from its curves, and the names of its parameters."""
        asked = self.follow_up
        parts_of_labels = asked.labels(schema)
        labels = [", ".join(label) for label in parts_of_labels]
        clock, cuts = asked.clock(schema), asked.cuts(schema)
        shown = [time_text(clock, cut) for cut in cuts[1:]]
        edges, one = len(cuts) - 2, len(asked.events) == 1
        terms, notes = [], []
        for curve, label in zip(curves, labels, strict=True):
            prefix, last = f"{label}: " if label else "", curve.bins
            if last < edges:
                end = f"ends at {shown[last - 1]}" if last else "does not start"
                where = f"of {label} " if label else ""
                notes.append(
                    f"the curve {where}{end}: the noise does not rule out that no row is at risk "
                    + ("after it" if last else "in the first bin: use more budget, fewer groups or "
                       "a wider first bin")
                )  # fmt: skip
            terms += [
                f"{prefix}S({edge})" if one else f"{prefix}{event} by {edge}"
                for event in asked.events for edge in shown[:edges]
            ]  # fmt: skip
        risk = curves[0].risk
        half = "half of the rows that are censored in a bin are at risk in it (actuarial)"
        whole = "rows that are censored in a bin are at risk in it, as if after its events"
        notes += [
            half if risk.half else whole,
            "the population is that of the coded times: an event counts in the bin of its time, "
            "and censoring is taken as independent of it",
        ]
        if self.entry is not None:
            notes.append(
                "rows that enter in the first bin are taken as at risk from its start: start the "
                "time where most enter"
            )
        certified = risk.shape[2] == 1 and not len(risk.not_yet)
        notes.append(_CERTIFIED if certified else _NOT_CERTIFIED)
        what = "Survival" if len(asked.events) == 1 else "Cumulative incidence"
        return {
            "title": f"{what} by {self.time}, event: {'; '.join(asked.events)}"
            + (f", by {', '.join(asked.by)}" if asked.by else "")
            + (f", given {self.given}" if self.given else ""),
            "terms": terms,
            "notes": [*notes, *risk.answers.constraint_notes, cell_rules(schema, self)],
            "curves": tuple(curves),
            "labels": tuple(labels),
            "named": tuple(parts_of_labels),
            "by": tuple(dict(zip(asked.by, bins, strict=True)) for bins in asked.groups(schema)),
            "events": asked.events,
            "clock": clock,
            "cuts": cuts,
        }
