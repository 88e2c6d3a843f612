"""Sums that follow from measured ones of one block: which they are, and the law of their noise.

The noises of a block are independent and symmetric, so a combination with weights 1 and -1 of k of
them, all of one scale, has the law of a sum of k. A sum that is a multiple of another, such as
4 K^2 times a number of rows, is divided by it: what it bounds is a whole number again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.error_rates import bonferroni
from dpstats.families.block import Block
from dpstats.measured.combining import Sources

UNKNOWN = "nothing that limits it"


@dataclass(frozen=True, eq=False)
class Sums:
    """The d sums of a block, each from some measured functions."""

    block: Block
    members: tuple[Codes, ...]  # (k,) each: numbers in `Sources` of functions of one scale
    signs: Codes  # (k,) weights of the members, 1 or -1
    unit: int = 1  # the combination is so many times the function's sum

    @property
    def measured(self) -> bool:
        """True if the functions are themselves measured ones."""
        return self.unit == 1 and all(len(own) == 1 for own in self.members)

    def variance(self, sources: Sources) -> float:
        """Largest variance of the noise on a function, in units of its sum."""
        return max(float(sources.variances[own].sum()) for own in self.members) / self.unit**2

    def ends(self, sources: Sources, error: float) -> tuple[Floats, Floats]:
        """Whole numbers (d,) that each sum is between, but for a probability `error` at most."""
        law, lows, highs = sources.measurements.budget.law, [], []
        for own in self.members:
            total = int(sources.sums[own] @ self.signs)
            q = int(law(float(sources.scales[own[0]]), len(own)).quantile(error))
            lows.append(-((q - total) // self.unit))  # rounded up
            highs.append((total + q) // self.unit)
        return np.array(lows, dtype=np.float64), np.array(highs, dtype=np.float64)


def joint_ends(
    sources: Sources, sums: Sequence[Sums], alpha: float, *, with_count: bool
) -> tuple[Floats, Floats, tuple[float, float] | None]:
    """Bounds (d,) on all sums, and on the number of rows if asked, jointly (Bonferroni)."""
    law = sources.rows.law if with_count else None
    each = bonferroni(alpha, sum(one.block.size for one in sums) + (law is not None))
    rows = None
    if law is not None:
        low, high = sources.rows.within(law.quantile(each))
        rows = (float(low), float(high))
    lows, highs = zip(*(one.ends(sources, each) for one in sums), strict=True)
    return np.concatenate(lows), np.concatenate(highs), rows


def known_from(sources: Sources, blocks: Iterable[Block]) -> str:
    """Name the columns of the measured functions that an interval is known from."""
    used = {column for block in blocks for column in block.columns}
    names = [column.name for column in sources.measurements.schema if column in used]
    return f"measured functions of {', '.join(names)}" if names else UNKNOWN
