"""Intervals for a proportion from a centre, a radius that holds with 1 - beta, and n."""

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_counts, check_finite, check_numbers
from dpstats.error_rates import check_beta
from dpstats.errors import RequestError

_ROUNDING = 1e-9  # relative; n (p - r) may miss an integer by rounding, which must not shorten
_FAR = 20  # radii beyond which a share is taken for a count or a percentage


def proportion_confint(
    p: ArrayLike,
    radius: ArrayLike,
    n: ArrayLike | tuple[int, int],
    *,
    alpha: float = 0.05,
    beta: float | None = None,
) -> tuple[Floats, Floats]:
    """Confidence interval for a population proportion known only to within a radius.

    With probability 1 - beta the private count X lies in the box n (p +- radius). The
    Clopper-Pearson limits increase in X, so on that event they lie outside those at the
    lowest and highest integers of the box, which cover with probability 1 - (alpha - beta).
    Together the error is at most alpha, whatever the sample size. With n between bounds the
    count is at least n_low (p - radius), and the limits decrease in n at a given count: the lower
    one is that of the least count in n_high rows, and the upper that of the most in n_low (eq.
    count-of-share of docs/explanation/synthetic-rows/certificate.md).

    Parameters
    ----------
    p : array_like
        Centre: the share in the synthetic rows, or a noisy answer. May be outside [0, 1], by 20
        radii (or rows) at most.
    radius : array_like
        ``|p - share in the private rows| <= radius`` with probability at least 1 - beta; not
        negative. For synthetic rows it is that of the analysis at alpha = beta:
        ``release.radius("name", alpha=beta).max``.
    n : array_like, or (int, int)
        Number of private rows (not of synthetic ones), an integer of at least 1. A tuple
        (low, high), not a list, bounds it, on the event of the radius, where it is not public
        (neighbours add or remove a row): ``release.radius("name", alpha=beta).n``.
    alpha : float
        Total error probability, in (0, 1/2].
    beta : float, optional
        The probability that the radius fails, a share of `alpha`, in [0, alpha). Default: half of
        it, so a 95% interval needs the radius that holds with probability 97.5%. With a radius that
        holds with 95% the total error would be up to 7.5%; give such a radius beta=0.05 and a
        larger alpha.

    Returns
    -------
    low, high : float64 arrays of the broadcast shape, in [0, 1]
        If the box misses [0, 1] the count is taken at the nearer end, 0 or n.

    Raises
    ------
    RequestError
        If an argument is out of its range.

    References
    ----------
    Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits
    illustrated in the case of the binomial. Biometrika 26, 404-413.

    Examples
    --------
    >>> import dpstats as dps
    >>> low, high = dps.corrected.proportion_confint(0.3, 0.01, 1000)
    >>> print(f"{low:.4f} {high:.4f}")
    0.2582 0.3439
    """
    alpha = check_alpha(alpha)
    beta = check_beta(alpha, beta)
    if isinstance(n, list):
        raise RequestError(
            "n is a list, which may be bounds or several numbers: give bounds as a tuple "
            "(low, high), and several numbers as an array"
        )
    ends = check_counts(n) if isinstance(n, tuple) else (n, n)
    few, many = (check_finite("n", end) for end in ends)
    p, n = check_finite("p", p), few
    radius = check_numbers("radius", radius)
    try:
        np.broadcast_shapes(p.shape, radius.shape, n.shape)
    except ValueError:
        raise RequestError(
            f"p, radius and n have shapes {p.shape}, {radius.shape} and {n.shape}, which do not fit"
        ) from None
    if not np.all(radius >= 0):
        raise RequestError("radius must not be negative or missing; give half the box's width")
    if not np.all((n >= 1) & (n == np.floor(n))):
        raise RequestError("n must be the number of private rows, an integer of at least 1")
    # A radius that fails with probability 1/2 fails by that much with 10^-6.
    far = _ROUNDING + _FAR * np.maximum(radius, 1 / few)
    if not np.all((p >= -far) & (p <= 1 + far)):
        raise RequestError(
            f"p is outside 0 to 1, where shares are, by more than {_FAR} radii; divide counts by n"
        )
    slack = _ROUNDING * (1 + many * (np.abs(p) + radius))
    lowest = np.clip(np.ceil(few * (p - radius) - slack), 0, few)
    highest = np.clip(np.floor(many * (p + radius) + slack), 0, many)
    least_no = np.maximum(few - highest, 0)
    return clopper_pearson(lowest, highest, many - lowest, least_no, alpha - beta)


def clopper_pearson(
    low_yes: Floats, high_yes: Floats, high_no: Floats, low_no: Floats, alpha: float
) -> tuple[Floats, Floats]:
    """Union of the Clopper-Pearson intervals over a box of counts of yes and no.

    The limits increase in the count of yes and decrease in that of no, so the union reaches
    from the lower limit at (low_yes, high_no) to the upper limit at (high_yes, low_no).

    Parameters
    ----------
    low_yes, high_yes, high_no, low_no : (...) float64
        Integers, not negative.
    alpha : float
        Error probability.

    Returns
    -------
    low, high : (...) float64, in [0, 1]

    Examples
    --------
    Between 28 and 32 of 100 rows say yes:

    >>> import numpy as np
    >>> import dpstats as dps
    >>> low, high = dps.corrected.clopper_pearson(*np.array([28.0, 32.0, 72.0, 68.0]), alpha=0.05)
    >>> print(low.round(3), high.round(3))
    0.195 0.421
    """
    from scipy import special

    # max(., 1): where a count is 0 the limit is 0 or 1, and the Beta law has no such parameter
    low = special.betaincinv(np.maximum(low_yes, 1), high_no + 1, alpha / 2)
    high = special.betaincinv(high_yes + 1, np.maximum(low_no, 1), 1 - alpha / 2)
    return (
        np.asarray(np.where(low_yes > 0, low, 0.0), dtype=np.float64),
        np.asarray(np.where(low_no > 0, high, 1.0), dtype=np.float64),
    )
