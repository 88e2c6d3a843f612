"""The expected error of synthetic rows, and what a theorem promises for the same noise and n."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpstats.checks import counted
from dpstats.measured.certificate import block_of_largest, certify, published_answers
from dpstats.measured.measurements import Measurements
from dpstats.results.rendering import significant
from dpstats.theory.sampling import ReferenceSampling

SCALED = "means of functions with values between -1 and 1: for a table, shares of the rows"
_FAILURE = 0.05
_THEOREM = "Theorem II.1 of Bojkovic & Loh (2024)"
_GIVEN = "for the minimax fit, independent rows, and enough candidates and synthetic rows."


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
        differ by; None if its assumptions do not hold: Laplace noise, a public n, and candidates
        from a density that is fixed beforehand.
    lacking : str
        The first of these assumptions that does not hold, or "".
    whose : str
        Which block the largest error is that of, and the error of the tables alone.
    """

    delta: float
    functions: int
    promised: float | None
    lacking: str = ""
    whose: str = ""

    def lines(self, *, theory: bool = True) -> list[str]:
        """Sentences, with or without those on the theorem."""
        noise = counted(self.functions, "function")
        expected = (
            f"Synthetic rows: expected error (delta) {significant(self.delta)}, the median of the "
            f"largest noise on {noise}{self.whose and '; ' + self.whose}; {SCALED}."
        )
        if not theory:
            return [expected]
        if self.promised is None:
            return [expected, f"{_THEOREM} promises nothing here: it is for {self.lacking}."]
        if not math.isfinite(self.promised):
            return [expected, f"{_THEOREM} promises nothing at this n."]
        times = f", {round(self.promised / self.delta)} times as much" if self.delta else ""
        promise = f"{self.promised:.2g} with probability 95%{times}"
        return [expected, f"{_THEOREM} promises {promise}, {_GIVEN}"]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def expected_accuracy(measurements: Measurements, *, fixed: bool) -> ExpectedAccuracy:
    """Expected and promised errors under a strategy, given simulated measurements at its n.

    `fixed` is whether candidates come from a density that is fixed beforehand. One that is measured
    or fitted depends on the rows, which the theorem does not allow.
    """
    means = published_answers(measurements).means
    accuracy = certify(measurements, means, alpha=0.5, target="rows")
    strategy = measurements.strategy
    assumptions = {
        "Laplace noise": strategy.budget.noise == "laplace",
        'a public number of rows, unit="replace"': strategy.unit == "replace",
        "candidates from a density fixed beforehand, such as dps.Uniform()": fixed,
    }
    lacking = next((what for what, holds in assumptions.items() if not holds), "")
    promised = None if lacking else _promised(measurements)
    functions = strategy.published.answering.size
    whose = block_of_largest(accuracy.block, accuracy.of_tables)
    return ExpectedAccuracy(accuracy.delta, functions, promised, lacking, whose)


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
