"""Weighted estimates with the sampling variance of a survey design and the noise of privacy.

Signed contrasts of paired units are the one source of sampling covariances, whatever is estimated
(docs/explanation/inference/survey.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.notes import cell_rules
from dpstats.analyses.survey.calibration import Calibration
from dpstats.analyses.survey.estimand import (
    Estimand,
    Sums,
    WithEstimands,
    basis_of,
    squares_of_cells,
)
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target, counted, first_few
from dpstats.error_rates import LEAST_COMPUTED, bonferroni, for_variances
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Block
from dpstats.families.contrasts import Contrasts
from dpstats.inference.intervals import Ends
from dpstats.measured.combining import BEYOND_CHANCE
from dpstats.measured.view import ReleaseView
from dpstats.privacy.weighted_noise import Combination
from dpstats.results.estimates import Estimated, EstimateResult, estimated
from dpstats.results.named import Named
from dpstats.schema import Design

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.answers import Answers
    from dpstats.measured.row_count import RowCount


HIDDEN = 3.0  # standard deviations of its noise within which a variance is not trusted
_LEAST_SIZE = 0.02  # of a principal variance of correlated parameters, that noise may understate
_ROUNDING = 1e-9
_EXACT = 1e-12
_LEAST_TOTAL = 1e-7
_HALVINGS = 40
_NO_END = 30.0  # half a width in logarithms from which on a limit is zero or infinite
_MANY_ROWS = 50  # in the cell that matters most, from which sums of them are near to normal
_INVERTED = 2.0**20  # slopes times this are combinations whose steps a grid resolves


@dataclass(frozen=True)
class Totals(Cached):
    """Noisy weighted totals of the functions of a block, and contrasts of their units.

    Attributes
    ----------
    answers : Answers
        To the functions that were measured.
    basis : (d, D) float64
        The d wanted totals as sums of these D.
    contrasts : (J, d) float64
        Noisy contrasts, of the block or other functions; without a row where none were measured.
    factors : (J,) float64
        What squares of contrasts are multiplied by.
    contrast_noise : (d, d) float64
        Covariance of the noise on the contrasts of one pair of groups of units.
    design : Design
    calibration : Calibration
        What is known of the totals.
    """

    answers: Answers
    basis: Floats
    contrasts: Floats
    factors: Floats
    contrast_noise: Floats
    design: Design
    calibration: Calibration

    @classmethod
    def of(
        cls, release: ReleaseView, block: Block, contrasted: Block | None = None, *,
        needed: bool = True, by_units: bool = False,
    ) -> Totals:  # fmt: skip
        """Totals of a block, and its contrasts or those of a block that it follows from.

        Contrasts of other functions, if some are given. Without contrasts and a design effect only
        if these are not `needed`; `by_units` if a design effect does not serve.

        Raises
        ------
        NotMeasuredError
        """
        design = release.schema.design
        assert design is not None
        answers = release.answers(block, disjoint=True)
        (measured,) = answers.blocks
        basis = np.eye(block.size) if measured == block else basis_of(measured, block)
        assert basis is not None
        calibration = Calibration.of(release.schema, block)
        found = _contrasts(release, contrasted or block)
        if found is None:
            if needed and (by_units or design.deff is None):
                other = "" if by_units else ", and the design declares no deff="
                raise NotMeasuredError(
                    f"contrasts of {(contrasted or block).names[0]!r} between units were not "
                    f"measured{other}"
                )
            empty = np.zeros((0, block.size))
            zero = np.zeros((block.size,) * 2)
            return cls(answers, basis, empty, np.zeros(0), zero, design, calibration)
        measured, values, noise = found
        factors = measured.factors * _of_hash(design)
        return cls(answers, basis, values, factors, noise, design, calibration)

    @cached_property
    def _measured(self) -> Floats:
        return np.asarray(self.basis @ (self.answers.sums / self.answers.bounds))

    @cached_property
    def _measured_noise(self) -> Floats:
        bounds = self.answers.bounds.astype(np.float64)
        covariance = self.answers.noise_covariance / np.outer(bounds, bounds)
        return np.asarray(self.basis @ covariance @ self.basis.T)

    @cached_property
    def values(self) -> Floats:
        """Totals (d,) in unit scale, fitted to the known ones (eq. calibrated)."""
        missed = self.known.values - self.known.sums @ self._measured
        return np.asarray(self._measured + self._by_noise @ missed)

    @cached_property
    def _by_noise(self) -> Floats:
        return self.known.coefficients(self._measured_noise)

    @cached_property
    def _by_sampling(self) -> Floats:
        least = _LEAST_TOTAL * np.abs(self.values).sum()  # where zero, known ones are not regressed
        return self.known.coefficients(np.diag(np.maximum(self.values, least)))

    def noise(self, slopes: Floats, others: Floats | None = None) -> Floats:
        """Covariance (q, q) of the noise on combinations (q, d) of the totals, or with others."""
        left = self.known.residual(slopes, self._by_noise)
        right = left if others is None else self.known.residual(others, self._by_noise)
        return np.asarray(left @ self._measured_noise @ right.T)

    def sampled(self, slopes: Floats) -> Floats:
        """Slopes (q, d) of estimates by the sampling errors of totals, but for known ones."""
        return self.known.residual(slopes, self._by_sampling)

    def noise_law(self, slopes: Floats) -> Combination | None:
        """Distribution of the noise on a combination (d,) of the totals; None without noise."""
        rest = self.known.residual(slopes, self._by_noise)
        parts = self.answers.noise_of((rest @ self.basis) / self.answers.bounds)
        return Combination(tuple(parts)) if parts else None

    @cached_property
    def uncalibrated(self) -> Totals:
        """The totals without what is known of them."""
        return replace(self, calibration=Calibration.without(len(self.basis)))

    @cached_property
    def known(self) -> Calibration:
        """Sums that totals are fitted to: none if they contradict the declared ones."""
        declared = self.calibration
        return self.uncalibrated.calibration if declared.names and self.contradicted else declared

    @cached_property
    def contradicted(self) -> list[str]:
        """Known totals that are farther from the measured ones than noise and rounding explain."""
        known, raw = self.calibration, self.uncalibrated
        laws = [raw.noise_law(sums) for sums in known.sums]
        each = bonferroni(BEYOND_CHANCE, max(len(laws), 1))
        widths = np.array([0.0 if law is None else law.quantile(each) for law in laws])
        halves = self.answers.rows.in_rows / 2  # steps by which rounding may move a sum of weights
        far = np.abs(known.sums @ raw.values - known.values) > widths + halves
        return [name for name, is_far in zip(known.names, far, strict=True) if is_far]

    def limits(self, beta: float) -> Ends:
        """Limits (d,) of the totals that hold jointly with probability 1 - beta, for any rows."""
        each = bonferroni(beta, len(self.answers.sums))
        widths = self.answers.quantiles(each) / self.answers.bounds
        spread = np.abs(self.basis) @ widths
        return np.maximum(self._measured - spread, 0), np.maximum(self._measured + spread, 0)


def _of_hash(design: Design) -> float:
    """Factor of squares of totals of units that are not listed: they are about zero, not a mean."""
    units = design.units
    return units / (units - 1) if isinstance(units, int) else 1.0


def effective_number(squares: Floats, shape: float, most: float) -> Floats:
    """Effective number of contrasts by squares (J, ...) of their lengths, eq. concentrated-jointly.

    `shape` is 1 for contrasts of one parameter (eq. concentrated-degrees).
    """
    fourth = np.maximum(np.sum(squares**2, axis=0), 1e-300)
    ratio = squares.sum(axis=0) ** 2 / fourth
    return np.asarray(np.clip(ratio + 2 * (ratio - 1) / shape, 1.0, max(most, 1.0)))


def _contrasts(release: ReleaseView, block: Block) -> tuple[Contrasts, Floats, Floats] | None:
    """Contrasts of a block in unit scale (J, d), and the covariance (d, d) of noise on each."""
    best: tuple[Contrasts, Floats, Floats] | None = None
    for contrasts in release.contrasts:
        base = contrasts.base
        basis = basis_of(base, block)
        if basis is None:
            continue
        answers = release.answers(contrasts, disjoint=True)
        values = (answers.sums / answers.bounds).reshape(contrasts.count, base.size)
        variances = np.array([answers.law(f).variance for f in range(base.size)])
        scaled = variances / answers.bounds[: base.size].astype(np.float64) ** 2
        noise = (basis * scaled) @ basis.T
        if best is None or np.trace(noise) < np.trace(best[2]):
            best = contrasts, values @ basis.T, noise
    return best


@dataclass(frozen=True)
class Estimates(Cached):
    """Parameters of one estimand with the covariances of their errors."""

    estimand: Estimand
    totals: Totals

    @cached_property
    def params(self) -> Floats:
        """Estimates (q,)."""
        return np.asarray(self.estimand.value(self.totals.values))

    @cached_property
    def slopes(self) -> Floats:
        """Derivatives (q, d) by the totals."""
        return np.asarray(self.estimand.jacobian(self.totals.values))

    @cached_property
    def independent(self) -> Floats:
        """Sampling variances (q,) of as many independent rows of the mean weight."""
        squares = self.estimand.squares(self.totals.values, self._contrast_slopes)
        return np.asarray(self.totals.design.coded_mean * squares)

    @cached_property
    def hidden(self) -> Floats:
        """Bounds (q,) on errors that are neither of sampling nor noise."""
        bounds = self.estimand.hidden
        return np.zeros(len(self.params)) if bounds is None else bounds(self.totals.values)

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance (q, q) of the noise, with the squares of the hidden errors."""
        return self.totals.noise(self.slopes) + np.diag(self.hidden**2)

    @cached_property
    def _contrast_slopes(self) -> Floats:
        """Derivatives (q, e) by what contrasts are of: the totals, or other functions."""
        by_contrasts = self.estimand.contrast_slopes
        if by_contrasts is None:
            return self.totals.sampled(self.slopes)
        return by_contrasts(self.totals.values)

    @cached_property
    def linearised(self) -> Floats:
        """Linearised contrasts (J, q), whose products have the sampling covariance and noise."""
        z = self.totals.contrasts @ self._contrast_slopes.T
        return np.asarray(np.sqrt(self.totals.factors)[:, np.newaxis] * z)

    @cached_property
    def contrast_moments(self) -> tuple[Floats, Floats]:
        """Sum of products of the linearised contrasts (q, q), and what noise adds to it."""
        slopes = self._contrast_slopes
        noise = slopes @ self.totals.contrast_noise @ slopes.T
        return self.linearised.T @ self.linearised, self.totals.factors.sum() * noise

    @cached_property
    def sampling_covariance(self) -> Floats:
        """Covariance (q, q) of the sampling error.

        A variance that noise could hide is at least that of independent rows (eq. floor-of-design).
        """
        if not len(self.totals.factors):
            assert self.totals.design.deff is not None
            correlations = self.independent_correlations
            sd = np.sqrt(self.totals.design.deff * self.independent)
            return np.asarray(correlations * np.outer(sd, sd))
        products, noise = self.contrast_moments
        covariance = products - noise
        hidden = HIDDEN * np.diag(noise) * np.sqrt(2 / self.number_of_contrasts)
        floor = np.minimum(self.independent, hidden)
        short = np.maximum(floor - np.diag(covariance), 0)
        return np.asarray(covariance + np.diag(short))

    @property
    def independent_correlations(self) -> Floats:
        """Correlations (q, q) of estimates from independent rows in cells of the block."""
        slopes = self.totals.sampled(self.slopes)
        weighted = slopes * np.sqrt(np.maximum(self.totals.values, 0))
        covariance = weighted @ weighted.T
        sd = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
        return np.asarray(covariance / np.outer(sd, sd))

    @cached_property
    def degrees_of_freedom(self) -> Floats:
        """Degrees of freedom (q,), eq. degrees-of-freedom; infinite with a declared deff.

        At most the number of contrasts: one or two can be small by chance.
        """
        if not self.contrasts:
            return np.full(len(self.params), np.inf)
        products, noise = self._squares
        sampling = np.diag(self.sampling_covariance)
        whole = sampling + np.diag(self.noise_covariance)
        measured = np.maximum(np.maximum(products, sampling + noise), 1e-300)
        contrasts = self.number_of_contrasts
        return np.asarray(np.clip(contrasts * (whole / measured) ** 2, 1.0, contrasts))

    @property
    def contrasts(self) -> int:
        """Number of contrasts that sampling variances are from; 0 with a declared deff."""
        return len(self.totals.factors)

    @property
    def _squares(self) -> tuple[Floats, Floats]:
        """Sums of squares (q,) of linearised contrasts, and what noise adds to them."""
        products, noise = (np.diag(matrix) for matrix in self.contrast_moments)
        return products, noise

    @property
    def most_contrasts(self) -> float:
        """Effective number of contrasts, of unequal factors or hashed units, eq. hashed-degrees."""
        factors, design = self.totals.factors, self.totals.design
        most = float(factors.sum() ** 2 / np.sum(factors**2))
        if isinstance(design.units, int):
            most *= design.units / (most + design.units - 1)
        return most

    @cached_property
    def number_of_contrasts(self) -> Floats:
        """Effective numbers (q,) of contrasts, eq. concentrated-degrees.

        Fewer where few contrasts have most of the variance, as in a domain of few strata.
        """
        if not self.contrasts:
            return np.full(len(self.params), np.inf)
        return effective_number(self.linearised**2, 1.0, self.most_contrasts)

    @cached_property
    def moving_noise(self) -> Floats:
        """Covariances (2, q) of the noise where a parameter is not its estimate but d less.

        Its variance is then that at the estimate plus 2 d times the first and d^2 times the second.
        """
        if self.estimand.moving is None:
            return np.zeros((2, len(self.params)))
        moving = self.estimand.moving(self.totals.values)
        return np.stack([np.diag(self.totals.noise(moving, x)) for x in (self.slopes, moving)])

    def along(self, terms: Sequence[str], matrix: Floats) -> Self:
        """Estimates of combinations (k, q) of the parameters."""
        return replace(self, estimand=self.estimand.differences(terms, matrix))

    def half_widths(self, alpha: float | Floats) -> Floats:
        """Half the widths (q,) of intervals at level 1 - alpha, or (q,) levels, eq. survey-limits.

        The shortest of t limits; of those that take a t quantile for the sampling error alone; and
        of those with a confidence bound on the sampling variance, where noise leaves hardly a
        degree of freedom. All are enlarged where few rows decide (eq. rare-cells).
        """
        from scipy import stats

        sampling, noise = np.diag(self.sampling_covariance), np.diag(self.noise_covariance)
        known = stats.norm.ppf(1 - alpha / 2)
        rare = known**2 * self.rare(alpha)
        contrasts = self.number_of_contrasts
        widths = stats.t.ppf(1 - alpha / 2, self.degrees_of_freedom) * np.sqrt(sampling + noise)
        if not self.contrasts:
            return np.asarray(np.sqrt(widths**2 + rare))
        products, hidden = self._squares
        measured = np.maximum(np.maximum(products, sampling + hidden), 1e-300)
        alone = stats.t.ppf(1 - alpha / 2, np.maximum(contrasts * (sampling / measured) ** 2, 1.0))
        widths = np.minimum(widths, np.sqrt(alone**2 * sampling + known**2 * noise))
        beta = for_variances(alpha)
        most = products * contrasts / stats.chi2.ppf(beta, contrasts) - hidden
        normal = stats.norm.ppf(1 - (alpha - beta) / 2)
        widths = np.minimum(widths, normal * np.sqrt(np.maximum(most, sampling) + noise))
        return np.asarray(np.sqrt(widths**2 + rare))

    def rare(self, alpha: float | Floats) -> Floats:
        """Variances (q,) that widen limits where few rows decide, eq. rare-cells."""
        from scipy import stats

        return np.asarray(stats.norm.ppf(1 - alpha / 2) ** 2 * self._of_one_row)

    @cached_property
    def _of_one_row(self) -> Floats:
        """Variances (q,) of one more row in the cell that matters most, times what few rows need.

        Zero from many rows on, and for functions other than cells.
        """
        if self.estimand.squares is not squares_of_cells:
            return np.zeros(len(self.params))
        design = self.totals.design
        effect = max(design.effect, 1.0)
        one_row = np.max(self._contrast_slopes**2, axis=1, initial=0.0) * design.coded_mean**2
        effective_rows = self.independent / np.maximum(effect * one_row, 1e-300)
        few = np.maximum(1 - effective_rows / _MANY_ROWS, 0)
        return np.asarray(effect * design.effect * one_row * few)

    @property
    def _variances(self) -> Floats:
        """Variances (q,) of the errors, of sampling and noise."""
        return np.asarray(np.diag(self.sampling_covariance) + np.diag(self.noise_covariance))

    def _noisier(self, distances: Floats, rare: Floats | float = 0.0) -> Floats:
        """Standard deviations (q,) at the estimates over those at values so much less."""
        first, second = self.moving_noise
        variances = self._variances + rare
        at_value = variances + 2 * distances * first + distances**2 * second
        ratios = variances / np.maximum(at_value, 1e-300)
        return np.sqrt(np.where(at_value > 0, ratios, 1.0))

    def t_squared(self, distances: Floats) -> float:
        """Squared t statistic of the only parameter, so much above the value tested."""
        scaled = float((distances * self._noisier(distances))[0])
        return scaled**2 / max(float(self._variances[0]), 1e-300)

    @property
    def logarithmic(self) -> NDArray[np.bool_]:
        """Parameters (q,) whose limits are symmetric in their logarithms."""
        chosen = self.estimand.logarithmic
        return np.zeros(len(self.params), np.bool_) if chosen is None else chosen

    @cached_property
    def possible(self) -> Floats:
        """Possible values (q,) nearest to the estimates; limits are around them.

        Whatever possible value limits around an estimate contain, those around the nearest possible
        value contain too, since that lies between the two.
        """
        return np.clip(self.params, *self.estimand.range)

    def distances(self, values: Floats) -> Floats:
        """Estimates less values (q,), or what logarithms say of them."""
        estimates = self.possible
        positive = self.logarithmic & (estimates > 0)
        here, there = (np.where(positive, x, 1.0) for x in (estimates, values))
        ratios = np.log(here) - np.log(np.maximum(there, 1e-300))
        return np.where(positive, estimates * ratios, estimates - values)

    def are_rounding(self, distances: Floats) -> NDArray[np.bool_]:
        """Which differences (q,) are of rounding alone; of known parameters the errors are zero."""
        sizes = np.abs(self.slopes) @ np.abs(self.totals.values)
        return np.asarray(np.abs(distances) <= _EXACT * sizes)

    def pvalues(self, distances: Floats) -> Floats:
        """Two-sided p-values (q,) of estimates less values: where the intervals end."""
        known = (
            np.isfinite(distances) & np.isfinite(self._variances) & ~self.are_rounding(distances)
        )
        distances = np.where(known, distances, 0.0)
        low, high = np.full(len(distances), np.log(LEAST_COMPUTED)), np.zeros(len(distances))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            alpha = np.exp(middle)
            widths, rare = self.half_widths(alpha), self.rare(alpha)
            without_ends = widths**2 * self.moving_noise[1] > self._variances + rare
            away = np.abs(distances * self._noisier(distances, rare))
            inside = ~known | without_ends | (away <= widths)
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return np.asarray(np.exp(high))

    def noise_quantiles(self, alpha: float) -> Floats:
        """Bounds (q,) on noise and hidden errors, each holding with probability 1 - alpha."""
        widths, known = np.full(len(self.params), np.inf), np.isfinite(self.slopes).all(axis=1)
        laws = self.noise_laws(self.slopes[known])
        noise = [0.0 if law is None else law.quantile(alpha) * by for law, by in laws]
        widths[known] = np.array(noise) + self.hidden[known]
        return widths

    def noise_laws(self, slopes: Floats) -> list[tuple[Combination | None, float]]:
        """Laws of the noise on combinations (q, d) of totals, and what each is multiplied by."""
        return [(self.totals.noise_law(one * _INVERTED), 1 / _INVERTED) for one in slopes]

    def certified(self, alpha: float) -> Ends:
        """Limits (q,) of the table's own weighted parameters, jointly, for any rows."""
        low, high = (np.broadcast_to(end, len(self.params)) for end in self.estimand.range)
        if self.estimand.limits is None:
            return low, high
        least, largest = self.estimand.limits(*self.totals.limits(alpha))
        return np.clip(least, low, high), np.clip(largest, low, high)


