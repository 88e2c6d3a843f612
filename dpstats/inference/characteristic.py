"""Distribution functions of a binomial count plus noise, from their characteristic functions.

V = X - n p + W, X binomial and W independent and symmetric, has the characteristic function phi(s)
= ((1 - p + p e^{is}) e^{-isp})^n E e^{isW}, and by Gil-Pelaez (1951, Biometrika 38, 481-482)

    P(V <= d) = 1/2 - (1/pi) int_0^inf Im(phi(s) e^{-isd}) / s ds;

on the integers the same with 2 sin(s/2) for s and d + 1/2 for d up to s = pi. The midpoint rule of
step h errs by at most P(|V - d| > 2 pi / h); that, and |phi| where the sum ends, are below 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from dpstats.arrays import Floats

WIDE = 8.0  # standard deviation of a sum to which "normal" smoothing adds below 1%
_NOTHING = 28.0  # exp(-28) is about 1e-12
_MOST_NODES = 1 << 12
_CELLS = 1 << 15  # numbers held in memory at a time: they stay in the cache
_FARTHEST = 12.0  # frequency; the smoothing leaves nothing beyond
_PROBES = 64
_ROUND = 16

LogCharacteristic = Callable[[Floats, Floats], Floats]
"""Logarithms (r, k) or (1, k) at frequencies (k,) and proportions (r, 1)."""


@dataclass(frozen=True)
class Inversion:
    """P(X - n p + W + R <= d) for one noise W and a small random R that makes the law continuous.

    Attributes
    ----------
    log_noise : callable
        Logarithm of E e^{isW}, which is real and positive: of frequencies (k,) and proportions
        (r, 1), (r, k) or (1, k).
    reach : float
        Beyond it W has a probability below 1e-12.
    smoothing : {"lattice", "uniform", "normal"}
        R is uniform on (-1/2, 1/2), and W an integer or not, or standard normal.

    Where a `unit` (r,) is given, d, W and R are multiples of it, and X - n p is in rows.
    """

    log_noise: LogCharacteristic
    reach: float
    smoothing: Literal["lattice", "uniform", "normal"]

    def farthest(self, n: Floats, p: Floats, unit: Floats | float = 1.0) -> Floats:
        """Frequency (r,) from which on phi is nothing; infinite where the sum would be too long."""
        variance = n * p * (1 - p)
        probes = _probes(np.pi if self.smoothing == "lattice" else _FARTHEST)
        # Of X |phi|^2 is at most exp(-4 n p (1-p) sin^2(s/2)), but 1 again at 2 pi.
        rows = probes / np.reshape(unit, (-1, 1))
        square = np.where(rows <= np.pi, 2 * np.sin(rows / 2) ** 2, 0.0)
        noise = self.log_noise(probes, p[:, np.newaxis]) + self._log_smoothing(probes)
        seen = noise - variance[:, np.newaxis] * square > -_NOTHING
        last = probes.size - 1 - np.argmax(seen[:, ::-1], axis=1)
        farthest = probes[np.minimum(last + 1, probes.size - 1)]
        few = farthest <= _MOST_NODES * self._step(np.zeros_like(variance), variance, unit)
        ends = few & ((last < probes.size - 1) | (self.smoothing == "lattice"))
        return np.where(ends, farthest, np.inf)

    def nodes(
        self,
        d: Floats,
        n: Floats,
        p: Floats,
        farthest: Floats | None = None,
        unit: Floats | float = 1.0,
    ) -> Floats:
        """Number of nodes (r,) of each sum: infinite if too many, 0 where it is 0 or 1."""
        farthest = self.farthest(n, p, unit) if farthest is None else farthest
        variance = n * p * (1 - p)
        count = np.maximum(np.ceil(farthest / self._step(d, variance, unit)), 1)
        return np.where(np.abs(d) < self._reach(variance, unit), count, 0)

    def cdf(
        self, d: Floats, n: Floats, p: Floats, nodes: Floats, unit: Floats | float = 1.0
    ) -> Floats:
        """Values (r,), within about 1e-12, for d, n and p (r,) and finite `nodes` (r,)."""
        variance = n * p * (1 - p)
        step, value = self._step(d, variance, unit), np.where(d < 0, 0.0, 1.0)
        units = np.broadcast_to(unit, d.shape)
        order = np.lexsort((nodes, step))
        order = order[nodes[order] > 0]
        while order.size:
            alike = order[step[order] == step[order[0]]]
            fit = np.searchsorted(nodes[alike] * np.arange(1, alike.size + 1), _CELLS)
            some, order = np.split(order, [max(1, int(fit))])
            count = _ROUND * np.ceil(nodes[some].max() / _ROUND)  # so that few counts occur
            s = (np.arange(count) + 0.5) * step[some[0]]
            if self.smoothing == "lattice":
                s = s[s < np.pi]
            elif np.ndim(unit) == 0:
                # phi of X is nothing between its returns; by powers of 2, so that few s occur
                least = np.exp2(np.floor(np.log2(np.maximum(variance[some].min(), 1e-9))))
                bound = -2 * least * np.sin(s / 2) ** 2 + self._log_smoothing(s)
                s = s[bound > -_NOTHING]
            rows = s if np.ndim(unit) == 0 else s / units[some, None]
            value[some] = self._summed(d[some, None], n[some, None], p[some, None], s, rows)
        return np.clip(value, 0, 1)

    def _log_smoothing(self, s: Floats) -> Floats:
        return -(s**2) / 2 if self.smoothing == "normal" else np.zeros_like(s)

    def _reach(self, variance: Floats, unit: Floats | float) -> Floats:
        """Distance from 0 beyond which the sum has a probability of about 1e-12."""
        third = _NOTHING / 3  # Bernstein, as in `binomial_window`
        of_smoothing = np.sqrt(2 * _NOTHING) if self.smoothing == "normal" else 1
        bernstein = third + np.sqrt(third**2 + 6 * third * variance)
        return self.reach + of_smoothing + bernstein / unit

    def _step(self, d: Floats, variance: Floats, unit: Floats | float) -> Floats:
        """A power of the root of 2, so that many sums share their frequencies."""
        period = self._reach(variance, unit) + np.abs(d)
        step = np.exp2(np.floor(2 * np.log2(2 * np.pi / period)) / 2)
        if self.smoothing == "lattice":  # whole steps up to pi
            step = np.pi / np.ceil(np.pi / step)
        return np.asarray(step)

    def _summed(self, d: Floats, n: Floats, p: Floats, s: Floats, rows: Floats) -> Floats:
        """Sum (r,) over frequencies (k,), `rows` those of X, for columns (r, 1) of d, n and p."""
        half = np.sin(rows / 2)
        with np.errstate(divide="ignore"):  # p = 1/2 at s = pi
            size = 0.5 * n * np.log1p(-4 * p * (1 - p) * half**2)
        size = np.exp(size + self.log_noise(s, p) + self._log_smoothing(s))
        less = np.minimum(p, 1 - p)  # of n - X it is the opposite: near p = 1 digits are kept
        angle = n * (np.arctan2(less * np.sin(rows), 1 - 2 * less * half**2) - rows * less)
        angle *= np.where(p > 0.5, -1.0, 1.0)
        if self.smoothing == "lattice":
            t = d + n * p
            below = np.floor(t + 0.5)  # F at it and at one less, weighted for the uniform
            angle -= s * (below - n * p)
            kernel = np.sin(angle) * (np.cos(s / 2) / half) + np.cos(angle) * (2 * (below - t))
        else:
            kernel = np.sin(angle - s * d) * (2 / s)
            if self.smoothing == "uniform":
                kernel *= 2 * half / s
        total = np.asarray(np.sum(size * kernel, axis=1), dtype=np.float64)
        return np.asarray(0.5 - total * s[0] / np.pi)  # the step is twice the first frequency


@lru_cache(maxsize=2)
def _probes(farthest: float) -> Floats:
    """Frequencies at which phi is looked at, with the first return of a law on the integers."""
    probes = np.geomspace(1e-9, farthest, _PROBES)
    return np.sort(np.append(probes, 2 * np.pi)) if farthest > 2 * np.pi else probes
