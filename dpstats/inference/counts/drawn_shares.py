"""Shares in one or two groups whose noisy counts share noise, by draws from its joint law.

Counts that are combined from overlapping tables are combinations of the same measured noises. The
tests of `group_counts` and `two_risks` need independent ones; draws do not. See "Counts that share
noise" in docs/explanation/inference/shares-and-tables.md, whose equations are cited here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative
from dpstats.inference.counts.risk_measures import MEASURES, measure_of
from dpstats.inference.intervals import with_far_tails
from dpstats.inference.simulation import calibration_seed, draw_evenly

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers

DRAWS = 20_000


@dataclass(frozen=True)
class DrawnShares(Cached):
    """The share of one group, or the three measures of the shares of two.

    Attributes
    ----------
    answers : Answers
        Of each group the rows with the trait, then those without.
    """

    least_pvalue: ClassVar[float] = 2 / DRAWS

    answers: Answers

    def interval(
        self,
        alpha: float,
        certified: Callable[[], tuple[Floats, Floats]],
        *,
        sampled: bool = True,
    ) -> tuple[Floats, Floats]:
        """Ends (d,) between which all but alpha/2 of the draws on either side lie.

        Of the population where rows are `sampled`, else of the private table. Where few draws are
        left beyond them, they are widened to the `certified` ones.
        """
        draws = self._once(sampled, lambda: self._sorted(sampled=sampled))
        beyond = int(alpha / 2 * DRAWS)
        largest = np.max(draws, axis=1, where=np.isfinite(draws), initial=0)  # no lower end is inf
        ends = np.minimum(draws[:, beyond], largest), draws[:, DRAWS - 1 - beyond]
        return with_far_tails(ends, alpha / 2, DRAWS, certified)

    def pvalue(self, i: int, value: float, alternative: Alternative) -> float:
        """P-value that parameter number i of the population equals `value`, at least 1 / DRAWS.

        At most alpha exactly where the interval excludes the value.
        """
        draws = self._once(True, lambda: self._sorted(sampled=True))[i]
        larger = max(int(np.searchsorted(draws, value, "right")), 1) / DRAWS
        smaller = max(DRAWS - int(np.searchsorted(draws, value, "left")), 1) / DRAWS
        if alternative == "two-sided":
            return min(1.0, 2 * min(larger, smaller))
        return larger if alternative == "larger" else smaller

    def _sorted(self, *, sampled: bool) -> Floats:
        """Draws (d, DRAWS) of the parameters in order."""
        answers = self.answers
        rng = np.random.default_rng(calibration_seed(answers, answers.names[0]))
        noise = np.zeros((len(answers.sums), DRAWS))
        for weights, law in answers.noise_parts:
            noise += np.outer(weights, draw_evenly(law, DRAWS, rng))
        most = answers.rows.exact or np.inf
        counts = np.clip(answers.sums[:, np.newaxis] - noise, 0, most)  # (1)
        shares = [
            _shares(yes, no, rng, sampled=sampled)
            for yes, no in zip(counts[::2], counts[1::2], strict=True)
        ]
        if len(shares) == 1:
            return np.sort(np.array(shares))
        first, second = shares
        found = np.array([measure_of(first, second, measure) for measure in MEASURES])
        # 0/0 says nothing: it counts one half at either end
        ends = np.where(rng.permutation(np.arange(DRAWS) % 2), np.inf, 0.0)
        return np.sort(np.where(np.isnan(found), ends, found))


def _shares(yes: Floats, no: Floats, rng: np.random.Generator, *, sampled: bool) -> Floats:
    """Draws of a share from draws of its two counts, at least 0."""
    either = rng.permutation(np.arange(DRAWS) % 2)
    if not sampled:
        return np.where(yes + no > 0, yes / np.maximum(yes + no, 1e-300), either)
    a, b = yes + either, no + 1 - either  # (2)
    inside = rng.beta(np.maximum(a, 1e-9), np.maximum(b, 1e-9))
    return np.where(a <= 0, 0.0, np.where(b <= 0, 1.0, inside))