@dataclass(frozen=True)
class DesignIntervals(Estimated, Cached):
    """Intervals and tests of parameters of a surveyed population."""

    parts: tuple[Estimates, ...]
    chosen: tuple[int, ...] | None = None  # places of the parameters among those of all parts

    def _joined(self, values: Iterable[Floats]) -> Floats:
        joined = np.concatenate(list(values))
        return joined if self.chosen is None else joined[list(self.chosen)]

    @cached_property
    def estimate(self) -> Floats:
        """Estimates (q,)."""
        return self._joined(part.params for part in self.parts)

    @cached_property
    def sampling_variance(self) -> Floats:
        """Variances (q,) of the sampling error, infinite without an estimate."""
        joined = self._joined(np.diag(part.sampling_covariance) for part in self.parts)
        return np.where(np.isnan(joined), np.inf, joined)

    @cached_property
    def privacy_variance(self) -> Floats:
        """Variances (q,) of the noise, infinite without an estimate."""
        joined = self._joined(np.diag(part.noise_covariance) for part in self.parts)
        return np.where(np.isnan(joined), np.inf, joined)

    @property
    def estimates(self) -> Floats:
        """`estimate` by the name that results of regressions use."""
        return self.estimate

    @property
    def variances(self) -> Floats:
        """Variances (2, q) of the sampling error, and of the noise."""
        return np.stack([self.sampling_variance, self.privacy_variance])

    @cached_property
    def degrees_of_freedom(self) -> Floats:
        """Degrees of freedom (q,) of t limits."""
        return self._joined(part.degrees_of_freedom for part in self.parts)

    @cached_property
    def independent(self) -> Floats:
        """Sampling variances (q,) of as many independent rows of the mean weight."""
        return self._joined(part.independent for part in self.parts)

    @cached_property
    def ranges(self) -> Ends:
        """Least and largest possible values, two (q,) arrays."""
        low, high = (
            self._joined(np.broadcast_to(part.estimand.range[end], len(part.params))
                         for part in self.parts) for end in (0, 1)
        )  # fmt: skip
        return low, high

    @property
    def _possible(self) -> Floats:
        """See `Estimates.possible`."""
        return np.clip(self.estimate, *self.ranges)

    def __len__(self) -> int:
        return len(self.estimate)

    @cached_property
    def _moving_noise(self) -> Floats:
        """(2, q), see `Estimates.moving_noise`."""
        return np.stack([self._joined(part.moving_noise[i] for part in self.parts) for i in (0, 1)])

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (q,) of the population; of the table, from the distribution of the noise.

        With the noise as it is at each value, as Fieller's: without an end where noise does not
        rule out collinear regressors.
        """
        if target == "table":
            width = self._joined(part.noise_quantiles(alpha) for part in self.parts)
            variance = self.privacy_variance
        else:
            width = self._joined(part.half_widths(alpha) for part in self.parts)
            rare = self._joined(part.rare(alpha) for part in self.parts)
            variance = self.privacy_variance + self.sampling_variance + rare
        known = np.isfinite(self.estimate) & np.isfinite(width) & np.isfinite(variance)
        estimate, width = (np.where(known, x, 0.0) for x in (self._possible, width))
        squared = np.divide(
            width**2, variance, out=np.zeros(len(self)), where=known & (variance > 0)
        )
        first, second = (squared * np.where(known, x, 0.0) for x in self._moving_noise)
        known &= second < 1
        rest = np.where(known, 1 - second, 1.0)
        root = np.sqrt(first**2 + rest * width**2)
        ends = (
            np.where(known, estimate + (side * root - first) / rest, side * np.inf)
            for side in (-1, 1)
        )
        low, high = (np.clip(end, *self.ranges) for end in ends)
        scales = self._joined(part.logarithmic.astype(np.float64) for part in self.parts)
        positive = (scales > 0) & known & (estimate > 0)
        exponent = np.divide(width, estimate, out=np.zeros(len(self)), where=positive)
        factor = np.exp(np.where(exponent > _NO_END, np.inf, exponent))
        low = np.where(positive, estimate / factor, low)
        return low, np.where(positive, estimate * factor, high)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (q,) of the private table's own weighted value; of the population, its range."""
        if target == "population":
            return self.ranges
        each = bonferroni(alpha, len(self.parts))
        ends = [part.certified(each) for part in self.parts]
        low, high = (self._joined(end[side] for end in ends) for side in (0, 1))
        return low, high

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Certified limits, which rest on joint limits of all totals."""
        return self.certified(alpha, target)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (q,) that each parameter equals `value`, where its intervals end."""
        size = sum(len(part.params) for part in self.parts)
        values = np.broadcast_to(value, len(self)).astype(np.float64)
        if self.chosen is not None:
            values, chosen = np.zeros(size), values
            values[list(self.chosen)] = chosen
        places = np.split(values, np.cumsum([len(part.params) for part in self.parts])[:-1])
        pairs = list(zip(self.parts, places, strict=True))
        two_sided = self._joined(part.pvalues(part.distances(own)) for part, own in pairs)
        above = (self._possible > value) == (alternative == "larger")
        one_sided = np.where(above, two_sided / 2, 1 - two_sided / 2)
        return two_sided if alternative == "two-sided" else one_sided

    def determined_part(self) -> Floats:
        """Combinations (q, q) that can be tested: all."""
        return np.eye(len(self))

    def wald(self, values: Floats) -> tuple[float, float, float, float]:
        """F statistic, p-value and both df of: all parameters, of one block, equal values (q,).

        The largest squared t of a combination of them, as Hotelling's; the noise is as it is where
        that combination has the value tested.
        """
        from scipy import stats

        (part,) = self.parts
        covariance = part.sampling_covariance + part.noise_covariance
        away = part.params - values
        if not (np.isfinite(away).all() and np.isfinite(covariance).all()):
            return 0.0, 1.0, float(len(values)), 1.0
        if len(values) == 1:
            distances = part.distances(values)
            pvalue, df = float(part.pvalues(distances)[0]), float(part.degrees_of_freedom[0])
            return part.t_squared(distances), pvalue, 1.0, df
        away = np.where(part.are_rounding(away), 0.0, away)
        sd = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
        sizes, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
        axes = vectors / sd[:, np.newaxis]
        along = axes @ ((axes.T @ away) / np.maximum(sizes, _LEAST_SIZE))
        if not along.any():
            return 0.0, 1.0, float(len(values)), 1.0
        lengths = np.linalg.norm(part.slopes, axis=1, keepdims=True)
        by_totals = part.slopes / np.maximum(lengths, 1e-300)
        size = int(np.linalg.matrix_rank(by_totals, tol=_ROUNDING))
        df = float(np.min(part.degrees_of_freedom))
        rest = df - size + 1
        if rest < 1:  # too few to test all at once: what differs most by itself, eq. survey-joint
            singles = [
                replace(self, parts=(part.along([t], row[np.newaxis]),), chosen=None)
                for t, row in zip(part.estimand.terms, np.eye(len(values)), strict=True)
            ]
            tests = [one.wald(value) for one, value in zip(singles, values[:, None], strict=True)]
            statistic, pvalue, df_num, df = min(tests, key=lambda test: test[1])
            return statistic, min(1.0, len(values) * pvalue), df_num, df
        along /= np.abs(along).max()
        combined = part.along(["combination"], along[np.newaxis])
        squared = combined.t_squared(along[np.newaxis] @ away)
        statistic = squared / size * (rest / df if np.isfinite(df) else 1.0)
        return statistic, float(stats.f.sf(statistic, size, rest)), float(size), rest

    def subset(self, chosen: slice | Sequence[int]) -> Self:
        """Intervals of some of the parameters."""
        every = range(sum(len(part.params) for part in self.parts))
        places = every if self.chosen is None else self.chosen
        some = places[chosen] if isinstance(chosen, slice) else [places[i] for i in chosen]
        return replace(self, chosen=tuple(some))


