"""An interior point method for the minimax program that candidates may join on the way.

Over weights h of candidates, minimise t subject to |A h - b| <= t, sum h = 1, h >= 0. The dual has
two multipliers for every function, u and v, for overshooting and undershooting, and a level w:

    maximise b'y - w subject to A'y <= w, y = v - u, sum (u + v) = 1, u, v >= 0

At the optimum every inequality or its multiplier is zero. A step is Newton's on the equations and
the products "inequality times multiplier" = mu, with Mehrotra's predictor and corrector; mu falls
to zero. Eliminating all but y leaves a system with one row per function: the covariance of the
functions under weights h / (w - A'y), plus a diagonal, plus one rank for t.

Equations need not hold before the end. Candidates can therefore be added between steps without a
new start, and the system need not be solved exactly: what is left of it is the next step's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpstats.arrays import Floats
from dpstats.rows.products import Products

EXACT = 2000  # up to this many functions the system is factorised as a whole
JOINT = 700  # of more functions, those that are factorised as a preconditioner, at most
COUPLED = 0.9  # they are those whose own diagonal is less than this part of the whole one
ACCURACY, ROUGH = 1e-3, 0.03  # of conjugate gradients, for the step and for the predictor
MAX_CG = 150
RIDGE = 1e-10  # relative; functions of tables are linearly dependent
CLOSE = 2  # from this many times the least mean product, a step is not predicted
SHORT = 0.99  # part of the way to the boundary that a step goes


@dataclass(frozen=True)
class Point:
    """All variables; those named as sides or excess and their multipliers are positive."""

    weights: Floats  # (m,): h
    # largest, level: t and w
    largest: float
    level: float
    # over, under: (|F|,): t - (A h - b) and t + (A h - b), as far as the equations hold
    over: Floats
    under: Floats
    # u, v: (|F|,): their multipliers
    u: Floats
    v: Floats
    excess: Floats  # (m,): w - A'y, as far as the equations hold: the multipliers of h

    @property
    def y(self) -> Floats:
        """Multipliers of A h = b, (|F|,)."""
        return self.v - self.u

    @property
    def mu(self) -> float:
        """Mean product of an inequality and its multiplier."""
        products = self.over @ self.u + self.under @ self.v + self.weights @ self.excess
        return float(products) / self.size

    @property
    def size(self) -> int:
        """Number of inequalities."""
        return 2 * len(self.u) + len(self.weights)

    def joined(self, excess: Floats) -> Point:
        """The point with more candidates, whose w - A'y is given and may be negative."""
        mu = self.mu
        positive = np.maximum(excess, mu * len(self.weights))
        return replace(
            self,
            weights=np.concatenate([self.weights, mu / positive]),
            excess=np.concatenate([self.excess, positive]),
        )


def start(products: Products, target: Floats) -> Point:
    """Equal weights and multipliers; all equations hold."""
    m, functions = products.points, len(target)
    weights = np.full(m, 1 / m)
    misfit = products.average(weights) - target
    largest = 1.1 * float(np.abs(misfit).max()) + 1e-9
    half = np.full(functions, 0.5 / functions)
    level = largest / 2
    return Point(
        weights, largest, level, largest - misfit, largest + misfit, half, half, np.full(m, level)
    )


def step(products: Products, target: Floats, at: Point, least: float) -> Point:
    """One predictor and corrector step; the mean product aims at no less than `least`.

    Near the aim there is no predictor: its products, found roughly and anew in every step, would
    keep the equations from holding ever better.
    """
    system = _System(products, target, at)
    over, under, weights = at.over * at.u, at.under * at.v, at.weights * at.excess
    mu = least
    if at.mu > CLOSE * least:
        affine = system.solve(-over, -under, -weights, ROUGH)
        ahead = _moved(at, affine, 1.0).mu / at.mu
        mu = max(ahead**3 * at.mu, least)
        over = over + affine.over * affine.u
        under = under + affine.under * affine.v
        weights = weights + affine.weights * affine.excess
    return _moved(at, system.solve(mu - over, mu - under, mu - weights, ACCURACY), SHORT)


def _moved(at: Point, by: Point, part: float) -> Point:
    """As far towards the boundary as `part` of the way, primal and dual variables separately."""
    primal = _length(part, (at.over, by.over), (at.under, by.under), (at.weights, by.weights))
    dual = _length(part, (at.u, by.u), (at.v, by.v), (at.excess, by.excess))
    return Point(
        at.weights + primal * by.weights,
        at.largest + primal * by.largest,
        at.level + dual * by.level,
        at.over + primal * by.over,
        at.under + primal * by.under,
        at.u + dual * by.u,
        at.v + dual * by.v,
        at.excess + dual * by.excess,
    )


def _length(part: float, *moves: tuple[Floats, Floats]) -> float:
    """The largest step of at most one that keeps all positive."""
    ratios = [np.max(-change / value) for value, change in moves]
    return float(min(1.0, part / max(*ratios, 1e-300)))


