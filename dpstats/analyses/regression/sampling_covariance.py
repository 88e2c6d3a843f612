"""The sampling covariance of least-squares coefficients, by what was measured of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.mean_sampling import MOST_NOISE, small_sample
from dpstats.analyses.regression.joint_test import root_of
from dpstats.arrays import Floats
from dpstats.corrected.least_squares import largest_leverage, misfit_bound
from dpstats.families.persons.moments import PersonMoments
from dpstats.inference.confidence_law import DRAWS
from dpstats.inference.moment_matrix import ONE, ZERO
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.analyses.regression.least_squares import LeastSquares
    from dpstats.measured.answers import Answers

_BOUNDED = (
    "where noise hides the variance of persons, sampling variances are the bound, which assumes "
    "errors of equal variance: rows_per_person times those of independent rows; cov_type='HC1' "
    "never takes the bound"
)
_PENALISED = (
    "residuals from penalised coefficients vary with the regressors: the sampling variance is an "
    "upper bound, often a wide one; cov_type='HC1' measures it"
)
_FOURTH = 3  # a purpose of draws, distinct from those of the noise on second moments
_LARGEST_RELATIVE = 0.25  # variance of a variance: beyond it the noise prevails anyway


@dataclass(frozen=True)
class SamplingCovariance(ABC):
    """Sampling covariance of coefficients: A^-1 M A^-1 / n, M the covariance of x (y - x'b)."""

    fit: LeastSquares  # with a regular A where anything is asked
    # At least 1: the most rows of one unit that is independent of the others, such as a person.
    clustering: float = field(default=1.0, kw_only=True)

    about: ClassVar[str]  # what a result says of it
    noisy: ClassVar[str] = ""  # the same where it was measured, if noise is most of it

    @property
    @abstractmethod
    def matrix(self) -> Floats:
        """(p, p)."""

    @abstractmethod
    def variances(self, combinations: Floats) -> Floats:
        """(k,) of combinations (k, p) of the coefficients."""

    @property
    @abstractmethod
    def df(self) -> float:
        """Degrees of freedom of the t laws of errors."""

    @property
    def persons(self) -> float:
        """The fewest independent units that the rows can be of."""
        return self.fit.matrix.n / self.clustering

    def rounded(self, combinations: Floats) -> Floats:
        """(k,) variances that the rounding of the moments may hide."""
        scores = combinations @ self.fit.inverse
        hidden = self.fit.rounding / self.persons
        return np.asarray(np.einsum("ij,ij->i", scores, combinations) * hidden)

    def drawn(self, combination: Floats) -> Floats | float:
        """Variance of a combination (p,), or draws of it without the noise on it."""
        return float(self.variances(combination[None, :])[0])

    def notes(self, combinations: Floats) -> list[str]:
        """Remarks of a result on it."""
        return []


@dataclass(frozen=True)
class EqualVariances(SamplingCovariance):
    """Errors of equal variance, s2 A^-1 / n, or a bound: under a penalty and for rows of persons.

    Under a penalty the residual is such an error plus x'd, d the shrinkage; the mean of xx'(x'd)^2
    is at most that of (x'd)^2 times `largest_leverage` times A. Rows that depend on each other have
    at most `clustering` times the covariance, and as many times fewer degrees of freedom.
    """

    about = (
        "sampling variances assume errors of equal variance, also in certified intervals for the "
        "population; those for the table assume nothing"
    )

    @property
    def relative(self) -> float:
        """Standard deviation of the noise on the error variance, over it."""
        return self.fit.noise_of_variance / self.fit.safe_variance if self.fit.safe_variance else 0

    @property
    def df(self) -> float:
        """Degrees of freedom with the relative error of n - p squares and of the noise on them."""
        rows = max(self.fit.df_resid / self.clustering, 1.0)
        return with_noise(rows, self.relative)

    @cached_property
    def matrix(self) -> Floats:
        """(p, p)."""
        fit = self.fit
        middle = fit.inverse @ self._regressors @ fit.inverse * fit.safe_variance
        if self._misfit > 0:
            middle += fit.inverse * self._misfit * largest_leverage(fit.inverse, fit.bounds[:-1])
        return np.asarray(middle / self.persons)

    def variances(self, combinations: Floats) -> Floats:
        """(k,), at most those of `matrix` under a penalty.

        With s = h'A^-1 x the mean of s^2 (x'd)^2 is at most the largest s^2 times the mean of
        (x'd)^2, and that of s^2 times the squared residual at most the mean of s^2 times the
        largest.
        """
        fit, along = self.fit, combinations @ self.matrix
        variances = np.maximum(np.einsum("ij,ij->i", along, combinations), 0.0)
        if self._misfit == 0:
            return np.asarray(variances)
        scores = combinations @ fit.inverse
        squares = np.einsum("ij,jk,ik->i", scores, self._regressors, scores)
        largest = np.abs(scores @ fit.rows[:-1]).sum(axis=1) ** 2
        residual = np.abs(fit.residual).sum() ** 2
        sharp = squares * (fit.safe_variance - self._misfit) + largest * self._misfit
        sharp = np.minimum(sharp, squares * residual) / self.persons
        return np.asarray(np.maximum(np.minimum(variances, sharp), self.rounded(combinations)))

    def notes(self, combinations: Floats) -> list[str]:
        """Note that a penalty makes it a bound."""
        return [_PENALISED] if np.any(self.fit.ridge) else []

    @cached_property
    def _regressors(self) -> Floats:
        """A without the ridge, its positive part."""
        if not np.any(self.fit.ridge):
            return self.fit.gram
        root = root_of(self.fit.second_moments[:-1, :-1])
        return np.asarray(root @ root)

    @cached_property
    def _misfit(self) -> float:
        """Bound on the mean of (x'd)^2; for the least A that its noise makes likely."""
        fit = self.fit
        if not np.any(fit.ridge):
            return 0.0
        size = np.abs(fit.rows[:-1])
        noise = size @ fit.matrix.noise_sd @ size.T
        # About the norm of such noise: Bandeira and van Handel (2016), Ann. Probab. 44, 2479-2506.
        reach = 2 * float(np.sqrt((noise**2).sum(axis=1).max()))
        least = fit.second_moments[:-1, :-1] - reach * np.eye(len(noise))
        misfit = misfit_bound(least, fit.ridge * fit.params, np.zeros(len(noise)))
        return min(fit.safe_variance, misfit)


@dataclass(frozen=True)
class _OfScores(SamplingCovariance):
    """M from noisy products of scores.

    Variances are at least the standard deviation of their own noise, and what rounding may hide.
    """

    measured: FourthMoments | PersonScores  # A noisy M at any residual, and the law of its noise

    @property
    @abstractmethod
    def per_row(self) -> float:
        """1 / n, with a factor for small samples."""

    @cached_property
    def _middle(self) -> Floats:
        """(q, q) noisy M of the features, at the estimated residual."""
        return self.measured.matrix(self.fit.residual)

    @cached_property
    def matrix(self) -> Floats:
        """(p, p); a direction in which noise makes it small has the deviation of that noise."""
        fit, root = self.fit, root_of(self.fit.inverse)
        middle = fit.rows[:-1] @ self._middle @ fit.rows[:-1].T
        values, vectors = np.linalg.eigh(root @ middle @ root)
        scores = vectors.T @ root
        values = self._allowing(values * self.per_row, vectors.T @ np.linalg.pinv(root))
        return np.asarray((scores.T * values) @ scores)

    def variances(self, combinations: Floats) -> Floats:
        """(k,)."""
        along = combinations @ self.matrix
        return self._allowing(np.einsum("ij,ij->i", along, combinations), combinations)

    def _allowing(self, variances: Floats, combinations: Floats) -> Floats:
        least = np.maximum(self.noise_sd(combinations), self.rounded(combinations))
        return np.asarray(np.maximum(variances, least))

    def noise_sd(self, combinations: Floats) -> Floats:
        """(k,) standard deviations of the noise on the variances of combinations (k, p)."""
        scores = combinations @ self.fit.inverse @ self.fit.rows[:-1]
        return self.measured.noise_sd(scores, self.fit.residual) * self.per_row

    def notes(self, combinations: Floats) -> list[str]:
        """Note that noise is more than half of some variance."""
        hidden = np.any(self.noise_sd(combinations) > self.variances(combinations) / 2)
        return [self.noisy] if hidden else []


@dataclass(frozen=True)
class AnyVariances(_OfScores):
    """HC1: independent rows whose errors have any variance, from fourth moments.

    MacKinnon, J. G. and White, H. (1985), J. Econometrics 29, 305-325.
    """

    measured: FourthMoments

    about = (
        "sampling variances allow for errors of any variance (HC1, from fourth moments of columns "
        "rounded to at most 128 steps); certified intervals for the population still assume equal "
        "variance, those for the table nothing"
    )
    noisy = (
        "most of the sampling variance is noise on fourth moments: use more rows, more budget, "
        "allocation='optimal' in the plan, or fewer regressors"
    )

    @property
    def per_row(self) -> float:
        """1 / (n - p), times `clustering`."""
        return self.clustering / max(self.fit.df_resid, 1.0)

    @property
    def df(self) -> float:
        """Degrees of freedom of the rows; the noise has its own draws."""
        return max(self.fit.df_resid / self.clustering, 1.0)

    def variances(self, combinations: Floats) -> Floats:
        """(k,) means of what `drawn` draws, for noise that is about normal."""
        from scipy import special

        scores = combinations @ self.fit.inverse @ self.fit.rows[:-1]
        noisy = np.einsum("ij,jk,ik->i", scores, self._middle, scores) * self.per_row
        sd = self.noise_sd(combinations)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.nan_to_num(np.maximum(noisy, 0.0) / sd, posinf=np.inf)
        density = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi)
        expected = np.maximum(noisy, 0.0) * special.ndtr(at) + sd * density
        return np.asarray(np.maximum(expected, self.rounded(combinations)))

    def drawn(self, combination: Floats) -> Floats:
        """Draws (DRAWS,) of the variance HC1 less the noise on it (eq. 3)."""
        fit = self.fit
        score = combination @ fit.inverse @ fit.rows[:-1]
        noisy = float(score @ self._middle @ score)
        drawn = (max(noisy, 0.0) - self.measured.noise(score, fit.residual)) * self.per_row
        return np.maximum(drawn, max(float(self.rounded(combination[None, :])[0]), 0.0))