@dataclass(frozen=True, repr=False, eq=False)
class ByDesign(EstimateResult):
    """Estimates of a surveyed population, whatever they follow from.

    Attributes
    ----------
    design : Design
    """

    certified_target: ClassVar[Target] = "table"  # there are none for the population
    uncertified: ClassVar[str] = (
        'certified "none": limits of the population need the declared design, whatever the budget'
    )

    design: Design = field(kw_only=True)

    @property
    def capped_share(self) -> tuple[float, float] | None:
        """Share of all weights that the cap cut off, and an upper limit (97.5%) of it.

        Of all rows, also where the estimates are of a domain: there it can be up to this over the
        domain's share of the weights. None unless the sum of all weights is public, see `Design`.
        """
        return _capped(self.design, self.rows)

    def _shown(self, alpha: float, target: Target, most: int) -> pd.DataFrame:
        shown = super()._shown(alpha, target, most)
        if target == "population":  # whose certified limits would be the range
            shown = shown.assign(certified_low=-np.inf, certified_high=np.inf)
        return shown

    def _footer(self, method: Any, target: Target) -> str:
        return design_footer(self.design, self.rows, self.budget, method, target)


@dataclass(frozen=True, repr=False, eq=False)
class SurveyResult(ByDesign):
    """Weighted estimates of a population, from a survey with a `Design`.

    Attributes
    ----------
    design : Design
    degrees_of_freedom : (d,) Named
        Of the t distribution that limits and p-values are from.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> design = dps.Design("weight", mean=2, cap=3, unit="school", units=list(range(40)))
    >>> schema = dps.Schema([dps.Boolean("smoker")], design=design)
    >>> smoking = dps.Proportion("smoker")
    >>> plan = dps.plan(schema, {"smoking": smoking}, budget=dps.PureDP(1), n=4_000)
    >>> rows = pd.DataFrame({"smoker": [True, False] * 2_000, "weight": [3, 1] * 2_000})
    >>> rows["school"] = rows.index % 40
    >>> result = dps.release(plan, rows).infer(smoking)
    >>> 0.65 < float(result) < 0.85, len(result.degrees_of_freedom)
    (True, 1)
    """

    @property
    def _own(self) -> DesignIntervals:
        assert isinstance(self.intervals, DesignIntervals)
        return self.intervals

    @property
    def interval_of(self) -> str:
        """Proportions, or what the title says."""
        low, high = self._own.ranges
        shares = bool(np.all(low == 0) and np.all(high == 1))
        return super().interval_of if shares else self.title[:1].lower() + self.title[1:]

    @property
    def parts(self) -> tuple[Estimates, ...]:
        """Estimates by block."""
        return self._own.parts

    @property
    def degrees_of_freedom(self) -> Named:
        """Degrees of freedom (d,) of the t distribution that limits and p-values are from."""
        return Named(self._own.degrees_of_freedom, self.terms)

    @property
    def covariance(self) -> Floats:
        """Covariance (d, d) of the errors, sampling and noise; zero between different blocks.

        Parameters from different blocks share rows too; their covariance is not estimated.
        """
        from scipy import linalg

        blocks = [part.sampling_covariance + part.noise_covariance for part in self.parts]
        return np.asarray(linalg.block_diag(*blocks))

    @property
    def design_effect(self) -> Named:
        """Sampling variances over those of as many independent rows of the mean weight, (d,).

        nan where the noise may be all of that variance of independent rows.
        """
        independent, noise = self._own.independent, self.privacy_variance
        effects = self.sampling_variance / np.maximum(independent, 1e-300)
        return Named(np.where(independent > noise, effects, np.nan), self.terms)

    def totals(self) -> SurveyResult:
        """Totals of the population: numbers of people with a trait, sums of a number.

        Of ratios their numerators, from sums of weights. Where the sum of all weights is public
        (``total=`` of the design), `capped_share` says how much weight above the cap is missing.

        Returns
        -------
        SurveyResult

        Raises
        ------
        RequestError
            If the result has other parameters than ratios of totals.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> design = dps.Design("weight", mean=2, cap=3, unit="school", units=list(range(40)))
        >>> schema = dps.Schema([dps.Boolean("smoker")], design=design)
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True, False] * 2_000, "weight": [3, 1] * 2_000})
        >>> rows["school"] = rows.index % 40
        >>> smokers = dps.release(plan, rows).infer("smoking").totals()
        >>> smokers.terms, 5_000 < float(smokers) < 7_000  # of about 8,000
        (['total of smoker'], True)
        """
        parts = []
        for part in self.parts:
            above = part.estimand.numerators
            if above is None:
                raise RequestError(f"{self.title} has no totals of the population")
            estimand = _total(part.estimand, above * self.design.unit_weight)
            parts.append(Estimates(estimand, part.totals))
        return result_of(f"Totals: {self.title}", parts, self.rows, self.budget, self.notes)

    def to_frame(self, **options: Any) -> pd.DataFrame:  # noqa: D102, inherited
        return super().to_frame(**options).assign(df=np.asarray(self.degrees_of_freedom))


