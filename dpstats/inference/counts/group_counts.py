"""One group of unknown size: noisy counts with and without a trait, and tests from them.

yes = X + Z_yes counts the rows of the group with the trait, no = (N - X) + Z_no those without;
given the size N, X ~ Binomial(N, risk). N is never taken as known, nor replaced by an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.corrected.roots import find_roots
from dpstats.inference.counts.binomial import binomial_weights, binomial_window
from dpstats.inference.counts.characteristic import WIDE, Inversion
from dpstats.inference.noisy_ratio import NoisyRatio, joint_noise
from dpstats.spending import bonferroni

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers
    from dpstats.privacy.laws import NoiseLaw
    from dpstats.privacy.weighted_noise import JointNoise


_TAIL = 1e-9  # noise mass that may be ignored
_FINE = 256  # a noise law is first rounded to multiples of at most sd / 256
_SMALL = 400  # lattices up to this size are kept as they are
_COARSE = 8  # larger ones are grouped, with a width of sd / 4 in the middle, more in the tails
_STRIDE = 8  # binomial lattices are summed with strides of at most sd / 8
_DIRECT = 2**17  # values of the laws; a sum of more is interpolated in a table of the noise's cdf
_TABLE = 300
_CELLS = 1 << 14  # values of the cdf at a time: they stay in the cache
_SIZES_IF_SMOOTH = 5
_MOST_SIZES = 17  # group sizes in the confidence set that are tried one by one


@dataclass(frozen=True)
class GroupCounts:
    """Noisy counts of one group, with and without the trait.

    Attributes
    ----------
    yes, no : float
        Noisy counts.
    u_yes, u_no : float
        Their stored uniforms, in (-1/2, 1/2).
    law_yes, law_no : NoiseLaw
        Laws of the two noises, in counts.
    shared : JointNoise, optional
        Law of the noise on yes and on yes + no where yes and no share noise: `sizes` and `tails`
        are then not known.
    """

    sampled: ClassVar[bool] = True

    yes: float
    no: float
    u_yes: float
    u_no: float
    law_yes: NoiseLaw
    law_no: NoiseLaw
    shared: JointNoise | None = None

    @classmethod
    def of(cls, answers: Answers, f: int = 0) -> GroupCounts:
        """Counts number f (with the trait) and f + 1 (without) of some answers."""
        answers = answers.subset(slice(f, f + 2))
        (yes, no), (u_yes, u_no) = answers.sums.tolist(), answers.uniforms.tolist()
        parts = answers.noise_parts if answers.share_noise else ()
        shared = joint_noise((w[0], w.sum(), law) for w, law in parts) if parts else None
        return cls(yes, no, u_yes, u_no, answers.law(0), answers.law(1), shared)

    @cached_property
    def noise(self) -> JointNoise:
        """Law of the noise on yes and on the size."""
        if self.shared is not None:
            return self.shared
        return joint_noise([(1.0, 1.0, self.law_yes), (0.0, 1.0, self.law_no)])

    @property
    def of_table(self) -> NoisyRatio | None:
        """The share among the private rows themselves, if it is to be had from one law.

        Its uniform is the difference of the two modulo one: exchanged counts have its opposite.
        Counts that share noise have one uniform.
        """
        u = self.u_yes - (self.u_no if self.shared is None else 0.0)
        yes, uniform = np.array([self.yes]), np.array([u - round(u)])
        return NoisyRatio.of(self.noise.parts, self.observed_size, yes, uniform)

    @property
    def observed_size(self) -> float:
        """Noisy number of rows in the group."""
        return self.yes + self.no

    @property
    def risk(self) -> float:
        """Estimate in [0, 1]; one half where the noisy group is empty."""
        size = self.yes + self.no
        return float(np.clip(self.yes / size, 0, 1)) if size > 0 else 0.5

    def size(self, n: int) -> float:
        """Estimate of the number of rows in the group, from 1 to n."""
        return min(max(self.yes + self.no, 1.0), float(n))

    @property
    def size_noise(self) -> float:
        """Standard deviation of the noise on yes + no, in rows."""
        return float(np.sqrt(self.noise.moments[2]))

    @property
    def hidden_by_noise(self) -> bool:
        """Whether the group is small relative to the noise: use the interval only."""
        return self.yes + self.no <= 2 * self.size_noise

    def variances(self, risk: Floats | float, size: float) -> tuple[Floats, Floats]:
        """Sampling and privacy variance of the estimate at a risk and a size."""
        risk, size = np.asarray(risk, dtype=np.float64), max(size, 1.0)
        noise = np.maximum(self.noise.variance(risk), 0)
        return risk * (1 - risk) / size, noise / size**2

    def sizes(self, n: int | None, beta: float) -> Floats:
        """Sizes in a confidence set with error beta; thinned if many.

        For t = yes + u_yes + no, |t - N| = |Z_yes + U_yes + Z_no|, whose quantile does not depend
        on N or the risk. The set is cut to [0, n], which holds N for certain. X - risk N gains a
        mean-zero step with every row: its tails grow with N, up to lattice effects, which vanish
        where noise is wide, that is, where the set is large. Large sets are therefore represented
        by 17 sizes with equally spaced square roots.

        Parameters
        ----------
        n : int or None
            Public total number of rows; None if it is not known.
        beta : float
            In (0, 1), fixed before looking.

        Returns
        -------
        (s,) float64, increasing integers
        """
        z, weight = _grouped(self.law_no, _smooth_sd(self.law_yes))

        def excess(q: Floats, _: NDArray[np.intp]) -> Floats:
            return 2 * self.law_yes.smoothed_cdf(-q[:, None] - z) @ weight - beta

        t = self.yes + self.u_yes + self.no
        each = bonferroni(beta, 2)
        most = self.law_yes.quantile(each) + self.law_no.quantile(each) + 1
        q = float(find_roots(excess, np.zeros(1), np.array([float(most)]))[0])
        largest = np.inf if n is None else n
        centre = np.clip(np.round(t), 0, largest)
        low = min(centre, max(0, np.ceil(t - q)))
        high = max(centre, min(largest, np.floor(t + q)))
        if high - low < _MOST_SIZES:
            return np.arange(low, high + 1)
        return np.unique(np.round(np.linspace(np.sqrt(low), np.sqrt(high), _MOST_SIZES) ** 2))

    def tails(self, risks: Floats, sizes: Floats) -> tuple[Floats, Floats]:
        """Suprema over sizes (k,) of P(D <= observed) and P(D >= observed), (m,) for risks p (m,).

        D = (1-p) yes - p no + R = (X - p N) + (1-p) Z_yes - p Z_no + R. The terms are independent
        and their laws are known. R makes the law continuous: it is a function of a stored uniform,
        U_yes for p <= 1/2 and U_no above, so that the two counts can be exchanged. It is standard
        normal where the other terms are so wide that this adds nothing, else (1-p) U_yes or
        -p U_no; which one does not depend on the counts. Where the laws are smooth in this way they
        depend on the size through a variance alone, and five sizes represent the set.

        In D one noisy count below 0 is read as 0, see `inference.counts.binomial.within_counts`,
        unless the noisy group is empty; the set of sizes is that of the counts as they are.
        """
        read = self
        if self.observed_size > 0:
            read = replace(self, yes=max(self.yes, -self.u_yes), no=max(self.no, -self.u_no))
        sampling, noise = self.variances(risks, 1.0)
        smooth = sizes[0] * sampling + noise >= WIDE**2
        of_smooth = np.linspace(0, len(sizes) - 1, min(len(sizes), _SIZES_IF_SMOOTH)).astype(int)
        lower, upper = np.empty(len(risks)), np.empty(len(risks))
        for which, tried in ((smooth, sizes[of_smooth]), (~smooth, sizes)):
            cdf = read._cdf(risks[which], tried)
            lower[which], upper[which] = cdf.max(axis=1), 1 - cdf.min(axis=1)
        return lower, upper

    def _cdf(self, risks: Floats, sizes: Floats) -> Floats:
        """P(D <= observed), (m, k)."""
        from scipy import special

        p, n = (a.ravel() for a in np.meshgrid(risks, sizes, indexing="ij"))
        observed = (1 - p) * self.yes - p * self.no
        # Uniforms of answers that are combined may add up to an end of their interval.
        inside = np.clip(np.array([self.u_yes, self.u_no]) + 0.5, 2.0**-53, 1 - 2.0**-53)
        normal = special.ndtri(inside)
        d = observed + np.where(p <= 0.5, normal[0], -normal[1])
        inversion = self._inversion()
        nodes = inversion.nodes(d, n, p)
        sampling, noise = self.variances(p, 1.0)
        wide = (n * sampling + noise >= WIDE**2) & np.isfinite(nodes)
        cdf = np.empty(p.size)
        cdf[wide] = inversion.cdf(d[wide], n[wide], p[wide], nodes[wide])
        for risk in np.unique(p[~wide]).tolist():
            some = ~wide & (p == risk)
            if risk <= 0.5:
                cdf[some] = self._summed(risk, n[some])
            else:
                cdf[some] = 1 - self._exchanged()._summed(1 - risk, n[some])
        return cdf.reshape(len(risks), len(sizes))

    def _inversion(self) -> Inversion:
        def log_noise(s: Floats, p: Floats) -> Floats:
            risks, which = np.unique(p, return_inverse=True)
            yes = self.law_yes.log_characteristic((1 - risks[:, np.newaxis]) * s)
            no = self.law_no.log_characteristic(risks[:, np.newaxis] * s)
            return np.asarray((yes + no)[which.ravel()])

        reach = max(self.law_yes.support() + self.law_no.support(), 1)
        return Inversion(log_noise, reach, "normal")

    def _summed(self, p: float, sizes: Floats) -> Floats:
        """P(D <= observed) at all sizes by a sum over X and grouped values of Z_no; p <= 1/2."""
        observed = (1 - p) * (self.yes + self.u_yes) - p * self.no
        z, weight = _grouped(self.law_no, (1 - p) * _smooth_sd(self.law_yes) / max(p, 1e-300))

        def noise_cdf(y: Floats) -> Floats:  # of (1-p) (Z_yes + U_yes) - p Z_no
            pieces = np.array_split(y.ravel(), 1 + y.size * z.size // _CELLS)
            cdfs = [self.law_yes.smoothed_cdf((some[:, None] + p * z) / (1 - p)) for some in pieces]
            return np.concatenate([cdf @ weight for cdf in cdfs]).reshape(y.shape)

        low, high, sd = binomial_window(sizes, p)
        noise_sd = np.hypot((1 - p) * _smooth_sd(self.law_yes), p * np.sqrt(self.law_no.variance))
        stride = np.maximum(1, np.floor(np.minimum(sd, noise_sd) / _STRIDE))
        stride = np.maximum(stride, np.floor((high - low) / 20_000))
        steps = np.arange(np.max((high - low) // stride) + 1)
        x = low[:, None] + stride[:, None] * steps
        mass = binomial_weights(x, sizes[:, None], np.array(p))
        y = observed + p * sizes[:, None] - x
        if y.size * z.size <= _DIRECT or y.size <= _TABLE:
            value = noise_cdf(y)
        else:
            reach = np.arcsinh(max(1.0, float(np.max(np.abs(y)) / noise_sd)))
            table = noise_sd * np.sinh(np.linspace(-reach, reach, _TABLE))
            value = np.interp(y, table, noise_cdf(table))
        return np.asarray(np.sum(mass * value, axis=1) / np.sum(mass, axis=1))

    def _exchanged(self) -> GroupCounts:
        """The group with the roles of the trait and its absence exchanged."""
        return GroupCounts(self.no, self.yes, self.u_no, self.u_yes, self.law_no, self.law_yes)


def _smooth_sd(law: NoiseLaw) -> float:
    """Return the standard deviation of Z + U."""
    return float(np.sqrt(law.variance + 1 / 12))


def _grouped(law: NoiseLaw, smooth: float = np.inf) -> tuple[Floats, Floats]:
    """Nodes and weights with the mean and variance of `law` in every group of the lattice.

    Groups are as wide as is accurate for functions that vary on the scale of `smooth`; small
    lattices are returned unchanged, without the mass 1e-9 of their tails.
    """
    z, mass = _lattice(law)
    if z.size <= _SMALL:
        return z, mass / np.sum(mass)
    sd, step = float(np.sqrt(law.variance)), z[1] - z[0]
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


@lru_cache(maxsize=64)
def _lattice(law: NoiseLaw) -> tuple[Floats, Floats]:
    """Points of the lattice, rounded where that is fine enough, and their probabilities."""
    step = max(1.0, np.floor(np.sqrt(law.variance) / _FINE))
    half = np.ceil(law.support(_TAIL) / step)
    z = step * np.arange(-half, half + 1)
    edges = np.append(z - step / 2, z[-1] + step / 2)
    return z, np.diff(law.smoothed_cdf(edges))  # at half integers this is the law of Z
