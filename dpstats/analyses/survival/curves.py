"""Curves of noisy risk sets, and intervals by draws of the noise and of the sampling error.

Equations are those of docs/explanation/inference/survival.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
from scipy import optimize

from dpstats.analyses.survey.estimand import Estimand, squares_of_cells
from dpstats.analyses.survival.follow_up import Counts, RiskSets, counts_of
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target
from dpstats.error_rates import bonferroni
from dpstats.inference.intervals import (
    MANY_DRAWS,
    Ends,
    limits_of_draws,
    pvalue_of_draws,
    with_far_tails,
)
from dpstats.inference.joint_coverage import level_of_draws
from dpstats.inference.simulation import calibration_generator
from dpstats.results.estimates import Estimated

if TYPE_CHECKING:
    from dpstats.families.block import Block

Law = Literal[
    "survival", "incidence", "rate", "mean"
]  # of the sampling error, see `_with_sampling`
# Purposes of draws, which those of other tests differ from.
_SAMPLING: Mapping[Law, tuple[int, int]] = {
    "survival": (31, 0), "incidence": (31, 1), "rate": (31, 2), "mean": (31, 3),
}  # fmt: skip
_JOINTLY = (32,)
_LEAST_HAZARD = 1e-9  # gives the limit without events
_LEAST_SHAPE = 1e-9
_LEAST_LEFT = 1e-3  # rows


def survival(hazards: Floats) -> Floats:
    """Survival (..., T) after each bin, from hazards (..., T, K) of all kinds of events."""
    return np.asarray(np.cumprod(np.maximum(1 - hazards.sum(axis=-1), 0), axis=-1))


def incidence(hazards: Floats) -> Floats:
    """Cumulative incidence (..., K, T) of each kind of event (eq. incidence)."""
    after = survival(hazards)
    before = np.concatenate([np.ones_like(after[..., :1]), after[..., :-1]], axis=-1)
    return np.asarray(np.cumsum(np.swapaxes(before[..., np.newaxis] * hazards, -1, -2), axis=-1))


def _incidence_of(kind: int, hazards: Floats) -> Floats:
    return np.asarray(incidence(hazards)[..., kind, :])


def _within(limit: Floats, estimate: Floats, ends: Floats) -> Floats:
    """Limits (d,) within ranges (2, d), at an end only where they are beyond an estimate (d,)."""
    low, high = ends
    limit = np.minimum(limit, (limit + high - np.fmax(estimate - high, 0)) / 2)  # NaN: none
    limit = np.maximum(limit, (limit + low + np.fmax(low - estimate, 0)) / 2)
    return np.asarray(np.clip(limit, low, high))


def fitted_hazards(hazards: Floats) -> Floats:
    """(T, K) positive hazards of the nearest increasing incidences (eq. monotone)."""
    if not len(hazards):
        return hazards
    plain = incidence(hazards)
    curves = np.clip([optimize.isotonic_regression(curve).x for curve in plain], 0, 1)
    curves /= max(float(curves[:, -1].sum()), 1.0)
    before = 1 - np.concatenate([[0.0], curves.sum(axis=0)[:-1]])
    steps = np.diff(curves, prepend=0, axis=1).T / np.maximum(before, 1e-12)[:, np.newaxis]
    steps = np.maximum(steps, _LEAST_HAZARD)
    total = steps.sum(axis=1, keepdims=True)
    return np.asarray(steps / np.maximum(total / (1 - _LEAST_HAZARD), 1))


def curves_of(block: Block, shape: tuple[int, int, int], *, half: bool) -> Estimand:
    """Survival of G groups after each bin but the last, from totals of cells of time and event.

    Derivatives are those at the fitted hazards (eq. linearised-curve).
    """
    groups, bins, _ = shape
    terms = [f"S{g}({t})" for g in range(groups) for t in range(bins - 1)]
    value, slopes = (partial(of, shape=shape, half=half) for of in (_points_of, _slopes_of))
    return Estimand(block, terms, value, slopes, squares_of_cells, (0.0, 1.0))


def _points_of(totals: Floats, shape: tuple[int, int, int], half: bool) -> Floats:
    hazards = counts_of(totals, shape, half=half).hazards[:, :-1]
    return survival(np.clip(hazards, -1, 1)).ravel()  # beyond the end there are only noises


def _slopes_of(totals: Floats, shape: tuple[int, int, int], half: bool) -> Floats:
    maps, counts = (counts_of(x, shape, half=half) for x in (np.eye(len(totals)), totals))
    edges, found = shape[1] - 1, []
    for g in range(shape[0]):
        h = fitted_hazards(counts.hazards[g, :edges])[:, 0]
        of_risk = maps.at_risk[:, g, :edges] * h
        of_hazards = (maps.events[:, g, :edges, 0] - of_risk) / np.maximum(
            counts.at_risk[g, :edges], 1.0
        )
        change = -np.tril(np.divide.outer(np.cumprod(1 - h), 1 - h))
        found.append(change @ of_hazards.T)
    return np.concatenate(found)


class CurveLimits(Estimated):
    """Limits of points of curves, and of what follows from them."""

    @abstractmethod
    def subset(self, chosen: slice | Sequence[int]) -> Self:
        """Limits of some parameters."""

    @abstractmethod
    def differences(self, first: Sequence[int], second: Sequence[int]) -> CurveLimits:
        """Limits of first parameters less second ones."""


class Draws(NamedTuple):
    """Draws (MANY_DRAWS, d) of d parameters.

    Attributes
    ----------
    of_table
        The parameters of the counts less each draw of their noise, also beyond their ranges.
    of_population
        The same with a draw of the sampling error (eq. mid-p-of-curves).
    joint
        Normal errors of all parameters together, for the level of simultaneous intervals.
    """

    of_table: Floats
    of_population: Floats
    joint: Floats


@dataclass(frozen=True, eq=False)
class DrawnIntervals(CurveLimits, Cached):
    """Intervals of d parameters, read off draws."""

    values: Floats  # (d,): estimates
    variances: Floats  # (2, d): of their errors, by sampling and by noise, to first order
    ends: Floats  # (2, d): of the range of each parameter
    draw: Callable[[], Draws]  # makes the draws, when they are needed
    # certified limits, two (d,) arrays, of the table's parameters at an error probability
    box: Callable[[float], Ends] | None = None

    @cached_property
    def draws(self) -> Draws:
        """Draws of the parameters."""
        return self.draw()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def estimate(self) -> Floats:
        """Estimates (d,)."""
        return self.values

    @property
    def sampling_variance(self) -> Floats:
        """Variances (d,) of the sampling errors."""
        return np.asarray(self.variances[0])

    @property
    def privacy_variance(self) -> Floats:
        """Variances (d,) of the noise in the estimates."""
        return np.asarray(self.variances[1])

    @property
    def ranges(self) -> Ends:
        """Least and largest values (d,) that the parameters can have."""
        return self.ends[0], self.ends[1]

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (d,) between which all but alpha/2 of the draws on either side lie."""

        def ordered() -> Floats:
            draws = self.draws
            return np.sort(
                draws.of_population if target == "population" else draws.of_table, axis=0
            )

        ends = limits_of_draws(self._once(("sorted", target), ordered), alpha)
        if target == "table":
            low, high = (_within(limit, self.values, self.ends) for limit in ends)
            ends = low, high
        return with_far_tails(ends, alpha / 2, MANY_DRAWS, lambda: self.certified(alpha, target))

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits at the level at which all of them hold, of draws of normal errors."""
        draws = self.draws.joint if target == "population" else self.draws.of_table
        varying = draws[:, np.ptp(draws, axis=0) > 0]
        level = level_of_draws(varying, alpha) if varying.shape[1] else alpha
        return self.noise_aware(level, target)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (d,) of the table's parameters; those of the population have none but the ends."""
        if target == "population" or self.box is None:
            return self.ends[0], self.ends[1]
        low, high = self.box(alpha)
        return low, high

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each parameter equals `value`, at least 1e-9."""
        drawn = self.draws.of_population.T
        return np.array([pvalue_of_draws(draws - value, alternative) for draws in drawn])

    def subset(self, chosen: slice | Sequence[int]) -> Self:
        """Intervals of the chosen parameters alone."""
        box = self.box and partial(_chosen_box, self.box, chosen)
        return type(self)(
            self.values[chosen], self.variances[:, chosen], self.ends[:, chosen],
            partial(self._chosen, chosen), box,
        )  # fmt: skip

    def _chosen(self, chosen: slice | Sequence[int]) -> Draws:
        return Draws(*(draws[:, chosen] for draws in self.draws))

    def _less(self, other: DrawnIntervals) -> Draws:
        return Draws(*(x - y for x, y in zip(self.draws, other.draws, strict=True)))

    def _box_less(self, other: DrawnIntervals, alpha: float) -> Ends:
        low, high = self.certified(alpha / 2, "table")
        least, most = other.certified(alpha / 2, "table")
        return low - most, high - least

    def differences(self, first: Sequence[int], second: Sequence[int]) -> DrawnIntervals:
        """First parameters less second ones, whose sampling errors are independent."""
        one, other = self.subset(first), self.subset(second)
        privacy = np.var(one.draws.of_table - other.draws.of_table, axis=0)
        return DrawnIntervals(
            one.values - other.values,
            np.stack([one.variances[0] + other.variances[0], privacy]),
            np.stack([one.ends[0] - other.ends[1], one.ends[1] - other.ends[0]]),
            partial(one._less, other), self.box and partial(one._box_less, other),
        )  # fmt: skip


def _chosen_box(box: Callable[[float], Ends], chosen: slice | Sequence[int], alpha: float) -> Ends:
    low, high = box(alpha)
    return low[chosen], high[chosen]


def extended(part: DrawnIntervals, size: int, *, falling: bool) -> DrawnIntervals:
    """Intervals of a monotone curve at `size` points, beyond its end without an estimate.

    One limit there is that of the last point, the other the end of the range: a curve that falls
    has the lower half of its draws at 0, one that rises the upper half at 1.
    """
    more = size - len(part)
    if not more:
        return part
    return DrawnIntervals(
        np.append(part.values, np.full(more, np.nan)),
        np.append(part.variances, np.full((2, more), np.inf), axis=1),
        np.append(part.ends, np.repeat([[0.0], [1.0]], more, axis=1), axis=1),
        partial(_extended, part, more, falling), part.box and partial(_box_and_more, part, more),
    )  # fmt: skip


def _extended(part: DrawnIntervals, more: int, falling: bool) -> Draws:
    open_end = 0.0 if falling else 1.0

    def beyond(draws: Floats) -> Floats:
        last = draws[:, -1:] if len(part) else np.full((MANY_DRAWS, 1), 1 - open_end)
        half = np.argsort(np.argsort(last[:, 0])) < MANY_DRAWS // 2
        moved = np.where((half if falling else ~half)[:, np.newaxis], open_end, last)
        return np.concatenate([draws, np.repeat(moved, more, axis=1)], axis=1)

    of_table, of_population, joint = part.draw()
    last = joint[:, -1:] if len(part) else np.zeros((MANY_DRAWS, 1))
    joint = np.append(joint, np.repeat(last, more, axis=1), axis=1)
    return Draws(beyond(of_table), beyond(of_population), joint)


def _box_and_more(part: DrawnIntervals, more: int, alpha: float) -> Ends:
    low, high = part.certified(alpha, "table")
    last = high[-1] if len(part) else 1.0
    return np.append(low, np.zeros(more)), np.append(high, np.full(more, last))


def joined(parts: Sequence[DrawnIntervals]) -> DrawnIntervals:
    """Intervals of the parameters of several groups, whose certified boxes hold together."""
    boxed = all(part.box is not None for part in parts)
    return DrawnIntervals(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.variances for part in parts], axis=1),
        np.concatenate([part.ends for part in parts], axis=1),
        partial(_joined, parts), partial(_joined_box, parts) if boxed else None,
    )  # fmt: skip


def _joined(parts: Sequence[DrawnIntervals]) -> Draws:
    of_parts = zip(*(part.draw() for part in parts), strict=True)
    return Draws(*(np.concatenate(draws, axis=1) for draws in of_parts))


def _joined_box(parts: Sequence[DrawnIntervals], alpha: float) -> Ends:
    low, high = zip(*(part.certified(alpha, "table") for part in parts), strict=True)
    return np.concatenate(low), np.concatenate(high)


def _cumulated(hazards: Floats) -> Floats:
    return np.asarray(np.cumsum(hazards.sum(axis=-1), axis=-1))


def _mean_of(weights: Floats, constant: float, hazards: Floats) -> Floats:
    return np.asarray(constant + survival(hazards) @ weights[:, np.newaxis])


def _box_of_mean(
    box: Callable[[float], Ends], weights: Floats, constant: float, alpha: float
) -> Ends:
    low, high = box(alpha)
    return np.array([constant + weights @ low]), np.array([constant + weights @ high])


@dataclass(frozen=True, eq=False)
class GroupCurve(Cached):
    """Survival and incidence of one group, in the first T bins of time."""

    risk: RiskSets
    group: int
    bins: int

    @cached_property
    def hazards(self) -> Floats:
        """(T, K) noisy hazards, which may be negative."""
        return np.asarray(self.risk.observed.hazards[self.group, : self.bins])

    @cached_property
    def fitted(self) -> Floats:
        """(T, K) positive hazards, see `fitted_hazards`."""
        return fitted_hazards(self.hazards)

    def intervals(
        self,
        parameters: Callable[[Floats], Floats],
        change: Floats,
        law: Law,
        ends: tuple[float, float] = (0.0, 1.0),
        box: Callable[[float], Ends] | None = None,
    ) -> DrawnIntervals:
        """Intervals of d parameters of the hazards.

        `parameters` maps hazards (..., T, K) to values (..., d); `change` (d, T, K) holds its
        derivatives at the fitted hazards.
        """
        persons, bins = self.risk.of_persons, self.bins
        if not bins:
            none, empty = np.zeros((2, 0)), np.zeros((MANY_DRAWS, 0))
            return DrawnIntervals(none[0], none, none, partial(Draws, empty, empty, empty), box)
        h = self.fitted
        at_risk = np.maximum(persons.observed.at_risk[self.group, :bins], 1.0)
        # The variance from each bin for one row at risk (eq. greenwood).
        of_one = (change**2 * h).sum(axis=-1) - (change * h).sum(axis=-1) ** 2
        estimate = parameters(self.hazards)
        privacy = np.diagonal(self.risk.noise_covariance(self.entries(change)))
        return DrawnIntervals(
            estimate, np.stack([of_one @ (1 / at_risk), privacy]),
            np.array(ends)[:, np.newaxis] * np.ones(len(estimate)),
            partial(self._drawn, parameters, change, law, ends, of_one, at_risk), box,
        )  # fmt: skip

    def _drawn(
        self, parameters: Callable[[Floats], Floats], change: Floats, law: Law,
        ends: tuple[float, float], of_one: Floats, at_risk: Floats,
    ) -> Draws:  # fmt: skip
        h, bins = self.fitted, self.bins
        drawn = parameters(self.risk.denoised(self.group, bins).hazards)
        counts = self.risk.of_persons.denoised(self.group, bins)
        one_more = 1 / np.maximum(counts.at_risk, 1.0)
        rng = calibration_generator(self.risk.answers, (*_SAMPLING[law], self.group))
        population = _with_sampling(
            drawn, one_more @ of_one.T, parameters(h), law, counts, ends, rng
        )
        total = h.sum(axis=1, keepdims=True)
        rng = calibration_generator(self.risk.answers, (*_JOINTLY, self.group))
        z = rng.standard_normal((MANY_DRAWS, *h.shape)) * np.sqrt(h)  # the same for all kinds
        steps = z - (1 - np.sqrt(1 - total)) / total * h * z.sum(axis=-1, keepdims=True)
        steps /= np.sqrt(at_risk)[:, np.newaxis]
        errors = steps.reshape(MANY_DRAWS, -1) @ change.reshape(len(change), -1).T
        return Draws(drawn, population, drawn + errors)

    def entries(self, change: Floats) -> Floats:
        """Parameters as combinations (cells, d) of the counts, to first order."""
        g, bins, maps = self.group, self.bins, self.risk.maps
        at_risk = np.maximum(self.risk.observed.at_risk[g, :bins], 1.0)
        of_risk = maps.at_risk[:, g, :bins, np.newaxis] * self.fitted
        of_hazards = (maps.events[:, g, :bins] - of_risk) / at_risk[:, np.newaxis]
        return np.asarray(np.einsum("cjk,djk->cd", of_hazards, change))

    @cached_property
    def _change_of_survival(self) -> Floats:
        """(T, T, K) derivatives of the survival after each bin."""
        curve, rest = survival(self.fitted), 1 - self.fitted.sum(axis=1)
        kinds = np.ones(self.fitted.shape[1])
        return np.asarray(-np.tril(np.divide.outer(curve, rest))[..., np.newaxis] * kinds)

    @property  # not kept: its draws refer to this curve
    def survival(self) -> DrawnIntervals:
        """Intervals of the survival after each of the T bins."""
        return self.intervals(survival, self._change_of_survival, "survival", box=self.box)

    @property
    def incidences(self) -> list[DrawnIntervals]:
        """Intervals of the cumulative incidence of each kind of event after each of the T bins."""
        bins, kinds = self.fitted.shape
        curves, rest = incidence(self.fitted), 1 - self.fitted.sum(axis=1)
        before = np.concatenate([[1.0], survival(self.fitted)[:-1]])
        later = (curves[:, :, np.newaxis] - curves[:, np.newaxis, :]) / rest  # (K, T, T)
        change = np.repeat(-np.tril(later)[..., np.newaxis], kinds, axis=-1)
        for k in range(kinds):
            change[k, :, :, k] += np.tril(np.ones((bins, bins))) * before
        return [
            self.intervals(partial(_incidence_of, k), change[k], "incidence") for k in range(kinds)
        ]

    @property
    def cumulative_hazard(self) -> DrawnIntervals:
        """Nelson and Aalen's, of all kinds of events."""
        bins, kinds = self.fitted.shape
        change = np.repeat(np.tril(np.ones((bins, bins)))[..., np.newaxis], kinds, axis=-1)
        return self.intervals(_cumulated, change, "rate", (0.0, np.inf))

    def restricted_mean(
        self, weights: Floats, constant: float, ends: tuple[float, float]
    ) -> DrawnIntervals:
        """A constant plus a combination (T,) of the survival (eq. restricted-mean)."""
        change = np.einsum("t,tjk->jk", weights, self._change_of_survival)[np.newaxis]
        box = self.box and partial(_box_of_mean, self.box, weights, constant)
        return self.intervals(partial(_mean_of, weights, constant), change, "mean", ends, box)

    @property
    def box(self) -> Callable[[float], Ends] | None:
        """Certified limits of the table's curve at an error probability, if there are such."""
        return None if len(self.risk.not_yet) else self._certified

    def _certified(self, alpha: float) -> Ends:
        """Limits (T,) of the table's survival, together at level 1 - alpha (eq. box-of-curve)."""
        if not self.bins:
            return np.zeros(0), np.zeros(0)
        groups, bins, kinds = self.risk.shape
        answers, size = self.risk.answers, bins * (kinds + 1)
        places = np.arange(self.group * size, (self.group + 1) * size).reshape(bins, kinds + 1)
        exact = groups == 1 and self.risk.covers_all_rows and answers.rows.exact is not None
        sums, radii, each = [], [], bonferroni(alpha, 2 * (bins - 1) + (not exact))
        events = [places[: j + 1, :-1].ravel() for j in range(self.bins)]
        censored = [places[: j + 1, -1] for j in range(self.bins)]
        for cells in [*events, *censored, places.ravel()]:
            weights = np.zeros(len(answers.sums))
            weights[cells] = 1
            noises = answers.noise_of(weights)
            part = bonferroni(each, max(len(noises), 1))
            # At least 0, so that no sum is certified to be 0 by its noise.
            sums.append(max(float(weights @ answers.sums), 0.0))
            radii.append(sum(abs(w) * law.quantile(part) for w, law in noises))
        if exact:
            sums[-1], radii[-1] = float(answers.rows.exact or 0), 0.0
        low, high = np.array(sums) - radii, np.array(sums) + radii
        (a_low, c_low), (a_high, c_high) = (ends[:-1].reshape(2, self.bins) for ends in (low, high))
        # Partial sums increase, so running maxima and minima are limits too.
        a_low, c_low = (np.maximum.accumulate(np.maximum(x, 0)) for x in (a_low, c_low))
        a_high, c_high = (
            np.maximum(np.minimum.accumulate(x[::-1])[::-1], 0) for x in (a_high, c_high)
        )
        half = 0.5 if self.risk.half else 0.0
        return survival_in_box((a_low, a_high), (c_low, c_high), (low[-1], high[-1]), half)


