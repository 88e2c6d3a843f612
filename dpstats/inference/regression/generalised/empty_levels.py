"""Levels without rows: they are left out, and what does not depend on them is still estimated.

A level enters only if its noisy count of rows is above the noise of all levels, jointly with
probability .999. The rows of other levels, a few at most, leave the regression: with a coefficient
of its own, a level says nothing about the others. Without them the regressors may be linearly
dependent. Then a combination h'b of coefficients is determined if and only if h is in the span of
the rows of the design, h = QQ'h with Q an orthonormal basis of that span; the model is fitted in
the coordinates Q'b.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni
from dpstats.errors import NotMeasuredError
from dpstats.families.features import Term
from dpstats.families.tables.cells import Table
from dpstats.inference.regression.generalised.marginal_effects import Average, Averaging
from dpstats.measured.answers import joint_noise_quantiles
from dpstats.schema import Column

if TYPE_CHECKING:
    from dpstats.checks import Alternative
    from dpstats.inference.regression.design_moments import DesignMoments
    from dpstats.measured.row_count import RowCount
    from dpstats.measured.view import ReleaseView

BETA = 0.001  # probability that the noise of some level without rows is above its quantile
_ROUNDING = 1e-8


@dataclass(frozen=True)
class EnteringLevels:
    """Which cells of the groups in a formula have rows, by noisy counts.

    Attributes
    ----------
    groups : list of (columns, array)
        Columns whose levels occur in one product, with a Boolean for each of their cells.
    """

    groups: list[tuple[tuple[Column, ...], NDArray[np.bool_]]]

    @classmethod
    def of(cls, release: ReleaseView, moments: DesignMoments) -> EnteringLevels:
        """Of the groups of a formula, from a release that measured the counts."""
        used = {
            frozenset(name for name, level in regressor.factors if level is not None)
            for regressor in moments.design.regressors
        }
        groups = []
        for names in sorted(map(sorted, used)):
            if names and not any(set(names) < other for other in used):
                columns = tuple(c for c in moments.schema if c.name in names)
                groups += _counted(release, moments, columns)
        return cls(groups)

    def hold(self, bins: Mapping[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Whether points (m,) have levels with rows; `bins` are those of the columns."""
        kept = np.ones(len(next(iter(bins.values()))), dtype=np.bool_)
        for columns, enters in self.groups:
            kept &= enters[tuple(bins[column.name] for column in columns)]
        return kept

    @property
    def left_out(self) -> list[str]:
        """Names of the cells that do not enter."""
        return [
            name
            for columns, enters in self.groups
            for name, kept in zip(Table(columns).names, enters.ravel(), strict=True)
            if not kept
        ]


def _counted(
    release: ReleaseView, moments: DesignMoments, columns: tuple[Column, ...]
) -> list[tuple[tuple[Column, ...], NDArray[np.bool_]]]:
    """The cells of some columns; of each column by itself where these were not measured."""
    if moments.given is not None and moments.given.label:
        return [_counted_in_subgroup(release, moments, column) for column in columns]
    try:
        answers = release.answers(Table(columns))
    except NotMeasuredError:
        if len(columns) == 1:
            raise
        return [part for column in columns for part in _counted(release, moments, (column,))]
    enters = np.asarray(answers.sums) > joint_noise_quantiles(answers, BETA)
    enters |= not enters.any()  # the noise hides all of them: which one has rows is not known
    return [(columns, enters.reshape(Table(columns).shape))]


def _counted_in_subgroup(
    release: ReleaseView, moments: DesignMoments, column: Column
) -> tuple[tuple[Column, ...], NDArray[np.bool_]]:
    """The levels that have a count of their own there: all but the baseline."""
    answers, places = moments.asked(release, [moments.blocks[0]])
    levels: list[tuple[int, Term]] = [(i, ((column.name, i),)) for i in range(column.bins)]
    levels = [(i, term) for i, term in levels if term in places]
    quantiles = answers.quantiles(bonferroni(BETA, max(len(levels), 1)))
    enters = np.ones(column.bins, dtype=np.bool_)
    for i, term in levels:
        enters[i] = answers.sums[places[term]] > quantiles[places[term]]
    return (column,), enters


def span(x: Floats) -> Floats | None:
    """Orthonormal basis Q (p, r) of the span of the rows of x (m, p); None if r is p, or 0."""
    _, sizes, rows = np.linalg.svd(x, full_matrices=False)
    rank = int(np.sum(sizes > _ROUNDING * sizes.max(initial=0.0)))
    return np.asarray(rows[:rank].T) if 0 < rank < x.shape[1] else None


