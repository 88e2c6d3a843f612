r"""Tables of two columns with less noise: a blend of four estimates, weighed by Stein's formula.

Noisy counts T of all tables of two columns are one symmetric matrix (see `Levels`), with noise of
standard deviation S. What is known of the truth differs: columns may be independent, few cells may
hold almost all rows, many columns may follow a few hidden ones, or a log-linear model may explain
them. So there are four estimates:

- independence, E = t t' / n, t the counts of single levels;
- cells one by one: count = E rho, rho from a prior that is itself estimated from the cells that
  are alike (nonparametric empirical Bayes);
- low rank: the eigenvalues of (T - E) / S beyond those of noise, shrunk;
- the penalised log-linear fit.

The blend sum of w_k f_k(T), w >= 0 with sum one, has the least estimated squared error. With T =
theta + Z, E<f(T), theta> = E<f(T), T> - E<Z, f(T)>, and the last is the sum of the derivatives of f
times the covariances of Z (Stein's lemma for normal noise, eq. 10 of
docs/explanation/synthetic-rows/generator.md): it is estimated by <z, Df z>, z a draw of the noise
from its published law, with all the dependence of tables that share residuals.

These estimates steer rows only. No interval, test or certificate uses them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.inference.simplex import project_to_total

RATIOS = np.concatenate([[0.0], np.exp(np.linspace(np.log(0.01), np.log(60), 56))])  # grid of rho
SIZES = (0.1, 0.3, 1, 3, 10, 30, 100)  # edges of E / S between which cells are alike,
STRENGTHS = (1.3, 3, 20)  # and of the mean square of (T - E) / S over their table
FINEST = 100.0  # E / S from which ratios are to that many S, so that their grid has no gaps
LEAST_ALIKE = 40  # cells; fewer are joined by those of other tables
EM_STEPS = 60
BEYOND = 4.0  # noise standard deviations that a count within the grid may be above it
SURE = 12.0  # noise standard deviations from which a count is taken as it is
IMPUTED = 8  # rounds in which the cells that no table has are filled in
BALANCED = 5  # rounds in which tables are made to agree on single levels
EDGE = 1.05  # eigenvalues below this many of the largest that noise alone has are noise


@dataclass(frozen=True)
class PairTables:
    """Noisy counts of tables of two columns as one matrix."""

    # counts, deviations: (L, L): T and S; symmetric, zero and one where there is no table
    counts: Floats
    deviations: Floats
    margins: Floats  # (L,): counts of single levels, positive
    column: Codes  # (L,): the column of each level
    used: NDArray[np.bool_]  # (L, L) bool: which entries are cells of a table of two columns
    n: float  # number of rows

    def independent(self) -> Floats:
        """E: counts of independent columns."""
        return np.outer(self.margins, self.margins) / self.n * self.used

    def denoised_cells(self) -> Floats:
        """Posterior means of the cells, one by one (eq. 8)."""
        expected = self.independent()
        upper = np.triu(self.used)
        size = np.maximum(expected[upper], 0.02)
        count, deviation = self.counts[upper], self.deviations[upper]
        stratum = np.digitize(size / deviation, SIZES)
        alike = stratum * (len(STRENGTHS) + 1) + np.digitize(self._strengths()[upper], STRENGTHS)
        cells = np.zeros_like(self.counts)
        cells[upper] = _posterior_means(count, size, deviation, alike, stratum)
        return cells + cells.T

    def _strengths(self) -> Floats:
        """Mean square of (T - E) / S over the table of each cell, (L, L)."""
        squares = ((self.counts - self.independent()) / self.deviations) ** 2 * self.used
        member = np.eye(self.column[-1] + 1)[self.column]
        sums, cells = (member.T @ of @ member for of in (squares, self.used.astype(float)))
        table = sums / np.maximum(cells, 1)
        return np.asarray(table[np.ix_(self.column, self.column)])

    def low_rank(self) -> Floats:
        """E plus the part of T - E whose eigenvalues, in units of the noise, exceed those of noise.

        Eigenvalues l of a symmetric matrix of independent unit noises lie within 2 sqrt(L); those
        beyond e, a little more, are shrunk to sqrt(l^2 - e^2) (eq. 9). Cells that no table has are
        filled in with the estimate itself.
        """
        expected = self.independent()
        scaled = (self.counts - expected) / self.deviations * self.used
        edge = 2 * EDGE * np.sqrt(len(scaled))
        low = np.zeros_like(scaled)
        for _ in range(IMPUTED):
            values, vectors = np.linalg.eigh(np.where(self.used, scaled, low))
            kept = np.abs(values) > edge
            shrunk = np.sign(values[kept]) * np.sqrt(values[kept] ** 2 - edge**2)
            before, low = low, (vectors[:, kept] * shrunk) @ vectors[:, kept].T
            if np.abs(low - before).max() < 0.01:
                break
        return np.maximum(expected + low * self.deviations * self.used, 0.0)

    def balanced(self, counts: Floats) -> Floats:
        """Tables that agree on the counts of single levels, near these; they on the diagonal.

        Negative counts are cut at zero, which makes the sums of a table too large where many are.
        A level's count is the median of what its tables say of it. What the cells of a level have
        too much is taken evenly from those above zero, in rounds.
        """
        member = np.eye(self.column[-1] + 1)[self.column]
        tabled = (self.used @ member) > 0
        found = np.maximum(counts, 0.0) * self.used
        sums = np.where(tabled, found @ member, np.nan)
        alone = ~tabled.any(axis=1)
        sums[alone, 0] = self.margins[alone]
        levels = np.nanmedian(sums, axis=1)
        levels = _of_total(levels, self.column, self.n)
        for _ in range(BALANCED):
            excess = np.where(tabled, found @ member - levels[:, np.newaxis], 0.0)
            above = np.maximum((found > 0) @ member, 1.0)
            share = (excess / above)[:, self.column]
            found = np.maximum(found - np.where(found > 0, (share + share.T) / 2, 0.0), 0.0)
        found[np.diag_indices(len(found))] = levels
        return found


def denoised_levels(counts: Floats, deviations: Floats, column: Codes, n: float) -> Floats:
    """Counts of single levels with less noise, (L,), those of a column of sum n.

    Posterior means as those of cells (eq. 8), for ratios to equally likely levels with a prior for
    each column; then the nearest counts that are not negative and have the sum.

    Parameters
    ----------
    counts, deviations : (L,) float64
        Noisy counts and the standard deviations of their noise.
    column : (L,) int64
        The column of each level.
    n : float
    """
    size = n / np.bincount(column)[column]
    means = _posterior_means(counts, size, deviations, column, column)
    return _of_total(means, column, n)


def _of_total(counts: Floats, column: Codes, n: float) -> Floats:
    """Nearest counts of levels that are not negative, those of each column of sum n."""
    starts = np.flatnonzero(np.diff(column)) + 1
    return np.concatenate([project_to_total(levels, n) for levels in np.split(counts, starts)])


def _posterior_means(
    count: Floats, size: Floats, deviation: Floats, alike: Codes, wider: Codes
) -> Floats:
    """Means of size times ratio given the counts, with a prior for each kind in `alike`.

    Kinds of few counts take the prior of all of their kind in `wider`. Counts far above the noise,
    or above the grid by more than noise is likely to add, stay as they are.
    """
    means = count.copy()
    size = np.minimum(size, FINEST * deviation)
    within = count <= 0.8 * RATIOS[-1] * size + BEYOND * deviation
    open_ = (count <= SURE * deviation) & within
    for kind in np.unique(alike[open_]):
        mine = prior = np.flatnonzero(open_ & (alike == kind))
        if len(mine) < LEAST_ALIKE:
            prior = np.flatnonzero(open_ & (wider == wider[mine[0]]))
        chances = _prior(count[prior], size[prior], deviation[prior])
        likelihood = _likelihood(count[mine], size[mine], deviation[mine]) * chances
        means[mine] = size[mine] * (likelihood @ RATIOS) / likelihood.sum(axis=1)
    return means


def _likelihood(count: Floats, size: Floats, deviation: Floats) -> Floats:
    """Likelihood of every ratio for every count, (cells, ratios), up to a factor per count."""
    logs = -0.5 * ((count[:, None] - size[:, None] * RATIOS) / deviation[:, None]) ** 2
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def _prior(count: Floats, size: Floats, deviation: Floats) -> Floats:
    """Probabilities of the ratios, by maximum likelihood with one count spread over all."""
    likelihood = _likelihood(count, size, deviation)
    chances = np.full(len(RATIOS), 1 / len(RATIOS))
    for _ in range(EM_STEPS):
        mixed = likelihood @ chances
        chances = chances * ((1 / mixed) @ likelihood) + 1 / len(RATIOS)
        chances /= chances.sum()
    return chances


def blend(
    found: Floats, values: Floats, freedom: Floats, precision: Floats
) -> tuple[Floats, Floats]:
    """The weighted sum of estimates with the least estimated squared error (eq. 10).

    Parameters
    ----------
    found : (K, D) float64
        K estimates of what D values are without their noise.
    values : (D,) float64
    freedom : (K,) float64
        Estimates of the sum of precision times noise times each estimate: <z, Df z>, see above.
    precision : (D,) float64
        Weights of the squared errors.

    Returns
    -------
    blended : (D,) float64
    weights : (K,) float64
        Not negative; of sum one.
    """
    off = found - values  # the weights have sum one, so that only this matters
    weights = _least((off * precision) @ off.T, -freedom)
    return weights @ found, weights


def _least(inner: Floats, linear: Floats) -> Floats:
    """The w >= 0 of sum one with the least w' inner w - 2 linear'w, by all sets of its members."""
    scale = max(float(np.abs(inner).max()), float(np.abs(linear).max())) or 1.0
    inner, linear = inner / scale, linear / scale
    best, least = np.zeros(len(linear)), float(np.inf)
    for members in range(1, 2 ** len(linear)):
        chosen = [k for k in range(len(linear)) if members >> k & 1]
        a, b, one = inner[np.ix_(chosen, chosen)], linear[chosen], np.ones((len(chosen), 1))
        bordered = np.block([[a, one], [one.T, np.zeros((1, 1))]])  # with Lagrange's multiplier
        own: Floats = np.linalg.lstsq(bordered, np.append(b, 1.0), rcond=1e-10)[0][:-1]
        if own.min() < 0:
            continue
        value = float(own @ a @ own - 2 * b @ own)
        if value < least:
            least, best = value, np.zeros(len(linear))
            best[chosen] = own
    return best
