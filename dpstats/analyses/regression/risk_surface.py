"""The noisy mean loss on a grid, with bounds that hold jointly, and its minimisers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpstats.analyses.regression.near_minimisers import NearMinimisers, quadratic_minimiser
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Target
from dpstats.corrected.means import chernoff_confint
from dpstats.error_rates import bonferroni, for_noise
from dpstats.families.losses.block import LossBlock
from dpstats.measured.answers import Answers, joint_noise_quantiles

_USUAL = 0.05


@dataclass(frozen=True, eq=False)
class RiskSurface(Cached):
    """Noisy mean losses at the points of a grid.

    With probability 1 - alpha over the noise, the noise on every sum is within its quantile q_f,
    jointly. Then the mean loss of the private table at grid point f is within q_f / n and the
    rounding of one row of the noisy one. For the population, Hoeffding's bound in Chernoff's form
    holds at all grid points jointly, by Bonferroni's inequality; between them the mean loss of the
    population is as convex, and as Lipschitz, as that of a table.

    Where n is measured, dividing by its estimate moves no minimum; bounds on n enter the rounding,
    and the population's mean loss.

    Attributes
    ----------
    block : LossBlock
    answers : Answers
        To the block.
    """

    block: LossBlock
    answers: Answers

    @cached_property
    def risks(self) -> Floats:
        """(d,) noisy mean losses."""
        return self.answers.sums * self.block.unit / self.answers.n

    def near(self, alpha: float, target: Target) -> NearMinimisers:
        """The certified set of minimisers over the box of the grid, level 1 - alpha."""

        def compute() -> NearMinimisers:
            low, high, slope = self._bounds(alpha, target)
            axes = [axis.values for axis in self.block.axes]
            reach = self.block.reach * slope
            return NearMinimisers(axes, low, high, reach, self.block.convex)

        return self._once(("near", alpha, target), compute)

    def _shares(self, alpha: float, target: Target) -> tuple[float, float, float]:
        """Errors for the number of rows, the noise and sampling."""
        count = self.answers.rows.spent(alpha)
        if target == "table":
            return count, alpha - count, 0.0
        noise = for_noise(alpha - count, bound_only=self.answers.bound_only)
        return count, noise, alpha - count - noise

    def noise(self, alpha: float, target: Target) -> Floats:
        """Bounds (d,) on the noise of the mean losses, jointly."""
        _, beta, _ = self._shares(alpha, target)
        return joint_noise_quantiles(self.answers, beta) * self.block.unit / self.answers.n

    def _bounds(self, alpha: float, target: Target) -> tuple[Floats, Floats, float]:
        """Bounds (d,) on the mean losses, up to a common factor, and that factor."""
        count, _, sampling = self._shares(alpha, target)
        fewest, most = self.answers.rows.bounds(count)
        noise, rounding = self.noise(alpha, target), self.block.rounding
        low, high = self.risks - noise, self.risks + noise
        if target == "table":
            factor = most / self.answers.n
            return low - factor * rounding, high + factor * rounding, factor
        low = np.maximum(low, 0) * self.answers.n / most - rounding
        high = np.maximum(high, 0) * self.answers.n / fewest + rounding
        largest = self.block.largest_loss
        each = bonferroni(sampling, self.block.size)
        low, high = chernoff_confint(low / largest, high / largest, fewest, each)
        return largest * low, largest * high, 1.0

    @cached_property
    def estimate(self) -> Floats:
        """(p,) the minimum of a quadratic fitted where the noise leaves the minimum possible.

        Of the grid points where nothing is known between them: only these are in certified sets.
        """
        if not self.block.convex and np.any(np.isinf(self.block.reach)):
            axes = [axis.values for axis in self.block.axes]
            best = np.unravel_index(int(np.argmin(self.risks)), [len(values) for values in axes])
            return np.array([values[i] for values, i in zip(axes, best, strict=True)])
        noise = self.noise(_USUAL, "table")
        used = self.risks - noise <= np.min(self.risks + noise)
        return quadratic_minimiser([a.values for a in self.block.axes], self.risks, used)

    def excess(self, alpha: float, target: Target) -> dict[str, float]:
        """How much the least mean loss may be below its upper bound, and what that is due to."""
        near = self.near(alpha, target)
        first, last = near.boxes
        total = near.most - float(near.lower(first, last).min())
        best = int(np.argmin(near.high))
        width = float(near.high[best] - near.low[best])
        rounding = 2 * self.block.rounding
        noise = min(2 * float(self.noise(alpha, target)[best]), width - rounding)
        return {
            "noise": noise, "rounding": rounding,
            "sampling": width - rounding - noise,
            "gaps of the grid": max(total - width, 0.0),
        }  # fmt: skip