M = TypeVar("M", bound=Averaging)


@dataclass(frozen=True, eq=False)
class Determined(Generic[M]):
    """Coefficients of which the rows determine some combinations only.

    Attributes
    ----------
    model : CalibratedScore or CellScore
        In the coordinates of the basis.
    basis : (p, r) float64
        See `span`.
    """

    model: M
    basis: Floats

    @property
    def params(self) -> Floats | None:
        """(p,) the shortest of the estimates, which differ in what is not determined."""
        found = self.model.params
        return None if found is None else np.asarray(self.basis @ found)

    def determines(self, combinations: Floats) -> NDArray[np.bool_]:
        """(k,) whether combinations (k, p) are in the span."""
        left = combinations - combinations @ self.basis @ self.basis.T
        size = np.linalg.norm(combinations, axis=1)
        return np.asarray(np.linalg.norm(left, axis=1) <= _ROUNDING * size)

    def variances(self, combination: Floats) -> tuple[float, float]:
        """Sampling and privacy variance of one combination (p,)."""
        if not self.determines(combination[np.newaxis])[0]:
            return np.inf, np.inf
        return self.model.variances(combination @ self.basis)

    def covariance(self, combinations: Floats) -> Floats:
        """(k, k) of the errors of combinations (k, p)."""
        known = self.determines(combinations)
        found = np.full((len(combinations),) * 2, np.inf)
        found[np.ix_(known, known)] = self.model.covariance(combinations[known] @ self.basis)
        return found

    def interval(self, combination: Floats, alpha: float, *, sampled: bool) -> tuple[float, float]:
        """Interval of a combination (p,)."""
        if not self.determines(combination[np.newaxis])[0]:
            return -np.inf, np.inf
        return self.model.interval(combination @ self.basis, alpha, sampled=sampled)

    def pvalue(self, combination: Floats, value: float, alternative: Alternative) -> float:
        """P-value of the hypothesis that a combination has this value."""
        if not self.determines(combination[np.newaxis])[0]:
            return 1.0
        return self.model.pvalue(combination @ self.basis, value, alternative)

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float]:
        """F test of what is determined of a hypothesis, see `CalibratedScore.wald`."""
        known = self.determined_part(combinations)
        if not len(known):
            return 0.0, 1.0
        return self.model.wald(known @ combinations @ self.basis, known @ values)

    def determined_part(self, combinations: Floats) -> Floats:
        """(r, k) independent combinations of combinations (k, p) that are determined."""
        left = combinations - combinations @ self.basis @ self.basis.T
        left[np.abs(left) <= _ROUNDING * np.abs(combinations).max(initial=0.0)] = 0
        return np.asarray(linalg.null_space(left.T).T)

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """Mean over the rows of a function; not known where it takes more than is determined."""
        b = self.params
        assert b is not None
        undetermined = linalg.null_space(self.basis.T).T
        used = np.any(self.model.x != 0, axis=1)
        for direction in undetermined:
            moved = values(b + direction) - values(b)
            if np.any(np.abs(moved)[np.resize(used, len(moved))] > _ROUNDING):
                return Average(np.nan, np.inf, np.inf)
        return self.model.average(lambda c: values(self.basis @ c))


@dataclass(frozen=True, eq=False)
class Scored(Generic[M]):
    """A model of a release.

    Attributes
    ----------
    score : CalibratedScore or CellScore
    basis : (p, r) float64, optional
        Where the rows determine some combinations of the coefficients only, see `span`; the
        coordinates of the score are then those of the basis.
    points : mapping of column name to values
        Of the regressors' columns at the points of the model, to average over.
    rows : RowCount
    left_out : list of str
        Levels without rows, up to noise.
    """

    score: M
    basis: Floats | None
    points: Mapping[str, Floats]
    rows: RowCount
    left_out: list[str]

    @property
    def model(self) -> M | Determined[M]:
        """With combinations of all coefficients."""
        return self.score if self.basis is None else Determined(self.score, self.basis)

    def determined(self, combinations: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Which combinations (k, p) are, and these in the coordinates of the score."""
        model = self.model
        if not isinstance(model, Determined):
            return np.ones(len(combinations), dtype=np.bool_), combinations
        known = model.determines(combinations)
        return known, combinations[known] @ model.basis