@dataclass(frozen=True)
class OfPersons(_OfScores):
    """Rows of one person may depend on each other too, from products of totals of scores."""

    measured: PersonScores
    # Whether errors are assumed to have equal variance: then the bound of `EqualVariances` takes
    # the place of variances whose noise has a standard deviation of more than `MOST_NOISE` of it.
    # The products that this noise is on have no part in the choice.
    bounded: bool = False

    about = (
        "sampling variances are from products of person totals, of columns rounded to at most 128 "
        "steps: they allow for errors of any variance that depend on each other within persons; "
        "certified intervals for the population still assume equal variance, those for the table "
        "nothing"
    )
    noisy = (
        "most of the sampling variance is noise on products of person totals: use more persons, "
        "more budget, or fewer regressors; or plan without person_totals="
    )

    @cached_property
    def bound(self) -> EqualVariances | None:
        """The covariance that is taken where noise hides that of persons."""
        return EqualVariances(self.fit, clustering=self.clustering) if self.bounded else None

    @property
    def per_row(self) -> float:
        """1 / n, with the factor of `small_sample`."""
        n, p = self.fit.matrix.n, len(self.fit.params)
        return float(small_sample(n, self.clustering, p)) / n

    def _bound_of(self, combinations: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """(k,) bounds on the variances, and whether each takes the place of the variance."""
        if self.bound is None:
            return np.zeros(len(combinations)), np.zeros(len(combinations), dtype=np.bool_)
        most = self.bound.variances(combinations)
        return most, np.asarray(self.noise_sd(combinations) > MOST_NOISE * most)

    def _allowing(self, variances: Floats, combinations: Floats) -> Floats:
        most, taken = self._bound_of(combinations)
        return np.where(taken, most, super()._allowing(variances, combinations))

    def notes(self, combinations: Floats) -> list[str]:
        """Also that the bound is taken for some."""
        taken = self._bound_of(combinations)[1].any()
        return super().notes(combinations) + ([_BOUNDED] if taken else [])

    @cached_property
    def df(self) -> float:
        """Degrees of freedom of G persons, with the largest relative error of a variance."""
        each = np.eye(len(self.fit.params))
        relative, (_, bounded) = np.zeros(len(each)), self._bound_of(each)
        np.divide(self.noise_sd(each), self.variances(each), out=relative, where=~bounded)
        if self.bound is not None:
            relative[bounded] = self.bound.relative
        return with_noise(max(self.persons - 1, 1.0), float(np.max(relative)))


def with_noise(df: float, relative: float) -> float:
    """Degrees of freedom of a variance with `df` and noise of a relative standard deviation.

    A squared relative error of 2 / df is that of `df` squares: F. E. Satterthwaite (1946),
    Biometrics Bulletin 2, 110-114.
    """
    return 1 / (1 / df + min(relative**2, _LARGEST_RELATIVE) / 2)


@dataclass(frozen=True)
class PersonScores:
    """Sums over persons of products of their totals of x (y - x'b), in place of fourth moments.

    At any b a score is a combination of totals of products of a regressor's feature and any other.
    """

    answers: Answers  # to a block of `PersonMoments`
    # (q, q) which of the T totals the product of two features is; -1 for a known zero, or no use
    total: NDArray[np.int64]
    n: float  # number of rows

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        (block,) = self.answers.blocks
        assert isinstance(block, PersonMoments)
        return block.pairs

    @cached_property
    def _products(self) -> Floats:
        """(T, T) noisy sums over persons, in unit scale."""
        i, j = self._pairs
        products = np.zeros((int(i.max()) + 1,) * 2)
        products[i, j] = products[j, i] = self.answers.sums / self.answers.bounds
        return products

    def _along(self, residual: Floats) -> Floats:
        """(q, T): every feature times the residual, a combination (q,) of the features."""
        along = np.zeros((len(self.total), len(self._products)))
        for row, places in zip(along, self.total, strict=True):
            used = places >= 0
            np.add.at(row, places[used], residual[used])
        return along

    def matrix(self, residual: Floats) -> Floats:
        """(q, q) noisy sum over persons of (total of f u'f)(total of f u'f)', over n."""
        along = self._along(residual)
        return np.asarray(along @ self._products @ along.T / self.n)

    def noise_sd(self, scores: Floats, residual: Floats) -> Floats:
        """(m,) standard deviations of the noise on scores (m, q) of that on either side."""
        along = scores @ self._along(residual)
        i, j = self._pairs
        weights = along[:, i] * along[:, j] * np.where(i == j, 1, 2) * (self.answers.n / self.n)
        return np.sqrt(weights**2 @ self.answers.noise_variances)


@dataclass(frozen=True)
class FourthMoments:
    """Mean products of two regressors and of two regressors or responses, measured with noise."""

    answers: Answers  # the d distinct measured functions
    # (q, q) which of the P products of two features each is; -1 for a known zero
    pair: NDArray[np.int64]
    # (P, P) which function the product of a pair of regressors' features and of any pair is; -1 for
    # a known zero (or a product of no use), -2 for a known one
    place: NDArray[np.int64]

    @cached_property
    def _values(self) -> Floats:
        """(P, P)."""
        known = {ZERO: 0.0, ONE: 1.0}
        padded = np.concatenate([self.answers.means, [known[ONE], known[ZERO]]])
        return np.asarray(padded[self.place])

    def _pairs(self, one: Floats, other: Floats) -> Floats:
        """(P,) weights of the pairs in the product of two combinations (q,) of the features."""
        used = self.pair >= 0
        products = np.outer(one, other)[used]
        weights = np.bincount(self.pair[used], products, minlength=len(self.place))
        return np.asarray(weights, dtype=np.float64)

    def matrix(self, residual: Floats) -> Floats:
        """(q, q) noisy mean of f f' (u'f)^2 for features f of regressors, u = `residual` (q,)."""
        by_pair = np.append(self._values @ self._pairs(residual, residual), 0.0)
        return np.asarray(by_pair[self.pair])

    def _weights(self, scores: Floats, residual: Floats) -> Floats:
        """(k, d) of the noise on the sums in that on the mean of (s'f)^2 (u'f)^2, scores (k, q)."""
        right = self._pairs(residual, residual)
        measured = self.place >= 0
        unit = self.answers.n * self.answers.bounds
        return np.array([
            np.bincount(
                self.place[measured], np.outer(self._pairs(s, s), right)[measured],
                minlength=len(unit),
            )
            for s in scores
        ]) / unit  # fmt: skip

    def noise_sd(self, scores: Floats, residual: Floats) -> Floats:
        """(k,) standard deviations of the noise on the mean of (s'f)^2 (u'f)^2, scores (k, q)."""
        weights, covariance = self._weights(scores, residual), self.answers.noise_covariance
        variances = np.einsum("ij,ij->i", weights @ covariance, weights)
        return np.asarray(np.sqrt(np.maximum(variances, 0.0)))

    @cached_property
    def _drawn(self) -> Floats:
        """(DRAWS / 4, d) draws of the noise on the sums."""
        rng = calibration_generator(self.answers, _FOURTH)
        return draw_noise(self.answers, DRAWS // 4, rng)

    def noise(self, score: Floats, residual: Floats) -> Floats:
        """(DRAWS,) draws of the noise on the mean of (s'f)^2 (u'f)^2, for one score (q,).

        Each with its opposite, twice: halves are uncorrelated with draws and their opposites.
        """
        drawn = self._drawn @ self._weights(score[np.newaxis], residual)[0]
        return np.concatenate([drawn, -drawn, drawn, -drawn])
