"""Correlations of normal scores behind columns, from guessed correlations of the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.errors import SchemaError

_NODES, _INNER = 512, 128  # equally likely normal scores, of the first column and of the rest
_EXTREME = 0.9999
_CLOSE = 1e-4
_PROJECTIONS = 2_000
_TOLERANCE = 1e-3  # of a correlation


def normal_factor(
    names: Sequence[str],
    margins: Mapping[str, tuple[Codes, Floats]],
    correlations: Mapping[tuple[str, str], float],
) -> Floats:
    """A matrix (p, p) that gives independent normal scores the wanted correlations.

    Pairs without a guess get what makes the matrix positive semidefinite, near zero where they can.

    Raises
    ------
    SchemaError
        If the margins do not allow a correlation, or the correlations contradict one another.
    """
    wanted = np.eye(len(names))
    known = np.eye(len(names), dtype=bool)
    for (one, other), r in correlations.items():
        i, j = names.index(one), names.index(other)
        wanted[i, j] = wanted[j, i] = _latent(one, other, margins[one], margins[other], r)
        known[i, j] = known[j, i] = True
    found = wanted
    for _ in range(_PROJECTIONS):  # between the two sets, which meet if there is such a matrix
        values, vectors = np.linalg.eigh(found)
        if values[0] >= -(_TOLERANCE**2):
            break
        found = (vectors * np.maximum(values, 0)) @ vectors.T
        found = np.where(known, wanted, found)
    values, vectors = np.linalg.eigh(found)
    if values[0] < -_TOLERANCE:
        pairs = ", ".join(f"{one}-{other}" for one, other in correlations)
        raise SchemaError(
            f"no rows have all of the guessed correlations ({pairs}): where two columns are close "
            "to a third, they are close to each other; make some of them smaller"
        )
    factor = vectors * np.sqrt(np.maximum(values, 0))
    scaled: Floats = factor / np.sqrt((factor**2).sum(axis=1, keepdims=True))
    return scaled


def _latent(
    one: str,
    other: str,
    first: tuple[Codes, Floats],
    second: tuple[Codes, Floats],
    r: float,
) -> float:
    """The correlation of normal scores that gives two columns the correlation r.

    Raises
    ------
    SchemaError
    """
    least, found, most = _root(*(a.tobytes() for pair in (first, second) for a in pair), r)
    if found is None:
        raise SchemaError(
            f"the guessed correlation of {one!r} and {other!r} is {r:g}; with their guessed "
            f"distributions it lies between {least:.2f} and {most:.2f}"
        )
    return found


@lru_cache(maxsize=512)
def _root(
    codes: bytes, shares: bytes, other_codes: bytes, other_shares: bytes, r: float
) -> tuple[float, float | None, float]:
    """The least correlation of two margins, the normal one that gives r, and the largest."""
    from scipy.optimize import brentq

    first = np.frombuffer(codes, np.int64), np.frombuffer(shares, np.float64)
    second = np.frombuffer(other_codes, np.int64), np.frombuffer(other_shares, np.float64)
    reached = _Pair(first, second)
    least, most = reached(-_EXTREME), reached(_EXTREME)
    if not least < r < most:
        return least, None, most
    return least, brentq(lambda rho: reached(rho) - r, -_EXTREME, _EXTREME, xtol=_CLOSE), most


class _Pair:
    """Pearson correlation of two columns, as a function of that of their normal scores."""

    def __init__(self, first: tuple[Codes, Floats], second: tuple[Codes, Floats]) -> None:
        from scipy.special import ndtri

        self.outer = ndtri((np.arange(_NODES) + 0.5) / _NODES)
        self.inner = ndtri((np.arange(_INNER) + 0.5) / _INNER)
        (codes, shares), (self.codes, self.shares) = first, second
        middles = (np.arange(_NODES) + 0.5) / _NODES
        self.scores = _standard(codes[_places(shares, middles)], codes, shares)

    def __call__(self, rho: float) -> float:
        from scipy.special import ndtr

        mixed = rho * self.outer[:, None] + np.sqrt(1 - rho**2) * self.inner
        cells = self.codes[_places(self.shares, ndtr(mixed))]
        return float(self.scores @ _standard(cells, self.codes, self.shares).mean(axis=1)) / _NODES


def _places(shares: Floats, uniform: Floats) -> Codes:
    return np.minimum(np.searchsorted(shares.cumsum(), uniform), len(shares) - 1)


def _standard(cells: Codes, codes: Codes, shares: Floats) -> Floats:
    """Codes with the mean 0 and variance 1 of their margin."""
    mean = float(shares @ codes)
    variance = float(shares @ (codes - mean) ** 2)
    return (cells - mean) / np.sqrt(variance) if variance else np.zeros(cells.shape)
