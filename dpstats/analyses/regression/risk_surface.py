"""The noisy mean loss on a grid, and where its minimum over the box of the grid can be."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Target
from dpstats.corrected.means import chernoff_confint
from dpstats.error_rates import USUAL_ALPHA, bonferroni, for_noise
from dpstats.families.losses.block import LossBlock
from dpstats.measured.answers import Answers, joint_noise_quantiles

_ROUNDS = 5  # in which boxes are halved along every axis
_MOST_BOXES = 4_096
_ENTRIES = 2**20
_UNKNOWN = 1e200  # in place of an infinite slope, whose product with 0 is undefined


@dataclass(frozen=True, eq=False)
class RiskSurface(Cached):
    """Noisy mean losses at the points of a grid.

    The noise is within joint quantiles; for the population Hoeffding's bound in Chernoff's form
    holds jointly by Bonferroni's inequality. Dividing by an estimate of n moves no minimum; bounds
    on n enter the rounding and the population's mean loss. See
    docs/explanation/regression/m-estimation.md.
    """

    block: LossBlock
    answers: Answers  # to the block

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
        """(p,) the minimum of a quadratic fitted where the noise leaves the minimum possible."""
        if not self.block.convex and np.any(np.isinf(self.block.reach)):
            axes = [axis.values for axis in self.block.axes]
            best = np.unravel_index(int(np.argmin(self.risks)), [len(values) for values in axes])
            return np.array([values[i] for values, i in zip(axes, best, strict=True)])
        noise = self.noise(USUAL_ALPHA, "table")
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


@dataclass(frozen=True, eq=False)
class NearMinimisers:
    """The points of a box at which a function may have its minimum over that box.

    The minimum is at most U, the least of the upper bounds. With l = low(f) at a grid point f and s
    a subgradient, the function at b is at least l + sum_j min(s_j^- (b - f)_j, s_j^+ (b - f)_j): by
    convexity s_j^+ is at most (high(g) - l) / (g - f)_j for every grid point g after f along axis
    j, s_j^- alike, and |s_j| <= reach_j. Points where some f makes this larger than U are no
    minimisers.
    """

    axes: Sequence[Floats]  # the grid: p axes of increasing values (k_j,); the box is its hull
    low: Floats  # (d,) bounds on the function at the grid points, the last axis running first
    high: Floats
    # (p,) Lipschitz constants: the function changes by at most sum_j reach_j |a_j - b_j| from a to
    # b. Infinite where nothing is known; if it is not convex either, the minimum is that over the
    # grid points alone.
    reach: Floats
    convex: bool = True

    @property
    def most(self) -> float:
        """U, an upper bound of the minimum."""
        return float(self.high.min())

    @cached_property
    def points(self) -> Floats:
        """(d, p) grid points."""
        return np.array(list(itertools.product(*self.axes)))

    @cached_property
    def slopes(self) -> tuple[Floats, Floats]:
        """(d, p) bounds s^- and s^+ on the subgradients at the grid points."""
        shape = [len(axis) for axis in self.axes]
        low, high = self.low.reshape(shape), self.high.reshape(shape)
        sides = []
        for j, axis in enumerate(self.axes):
            least, most = np.full(shape, -self.reach[j]), np.full(shape, self.reach[j])
            if self.convex:
                own, other = np.moveaxis(low, j, -1), np.moveaxis(high, j, -1)
                below, above = np.moveaxis(least, j, -1), np.moveaxis(most, j, -1)
                for m in range(1, len(axis)):
                    width = axis[m:] - axis[:-m]
                    rise = (other[..., m:] - own[..., :-m]) / width
                    np.minimum(above[..., :-m], rise, out=above[..., :-m])
                    fall = (own[..., m:] - other[..., :-m]) / width
                    np.maximum(below[..., m:], fall, out=below[..., m:])
            sides.append((least.ravel(), most.ravel()))
        least, most = (np.stack(side, axis=1) for side in zip(*sides, strict=True))
        return np.maximum(least, -_UNKNOWN), np.minimum(most, _UNKNOWN)

    @property
    def finite(self) -> bool:
        """Whether the box is only its grid points: nothing is known between them."""
        return not self.convex and bool(np.any(np.isinf(self.reach)))

    def lower(self, first: Floats, last: Floats) -> Floats:
        """Lower bounds (m,) of the function on boxes with corners `first` <= `last`, (m, p)."""
        least, most = self.slopes
        bounds = np.empty(len(first))
        size = max(1, _ENTRIES // len(self.low))
        for start in range(0, len(first), size):
            piece = slice(start, start + size)
            total = np.broadcast_to(self.low, (len(first[piece]), len(self.low))).copy()
            for j in range(len(self.axes)):
                ends = [
                    _product(least[:, j], most[:, j], end[piece, j, None] - self.points[:, j])
                    for end in (first, last)
                ]
                inside = (first[piece, j, None] <= self.points[:, j]) & (
                    self.points[:, j] <= last[piece, j, None]
                )
                total += np.where(inside, np.minimum(np.minimum(*ends), 0), np.minimum(*ends))
            bounds[piece] = total.max(axis=1)
        return bounds

    def possible(self, points: Floats) -> NDArray[np.bool_]:
        """Whether each of m points (m, p) of the box can be a minimiser, (m,)."""
        ends = np.array([(axis[0], axis[-1]) for axis in self.axes])
        inside = np.all((points >= ends[:, 0]) & (points <= ends[:, 1]), axis=1)
        if self.finite:
            pairs = zip(points.T, self.axes, strict=True)
            inside = np.all([np.isin(own, axis) for own, axis in pairs], axis=0)
        return np.asarray(inside & (self.lower(points, points) <= self.most))

    @cached_property
    def boxes(self) -> tuple[Floats, Floats]:
        """First and last corners (m, p) of one box or more that hold all minimisers."""
        if self.finite:
            low_enough = self.points[self.low <= max(self.most, float(self.low.min()))]
            return low_enough, low_enough
        cells = list(itertools.product(*(range(len(axis) - 1) for axis in self.axes)))
        place = np.array(cells)
        first = np.stack([axis[place[:, j]] for j, axis in enumerate(self.axes)], axis=1)
        last = np.stack([axis[place[:, j] + 1] for j, axis in enumerate(self.axes)], axis=1)
        for round_ in range(_ROUNDS + 1):
            lower = self.lower(first, last)
            kept = lower <= max(self.most, float(lower.min()))  # one at least
            first, last = first[kept], last[kept]
            if round_ == _ROUNDS or len(first) * 2 ** len(self.axes) > _MOST_BOXES:
                break
            middle = (first + last) / 2
            halves = list(itertools.product((False, True), repeat=len(self.axes)))
            first, last = (
                np.concatenate([np.where(upper, *ends) for upper in halves])
                for ends in ((middle, first), (last, middle))
            )
        return first, last

    @property
    def hull(self) -> Floats:
        """(p, 2) least and largest value of every coordinate over the boxes."""
        first, last = self.boxes
        return np.stack([first.min(axis=0), last.max(axis=0)], axis=1)


def _product(least: Floats, most: Floats, distance: Floats) -> Floats:
    """Least of s t over s in [least, most], at t = distance (m, d)."""
    return np.where(distance > 0, least * distance, most * distance)


def quadratic_minimiser(axes: Sequence[Floats], values: Floats, used: NDArray[np.bool_]) -> Floats:
    """Minimum (p,) of a quadratic fitted to values (d,) at the used grid points and the 3^p least.

    The grid point with the least value where the fit has no minimum among these points.
    """
    shape = [len(axis) for axis in axes]
    best = np.unravel_index(int(np.argmin(values)), shape)
    near = np.zeros(shape, dtype=np.bool_)
    first = [min(max(int(i) - 1, 0), k - 3) for i, k in zip(best, shape, strict=True)]
    near[tuple(slice(i, i + 3) for i in first)] = True
    used = used | near.ravel()
    points = np.array(list(itertools.product(*axes)))[used]
    p = points.shape[1]
    origin = np.array([axis[i] for axis, i in zip(axes, best, strict=True)])
    steps = np.array([axis[1] - axis[0] for axis in axes])
    z = (points - origin) / steps
    i, j = np.triu_indices(p)
    terms = np.column_stack([np.ones(len(z)), z, z[:, i] * z[:, j]])
    fitted = np.linalg.lstsq(terms, values[used], rcond=None)[0]
    hessian = np.zeros((p, p))
    hessian[i, j] += fitted[1 + p :]
    hessian += hessian.T
    if np.linalg.eigvalsh(hessian).min() <= 1e-9 * np.abs(hessian).max():
        return origin
    least = np.linalg.solve(hessian, -fitted[1 : 1 + p])
    if np.any(least < z.min(axis=0)) or np.any(least > z.max(axis=0)):
        return origin
    return np.asarray(origin + steps * least)
