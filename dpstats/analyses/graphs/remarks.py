"""What a graphical model says where it knows little: why, and what would do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpstats.analyses.graphs.noisy_precision import NoisyPrecision
from dpstats.analyses.graphs.pair_intervals import MarginalIntervals
from dpstats.analyses.moments.clipping import noise_ratio
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.checks import counted, first_few
from dpstats.error_rates import USUAL_ALPHA, for_noise
from dpstats.results.base import OF_POPULATION, SILENT
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers

_FEWEST_CLIPPED = 5  # columns from which rows are better clipped to a ball than to a box
_CHAIN = 3.0  # smallest variance over least eigenvalue of a chain with partial correlations .4
_LONG = 0.001  # share of normal rows that the recommended norm shrinks
_GUESS = 1 / 9  # of a mean square, where noise hides the variances: bounds at three deviations
_WORTH = 0.9  # a ratio of noises below which clipping is recommended


class _Asked(Protocol):
    @property
    def columns(self) -> Sequence[str]: ...
    @property
    def clip_norm(self) -> float | None: ...


def singular_remark(precision: NoisyPrecision) -> str:
    """Why nothing was estimated, and what would do; "" if something was."""
    if not precision.singular:
        return ""
    if precision.n <= precision.p + 1:
        return f"a precision matrix of {precision.p} columns needs more than {precision.p + 1} rows"
    if hidden := precision.covariance.hidden_columns:
        return (
            f"nearly singular: the noise exceeds the variance of {first_few(hidden)}, and nothing "
            "is inverted; leave out what hardly varies, declare tighter bounds, or use more rows"
        )
    variance = float(np.min(precision.covariance.variances))
    noise = precision.noise_norm
    if not math.isfinite(noise) or variance <= 0:
        return "nearly singular: the noise exceeds a variance, and nothing is estimated"
    times = noise / (2 * variance / _CHAIN)
    if times < 1:
        return (
            "nearly singular: columns are nearly collinear (least eigenvalue "
            f"{precision.least_eigenvalue:.2g}, noise up to {noise:.2g}), and nothing is inverted; "
            "leave one of them out"
        )
    return (
        "nearly singular: the noise on the covariance matrix (spectral norm up to "
        f"{noise:.2g}) hides its least eigenvalue ({precision.least_eigenvalue:.2g}), so nothing "
        f"is inverted. About {_times(times)} times the rows, or times the epsilon, would do "
        "if the least eigenvalue is a third of the smallest variance, as in a chain of partial "
        "correlations .4; more if the columns are more strongly correlated"
    )


def _times(ratio: float) -> str:
    """Rounded up to two digits, and at least 1.1: with fewer rows nothing would change."""
    digits = 10.0 ** (1 - math.floor(math.log10(max(ratio, 1.1))))
    return f"{math.ceil(max(ratio, 1.1) * digits * (1 - 1e-12)) / digits:g}"


def certificate_remark(precision: NoisyPrecision) -> str:
    """Why the certificate for the population says nothing, and what would do; "" if it speaks."""
    least = precision.least_eigenvalue
    # The bounds on the noise of published rows have spent their part of the error already.
    bound_only = precision.covariance.moments.answers.bound_only
    alpha = for_noise(USUAL_ALPHA) if bound_only else USUAL_ALPHA
    population, _ = precision.radii.radii(alpha, "population")
    table, _ = precision.radii.radii(alpha, "table")
    if population < least:
        return ""
    silent = OF_POPULATION if table < least else SILENT
    if not math.isfinite(population) or least <= 0:
        return (
            f"{silent}: the noise exceeds the least eigenvalue of the covariance matrix; more "
            "rows, a larger epsilon or fewer columns would do"
        )
    # The noise falls with 1/n, the sampling error with about 1/sqrt(n).
    sampling = max(population - table, 0.0)
    root = (sampling + math.sqrt(sampling**2 + 4 * least * table)) / (2 * least)
    return (
        f"{silent}: the error of the covariance matrix is certified to within "
        f"{population:.2g} ({table:.2g} of it noise), more than its least eigenvalue {least:.2g}; "
        f"about {_times(root**2)} times the rows would do"
        + ("" if table < least else f" ({_times(table / least)} times for the private table)")
    )


def tree_remark(intervals: MarginalIntervals) -> str:
    """The same for correlations of pairs; "" if there are limits for all of them."""
    low, high = intervals.certified(USUAL_ALPHA, "population")
    if not (silent := int(np.sum((low <= -1) & (high >= 1)))):
        return ""
    return (
        f"{OF_POPULATION} for {counted(silent, 'pair')}: the variance of a column is not certified "
        "to be above zero; more rows, a larger epsilon or tighter bounds would do"
    )


def clipping_remark(schema: Schema, asked: _Asked, covariance: NoisyCovariance) -> str:
    """A norm that would lower the noise, by the noisy variances; "" if there is none."""
    squares = covariance.variances + covariance.mean**2
    seen = not covariance.hidden_columns
    return _clipping(schema, asked, covariance, float(np.mean(squares)) if seen else None)


def planned_clipping_remark(schema: Schema, asked: _Asked, covariance: NoisyCovariance) -> str:
    """The same from public numbers alone, for a preview."""
    return _clipping(schema, asked, covariance, None)


def _clipping(
    schema: Schema, asked: _Asked, covariance: NoisyCovariance, square: float | None
) -> str:
    """For columns with this mean square, or else with bounds at three standard deviations."""
    from scipy import stats

    columns = [schema[name] for name in asked.columns]
    if asked.clip_norm is not None or len(columns) < _FEWEST_CLIPPED:
        return ""
    if not all(isinstance(column, Number) and not column.allow_missing for column in columns):
        return ""
    reach = stats.chi2.isf(_LONG, len(columns)) * (_GUESS if square is None else square)
    norm = float(f"{math.sqrt(reach):.2g}")
    answers: Answers = covariance.moments.answers
    ratio = noise_ratio(schema, asked.columns, norm, gaussian=answers.law(0).gaussian)
    if answers.bound_only or ratio > _WORTH:
        return ""
    where = (
        "columns with bounds at three standard deviations" if square is None
        else "the noisy variances found here"
    )  # fmt: skip
    return (
        f"clip_norm={norm:g} would have about {ratio:.2g} of this noise, and shrink about one row "
        f"in {1 / _LONG:g} of normal rows (for {where})"
    )
