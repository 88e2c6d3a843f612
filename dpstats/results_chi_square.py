"""Results of chi-square tests: calibrated p-value, classical statistic, certified verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_args

import numpy as np

from dpstats.families.block import Floats
from dpstats.inference.checks import check_alpha, check_choice
from dpstats.inference.verdicts import CertifiedChiSquare
from dpstats.results import HypothesisResult, Method

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class ChiSquareResult(HypothesisResult):
    """A chi-square test on noisy counts.

    `statistic` and `pvalue` are those of the calibrated test. All tables have one row per cell.

    Attributes
    ----------
    df : int
        Degrees of freedom of the classical statistic.
    cells : list of str
    observed, expected, residuals : (d,) float64
        Noisy counts, expected counts under the null, and residuals divided by their standard
        deviation (sampling and privacy noise).
    classical : str
        Name of the classical statistic: Pearson's, or Cochran-Mantel-Haenszel's with strata.
    pearson : float
        That statistic of the noisy counts, not calibrated for noise; for comparison.
    pearson_pvalue : float
        What the chi-square distribution would say of it.
    effect : float
        Cramer's V (or its analogue for a given distribution), estimated without the noise's part.
    at_level : function of alpha
        The certified verdict at a level, and the noise-aware interval (2,) for the effect.
    notes : tuple of str
    """

    df: int
    cells: list[str]
    observed: Floats
    expected: Floats
    residuals: Floats
    classical: str
    pearson: float
    pearson_pvalue: float
    effect: float
    at_level: Callable[[float], tuple[CertifiedChiSquare, Floats]]
    notes: tuple[str, ...] = ()

    @cached_property
    def _at_five_percent(self) -> tuple[CertifiedChiSquare, Floats]:
        return self.at_level(0.05)

    @property
    def certified(self) -> CertifiedChiSquare:
        """The certified verdict at alpha = 0.05."""
        return self._at_five_percent[0]

    @property
    def effect_interval(self) -> Floats:
        """Noise-aware 95% interval (2,) for the effect size."""
        return self._at_five_percent[1]

    def conf_int(self, *, alpha: float = 0.05, method: Method = "noise_aware") -> Floats:
        """Interval (2,) for the effect size at level 1 - alpha.

        Parameters
        ----------
        alpha : float
            Error probability, in (0, 1/2].
        method : {"noise_aware", "certified"}
            Of the population's effect, or of the private table's own: the certified interval of
            the statistic on the scale of the effect.
        """
        check_choice("method", method, get_args(Method))
        at_default = check_alpha(alpha) == 0.05
        certified, effect = self._at_five_percent if at_default else self.at_level(alpha)
        if method == "noise_aware":
            return effect
        return np.asarray(np.sqrt(np.array([certified.low, certified.high]) / self.expected.sum()))

    def to_frame(self) -> pd.DataFrame:
        """One row per cell."""
        import pandas as pd

        return pd.DataFrame(
            {
                "cell": self.cells,
                "observed": self.observed,
                "expected": self.expected,
                "residual": self.residuals,
            }
        )

    def summary(self, *, most: int = 40) -> str:
        """Text of the result; at most so many cells."""
        width = max(len("cell"), *(len(cell) for cell in self.cells[:most]))
        lines = [
            self.title,
            f"null hypothesis: {self.null}",
            "",
            f"p-value = {self.pvalue:.4g} (statistic {self.statistic:.4g}, calibrated for noise)",
            f"{self.classical} statistic of the noisy counts: {self.pearson:.2f} on {self.df} df "
            f"(p-value {self.pearson_pvalue:.4g} if there were no noise; not valid here)",
            str(self.certified),
            f"Cramer's V = {self.effect:.4f} "
            f"[{self.effect_interval[0]:.4f}, {self.effect_interval[1]:.4f}]",
            "",
            f"{'cell':<{width}}  {'observed':>10}  {'expected':>10}  {'residual':>8}",
        ]
        lines += [
            f"{row.cell:<{width}}  {row.observed:>10.1f}  {row.expected:>10.1f}  "
            f"{row.residual:>8.2f}"
            for row in self.to_frame().head(most).itertuples(index=False)
        ]
        if len(self.cells) > most:
            lines.append(f"... {len(self.cells) - most} more cells in to_frame()")
        return "\n".join([*lines, "", self.footer, *(f"Note: {note}" for note in self.notes)])


def standardised(departures: Floats, sampling: Floats, noise_variance: Floats) -> Floats:
    """Observed less expected counts over their standard deviation under the null, (d,)."""
    return departures / np.sqrt(np.maximum(sampling + noise_variance, 1e-300))
