"""Tails and quantiles of a normal error plus many small noises, by the saddlepoint method.

Lugannani and Rice's formula (1980, Adv. Appl. Prob. 12, 475-490) has a small *relative* error at
any distance, since the cumulant generating function is known (eq. generating-function of
docs/explanation/inference/graphical-models.md):

    K(t) = s^2 t^2 / 2 + sum over Gaussian k of v_k t^2 / 2 - sum over Laplace k of
    m_k log(1 - v_k t^2 / (2 m_k)),

v_k the variance of a noise and m_k the number of its Laplace terms. With K'(t) = x, r = sqrt(2 (t x
- K)) and u = t sqrt(K''(t)), the tail above x is 1 - Phi(r) + phi(r) (1/u - 1/r) (eq.
saddlepoint-tail).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.roots import find_roots

_NEAR = 0.3  # standard deviations within which the formula loses digits; the tail is normal there
_STEPS = 60  # of Newton's method at most; about ten are used
_CLOSE = 1e-12
_FAR = 1e3  # standard deviations
_FARTHEST = 40.0  # of a saddlepoint in units of one over the standard deviation
_LEAST = 1e-30  # of a variance; without noise there is no error


@dataclass(frozen=True)
class MixtureTails(Cached):
    """Laws of d symmetric errors, each a normal one plus weighted independent noises."""

    normal: Floats  # (d,): variances of the normal parts, those of Gaussian noises included
    laplace: Floats  # (d, k): variances of the weighted Laplace noises
    terms: Floats  # (k,): number of equal Laplace terms in each noise
    # (d,): largest change of an error by one more of a noise, where nothing else smooths it: the
    # noises are whole numbers. Half of it widens an interval
    step: Floats | float = 0.0

    @cached_property
    def variances(self) -> Floats:
        """(d,) variances of the errors, positive."""
        return np.asarray(np.maximum(self.normal + self.laplace.sum(axis=1), _LEAST))

    @cached_property
    def _rates(self) -> Floats:
        """(d, k) c_k: the factor of t^2 in the logarithms."""
        return np.asarray(self.laplace / (2 * self.terms))

    @cached_property
    def _pole(self) -> Floats:
        """(d,) where the first logarithm ends; infinite without Laplace noise."""
        most = self._rates.max(axis=1, initial=0.0)
        return np.asarray(
            np.divide(1, np.sqrt(most), out=np.full(len(most), np.inf), where=most > 0)
        )

    def _derivatives(self, t: Floats) -> tuple[Floats, Floats, Floats]:
        """K, K' and K'' at one t for each law (eq. generating-function)."""
        square = (t * t)[:, np.newaxis]
        share = self._rates * square
        rest = 1 - share
        normal = np.maximum(self.normal, _LEAST)
        value = normal * t * t / 2 - np.log1p(-share) @ self.terms
        ratio = self._rates / rest
        first = normal * t + 2 * t * (ratio @ self.terms)
        second = normal + 2 * ((ratio * (1 + share) / rest) @ self.terms)
        return value, first, second

    def _saddlepoints(self, x: Floats) -> Floats:
        """Solutions t of K'(t) = x for positive x.

        K' is convex, and at least t times the variance and the part of the largest Laplace noise:
        Newton's method from these bounds falls towards the solution.
        """
        t = x / self.variances
        most = self._rates.max(axis=1, initial=0.0)
        root = np.sqrt(1 + np.divide(x * x, most, out=np.zeros_like(x), where=most > 0))
        bound = np.divide(root - 1, x, out=np.full_like(x, np.inf), where=(most > 0) & (x > 0))
        t = np.minimum(t, bound)
        for _ in range(_STEPS):
            _, first, second = self._derivatives(t)
            step = (first - x) / second
            t = t - np.maximum(step, 0)
            if np.all(step <= _CLOSE * t):
                break
        return np.asarray(t)

    def tail(self, x: Floats) -> Floats:
        """P(|error| >= |x|), (d,), of the error number i at x[i]."""
        from scipy import special

        sd = np.sqrt(self.variances)
        x = np.minimum(np.abs(x), _FAR * sd)
        near = x < _NEAR * sd
        far = np.where(near, sd, x)
        found = 2 * self._at(self._saddlepoints(far))[1]
        return np.asarray(np.where(near, 2 * special.ndtr(-x / sd), np.clip(found, 0, 1)))

    def _at(self, t: Floats) -> tuple[Floats, Floats]:
        """The point x of a saddlepoint t, and the tail above it (eq. saddlepoint-tail)."""
        from scipy import special

        value, x, second = self._derivatives(t)
        r, u = np.sqrt(2 * np.maximum(t * x - value, 0)), t * np.sqrt(second)
        density = np.exp(-(r**2) / 2) / np.sqrt(2 * np.pi)
        return x, special.ndtr(-r) + density * (1 / u - 1 / r)

    def quantile(self, alpha: float) -> Floats:
        """Points (d,) that |error| exceeds with probability alpha, and half a step."""
        from scipy import special

        sd = np.sqrt(self.variances)
        z = -special.ndtri(alpha / 2)
        if z < _NEAR or not np.any(self.laplace):
            return np.asarray(z * sd + self.step / 2)
        end = np.minimum(_FARTHEST / sd, self._pole * (1 - 1e-9))
        start = np.minimum(_NEAR / sd, end / 2)

        def excess(t: Floats, which: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
            tail = self._subset(which)._at(t)[1]
            return np.asarray(np.log(alpha / 2) - np.log(np.maximum(tail, 1e-300)))

        t = find_roots(excess, start, end, tolerance=1e-9 / sd)
        return np.asarray(self._at(t)[0] + self.step / 2)

    def _subset(self, which: np.ndarray[tuple[int], np.dtype[np.intp]]) -> MixtureTails:
        return MixtureTails(self.normal[which], self.laplace[which], self.terms)
