"""Covariance matrix of some numbers, in their original units, from first and second moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.analyses.moments.clipping import ClippedColumns, clipping_notes
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target
from dpstats.error_rates import of_simulation
from dpstats.inference.intervals import Ends, Intervals, with_far_tails
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import ALLOWING, EstimateResult
from dpstats.results.named import Named

if TYPE_CHECKING:
    import pandas as pd


OWN = "with the columns' own kurtosis"
LAWS = {
    ("kurtosis",): f"sampling variances follow normal theory {OWN}",
    ("fitted",): "sampling variances use fourth moments of the release's fitted density",
    ("kurtosis", "fitted"): (
        f"sampling variances are the larger of normal theory {OWN} and of fourth moments of the "
        "release's fitted density"
    ),
}


@dataclass(frozen=True)
class Covariance(ClippedColumns):
    """Variances and covariances of some numbers.

    Parameters
    ----------
    columns : sequence of str
        At least two Numbers with ``missing=`` or ``allow_missing=True``, which leaves out the rows
        without a value of one of them. Values are clamped to the declared bounds, and the
        covariance is that of the clamped values.
    clip_norm : float, optional
        Shrink every row to at most this Euclidean norm, after centring and scaling: less noise
        where most rows are far shorter than the corners of their bounds. All results are then
        for the shrunk rows. Public: never chosen by looking at the data.
    center, scale : mapping of column names to numbers, optional
        With `clip_norm`: public guesses of the location and spread of columns, in original units;
        by default the middle and half the width of the declared bounds.

    Raises
    ------
    RequestError

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Covariance(["age", "income"])
    Covariance(columns=('age', 'income'), clip_norm=None, center=None, scale=None)
    """

    kind: ClassVar[str] = "covariance"
    preview_remark: ClassVar[str] = (
        "Columns that vary less within their bounds than even ones have narrower intervals of "
        "variances and covariances, down to the width that the noise leaves."
    )

    columns: Sequence[str]
    clip_norm: float | None = None
    center: Mapping[str, float] | None = field(default=None, hash=False)
    scale: Mapping[str, float] | None = field(default=None, hash=False)

    def infer(self, release: ReleaseView) -> CovarianceResult:
        """Estimates with noise-aware and certified intervals."""
        columns = tuple(self.columns)
        covariance = self.noisy_covariance(release)
        middles, units = covariance.moments.origin, covariance.moments.spread
        pairs = np.array(np.triu_indices(len(columns)))
        terms = [
            f"var({columns[i]})" if i == j else f"cov({columns[i]}, {columns[j]})"
            for i, j in pairs.T
        ]
        intervals = CovarianceIntervals(covariance, units, pairs)
        sampling, privacy = (intervals.variance(kind) for kind in ("sampling", "privacy"))
        return CovarianceResult(
            title=f"Covariance of {', '.join(columns)}",
            terms=terms,
            params=Named(intervals.clipped(intervals.values), terms),
            sampling_variance=sampling,
            privacy_variance=privacy,
            intervals=intervals,
            rows=covariance.moments.answers.rows,
            budget=str(release.budget),
            notes=[
                *notes_of(covariance),
                *clipping_notes(covariance.moments),
                cell_rules(release.schema, self),
            ],
            location_=middles + units * covariance.mean,
            columns=columns,
        )


@dataclass(frozen=True, repr=False, eq=False)
class CovarianceResult(EstimateResult):
    """Variances and covariances, row by row of the upper triangle.

    Attributes
    ----------
    location_ : (p,) float64
        Noisy means, original units.
    columns : tuple of str

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("math", "physics")])
    >>> spread = dps.Covariance(["math", "physics"])
    >>> plan = dps.plan(schema, {"spread": spread}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"math": numbers % 100, "physics": numbers % 100 // 2})
    >>> result = dps.release(plan, rows, m=2_000).infer(spread)
    >>> result.terms
    ['var(math)', 'cov(math, physics)', 'var(physics)']
    >>> print(result.params["cov(math, physics)"] == result.covariance_[0, 1])
    True
    """

    _privacy: ClassVar[str] = ALLOWING

    interval_of: ClassVar[str] = "covariances, in products of the columns' units"

    location_: Floats = ()  # type: ignore[assignment]
    columns: tuple[str, ...] = ()

    @property
    def terms_by_unit(self) -> list[list[str]]:
        """Every entry by itself, in a product of units."""
        return [[term] for term in self.terms]

    @property
    def main_terms(self) -> list[str]:
        """All entries: a preview shows the median of their widths."""
        return self.terms

    @property
    def covariance_(self) -> Floats:
        """(p, p) covariance matrix, original units, divisor n - 1 as `numpy.cov`."""
        p = len(self.location_)
        matrix = np.zeros((p, p))
        matrix[np.triu_indices(p)] = self.params
        return np.asarray(matrix + np.triu(matrix, 1).T)

    @property
    def matrix(self) -> pd.DataFrame:
        """`covariance_` with the columns' names."""
        import pandas as pd

        return pd.DataFrame(self.covariance_, index=self.columns, columns=self.columns)


def notes_of(covariance: NoisyCovariance) -> list[str]:
    """The source of the sampling variances, and the columns whose variance the noise exceeds."""
    notes = [LAWS[covariance.sampling.laws]]
    moments = covariance.moments
    about = subgroup_notes(moments.given, moments.answers.rows)
    if np.isnan(covariance.powers).all() and "kurtosis" in covariance.sampling.laws:
        notes[0] = notes[0].replace(OWN, "without a kurtosis (not measured)")
    if covariance.unknown and not covariance.standardize:
        notes.append("the noise exceeds the number of rows: no estimate")
    elif covariance.hidden_columns:
        notes.append(
            f"the noise exceeds the signal in {', '.join(covariance.hidden_columns)}"
            + (": the correlation matrix is unknown" if covariance.standardize else "")
        )
    return notes + about


@dataclass(frozen=True)
class CovarianceIntervals(Intervals, Cached):
    """Intervals for the covariances of pairs of columns, in original units.

    Noise-aware: quantiles of the simulated error, the exact law of the noise plus sampling; where
    sampling has two laws, the wider ones, see `RowSampling`.
    Certified: interval arithmetic; see `CertifiedRadii.box`.
    """

    covariance: NoisyCovariance
    units: Floats  # (p,) original units in one of each column
    pairs: np.ndarray[tuple[int, int], np.dtype[np.int64]]  # (2, d) which pairs of columns

    @cached_property
    def scale(self) -> Floats:
        """(d,) original units of each covariance over those in unit scale."""
        return np.asarray(self.units[self.pairs[0]] * self.units[self.pairs[1]])

    @cached_property
    def values(self) -> Floats:
        """(d,) noisy covariances."""
        return np.asarray(self.covariance.matrix[self.pairs[0], self.pairs[1]] * self.scale)

    @property
    def ranges(self) -> Ends:
        """Least and largest covariances (d,) of bounded rows."""
        unbounded = np.full_like(self.values, np.inf)
        return self.clipped(-unbounded), self.clipped(unbounded)

    def errors(self, kind: str) -> list[Floats]:
        """Draws (size, d) of the error, one array for every law of the sampling."""
        first, second = self.pairs

        def picked() -> list[Floats]:
            drawn = self.covariance.deviations(kind)
            return [errors[:, first, second] * self.scale for errors in drawn]

        return self._once(kind, picked)

    def variance(self, kind: str) -> Floats:
        """(d,) variances of the error, the largest of all laws."""
        return np.asarray(np.max([errors.var(axis=0) for errors in self.errors(kind)], axis=0))

    @cached_property
    def centre(self) -> Floats:
        """The values (d,), read as possible ones: limits that were cut off would be one value."""
        return self.clipped(self.values)

    def clipped(self, values: Floats) -> Floats:
        """Clip to the range for bounded rows; a variance is not negative."""
        limits = self.covariance.limits[self.pairs[0], self.pairs[1]]
        most = self.covariance.correction * self.scale * limits
        return np.clip(values, np.where(self.pairs[0] == self.pairs[1], 0, -most), most)

    def __len__(self) -> int:
        return self.pairs.shape[1]

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays."""
        if self.covariance.unknown:
            return self.ranges
        errors = self.errors("both" if target == "population" else "privacy")
        ends = np.quantile(errors, [alpha / 2, 1 - alpha / 2], axis=1)
        low, high = ends[1].max(axis=0), ends[0].min(axis=0)
        return with_far_tails(
            (self.clipped(self.centre - low), self.clipped(self.centre - high)),
            alpha,
            len(errors[0]),
            lambda: self.certified(alpha, target),
        )

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits of all covariances together, by the largest standardised error."""
        if self.covariance.unknown:
            return self.noise_aware(alpha, target)
        reaches = []
        for errors in self.errors("both" if target == "population" else "privacy"):
            sd = errors.std(axis=0)
            worst = np.divide(np.abs(errors), sd, out=np.zeros_like(errors), where=sd > 0)
            reaches.append(float(np.quantile(worst.max(axis=1), 1 - alpha)) * sd)
        reach = np.max(reaches, axis=0)
        return with_far_tails(
            (self.clipped(self.centre - reach), self.clipped(self.centre + reach)),
            alpha,
            len(errors),
            lambda: self.joint_certified(alpha, target),
        )

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits of all covariances together."""
        return self.certified(alpha, target, joint=True)

    def certified(self, alpha: float, target: Target, *, joint: bool = False) -> Ends:
        """Limits, two (d,) arrays."""
        low, high = CertifiedRadii(self.covariance).box(alpha, target, joint=joint)
        first, second = self.pairs
        return low[first, second] * self.scale, high[first, second] * self.scale

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) of the hypothesis that a covariance equals `value`, by simulation."""
        difference = self.centre - value
        above, below = (
            np.max(
                [of_simulation(np.sum(sign * e >= sign * difference, 0), len(e)) for e in laws], 0
            )
            for laws in [self.errors("both")]
            for sign in (1, -1)
        )
        two_sided = np.minimum(1, 2 * np.minimum(above, below))
        found = {"larger": above, "smaller": below, "two-sided": two_sided}
        return np.asarray(found[alternative], dtype=np.float64)

    def subset(self, chosen: slice) -> CovarianceIntervals:
        """Intervals of some of the pairs."""
        return replace(self, pairs=self.pairs[:, chosen])
