"""The base class of all intervals: what a result needs from the distribution of its estimates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative, Method, Target
from dpstats.error_rates import LEAST_COMPUTED, bonferroni

Ends: TypeAlias = tuple[Floats, Floats]
FEWEST = 5  # draws beyond both limits, from which a limit may be read off draws
MANY_DRAWS = 20_000  # whose order statistics are limits


class Intervals(ABC):
    """Intervals and tests of d parameters: what `EstimateResult` is made with.

    A subclass says what the limits of either method are; here one of them is chosen. See
    ``docs/how-to/analyse/your-own-analysis.md``.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> def width(intervals: dps.Intervals, alpha: float) -> float:
    ...     low, high = intervals.conf_int(alpha, "certified", "table")
    ...     return float((high - low).max())
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> intervals = dps.release(plan, rows).infer("smoking").intervals
    >>> 0 < width(intervals, 0.1) < width(intervals, 0.05) < 0.01
    True
    """

    @property
    def ranges(self) -> tuple[Floats | float, Floats | float]:
        """Least and largest values that the parameters can have, (d,) or the same for all."""
        return -np.inf, np.inf

    @property
    def range_widths(self) -> Floats | float:
        """(d,) of all values that the parameters can have; infinite where these have no ends."""
        low, high = self.ranges
        return high - low

    @property
    def least_pvalue(self) -> float:
        """Error that a p-value spends on an unknown number of rows."""
        return 0.0

    @abstractmethod
    def __len__(self) -> int:
        """Number of parameters, d."""

    @abstractmethod
    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, from the distribution of sampling and noise; nested in alpha."""

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, for any data; here infinite, where nothing is known."""
        return np.full(len(self), -np.inf), np.full(len(self), np.inf)

    @abstractmethod
    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """Noise-aware p-values (d,) of: each parameter equals `value`."""

    def pvalues_of_limit(self, value: float, alternative: Alternative) -> Floats:
        """One-sided p-values (d,) that are dual to a limit; here those of `pvalues`."""
        return self.pvalues(value, alternative)

    @abstractmethod
    def subset(self, chosen: slice) -> Intervals:
        """Intervals of some of the parameters."""

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Noise-aware limits of all parameters together; here by Bonferroni's inequality."""
        return self.noise_aware(bonferroni(alpha, len(self)), target)

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Certified limits of all parameters together; here by Bonferroni's inequality."""
        return self.certified(bonferroni(alpha, len(self)), target)

    def conf_int(self, alpha: float, method: Method, target: Target) -> Ends:
        """Lower and upper limits, two (d,) arrays, nested in alpha; infinite where unknown."""
        return (self.certified if method == "certified" else self.noise_aware)(alpha, target)

    def simultaneous(self, alpha: float, method: Method, target: Target) -> Ends:
        """Limits that hold jointly for all d parameters with probability 1 - alpha."""
        joint = self.joint_certified if method == "certified" else self.joint_noise_aware
        return joint(alpha, target)


@dataclass(frozen=True)
class Several(Intervals):
    """Intervals of parameters that each have their own, of one parameter."""

    parts: tuple[Intervals, ...]

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def ranges(self) -> Ends:
        """Least and largest values (d,) that the parameters can have."""
        low, high = zip(*(part.ranges for part in self.parts), strict=True)
        return np.hstack(low), np.hstack(high)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays."""
        ends = [np.stack(part.noise_aware(alpha, target)) for part in self.parts]
        low, high = np.concatenate(ends, axis=1)
        return low, high

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays."""
        ends = [np.stack(part.certified(alpha, target)) for part in self.parts]
        low, high = np.concatenate(ends, axis=1)
        return low, high

    def subset(self, chosen: slice) -> Several:
        """Intervals of some of the parameters."""
        return Several(self.parts[chosen])

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each equals `value`."""
        return np.concatenate([part.pvalues(value, alternative) for part in self.parts])

    def pvalues_of_limit(self, value: float, alternative: Alternative) -> Floats:
        """One-sided p-values (d,) that are dual to a limit."""
        return np.concatenate([part.pvalues_of_limit(value, alternative) for part in self.parts])


def ends_of_sums(weights: Floats, low: Floats, high: Floats) -> Ends:
    """Least and largest sums W v (p,) of v (q,) between limits, with weights W (p, q)."""

    def least(positive: Floats, negative: Floats) -> Floats:
        ends, zero = np.where(weights > 0, positive, negative), np.zeros(np.shape(weights))
        return np.asarray(np.multiply(weights, ends, out=zero, where=weights != 0).sum(axis=1))

    return least(low, high), least(high, low)


def has_enough_draws(alpha: float, draws: int) -> bool:
    """True if enough draws lie in a tail of probability `alpha` to read a limit off them."""
    return draws >= FEWEST / alpha


def limits_of_draws(ordered: Floats, alpha: float) -> Ends:
    """Ends (d,) between which all but alpha/2 of ordered draws (m, d) on either side lie."""
    beyond = int(alpha / 2 * len(ordered))
    return ordered[beyond], ordered[-1 - beyond]


def wider(ends: Ends, others: Ends) -> Ends:
    """The least interval that contains both of two: it errs no more often than either."""
    return np.minimum(ends[0], others[0]), np.maximum(ends[1], others[1])


def with_far_tails(ends: Ends, alpha: float, draws: int, certified: Callable[[], Ends]) -> Ends:
    """Limits read off draws, widened to certified ones at the same alpha where the draws end."""
    return ends if has_enough_draws(alpha, draws) else wider(ends, certified())


def pvalue_of_draws(contrast: Floats, alternative: Alternative) -> float:
    """P-value of a value, at least 1e-9, from draws (m,) of the parameter less the value."""
    larger, smaller = tail_of_draws(contrast), tail_of_draws(-contrast)
    sides = {"larger": larger, "smaller": smaller, "two-sided": 2 * min(larger, smaller)}
    return float(np.clip(sides[alternative], LEAST_COMPUTED, 1.0))


def tail_of_draws(contrast: Floats) -> float:
    """Probability that a contrast is at most zero, from draws of it (m,).

    Beyond the last `FEWEST` draws by an exponential tail, eq. 3 of
    docs/explanation/inference/shares-and-tables.md.
    """
    draws = len(contrast)
    below, least = int(np.count_nonzero(contrast <= 0)), FEWEST / draws
    if below >= FEWEST:
        return below / draws
    edge, middle = np.partition(contrast, (FEWEST - 1, draws // 2))[[FEWEST - 1, draws // 2]]
    if not 0 < edge < middle:
        return least
    return min(float((2 * least) ** (middle / (middle - edge))), least)
