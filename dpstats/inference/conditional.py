"""Prevalence within a group, p = P(A | G), from two noisy counts and an unknown group size.

T_A = X_A + Z_A counts rows in A and G, T_C = X_C + Z_C those in G only; given N = X_A + X_C,
X_A ~ Binomial(N, p). Neither N nor any estimate of it is ever treated as known.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.errors import RequestError
from dpstats.inference.binomial import binomial_pmf, binomial_window, split_for
from dpstats.inference.checks import (
    Alternative,
    check_alpha,
    check_alternative,
    check_count,
    check_finite,
    check_proportion,
)
from dpstats.inference.corrected import clopper_pearson
from dpstats.inference.roots import find_roots

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw

FloatArray = NDArray[np.float64]

_TAIL = 1e-9  # noise mass that may be ignored
_FINE = 256  # a noise law is first rounded to multiples of at most sd / 256
_SMALL = 400  # lattices up to this size are kept as they are
_COARSE = 8  # larger ones are grouped, with a width of sd / 4 in the middle, more in the tails
_STRIDE = 8  # binomial lattices are summed with strides of at most sd / 8
_DIRECT = 2048  # more arguments than this are read off a table of the noise's cdf
_TABLE = 300
_CELLS = 1 << 20
_MOST_SIZES = 17  # group sizes in the confidence set that are tried one by one


@dataclass(frozen=True)
class _Group:
    """The two measurements with their uniforms, and the group sizes that they allow."""

    t_a: float
    t_c: float
    u_a: float
    u_c: float
    law_a: "NoiseLaw"
    law_c: "NoiseLaw"
    sizes: FloatArray

    def tails(self, p: float) -> tuple[float, float]:
        """Suprema over the sizes of P(D <= observed) and of P(D >= observed).

        D = (1-p) (T_A + U_A) - p T_C = (X_A - p N) + (1-p) (Z_A + U_A) - p Z_C, p <= 1/2; above
        1/2 the roles are exchanged. The three parts are independent and their laws are known.
        """
        if p > 0.5:
            other = _Group(
                self.t_c, self.t_a, self.u_c, self.u_a, self.law_c, self.law_a, self.sizes
            )
            lower, upper = other.tails(1 - p)
            return upper, lower
        observed = (1 - p) * (self.t_a + self.u_a) - p * self.t_c
        z, weight = _grouped(self.law_c, (1 - p) * _smooth_sd(self.law_a) / max(p, 1e-300))

        def noise_cdf(y: FloatArray) -> FloatArray:  # of (1-p) (Z_A + U_A) - p Z_C
            parts = np.array_split(y.ravel(), 1 + y.size * z.size // _CELLS)
            sums = [self.law_a.smoothed_cdf((part[:, None] + p * z) / (1 - p)) for part in parts]
            return np.concatenate([part @ weight for part in sums]).reshape(y.shape)

        low, high, sd = binomial_window(self.sizes, p)
        noise_sd = np.hypot((1 - p) * _smooth_sd(self.law_a), p * np.sqrt(self.law_c.variance))
        stride = np.maximum(1, np.floor(np.minimum(sd, noise_sd) / _STRIDE))
        stride = np.maximum(stride, np.floor((high - low) / 20_000))
        steps = np.arange(np.max((high - low) // stride) + 1)
        x = low[:, None] + stride[:, None] * steps
        mass = binomial_pmf(x, self.sizes[:, None], np.array(p))
        y = observed + p * self.sizes[:, None] - x
        if y.size <= _DIRECT:
            value = noise_cdf(y)
        else:
            reach = np.arcsinh(max(1.0, float(np.max(np.abs(y)) / noise_sd)))
            table = noise_sd * np.sinh(np.linspace(-reach, reach, _TABLE))
            value = np.interp(y, table, noise_cdf(table))
        cdf = np.sum(mass * value, axis=1) / np.sum(mass, axis=1)
        return float(np.max(cdf)), float(1 - np.min(cdf))

    def pvalue(self, p: float, alternative: Alternative, beta: float) -> float:
        lower, upper = self.tails(p)
        tail = {"smaller": lower, "larger": upper, "two-sided": 2 * min(lower, upper)}
        return min(1.0, tail[alternative] + beta)


def _smooth_sd(law: "NoiseLaw") -> float:
    """Return the standard deviation of Z + U."""
    return float(np.sqrt(law.variance + 1 / 12))


def _grouped(law: "NoiseLaw", smooth: float = np.inf) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights with the mean and variance of `law` in every group of the lattice.

    Groups are as wide as functions allow that vary on the scale of `smooth`; small lattices are
    returned as they are, without the mass 1e-9 of their tails.
    """
    sd = float(np.sqrt(law.variance))
    step = max(1.0, np.floor(sd / _FINE))
    half = np.ceil(law.support(_TAIL) / step)
    z = step * np.arange(-half, half + 1)
    edges = np.append(z - step / 2, z[-1] + step / 2)
    mass = np.diff(law.smoothed_cdf(edges))  # at half integers this is the law of Z
    if z.size <= _SMALL:
        return z, mass / np.sum(mass)
    width = np.minimum(np.hypot(z, 2 * sd) / _COARSE, smooth / 4)
    group = np.floor(np.cumsum(step / width))
    starts = np.flatnonzero(np.diff(group, prepend=-np.inf))
    weight, mean, square = (np.add.reduceat(mass * z**k, starts) for k in range(3))
    used = weight > 0
    weight, mean, square = weight[used], mean[used], square[used]
    mean, square = mean / weight, square / weight
    spread = np.sqrt(np.maximum(square - mean**2, 0))
    spread[np.diff(np.append(starts, z.size))[used] == 1] = 0
    single, double = spread == 0, spread > 0
    nodes = np.concatenate([mean[single], (mean - spread)[double], (mean + spread)[double]])
    weights = np.concatenate([weight[single], weight[double] / 2, weight[double] / 2])
    return nodes, weights / np.sum(weights)


