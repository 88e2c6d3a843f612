"""Prevalence within a group of unknown size, p = P(A | G), from two noisy counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.arrays import Floats
from dpstats.checks import (
    Alternative,
    check_alpha,
    check_alternative,
    check_count,
    check_finite,
    check_proportion,
    check_target,
)
from dpstats.corrected.proportions import clopper_pearson
from dpstats.corrected.roots import find_roots
from dpstats.inference.counts.group_counts import GroupCounts
from dpstats.spending import LEAST_OF_COUNT, bonferroni, for_group_size, for_noise, split_for

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw


def conditional_pvalue(
    group: GroupCounts,
    p0: float,
    alternative: Alternative = "two-sided",
    *,
    n: int | None = None,
    beta: float = LEAST_OF_COUNT,
) -> float:
    """P-value of P(A | G) = p0 with an unknown group size.

    Given N the law of D = (1-p0) yes - p0 no (plus a uniform) is known, so for the true N the
    p-value is uniform. N is in a confidence set with probability 1 - beta, so the supremum over
    the set, plus beta, is a valid p-value (Bonferroni, although both use the same counts). In a
    large set the supremum is over 17 sizes, see `GroupCounts.sizes`.

    Parameters
    ----------
    group : GroupCounts
        Rows of G in A and not in A. p0 <= 1/2 uses u_yes and p0 > 1/2 uses u_no.
    p0 : float
        Hypothesised prevalence, in [0, 1].
    alternative : {"two-sided", "larger", "smaller"}
        "larger" is for the alternative that the prevalence is above `p0`.
    n : int, optional
        Public total number of rows; the group cannot be larger.
    beta : float
        Error of the confidence set for N, fixed before looking; no p-value is below it.

    Returns
    -------
    float, with an absolute error of about 2e-4, and 3e-5 below 0.05

    Raises
    ------
    RequestError
        If `p0`, `alternative`, `n` or `beta` is out of range, or a count is not finite.

    References
    ----------
    Berger, R. L. and Boos, D. D. (1994). P values maximized over a confidence set for the
    nuisance parameter. J. Amer. Statist. Assoc. 89, 1012-1016.
    """
    p0, alternative, beta = check_proportion(p0), check_alternative(alternative), check_alpha(beta)
    return float(_pvalues(group, _sizes(group, n, beta), np.array([p0]), alternative, beta)[0])


def conditional_interval(
    group: GroupCounts, alpha: float = 0.05, *, n: int | None = None
) -> tuple[float, float]:
    """Confidence interval for P(A | G): all values that the two-sided test does not reject.

    Every value p0 has its own valid test (`conditional_pvalue` with beta = alpha/50), so the set
    of those not rejected covers with probability at least 1 - alpha (to the numerical accuracy
    of the p-values), and so does its hull. The hull is found on a grid around the estimate and
    over [0, 1], its ends then refined. If noise exceeds the group's size this is [0, 1]. It is
    [0, 1] as well, at every level, if the noisy group is empty and no p-value reaches 1/2, which
    can only cover more. Otherwise it holds the estimate yes/(yes + no) in [0, 1].

    Parameters
    ----------
    group, n :
        As in `conditional_pvalue`.
    alpha : float
        Error probability, in (0, 1/2].

    Returns
    -------
    low, high : float, in [0, 1]

    Raises
    ------
    RequestError
        If `alpha` or `n` is out of range, or a count is not finite.
    """
    alpha = check_alpha(alpha)
    beta = for_group_size(alpha)
    sizes = _sizes(group, n, beta)

    def excess(p: Floats, _: NDArray[np.intp]) -> Floats:
        return _pvalues(group, sizes, p, "two-sided", beta) - alpha

    grid = np.linspace(0, 1, 21)
    size, share = group.yes + group.no, group.risk
    if size > 0:
        noise = (1 - share) ** 2 * group.law_yes.variance + share**2 * group.law_no.variance + 1
        sd = np.sqrt(share * (1 - share) / size + noise / size**2)
        near = sd * np.array([0, 1, 1.5, 2, 2.5, 3, 4, 6, 10])
        grid = np.unique(np.clip(np.concatenate([grid, share - near, share + near]), 0, 1))
    value = excess(grid, np.arange(grid.size))
    kept = np.flatnonzero(value > 0)
    empty = size <= 0 and np.max(value) + alpha < 1 / 2  # at all levels, to be nested
    if empty or not kept.size:
        return 0.0, 1.0
    inner = grid[[kept[0], kept[-1]]]
    outer = grid[[max(kept[0] - 1, 0), min(kept[-1] + 1, grid.size - 1)]]
    tolerance = 1e-6 * float(np.max(np.abs(outer - inner)) + 1e-12)
    ends = find_roots(excess, outer, inner, tolerance=tolerance)
    # where the grid ends inside the set, so does the interval
    ends = np.where(outer == inner, inner, ends)
    return float(ends[0]), float(ends[1])


def _sizes(group: GroupCounts, n: int | None, beta: float) -> Floats:
    check_finite("counts and uniforms", [group.yes, group.no, group.u_yes, group.u_no])
    return group.sizes(None if n is None else check_count(n), beta)


def _pvalues(
    group: GroupCounts, sizes: Floats, risks: Floats, alternative: Alternative, beta: float
) -> Floats:
    lower, upper = group.tails(risks, sizes)
    tail = {"smaller": lower, "larger": upper, "two-sided": 2 * np.minimum(lower, upper)}
    return np.asarray(np.minimum(1.0, tail[alternative] + beta))


def conditional_certified(
    yes: ArrayLike,
    no: ArrayLike,
    law_yes: NoiseLaw,
    law_no: NoiseLaw,
    alpha: float = 0.05,
    *,
    n: int | None = None,
    target: Literal["population", "table"] = "population",
) -> tuple[Floats, Floats]:
    """Certified interval for the prevalence within a group, from a box for the two counts.

    Both counts are within their quantiles at beta/2 with probability 1 - beta, also where they
    share noise (Bonferroni). On that event the Clopper-Pearson interval of the true counts, valid
    at alpha - beta given any N, is inside the union over the box, whose ends are at two corners.
    For the table's own share there is no sampling: the extremes of x/(x+c) over the box at
    beta = alpha.

    Parameters
    ----------
    yes, no : array_like, broadcast together
        Noisy counts of rows in A and G, and in G but not in A (no uniforms needed).
    law_yes, law_no : NoiseLaw
        Laws of the two noises, in counts.
    alpha : float
        Error probability, in (0, 1/2].
    n : int, optional
        Public number of rows: bounds the counts, and sets beta as `certificate_split` does for
        a group of a quarter of the rows. Without it beta is alpha/2.
    target : {"population", "table"}
        The population's prevalence, or the share among the private rows (any value in [0, 1] if
        there are none).

    Returns
    -------
    low, high : float64 arrays of the broadcast shape, in [0, 1]

    Raises
    ------
    RequestError
        If `alpha`, `n` or `target` is out of range, or a count is not finite.
    """
    alpha = check_alpha(alpha)
    check_target(target)
    if target == "table":
        beta = alpha
    elif n is None:
        beta = for_noise(alpha, certain=law_yes.certain and law_no.certain)
    else:
        wider = law_yes if law_yes.variance >= law_no.variance else law_no
        beta = split_for(check_count(n) / 4, wider, alpha)
    most = np.inf if n is None else check_count(n)
    each = bonferroni(beta, 2)
    yes, no = np.broadcast_arrays(  # not below 0, so that no box ends at 0 by its noise
        np.maximum(check_finite("yes", yes), 0), np.maximum(check_finite("no", no), 0)
    )
    q_yes, q_no = law_yes.quantile(each), law_no.quantile(each)
    least_yes, least_no = np.clip(yes - q_yes, 0, most), np.clip(no - q_no, 0, most)
    most_yes = np.maximum(least_yes, np.minimum(yes + q_yes, most - least_no))
    most_no = np.maximum(least_no, np.minimum(no + q_no, most - least_yes))
    if target == "population":
        return clopper_pearson(least_yes, most_yes, most_no, least_no, alpha - beta)
    low = least_yes / np.maximum(least_yes + most_no, 1)
    high = np.where(least_no > 0, most_yes / np.maximum(most_yes + least_no, 1), 1.0)
    return low, high
