"""Risks p1 and p2 in two groups of unknown size: difference, ratio and odds ratio.

Given the sizes, each group's counts give an exactly uniform tail at its true risk, and the two are
independent. Their normal scores, combined with weights that depend on the hypothesis alone, make
an exact test of every pair (p1, p2); the interval is the range of a measure over the pairs that are
not rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative
from dpstats.inference.counts.group_counts import GroupCounts
from dpstats.inference.counts.risk_measures import (
    MEASURES,
    Measure,
    first_risk,
    measure_of,
    second_risk,
)
from dpstats.spending import LEAST_OF_RISKS, USUAL_ALPHA, for_far_risks, for_group_size

_NODES, _DENSE = 24, 401
_LARGEST_SCORE = 7.0


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

    def within(self, radius: float) -> _Evidence:
        """Those risks at which both scores are at most a radius."""
        kept = self.distance <= radius
        small, large = self.sd_small[kept], self.sd_large[kept]
        scores = self.above[kept], self.below[kept]
        return _Evidence(self.risks[kept], *scores, small, large, self.step)


def measure_interval(
    first: GroupCounts, second: GroupCounts, n: int | None, alpha: float
) -> tuple[Floats, Floats] | None:
    """Intervals for p1 - p2, p1/p2 and the odds ratio, each at level 1 - alpha.

    A pair of risks is rejected if the combined score, in either direction, exceeds the normal
    quantile at (1 - c) alpha/2; or if the pair is outside a disc of scores of error alpha/25;
    or if no sizes in their confidence sets (error alpha/50 each) explain it. With the true sizes
    the scores are independent standard normal variables, so the true pair is rejected with
    probability at most alpha, whatever the weights. The weights are those of the delta method at
    the hypothesis, so that near the estimate the score depends on the measure alone.

    Parameters
    ----------
    first, second : GroupCounts
        With independent noise.
    n : int or None
        Public number of rows; None if it is not public.
    alpha : float
        Error probability, in (0, 1/2].

    Returns
    -------
    low, high : (3,) float64, or None if every pair is rejected
        In [-1, 1] and twice in [0, inf], rounded outwards by one step of the grid (about 2% of a
        standard error).

    References
    ----------
    Berger, R. L. and Boos, D. D. (1994). P values maximized over a confidence set for the
    nuisance parameter. J. Amer. Statist. Assoc. 89, 1012-1016.
    Liptak, T. (1958). On the combination of independent tests. Magyar Tud. Akad. Mat. Kutato Int.
    Kozl. 3, 171-197.
    """
    from scipy import special

    beta, gamma = for_group_size(alpha), for_far_risks(alpha)
    radius = float(np.sqrt(special.chdtri(2, gamma)))
    critical = float(-special.ndtri((alpha - 2 * beta - gamma) / 2))
    one, two = (_evidence(group, n, beta, radius) for group in (first, second))
    one, two = one.within(radius), two.within(radius)
    near = one.distance[:, None] ** 2 + two.distance**2 <= radius**2
    ends = []
    for measure in MEASURES:
        kept = near.copy()
        kept &= _combined(one, two, measure, "larger") <= critical
        kept &= _combined(one, two, measure, "smaller") <= critical
        i, j = np.nonzero(kept)
        if not i.size:
            return None
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


def measure_pvalue(
    first: GroupCounts,
    second: GroupCounts,
    n: int | None,
    measure: Measure,
    value: float,
    alternative: Alternative,
) -> float:
    """P-value that the measure equals `value`; the largest over the pairs of risks in the null.

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
    float, from 0.004 (the error of the sets of sizes and pairs, fixed before looking) to 1
        Below 0.05 exactly where the interval at alpha = 0.05 excludes `value`, to the rounding of
        its ends.
    """
    from scipy import special

    beta, gamma = for_group_size(USUAL_ALPHA), for_far_risks(USUAL_ALPHA)
    radius = float(np.sqrt(special.chdtri(2, gamma)))
    one, two = (_evidence(group, n, beta, radius) for group in (first, second))
    largest = 0.0
    # The curve of pairs, by points of the first risk and by points of the second.
    of_two, of_one = second_risk(one.risks, value, measure), first_risk(two.risks, value, measure)
    for one_at, two_at in ((one, _at(two, of_two)), (_at(one, of_one), two)):
        scores = [_paired(one_at, two_at, measure, side) for side in ("larger", "smaller")]
        near = one_at.distance**2 + two_at.distance**2 <= radius**2
        tails = special.ndtr(-np.stack(scores))
        pvalues = {"larger": tails[0], "smaller": tails[1], "two-sided": 2 * tails.min(axis=0)}
        largest = max(largest, float(np.max(pvalues[alternative][near], initial=0.0)))
    if alternative != "two-sided":  # the null holds all pairs on the other side of the value too
        with_value = measure_of(one.risks[:, None], two.risks, measure)
        null = with_value <= value if alternative == "larger" else ~(with_value <= value)
        null &= one.distance[:, None] ** 2 + two.distance**2 <= radius**2
        tail = special.ndtr(-_combined(one, two, measure, alternative))
        largest = max(largest, float(np.max(tail[null], initial=0.0)))
    return min(1.0, largest + LEAST_OF_RISKS)


def _evidence(group: GroupCounts, n: int | None, beta: float, radius: float) -> _Evidence:
    """Scores on a dense grid that covers all risks with a score below `radius`."""
    from scipy import interpolate, special

    sizes = group.sizes(n, beta)

    def scores(risks: Floats) -> Floats:  # (2, m): above, below
        lower, upper = group.tails(risks, sizes)
        tiny = special.ndtr(-_LARGEST_SCORE)
        return np.asarray(-special.ndtri(np.clip([upper, lower], tiny, 1 - tiny)))

    coarse, risk = np.linspace(0, 1, 13), group.risk
    sd = float(
        np.sqrt(sum(group.variances(risk, group.yes + group.no)) + 1 / max(1.0, sizes[-1]) ** 2)
    )
    spread = sd * np.array([0, 1, 2, 3, 4.5, 7, 12])
    coarse = np.unique(np.clip(np.concatenate([coarse, risk - spread, risk + spread]), 0, 1))
    found = scores(coarse)
    inside = np.flatnonzero(found.max(axis=0) < radius)
    if not inside.size:
        inside = np.array([np.argmin(found.max(axis=0))])
    low = coarse[max(inside[0] - 1, 0)]
    high = coarse[min(inside[-1] + 1, len(coarse) - 1)]
    fine = np.setdiff1d(np.linspace(low, high, _NODES), coarse)
    nodes = np.concatenate([coarse, fine])
    values = np.concatenate([found, scores(fine)], axis=1)
    order = np.argsort(nodes)
    curve = interpolate.PchipInterpolator(nodes[order], values[:, order], axis=1)
    dense = np.linspace(low, high, _DENSE)
    above, below = curve(dense)
    sd_small, sd_large = (
        np.sqrt(sum(group.variances(dense, float(size)))) for size in (sizes[-1], sizes[0])
    )
    return _Evidence(dense, above, below, sd_small, sd_large, float(dense[1] - dense[0]))


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


def _combined(one: _Evidence, two: _Evidence, measure: Measure, side: str) -> Floats:
    """Scores (m1, m2) of all pairs."""
    above, below, small, large = (
        np.reshape(row, (-1, 1)) for row in (one.above, one.below, one.sd_small, one.sd_large)
    )
    column = _Evidence(one.risks[:, np.newaxis], above, below, small, large, one.step)
    return _paired(column, two, measure, side)


def _paired(one: _Evidence, two: _Evidence, measure: Measure, side: str) -> Floats:
    """Weighted score that the measure is larger (smaller), the least over sizes in their sets.

    Weights are (cos a, sin a), 0 <= a <= pi/2. Where the score is positive at both ends of a
    range of angles it is concave in between, so its least value is at an end.
    """
    first, second = (one.above, two.below) if side == "larger" else (one.below, two.above)
    p, q = one.risks, two.risks
    if measure == "difference":
        slope_one, slope_two = np.ones_like(p), np.ones_like(q)
    elif measure == "ratio":  # of log p - log q, times p q
        slope_one, slope_two = q, p
    else:
        slope_one, slope_two = q * (1 - q), p * (1 - p)
    least: Floats | None = None
    for sd_one, sd_two in ((one.sd_small, two.sd_large), (one.sd_large, two.sd_small)):
        weight_one, weight_two = slope_one * sd_one + 1e-12, slope_two * sd_two + 1e-12
        score = (weight_one * first + weight_two * second) / np.hypot(weight_one, weight_two)
        least = score if least is None else np.minimum(least, score)
    assert least is not None
    return least