def _sizes(
    t: float, law_a: "NoiseLaw", law_c: "NoiseLaw", n: int | None, beta: float
) -> FloatArray:
    """Group sizes in a confidence set with error beta, from t = T_A + U_A + T_C; thinned if many.

    |t - N| = |Z_A + U_A + Z_C|, whose quantile does not depend on N or p. The set is cut to
    [0, n], which holds N for certain. X_A - pN gains a mean-zero step with every row, so its
    tails grow with N but for lattice effects; these fade where noise is wide, which is where
    the set is large. So large sets are represented by sizes with equally spaced square roots.
    """
    z, weight = _grouped(law_c, _smooth_sd(law_a))

    def excess(q: FloatArray, _: NDArray[np.intp]) -> FloatArray:
        return 2 * law_a.smoothed_cdf(-q[:, None] - z) @ weight - beta

    most = law_a.quantile(beta / 2) + law_c.quantile(beta / 2) + 1
    q = float(find_roots(excess, np.zeros(1), np.array([float(most)]))[0])
    largest = np.inf if n is None else n
    centre = np.clip(np.round(t), 0, largest)
    low = min(centre, max(0, np.ceil(t - q)))
    high = max(centre, min(largest, np.floor(t + q)))
    if high - low < _MOST_SIZES:
        return np.arange(low, high + 1)
    return np.unique(np.round(np.linspace(np.sqrt(low), np.sqrt(high), _MOST_SIZES) ** 2))


