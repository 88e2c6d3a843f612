"""Correlations of pairs of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.clipping import ClippedColumns, clipping_notes
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.analyses.moments.row_sampling import RowSampling, allowing_for_noise
from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.arrays import Floats, within
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target
from dpstats.corrected.covariance import LEAST_VARIANCE, Range, correlation_range
from dpstats.corrected.means import bernstein_radius, chernoff_confint
from dpstats.error_rates import bonferroni, for_noise_of_means
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Family
from dpstats.families.formula import named_number
from dpstats.families.moments import Moments, fourth_moments_of_pairs
from dpstats.inference.confidence_law import BEYOND_DRAWS, DRAWS, ConfidenceLaw
from dpstats.inference.intervals import Ends, wider
from dpstats.inference.simulation import calibration_generator, calibration_seed, draw_evenly
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import ALLOWING, EstimateResult, OneParameter, estimated
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.privacy.laws import NoiseLaw


@dataclass(frozen=True)
class Correlation(ClippedColumns):
    """Pearson's correlation of every pair of some numbers.

    Parameters
    ----------
    columns : sequence of str
        Two or more numbers, each with `missing=` or ``allow_missing=True`` in the schema. Rows
        without a value of one of these are left out.
    given : str, optional
        Correlations in the rows with this condition, such as ``"age >= 65"``.
    clip_norm, center, scale : optional
        Shrink every row to at most this Euclidean norm, as in `dpstats.Covariance`.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Correlation(["age", "income"])
    Correlation(columns=('age', 'income'), given=None, clip_norm=None, center=None, scale=None)
    """

    kind: ClassVar[str] = "correlation"
    preview_remark: ClassVar[str] = (
        "Correlations of columns that vary less within their bounds than even ones, whose sd "
        "is about .6 of half the width, have wider intervals: noise on a variance counts "
        "1/s^2 times at an sd of s times that. Preview with like= rows that resemble yours, "
        "tighten the bounds, or use clip_norm=."
    )

    columns: Sequence[str]
    given: str | None = None
    clip_norm: float | None = None
    center: Mapping[str, float] | None = field(default=None, hash=False)
    scale: Mapping[str, float] | None = field(default=None, hash=False)

    def family(self, schema: Schema) -> Family:
        """First and second moments and all products; coarse third and fourth ones of pairs."""
        for name in self.columns:
            named_number(schema, name)
        if (ball := self.ball(schema)) is not None:
            return Family((ball,))
        moments = Moments.of(schema, self.columns, given=self.given)
        fourths = fourth_moments_of_pairs(schema, self.columns, self.complete_cases(schema))
        return Family((moments,) if fourths is None else (moments, fourths))

    def infer(self, release: ReleaseView) -> CorrelationResult:
        """Estimates with noise-aware and certified intervals."""
        covariance = self.noisy_covariance(release)
        places = list(itertools.combinations(range(len(self.columns)), 2))
        pairs = NoisyPair.of_pairs(release, covariance, places)
        terms = [f"{self.columns[i]}, {self.columns[j]}" for i, j in places]
        notes = [
            *subgroup_notes(covariance.moments.given, covariance.moments.answers.rows),
            "sampling variances are Fisher's for normal numbers, widened by "
            + (
                "measured fourth moments"
                if self.clip_norm is None
                else "those of the fitted density"
            )
            + ": with few rows or heavy tails use the certified interval",
            BEYOND_DRAWS,
            *clipping_notes(covariance.moments),
        ]
        notes += [
            f"the noise exceeds a variance in {term}: no estimate"
            for term, pair in zip(terms, pairs, strict=True)
            if not pair.seen
        ]
        return CorrelationResult(
            title="Correlation"
            + ("s" if len(pairs) > 1 else "")
            + ("" if self.given is None else f", given {self.given}"),
            **estimated(terms, pairs),
            rows=covariance.moments.answers.rows,
            budget=str(release.budget),
            scalar=len(pairs) == 1,
            notes=[*notes, cell_rules(release.schema, self)],
            columns=tuple(self.columns),
        )


@dataclass(frozen=True, repr=False, eq=False)
class CorrelationResult(EstimateResult):
    """Correlations of pairs, and their matrix.

    Attributes
    ----------
    columns : tuple of str

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("math", "physics")])
    >>> pair = dps.Correlation(["math", "physics"])
    >>> plan = dps.plan(schema, {"pair": pair}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"math": numbers % 100, "physics": numbers % 100 // 2})
    >>> result = dps.release(plan, rows, m=2_000).infer(pair)
    >>> print(result.params["math, physics"] > 0.9, result.matrix.shape)
    True (2, 2)
    """

    _privacy: ClassVar[str] = ALLOWING

    null_value = 0.0
    measure: ClassVar[str] = "correlation"  # of a pair, as `dps.plots.matrix` names it

    columns: tuple[str, ...] = ()

    @property
    def interval_of(self) -> str:
        """Correlations, without a unit."""
        return "correlation" if self.scalar else "correlations"

    @property
    def matrix(self) -> pd.DataFrame:
        """Estimates as a symmetric frame with ones on the diagonal.

        Every pair is estimated by itself, so it need not be positive semi-definite.
        """
        import pandas as pd

        values = symmetric(np.asarray(self.params), len(self.columns))
        return pd.DataFrame(values, index=self.columns, columns=self.columns)


def symmetric(values: Floats, p: int) -> Floats:
    """The (p, p) matrix with these entries above and below a diagonal of ones."""
    matrix, upper = np.eye(p), np.triu_indices(p, 1)
    matrix[upper] = matrix.T[upper] = values
    return matrix


_FAR = 19.0  # atanh(1 - 2^-53) is 18.7
_WITHIN = 3.0  # noise sds from 1 or -1, where the scale of atanh is of use
_NUMBERS = 5  # moments of a pair, not counting the number of rows


@dataclass(frozen=True)
class NoisyPair(OneParameter, Cached):
    """The correlation of two numbers in [-1, 1] (unit scale) from their noisy moments.

    Noise-aware: Fisher's transformation draw by draw of the noise, see `law`, with the
    variance under the distribution of the rows (`correlation_spread`). Certified:
    all five moments of the pair in a box, from quantiles of the noise and (for the population)
    Chernoff's bound for the squares and Bernstein's for the others, a fifth of the error each.
    """

    ranges: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    observed: Floats  # (6,) noisy n, sum x, sum y, sum x^2, sum y^2, sum xy
    laws: tuple[NoiseLaw | None, ...]  # of independent noises; None for a public n
    units: Floats  # (6,) what the noises are divided by
    spread: float = 1.0  # n Var(r) over that of normal rows, at least 1; see `correlation_spread`
    # both numbers are -1 or 1: then their moments give the whole distribution, and `spread` too
    two_valued: bool = False
    seed: int = 0  # of the draws of the noise; see `calibration_seed`

    @classmethod
    def of_pairs(
        cls, release: ReleaseView, covariance: NoisyCovariance, places: Sequence[tuple[int, int]]
    ) -> tuple[NoisyPair, ...]:
        """Some pairs of columns of a covariance matrix, with their spread."""
        plain = [NoisyPair.of(covariance, i, j) for i, j in places]
        rest = np.zeros((covariance.p, covariance.p))
        for pair, (i, j) in zip(plain, places, strict=True):
            rest[i, j] = rest[j, i] = pair.relative_noise
        spread = correlation_spread(release, covariance, rest)
        pairs = zip(plain, places, strict=True)
        return tuple(replace(pair, spread=float(spread[at])) for pair, at in pairs)

    @classmethod
    def of(cls, covariance: NoisyCovariance, i: int, j: int) -> NoisyPair:
        """Columns number i and j of a covariance matrix, from 0."""
        matrix = covariance.moments
        two_valued = covariance.two_valued[i] and covariance.two_valued[j]
        i, j = i + 1, j + 1
        places = [matrix.place[a, b] for a, b in ((0, i), (0, j), (i, i), (j, j), (i, j))]
        answers, rows = matrix.answers, matrix.answers.rows
        units = matrix.units[places].astype(np.float64)
        count = None if rows.public else answers.law(matrix.place[0, 0])
        return cls(
            np.append(rows.estimate, answers.sums[places] / units),
            (count, *(answers.law(f) for f in places)),
            np.append(1.0, units),
            two_valued=two_valued,
            seed=calibration_seed(answers, (i, j)),
        )

    @property
    def rows(self) -> float:
        """Number of rows, or its estimate; at least 1."""
        return max(float(self.observed[0]), 1.0)

    @cached_property
    def noise_variances(self) -> Floats:
        """(6,) variances of the noises, in rows squared."""
        variances = np.array([0.0 if law is None else law.variance for law in self.laws])
        return np.asarray(variances / self.units**2)

    @cached_property
    def moments(self) -> tuple[float, float, float, float, float]:
        """Means of x and y, their variances less the bias of the noise, their covariance."""
        x, y, xx, yy, xy = (self.observed[1:] / self.rows).tolist()
        noise = self.noise_variances / self.rows**2
        gain = [noise[k + 1] + mean**2 * noise[0] for k, mean in enumerate((x, y))]
        return x, y, xx - x * x + gain[0], yy - y * y + gain[1], xy - x * y + x * y * noise[0]

    @property
    def seen(self) -> bool:
        """True if both noisy variances are positive, by more than rounding."""
        return min(self.moments[2:4]) > LEAST_VARIANCE

    @property
    def estimate(self) -> float:
        """Correlation in [-1, 1]; 0 where the noise exceeds a variance."""
        _, _, xx, yy, xy = self.moments
        return float(np.clip(xy / np.sqrt(xx * yy), -1, 1)) if self.seen else 0.0

    @property
    def sampling_variance(self) -> float:
        """(1 - r^2)^2 / (n - 1), normal theory, times the spread."""
        x, y = self.moments[:2]
        r, n = np.array([self.estimate]), np.array([self.rows])
        spread = self.spread
        if self.two_valued and self.seen:
            spread = float(two_valued_spread(np.array([x]), np.array([y]), r, n)[0])
        return (1 - self.estimate**2) ** 2 * spread / max(self.rows - 1, 1.0)

    @property
    def privacy_variance(self) -> float:
        """Variance of the noise on the correlation, to first order; inf if not `seen`."""
        return self._noise_at(self.estimate) if self.seen else np.inf

    def _noise_at(self, r: float) -> float:
        """Variance of the noise on the correlation where it is r, to first order."""
        x, y, xx, yy, _ = self.moments
        root = np.sqrt(xx * yy)
        gradient = np.array([
            x * y / root - r * ((x * x - xx) / xx + (y * y - yy) / yy) / 2 - r,
            -y / root + r * x / xx,
            -x / root + r * y / yy,
            -r / (2 * xx),
            -r / (2 * yy),
            1 / root,
        ])  # fmt: skip
        return float(gradient**2 @ self.noise_variances) / self.rows**2

    @property
    def relative_noise(self) -> float:
        """`privacy_variance` over the variance of sampling of normal rows; 0 if not `seen`."""
        normal = max((1 - self.estimate**2) ** 2, self.rows**-2) / self.rows
        return self.privacy_variance / normal if self.seen else 0.0

    @cached_property
    def law(self) -> ConfidenceLaw:
        """Law of the correlation on Fisher's scale.

        Each draw of the noise gives a correlation r, and atanh r is normal with variance
        spread / (n - 3), 1 / (n - 3) for normal rows; a draw with no variance, or fewer than 4
        rows, counts against both sides.

        Noise may put nearly all draws beyond 1, which no correlation is. Their limits would be 1
        and 1: an error within the level, but no interval. If most draws are beyond 1 (or -1) all
        are moved until half are. That moves the limit inside outwards, and the one at 1 remains,
        since half of the draws are there: the interval only widens, and is nested in alpha.
        """
        rng = np.random.default_rng(self.seed)
        noises = np.array([
            np.zeros(DRAWS) if law is None else draw_evenly(law, DRAWS, rng) for law in self.laws
        ])  # fmt: skip
        n, *sums = self.observed[:, np.newaxis] - noises / self.units[:, np.newaxis]
        enough = n >= 4
        x, y, xx, yy, xy = np.array(sums) / np.where(enough, n, 4.0)
        xx, yy = xx - x * x, yy - y * y
        seen = enough & (np.minimum(xx, yy) > LEAST_VARIANCE)
        root = np.sqrt(np.where(seen, xx, 1.0) * np.where(seen, yy, 1.0))
        r = np.where(seen, (xy - x * y) / root, 0.0)
        middle = float(np.median(r[seen])) if seen.any() else 0.0
        r -= middle - np.clip(middle, -1, 1)
        with np.errstate(divide="ignore"):
            centre = np.clip(np.arctanh(np.clip(r, -1, 1)), -_FAR, _FAR)
        spread = two_valued_spread(x, y, r, n) if self.two_valued else self.spread
        error = np.sqrt(spread / np.maximum(n - 3, 1))
        known, estimate, noise = seen & (n > 3), self.estimate, np.inf
        if _WITHIN * np.sqrt(self.privacy_variance) < 1 - abs(estimate):
            noise = self.privacy_variance / (1 - estimate**2) ** 2

        def noise_at(value: float) -> float:
            """The noise is on r: the distance is no more of its errors than that of r is."""
            distance, slope = np.tanh(value) - estimate, 1 / (1 - estimate**2)
            if distance:
                slope = max(slope, (value - np.arctanh(estimate)) / distance)
            return self._noise_at(float(np.tanh(value))) * float(slope) ** 2

        at = float(np.arctanh(estimate)) if np.isfinite(noise) else np.nan
        return ConfidenceLaw(
            centre,
            np.where(known, error, np.inf),
            noise_variance=noise,
            gaussian=all(law.gaussian for law in self.laws if law is not None),
            changing=(at, float(np.median(error)), noise_at),
        )

    def box(self, beta: float) -> tuple[list[Range], float]:
        """Ranges of the five private means, all of them with probability 1 - beta; least n."""
        each = bonferroni(beta, sum(law is not None for law in self.laws))
        q = np.array([0.0 if law is None else law.quantile(each) for law in self.laws]) / self.units
        least, most = np.ceil(self.observed[0] - q[0] - 1e-9), max(self.observed[0] + q[0], 1.0)
        lowest = np.array([-1.0, -1, 0, 0, -1])
        if least < 1:
            return [(low, 1.0) for low in lowest.tolist()], 0.0
        sums = np.stack([self.observed[1:] - q[1:], self.observed[1:] + q[1:]])
        ratios = np.concatenate([sums / least, sums / most])
        low, high = within(ratios.min(axis=0), ratios.max(axis=0), lowest, 1)
        largest = float(np.sqrt(np.prod(low[2:4] + high[2:4]) / 4))  # of a product, given squares
        low[4], high[4] = within(low[4], high[4], -largest, largest)
        return list(zip(low.tolist(), high.tolist(), strict=True)), float(least)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays in [-1, 1]; for the private table the certified ones."""
        if target == "table":
            return self.certified(alpha, target)
        ends = np.array(self.law.limits(alpha, -_FAR, _FAR))[:, np.newaxis]
        low, high = np.where(np.abs(ends) >= _FAR, np.sign(ends), np.tanh(ends))
        if self.law.reaches(alpha):
            return low, high
        return wider((low, high), self.certified(alpha, target))

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays in [-1, 1]."""
        low, high = self.extremes(alpha, target)
        if low == high:  # no table lies in the box: its event has failed
            low, high = -1.0, 1.0
        return np.array([low]), np.array([high])

    def extremes(self, alpha: float, target: Target) -> Range:
        """Extremes of the correlation over a box of moments."""
        if target == "table":
            return correlation_range(*self.box(alpha)[0])
        bound_only = all(law.bound_only for law in self.laws if law is not None)
        beta = for_noise_of_means(alpha, bound_only=bound_only)
        box, n = self.box(beta)
        if n < 1:
            return -1.0, 1.0
        each = bonferroni(alpha - beta, _NUMBERS)
        low, high = np.array(box).T
        square = [2, 3]
        low[square], high[square] = chernoff_confint(low[square], high[square], n, each)
        # x^2, y^2 <= 1, so x, y and x y have at most the variances E x^2, E y^2 and the smaller.
        variance = np.array([high[2], high[3], min(high[2:4])])
        others, radius = [0, 1, 4], bernstein_radius(variance, n, each)
        low[others] = np.maximum(low[others] - radius, -1)
        high[others] = np.minimum(high[others] + radius, 1)
        x, y, xx, yy, xy = zip(low.tolist(), high.tolist(), strict=True)
        return correlation_range(x, y, xx, yy, xy)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-value (1,) that the correlation equals `value`."""
        if not -1 < value < 1:
            raise RequestError(
                "a correlation of exactly -1 or 1 cannot be tested; test a value between them"
            )
        return np.array([self.law.pvalue(float(np.arctanh(value)), alternative)])


Indices = NDArray[np.intp]

_LEAST = 1e-12
_THINNING = 2  # the purpose of the draws, distinct from those of `NoisyCovariance`
# (a, b) -> coefficients of 1, r and r^2 of E u^a v^b in E (uv - r (u^2 + v^2)/2)^2
_TERMS = {(2, 2): (1, 0, 0.5), (4, 0): (0, 0, 0.25), (0, 4): (0, 0, 0.25), (3, 1): (0, -1, 0),
          (1, 3): (0, -1, 0)}  # fmt: skip


def correlation_spread(release: ReleaseView, covariance: NoisyCovariance, rest: Floats) -> Floats:
    """(p, p) spreads of all pairs, at least 1: the largest under any law of the sampling of rows.

    Measured third and fourth moments of pairs are used too, where the release has them. Their noise
    is allowed for, see `allowing_for_noise`; `rest` is the variance of the noise on every
    correlation (p, p) over that of sampling of normal rows.
    """
    sampling, shape = covariance.sampling, _Standardised.of(covariance.sampling)
    spread = _of_kurtosis(covariance, rest) if "kurtosis" in sampling.laws else np.ones_like(rest)
    if "fitted" in sampling.laws:
        rng = calibration_generator(covariance.moments.answers, _THINNING)
        spread = np.maximum(spread, _of_points(sampling, shape.r, rng) / shape.normal)
    return np.maximum(spread, _measured(release, covariance, shape, rest))


@dataclass(frozen=True)
class _Standardised:
    """First and second moments of p columns, as spreads need them; divisor n throughout."""

    mean: Floats  # (p,)
    deviation: Floats  # (p,)
    r: Floats  # (p, p) correlations in [-1, 1]
    normal: Floats  # (p, p) n Var(r) of normal rows, (1 - r^2)^2, at least 1 / n^2

    @classmethod
    def of(cls, sampling: RowSampling) -> _Standardised:
        deviation = np.sqrt(np.maximum(np.diag(sampling.covariance), _LEAST))
        r = np.clip(sampling.covariance / np.outer(deviation, deviation), -1, 1)
        normal = np.maximum((1 - r**2) ** 2, 1 / max(sampling.n, 1) ** 2)
        return cls(sampling.mean, deviation, r, normal)

    def largest(self) -> Floats:
        """(p, p) spreads that columns in [-1, 1] cannot exceed.

        With s = (u + v)^2 / (2 + 2r) and d = (u - v)^2 / (2 - 2r), both of mean one, the spread is
        E (s - d)^2 / 4 <= (E s^2 + E d^2) / 4 <= (max s + max d) / 4, and |u| and |v| have maxima.
        """
        reach = (1 + np.abs(self.mean)) / self.deviation
        return np.asarray(np.add.outer(reach, reach) ** 2 / (4 * np.sqrt(self.normal)))


def _measured(
    release: ReleaseView, covariance: NoisyCovariance, shape: _Standardised, rest: Floats
) -> Floats:
    """(p, p) spreads from measured third and fourth moments of pairs.

    1 where they are hidden by their noise, and for a pair of columns of two values, whose moments
    are known without them.
    """
    names = [name for name, _ in covariance.moments.features]
    spread = np.ones_like(shape.r)
    if covariance.moments.ball is not None:
        return spread  # no higher moments are measured of shrunk rows
    block = fourth_moments_of_pairs(release.schema, names, covariance.moments.given)
    if block is None:
        return spread
    try:
        answers = replace(release.answers(Family((block,))), rows=covariance.moments.answers.rows)
    except NotMeasuredError:
        return spread
    i, j = np.triu_indices(len(names), 1)
    at = {term: f for f, term in enumerate(block.terms)}
    value, variance = np.zeros(len(i)), np.zeros(len(i))
    for (k, m), weight in _weights(shape, i, j).items():
        if k + m <= 2:
            one, other = ([i + 1] * k + [j + 1] * m + [np.zeros_like(i)] * 2)[:2]
            value += weight * covariance.moments.matrix[one, other]
            continue
        pairs = zip(i.tolist(), j.tolist(), strict=True)
        terms = (((names[a], None),) * k + ((names[b], None),) * m for a, b in pairs)
        place = np.array([at.get(tuple(sorted(term)), -1) for term in terms])
        value += np.where(place >= 0, weight * answers.means[place], -np.inf)
        variance += weight**2 * answers.noise_variances[place]
    found = allowing_for_noise(value, np.sqrt(variance), rest[i, j])
    spread[i, j] = spread[j, i] = np.minimum(found, shape.largest()[i, j])
    return spread


def _weights(shape: _Standardised, i: Indices, j: Indices) -> dict[tuple[int, int], Floats]:
    """Spreads of pairs as combinations of E x^k y^m: (k, m) -> coefficients (pairs,)."""
    x, y, r = shape.mean[i], shape.mean[j], shape.r[i, j]
    weights: dict[tuple[int, int], Floats] = {}
    for (a, b), coefficients in _TERMS.items():
        scale = np.polynomial.polynomial.polyval(r, coefficients) / shape.normal[i, j]
        scale /= shape.deviation[i] ** a * shape.deviation[j] ** b
        for k, m in itertools.product(range(a + 1), range(b + 1)):
            moved = math.comb(a, k) * math.comb(b, m) * (-x) ** (a - k) * (-y) ** (b - m)
            weights[k, m] = weights.get((k, m), 0.0) + scale * moved
    return weights


def _of_kurtosis(covariance: NoisyCovariance, rest: Floats) -> Floats:
    """(p, p) spreads if E u_i u_j u_k u_l = A_ij A_kl + A_ik A_jl + A_il A_jk, see `RowSampling`.

    With k and l a third of the kurtosis of either column, the variance of uv - r (u^2 + v^2)/2 is
    (1 - r^2) (sqrt(kl) - r^2 (sqrt k + sqrt l)^2 / 4), at most (1 - r^2)^2 sqrt(kl).
    """
    third = covariance.kurtosis / 3
    spread = np.sqrt(np.outer(third, third))
    # To first order in what the floor of the kurtosis has hidden, and in the noise.
    error = np.nan_to_num((covariance.noisy_kurtosis / 3 - third) / third)
    sd = covariance.kurtosis_sd / covariance.kurtosis
    noisy = spread * (1 + np.add.outer(error, error) / 2)
    noise = spread * np.hypot.outer(sd, sd) / 2
    return np.maximum(spread, allowing_for_noise(noisy, noise, rest))


def _of_points(sampling: RowSampling, r: Floats, rng: np.random.Generator) -> Floats:
    """(p, p) variances of uv - r (u^2 + v^2)/2 under the fitted density."""
    points, weights = sampling.moved_points(rng)
    centred = points - weights @ points
    u = centred / np.sqrt(np.maximum(weights @ centred**2, _LEAST))
    found = np.zeros_like(r)
    for i in range(len(r)):
        psi = u[:, [i]] * u - r[i] * (u[:, [i]] ** 2 + u**2) / 2
        found[i] = weights @ psi**2
    return found


def two_valued_spread(x: Floats, y: Floats, r: Floats, n: Floats) -> Floats:
    """Spreads (size,) of pairs that are -1 or 1, whose means x, y and correlation give all cells.

    The rarest of the cells that lower |r| is taken to have an expected count of at least one.
    """
    inside = 1 - 1 / np.maximum(n, 2)
    x, y = np.clip(x, -inside, inside), np.clip(y, -inside, inside)
    product = x * y + r * np.sqrt((1 - x**2) * (1 - y**2))
    variance = np.zeros(len(r))
    cells = [
        (a, b, np.clip(1 + a * x + b * y + a * b * product, 4 / np.maximum(n, 2), None))
        for a in (-1, 1)
        for b in (-1, 1)
    ]
    total = sum(chance for _, _, chance in cells)
    for a, b, chance in cells:
        u, v = (a - x) / np.sqrt(1 - x**2), (b - y) / np.sqrt(1 - y**2)
        variance += chance / total * (u * v - r * (u**2 + v**2) / 2) ** 2
    return np.maximum(variance / np.maximum((1 - r**2) ** 2, 1 / np.maximum(n, 1) ** 2), 1.0)