S = TypeVar("S", bound=SurveyResult)


def _total(estimand: Estimand, weights: Floats) -> Estimand:
    """Totals of the population, with weights (q, d) of the totals of the block."""
    sums, names = Sums(weights), estimand.counted or estimand.terms
    return Estimand(
        estimand.block, [f"total of {name}" for name in names], sums.value, sums.jacobian,
        estimand.squares, limits=sums.limits,
        range=(np.where(np.all(weights >= 0, axis=1), 0.0, -np.inf), np.inf),
    )  # fmt: skip


def infer_weighted(
    analysis: Any, release: ReleaseView,
    kind: type[S] = SurveyResult,  # type: ignore[assignment]
    **fields: Any,
) -> S:  # fmt: skip
    """Weighted estimates of an analysis, see `by_design.weighted_by_design`."""
    parts = estimates_of(analysis, release)
    rows = parts[0].totals.answers.rows
    notes = [cell_rules(release.schema, analysis)]
    if unknown := [
        term for part in parts
        for term, value in zip(part.estimand.terms, part.params.tolist(), strict=True)
        if np.isnan(value)
    ]:  # fmt: skip
        notes.insert(0, f"there is no estimate of {first_few(unknown)}, since the noisy weights of "
                        "the rows are less than those of one: use the interval")  # fmt: skip
    title = analysis.title(release.schema)
    return result_of(title, parts, rows, str(release.budget), notes, kind, **fields)


