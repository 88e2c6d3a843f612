"""What a graphical model says where it knows little: why, and what would do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpstats.analyses.moments.clipping import noise_ratio
from dpstats.inference.graphs.noisy_precision import NoisyPrecision
from dpstats.inference.moments.noisy_covariance import NoisyCovariance
from dpstats.schema import Number, Schema
from dpstats.spending import USUAL_ALPHA

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
    variance = float(np.min(precision.covariance.variances))
    noise = precision.noise_norm
    if not math.isfinite(noise) or variance <= 0:
        return "nearly singular: the noise exceeds a variance, and nothing is estimated"
    times = max(noise / (2 * variance / _CHAIN), 1.1)
    return (
        "nearly singular: the noise on the covariance matrix (spectral norm up to "
        f"{noise:.2g}) hides its least eigenvalue ({precision.least_eigenvalue:.2g}), so nothing "
        f"is inverted. About {times:.2g} times the rows, or times the epsilon, would do if the "
        f"least eigenvalue is a third of the smallest variance, as in a chain of partial "
        "correlations .4; more if the columns are more strongly correlated"
    )


def certificate_remark(precision: NoisyPrecision) -> str:
    """Why the certificate for the population says nothing, and what would do; "" if it speaks."""
    least = precision.least_eigenvalue
    population, _ = precision.radii.radii(USUAL_ALPHA, "population")
    table, _ = precision.radii.radii(USUAL_ALPHA, "table")
    if population < least:
        return ""
    silent = "no certified statement" + (" on the population" if table < least else "")
    if not math.isfinite(population) or least <= 0:
        return f"{silent}: the noise exceeds the least eigenvalue"
    # The noise falls with 1/n, the sampling error with about 1/sqrt(n).
    sampling = max(population - table, 0.0)
    root = (sampling + math.sqrt(sampling**2 + 4 * least * table)) / (2 * least)
    return (
        f"{silent}: the error of the covariance matrix is certified to within "
        f"{population:.2g} ({table:.2g} of it noise), more than its least eigenvalue {least:.2g}; "
        f"about {max(root**2, 1.1):.2g} times the rows would do"
        + ("" if table < least else f" ({table / least:.2g} times for the private table)")
    )


def clipping_remark(schema: Schema, asked: _Asked, covariance: NoisyCovariance) -> str:
    """A norm that would lower the noise; "" if there is none, or rows are clipped already."""
    from scipy import stats

    columns = [schema[name] for name in asked.columns]
    if asked.clip_norm is not None or len(columns) < _FEWEST_CLIPPED:
        return ""
    if not all(isinstance(column, Number) and not column.allow_missing for column in columns):
        return ""
    p, hidden = len(columns), bool(covariance.hidden_columns)
    squares = np.full(p, _GUESS) if hidden else covariance.variances + covariance.mean**2
    norm = float(np.sqrt(stats.chi2.isf(_LONG, p) * np.mean(squares)))
    norm = float(f"{norm:.2g}")
    answers: Answers = covariance.moments.answers
    ratio = noise_ratio(schema, asked.columns, norm, gaussian=answers.law(0).gaussian)
    if answers.certain or ratio > _WORTH:
        return ""
    return (
        f"clip_norm={norm:g} in a next plan would have about {ratio:.2g} of this noise, and shrink "
        f"about one row in {1 / _LONG:g} of normal rows "
        + ("that vary over a third of half their bounds" if hidden else "by the noisy variances")
    )
