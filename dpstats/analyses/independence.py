"""Independence of two columns, in the population or within strata, from noisy counts.

The p-value is a parametric bootstrap: tables are drawn under the fitted null hypothesis, noise
from its exact law is added, and the whole statistic is computed again, fit included. Its validity
does not rest on the form of the statistic, only on the null law varying little with the margins
over the error of their fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpstats.analyses.base import Answering
from dpstats.answers import Answers
from dpstats.errors import RequestError
from dpstats.families.block import Family, Floats
from dpstats.families.cells import Cells, Table
from dpstats.inference.binomial import certificate_split
from dpstats.inference.independence_bounds import margin_bounds, statistic_bounds
from dpstats.inference.independence_effect import Association
from dpstats.inference.independence_score import fit_independence, score_statistic
from dpstats.inference.simulation import draw_noise
from dpstats.inference.verdicts import CertifiedChiSquare, Verdict
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.results_chi_square import ChiSquareResult, standardised
from dpstats.schema import Schema

ALPHA = 0.05
_LEAST_EXPECTED = 5


@dataclass(frozen=True)
class Independence:
    """Test that two columns are independent, or so within the levels of a third.

    Parameters
    ----------
    a, b : str
        Columns; numbers by their declared bins.
    given : str, optional
        Column of strata: the test is then of independence within every stratum, by the sum of
        the strata's statistics. It sees any association, also one that changes sign between
        strata, which a Cochran-Mantel-Haenszel statistic does not.
    simulations : int
        Tables in the bootstrap, at least 99; the p-value is at least 1 / (simulations + 1).
    seed : int
        Seed of the simulations, at least 0.

    Raises
    ------
    RequestError
        If a parameter is out of range, or a column is used twice or has a single level.

    References
    ----------
    Gaboardi, M., Lim, H., Rogers, R. and Vadhan, S. (2016). Differentially private chi-squared
    hypothesis testing: goodness of fit and independence testing. ICML, Algorithm 4.
    Davison, A. C. and Hinkley, D. V. (1997). Bootstrap Methods and their Application, 4.2.

    Examples
    --------
    >>> Independence("smoker", "region")
    Independence(a='smoker', b='region', given=None, simulations=1999, seed=0)
    """

    kind: ClassVar[str] = "independence"

    a: str
    b: str
    given: str | None = None
    simulations: int = 1999
    seed: int = 0

    def __post_init__(self) -> None:
        if type(self.simulations) is not int or self.simulations < 99:
            raise RequestError(f"simulations must be at least 99, got {self.simulations!r}")
        if type(self.seed) is not int or self.seed < 0:
            raise RequestError(f"seed must be a whole number from 0, got {self.seed!r}")

    def family(self, schema: Schema) -> Family:
        """All cells of the table of the columns."""
        return Family((self._table(schema),))

    def _table(self, schema: Schema) -> Table:
        names = [self.a, self.b] if self.given is None else [self.a, self.b, self.given]
        table = Cells.table(schema, names)
        for column in table.columns:
            if column.bins < 2:
                raise RequestError(f"{column.name!r} has a single level: nothing to test")
        return table

    def infer(self, release: Answering) -> ChiSquareResult:
        """Calibrated p-value, Cramer's V and a certified verdict."""
        counts = noisy_table(self, release)
        rng = np.random.default_rng(self.seed)
        statistic, pvalue = counts.test(self.simulations, rng)
        observed, expected = counts.observed, counts.expected(counts.observed)
        pearson = float(np.sum((observed - expected) ** 2 / expected))
        strata, rows, columns = observed.shape
        df = strata * (rows - 1) * (columns - 1)
        association = Association(expected, counts.n, counts.covariance)
        effect, interval = association.cramers_v(
            observed, counts.expected, counts.noise(400, rng), ALPHA, rng
        )
        certified, notes = _certified(counts, df)
        if effect == 0:
            notes.append("Cramer's V is not above what the privacy noise alone would show")
        within = "" if self.given is None else f" within levels of {self.given}"
        return ChiSquareResult(
            title=f"Independence: {self.a} and {self.b}{within}",
            null=f"{self.a} and {self.b} are independent{within}",
            statistic=statistic,
            pvalue=pvalue,
            alternative="two-sided",
            footer=(
                "Target: the population (rows assumed independent draws). Method: score statistic,"
                f" parametric bootstrap with {self.simulations} tables; the interval of Cramer's V"
                " is approximate (bootstrap)."
                f" n = {counts.n}; {release.budget}."
            ),
            df=df,
            cells=counts.names,
            observed=observed.ravel(),
            expected=expected.ravel(),
            residuals=standardised(
                observed.ravel(),
                expected.ravel(),
                association.residual_variance,
                association.noise_variance,
            ),
            pearson=pearson,
            pearson_pvalue=float(stats.chi2.sf(pearson, df)),
            certified=certified,
            effect=effect,
            effect_interval=np.array(interval),
            notes=tuple(notes),
        )


def noisy_table(analysis: Independence, release: Answering) -> NoisyTable:
    """The table that an analysis needs, from plain sums of cells or from all measured tables.

    Whichever has less noise in the interactions: plain sums have the sharper law.
    """
    table = analysis._table(release.schema)
    order = [c.name for c in table.columns]
    axes = [order.index(name) for name in (analysis.given, analysis.a, analysis.b) if name]
    cells = np.arange(table.size).reshape(table.shape).transpose(axes)
    cells = cells.reshape(-1, *cells.shape[-2:])
    plain = NoisyTable(release.answers(table, disjoint=True), cells)
    combined = NoisyTable(release.answers(table), cells)
    return combined if combined.interaction_noise < plain.interaction_noise * 0.999 else plain