def survival_in_box(events: Ends, censored: Ends, rows: tuple[float, float], half: float) -> Ends:
    """Least and largest survival (T,) of tables with partial sums in a box (eq. box-of-curve).

    Parameters
    ----------
    events, censored : two (T,) float64
        Ends, which do not decrease, of their numbers by each edge.
    rows : (float, float)
        Ends of the number of all rows.
    half : float
        Share of the censored of a bin that is not at risk in it.
    """
    (low, high), (c_low, c_high) = events, censored
    worst, best = np.empty(len(low)), np.empty(len(low))
    for t in range(len(low)):
        latest, earliest = np.append(low[:t], high[t]), np.minimum(high[: t + 1], low[t])
        worst[t] = _survival_of_sums(latest, c_high[: t + 1], rows[0], half)
        best[t] = _survival_of_sums(earliest, c_low[: t + 1], rows[1], half)
    best = np.maximum(best, worst)  # as without rounding
    return np.minimum.accumulate(worst), np.minimum.accumulate(best)


def _survival_of_sums(events: Floats, censored: Floats, rows: float, half: float) -> float:
    """Survival after t bins, from partial sums (t,); 0 where these are more than the rows."""
    died, gone = np.diff(events, prepend=0), np.diff(censored, prepend=0)
    at_risk = rows - events + died - censored + gone - half * gone
    ratio = np.divide(died, at_risk, out=np.where(died > 0, 1.0, 0.0), where=at_risk > 0)
    return float(np.prod(np.clip(1 - ratio, 0, 1)))


