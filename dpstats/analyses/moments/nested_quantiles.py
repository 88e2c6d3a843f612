"""Quantiles of simulated draws that do not shrink as the level falls."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.inference.intervals import FEWEST


def outer(draws: Floats, level: float) -> float:
    """What one more draw exceeds with probability `level` at most, or else the largest draw.

    Over all draws, which are of exchangeable pairs (or independent). Add the pair of the new draw.
    The new one is as likely any of all size + 2. It exceeds the number with size - rank of the
    given draws above only if it is among the size - rank + 1 largest of all, or the next with its
    partner among these.
    """
    rank = min(math.ceil((len(draws) + 2) * (1 - level)), len(draws))
    return float(np.partition(draws, rank - 1)[rank - 1])


@dataclass(frozen=True)
class Tail:
    """How many of the first draws have a level, and the larger levels that fewer of them have.

    The number doubles where a level leaves fewer than `FEWEST` draws beyond it. A quantile of twice
    as many draws may be smaller, also at a lower level. The quantile here is therefore the largest
    of that of all these draws at the level, and those of every smaller number at the least level
    that it has: it does not decrease as the level falls, and so intervals are nested. It remains
    valid, since it is never less than `outer` of a number of draws that was fixed before.

    Attributes
    ----------
    parts : tuple of (int, float)
        Numbers of draws, increasing and even, and their levels, decreasing.
    """

    parts: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, level: float, least: int, most: int) -> Tail:
        """From an even number of draws, `least`, doubled as far as the level needs, to `most`.

        Examples
        --------
        >>> [size for size, level in Tail.of(0.005, 500, 4_000).parts]
        [500, 1000, 2000]
        >>> Tail.of(0.05, 500, 4_000).parts
        ((500, 0.05),)
        """
        size, parts = min(least, most), []
        while size < most and (lowest := (FEWEST + 2) / (size + 2)) > level:
            parts.append((size, lowest))
            size = min(2 * size, most)
        return cls((*parts, (size, level)))

    @property
    def size(self) -> int:
        """Number of draws in all."""
        return self.parts[-1][0]

    def quantile(self, draws: Floats) -> float:
        """The quantile of draws (size,)."""
        return max(outer(draws[:size], level) for size, level in self.parts)

    def beyond(self, draws: Floats, factor: float) -> NDArray[np.bool_]:
        """(size,) which draws are beyond a quantile at so many times its level."""
        found = np.zeros(len(draws), dtype=bool)
        for size, level in self.parts:
            found[:size] |= draws[:size] >= outer(draws[:size], factor * level)
        return found