def estimates_of(analysis: WithEstimands, release: ReleaseView) -> list[Estimates]:
    """Estimates of every estimand of an analysis."""
    return [
        Estimates(
            estimand,
            Totals.of(release, estimand.block, estimand.contrasted, by_units=estimand.by_units),
        )
        for estimand in analysis.estimands(release.schema)
    ]


def result_of(
    title: str, parts: list[Estimates], rows: RowCount, budget: str, notes: Sequence[str],
    kind: type[S] = SurveyResult,  # type: ignore[assignment]
    **fields: Any,
) -> S:  # fmt: skip
    """Result of some estimates; of a kind with more fields."""
    terms = [term for part in parts for term in part.estimand.terms]
    design = parts[0].totals.design
    intervals = DesignIntervals(tuple(parts))
    return kind(
        title=title,
        **estimated(terms, intervals),
        rows=rows,
        budget=budget,
        scalar=len(terms) == 1,
        notes=list(dict.fromkeys([*notes, *design_notes(design, parts)])),
        design=design,
        dates=[t for part in parts if part.estimand.dates for t in part.estimand.terms],
        **fields,
    )


def design_footer(
    design: Design, rows: RowCount, budget: str, method: str | None, target: Target
) -> str:
    """Target, number of rows by their weights, budget, and the method if one is given."""
    what = {
        "population": f"the population, by the survey design ({design})",
        "table": "the private table's own weighted value, with capped weights",
    }[target]
    of = f" Method: {method.replace('_', '-')}." if method else ""
    size = f"{'' if rows.rows_public else 'About '}{rows.in_rows:,} rows"
    by = "" if rows.rows_public else " by their weights"
    return f"Target: {what}. {size}{by}; {budget}.{of}"


