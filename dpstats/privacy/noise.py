"""The only module that draws privacy noise: from OpenDP, on the integers, without a seed.

It checks what the backend does not: OpenDP accepts a scale of 0, which would release raw sums.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Integers
from dpstats.checks import as_float, short
from dpstats.errors import BudgetError, NoiseError
from dpstats.privacy.laws import POWERS, Noise

# |sum| <= 2**62 and a scale up to 2**52 leave 2**62 = 1024 scales to the end of int64: noise gets
# there with probability below e**-1024, and then OpenDP saturates.
MAX_SUM = 2**62
MAX_SCALE = 2.0**52
MIN_SCALE = 2.0**-20  # epsilon of a million; far above where a float scale could vanish


class _NoiseSource(Protocol):
    """A substitute for the real noise in tests; ``uniforms(d)`` is optional."""

    def __call__(self, scale: float, size: int) -> Integers: ...


_injected: ContextVar[_NoiseSource | None] = ContextVar("injected noise", default=None)


@contextmanager
def _noise_from(source: _NoiseSource) -> Iterator[None]:
    """Draw from `source` inside the block. For tests only: what is released is not private."""
    token = _injected.set(source)
    try:
        yield
    finally:
        _injected.reset(token)


def is_private() -> bool:
    """True if noise comes from the real source, not from one that a test has injected."""
    return _injected.get() is None


def scale_for(multiplier: int | Fraction, bound: int, noise: Noise = "laplace") -> float:
    """Noise scale of a function: the smallest float that is large enough.

    Laplace noise needs a scale of ``multiplier * bound``, Gaussian noise one whose square is
    ``multiplier * bound**2``. Rounding up keeps the exact cost of the noise within the budget.

    Parameters
    ----------
    multiplier : Fraction
        Positive: the noise scale in units of the function's bound, squared if Gaussian.
    bound : int
        The function's integer values lie in [-bound, bound]; at least 1.
    noise : {"laplace", "gaussian"}

    Raises
    ------
    BudgetError
        If the scale is not in [2**-20, 2**52].
    """
    if isinstance(multiplier, bool) or not isinstance(multiplier, (int, Fraction)):
        raise BudgetError(f"multiplier must be a Fraction, got {short(multiplier)}")
    if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
        raise BudgetError(f"bound must be an int of at least 1, got {short(bound)}")
    power = POWERS[noise]
    exact = Fraction(multiplier) * bound**power
    if exact > Fraction(MAX_SCALE) ** power:
        raise BudgetError(
            f"the noise scale {_root(multiplier, power)} * {bound} is above 2**52, too large for "
            "64-bit sums; use a coarser grid or a larger budget"
        )
    if exact < Fraction(MIN_SCALE) ** power:
        raise BudgetError(
            f"the noise scale {_root(multiplier, power)} * {bound} is below 2**-20, which would "
            "release the sums without noise; use a smaller budget"
        )
    return _smallest_float(exact, power)


def _root(multiplier: int | Fraction, power: int) -> str:
    return f"{as_float(Fraction(multiplier)) ** (1 / power):.4g}"


@lru_cache(maxsize=1024)
def _smallest_float(exact: Fraction, power: int) -> float:
    """The smallest float whose power is at least a fraction."""
    scale = math.sqrt(exact) if power == 2 else float(exact)  # close; exact comparisons decide
    while Fraction(scale) ** power < exact:
        scale = math.nextafter(scale, math.inf)
    while Fraction(math.nextafter(scale, 0)) ** power >= exact:
        scale = math.nextafter(scale, 0)
    return scale


def add_noise(sums: Integers, scale: float, noise: Noise = "laplace") -> Integers:
    """Exact sums plus independent discrete Laplace or discrete Gaussian noise.

    Parameters
    ----------
    sums : (d,) int64
        Exact private sums, d >= 1, at most 2**62 in absolute value.
    scale : float
        Scale of the noise, in the units of the sums; see `scale_for`.
    noise : {"laplace", "gaussian"}

    Returns
    -------
    (d,) int64
        The noisy sums, in the same units.

    Raises
    ------
    NoiseError
        If an argument is not valid or the noise cannot be drawn. The message and the exception
        hold no value of `sums`, and nothing may be released.
    """
    _check(sums, scale, noise)
    source = _injected.get()
    return _opendp(sums, scale, noise) if source is None else _add_injected(source, sums, scale)


def draw_uniforms(d: int) -> NDArray[np.float64]:
    """Independent uniforms on (-1/2, 1/2) from the operating system's secure source.

    Drawn once with each measurement and stored with it. Never exactly an end point.

    Parameters
    ----------
    d : int
        How many, at least 1.

    Returns
    -------
    (d,) float64

    Raises
    ------
    NoiseError
        If `d` is not a positive int or the secure source fails.
    """
    if isinstance(d, bool) or not isinstance(d, int) or d < 1:
        raise NoiseError(f"the number of uniforms must be a positive int, got {short(d)}")
    source = _injected.get()
    if source is not None:
        uniforms = getattr(source, "uniforms", None)
        return np.zeros(d) if uniforms is None else np.asarray(uniforms(d), dtype=np.float64)
    entropy = b""
    with suppress(Exception):  # a failure raises below, where nothing is chained to it
        entropy = secrets.token_bytes(8 * d)
    if len(entropy) != 8 * d:
        raise NoiseError("the system's secure random source failed; nothing was released")
    # 52 random bits and a half: the middle of one of 2**52 equal cells, exact in a float.
    bits = np.frombuffer(entropy, dtype=np.uint64) >> np.uint64(12)
    return (bits.astype(np.float64) + 0.5) * 2.0**-52 - 0.5


def _check(sums: object, scale: object, noise: object) -> None:
    """Refuse what the backend would accept: wrong types, huge sums, a scale of 0."""
    if type(sums) is not np.ndarray or sums.dtype != np.int64 or sums.ndim != 1 or not sums.size:
        raise NoiseError("sums must be a plain, one-dimensional, non-empty int64 array")
    if int(sums.min()) < -MAX_SUM or int(sums.max()) > MAX_SUM:
        raise NoiseError("a sum is beyond 2**62; use a coarser grid")
    if not isinstance(scale, float) or not MIN_SCALE <= scale <= MAX_SCALE:
        raise NoiseError(f"scale must be a float in [2**-20, 2**52], got {short(scale)}")
    if not isinstance(noise, str) or noise not in POWERS:
        raise NoiseError(f"noise must be one of {list(POWERS)}, got {short(noise)}")


def _opendp(sums: Integers, scale: float, noise: Noise) -> Integers:
    """Noise from OpenDP, or a NoiseError without the backend's own error.

    The errors are raised outside the handlers: a chained exception could hold private sums.
    """
    try:
        measurement = _laplace(scale) if noise == "laplace" else _gaussian(scale)
    except Exception:
        measurement = None
    if measurement is None:
        raise NoiseError(
            "the noise backend OpenDP is missing or does not work, and there is no fallback; "
            'pip install "opendp>=0.16,<0.17"'
        )
    try:
        noisy = measurement(np.ascontiguousarray(sums))
        # Plain ints only: a list of floats would be truncated to integers silently.
        valid = type(noisy) is list and {type(value) for value in noisy} == {int}
        result = np.array(noisy, dtype=np.int64) if valid else None
    except Exception:
        result = None
    if result is None or result.shape != sums.shape:
        raise NoiseError("drawing privacy noise failed; nothing was released")
    return result


@lru_cache(maxsize=64)
def _laplace(scale: float) -> Any:
    """OpenDP's discrete Laplace on vectors of i64, if its own privacy map agrees with `scale`."""
    # Not opendp.prelude, which imports data frames.
    from opendp import domains, measurements, metrics, mod

    # Every constructor in OpenDP asks for "contrib"; no other feature is needed.
    mod.enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")
    measurement = measurements.make_laplace(*space, scale=scale)
    # Sums that differ by one must cost 1/scale: a backend may define scale otherwise.
    return measurement if measurement.map(1) <= math.nextafter(1 / scale, math.inf) else None


@lru_cache(maxsize=64)
def _gaussian(scale: float) -> Any:
    """OpenDP's discrete Gaussian on vectors of i64, if its own privacy map agrees with `scale`.

    OpenDP takes the float for the exact rational that it is, as the accounting here does.
    """
    from opendp import domains, measurements, metrics, mod

    mod.enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l2_distance(T="i64")
    measurement = measurements.make_gaussian(*space, scale=scale)
    # Sums that differ by one must cost rho = 1 / (2 scale^2).
    rho = float(1 / (2 * Fraction(scale) ** 2))
    agrees = measurement.map(1) in (rho, math.nextafter(rho, math.inf))  # OpenDP rounds up
    return measurement if agrees else None


def _add_injected(source: _NoiseSource, sums: Integers, scale: float) -> Integers:
    noise = np.asarray(source(scale, sums.size))
    if noise.shape != sums.shape or noise.dtype != np.int64:
        raise NoiseError("the injected source must return one int64 per sum")
    if int(noise.min()) <= -MAX_SUM or int(noise.max()) >= MAX_SUM:  # so that no sum wraps around
        raise NoiseError("the injected source must return noise below 2**62")
    return np.asarray(sums + noise, dtype=np.int64)
