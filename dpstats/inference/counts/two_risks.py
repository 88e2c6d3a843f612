"""Risks p1 and p2 in two groups: difference, ratio and odds ratio.

Given the sizes, each group's counts give an exactly uniform tail at its true risk, and the two are
independent. Their normal scores, turned by an angle that depends on the hypothesis alone, are the
evidence X on the measure and an independent S, the distance along the pairs with one value of it.
A pair is rejected for a large |X| + S^2 / (2k), inside a parabola; the interval is the range of a
measure over the pairs that are not rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.checks import Alternative
from dpstats.inference.counts.risk_measures import (
    MEASURES,
    Measure,
    first_risk,
    measure_of,
    second_risk,
)
from dpstats.spending import LEAST_COMPUTED, USUAL_ALPHA, for_group_size

_RARE = np.geomspace(0.003, 3, 49)  # rows
_NODES, _DENSE = 24, 401
_LARGEST_SCORE = 7.0
_FARTHEST = 6.9  # distance of scores beyond which a pair is rejected, with an error of 5e-11
# The curvature k of the parabola: a wide one costs nothing where the angle is known; a narrow one
# where it is not, since the sizes are not, or where noise has heavier tails than sampling.
_NARROW, _WIDE = 3.0, 8.0
_KNOWN_SIZES = 0.05  # relative sd of the noise on the sizes, summed, up to which they are known


class Share(Protocol):
    """A risk in one group: `GroupCounts`, or `NoisyRatio` for that of the private table."""

    sampled: ClassVar[bool]  # whether the rows are draws from a population

    @property
    def size_noise(self) -> float:
        """Standard deviation of the noise on the size."""

    @property
    def risk(self) -> float:
        """Estimate."""

    @property
    def observed_size(self) -> float:
        """Noisy size of the group."""

    def sizes(self, n: int | None, beta: float) -> Floats:
        """Increasing sizes that represent a confidence set of error beta."""

    def tails(self, risks: Floats, sizes: Floats) -> tuple[Floats, Floats]:
        """Largest lower and upper tails (m,) at risks (m,), over sizes."""

    def variances(self, risk: Floats | float, size: float) -> tuple[Floats, Floats]:
        """Sampling and privacy variance of the estimate at a risk and a size."""


@dataclass(frozen=True)
class _Evidence:
    """Normal scores on a grid of risks: that the risk is above, or below, each of them.

    Both are the smallest over a confidence set of the size, [least, most]; grid values lie
    between 0 and 1, with distance `step`.
    """

    risks: Floats
    above: Floats
    below: Floats
    sd_small: Floats  # sd of the estimate at the largest and at the smallest size
    sd_large: Floats
    step: float

    @property
    def distance(self) -> Floats:
        return np.maximum(np.maximum(self.above, self.below), 0)

    def within(self, radius: float) -> NDArray[np.bool_]:
        """Where both scores are at most a radius, or nearest to it if they are nowhere."""
        return np.asarray(self.distance <= max(radius, float(self.distance.min())))

    def at(self, kept: NDArray[np.bool_]) -> _Evidence:
        """The same at some of the risks."""
        small, large = self.sd_small[kept], self.sd_large[kept]
        scores = self.above[kept], self.below[kept]
        return _Evidence(self.risks[kept], *scores, small, large, self.step)


def statistic_tail(c: float, curvature: float, *, sides: int) -> float:
    """P(|X| + S^2 / (2 curvature) > c), or without | | for one side; X and S standard normal."""
    from scipy import special

    s, weight = _normal_nodes()
    tail = sides * special.ndtr(s**2 / (2 * curvature) - c)
    return float(weight @ np.minimum(1, tail))


@lru_cache(maxsize=1)
def _normal_nodes() -> tuple[Floats, Floats]:
    """Points and weights of a midpoint rule for the standard normal law."""
    s = (np.arange(4_000) + 0.5) / 400  # to 10 standard deviations
    density = np.exp(-(s**2) / 2)
    return s, density / density.sum()


def _critical(level: float, curvature: float) -> float:
    from scipy import optimize

    def excess(c: float) -> float:
        return statistic_tail(c, curvature, sides=2) - level

    return float(optimize.brentq(excess, 0.0, 20.0, xtol=1e-9)) + 1e-8


def _radius(critical: float, curvature: float) -> float:
    """Largest |(X, S)| at which the statistic is at most critical: at S = 0 or at X = 0."""
    return min(max(critical, float(np.sqrt(2 * curvature * critical))), _FARTHEST)


def _curvatures(first: Share, second: Share, n: int | None, beta: float) -> list[float]:
    """Those of the tests of all pairs of sizes: each pair of sizes has one, by public numbers."""
    if not (first.sampled and second.sampled):
        return [_NARROW]
    sizes, noises = (first.sizes(n, beta), second.sizes(n, beta)), (first, second)

    def relative(i: int) -> float:
        both = zip(noises, sizes, strict=True)
        return sum(group.size_noise / max(float(of[i]), 1e-9) for group, of in both)

    narrow = [_NARROW] if relative(0) > _KNOWN_SIZES else []
    return [*narrow, _WIDE] if relative(-1) <= _KNOWN_SIZES else narrow


def measure_interval(
    first: Share,
    second: Share,
    n: int | None,
    alpha: float,
    measures: Sequence[Measure] = MEASURES,
) -> tuple[Floats, Floats] | None:
    """Intervals for p1 - p2, p1/p2 and the odds ratio, each at level 1 - alpha.

    With the true sizes the scores of the true pair are independent standard normal variables, and
    so are X and S, whatever the angle. The pair is rejected if |X| + S^2 / (2k) exceeds its
    quantile of error (1 - 1/25) alpha for all sizes in confidence sets (error alpha/50 each): with
    probability at most alpha. The angle is that of the delta method at the hypothesis, so that near
    the estimate X depends on the measure alone. The sizes leave a range of angles; S, which a
    straight boundary would ignore, keeps pairs far along the curve from being accepted for it.
    A larger alpha may reject every pair where 0.05 does not, near risks of 0 and 1. The pair that
    0.05 rejects last is then kept, and at every larger alpha: this covers no less often, and
    intervals stay nested. What is used in the place of None may depend on alpha, but whether there
    is an interval does not.

    Parameters
    ----------
    first, second : GroupCounts or NoisyRatio
        With independent noise.
    n : int or None
        Public number of rows; None if it is not public.
    alpha : float
        Error probability, in (0, 1/2].
    measures : sequence of {"difference", "ratio", "odds ratio"}

    Returns
    -------
    low, high : (measures,) float64, or None if every pair is rejected at alpha = 0.05
        In [-1, 1] for the difference, else in [0, inf], rounded outwards by one step of the grid
        (about 2% of a standard error).

    References
    ----------
    Berger, R. L. and Boos, D. D. (1994). P values maximized over a confidence set for the
    nuisance parameter. J. Amer. Statist. Assoc. 89, 1012-1016.
    Liptak, T. (1958). On the combination of independent tests. Magyar Tud. Akad. Mat. Kutato Int.
    Kozl. 3, 171-197.
    """
    shares = (first, second)
    beta, tests, radius = _tests(first, second, n, USUAL_ALPHA)
    groups = [_evidence(group, n, beta, radius) for group in shares]
    near = [group.within(radius) for group in groups]
    one, two = (group.at(kept) for group, kept in zip(groups, near, strict=True))
    nearest = [_least_excess(one, two, measure, tests) for measure in measures]
    if any(best.min() > 0 for best in nearest):
        return None
    if alpha > USUAL_ALPHA:  # on the same grid, so that rounding to it keeps intervals nested
        own, tests, _ = _tests(first, second, n, alpha)
        groups = [_evidence(group, n, own, radius, beta) for group in shares]
        one, two = (group.at(kept) for group, kept in zip(groups, near, strict=True))
    elif alpha < USUAL_ALPHA:
        own, tests, radius = _tests(first, second, n, alpha)
        one, two = (_evidence(group, n, own, radius) for group in shares)
        one, two = one.at(one.within(radius)), two.at(two.within(radius))
        nearest = [_least_excess(one, two, measure, tests) for measure in measures]
    ends = []
    for measure, best in zip(measures, nearest, strict=True):
        kept = _least_excess(one, two, measure, tests) <= 0
        kept |= best == best.min()
        i, j = np.nonzero(kept)
        p_low, p_high = one.risks[i] - one.step, one.risks[i] + one.step
        q_low, q_high = two.risks[j] - two.step, two.risks[j] + two.step
        ends.append(
            (
                measure_of(np.clip(p_low, 0, 1), np.clip(q_high, 0, 1), measure).min(),
                measure_of(np.clip(p_high, 0, 1), np.clip(q_low, 0, 1), measure).max(),
            )
        )
    low, high = np.array(ends, dtype=np.float64).T
    return low, high


def _tests(
    first: Share, second: Share, n: int | None, alpha: float
) -> tuple[float, list[tuple[float, float]], float]:
    """Error of the sets of sizes; curvatures with critical values; radius of the scores kept."""
    beta = for_group_size(alpha)
    tests = [(k, _critical(alpha - 2 * beta, k)) for k in _curvatures(first, second, n, beta)]
    return beta, tests, max(_radius(critical, k) for k, critical in tests)


def _least_excess(
    one: _Evidence, two: _Evidence, measure: Measure, tests: Sequence[tuple[float, float]]
) -> Floats:
    """Statistic minus critical value for all pairs of risks, the least over tests."""
    column = _column(one)
    excess = [_statistic(column, two, measure, "two-sided", k) - c for k, c in tests]
    return np.asarray(np.min(excess, axis=0))


def measure_pvalue(
    first: Share,
    second: Share,
    n: int | None,
    measure: Measure,
    value: float,
    alternative: Alternative,
) -> float:
    """P-value that the measure equals `value`: the least alpha at which its test rejects.

    At alpha the largest tail over pairs in the null, with sizes in sets of error alpha/50 each (at
    most 0.001), must be below the rest of alpha. The sets grow as alpha falls: a test that rejects
    at one alpha rejects at all larger ones, and the least of them is a p-value without a floor.

    Parameters
    ----------
    first, second, n :
        As in `measure_interval`.
    measure : {"difference", "ratio", "odds ratio"}
    value : float
        In [-1, 1] for the difference, else not negative and finite.
    alternative : {"two-sided", "larger", "smaller"}

    Returns
    -------
    float, from 1e-9 to 1
        Below 0.05 exactly where the interval at alpha = 0.05 excludes `value`, to the rounding of
        its ends.
    """
    share = 2 * for_group_size(1.0)

    def tail(alpha: float) -> float:
        beta = for_group_size(alpha)
        return _largest_tail(first, second, n, measure, value, alternative, beta)

    usual = tail(USUAL_ALPHA)
    if usual >= (1 - share) * USUAL_ALPHA:
        return min(1.0, usual + share * USUAL_ALPHA)
    # The sets at USUAL_ALPHA are too small for a smaller alpha: this is a lower bound of the
    # p-value, and the tail over its larger sets, over 1 - share, an upper one, which rejects.
    least = max(usual / (1 - share), LEAST_COMPUTED)
    return min(max(tail(least) / (1 - share), least), USUAL_ALPHA)


def _largest_tail(
    first: Share,
    second: Share,
    n: int | None,
    measure: Measure,
    value: float,
    alternative: Alternative,
    beta: float,
) -> float:
    """Largest tail over the pairs in the null and sizes in sets of error beta."""
    one, two = (_evidence(group, n, beta, _FARTHEST) for group in (first, second))
    # The curve of pairs, by points of the first risk and by points of the second.
    of_two, of_one = second_risk(one.risks, value, measure), first_risk(two.risks, value, measure)
    curve = (one, _at(two, of_two)), (_at(one, of_one), two)
    sides, largest = 2 if alternative == "two-sided" else 1, 0.0
    for k in _curvatures(first, second, n, beta):
        least = min(float(np.min(_statistic(*pair, measure, alternative, k))) for pair in curve)
        if sides == 1:  # the null holds all pairs on the other side of the value too
            with_value = measure_of(one.risks[:, None], two.risks, measure)
            null = with_value <= value if alternative == "larger" else ~(with_value <= value)
            statistic = _statistic(_column(one), two, measure, alternative, k)
            least = min(least, float(np.min(statistic[null], initial=least)))
        largest = max(largest, statistic_tail(least, k, sides=sides))
    return largest


def _evidence(
    group: Share, n: int | None, beta: float, radius: float, placed: float | None = None
) -> _Evidence:
    """Scores on a dense grid that covers all risks with a score below `radius`.

    The grid depends on scores over sizes in sets of error `placed`, by default beta.
    """
    from scipy import interpolate, special

    def scores(risks: Floats, sizes: Floats) -> Floats:  # (2, m): above, below
        lower, upper = group.tails(risks, sizes)
        tiny = special.ndtr(-_LARGEST_SCORE)
        return np.asarray(-special.ndtri(np.clip([upper, lower], tiny, 1 - tiny)))

    sizes = group.sizes(n, beta if placed is None else placed)
    coarse, risk = np.linspace(0, 1, 13), group.risk
    sd = float(
        np.sqrt(sum(group.variances(risk, group.observed_size)) + 1 / max(1.0, sizes[-1]) ** 2)
    )
    spread = sd * np.array([0, 1, 2, 3, 4.5, 7, 12])
    coarse = np.unique(np.clip(np.concatenate([coarse, risk - spread, risk + spread]), 0, 1))
    found = scores(coarse, sizes)
    inside = np.flatnonzero(found.max(axis=0) < radius)
    if not inside.size:
        inside = np.array([np.argmin(found.max(axis=0))])
    low = coarse[max(inside[0] - 1, 0)]
    high = coarse[min(inside[-1] + 1, len(coarse) - 1)]
    # With little noise scores bend below one row, towards risks of zero and one.
    ends = np.concatenate([
        end + sign * _RARE / max(1.0, float(sizes[-1]))
        for end, sign, reached in ((0, 1, low == 0), (1, -1, high == 1)) if reached
    ] or [np.zeros(0)])  # fmt: skip
    ends = ends[(ends > low) & (ends < high)]
    fine = np.setdiff1d(np.concatenate([np.linspace(low, high, _NODES), ends[::4]]), coarse)
    nodes = np.concatenate([coarse, fine])
    if placed is None or placed == beta:
        values = np.concatenate([found, scores(fine, sizes)], axis=1)
    else:
        sizes = group.sizes(n, beta)
        values = scores(nodes, sizes)
    order = np.argsort(nodes)
    curve = interpolate.PchipInterpolator(nodes[order], values[:, order], axis=1)
    dense = np.union1d(np.linspace(low, high, _DENSE), ends)
    above, below = curve(dense)
    sd_small, sd_large = (
        np.sqrt(sum(group.variances(dense, float(size)))) for size in (sizes[-1], sizes[0])
    )
    step = (high - low) / (_DENSE - 1)  # the largest
    return _Evidence(dense, above, below, sd_small, sd_large, step)


def _at(evidence: _Evidence, risks: Floats) -> _Evidence:
    """The same at other risks; those outside the grid are rejected."""
    grid = evidence.risks
    rounding = 1e-12
    outside = ~((risks >= grid[0] - rounding) & (risks <= grid[-1] + rounding))
    risks = np.where(outside, grid[0], np.clip(risks, grid[0], grid[-1]))
    rows = (evidence.above, evidence.below, evidence.sd_small, evidence.sd_large)
    above, below, small, large = (np.interp(risks, grid, row) for row in rows)
    far = 10 * _LARGEST_SCORE
    return _Evidence(
        risks, np.where(outside, far, above), np.where(outside, far, below), small, large, 0.0
    )


def _column(one: _Evidence) -> _Evidence:
    """The same as a column, to meet all risks of the other group."""
    rows = (one.risks, one.above, one.below, one.sd_small, one.sd_large)
    risks, above, below, small, large = (row[:, np.newaxis] for row in rows)
    return _Evidence(risks, above, below, small, large, one.step)


def _statistic(
    one: _Evidence, two: _Evidence, measure: Measure, side: Alternative, curvature: float
) -> Floats:
    """X + S^2 / (2k) for "larger" and "smaller", |X| + S^2 / (2k) else; the least over the sizes.

    With weights (cos a, sin a), X = z1 cos a - z2 sin a and S = z1 sin a + z2 cos a, and the scores
    are known up to intervals. As a function of the angle the statistic falls on either side of
    S = 0 while X is below k, and is at least |(z1, z2)| from there on: its least value over a range
    of angles is at an end, or is at least that (one-sided: where it is positive, so for tails below
    one half). Where X changes its sign in between, |X| has its least value there, and S is all of
    |(z1, z2)|.
    """
    p, q = one.risks, two.risks
    if measure == "difference":
        slope_one, slope_two = np.ones_like(p), np.ones_like(q)
    elif measure == "ratio":  # of log p - log q, times p q
        slope_one, slope_two = q, p
    else:
        slope_one, slope_two = q * (1 - q), p * (1 - p)
    least = distance = np.hypot(one.distance, two.distance)
    of_one_sign = [np.ones(least.shape, dtype=bool) for _ in range(2)]
    for sd_one, sd_two in ((one.sd_small, two.sd_large), (one.sd_large, two.sd_small)):
        weight_one, weight_two = slope_one * sd_one + 1e-12, slope_two * sd_two + 1e-12
        length = np.hypot(weight_one, weight_two)
        cos, sin = weight_one / length, weight_two / length
        larger = cos * one.above + sin * two.below
        smaller = cos * one.below + sin * two.above
        along = np.maximum(sin * one.above + cos * two.above, sin * one.below + cos * two.below)
        either = np.maximum(np.maximum(larger, smaller), 0)
        of_one_sign = [of_one_sign[0] & (larger > 0), of_one_sign[1] & (smaller > 0)]
        of_side = {"larger": larger, "smaller": smaller, "two-sided": either}
        bound = of_side[side] + np.maximum(along, 0) ** 2 / (2 * curvature)
        least = np.minimum(least, bound)
    if side == "two-sided":
        crosses = ~(of_one_sign[0] | of_one_sign[1])
        least = np.where(crosses, np.minimum(least, distance**2 / (2 * curvature)), least)
    return np.where(distance > _FARTHEST, np.inf, least)
