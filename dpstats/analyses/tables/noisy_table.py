"""Noisy counts of a (stratified) two-way table with the law of their noise, and the bootstrap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.tables.association import Association
from dpstats.analyses.tables.score_statistic import (
    cochran_mantel_haenszel,
    fit_even_independence,
    fit_independence,
    score_statistic,
)
from dpstats.arrays import Floats
from dpstats.error_rates import of_simulation
from dpstats.inference.declared_levels import DeclaredLevels
from dpstats.inference.simplex import project_to_total
from dpstats.inference.simulation import draw_noise
from dpstats.measured.answers import joint_noise_quantiles
from dpstats.privacy.weighted_noise import divided, laplace_scale, law_of_sum

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers
    from dpstats.privacy.laws import NoiseLaw


@dataclass(frozen=True)
class NoisyTable:
    """Noisy counts of strata, rows and columns, with the law of their noise.

    Attributes
    ----------
    answers : Answers
    cells : (K, R, C) int64
        Place of every cell among the answers.
    shifts : (R + C,) float64 or None
        Mean noise on the margins of rows and columns that were chosen by them; see
        `DeclaredLevels`.
    """

    answers: Answers
    cells: NDArray[np.int64]
    shifts: Floats | None = None

    @property
    def of_persons(self) -> NoisyTable:
        """Table of persons, whose rows may depend on each other: see `Answers.of_persons`."""
        assert self.shifts is None  # they are in rows
        return replace(self, answers=self.answers.of_persons)

    @property
    def n(self) -> int:
        """Number of private rows."""
        return self.answers.n

    @cached_property
    def levels(self) -> DeclaredLevels:
        """Which rows and columns have a private row, first those of the rows, over all strata."""
        return self._levels_of(self._margins)

    @cached_property
    def strata(self) -> DeclaredLevels:
        """Which strata have a private row; one stratum is no level.

        The test uses them all: an empty one adds no degrees of freedom and next to nothing to the
        sums over strata, and sparse ones have a part in the common association.
        """
        places = list(self.cells.reshape(len(self.cells), -1))
        return self._levels_of(places) if len(places) > 1 else DeclaredLevels.all_used(1)

    def _levels_of(self, margins: list[NDArray[np.int64]]) -> DeclaredLevels:
        if self.answers.bound_only:
            return DeclaredLevels.all_used(len(margins))
        sizes = np.array([self.answers.sums[margin].sum() for margin in margins])
        return DeclaredLevels.of(sizes, [self._law_of(margin) for margin in margins])

    @property
    def _margins(self) -> list[NDArray[np.int64]]:
        """Places of the cells of each row, then of each column."""
        return [part.ravel() for axis in (1, 2) for part in np.moveaxis(self.cells, axis, 0)]

    @cached_property
    def _chosen(self) -> Floats:
        """(m, K, R, C) mean noise on all cells where the margins of m levels have their shift."""
        found: list[Floats] = []
        if self.shifts is not None:
            for margin, shift in zip(self._margins, self.shifts.tolist(), strict=True):
                if shift:
                    along = self.answers.noise_covariance[:, margin].sum(axis=1)
                    found.append(shift * along[self.cells] / along[margin].sum())
        return np.array(found).reshape(-1, *self.cells.shape)

    def _law_of(self, cells: NDArray[np.int64]) -> tuple[NoiseLaw | None, float]:
        """Law of the noise on the sum of some cells, and what it is multiplied by."""
        groups = self.answers.noise_groups
        return law_of_sum(
            np.array([weights[cells].sum() for weights, _ in groups]), [law for _, law in groups]
        )

    def _only(
        self, levels: NDArray[np.bool_], strata: NDArray[np.bool_] | None = None
    ) -> NoisyTable | None:
        """The table of some rows, columns and strata; None with fewer than two rows or columns.

        The number of rows in a part of the table is that of its noisy counts.
        """
        rows, columns = np.split(levels, self.cells.shape[1:2])
        strata = np.ones(len(self.cells), np.bool_) if strata is None else strata
        if min(rows.sum(), columns.sum()) < 2 or not strata.any():
            return None
        shifts = self.levels.shifts[levels]
        if levels.all() and strata.all():
            return replace(self, shifts=shifts)
        cells = self.cells[np.ix_(strata, rows, columns)]
        law, weight = self._law_of(cells.ravel())
        total = replace(
            self.answers.rows,
            estimate=float(self.answers.sums[cells].sum()),
            law=None if law is None else divided(law, 1 / weight),
            whole=self.answers.unit == 1,
        )
        return NoisyTable(replace(self.answers, rows=total), cells, shifts)

    @cached_property
    def used(self) -> NoisyTable | None:
        """The table that effect sizes and verdicts use; None if no association can be seen."""
        return self._only(self.levels.used, self.strata.used)

    @property
    def tested(self) -> NoisyTable | None:
        """Levels with all strata, which the test uses."""
        return self._only(self.levels.used)

    @property
    def names(self) -> list[str]:
        """Cells in C order."""
        return [self.answers.names[i] for i in self.cells.ravel()]

    @cached_property
    def observed(self) -> Floats:
        """Noisy counts (K, R, C)."""
        return self.answers.sums[self.cells]

    @cached_property
    def covariance(self) -> Floats:
        """Covariance (d, d) of the noise on the cells in C order, and of the choice of levels."""
        order, chosen = self.cells.ravel(), self._chosen.reshape(-1, self.cells.size)
        return np.asarray(self.answers.noise_covariance[np.ix_(order, order)] + chosen.T @ chosen)

    @cached_property
    def noise_variance(self) -> Floats:
        """Variance of the noise on each count (K, R, C)."""
        return np.diag(self.covariance).reshape(self.cells.shape)

    @cached_property
    def scales(self) -> Floats:
        """Scale of the noise where it is a single Laplace variable, else zero, (K, R, C)."""
        scales = np.array([laplace_scale(law) for law in self.answers.law_table])
        return scales[self.answers.law_of[self.cells]]

    @cached_property
    def interaction_noise(self) -> float:
        """Variance of the noise in the interactions, summed over cells."""
        even = np.full(self.cells.shape, self.n / self.cells.size)
        return float(Association(even, self.n, self.covariance).noise_variance.sum())

    def expected(self, tables: Floats) -> Floats:
        """Expected counts under the null hypothesis of noisy tables (..., K, R, C)."""
        if self.answers.rows.public:
            return fit_independence(tables, self.n)
        return fit_independence(tables, np.maximum(tables.sum(axis=(-3, -2, -1)), 1))

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        """Draws (size, K, R, C) of the noise, and of normal errors from the choice of levels."""
        drawn = draw_noise(self.answers, size, rng)[:, self.cells]
        if not len(self._chosen):
            return drawn
        normal = rng.standard_normal((size, len(self._chosen)))
        return np.asarray(drawn + np.tensordot(normal, self._chosen, axes=1))

    def statistic(self, tables: Floats) -> Floats:
        """Score statistic of noisy tables (..., K, R, C), fit included."""
        chosen = np.sum(self._chosen**2, axis=0)
        other = np.where(self.scales > 0, chosen, self.noise_variance)
        return score_statistic(tables, self.expected(tables), self.scales, other)

    def classical(self) -> float:
        """Classical statistic of the noisy counts: Pearson's, or Cochran-Mantel-Haenszel's.

        The latter of the nearest non-negative counts with the total.
        """
        if len(self.cells) > 1:
            n = self.n if self.answers.rows.public else max(float(self.observed.sum()), 1.0)
            counts = project_to_total(self.observed.reshape(1, -1), n)
            return cochran_mantel_haenszel(counts.reshape(self.cells.shape))
        none = np.zeros(self.cells.shape)
        return float(score_statistic(self.observed, self.expected(self.observed), none, none))

    def test(self, simulations: int, rng: np.random.Generator) -> tuple[float, float]:
        """Statistic and p-value of the levels that surely have rows; nan and 1 with too few.

        The p-value has the share for empty levels added, see `DeclaredLevels.pvalue`.
        """
        found: list[tuple[float, float]] = []

        def pvalue(levels: NDArray[np.bool_]) -> float | None:
            if (table := self._only(levels)) is None:
                return None
            found.append(table.bootstrap(simulations, rng))
            return found[-1][1]

        total = self.levels.pvalue(pvalue)
        return (found[0][0] if found else np.nan), total

    def bootstrap(self, simulations: int, rng: np.random.Generator) -> tuple[float, float]:
        """Statistic and bootstrap p-value of all levels, the larger of two.

        Tables are drawn from the fitted margins, and again from margins shrunk towards equal ones:
        where noise exceeds their spread the fitted ones are too uneven, and where they are uneven
        the shrunk ones are too even; either alone would exceed its level in some case.

        Where the number of rows is not public every table, drawn or observed, is fitted with its
        own total: the law then includes the error of the total.
        """
        statistic = float(self.statistic(self.observed))
        fitted = self.expected(self.observed)
        even = fit_even_independence(self.observed, fitted.sum(), self.noise_variance)
        noise = self.noise(simulations, rng)
        seed, most = rng.integers(2**63), 0  # the same draws where the margins are the same
        for p in (fitted, even):
            drawn = np.random.default_rng(seed).multinomial(
                self.n, (p / p.sum()).ravel(), simulations
            )
            tables = drawn.reshape(-1, *self.cells.shape) + noise
            most = max(most, int(np.sum(self.statistic(tables) >= statistic * (1 - 1e-12))))
        return statistic, of_simulation(most, simulations).item()

    def box(self, beta: float) -> tuple[Floats, Floats]:
        """Limits (K, R, C) that hold all private counts with probability 1 - beta."""
        radius = joint_noise_quantiles(self.answers, beta)[self.cells]
        read = np.maximum(self.observed, 0)  # so that no count is certified to be 0 by its noise
        return np.maximum(read - radius, 0), read + radius
