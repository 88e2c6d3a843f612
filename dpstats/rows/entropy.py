"""The density closest to the reference in relative entropy, with a penalty on the misfit.

With rows of A and b divided by the noise standard deviations, the weights minimise
KL(h || mu) + |A h - b|^2 / (2 s2). The dual is smooth, with one variable per function:
minimise log E_mu exp(A'y) - b'y + s2 |y|^2 / 2; at its optimum h is proportional to
mu exp(A'y) and A h - b = -s2 y (eq. 1 to 4 of docs/explanation/synthetic-rows/generator.md).
Solved by Newton's method with conjugate gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.families.block import Family, FamilyValues
from dpstats.measured.certificate import published_answers
from dpstats.rows.drawing import systematic
from dpstats.rows.products import Products

if TYPE_CHECKING:
    from dpstats.measured.measurements import Measurements

TOLERANCE = 1e-3  # largest dual gradient, in noise standard deviations
ROUGH = 0.1  # the same, of fits that only choose the penalty
MAX_NEWTON = 100
MAX_CG = 250
EXACT_FREEDOM = 600  # up to this many functions C is computed, and its trace in the risk exactly
PROBES = 4
PROBE_ACCURACY = 0.05
PATH_RATIO = 4.0
PATH_LENGTH = 16
SAMPLED, LEAST_SAMPLED = 16, 100_000  # candidates in a sample, per function and in all
MANY = 4  # times as many candidates as in a sample are sampled to choose the penalty
FLAT = 0.01  # a risk per function that falls by less than this has stopped falling


def fit_entropy(
    values: FamilyValues,
    reference: Floats,
    means: Floats,
    standard_deviations: Floats,
) -> EntropyFit:
    """Fit the weights, with the penalty that Stein's unbiased risk estimate prefers.

    The fit is repeated along s2 = 4/sigma, 1/sigma, ..., each started at the last, until
    |A h - b|^2 - |F| + 2 tr(C (C + s2 I)^-1) stops falling (eq. 15), C being the covariance of the
    scaled functions under h; the fit with the least value is kept. That estimates the squared error
    of A h without bias for Gaussian noise and is a heuristic for Laplace noise. It uses released
    values only, so it costs no privacy, and the certificate holds for any penalty.

    Of many candidates a sample, drawn from the first fit, serves to choose the penalty and to
    estimate the risk; the fit with that penalty is over all of them.

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
    none = np.zeros(len(means))
    size = max(SAMPLED * len(means), LEAST_SAMPLED)
    if len(reference) > MANY * size:
        first = dual.minimise(none, s2, ROUGH)
        chosen = _least_risk(dual.sampled(first, size), first.y, s2, ROUGH)
        point = dual.minimise(chosen.y, chosen.s2)
        if point.converged:
            return point
    return _least_risk(dual, none, s2, TOLERANCE)


def _least_risk(dual: _Dual, y: Floats, s2: float, tolerance: float) -> EntropyFit:
    """The point with the least risk along falling penalties, each search started at the last."""
    best = dual.minimise(y, s2, tolerance)
    best_risk = dual.risk(best)
    for _ in range(PATH_LENGTH):
        s2 /= PATH_RATIO
        point = dual.minimise(best.y, s2, tolerance)
        risk = dual.risk(point)
        flat = risk > best_risk - FLAT * len(y)
        if point.converged and risk < best_risk:
            best, best_risk = point, risk
        if flat or not point.converged:
            break
    return best


def fit_with_penalty(
    values: FamilyValues,
    reference: Floats,
    means: Floats,
    standard_deviations: Floats,
    penalty: Floats,
    tolerance: float = TOLERANCE,
) -> EntropyFit:
    """Fit the weights with given penalties.

    Parameters
    ----------
    values, reference, means, standard_deviations
        As in `fit_entropy`.
    penalty : (|F|,) float64
        s2 of each function: the penalty on the dual is the sum of s2 y^2 / 2.
    tolerance : float
        Largest entry of the gradient, in noise standard deviations.
    """
    dual = _Dual(values, reference, means, standard_deviations)
    return dual.minimise(np.zeros(len(means)), penalty, tolerance)


def usable_deviations(measurements: Measurements, deviations: Floats | None = None) -> Floats:
    """Noise standard deviations of the means (or others), at least one row.

    Rows are whole: to fit answers of less noise (a huge budget) gains nothing and rests the density
    on few candidates, which spoils all that was not measured.
    """
    given = measurements.standard_deviations if deviations is None else deviations
    return np.maximum(given, 1 / measurements.n)


def targets(measurements: Measurements) -> tuple[Family, Floats, Floats]:
    """The functions that a density is fitted to, their noisy means and standard deviations.

    Functions as they were measured; but tables that follow from residuals by their combined
    answers. Then a strong association of two levels is one function, which the fit may trust by
    itself; it is spread over many functions of a residual. That their noises are dependent costs
    the density little, and certificates and intervals nothing: they do not use the fit.
    """
    if not measurements.strategy.tables:
        at = measurements.strategy.places
        return measurements.published, measurements.means[at], usable_deviations(measurements)[at]
    answers = published_answers(measurements)
    deviations = usable_deviations(measurements, np.sqrt(answers.noise_variances))
    return measurements.published, answers.means, deviations