def design_notes(design: Design, parts: Sequence[Estimates]) -> list[str]:
    """Notes on the cap, on known totals and on where sampling variances come from."""
    contrasts = parts[0].contrasts
    if contrasts:
        source = f"sampling variances from {counted(contrasts, 'contrast')} of {design.unit}"
        if not design.listed_units:
            source += ", dealt by a hash of their keys: too large rather than too small"
    else:
        source = f"sampling variances from the declared design effect {design.deff:.10g}"
    cut = f"weights above {design.cap:.10g} count as {design.cap:.10g}"
    capped = _capped(design, parts[0].totals.answers.rows)
    if capped is not None and not design.is_uncut:
        share, most = capped
        cut += f", which cut off {share:.1%} of the weight of all rows (at most {most:.1%})"
    elif not design.is_uncut:
        cut += ": the bias of that is not bounded, since the sum of all weights is not declared"
    known = list(dict.fromkeys(name for part in parts for name in part.totals.known.names))
    wrong = list(dict.fromkeys(name for part in parts for name in part.totals.contradicted))
    calibrated = []
    if known:
        calibrated.append(
            f"uses public totals that the weights add up to, as the custodian asserts: "
            f"{first_few(known)}"
        )
    if wrong:
        calibrated.append(
            f"the weights do not add up to {first_few(wrong)}: more than noise explains, so that "
            "known totals are not used; ask the custodian"
        )
    params = np.concatenate([part.params for part in parts])
    away = np.abs(params - np.concatenate([part.possible for part in parts]))
    if impossible := int(np.sum(away > _ROUNDING * (1 + np.abs(params)))):
        which = "the estimate" if params.size == 1 else f"{impossible} of {params.size} estimates"
        verb = "is" if impossible == 1 else "are"
        calibrated.append(
            f"{which} {verb} impossible by the noise and not cut off, which would bias sums of "
            "estimates; intervals are around the nearest possible value"
        )
    return [source, *calibrated, cut, *_on_total(design, parts[0].totals.answers.rows),
            "weights are taken as given: that they were adjusted to known totals or for "
            "non-response from all rows is not part of the guarantee"]  # fmt: skip


def _capped(design: Design, rows: RowCount) -> tuple[float, float] | None:
    """Share of all weights above the cap, and an upper limit of it."""
    if design.total is None:
        return None
    steps, estimate, width = design.total / design.unit_weight, rows.estimate, _width_of(rows)
    return max(1 - estimate / steps, 0.0), float(np.clip(1 - (estimate - width) / steps, 0, 1))


def _width_of(rows: RowCount) -> float:
    """Half the width of a 95% interval of the sum of weights, in steps."""
    return 0.0 if rows.law is None else float(rows.law.quantile(0.05))


def _on_total(design: Design, rows: RowCount) -> list[str]:
    """A note where the capped weights surely add up to more than the declared sum of all."""
    width = 0.0 if rows.law is None else float(rows.law.quantile(BEYOND_CHANCE))
    low = (rows.estimate - width) * design.unit_weight
    if design.total is None or low <= design.total * (1 + _ROUNDING):
        return []
    return [f"the declared total of the weights, {design.total:.10g}, is below their noisy sum "
            f"with the cap, {rows.estimate * design.unit_weight:.4g} (at least {low:.4g}): check "
            "total= and mean="]  # fmt: skip