@dataclass(frozen=True)
class NoisyTable:
    """Noisy counts of strata, rows and columns, with the law of their noise.

    Attributes
    ----------
    answers : Answers
    cells : (K, R, C) int64
        Place of every cell among the answers.
    """

    answers: Answers
    cells: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of private rows."""
        return self.answers.n

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
        """Covariance (d, d) of the noise on the cells in C order."""
        order = self.cells.ravel()
        return self.answers.noise_covariance[np.ix_(order, order)]

    @cached_property
    def noise_variance(self) -> Floats:
        """Variance of the noise on each count (K, R, C)."""
        return np.diag(self.covariance).reshape(self.cells.shape)

    @cached_property
    def scales(self) -> Floats:
        """Scale of the noise where it is a single Laplace variable, else zero, (K, R, C)."""
        laws = self.answers.law_table
        single = [
            law.scale if isinstance(law, DiscreteLaplace) and law.terms == 1 else 0.0
            for law in laws
        ]
        return np.array(single)[self.answers.law_of[self.cells]]

    @cached_property
    def interaction_noise(self) -> float:
        """Variance of the noise in the interactions, summed over cells."""
        even = np.full(self.cells.shape, self.n / self.cells.size)
        return float(Association(even, self.n, self.covariance).noise_variance.sum())

    def expected(self, tables: Floats) -> Floats:
        """Expected counts under the null hypothesis of noisy tables (..., K, R, C)."""
        return fit_independence(tables, self.n, self.noise_variance)

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        """Draws (size, K, R, C) of the noise."""
        return draw_noise(self.answers, size, rng)[:, self.cells]

    def statistic(self, tables: Floats) -> Floats:
        """Score statistic of noisy tables (..., K, R, C), fit included."""
        other = np.where(self.scales > 0, 0, self.noise_variance)
        return score_statistic(tables, self.expected(tables), self.scales, other)

    def test(self, simulations: int, rng: np.random.Generator) -> tuple[float, float]:
        """Statistic and bootstrap p-value."""
        statistic = float(self.statistic(self.observed))
        fitted = self.expected(self.observed).ravel() / self.n
        drawn = rng.multinomial(self.n, fitted / fitted.sum(), simulations)
        tables = drawn.reshape(-1, *self.cells.shape) + self.noise(simulations, rng)
        above = int(np.sum(self.statistic(tables) >= statistic * (1 - 1e-12)))
        return statistic, (1 + above) / (simulations + 1)

    def box(self, beta: float) -> tuple[Floats, Floats]:
        """Ends (K, R, C) that hold all private counts with probability 1 - beta."""
        weights = self.answers.weights
        independent = bool(np.all(np.count_nonzero(weights, axis=0) <= 1))
        d = self.cells.size
        each = -np.expm1(np.log1p(-beta) / d) if independent else beta / d
        quantiles = np.array([law.quantile(each) for law in self.answers.law_table])
        radius = quantiles[self.answers.law_of[self.cells]]
        low = np.clip(self.observed - radius, 0, self.n)
        high = np.clip(self.observed + radius, 0, self.n)
        return low, high


def _certified(counts: NoisyTable, df: int) -> tuple[CertifiedChiSquare, list[str]]:
    """Verdict on the private table's own statistic.

    The noise bound holds in finite samples, with probability 1 - beta for all cells together.
    The critical value is the chi-square quantile at alpha - beta, an asymptotic one; so there is
    a verdict only where every expected count is certified to be at least five.
    """
    n = counts.n
    law = counts.answers.law(0)
    beta = certificate_split(n, float(np.sqrt(law.variance / 2)), ALPHA)
    critical = float(stats.chi2.isf(ALPHA - beta, df))
    low, high = counts.box(beta)
    lower, upper, least_expected = 0.0, 0.0, np.inf
    for k in range(len(low)):
        size_low, size_high = _total(low, high, k, n)
        if size_low <= 0 or size_low > size_high:
            least_expected, upper = 0.0, upper + size_high * (min(low.shape[1:]) - 1)
            continue
        # Shares of a stratum of unknown size t: the statistic is t phi^2 of the shares.
        ends = low[k] / size_high, high[k] / size_low
        phi = [bound / n for bound in statistic_bounds(ends[0] * n, ends[1] * n, n)]
        lower, upper = lower + size_low * phi[0], upper + size_high * phi[1]
        rows = margin_bounds(*ends, axis=1, n=1.0)[0].min()
        columns = margin_bounds(*ends, axis=0, n=1.0)[0].min()
        least_expected = min(least_expected, size_low * max(rows, 0) * max(columns, 0))
    verdict: Verdict = "inconclusive"
    notes = []
    if lower > critical or upper <= critical:
        if least_expected >= _LEAST_EXPECTED:
            verdict = "reject" if lower > critical else "accept"
        else:
            notes.append(
                "no certified verdict: expected counts of 5 are not certain, which the "
                "chi-square critical value needs"
            )
    return CertifiedChiSquare(verdict, lower, upper, critical, ALPHA, beta), notes


def _total(low: Floats, high: Floats, k: int, n: int) -> tuple[float, float]:
    """Ends of the size of stratum k."""
    lower, upper = low.sum(axis=(1, 2)), high.sum(axis=(1, 2))
    return (
        float(max(lower[k], n - (upper.sum() - upper[k]), 0)),
        float(min(upper[k], n - (lower.sum() - lower[k]), n)),
    )
