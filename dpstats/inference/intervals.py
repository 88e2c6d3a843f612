"""The protocol of all intervals: what a result needs from the law of its estimates."""

from __future__ import annotations

from typing import Protocol

from dpstats.arrays import Floats
from dpstats.checks import Alternative, Method, Target


class Intervals(Protocol):
    """How one kind of estimate gets its intervals and tests."""

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays."""

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """Noise-aware p-values (d,) of: each parameter equals `value`."""

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Limits that hold jointly for all d parameters with probability 1 - alpha."""

    def first(self, count: int) -> Intervals:
        """The same for the first few parameters."""
