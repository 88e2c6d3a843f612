"""The three-way verdict of a certified chi-square test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["reject", "accept", "inconclusive"]


@dataclass(frozen=True)
class CertifiedChiSquare:
    """A verdict from bounds on the private table's own statistic, which hold for any data.

    For given probabilities the critical value is valid in finite samples; for independence it is
    the chi-square quantile, and there is a verdict only where it is accurate.

    Attributes
    ----------
    verdict : {"reject", "accept", "inconclusive"}
    low, high : float
        Interval for the chi-square statistic of the private table itself.
    critical : float
        The statistic rejects above it at level alpha - beta.
    alpha, beta : float
        Total error, and its share that the interval uses.
    sizes : (int, int)
        Bounds on the number of rows, equal where it is public.
    reason : str
        Why there is no verdict though the interval lies on one side of the critical value, or "".
    """

    verdict: Verdict
    low: float
    high: float
    critical: float
    alpha: float
    beta: float
    sizes: tuple[int, int]
    reason: str = ""

    def __str__(self) -> str:
        return (
            f"certified at alpha = {self.alpha:g}: {self.verdict} (the statistic of the private "
            f"table is between {self.low:.2f} and {self.high:.2f}; the test rejects above "
            f"{self.critical:.2f})" + (f": {self.reason}" if self.reason else "")
        )
