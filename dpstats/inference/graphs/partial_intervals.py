"""Intervals, tests and certified verdicts for partial correlations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative
from dpstats.errors import RequestError
from dpstats.inference.graphs.noisy_precision import NoisyPrecision
from dpstats.inference.graphs.pair_laws import PairLaws, Pairs
from dpstats.spending import bonferroni

if TYPE_CHECKING:
    from dpstats.checks import Method, Target

EdgeVerdict = Literal["present", "absent", "undecided"]
_NEARLY_ONE = 1 - 1e-12


@dataclass(frozen=True)
class PartialIntervals(Cached):
    """Intervals and tests of the partial correlations of d pairs of columns.

    Noise-aware: atanh of the estimate has a first-order error of known law (`PairLaws`), whose
    quantiles are those of a sum of the measured noises and a normal sampling error; a test of the
    value v takes the derivatives at v. Certified: the noise (and, for the population, the sampling
    error) of the whole covariance matrix is within a spectral radius, so all entries of the
    precision matrix are within bounds jointly, and partial correlations follow by interval
    arithmetic.

    Attributes
    ----------
    precision : NoisyPrecision
    pairs : (2, d) int64
    """

    precision: NoisyPrecision
    pairs: Pairs

    @cached_property
    def laws(self) -> PairLaws:
        """Of the errors; not for a singular matrix."""
        return PairLaws.partial(self.precision)

    @cached_property
    def values(self) -> Floats:
        """(d,) estimates; nan for a singular matrix."""
        if self.precision.singular:
            return np.full(self.pairs.shape[1], np.nan)
        i, j = self.pairs
        return np.clip(self.laws.correlations[i, j], -_NEARLY_ONE, _NEARLY_ONE)

    @cached_property
    def variances(self) -> tuple[Floats, Floats]:
        """(d,) variances of the estimates, of sampling and of the noise."""
        if self.precision.singular:
            return np.full_like(self.values, np.inf), np.full_like(self.values, np.inf)
        noise, total = (
            self.laws.error(self.pairs, self.values, sampling=sampling).variances
            for sampling in (False, True)
        )
        scale = (1 - self.values**2) ** 2
        return np.asarray((total - noise) * scale), np.asarray(noise * scale)

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays in [-1, 1]."""
        if method == "certified":
            return self._certified(alpha, target)
        if self.precision.singular:
            return np.full_like(self.values, -1.0), np.full_like(self.values, 1.0)
        law = self.laws.error(self.pairs, self.values, sampling=target == "population")
        reach, centre = law.quantile(alpha), np.arctanh(self.values)
        return np.tanh(centre - reach), np.tanh(centre + reach)

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Limits for all pairs jointly; certified ones are joint anyway."""
        if method == "certified":
            return self._certified(alpha, target)
        return self.conf_int(bonferroni(alpha, self.pairs.shape[1]), method, target)

    def _certified(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        low, high = self.precision.bounds(alpha, target)
        i, j = self.pairs
        least, most = (np.sqrt(np.outer(np.diag(m), np.diag(m)))[i, j] for m in (low, high))
        ends = -np.array([low[i, j], high[i, j]])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.stack([ends / least, ends / most]).reshape(4, -1)
        found = np.nan_to_num(ratios, nan=0.0, posinf=1.0, neginf=-1.0)
        unknown = ~np.isfinite(high[i, j])
        return (
            np.where(unknown, -1.0, np.clip(found.min(axis=0), -1, 1)),
            np.where(unknown, 1.0, np.clip(found.max(axis=0), -1, 1)),
        )

    def verdicts(
        self, alpha: float, target: Target, tolerance: float | None
    ) -> list[EdgeVerdict]:
        """Certified verdicts on all pairs, wrong for any of them with probability at most alpha.

        Present: the interval excludes 0. Absent: it is within the declared tolerance; that a
        correlation is exactly zero cannot be certified.
        """
        low, high = self._certified(alpha, target)
        found = np.full(len(low), "undecided", dtype=object)
        if tolerance is not None:
            found[np.maximum(-low, high) < tolerance] = "absent"
        found[(low > 0) | (high < 0)] = "present"
        return list(found)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each partial correlation equals `value`; 1 for a singular matrix."""
        if not -1 < value < 1:
            raise RequestError(f"value={value:g} must be a correlation between -1 and 1")
        if self.precision.singular:
            return np.ones_like(self.values)
        law = self.laws.error(self.pairs, np.full_like(self.values, value))
        distance = np.arctanh(self.values) - np.arctanh(value)
        two_sided = law.tail(distance)
        if alternative == "two-sided":
            return two_sided
        beyond = (distance > 0) == (alternative == "larger")
        return np.asarray(np.where(beyond, two_sided / 2, 1 - two_sided / 2))

    def subset(self, chosen: slice) -> PartialIntervals:
        """The same for some of the pairs."""
        return replace(self, pairs=self.pairs[:, chosen])