def _with_sampling(
    drawn: Floats,
    variances: Floats,
    fitted: Floats,
    law: Law,
    remaining: Counts,
    ends: tuple[float, float],
    rng: np.random.Generator,
) -> Floats:
    """Draws (MANY_DRAWS, d) of parameters with a sampling error (eq. mid-p-of-curves).

    A share is that of events among as many rows as have its variance at the fitted curve, so that
    noise in the share itself does not change their number; a rate likewise is that of a Poisson
    count. Half of the draws have one more event, among the rows at risk that remain.
    """
    more = np.flatnonzero(rng.permutation(np.arange(MANY_DRAWS) % 2))[:, np.newaxis]
    shape = (len(more), drawn.shape[1])
    if law == "rate":
        size = fitted / np.maximum(variances, 1e-300)
        events = np.maximum(drawn, 0) * size
        found = np.where(events > 0, rng.gamma(np.maximum(events, _LEAST_SHAPE)), 0.0) / size
        found[more[:, 0]] += rng.exponential(size=shape) / _left(remaining)[more[:, 0]]
        return np.asarray(found)
    width = (ends[1] - ends[0]) or 1.0  # without one the variances are 0
    part, whole = (drawn - ends[0]) / width, (fitted - ends[0]) / width
    size = whole * (1 - whole) / np.maximum(variances / width**2, 1e-300)
    kept = np.clip(1 - part if law == "incidence" else part, 0, 1) * size
    gone = size - kept
    beta = rng.beta(kept + 1, np.maximum(gone, _LEAST_SHAPE))
    found = np.where(gone <= _LEAST_SHAPE, 1.0, beta)  # rows without the event
    last = np.log(rng.random(shape))
    if law == "mean":
        found[more[:, 0]] *= np.exp(last / np.maximum(kept, _LEAST_SHAPE)[more[:, 0]])
    else:
        lost = -np.expm1(last / _left(remaining)[more[:, 0]])
        rest = survival(remaining.hazards)[more[:, 0]] if law == "incidence" else found[more[:, 0]]
        found[more[:, 0]] -= np.clip(rest, 0, 1) * lost
    found = np.clip(found, 0, 1)
    found = ends[0] + width * (1 - found if law == "incidence" else found)
    return np.where(variances > 0, found, drawn)  # as a mean to the first value, which is known


def _left(remaining: Counts) -> Floats:
    """(MANY_DRAWS, T) rows at risk after each bin, a little above 0."""
    left = remaining.at_risk - remaining.events.sum(axis=-1)
    return np.asarray(np.maximum(left, _LEAST_LEFT))
