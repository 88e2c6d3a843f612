"""Follow-up of rows in bins of time: what is measured of it, and the risk sets that follow.

A row has a time, in a bin of a declared number, and the event that it ended with, or none: it is
censored. A row is in one cell of time, event and group, so that any number of bins has the noise of
one. Risk sets are sums of noisy cells. The equations are those of
docs/explanation/inference/survival.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.questions import answered_in
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import check_choice, check_number, listed, short
from dpstats.error_rates import USUAL_ALPHA, for_empty_levels
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator
from dpstats.inference.intervals import MANY_DRAWS
from dpstats.inference.mixture_tails import MixtureTails
from dpstats.inference.simulation import calibration_generator, draw_evenly
from dpstats.measured.answers import Answers
from dpstats.measured.view import ReleaseView
from dpstats.privacy.laws import NoiseLaw
from dpstats.schema import MISSING_LABEL, Column, Number, Schema
from dpstats.schema.conditions import cell_set
from dpstats.schema.dates import check_day, day_text

Ties = Literal["half", "last"]
_LEAST_AT_RISK = 1.0  # rows
_NO_NOISE = 1e-20  # variance, in squared rows
_MET = 1e-9  # part of a variance


class Counts(NamedTuple):
    """Counts in G groups and J bins of time, of one table or of many (...)."""

    events: Floats  # (..., G, J, K): rows that end in the bin with each kind of event
    at_risk: Floats  # (..., G, J): rows that can have an event in the bin

    @property
    def hazards(self) -> Floats:
        """(..., G, J, K) events per row at risk, which noise can make negative."""
        return np.asarray(self.events / np.maximum(self.at_risk, _LEAST_AT_RISK)[..., np.newaxis])


@dataclass(frozen=True)
class FollowUp:
    """Columns of the follow-up: its time, kinds of events, groups, and entry."""

    time: str  # a Number with declared edges or values
    # conditions that exclude each other; a row with none of them is censored
    events: tuple[str, ...]
    by: tuple[str, ...] = ()  # columns whose levels or bins make the groups
    given: str | None = None  # only rows with this condition
    entry: str | None = None  # a Number: when a row came under observation, on the scale of `time`
    ties: Ties | None = None
    with_missing: tuple[str, ...] = ()  # those of `by` whose missing cells make groups too

    def clock(self, schema: Schema) -> Number:
        """The column of times."""
        return _number_in(schema, self.time, "time")

    def halves_censored(self, schema: Schema) -> bool:
        """True if half of the censored rows of a bin count as at risk (eq. at-risk)."""
        return not self.clock(schema).discrete if self.ties is None else self.ties == "half"

    def cuts(self, schema: Schema) -> Floats:
        """Where each bin ends (J,), after where the first one starts: (J + 1,)."""
        clock = self.clock(schema)
        if clock.discrete:
            values = np.array(clock.values, dtype=np.float64)
            return np.concatenate([[min(0.0, values[0])], values])
        return np.array([clock.low, *clock.edges, clock.high], dtype=np.float64)

    def groups(self, schema: Schema) -> list[tuple[int, ...]]:
        """Bins of the columns `by` in each group."""
        named = [
            [
                i
                for i, label in enumerate(schema[name].bin_labels)
                if label != MISSING_LABEL or name in self.with_missing
            ]
            for name in self.by
        ]
        return list(itertools.product(*named))

    def labels(self, schema: Schema) -> list[tuple[str, ...]]:
        """Names of the groups, a part for each column."""
        return [
            tuple(
                f"{name}={schema[name].bin_labels[i]}"
                for name, i in zip(self.by, bins, strict=True)
            )
            for bins in self.groups(schema)
        ]

    def family(self, schema: Schema) -> Family:
        """The table of time, events and groups; with `entry` also that of entry and groups."""
        self.clock(schema)
        self._events(schema, self._columns(schema))
        self.not_yet(schema)
        names = {c.name for c in self._columns(schema)}
        tables = [Cells.table(schema, [name for name in schema.names if name in names])]
        if self.entry is not None:
            names = {c.name for c in self._entry_columns(schema)}
            tables.append(Cells.table(schema, [name for name in schema.names if name in names]))
        return Family(tuple(tables))

    def answered(self, schema: Schema) -> Family:
        """Rows of each group by bin of time and event, the censored last; then by bin of entry."""
        columns, clock = self._columns(schema), self.clock(schema)
        masks, known = self._events(schema, columns)
        inside = [*masks, known & ~np.logical_or.reduce(masks)]
        names = [*(f"({event})" for event in self.events), "censored"]
        blocks = [
            _cell(columns, mask, clock, j, group, f"{name} at {self.time}={clock.bin_labels[j]}")
            for group in self._within(schema, columns)
            for j in range(clock.value_bins)
            for mask, name in zip(inside, names, strict=True)
        ]
        if self.entry is not None:
            columns, start = self._entry_columns(schema), self._entry_number(schema)
            known = self._known(schema, columns)
            blocks += [
                _cell(columns, known, start, i, group, f"{self.entry}={start.bin_labels[i]}")
                for group in self._within(schema, columns)
                for i in range(start.value_bins)
            ]
        return Family(tuple(blocks))

    def covers_all_rows(self, schema: Schema) -> bool:
        """True if every row belongs to one of the groups and bins."""
        columns = self._columns(schema)
        return self.clock(schema).bins == self.clock(schema).value_bins and bool(
            np.all(self._events(schema, columns)[1])
            and len(self.groups(schema))
            == np.prod([schema[name].bins for name in self.by], dtype=int)
        )

    def _columns(self, schema: Schema) -> tuple[Column, ...]:
        events = [Cells.condition(schema, event) for event in self.events]
        wanted = {column.name for block in events for column in block.columns}
        both = wanted & {self.time, *self.by}
        if both:
            raise RequestError(
                f"the events {list(self.events)} involve {sorted(both)[0]!r}, which is the time or "
                "makes the groups; take conditions on other columns"
            )
        return self._with_groups(schema, {self.time, *wanted})

    def _entry_columns(self, schema: Schema) -> tuple[Column, ...]:
        assert self.entry is not None
        return self._with_groups(schema, {self.entry})

    def _with_groups(self, schema: Schema, names: set[str]) -> tuple[Column, ...]:
        given = None if self.given is None else Subgroup.of(schema, self.given, [])
        more = set() if given is None else {column.name for column in given.columns}
        if both := more & {*names, *self.by}:
            raise RequestError(
                f"given={self.given!r} involves {sorted(both)[0]!r} itself; take a condition on "
                "other columns"
            )
        for name in self.by:
            schema[name]  # which says what columns there are
        return tuple(c for c in schema if c.name in {*names, *self.by, *more})

    def _known(self, schema: Schema, columns: tuple[Column, ...]) -> NDArray[np.bool_]:
        """Cells over the columns of the rows that are followed, whatever their group."""
        known = np.ones([column.bins for column in columns], dtype=np.bool_)
        if self.given is not None:
            group = Subgroup.of(schema, self.given, [])
            assert group is not None
            known &= group.over(columns)
        return known

    def _events(
        self, schema: Schema, columns: tuple[Column, ...]
    ) -> tuple[list[NDArray[np.bool_]], NDArray[np.bool_]]:
        """Cells of each kind of event, and of all rows whose event is known."""
        known = self._known(schema, columns)
        for event in self.events:
            answered = Subgroup.of(schema, None, answered_in(schema, event))
            if answered is not None:
                known = known & answered.over(columns)
        masks = [
            Cells.condition(schema, event).cells.over(columns) & known for event in self.events
        ]
        if len(masks) > 1 and np.any(np.sum(masks, axis=0) > 1):
            raise RequestError(
                f"a row can have several of the events {list(self.events)}; kinds of events must "
                "exclude each other"
            )
        return masks, known

    def _within(
        self, schema: Schema, columns: tuple[Column, ...]
    ) -> list[tuple[NDArray[np.bool_], str]]:
        """Cells over the columns of each group, and its name."""
        found = []
        for bins, label in zip(self.groups(schema), self.labels(schema), strict=True):
            mask = np.ones((1,) * len(columns), dtype=np.bool_)
            for name, i in zip(self.by, bins, strict=True):
                mask = mask & _at(columns, schema[name], i)
            found.append((mask, ", ".join(label)))
        return found

    def _entry_number(self, schema: Schema) -> Number:
        assert self.entry is not None
        return _number_in(schema, self.entry, "entry")

    def not_yet(self, schema: Schema) -> Floats:
        """(E, J) share of the rows of a bin of entry that is not at risk in a bin of time."""
        clock = self.clock(schema)
        if self.entry is None:
            return np.zeros((0, clock.value_bins))
        start = self._entry_number(schema)
        events = [c for event in self.events for c in Cells.condition(schema, event).columns]
        for column in (clock, start, *events):
            if column.allow_missing:
                raise RequestError(
                    f"entry needs a value in every row, and {column.name!r} has allow_missing=True "
                    "in the schema: those who enter and those who leave would be different rows; "
                    "declare missing= instead"
                )
        if start.discrete:
            points = np.array(start.values, dtype=np.float64)
        else:
            ends = np.array([start.low, *start.edges, start.high], dtype=np.float64)
            edges = self.cuts(schema)[1:-1]
            inside = edges[(edges > ends[0]) & (edges < ends[-1])]
            if lacking := sorted(set(inside.tolist()) - set(ends.tolist())):
                raise RequestError(
                    f"{self.entry!r} needs every edge of {self.time!r} within its bounds as an "
                    f"edge; {lacking[0]:.10g} is not one of its edges"
                )
            points = (ends[:-1] + ends[1:]) / 2
        if clock.discrete:
            return np.asarray(points[:, np.newaxis] >= np.array(clock.values), dtype=np.float64)
        side: Literal["left", "right"] = "right" if clock.closed == "left" else "left"
        entered = np.searchsorted(self.cuts(schema)[1:-1], points, side=side)[:, np.newaxis]
        time = np.arange(clock.value_bins)
        here = (entered == time) & (time > 0)
        return np.asarray((entered > time) + here * (0.5 if self.halves_censored(schema) else 1.0))


def follow_up_of(
    time: str,
    event: str | Sequence[str],
    by: str | Sequence[str] | None,
    given: str | None,
    entry: str | None,
    ties: Ties | None,
) -> FollowUp:
    """The follow-up of an analysis with these parameters."""
    events, groups = _texts("event", event), () if by is None else _texts("by", by)
    if time in groups or entry in (time, *groups):
        raise RequestError(
            f"time={time!r}, by={list(groups)} and entry={entry!r} must be different columns"
        )
    if ties is not None:
        check_choice("ties", ties, get_args(Ties))
    return FollowUp(time, events, groups, given, entry, ties)


def _texts(what: str, value: object) -> tuple[str, ...]:
    values: Any = listed(value)
    values = (values,) if isinstance(values, str) else values
    several = isinstance(values, Sequence) and len(values) > 0
    if not several or not all(isinstance(text, str) for text in values):
        raise RequestError(f"{what} must be a text or a list of them, got {short(value)}")
    if len(set(values)) < len(values):
        twice = next(text for text in values if values.count(text) > 1)
        raise RequestError(f"{what} names {twice!r} twice; drop one")
    return tuple(values)


def _number_in(schema: Schema, name: str, what: str) -> Number:
    column = schema[name]
    if not isinstance(column, Number):
        raise RequestError(
            f"{what} must be a Number of the schema, and {name!r} is not; declare it as one, with "
            "edges at the times you want"
        )
    if column.value_bins < 2:
        raise RequestError(
            f"{name!r} has a single bin; add edges=[...] to the schema, the times at which the "
            "curve is measured"
        )
    return column


def _at(columns: tuple[Column, ...], column: Column, i: int) -> NDArray[np.bool_]:
    """Cells over the columns in bin i of one of them."""
    shape = [c.bins if c == column else 1 for c in columns]
    return np.asarray((np.arange(column.bins) == i).reshape(shape))


def _cell(
    columns: tuple[Column, ...],
    mask: NDArray[np.bool_],
    number: Number,
    i: int,
    group: tuple[NDArray[np.bool_], str],
    name: str,
) -> Indicator:
    """Rows of a group in bin i of a number that are in a set of cells."""
    inside, label = group
    held = np.broadcast_to(mask & inside & _at(columns, number, i), [c.bins for c in columns])
    return Indicator(cell_set(columns, held), name + (f" and {label}" if label else ""))


def _single_cells(tables: Family, wanted: Family) -> list[int] | None:
    """Where each of the wanted counts is among the cells of the tables; None if one is a sum.

    Cells of tables are answered together, which is faster than each by itself.
    """
    places: dict[frozenset[Column], tuple[Block, int]] = {}
    start = 0
    for block in tables.blocks:
        places[frozenset(block.columns)] = block, start
        start += block.size
    found = []
    for block in wanted.blocks:
        assert isinstance(block, Indicator)
        if frozenset(block.cells.columns) not in places:
            return None
        table, first = places[frozenset(block.cells.columns)]
        cells = np.flatnonzero(block.cells.over(table.columns))
        if len(cells) != 1:
            return None
        found.append(first + int(cells[0]))
    return found


@dataclass(frozen=True, eq=False)
class RiskSets(Cached):
    """Noisy events and rows at risk, with the joint law of their noise."""

    answers: Answers  # to `FollowUp.answered`
    # (G, J, K): numbers of groups, of bins of time and of kinds of events
    shape: tuple[int, int, int]
    # (E, J): of each bin of entry, the share not at risk in each bin of time; E is 0 without entry
    not_yet: Floats
    half: bool
    covers_all_rows: bool  # whether the cells of time and event hold every row

    @classmethod
    def from_release(cls, follow_up: FollowUp, release: ReleaseView) -> RiskSets:
        """Risk sets by the answers of a release, which need the distribution of their noise."""
        schema = release.schema
        tables, wanted = follow_up.family(schema), follow_up.answered(schema)
        if release.answers(wanted.blocks[0]).bound_only:
            raise RequestError(
                "a radius is not enough for survival analyses, which need the law of the noise: "
                "infer from the release itself"
            )
        places = _single_cells(tables, wanted)
        answers = release.answers(wanted if places is None else tables)
        answers = answers if places is None else answers.subset(places)
        shape = (
            len(follow_up.groups(schema)), follow_up.clock(schema).value_bins, len(follow_up.events)
        )  # fmt: skip
        whole = follow_up.covers_all_rows(schema)
        halves = follow_up.halves_censored(schema)
        return cls(answers, shape, follow_up.not_yet(schema), halves, whole)

    @property
    def of_persons(self) -> RiskSets:
        """Counts of persons, whose sampling is inferred; see `Answers.of_persons`."""
        if self.answers.rows.rows_per_person == 1:
            return self
        return self._once("persons", lambda: replace(self, answers=self.answers.of_persons))

    @cached_property
    def _constraints(self) -> tuple[Floats, Floats]:
        """Weights (q, d) of known sums of answers, and the sums (eq. known-totals-of-time)."""
        groups, bins, kinds = self.shape
        size = groups * bins * (kinds + 1)
        rows, totals, entries = [], [], len(self.not_yet)
        if self.covers_all_rows and self.answers.rows.exact is not None:
            rows.append((np.arange(len(self.answers.sums)) < size).astype(np.float64))
            totals.append(float(self.answers.n))
        for g in range(groups if entries else 0):
            row = np.zeros(len(self.answers.sums))
            row[g * bins * (kinds + 1) : (g + 1) * bins * (kinds + 1)] = 1
            row[size + g * entries : size + (g + 1) * entries] = -1
            rows.append(row)
            totals.append(0.0)
        weights = np.array(rows, dtype=np.float64).reshape(-1, len(self.answers.sums))
        return weights, np.array(totals)

    @cached_property
    def _parts(self) -> tuple[Floats, Floats]:
        """Independent noises: weights (m, d) of each in the answers, and variances (m,)."""
        parts = self._noises
        weights = np.array([w for w, _ in parts]).reshape(-1, len(self.answers.sums))
        return weights, np.array([law.variance for _, law in parts])

    @cached_property
    def _noises(self) -> list[tuple[Floats, NoiseLaw]]:
        return list(self.answers.noise_parts)

    @cached_property
    def _adjustment(self) -> Floats:
        """(d, q) change of the answers by which known sums are met, for an excess of one."""
        wanted, _ = self._constraints
        weights, variances = self._parts
        across = weights.T @ (variances[:, np.newaxis] * (weights @ wanted.T))
        # Combined answers may meet the sums already: these have no noise left.
        values, vectors = np.linalg.eigh(wanted @ across)
        known = values > _MET * np.sum(wanted**2 @ (weights.T**2 @ variances))
        inverse = np.divide(1, values, out=np.zeros(len(values)), where=known)
        return np.asarray(across @ (vectors * inverse) @ vectors.T)

    @cached_property
    def sums(self) -> Floats:
        """(d,) answers, moved by least squares to the sums that are known."""
        wanted, known = self._constraints
        excess = wanted @ self.answers.sums - known
        return np.asarray(self.answers.sums - self._adjustment @ excess)

    @cached_property
    def _drawn(self) -> Floats:
        """Draws (MANY_DRAWS, m) of the independent noises."""
        rng = calibration_generator(self.answers)
        return np.stack([draw_evenly(law, MANY_DRAWS, rng) for _, law in self._noises], axis=1)

    def noise(self, entries: Floats) -> Floats:
        """Draws (MANY_DRAWS, k) of the noise on combinations (d, k) of `sums`."""
        return np.asarray(self._drawn @ self._along(entries))

    def noise_covariance(self, entries: Floats) -> Floats:
        """Covariance (k, k) of the noise on combinations (d, k) of `sums`."""
        along = self._along(entries)
        return np.asarray((along.T * self._parts[1]) @ along)

    def _along(self, entries: Floats) -> Floats:
        """(m, k) weights of the independent noises in combinations (d, k) of `sums`."""
        wanted, _ = self._constraints
        moved = entries - wanted.T @ (self._adjustment.T @ entries)
        return np.asarray(self._parts[0] @ moved)

    def noise_tails(self, entries: Floats) -> MixtureTails:
        """Laws of the noise on combinations (d, k) of `sums`."""
        laplace, terms = self.laplace(entries)
        gaussian = self._along(entries)[self._gaussian] ** 2
        normal = self._parts[1][self._gaussian] @ gaussian
        return MixtureTails(normal, laplace.T**2, terms)

    @cached_property
    def _gaussian(self) -> NDArray[np.bool_]:
        """(m,) which of the independent noises are Gaussian."""
        return np.array([law.gaussian for _, law in self._noises], dtype=np.bool_)

    def laplace(self, entries: Floats) -> tuple[Floats, Floats]:
        """Weights (m, k) of Laplace noises of variance one in combinations (d, k) of `sums`.

        With the number of equal terms (m,) of each noise.
        """
        weights = self._along(entries) * np.sqrt(self._parts[1])[:, np.newaxis]
        terms = np.array([float(getattr(law, "terms", 1)) for _, law in self._noises])
        return weights[~self._gaussian], terms[~self._gaussian]

    def bins_with_rows(self, groups: Sequence[int]) -> int:
        """Number of first bins in which groups together surely have rows (eq. end-of-curve)."""
        at_risk = self.maps.at_risk[:, list(groups)].sum(axis=1)
        return int(np.cumprod(self.are_positive(at_risk)).sum())

    def are_positive(self, entries: Floats) -> NDArray[np.bool_]:
        """(k,) whether combinations (d, k) of `sums` are above what noise alone could be."""
        estimates, law = self.sums @ entries, self.noise_tails(entries)
        doubts = law.tail(np.maximum(estimates, 0)) / 2 * len(estimates)
        doubts = np.where(law.variances < _NO_NOISE, estimates < _LEAST_AT_RISK / 2, doubts)
        return np.asarray((doubts <= for_empty_levels(USUAL_ALPHA)) & (estimates > 0))

    def counts(self, sums: Floats) -> Counts:
        """Events and rows at risk from sums (..., d) of all cells (eq. at-risk)."""
        counts, size = counts_of(sums, self.shape, half=self.half), int(np.prod(self.shape[:2]))
        if not len(self.not_yet):
            return counts
        entered = sums[..., size * (self.shape[2] + 1) :]
        entered = entered.reshape(*sums.shape[:-1], self.shape[0], -1)
        return counts._replace(at_risk=counts.at_risk - entered @ self.not_yet)

    @cached_property
    def observed(self) -> Counts:
        """Noisy counts."""
        return self.counts(self.sums)

    @cached_property
    def maps(self) -> Counts:
        """Events (d, G, J, K) and rows at risk (d, G, J) as combinations of `sums`."""
        return self.counts(np.eye(len(self.sums)))

    def denoised(self, group: int, bins: int) -> Counts:
        """Counts of one group, in the first bins, less draws of their noise: (MANY_DRAWS, ...)."""
        kinds = self.shape[2]
        of_events = self.maps.events[:, group, :bins].reshape(len(self.sums), -1)
        entries = np.concatenate([of_events, self.maps.at_risk[:, group, :bins]], axis=1)
        drawn = self.sums @ entries - self.noise(entries)
        split = bins * kinds
        return Counts(drawn[:, :split].reshape(MANY_DRAWS, bins, kinds), drawn[:, split:])


def counts_of(sums: Floats, shape: tuple[int, int, int], *, half: bool) -> Counts:
    """Events and rows at risk from sums (..., d) of cells of G groups, J bins and K events."""
    groups, bins, kinds = shape
    cells = sums[..., : groups * bins * (kinds + 1)]
    cells = cells.reshape(*sums.shape[:-1], groups, bins, kinds + 1)
    at_risk = np.cumsum(cells.sum(axis=-1)[..., ::-1], axis=-1)[..., ::-1]
    return Counts(cells[..., :-1], at_risk - cells[..., -1] / 2 if half else at_risk)


def time_text(clock: Number, value: float) -> str:
    """A time as it is shown; a date as one."""
    return day_text(value) if clock.dates else f"{value:.10g}"


def shown_times(clock: Number, times: Floats) -> Floats | NDArray[np.datetime64]:
    """Times as they are in frames: dates where the column has dates."""
    return times.astype("datetime64[D]").astype("datetime64[s]") if clock.dates else times


def time_of(clock: Number, value: object) -> float:
    """A time as a number: a date, or its text, as a day where the column has dates."""
    return check_day("time", value) if clock.dates else check_number("time", cast("float", value))
