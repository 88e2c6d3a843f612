"""The density closest to the reference in relative entropy, with a penalty on the misfit.

With rows of A and b divided by the noise standard deviations, the weights minimise
KL(h || mu) + |A h - b|^2 / (2 s2). The dual is smooth, with one variable per function:
minimise log E_mu exp(A'y) - b'y + s2 |y|^2 / 2; at its optimum h is proportional to
mu exp(A'y) and A h - b = -s2 y. Solved by Newton's method with conjugate gradients, never
storing A.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.families.block import FamilyValues, Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TOLERANCE = 1e-3  # largest dual gradient, in noise standard deviations
MAX_NEWTON = 100
MAX_CG = 250
EXACT_FREEDOM = 600  # up to so many functions the trace in the risk is computed exactly
PROBES = 4
PROBE_ACCURACY = 0.05
PATH_RATIO = 4.0
PATH_LENGTH = 16
FLAT = 0.01  # a risk per function that falls by less than this has stopped falling


@dataclass(frozen=True)
class EntropyFit:
    """Weights and how the fit ended.

    Attributes
    ----------
    density : (m,) float64
        Positive, sums to one.
    penalty : float
        s2, the one that was used.
    gradient : float
        Largest entry of the dual gradient, in noise standard deviations.
    converged : bool
    """

    density: Floats
    penalty: float
    gradient: float
    converged: bool


def fit_entropy(
    values: FamilyValues, reference: Floats, means: Floats, standard_deviations: Floats
) -> EntropyFit:
    """Fit the weights, with the penalty that Stein's unbiased risk estimate prefers.

    The fit is repeated along s2 = 4/sigma, 1/sigma, ..., each started at the last, until
    |A h - b|^2 - |F| + 2 tr(C (C + s2 I)^-1) stops falling, C being the covariance of the scaled
    functions under h; the fit with the least value is kept. That estimates the squared error of
    A h without bias for Gaussian noise and is a heuristic for Laplace noise. It looks at released
    values only, so it costs no privacy; the certificate holds whatever it chooses.

    Parameters
    ----------
    values : FamilyValues
        The |F| functions at the m candidates.
    reference : (m,) float64
        mu, positive weights that sum to one.
    means : (|F|,) float64
        Noisy means b, unit scale, unclipped.
    standard_deviations : (|F|,) float64
        Of the noise on the means.
    """
    dual = _Dual(values, reference, means, standard_deviations)
    s2 = 4.0 / float(np.median(standard_deviations))
    best = dual.minimise(np.zeros(len(means)), s2)
    best_risk = dual.risk(best)
    for _ in range(PATH_LENGTH):
        s2 /= PATH_RATIO
        point = dual.minimise(best.y, s2)
        risk = dual.risk(point)
        flat = risk > best_risk - FLAT * len(means)
        if point.converged and risk < best_risk:
            best, best_risk = point, risk
        if flat or not point.converged:
            break
    return EntropyFit(best.density, best.s2, best.worst, best.converged)


@dataclass(frozen=True)
class _Point:
    """A dual point: its density, the fitted means A h, and the gradient."""

    y: Floats
    s2: float
    objective: float
    density: Floats
    fitted: Floats
    gradient: Floats

    @property
    def worst(self) -> float:
        return float(np.abs(self.gradient).max())

    @property
    def converged(self) -> bool:
        return self.worst <= TOLERANCE


class _Dual:
    """The dual program; means in units of their noise standard deviations."""

    def __init__(
        self, values: FamilyValues, reference: Floats, means: Floats, deviations: Floats
    ) -> None:
        self.values = values
        self.log_reference = np.log(reference)
        self.scale = 1.0 / deviations
        self.target = means * self.scale

    def _objective(self, y: Floats, s2: float) -> tuple[float, Floats]:
        logits = self.values.combine(y * self.scale) + self.log_reference
        top = logits.max()
        density = np.exp(logits - top)
        total = density.sum()
        objective = top + np.log(total) - self.target @ y + s2 * (y @ y) / 2
        return float(objective), density / total

    def _point(self, y: Floats, s2: float, objective: float, density: Floats) -> _Point:
        fitted = self.values.average(density) * self.scale
        return _Point(y, s2, objective, density, fitted, fitted - self.target + s2 * y)

    def minimise(self, y: Floats, s2: float) -> _Point:
        """Newton's method from y with a backtracking line search."""
        point = self._point(y, s2, *self._objective(y, s2))
        for _ in range(MAX_NEWTON):
            if point.converged:
                break
            norm = float(np.linalg.norm(point.gradient))
            accuracy = min(0.3, np.sqrt(norm / np.sqrt(len(y)))) * norm
            step = self._solve(point, -point.gradient, accuracy)
            following = self._along(point, step)
            if following is None:
                break
            point = following
        return point

    def _along(self, point: _Point, step: Floats) -> _Point | None:
        """The first point that descends, halving the step; None if there is none.

        With little noise the objective is flat to rounding before the gradient is small enough;
        there the gradient decides.
        """
        slope, length = float(point.gradient @ step), 1.0
        rounding = 1e-14 * (1 + abs(float(self.target @ point.y)))
        while length >= 1e-8:
            y = point.y + length * step
            objective, density = self._objective(y, point.s2)
            gain = point.objective - objective
            descends = gain > 0 and gain >= -1e-4 * length * slope
            if descends or gain >= -rounding:
                trial = self._point(y, point.s2, objective, density)
                if descends or np.linalg.norm(trial.gradient) < np.linalg.norm(point.gradient):
                    return trial
            length /= 2
        return None

    def risk(self, point: _Point) -> float:
        """Stein's risk estimate: misfit, minus |F|, plus twice the degrees of freedom."""
        misfit = point.fitted - self.target
        return float(misfit @ misfit - len(misfit) + 2 * self._freedom(point))

    def _freedom(self, point: _Point) -> float:
        """tr(C (C + s2 I)^-1), exactly for small families, else from random signs (Hutchinson)."""
        if len(point.y) <= EXACT_FREEDOM:
            weighted = self._matrix.multiply(np.sqrt(point.density))
            moments = (weighted @ weighted.T).toarray() * np.outer(self.scale, self.scale)
            spectrum = np.linalg.eigvalsh(moments - np.outer(point.fitted, point.fitted))
            spectrum = np.clip(spectrum, 0, None)
            return float(np.sum(spectrum / (spectrum + point.s2)))
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(PROBES, len(point.y)))
        solved = [self._solve(point, z, PROBE_ACCURACY * len(z) ** 0.5) for z in signs]
        return len(point.y) - point.s2 * float(np.mean(np.sum(signs * solved, axis=1)))

    @cached_property
    def _matrix(self) -> csr_array[Any]:
        return self.values.matrix()

    def _solve(self, point: _Point, right: Floats, accuracy: float) -> Floats:
        """Solve (C + s2 I) x = right by preconditioned conjugate gradients.

        The preconditioner is the diagonal for indicators, a (1 - a) + s2 in their own units.
        """
        share = np.clip(np.abs(point.fitted / self.scale), 0, 1)
        diagonal = np.maximum(share * (1 - share), 1e-12) * self.scale**2 + point.s2
        x = np.zeros_like(right)
        residual = right
        conjugate = direction = residual / diagonal
        product = float(residual @ conjugate)
        for _ in range(MAX_CG):
            spread = self.values.combine(direction * self.scale)
            centred = point.density * (spread - point.density @ spread)
            image = self.values.average(centred) * self.scale + point.s2 * direction
            length = product / float(direction @ image)
            x = x + length * direction
            residual = residual - length * image
            if np.linalg.norm(residual) <= accuracy:
                break
            conjugate = residual / diagonal
            following = float(residual @ conjugate)
            direction = conjugate + following / product * direction
            product = following
        return x
