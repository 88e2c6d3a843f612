"""The expected error of synthetic rows, and what a theorem promises for the same noise and n."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpstats.checks import counted
from dpstats.measured.certificate import answering, certify, published_answers
from dpstats.measured.measurements import Measurements
from dpstats.results.rendering import significant
from dpstats.theory.sampling import ReferenceSampling

_FAILURE = 0.05


@dataclass(frozen=True)
class ExpectedAccuracy:
    """Errors of synthetic rows, unit scale: the largest over all measured functions that answer.

    Attributes
    ----------
    delta : float
        The median of the largest noise on an answer, from the noise laws. Rows that are fitted to
        the answers end at a third of it (large noise) to 1.3 times it (few functions): a figure for
        planning, and no bound.
    functions : int
    promised : float or None
        What Theorem II.1 of BL24 promises with probability 95% for the minimax fit, independent
        rows and enough of them and of candidates. Infinite if that is no less than functions can
        differ by; None if its assumptions do not hold: Laplace noise and a public n.
    """

    delta: float
    functions: int
    promised: float | None

    def __str__(self) -> str:
        noise = counted(self.functions, "function")
        lines = [
            f"Synthetic rows: expected delta {significant(self.delta)}, the median of the largest "
            f"noise on {noise}."
        ]
        if self.promised is not None:
            promise = "nothing at this n"
            if math.isfinite(self.promised):
                promise = f"{self.promised:.2g} with probability 95%"
                if self.delta > 0:
                    promise += f", {round(self.promised / self.delta)} times as much"
            lines.append(f"Theorem II.1 of Bojkovic & Loh (2024) promises {promise}.")
        return "\n".join(lines)


def expected_accuracy(measurements: Measurements) -> ExpectedAccuracy:
    """Expected and promised errors under a strategy, given simulated measurements at its n."""
    tables = measurements.strategy.tables
    means = published_answers(measurements).means if tables else measurements.means
    accuracy = certify(measurements, means, alpha=0.5, target="rows")
    strategy, promised = measurements.strategy, None
    if strategy.unit == "replace" and strategy.budget.noise == "laplace":
        promised = _promised(measurements)
    return ExpectedAccuracy(accuracy.delta, int(answering(strategy.published).sum()), promised)


def _promised(measurements: Measurements) -> float:
    """Promise of the theorem for noise of one scale, the largest of the measured functions."""
    family = measurements.family
    scale = float(np.max(measurements.scales / family.bounds))  # of a sum, unit scale
    theorem = ReferenceSampling(
        epsilon=2 * family.size / scale,  # at which 2 |F| / epsilon is that scale
        gamma=_FAILURE / 4,
        functions=family.size,
        condition_number=1,  # it decides the number of candidates only
    )
    promised = 8 * theorem.delta(measurements.n)
    widest = max(float(np.max((b.ranges[1] - b.ranges[0]) / b.bounds)) for b in family.blocks)
    return promised if promised < widest else math.inf
