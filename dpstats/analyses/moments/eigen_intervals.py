"""Intervals for eigenvalues, their shares, and loadings of a noisy covariance matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.analyses.moments.eigen_moves import ErrorDraws, Moves, Tail, few, isolated, rises
from dpstats.analyses.moments.noisy_covariance import PART, NoisyCovariance
from dpstats.arrays import Floats, on_one_blas_thread, within
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target
from dpstats.corrected.eigenvalues import descending, loading_bounds, sine_bounds, subspace_sines
from dpstats.error_rates import for_other_eigenvalues
from dpstats.errors import RequestError
from dpstats.inference.intervals import FEWEST, Ends, Intervals, has_enough_draws, with_far_tails

FEW = 500  # draws that are decomposed for a vector; a variance takes twice as many
ROUNDING = 1e-12  # of a loading: two standardised columns have loadings that do not vary
_WIDE = 5.0  # a gap in norms of the error, where perturbation theory is accurate for most draws


@dataclass(frozen=True)
class EigenIntervals(Intervals, Cached):
    """Intervals for k eigenvalues, then their k shares of the trace, then k p loadings; or some.

    Why they are valid: "PCA" in docs/explanation/inference/means-and-covariances.md, and the
    module `eigen_moves`. Where sampling has two laws (`RowSampling`), each limit is the wider of
    the two. A share is that of the eigenvalue's least (or largest) value and the trace, draw by
    draw, at the eigenvalue's limit. All alphas share one set of draws, and a smaller alpha takes
    the quantiles of larger ones into account (`Tail`): intervals are nested in alpha.
    """

    covariance: NoisyCovariance
    k: int  # number of components, 1 <= k <= p
    unit: float = 1.0  # original units in an eigenvalue of one
    chosen: slice = field(default_factory=lambda: slice(None))  # of the parameters

    @cached_property
    def of_matrix(self) -> CertifiedRadii:
        """Radii of the matrix, for any data."""
        return CertifiedRadii(self.covariance)

    @cached_property
    def values(self) -> Floats:
        """(p,) eigenvalues of the noisy matrix, descending; some may be negative."""
        return self._own[0]

    @cached_property
    def vectors(self) -> Floats:
        """(p, p) eigenvectors of the noisy matrix as rows."""
        return self._own[1]

    @cached_property
    def _own(self) -> tuple[Floats, Floats]:
        return descending(self.covariance.matrix)

    @property
    def ranges(self) -> Ends:
        """Least and largest values (d,): of variances, shares and loadings."""
        of_loadings = np.ones(self.k * self.covariance.p)
        most = self._most(self.k, "population") * self.unit
        low = np.concatenate([np.zeros(2 * self.k), -of_loadings])
        high = np.concatenate([most, np.ones(self.k), of_loadings])
        return low[self.chosen], high[self.chosen]

    @cached_property
    def corrected(self) -> Floats:
        """(p,) eigenvalues less the bias of the noise, not negative."""
        corrected = 2 * self.values - self._privacy[0]
        return np.sort(np.clip(corrected, 0, self._most(self.covariance.p)))[::-1]

    @cached_property
    def shares(self) -> Floats:
        """(p,) shares of the sum of the corrected eigenvalues; equal ones where that is zero."""
        total = self.corrected.sum()
        p = self.covariance.p
        return self.corrected / total if total > 0 else np.full(p, 1 / p)

    @cached_property
    def variances(self) -> tuple[Floats, Floats]:
        """Sampling and privacy variances (2 k + k p,) of the estimates, simulated."""
        laws = self._draws("sampling", 2 * FEW)
        return np.max([self._simulated(draws)[1] for draws in laws], axis=0), self._privacy[1]

    @cached_property
    def _privacy(self) -> tuple[Floats, Floats]:
        return self._simulated(next(self._draws("privacy", 2 * FEW)))

    @on_one_blas_thread
    def _simulated(self, draws: ErrorDraws) -> tuple[Floats, Floats]:
        """Means (p,) of all eigenvalues, and variances (2 k + k p,) of the estimates."""
        k = self.k
        seen, vectors = np.linalg.eigh(np.diag(self.values) + draws.errors)
        seen, vectors = seen[:, ::-1], vectors[:, :, ::-1]
        total = seen.sum(axis=1, keepdims=True)
        shares = np.clip(np.divide(seen, total, out=np.ones_like(seen), where=total > 0), 0, 1)
        found = [seen[:, :k].var(axis=0) * self.unit**2, shares[:, :k].var(axis=0)]
        for i in range(k):
            vector = vectors[:, :, i] * np.where(vectors[:, i, i : i + 1] < 0, -1, 1)
            varies = (vector @ self.vectors).var(axis=0)
            found.append(np.where(varies > ROUNDING**2, varies, 0.0))
        return seen.mean(axis=0), np.concatenate(found)

    def _draws(self, kind: str, most: int | None = None) -> Iterator[ErrorDraws]:
        """Draws of the error in the basis of the eigenvectors, for every law of the sampling."""
        for errors in self.covariance.deviations(kind, most):
            yield ErrorDraws(self.vectors @ errors @ self.vectors.T)

    def _most(self, count: int, target: Target = "table") -> Floats:
        """Largest possible eigenvalues, from the largest possible sum of all.

        Of the table with the divisor of `numpy.cov`; of the population without.
        """
        correction = self.covariance.correction if target == "table" else 1.0
        return correction * self.covariance.largest_trace / np.arange(1, count + 1)

    @property
    def _numbers(self) -> range:
        return range(self.k * (2 + self.covariance.p))[self.chosen]

    def __len__(self) -> int:
        return len(self._numbers)

    @on_one_blas_thread
    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, which hold jointly."""
        return self._within(*self.of_matrix.radii(alpha, target), alpha, target)

    joint_certified = certified

    @on_one_blas_thread
    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays; without loadings, at less cost."""
        if self.covariance.unknown:
            return self.certified(alpha, target)
        found = self._of_values(alpha, target)[0]
        count = max(self._numbers, default=-1) + 1
        components = math.ceil((count - 2 * self.k) / self.covariance.p)
        if components > 0:
            found = np.hstack([found, self._of_loadings(components, alpha, target)])
        low, high = found[:, self.chosen].copy()
        return self._with_far_tails((low, high), alpha, target)

    @on_one_blas_thread
    def distinct(self, alpha: float, target: Target) -> NDArray[np.bool_]:
        """(k,) whether each eigenvalue is certainly distinct, and its direction known at all."""
        if self.covariance.unknown:
            return np.zeros(self.k, dtype=bool)
        return self._of_values(alpha, target)[1]

    def _of_values(self, alpha: float, target: Target) -> tuple[Floats, NDArray[np.bool_]]:
        """Limits (2, 2 k) of eigenvalues and shares, and which are distinct under every law."""

        def limits() -> tuple[Floats, NDArray[np.bool_]]:
            ends, distinct = [], np.ones(self.k, dtype=bool)
            for draws in self._laws(target, self._size(alpha)):
                slack, left = _slack(draws, alpha)
                ends.append(self._aware(draws, slack, left / 2, target))
                distinct &= [_is_separated(self.values, i, slack) for i in range(self.k)]
            return _widest(ends), distinct

        return self._once((alpha, target), limits)

    def _of_loadings(self, components: int, alpha: float, target: Target) -> Floats:
        """Limits (2, components p)."""

        def limits() -> Floats:
            laws = self._laws(target, self._size(alpha))
            return _widest([self._aware_loadings(components, alpha, draws) for draws in laws])

        return self._once((alpha, target, components), limits)

    @on_one_blas_thread
    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits of all parameters together, by the norm of the error."""
        if self.covariance.unknown:
            return self.certified(alpha, target)
        radius = max(
            self._tail(alpha).quantile(np.maximum(draws.norms, np.abs(draws.traces)))
            for draws in self._laws(target, self._tail(alpha).size)
        )
        ends = self._within(radius, radius, None, target)
        return self._with_far_tails(ends, alpha, target)

    def _with_far_tails(self, ends: Ends, alpha: float, target: Target) -> Ends:
        return with_far_tails(ends, alpha, self._enough, lambda: self.certified(alpha, target))

    @property
    def least_alpha(self) -> float:
        """The alpha below which certified limits bound the noise-aware ones from inside."""
        return FEWEST / self._enough

    @property
    def _enough(self) -> int:
        """Draws, of which `FEWEST` must be beyond a level, for `with_far_tails`.

        The slack and two limits each take two draws at least (`outer`): six in all.
        """
        return self.covariance.draws * FEWEST // 6

    def _tail(self, level: float) -> Tail:
        """Tail of the first draws, or of all."""
        return Tail.of(level, min(PART, self.covariance.draws), self.covariance.draws)

    def _size(self, alpha: float) -> int:
        """How many draws an alpha needs: as many as the slack does."""
        return self._tail(for_other_eigenvalues(alpha)[0]).size

    def _laws(self, target: Target, size: int) -> Iterator[ErrorDraws]:
        kind = "both" if target == "population" else "privacy"
        for number, draws in enumerate(self._draws(kind, size)):
            ends = self._once((kind, number, size), draws.find_ends)  # small, and used again
            yield ErrorDraws(draws.errors, ends)

    def _within(
        self, radius: float, of_trace: float, alpha: float | None, target: Target
    ) -> tuple[Floats, Floats]:
        """Intervals by Weyl, and Davis and Kahan, at a radius of the noisy matrix.

        The radius of a certified statement, which has an alpha, is that of divisor n.
        """
        k, factors = self.k, self._factors(alpha, target)
        centre = 1.0 if alpha is None else self.covariance.correction
        values, trace = self.values / centre, float(self.values.sum()) / centre
        most = self._most(k, target) if alpha is None else self._most(k) / centre
        low, high = within(values[:k] - radius, values[:k] + radius, 0, most)
        most_trace, least_trace = trace + of_trace, trace - of_trace
        low_share = low / most_trace if 0 < most_trace < np.inf else np.zeros(k)
        high_share = high / least_trace if least_trace > 0 else np.ones(k)
        caps = 1 / np.arange(1, k + 1)
        low_share, high_share = np.clip(low_share, 0, caps), np.clip(high_share, 0, caps)
        loadings = loading_bounds(self.vectors[:k], sine_bounds(values, radius)[:k])
        low, high = low * factors[0] * self.unit, high * factors[1] * self.unit
        return (
            np.concatenate([low, low_share, loadings[0].ravel()])[self.chosen],
            np.concatenate([high, high_share, loadings[1].ravel()])[self.chosen],
        )

    def _factors(self, alpha: float | None, target: Target) -> tuple[float, float]:
        """The divisor of `numpy.cov` where a certified statement is about the table itself."""
        if alpha is None or target != "table" or self.covariance.standardize:
            return 1.0, 1.0
        return self.of_matrix.corrections(alpha)

    @on_one_blas_thread
    def sines(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        """Bounds (k,) on the sine of each vector's angle and of each leading subspace's."""
        if self.covariance.unknown:
            return self.certified_sines(alpha, target)
        laws = self._laws(target, self._size(alpha))
        sines = [self._simulated_sines(draws, alpha) for draws in laws]
        if not has_enough_draws(alpha, self._enough):
            sines.append(self.certified_sines(alpha, target))
        single, spaces = np.max(sines, axis=0)
        return single, spaces

    @on_one_blas_thread
    def certified_sines(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        """Bounds (k,) on these sines, and on those of the subspaces, for any data."""
        radius, _ = self.of_matrix.radii(alpha, target)
        values = self.values / self.covariance.correction
        return sine_bounds(values, radius)[: self.k], subspace_sines(values, radius)[: self.k]

    def _simulated_sines(self, draws: ErrorDraws, alpha: float) -> tuple[Floats, Floats]:
        slack, alpha = _slack(draws, alpha)
        single, spaces = np.ones(self.k), np.ones(self.k)
        for i in range(self.k):
            single[i] = self._vector_sine(draws, i, slack, alpha)
            spaces[i] = self._subspace_sine(draws, i + 1, slack, alpha)
        spaces[0] = single[0]  # a vector and its line
        return single, spaces

    def _vector_sine(self, draws: ErrorDraws, i: int, slack: float, alpha: float) -> float:
        turned = self._turned_vectors(draws, i, slack, alpha)
        if turned is None:
            return 1.0
        others = np.delete(turned.vectors, i, axis=1)
        return min(turned.tail.quantile(np.linalg.norm(others, axis=1) + turned.errors), 1.0)

    def _subspace_sine(self, draws: ErrorDraws, size: int, slack: float, alpha: float) -> float:
        if size == self.covariance.p:
            return 0.0
        values = self.values.copy()
        values[size:] += slack
        if values[size - 1] <= values[size]:
            return 1.0
        tail = self._few(draws, alpha)
        _, vectors = np.linalg.eigh(np.diag(values) + draws.errors[: tail.size])
        overlap = vectors[:, :size, ::-1][:, :, :size]
        least = np.linalg.svd(overlap, compute_uv=False)[:, -1]
        return tail.quantile(np.sqrt(np.clip(1 - least**2, 0, 1)))

    def _few(self, draws: ErrorDraws, level: float) -> Tail:
        """Draws that are decomposed for a vector, at a level."""
        return Tail.of(level, max(few(self.covariance.p), FEW), len(draws.errors))

    def _aware(self, draws: ErrorDraws, slack: float, level: float, target: Target) -> Floats:
        """Limits (2, 2 k) of eigenvalues and shares under one law, each with error `level`."""
        k, p = self.k, self.covariance.p
        low, high = np.zeros((2, k)), np.zeros((2, k))
        rising = rises(draws, self.values, (0.0, np.inf), slack, level, range(k))
        for moves in rising:
            of_shares = self._shares(draws, moves, 1)
            for i in moves.numbers:
                low[0, i] = self.values[i] - moves.reach
                low[1, i] = -moves.tail.quantile(-of_shares(i))
        mirrored, values = draws.mirrored(), -self.values[::-1]
        for moves in rises(mirrored, values, (-np.inf, 0.0), slack, level, range(p - k, p)):
            of_shares = self._shares(draws, moves, -1)
            for i in moves.numbers:
                high[0, p - 1 - i] = self.values[p - 1 - i] + moves.reach
                high[1, p - 1 - i] = moves.tail.quantile(of_shares(p - 1 - i))
        caps = np.stack([self._most(k, target), 1 / np.arange(1, k + 1)])
        ends = np.array(within(low, high, 0, caps))
        ends[:, 0] *= self.unit
        return np.asarray(ends.reshape(2, -1))

    def _aware_loadings(self, components: int, alpha: float, draws: ErrorDraws) -> Floats:
        """Limits (2, components p) of the first loadings under one law."""
        slack, left = _slack(draws, alpha)
        ends = np.empty((2, components, self.covariance.p))
        ends[0], ends[1] = -1, 1
        for i in range(components):
            found = self._turned_vectors(draws, i, slack, left)
            if found is not None:
                difference = np.abs(found.vectors @ self.vectors - self.vectors[i])
                difference += found.errors[:, np.newaxis]
                reach = np.array([found.tail.quantile(column) for column in difference.T])
                ends[0, i] = np.maximum(self.vectors[i] - reach, -1)
                ends[1, i] = np.minimum(self.vectors[i] + reach, 1)
        return np.asarray(ends.reshape(2, -1))

    def _shares(self, draws: ErrorDraws, moves: Moves, side: int) -> Callable[[int], Floats]:
        """Draws of the share of an eigenvalue at its limit; unlimited where the sum is not."""
        sums = float(self.values.sum()) - draws.traces[: len(moves.moves)]
        positive = np.where(sums > 0, sums, 1)

        def shares(i: int) -> Floats:
            ends = self.values[i] - side * moves.moves
            return np.where(sums > 0, ends / positive, -side * np.inf)

        return shares

    def _turned_vectors(
        self, draws: ErrorDraws, i: int, slack: float, level: float
    ) -> _TurnedVectors | None:
        """Eigenvector i of D + A with the least gaps around eigenvalue i; None if one may be zero.

        Draws where perturbation theory would widen the limits by more than 2% are decomposed. They
        are fewer where those may be many, by a rule that looks at no draw but the largest norm and
        not at the level: see `eigen_moves`.
        """
        values = self.values.copy()
        values[:i] -= slack
        values[i + 1 :] += slack
        if not _is_separated(self.values, i, slack):
            return None
        gap, size = np.abs(np.delete(self.values, i) - self.values[i]).min(), len(draws.errors)
        first = min(PART, size)
        wide = gap > (1 + _WIDE) * draws.usual_slack
        tail = Tail.of(level, first, size) if wide else self._few(draws, level)
        used = draws.first(tail.size)
        approximation = isolated(used, values, i)
        if approximation is None:
            vectors, errors = np.empty(used.errors.shape[:2]), np.full(len(used.errors), np.inf)
            rough = np.ones(len(errors), dtype=bool)
        else:
            vectors, errors = approximation.vectors()
            turned = np.sqrt(np.maximum(1 - vectors[:, i] ** 2, 0))
            rough = ~(errors <= 0.02 * tail.quantile(turned) / np.sqrt(len(values)))
        if rough.any():
            exact = np.linalg.eigh(np.diag(values) + used.errors[rough])[1][:, :, -1 - i]
            vectors[rough] = exact * np.where(exact[:, i : i + 1] < 0, -1, 1)
            errors[rough] = 0
        return _TurnedVectors(vectors, errors, tail)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """Not offered: there is more than one parameter."""
        raise RequestError("components have no p-values; read their intervals with conf_int()")

    def subset(self, chosen: slice) -> EigenIntervals:
        """Intervals of some of all parameters, whatever this one has; what is computed is kept."""
        some = replace(self, chosen=chosen)
        some.__dict__.update(self.__dict__, chosen=chosen)
        return some


@dataclass(frozen=True)
class _TurnedVectors:
    """Draws (size, p) of a unit vector in the basis of D, its own entry not negative.

    With bounds (size,) on their errors, and the tail of the draws.
    """

    vectors: Floats
    errors: Floats
    tail: Tail


def _widest(ends: list[Floats]) -> Floats:
    """Limits (2, d) that hold whichever law does."""
    found = np.array(ends)
    return np.stack([found[:, 0].min(axis=0), found[:, 1].max(axis=0)])


def _is_separated(values: Floats, i: int, slack: float) -> bool:
    """True if eigenvalue i is further than `slack` from both its neighbours."""
    gaps = np.abs(np.diff(values[max(i - 1, 0) : i + 2]))
    return bool(np.all(gaps > slack))


def _slack(draws: ErrorDraws, alpha: float) -> tuple[float, float]:
    """Simulated radius that bounds the error of all eigenvalues, and the rest of alpha.

    Of an alpha below what three largest draws have, more than all is spent: see `_enough`.
    """
    spent, _ = for_other_eigenvalues(alpha)
    least = 2 / (len(draws.errors) + 2)  # which the largest draw has: see `outer`
    spent = max(spent, least)
    tail = Tail.of(spent, min(PART, len(draws.errors)), len(draws.errors))
    return tail.quantile(draws.norms), max(alpha - spent, 2 * least)
