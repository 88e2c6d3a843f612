"""The three-way verdict of a certified chi-square test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["reject", "accept", "inconclusive"]


@dataclass(frozen=True)
class CertifiedChiSquare:
    """A verdict that holds for any noise-limited table, in finite samples.

    Attributes
    ----------
    verdict : {"reject", "accept", "inconclusive"}
    low, high : float
        Interval for the chi-square statistic of the private table itself.
    critical : float
        The statistic rejects above it at level alpha - beta.
    alpha, beta : float
        Error in all, and its part that the interval uses.
    """

    verdict: Verdict
    low: float
    high: float
    critical: float
    alpha: float
    beta: float

    def __str__(self) -> str:
        return (
            f"certified at alpha = {self.alpha:g}: {self.verdict} (statistic of the private table "
            f"in [{self.low:.2f}, {self.high:.2f}], critical value {self.critical:.2f})"
        )
