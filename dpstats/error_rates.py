"""Rules for dividing an error probability, and the floors of p-values.

The rules depend on public numbers alone and are fixed before an answer is seen. Bonferroni's
inequality then gives each statement its level, under any dependence. Where the number of rows is
not public, some depend on its noisy value: given that value the parts still add up to alpha,
exactly where its noise is independent of that of the answers, and to second order where both come
from the cells of one table. The two tails alpha / 2 of an equal-tailed interval are not divided
here, since both are tails of one law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Protocol, TypeVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_numbers
from dpstats.errors import RequestError

USUAL_BETA = 0.025  # error of a published radius: half of that of a 95% interval
USUAL_ALPHA = 0.05  # p-values spend what an interval at this level does, so the two agree there

# Shares of alpha for nuisance parameters. A quantile grows with the logarithm of one over the
# error: a small share costs the rest of alpha little, and widens the confidence set little.
R = TypeVar("R", float, Floats, float | Floats)

_ROW_COUNT = 25  # one over the share for the number of rows
_GROUP_SIZE = 50  # for the size of one group: two groups cost what the number of rows does
_OTHER_EIGENVALUES = 0.1  # for the other eigenvalues: only their gaps matter
_VARIANCES = 0.2  # for lower bounds of variances: a correlation divides by them

# Shares of beta, the error for the noise, for terms of second order in a covariance.
_COVARIANCE_COUNT = 10  # one over the share for a measured number of rows
_COVARIANCE_MEANS = 0.1  # for the length of the noise on the means
_COVARIANCE_REST = 0.9, 0.8  # what remains for the main term: n public, or measured

# Shares of alpha for the noise; the sampling error takes the rest.
_NOISE_OF_MEANS = 3  # one over the share; bounds on sampling error are wider than those on noise
_BAND_SPLITS = 24  # steps of the search for the narrowest band; its width is flat near the minimum
_FIT_SHARES = (0.02, 0.1, 0.25, 0.5, 0.75)  # tried in turn; here too the minimum is flat

_PROGRAM = 0.6, 0.6, 0.3, 0.1  # what bounds a question by itself, sums, its merged levels, all

# The least error that a noise-aware interval is computed for, of each parameter: probabilities are
# computed to 1e-12, and an error near that would leave no limit.
LEAST_COMPUTED = 1e-9

# Floors of p-values.
LEAST_OF_DRAWS = 1 / 5_000  # of a simulated law: one over the number of draws
LEAST_OF_COUNT = USUAL_ALPHA / _GROUP_SIZE  # where a number of rows is not public


def bonferroni(alpha: float, count: int) -> float:
    """The error of each of `count` statements that hold jointly with probability 1 - alpha."""
    return alpha / count


def holm(pvalues: Floats) -> Floats:
    """P-values (d,) adjusted by Holm's method, which controls the family-wise error rate.

    The smallest of d is multiplied by d, the next by d - 1, and so on, in the order of the first.
    """
    order = np.argsort(pvalues, kind="stable")
    found = np.empty_like(pvalues)
    found[order] = np.maximum.accumulate(pvalues[order] * np.arange(len(pvalues), 0, -1))
    return np.minimum(found, 1.0)


def benjamini_hochberg(pvalues: Floats) -> Floats:
    """P-values (d,) adjusted by Benjamini and Hochberg's method.

    Of those at most alpha, a share of at most alpha is false in the mean.
    """
    from scipy import stats

    return np.asarray(stats.false_discovery_control(pvalues, method="bh"))


def percent(alpha: float) -> str:
    """The level 1 - alpha for a reader, with as many digits as it needs to differ from 100%.

    Examples
    --------
    >>> percent(0.05), percent(0.025), percent(1e-9)
    ('95%', '97.5%', '99.9999999%')
    """
    places = 2 - math.floor(math.log10(alpha)) if alpha > 0 else 0
    level = round(100 * (1 - Decimal(repr(float(alpha)))), min(max(places, 4), 20))
    return f"{level.normalize():f}%"


def for_noise(alpha: float, *, bound_only: bool = False) -> float:
    """Half for the noise, where it is not known whether noise or sampling is the larger error.

    Nothing for noise within bounds whose error is counted elsewhere (`bound_only`).
    """
    return 0.0 if bound_only else alpha / 2


def for_noise_of_means(alpha: float, *, bound_only: bool = False) -> float:
    """A third, for means and correlations of bounded numbers; nothing for `bound_only` bounds."""
    return 0.0 if bound_only else alpha / _NOISE_OF_MEANS


def for_row_count(alpha: float) -> float:
    """Share for a number of rows that is not public."""
    return alpha / _ROW_COUNT


def for_group_size(alpha: float) -> float:
    """Share for the size of each group."""
    return alpha / _GROUP_SIZE


def for_empty_levels(alpha: float) -> float:
    """Share for declared levels without rows that noise makes large enough to be used."""
    return min(for_group_size(alpha), LEAST_OF_COUNT)


def alpha_of_empty_levels(beta: float) -> float:
    """Least alpha whose share for empty levels is `beta`, at most .001."""
    return beta * _GROUP_SIZE


def plus_empty_levels(pvalue: float, most: float) -> float:
    """Least alpha at which a p-value is at most alpha less its share for empty levels.

    Their error is never above `most`, whatever the share.
    """
    return min(pvalue + min(pvalue / (_GROUP_SIZE - 1), LEAST_OF_COUNT, most), 1.0)


def for_other_eigenvalues(alpha: float) -> tuple[float, float]:
    """Shares for bounds on the other eigenvalues, and for the eigenvalue itself."""
    return _OTHER_EIGENVALUES * alpha, alpha * (1 - _OTHER_EIGENVALUES)


def for_variances(alpha: R) -> R:
    """Share for bounds on variances: those of a correlation matrix, or of survey estimates."""
    return alpha * _VARIANCES


def for_covariance_count(beta: float) -> float:
    """Share of the noise on a covariance matrix for a measured number of rows."""
    return beta / _COVARIANCE_COUNT


def for_covariance_noise(beta: float, *, public: bool) -> tuple[float, float]:
    """Shares for the norm of that noise, and for the length of the noise on the means.

    Where the number of rows is not `public`, `for_covariance_count` takes the rest.
    """
    known, measured = _COVARIANCE_REST
    return (known if public else measured) * beta, _COVARIANCE_MEANS * beta


def splits_of_band(alpha: float) -> Floats:
    """Errors (23,) for the noise; a certified band takes the best of them."""
    return np.asarray(alpha * np.arange(1, _BAND_SPLITS) / _BAND_SPLITS)


def splits_of_fit(alpha: float, *, bound_only: bool = False) -> list[float]:
    """Errors for the noise; a certified test of fit takes the best of them."""
    return [0.0] if bound_only else [alpha * share for share in _FIT_SHARES]


def for_program(alpha: float, present: Sequence[bool]) -> list[float]:
    """Shares for the four kinds of functions in a program of `bounds.consistent`, if present."""
    used = [share if there else 0.0 for share, there in zip(_PROGRAM, present, strict=True)]
    return [alpha * share / max(sum(used), _PROGRAM[-1]) for share in used]


def smaller_errors(beta: float) -> list[float]:
    """Errors to try where the event that has error beta is seen to have failed."""
    return [beta * share for share in (1e-2, 1e-4, 1e-8)]


def check_beta(alpha: float, beta: float | None) -> float:
    """Return the share of alpha that a radius uses, half of alpha if none is given."""
    beta = for_noise(alpha) if beta is None else float(check_numbers("beta", beta, ()))
    if not 0 <= beta < alpha:
        raise RequestError(
            f"beta={beta:g} must be at least 0 and below alpha={alpha:g}: it is the probability "
            "that the radius fails, a share of alpha. Publish a radius with a smaller one, as "
            f"release.radius(name, alpha={for_noise(alpha):g}) has, or ask for a larger alpha"
        )
    return beta


def of_simulation(at_least: int | Floats, draws: int) -> Floats:
    """P-values by rank: exact if the observed statistic is exchangeable with the drawn ones.

    At least 1 / (draws + 1).

    Parameters
    ----------
    at_least : int or array
        How many of the drawn statistics are at least the observed one.
    draws : int
    """
    return np.asarray((1 + np.asarray(at_least)) / (1 + draws), dtype=np.float64)


def least_of_noise(noise: float, total: float, draws: int) -> float:
    """Floor of a p-value with simulated noise and a sampling part in closed form.

    Beyond the draws only the noise's share of the variance is known, not its tail.
    """
    return noise / max(total, 1e-300) / draws


class SymmetricLaw(Protocol):
    """Properties of a noise distribution on which a division of alpha depends."""

    @property
    def variance(self) -> float:
        """Variance of the noise, in counts squared."""

    @property
    def gaussian(self) -> bool:
        """True if the noise is (discrete) Gaussian."""

    @property
    def bound_only(self) -> bool:
        """True if only a bound on the noise is known, whose error is counted elsewhere."""


def split_for(n: float, law: SymmetricLaw, alpha: float) -> float:
    """`certificate_split` for a noise law; any law that is not Gaussian is taken as Laplace.

    The split is then not optimal, but any beta is valid.
    """
    if law.bound_only:
        return 0.0
    scale = law.variance if law.gaussian else law.variance / 2
    return certificate_split(n, float(np.sqrt(scale)), alpha, gaussian=law.gaussian)


def certificate_split(
    n: float, scale: float, alpha: float = 0.05, *, gaussian: bool = False
) -> float:
    """Share of `alpha` to spend on the noise in a certified interval for a proportion.

    Minimises w(beta) = s0 z + q(beta) with z the 1-(alpha-beta)/2 normal quantile,
    s0 = 1/(2 sqrt n) and q the quantile of the noise in proportions, lambda = scale/n. It is convex
    and depends on public numbers only. Laplace: q = lambda log(1/beta); as dz/dbeta = 1/(2 phi(z)),
    the minimum solves beta = 2 lambda phi(z)/s0. Gaussian: q = lambda y with y the 1-beta/2 normal
    quantile, and the minimum solves s0 phi(y) = lambda phi(z).

    Parameters
    ----------
    n : float
        Number of rows that the proportion is about.
    scale : float
        Scale of the noise in counts (s/B for a test function with values up to B).
    alpha : float
        Error probability, in (0, 1/2].
    gaussian : bool
        Gaussian noise; else Laplace.

    Returns
    -------
    float
        beta, at least 1e-6 alpha and below alpha.
    """
    from scipy import optimize, special

    alpha = check_alpha(alpha)
    if not (n > 0 and 0 <= scale < np.inf):
        raise RequestError(
            f"a split needs a positive number of rows and a finite scale, got n={n:g}, "
            f"scale={scale:g}"
        )

    def gradient(beta: float) -> float:
        z = special.ndtri((alpha - beta) / 2)
        if gaussian:
            y = special.ndtri(beta / 2)
            return float(np.log(np.sqrt(n) / (2 * scale)) + (z**2 - y**2) / 2)
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return float(beta - 4 * scale / np.sqrt(n) * density)

    least, most = 1e-6 * alpha, (1 - 1e-6) * alpha
    if scale == 0 or gradient(least) >= 0:
        return least
    if gradient(most) <= 0:
        return most
    return float(optimize.brentq(gradient, least, most, xtol=1e-9 * alpha))
