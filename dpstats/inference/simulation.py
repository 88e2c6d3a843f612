"""Draws from the law of the noise on answers, to calibrate tests and intervals."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import short
from dpstats.errors import RequestError

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers
    from dpstats.measured.measurements import Measurements
    from dpstats.privacy.laws import LatticeLaw, NoiseLaw

Seed = int | np.random.Generator | np.random.SeedSequence | None
LEAST_SIMULATED = 1e-4  # an error probability that is read off simulated tails
MOST_SIMULATIONS = 1_000_000
_WIDE = 1000.0
_POINTS = 2**14


def calibration_seed(answers: Answers, purpose: int | str | tuple[int, ...] = 0) -> int:
    """Seed of draws that calibrate a statement about some answers, for one purpose.

    A hash of the answers' stored uniforms, which are independent of the rows and of the noise: a
    release gives the same draws in every process, another one others.
    """
    # Sums of uniforms may differ in their last bits between machines.
    grid = np.rint(np.asarray(answers.uniforms) * 2.0**40).astype("<i8")
    text = repr(purpose if isinstance(purpose, tuple) else (purpose,))
    found = hashlib.blake2b(grid.tobytes() + text.encode(), digest_size=16)
    return int.from_bytes(found.digest(), "little")


def make_generator(seed: Seed | tuple[int, ...]) -> np.random.Generator:
    """Return the generator of a seed, or raise RequestError."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        what = "must be a seed, a whole number of at least 0, or a numpy Generator"
        raise RequestError(f"rng {what}, got {short(seed)}") from None


def calibration_generator(
    answers: Answers, purpose: int | tuple[int, ...] = 0
) -> np.random.Generator:
    """Generator with the seed `calibration_seed`."""
    return np.random.default_rng(calibration_seed(answers, purpose))


def draw_noise(
    answers: Answers, size: int, rng: np.random.Generator, along: Floats | None = None
) -> Floats:
    """Draws (size, d) from the joint law of the noise on d sums, or (size, k) `along` (d, k).

    Noises that enter with the same weights are drawn together. It simulates a published law, and is
    not privacy noise.
    """
    total = np.zeros((size, len(answers.sums) if along is None else along.shape[1]))
    for own, law in answers.noise_groups:
        weights = own if along is None else own @ along
        drawn, used = draw_from(law, size, rng), np.flatnonzero(weights)
        if len(used) > 1:
            total += np.outer(drawn, weights)
        else:  # independent noises, of which there may be thousands
            total[:, used] += np.outer(drawn, weights[used])
    return total


def draws_for_interval(alpha: float, usual: int) -> int:
    """Number of draws for an interval at level 1 - alpha: ten or more in each tail."""
    if alpha < LEAST_SIMULATED:
        raise RequestError(
            f"alpha={alpha:g} is too small for an interval from simulated noise, at least "
            f"{LEAST_SIMULATED:g}; use a larger alpha or method='certified'"
        )
    return max(usual, math.ceil(20 / alpha))


def draw_from(law: LatticeLaw, size: int, rng: np.random.Generator) -> Floats:
    """Draws (size,) from the law of a sum of equal noises.

    A sum of discrete Laplace variables is the difference of two negative binomials; a wide Gaussian
    is a rounded normal variable, with a total variation distance below 1e-8.
    """
    if not law.gaussian:
        success = -np.expm1(-1 / law.scale)
        if law.terms == 1:  # the same law, in a third of the time
            one, other = (rng.geometric(success, size) for _ in range(2))
        else:
            one, other = (rng.negative_binomial(law.terms, success, size) for _ in range(2))
        return np.asarray(one - other, dtype=np.float64)
    if law.variance > _WIDE**2:
        return np.rint(rng.normal(0, np.sqrt(law.variance - 1 / 12), size))
    z, cdf = _distribution(law)
    return z[np.searchsorted(cdf, rng.random(size), side="right")]


def draw_evenly(law: NoiseLaw, size: int, rng: np.random.Generator) -> Floats:
    """Points of a noise in random order, one from each of `size` equal shares of probability."""
    return rng.permutation(_middles(law, size))


def with_more_noise(measurements: Measurements, rng: np.random.Generator) -> Measurements:
    """Measurements with a second noise of the same law on every sum; it protects nobody."""
    strategy, pieces, start = measurements.strategy, [], 0
    for planned, scales in zip(strategy.blocks, strategy.block_scales, strict=True):
        own = measurements.noisy_sums[start : start + planned.block.size].copy()
        start += planned.block.size
        for scale in np.unique(scales) if planned.role != "reference" else ():
            same = np.flatnonzero(scales == scale)
            law = measurements.budget.law(float(scale))
            own[same] += draw_from(law, len(same), rng).astype(np.int64)
        pieces.append(own)
    return replace(measurements, noisy_sums=np.concatenate(pieces))


@lru_cache(maxsize=64)
def _middles(law: NoiseLaw, size: int) -> Floats:
    """Quantiles (size,) at (i + 1/2) / size; symmetric."""
    reach = max(1, law.support(1e-15))
    half = np.sinh(np.linspace(0, np.arcsinh(reach), _POINTS))
    z = -np.unique(np.rint(half) if law.lattice else half)[::-1]
    shares = (np.arange(size // 2) + 0.5) / size
    lower = z[np.minimum(np.searchsorted(law.cdf(z), shares), len(z) - 1)]
    return np.concatenate([lower, np.zeros(size % 2), -lower[::-1]])


@lru_cache(maxsize=64)
def _distribution(law: LatticeLaw) -> tuple[Floats, Floats]:
    """Points of the lattice, and the distribution function at all but the last."""
    reach = law.support(1e-15)
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    return z, law.cdf(z[:-1])
