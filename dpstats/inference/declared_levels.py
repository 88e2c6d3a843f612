"""Which declared levels have rows, as far as their noisy sizes tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.error_rates import (
    USUAL_ALPHA,
    alpha_of_empty_levels,
    bonferroni,
    for_empty_levels,
    plus_empty_levels,
)

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw

_ROUNDED = 1e-6  # of a count over the weight of its noise, a whole number
_SMOOTHED = 1e-2  # of a standard deviation: more than the grid of a law that is no lattice's
_NO_SHIFT = 1e-6  # of a standard deviation


@dataclass(frozen=True)
class DeclaredLevels:
    """Levels of a schema, which are declared and not learned: some may have no rows.

    Equations are those of "Levels without rows" in docs/explanation/inference/intervals.md.
    """

    doubts: Floats  # (L,): L P(Z >= N), N the noisy sizes (eq. used-levels)
    most: float  # the largest doubt about a level that has a noisy size of at least one row
    # (L,): mean noise, in rows, on the size of a level used because of it (eq. shift-of-chosen)
    shifts: Floats

    @classmethod
    def of(
        cls, sizes: Floats, laws: Sequence[tuple[NoiseLaw | None, float]], least: int = 1
    ) -> DeclaredLevels:
        """Levels with noisy sizes (L,), of which those with at least `least` rows can be used.

        `laws` are L pairs: the law of the noise on each size (None without), and what it is
        multiplied by.
        """
        excess = np.asarray(sizes, dtype=np.float64) - (least - 1)
        pairs = list(zip(excess.tolist(), laws, strict=True))
        beyond = [_beyond(size, law, weight) for size, (law, weight) in pairs]
        first = [_beyond(1.0, law, weight) for law, weight in dict.fromkeys(laws)]
        beta = bonferroni(for_empty_levels(USUAL_ALPHA), len(laws))
        shifts = [_shift(size, law, weight, beta) for size, (law, weight) in pairs]
        doubts = np.minimum(len(laws) * np.array(beyond), 1.0)
        return cls(doubts, min(len(laws) * max(first), 1.0), np.array(shifts))

    @classmethod
    def all_used(cls, count: int) -> DeclaredLevels:
        """Levels that all have rows."""
        return cls(np.zeros(count), 0.0, np.zeros(count))

    @property
    def used(self) -> NDArray[np.bool_]:
        """(L,) levels that a test at level .05 or above uses."""
        return np.asarray(self.doubts <= for_empty_levels(USUAL_ALPHA))

    def pvalue(self, test: Callable[[NDArray[np.bool_]], float | None]) -> float:
        """P-value of a test that uses no empty level: the least alpha above which it rejects.

        `test` gives the p-value p(U) with the used levels (L,) bool, None with too few (eq.
        p-of-used). Below alpha = .05 the smallest levels drop out; a test without enough levels
        does not reject.
        """
        used, top = self.used, 1.0
        while True:
            found = test(used)
            if found is None:
                return top
            found = plus_empty_levels(found, self.most)
            last = float(self.doubts[used].max())
            if found >= (drops := alpha_of_empty_levels(last)):
                return min(found, top)
            used, top = self.doubts < last, min(drops, top)


def _beyond(size: float, law: NoiseLaw | None, weight: float) -> float:
    """P(noise >= size) for a size above zero, of noise that is weight times one of a law."""
    if size <= _ROUNDED:
        return 1.0
    if law is None:
        return float(size < 1 - _ROUNDED)
    slack = _ROUNDED if law.lattice else _SMOOTHED * float(np.sqrt(law.variance))
    return float(law.tail(size / weight - slack)) / 2


def _shift(size: float, law: NoiseLaw | None, weight: float, beta: float) -> float:
    """Mean of normal noise beyond the least size used, less the size that is certain."""
    from scipy import special

    if law is None or law.variance == 0:
        return 0.0
    deviation, reach = weight * float(np.sqrt(law.variance)), weight * law.quantile(2 * beta)
    beyond = (2 * reach - size) / deviation
    density = -(beyond**2) / 2 - np.log(2 * np.pi) / 2
    shift = float(np.exp(density - special.log_ndtr(-beyond)))
    return deviation * shift if shift > _NO_SHIFT else 0.0
