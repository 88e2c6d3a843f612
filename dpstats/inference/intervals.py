"""The protocol of all intervals: what a result needs from the law of its estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative, Method, Target
from dpstats.spending import bonferroni

FEWEST = 5  # draws beyond both limits, from which a limit may be read off draws


class Intervals(Protocol):
    """How one kind of estimate gets its intervals and tests: what `EstimateResult` is made with.

    Any class with these methods will do; see ``docs/how-to/analyse/your-own-analysis.md``.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> def width(intervals: dps.Intervals, alpha: float) -> float:
    ...     low, high = intervals.conf_int(alpha, "certified", "table")
    ...     return float((high - low).max())
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> intervals = dps.release(plan, rows).infer("smoking").intervals
    >>> 0 < width(intervals, 0.1) < width(intervals, 0.05) < 0.01
    True
    """

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays, nested in alpha; infinite where unknown."""

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """Noise-aware p-values (d,) of: each parameter equals `value`."""

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Limits that hold jointly for all d parameters with probability 1 - alpha."""

    def subset(self, chosen: slice) -> Intervals:
        """The same for some of the parameters."""


@dataclass(frozen=True)
class Several:
    """Intervals of parameters that each have their own, of one parameter."""

    parts: tuple[Intervals, ...]

    @property
    def range_widths(self) -> Floats:
        """(d,) of all values that the parameters can have."""
        return np.concatenate(
            [np.atleast_1d(getattr(x, "range_widths", np.inf)) for x in self.parts]
        )

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays."""
        ends = [part.conf_int(alpha, method, target) for part in self.parts]
        return np.concatenate([low for low, _ in ends]), np.concatenate([high for _, high in ends])

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Simultaneous limits, by Bonferroni's inequality."""
        return self.conf_int(bonferroni(alpha, len(self.parts)), method, target)

    def subset(self, chosen: slice) -> Several:
        """Intervals of some of the parameters."""
        return Several(self.parts[chosen])

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each equals `value`."""
        return np.concatenate([part.pvalues(value, alternative) for part in self.parts])


def reached(alpha: float, draws: int) -> bool:
    """Whether enough draws lie beyond a level, so that limits may be read off them."""
    return draws >= FEWEST / alpha


def wider(ends: tuple[Floats, Floats], others: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The least interval that contains both of two: it errs no more often than either."""
    return np.minimum(ends[0], others[0]), np.maximum(ends[1], others[1])


def with_far_tails(
    ends: tuple[Floats, Floats],
    alpha: float,
    draws: int,
    certified: Callable[[], tuple[Floats, Floats]],
) -> tuple[Floats, Floats]:
    """Limits that were read off draws, widened to certified ones where the draws end.

    Fewer than `FEWEST` of the draws lie beyond a level below FEWEST / draws, and the quantile there
    is that of the extreme draw. Certified limits at the same alpha need no draws.
    """
    return ends if reached(alpha, draws) else wider(ends, certified())
