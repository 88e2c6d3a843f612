"""Results of chi-square tests: calibrated p-value, classical statistic, certified verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Method, check_alpha, check_choice
from dpstats.corrected.verdicts import CertifiedChiSquare
from dpstats.results.base import HypothesisResult
from dpstats.results.rendering import as_html, shown_pvalue

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class ChiSquareResult(Cached, HypothesisResult):
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
    effect_name : str
        Cohen's w, sqrt(sum (p - p0)^2 / p0), or Cramer's V.
    effect : float
        Its estimate without the noise's part, from 0 to `largest_effect`.
    levels : int
        The squared effect is the statistic over n times this: min(R, C) - 1 for Cramer's V, else 1.
    largest_effect : float
    at_level : function of alpha
        The certified verdict at a level, and the noise-aware interval (2,) for the effect.
    """

    df: int
    cells: list[str]
    observed: Floats
    expected: Floats
    residuals: Floats
    classical: str
    pearson: float
    pearson_pvalue: float
    effect_name: str
    effect: float
    levels: int
    largest_effect: float
    at_level: Callable[[float], tuple[CertifiedChiSquare, Floats]]

    def _at(self, alpha: float) -> tuple[CertifiedChiSquare, Floats]:
        alpha = check_alpha(alpha)
        certified, effect = self._once(alpha, lambda: self.at_level(alpha))
        return certified, effect.copy()

    @property
    def interval_of(self) -> str:
        """What the interval is of."""
        return self.effect_name

    @property
    def certified(self) -> CertifiedChiSquare:
        """The certified verdict at alpha = 0.05."""
        return self._at(0.05)[0]

    @property
    def effect_interval(self) -> Floats:
        """Noise-aware 95% interval (2,) for the effect size."""
        return self._at(0.05)[1]

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
        certified, effect = self._at(alpha)
        if method == "noise_aware":
            return effect
        squares = np.array([certified.low, certified.high]) / certified.sizes[::-1] / self.levels
        return np.asarray(np.minimum(np.sqrt(squares), self.largest_effect))

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

    def summary(self, *, alpha: float = 0.05, most: int = 40) -> str:
        """Text of the result.

        Parameters
        ----------
        alpha : float
            Error probability of the certified verdict and of the interval for the effect.
        most : int
            Largest number of cells to print; `to_frame` has them all.
        """
        width = max(len("cell"), *(len(cell) for cell in self.cells[:most]))
        lines = [
            self.title,
            f"null hypothesis: {self.null}",
            "",
            *self._found_at(alpha),
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
        return "\n".join([*lines, "", *self._remarks()])

    def _found_at(self, alpha: float) -> list[str]:
        certified, (low, high) = self._at(alpha)
        classical = shown_pvalue(self.pearson_pvalue)
        return [
            f"p-value {shown_pvalue(self.pvalue)} (statistic {self.statistic:.4g}, calibrated for "
            "noise)",
            f"{self.classical} statistic of the noisy counts: {self.pearson:.2f} on {self.df} df "
            f"(p-value {classical} if there were no noise; not valid here)",
            str(certified),
            f"{self.effect_name} = {self.effect:.4f} "
            f"[{low:.4f}, {high:.4f}] ({100 * (1 - alpha):g}% interval)",
        ]

    def _remarks(self) -> list[str]:
        return [self.footer, *(f"Note: {note}" for note in self.notes)]

    def _repr_html_(self) -> str:
        frame = self.to_frame().head(40)
        table = frame.to_html(index=False, float_format="{:.2f}".format)
        lines = [f"null hypothesis: {self.null}", *self._found_at(0.05)]
        return as_html(self.title, lines, table, self._remarks())


def noise_notes(excess: float, df: int, expected: Floats) -> list[str]:
    """What noise and small cells do to a chi-square test.

    `excess` is the noise's mean part of Pearson's statistic, beside `df` of sampling.
    """
    share = excess / (excess + df)
    notes = []
    if share > 0.5:
        notes.append(
            f"privacy noise is {share:.0%} of the chance variation of Pearson's statistic: a "
            "large p-value says little here; look at the interval for the effect"
        )
    if expected.min() < 5:
        notes.append(
            f"{int(np.sum(expected < 5))} cells expect fewer than 5 rows; the calibrated p-value "
            "allows for that, the classical chi-square approximation does not"
        )
    return notes


def standardised(departures: Floats, sampling: Floats, noise_variance: Floats) -> Floats:
    """Observed less expected counts over their standard deviation under the null, (d,)."""
    return np.asarray(departures / np.sqrt(np.maximum(sampling + noise_variance, 1e-300)))