@dataclass(frozen=True)
class EntropyFit:
    """A dual point with its density, and how the search for it ended."""

    y: Floats  # (|F|,); the density is the reference times exp(A'y), A scaled by the noise
    s2: float | Floats  # the penalty, or that of each function
    objective: float
    density: Floats  # (m,): positive, sums to one
    fitted: Floats  # (|F|,): A h
    gradient: Floats  # (|F|,), in noise standard deviations
    tolerance: float

    @property
    def worst(self) -> float:
        """Largest entry of the gradient, in absolute value."""
        return float(np.abs(self.gradient).max())

    @property
    def converged(self) -> bool:
        """True if no entry is above the tolerance."""
        return self.worst <= self.tolerance


class _Dual:
    """The dual program; means in units of their noise standard deviations."""

    def __init__(
        self,
        values: FamilyValues,
        reference: Floats,
        means: Floats,
        deviations: Floats,
        tilt: Floats | None = None,
    ) -> None:
        self.values = values
        self.log_reference = np.log(reference)
        self.means, self.deviations = means, deviations
        self.scale = 1.0 / deviations
        self.target = means * self.scale
        self.tilt = np.zeros(len(means)) if tilt is None else tilt
        self.products = Products(values, self.scale)

    def sampled(self, point: EntropyFit, size: int) -> _Dual:
        """Program over candidates drawn in equal steps from the density at a point.

        They have absorbed the point's y already (the tilt): only what is beyond it enters their
        weights, while the penalty stays on the whole of y. Were it on the rest alone, the risk
        would count too few degrees of freedom.
        """
        counts = systematic(point.density, size, np.random.default_rng(0))
        drawn = np.flatnonzero(counts)
        values, weights = self.values.at(drawn), counts[drawn] / size
        return _Dual(values, weights, self.means, self.deviations, point.y)

    def _objective(self, y: Floats, s2: float | Floats) -> tuple[float, Floats]:
        logits = self.products.combine(y - self.tilt) + self.log_reference
        top = logits.max()
        density = np.exp(logits - top)
        total = density.sum()
        objective = top + np.log(total) - self.target @ y + y @ (s2 * y) / 2
        return float(objective), density / total

    def _point(
        self,
        y: Floats,
        s2: float | Floats,
        objective: float,
        density: Floats,
        tolerance: float = TOLERANCE,
    ) -> EntropyFit:
        fitted = self.products.average(density)
        gradient = fitted - self.target + s2 * y
        return EntropyFit(y, s2, objective, density, fitted, gradient, tolerance)

    def minimise(self, y: Floats, s2: float | Floats, tolerance: float = TOLERANCE) -> EntropyFit:
        """Newton's method from y with a backtracking line search."""
        point = self._point(y, s2, *self._objective(y, s2), tolerance)
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

    def _along(self, point: EntropyFit, step: Floats) -> EntropyFit | None:
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
                trial = self._point(y, point.s2, objective, density, point.tolerance)
                if descends or np.linalg.norm(trial.gradient) < np.linalg.norm(point.gradient):
                    return trial
            length /= 2
        return None

    def risk(self, point: EntropyFit) -> float:
        """Stein's risk estimate: misfit, minus |F|, plus twice the degrees of freedom."""
        misfit = point.fitted - self.target
        return float(misfit @ misfit - len(misfit) + 2 * self._freedom(point))

    def _freedom(self, point: EntropyFit) -> float:
        """tr(C (C + s2 I)^-1), exactly for small families, else from random signs (Hutchinson)."""
        if len(point.y) <= EXACT_FREEDOM:
            covariance = self._covariance(point)
            shrink = 1 / np.sqrt(np.broadcast_to(point.s2, len(point.y)))
            spectrum = np.linalg.eigvalsh(covariance * np.outer(shrink, shrink))
            spectrum = np.clip(spectrum, 0, None)
            return float(np.sum(spectrum / (spectrum + 1)))
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(PROBES, len(point.y)))
        solved = [self._solve(point, z, PROBE_ACCURACY * len(z) ** 0.5) for z in signs]
        return len(point.y) - float(np.mean(np.sum(point.s2 * signs * solved, axis=1)))

    def _covariance(self, point: EntropyFit) -> Floats:
        """C, (|F|, |F|)."""
        second = self.products.gram(point.density)
        return np.asarray(second - np.outer(point.fitted, point.fitted))

    def _eliminated(self, point: EntropyFit, right: Floats) -> tuple[Floats, float] | None:
        """The solution x of (C + s2 I) x = right by elimination, and the length of its residual."""
        matrix = self._covariance(point)
        diagonal = np.maximum(np.diag(matrix), 0) + point.s2
        matrix[np.diag_indices(len(right))] = diagonal
        own = 1 / np.sqrt(diagonal)
        try:
            x = own * np.linalg.solve(matrix * np.outer(own, own), own * right)
        except np.linalg.LinAlgError:
            return None
        return x, float(np.linalg.norm(matrix @ x - right))

    def _solve(self, point: EntropyFit, right: Floats, accuracy: float) -> Floats:
        """Solve (C + s2 I) x = right to some accuracy.

        Few dense functions: by elimination, since C costs as much as a few products with A do. Else
        (or where rounding spoils that) by conjugate gradients, preconditioned by the diagonal.
        """
        if self.products.all_dense and len(right) <= EXACT_FREEDOM:
            found = self._eliminated(point, right)
            if found is not None and found[1] <= accuracy:
                return found[0]
        diagonal = self.products.variances(point.density) + point.s2
        x = np.zeros_like(right)
        residual = right
        conjugate = direction = residual / diagonal
        product = float(residual @ conjugate)
        for _ in range(MAX_CG):
            spread = self.products.combine(direction)
            centred = point.density * (spread - point.density @ spread)
            image = self.products.average(centred) + point.s2 * direction
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