class _System:
    """Newton's equations at a point."""

    def __init__(self, products: Products, target: Floats, at: Point) -> None:
        self.products, self.at = products, at
        self.spread = at.weights / at.excess
        self.total = float(self.spread.sum())
        means = products.average(self.spread)
        self.centre = means / self.total
        # what the equations lack
        misfit = products.average(at.weights) - target
        self.lack_over = at.largest - misfit - at.over
        self.lack_under = at.largest + misfit - at.under
        self.lack_excess = at.level - products.combine(at.y) - at.excess
        self.lack_weights = 1 - float(at.weights.sum())
        self.lack_multipliers = 1 - float((at.u + at.v).sum())
        # a function's diagonal, and its share in the equation of t
        over, under = at.u / at.over, at.v / at.under
        self.diagonal = 1 / (over + under)
        self.share = (over - under) * self.diagonal
        self.curvature = float(np.sum(4 * over * under * self.diagonal))
        self._factorise(means)
        self.of_share = self._precondition(self.share)
        self.of_largest = self.curvature + float(self.share @ self.of_share)

    def _factorise(self, means: Floats) -> None:
        """The preconditioner: exact, or for the functions that others matter to most."""
        from scipy import linalg

        own = self.total * self.products.variances(self.spread / self.total) + self.diagonal
        self.own = own
        self.rows = np.arange(len(own))
        if len(own) > EXACT:
            apart = self.diagonal / own
            rows = np.argpartition(apart, JOINT)[:JOINT]
            self.rows = np.sort(rows[apart[rows] < COUPLED])
        rows = self.rows
        matrix = self.products.gram(self.spread, rows)
        matrix -= np.outer(means[rows], self.centre[rows])
        matrix[np.diag_indices(len(rows))] += self.diagonal[rows] + RIDGE * own[rows]
        self.factor = linalg.cho_factor(matrix, overwrite_a=True) if len(rows) else None

    def _precondition(self, right: Floats) -> Floats:
        """About the solution y of the system without t."""
        from scipy import linalg

        found = right / self.own
        if self.factor is not None:
            mine = linalg.cho_solve(self.factor, right[self.rows], check_finite=False)
            found[self.rows] = mine
        return found

    def _pair(self, right: Floats, both: float) -> tuple[Floats, float]:
        """About the y and t that solve the whole system."""
        found = self._precondition(right)
        largest = (both - float(self.share @ found)) / self.of_largest
        return found + largest * self.of_share, largest

    def _image(self, y: Floats, largest: float) -> Floats:
        combined = self.spread * (self.products.combine(y) - self.centre @ y)
        image = self.products.average(combined) - self.centre * combined.sum()
        return np.asarray(image + self.diagonal * y - self.share * largest)

    def _solved(self, right: Floats, both: float, accuracy: float) -> tuple[Floats, float]:
        """Conjugate gradients for y, with t eliminated.

        Each y goes with the t that its own equation gives. The two are found together: to divide
        by the curvature, which vanishes at the end, would cost all digits.
        """
        found, largest = self._pair(right, both)
        residual = right - self._image(found, largest)
        direction, change = conjugate, with_it = self._pair(residual, 0.0)
        first = float(right @ (found - largest * self.of_share)) + largest**2 * self.of_largest
        product = float(residual @ conjugate)
        for _ in range(MAX_CG):
            if not product > accuracy**2 * first:
                break
            image = self._image(direction, change)
            length = product / float(direction @ image)
            found, largest = found + length * direction, largest + length * change
            residual = residual - length * image
            conjugate, with_it = self._pair(residual, 0.0)
            following = float(residual @ conjugate)
            direction = conjugate + following / product * direction
            change = with_it + following / product * change
            product = following
        return found, largest

    def solve(self, over: Floats, under: Floats, weights: Floats, accuracy: float) -> Point:
        """The move that changes the products of inequalities and multipliers by these numbers."""
        at = self.at
        over = over - at.u * self.lack_over
        under = under - at.v * self.lack_under
        moved = (weights - at.weights * self.lack_excess) / at.excess
        net = under / at.under - over / at.over
        gained = float(moved.sum()) - self.lack_weights
        both = float((over / at.over + under / at.under).sum()) - self.lack_multipliers
        both += float(self.share @ net)
        right = self.diagonal * net - self.products.average(moved) + self.centre * gained
        y, largest = self._solved(right, both, accuracy)
        level = gained / self.total + float(self.centre @ y)
        combined = self.products.combine(y)
        fitted = self.diagonal * (net - y) + self.share * largest
        d_over = largest - fitted
        d_under = largest + fitted
        return Point(
            weights=moved - self.spread * (level - combined),
            largest=float(largest),
            level=level,
            over=d_over + self.lack_over,
            under=d_under + self.lack_under,
            u=(over - at.u * d_over) / at.over,
            v=(under - at.v * d_under) / at.under,
            excess=level - combined + self.lack_excess,
        )