def conditional_pvalue(
    t_a: float,
    t_c: float,
    u_a: float,
    u_c: float,
    law_a: "NoiseLaw",
    law_c: "NoiseLaw",
    p0: float,
    alternative: Alternative = "two-sided",
    *,
    n: int | None = None,
    beta: float = 0.001,
) -> float:
    """P-value of P(A | G) = p0 with an unknown group size.

    Given N the law of D = (1-p0) T_A - p0 T_C (plus a uniform) is known, so for the true N the
    p-value is uniform. N is in a confidence set but for probability beta, so the supremum over
    the set, plus beta, is at least as large as a valid p-value (Bonferroni; it does not matter
    that both use the same counts). In a large set the supremum is over 17 sizes, see `_sizes`.

    Parameters
    ----------
    t_a, t_c : float
        Noisy counts of rows in A and G, and in G but not in A.
    u_a, u_c : float
        Their stored uniforms, in (-1/2, 1/2). p0 <= 1/2 uses u_a and p0 > 1/2 uses u_c.
    law_a, law_c : NoiseLaw
        Laws of the two independent noises, in counts.
    p0 : float
        Hypothesised prevalence, in [0, 1].
    alternative : {"two-sided", "larger", "smaller"}
        "larger" is for the alternative that the prevalence is above `p0`.
    n : int, optional
        Public number of rows in all; the group cannot be larger.
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
    check_finite("counts and uniforms", [t_a, t_c, u_a, u_c])
    n = None if n is None else check_count(n)
    sizes = _sizes(t_a + u_a + t_c, law_a, law_c, n, beta)
    return _Group(t_a, t_c, u_a, u_c, law_a, law_c, sizes).pvalue(p0, alternative, beta)


def conditional_interval(
    t_a: float,
    t_c: float,
    u_a: float,
    u_c: float,
    law_a: "NoiseLaw",
    law_c: "NoiseLaw",
    alpha: float = 0.05,
    *,
    n: int | None = None,
) -> tuple[float, float]:
    """Confidence interval for P(A | G): all values that the two-sided test does not reject.

    Every value p0 has its own valid test (`conditional_pvalue` with beta = alpha/50), so the set
    of those not rejected covers with probability at least 1 - alpha (to the numerical accuracy
    of the p-values), and so does its hull. The
    hull is found on a grid around the estimate and over [0, 1], its ends then refined. If
    noise drowns the group this is [0, 1]. An empty set becomes the estimate t_a/(t_a + t_c),
    clipped to [0, 1], or [0, 1] if no group can be seen; either can only cover more.

    Parameters
    ----------
    t_a, t_c, u_a, u_c, law_a, law_c, n :
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
    check_finite("counts and uniforms", [t_a, t_c, u_a, u_c])
    n = None if n is None else check_count(n)
    beta = alpha / 50
    sizes = _sizes(t_a + u_a + t_c, law_a, law_c, n, beta)
    group = _Group(t_a, t_c, u_a, u_c, law_a, law_c, sizes)

    def excess(p: FloatArray, _: NDArray[np.intp]) -> FloatArray:
        return np.array([group.pvalue(v, "two-sided", beta) - alpha for v in p.tolist()])

    grid = np.linspace(0, 1, 21)
    size = t_a + t_c
    if size > 0:
        share = float(np.clip(t_a / size, 0, 1))
        noise = (1 - share) ** 2 * law_a.variance + share**2 * law_c.variance + 1
        sd = np.sqrt(share * (1 - share) / size + noise / size**2)
        near = sd * np.array([0, 1, 1.5, 2, 2.5, 3, 4, 6, 10])
        grid = np.unique(np.clip(np.concatenate([grid, share - near, share + near]), 0, 1))
    value = excess(grid, np.arange(grid.size))
    kept = np.flatnonzero(value > 0)
    if not kept.size:
        return (share, share) if size > 0 else (0.0, 1.0)
    inner = grid[[kept[0], kept[-1]]]
    outer = grid[[max(kept[0] - 1, 0), min(kept[-1] + 1, grid.size - 1)]]
    tolerance = 1e-6 * float(np.max(np.abs(outer - inner)) + 1e-12)
    ends = find_roots(excess, outer, inner, tolerance=tolerance)
    # where the grid ends inside of the set, so does the interval
    ends = np.where(outer == inner, inner, ends)
    return float(ends[0]), float(ends[1])


def conditional_certified(
    t_a: ArrayLike,
    t_c: ArrayLike,
    law_a: "NoiseLaw",
    law_c: "NoiseLaw",
    alpha: float = 0.05,
    *,
    n: int | None = None,
    target: Literal["population", "table"] = "population",
) -> tuple[FloatArray, FloatArray]:
    """Certified interval for the prevalence within a group, from a box for the two counts.

    The noises are independent, so both counts are within their quantiles at
    1 - sqrt(1 - beta) with probability 1 - beta. On that event the Clopper-Pearson interval of
    the true counts, valid at alpha - beta given any N, is inside the union over the box, whose
    ends are at two corners. For the table's own share there is no sampling: the extremes of
    x/(x+c) over the box at beta = alpha.

    Parameters
    ----------
    t_a, t_c : array_like, broadcast together
        Noisy counts of rows in A and G, and in G but not in A (no uniforms needed).
    law_a, law_c : NoiseLaw
        Laws of the two independent noises, in counts.
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
    if target not in ("population", "table"):
        raise RequestError(f"target={target!r} is not known; use 'population' or 'table'")
    if target == "table":
        beta = alpha
    elif n is None:
        beta = alpha / 2
    else:
        wider = law_a if law_a.variance >= law_c.variance else law_c
        beta = split_for(check_count(n) / 4, wider, alpha)
    most = np.inf if n is None else check_count(n)
    each = -np.expm1(np.log1p(-beta) / 2)
    t_a, t_c = np.broadcast_arrays(check_finite("t_a", t_a), check_finite("t_c", t_c))
    q_a, q_c = law_a.quantile(each), law_c.quantile(each)
    yes, no = np.clip(t_a - q_a, 0, most), np.clip(t_c - q_c, 0, most)
    more_yes = np.maximum(yes, np.minimum(t_a + q_a, most - no))
    more_no = np.maximum(no, np.minimum(t_c + q_c, most - yes))
    if target == "population":
        return clopper_pearson(yes, more_yes, more_no, no, alpha - beta)
    low = yes / np.maximum(yes + more_no, 1)
    high = np.where(no > 0, more_yes / np.maximum(more_yes + no, 1), 1.0)
    return low, high
