"""Independence of two columns, in the population or within strata, from noisy counts.

The p-value is from a parametric bootstrap: tables are drawn under the fitted null hypothesis, noise
from its exact law is added, and the statistic is computed again, fit included. It is valid for any
statistic whose null law varies little with the margins over the error of their fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.notes import cell_rules, left_out, subgroup_notes
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, shares_of_all
from dpstats.analyses.survey.rao_scott import RaoScottResult, WeightedTable, chi_square_test
from dpstats.analyses.tables.cells import TableOfCells
from dpstats.analyses.tables.chi_square_result import ChiSquareResult, noise_notes, standardised
from dpstats.analyses.tables.score_statistic import (
    cochran_mantel_haenszel,
    degrees_of_freedom,
    fit_even_independence,
    fit_independence,
    quasi_residual_variances,
    score_statistic,
)
from dpstats.arrays import Floats
from dpstats.checks import check_whole
from dpstats.corrected.chi_square import CertifiedChiSquare, independence_verdict
from dpstats.error_rates import of_simulation, split_for
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator, Partition, Table
from dpstats.inference.declared_levels import DeclaredLevels
from dpstats.inference.simplex import project_to_total
from dpstats.inference.simulation import (
    MOST_SIMULATIONS,
    calibration_generator,
    draw_noise,
    draws_for_interval,
)
from dpstats.measured.answers import Answers, joint_noise_quantiles
from dpstats.measured.view import ReleaseView
from dpstats.privacy.weighted_noise import divided, laplace_scale, law_of_sum
from dpstats.results.base import footer
from dpstats.schema import Column, Schema
from dpstats.schema.conditions import cell_set

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw


_STEPS = 31


@dataclass(frozen=True)
class Association:
    """Law of the residuals from independence about a fitted table, and Cramer's V."""

    expected: Floats  # (K, R, C) expected counts under independence within strata
    n: int
    covariance: Floats  # (d, d) covariance of the noise on the cells
    # Whether n multinomial rows have the largest sampling covariance that there may be. The
    # statistic may then be smaller than its law says, but not than the square of its component
    # along the direction of the table: see `goodness_of_fit.effect_interval`.
    bounded: bool = False

    @cached_property
    def _shares(self) -> tuple[Floats, Floats]:
        """Margins in each stratum: (K, R) and (K, C)."""
        size = self.expected.sum(axis=(1, 2))[:, np.newaxis]
        return self.expected.sum(axis=2) / size, self.expected.sum(axis=1) / size

    @cached_property
    def residual_variance(self) -> Floats:
        """Sampling variance (d,) of the residuals, e (1 - r) (1 - c)."""
        r, c = self._shares
        return (self.expected * (1 - r)[:, :, np.newaxis] * (1 - c)[:, np.newaxis]).ravel()

    @cached_property
    def noise_variance(self) -> Floats:
        """Variance (d,) that the noise adds to them: of (I - r 1') Z (I - 1 c')."""
        r, c = self._shares
        d = self.covariance.shape[0]
        noise = self._interactions(self.covariance.reshape(*self.expected.shape, d), r, c)
        noise = noise.reshape(d, d).T.reshape(*self.expected.shape, d)
        return np.diag(self._interactions(noise, r, c).reshape(d, d)).copy()

    @staticmethod
    def _interactions(noise: Floats, r: Floats, c: Floats) -> Floats:
        """Residuals (K, R, C, m) due to m changes of the counts."""
        noise = noise - r[:, :, np.newaxis, np.newaxis] * noise.sum(axis=1, keepdims=True)
        return np.asarray(
            noise - c[:, np.newaxis, :, np.newaxis] * noise.sum(axis=2, keepdims=True)
        )

    def phi_squared(self, tables: Floats, expected: Floats) -> Floats:
        """Pearson's statistic over n of noisy tables (..., K, R, C), less its mean due to noise."""
        noise = self.noise_variance.reshape(self.expected.shape)
        terms = ((tables - expected) ** 2 - noise) / expected
        return np.asarray(terms.sum(axis=(-3, -2, -1)) / self.n)

    def cramers_v(self, observed: Floats) -> float:
        """Estimate in [0, 1] from noisy counts (K, R, C) whose fit is `expected`.

        Zero when the noise explains all of Pearson's statistic.
        """
        found = float(self.phi_squared(observed, self.expected))
        return float(np.sqrt(np.clip(found / (min(self.expected.shape[1:]) - 1), 0, 1)))

    def interval(
        self,
        observed: Floats,
        fit: Callable[[Floats], Floats],
        noise: Floats,
        alpha: float,
        rng: np.random.Generator,
    ) -> tuple[float, float]:
        """Approximate interval for Cramer's V.

        The estimate's law is simulated at tables on the line from the fitted product through the
        projected noisy table and beyond, with negative counts set to zero. The interval holds the V
        at which the estimate is not in a tail of alpha / 2: a parametric bootstrap that is also
        valid at the boundary V = 0, where percentiles are not.
        """
        levels = min(self.expected.shape[1:]) - 1
        found = float(self.phi_squared(observed, self.expected))
        estimate = self.cramers_v(observed)
        direction = self._direction(observed)
        plain = self.noise_variance.reshape(self.expected.shape) / self.expected
        root = np.sqrt(max(self.n * found + float(plain.sum()), 0.0))  # of Pearson's statistic
        falling = direction < 0
        edge = float(np.min(-self.expected[falling] / direction[falling]))
        steps = edge * np.concatenate([np.linspace(0, 1, _STEPS) ** 2, np.geomspace(1.2, 1e3, 12)])
        values, kept, drawn = np.zeros(len(steps)), np.ones(len(steps)), []
        for i, step in enumerate(steps):
            p = np.maximum(self.expected + step * direction, 0)
            p /= p.sum()
            values[i] = np.sqrt(_phi_squared(p) / levels)
            tables = rng.multinomial(self.n, p.ravel(), len(noise))
            noisy = tables.reshape(noise.shape) + noise
            fitted = fit(noisy)
            drawn.append(self.phi_squared(noisy, fitted))
            if self.bounded:
                kept[i] = np.mean(self._along(direction, noisy, fitted) <= root)
        # Beyond nearly all of its law at an end it is read as the median there, else no V is kept.
        found = float(np.clip(found, np.median(drawn[0]), np.median(drawn[-1])))
        larger, smaller = np.mean(np.array(drawn) >= found, axis=1), kept
        if not self.bounded:
            smaller = np.mean(np.array(drawn) <= found, axis=1)
        # Tail probabilities are monotone in V; remove the error of the simulation.
        values = np.maximum.accumulate(values)
        larger = np.maximum.accumulate(larger)
        smaller = np.minimum.accumulate(smaller)
        low = 0.0 if larger[0] > alpha / 2 else float(np.interp(alpha / 2, larger, values))
        high = 1.0
        if smaller[-1] <= alpha / 2:
            high = float(np.interp(-alpha / 2, -smaller, values))
        return min(low, estimate), min(max(high, estimate), 1.0)

    def _along(self, direction: Floats, tables: Floats, expected: Floats) -> Floats:
        """Component (...,) of the residuals along a direction, a root of Pearson's statistic."""
        weights = direction / self.expected
        inside = (tables - expected) * weights
        length = np.sqrt(np.sum(direction * weights))
        return np.asarray(inside.sum(axis=(-3, -2, -1)) / length)

    def _direction(self, observed: Floats) -> Floats:
        """Interactions of the projected table, or of its first cell if it has none."""
        shape = self.expected.shape
        r, c = self._shares
        table = project_to_total(observed.ravel(), self.n).reshape(*shape, 1)
        direction = self._interactions(table - self.expected[..., np.newaxis], r, c)[..., 0]
        if np.abs(direction).max() < 1e-6:
            first = np.zeros((*shape, 1))
            first[:, 0, 0] = 1
            direction = self._interactions(first, r, c)[..., 0]
        return np.asarray(direction)


def _phi_squared(p: Floats) -> float:
    """Pearson's statistic over n of proportions (K, R, C), summed over strata."""
    size = np.maximum(p.sum(axis=(1, 2), keepdims=True), 1e-300)
    even = p.sum(axis=2, keepdims=True) * p.sum(axis=1, keepdims=True) / size
    return float(np.sum(np.divide((p - even) ** 2, even, out=np.zeros_like(p), where=even > 0)))


@dataclass(frozen=True)
class NoisyTable:
    """Noisy counts of strata, rows and columns, with the law of their noise."""

    answers: Answers
    cells: NDArray[np.int64]  # (K, R, C) place of every cell among the answers
    # (R + C,) mean noise on the margins of rows and columns that were chosen by them; see
    # `DeclaredLevels`
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
            of_group=True,
        )
        return NoisyTable(replace(self.answers, rows=total), cells, shifts)

    @cached_property
    def used(self) -> NoisyTable | None:
        """The table that effect sizes and verdicts use; None if no association can be seen."""
        return self._only(self.levels.used, self.strata.used)

    @property
    def certified(self) -> NoisyTable:
        """The table of the same levels that verdicts use, which rests on no public total."""
        whole = replace(self, answers=self.answers.without_totals)
        return whole._only(self.levels.used, self.strata.used) or whole

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

    @cached_property
    def possible(self) -> NDArray[np.bool_]:
        """Which cells (K, R, C) can occur under the rules between columns."""
        return np.asarray(~self.answers.impossible[self.cells])

    def expected(self, tables: Floats) -> Floats:
        """Expected counts under the null hypothesis of noisy tables (..., K, R, C)."""
        total: Floats | float = self.n
        if not self.answers.rows.public:
            total = np.maximum(tables.sum(axis=(-3, -2, -1)), 1)
        return fit_independence(tables, total, self.possible)

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
        return score_statistic(tables, self.expected(tables), self.scales, other, self.possible)

    def classical(self) -> float:
        """Classical statistic of the noisy counts: Pearson's, or Cochran-Mantel-Haenszel's.

        The latter of the nearest non-negative counts with the total.
        """
        if len(self.cells) > 1 and self.possible.all():
            n = self.n if self.answers.rows.public else max(float(self.observed.sum()), 1.0)
            counts = project_to_total(self.observed.reshape(1, -1), n)
            return cochran_mantel_haenszel(counts.reshape(self.cells.shape))
        none = np.zeros(self.cells.shape)
        expected = self.expected(self.observed)
        return float(score_statistic(self.observed, expected, none, none, self.possible))

    def test(self, simulations: int, rng: np.random.Generator) -> tuple[float, float]:
        """Statistic and p-value of the levels that surely have rows; nan and 1 with too few.

        The p-value has the share for empty levels added, see `DeclaredLevels.pvalue`.
        """

        def pvalue(levels: NDArray[np.bool_]) -> float | None:
            table = self._only(levels)
            return None if table is None else table.bootstrap(simulations, rng)[1]

        table = self.tested
        statistic = np.nan if table is None else float(table.statistic(table.observed))
        return statistic, self.levels.pvalue(pvalue)

    def bootstrap(self, simulations: int, rng: np.random.Generator) -> tuple[float, float]:
        """Statistic and bootstrap p-value of all levels, the larger of two.

        Tables are drawn from the fitted margins, and again from margins shrunk towards equal ones:
        where noise exceeds their spread the fitted ones are too uneven, and where they are uneven
        the shrunk ones are too even; either alone would exceed its level in some case.

        Where the number of rows is not public every table, drawn or observed, is fitted with its
        own total: the law then includes the error of the total.
        """
        if not degrees_of_freedom(self.possible):  # every table is quasi-independent
            return 0.0, 1.0
        statistic = float(self.statistic(self.observed))
        fitted = self.expected(self.observed)
        even = fit_even_independence(
            self.observed, fitted.sum(), self.noise_variance, self.possible
        )
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


_FEW = 20
_ON_EFFECT = (
    "; the interval of Cramer's V is approximate (bootstrap); the p-value says whether there is an "
    "association, the interval how strong it may be"
)
_DRAWS = 400  # of the noise, for the interval of Cramer's V


@weighted_by_design
@dataclass(frozen=True)
class Independence:
    """Test that two columns are independent, in the table or within the levels of a third.

    Parameters
    ----------
    a, b : str
        Columns; numbers by their declared bins.
    given : str, optional
        Column of strata: the test is then of independence within every stratum, by the
        (generalised) Cochran-Mantel-Haenszel statistic. It is sensitive to an association common
        to the strata; one that changes sign between them can cancel, and shows in the residuals.
        Or a condition on other columns, such as ``"age >= 65"``: the test is then of independence
        in the rows that satisfy it.
    simulations : int
        Tables in the bootstrap, 99 to a million; the p-value is at least 1 / (simulations + 1).
    seed : int
        Seed of the simulations, combined with the release; at least 0.

    Raises
    ------
    RequestError
        If a parameter is out of range, or a column is used twice or has a single level.

    References
    ----------
    Gaboardi, M., Lim, H., Rogers, R. and Vadhan, S. (2016). Differentially private chi-squared
    hypothesis testing: goodness of fit and independence testing. ICML, Algorithm 4.
    Mantel, N. and Haenszel, W. (1959). Statistical aspects of the analysis of data from
    retrospective studies of disease. JNCI 22, 719-748.
    Davison, A. C. and Hinkley, D. V. (1997). Bootstrap Methods and their Application, 4.2.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Independence("smoker", "region")
    Independence(a='smoker', b='region', given=None, simulations=1999, seed=0)
    """

    kind: ClassVar[str] = "independence"

    a: str
    b: str
    given: str | None = None
    simulations: int = 1999
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("simulations", self.simulations, 99, MOST_SIMULATIONS)
        check_whole("seed", self.seed, 0)

    def family(self, schema: Schema) -> Family:
        """All cells of the table of the columns, those of a condition included."""
        return Family((self._table(schema),))

    def _strata(self, schema: Schema) -> list[str]:
        if self.given is None or (isinstance(self.given, str) and self.given not in schema.names):
            return []
        return [self.given]

    def _group(self, schema: Schema) -> Subgroup | None:
        """The rows with a condition; None without one."""
        if self.given is None or self._strata(schema):
            return None
        group = Subgroup.of(schema, self.given, [])
        assert group is not None
        if both := [c.name for c in group.columns if c.name in (self.a, self.b)]:
            raise RequestError(
                f"given={self.given!r} involves {both[0]!r} itself; take a condition on other "
                "columns"
            )
        return group

    def _within(self, schema: Schema) -> str:
        """End of titles that names the strata or the subgroup."""
        if self._strata(schema):
            return f" within levels of {self.given}"
        return "" if self.given is None else f", given {self.given}"

    def _table(self, schema: Schema) -> Table:
        group = self._group(schema)
        others = [] if group is None else [column.name for column in group.columns]
        table = Cells.table(schema, [self.a, self.b, *self._strata(schema), *others])
        for column in table.columns:
            if column.bins < 2:
                raise RequestError(f"{column.name!r} has a single level: nothing to test")
        return table

    def combines(self, schema: Schema) -> bool:
        """Without a subgroup, its table may be combined from several measurements."""
        return self._group(schema) is None

    def drawn_tables(self) -> list[tuple[str, ...]]:
        """The table that shows it."""
        return [(self.a, self.b)] if self.given is None else []

    def infer(self, release: ReleaseView) -> ChiSquareResult:
        """Calibrated p-value, Cramer's V and a certified verdict."""
        of_rows = noisy_table(self, release)
        counts = of_rows.of_persons
        rng = calibration_generator(counts.answers, (self.seed, 0))
        statistic, pvalue = counts.test(self.simulations, rng)
        several = of_rows.answers.rows.rows_per_person > 1
        strata, *shape = of_rows.cells.shape
        within, strata_of = self._within(release.schema), self._strata(release.schema)
        chosen = [of_rows.strata.used, *np.split(of_rows.levels.used, shape[:1])]
        inside, names = np.ix_(*chosen), (*strata_of, self.a, self.b)
        labels, used = _levels(release.schema, names, chosen[-len(names) :])
        notes = subgroup_notes(self._group(release.schema), of_rows.answers.rows)
        notes += of_rows.answers.constraint_notes
        notes += left_out("the test and the effect", used, labels, (self.a, self.b))
        notes += left_out("the effect and the certified verdict", used, labels, strata_of)
        expected, residuals = np.full((2, *of_rows.cells.shape), np.nan)
        pearson = effect = np.nan
        df, association = 0, None
        plain, seen, tested = of_rows.used, counts.used, counts.tested
        if tested is None:
            notes.append(
                "there is no test, since fewer than two levels of a column surely have rows"
            )
        else:
            shape = list(tested.cells.shape[1:])
            pearson, df = tested.classical(), degrees_of_freedom(tested.possible)
            if not df:  # nothing is tested
                statistic = pearson = np.nan
            if tested.expected(tested.observed).sum(axis=(1, 2)).min() < _FEW:
                notes.append(
                    f"a stratum has fewer than about {_FEW} rows, too few for an accurate "
                    "bootstrap: in simulations with seven rows in each of three strata a 5% test "
                    "had level 6.5%"
                )
        if plain is not None and seen is not None:
            expected[inside] = plain.expected(plain.observed)
            fitted, allowed = seen.expected(seen.observed), seen.possible
            if allowed.all():
                association = Association(fitted, seen.n, seen.covariance, several)
                effect = association.cramers_v(seen.observed)
                variances = association.residual_variance, association.noise_variance
            else:
                variances = quasi_residual_variances(fitted, seen.covariance)
            departures = (seen.observed - fitted).ravel()
            standard = standardised(departures, *variances).reshape(fitted.shape)
            residuals[inside] = np.where(allowed, standard, np.nan)
            excess = float(np.sum(variances[1][allowed.ravel()] / fitted[allowed]))
            if df:
                notes += noise_notes(
                    excess, len(fitted) * df, fitted[allowed], with_effect=bool(allowed.all())
                )
            else:
                notes.append("no test: every table of the possible cells is quasi-independent")
        independent = "independent"
        classical = "Pearson's" if strata == 1 else "Cochran-Mantel-Haenszel"
        possible = (plain or of_rows).possible
        impossible = possible.size - np.count_nonzero(possible)
        if impossible:
            independent = "quasi-independent"
            classical = "Pearson's" if strata == 1 else "Score"
            notes.append(
                f"{impossible} of {possible.size} cells cannot occur by the rules between "
                "columns: the test is of quasi-independence, in which the expected count of every "
                "other cell is a factor of its row times a factor of its column. There is no "
                "Cramer's V, since its largest value is not known, and no certified verdict"
            )
        if effect == 0:
            notes.append("Cramer's V is no larger than expected from the privacy noise alone")
        if strata > 1 and not impossible:
            notes.append(
                "the certified verdict and Cramer's V use the sum of Pearson's statistics of the "
                "strata, which includes associations that cancel between strata"
            )
        return ChiSquareResult(
            title=f"Independence: {self.a} and {self.b}{within}",
            null=f"{self.a} and {self.b} are {independent}{within}",
            statistic=statistic,
            pvalue=pvalue,
            alternative="two-sided",
            rows=of_rows.answers.rows.of_persons,
            budget=str(release.budget),
            footer=footer(
                of_rows.answers.rows.of_persons,
                release.budget,
                f"score statistic, parametric bootstrap with {self.simulations} tables"
                + ("" if impossible else _ON_EFFECT),
            ),
            df=df,
            cells=of_rows.names,
            observed=of_rows.observed.ravel(),
            expected=expected.ravel(),
            residuals=residuals.ravel(),
            classical=classical,
            pearson=pearson,
            effect_name="Cramer's V",
            effect=effect,
            levels=min(shape) - 1,
            largest_effect=1.0,
            certified_at=partial(_verdict, of_rows),
            effect_at=partial(self._effect_at, seen, association, pvalue),
            notes=(*notes, cell_rules(release.schema, self)),
            tables=(TableOfCells.of(release.schema[name] for name in names),),
            used=used,
        )

    def _cells(self, schema: Schema) -> tuple[Block, NDArray[np.int64]]:
        """Block that a survey measures, and the position in it of every cell (R, C)."""
        if self._strata(schema):
            raise RequestError(
                f"given={self.given!r} names strata, and with a survey design there is no test "
                "within strata; give a condition, or leave given= out"
            )
        table, group = self._table(schema), self._group(schema)
        if group is None:
            order = [c.name for c in table.columns]
            cells = np.arange(table.size).reshape(table.shape)
            return table, cells.transpose([order.index(self.a), order.index(self.b)])
        sets = pairs_in(group, table.columns, (schema[self.a], schema[self.b]))
        cells = np.arange(len(sets)).reshape(schema[self.a].bins, -1)
        return Partition.of(table.columns, sets), cells

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Weighted shares of all cells."""
        block, _ = self._cells(schema)
        return [shares_of_all(block)]

    def infer_weighted(self, release: ReleaseView) -> RaoScottResult:
        """Test of Rao and Scott, and Cramer's V."""
        schema = release.schema
        block, cells = self._cells(schema)
        counts = NoisyTable(release.answers(block, disjoint=True), cells[np.newaxis])
        if not counts.possible.all():
            raise RequestError(
                f"some cells of {self.a!r} and {self.b!r} cannot occur by the rules between "
                "columns, and with a survey design there is no test of quasi-independence"
            )
        levels = counts.levels.used
        used = levels[: len(cells)], levels[len(cells) :]
        labels, kept = _levels(schema, (self.a, self.b), used)
        within = self._within(schema)
        notes = [*left_out("the test and the effect", kept, labels, (self.a, self.b)),
                 cell_rules(schema, self)]  # fmt: skip
        columns = TableOfCells.of(schema[name] for name in labels)
        return chi_square_test(
            release, f"Independence: {self.a} and {self.b}{within}",
            f"{self.a} and {self.b} are independent{within}",
            WeightedTable(block, cells, used, columns), "Cramer's V", None, notes,
        )  # fmt: skip

    def _effect_at(
        self,
        counts: NoisyTable | None,
        association: Association | None,
        pvalue: float,
        alpha: float,
    ) -> Floats:
        """Noise-aware interval for Cramer's V, from 0 where the test does not reject V = 0."""
        if counts is None or association is None:
            return np.array([0.0, 1.0])
        rng = calibration_generator(counts.answers, (self.seed, 1))
        noise = counts.noise(draws_for_interval(alpha, _DRAWS), rng)
        low, high = association.interval(counts.observed, counts.expected, noise, alpha, rng)
        return np.array([0.0 if pvalue > alpha else low, high])


def _levels(
    schema: Schema, names: Sequence[str], used: Sequence[NDArray[np.bool_]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Labels of all levels of some columns, and of those that are used."""
    labels = {name: tuple(schema[name].bin_labels) for name in names}
    pairs = zip(labels.items(), used, strict=True)
    return labels, {name: tuple(itertools.compress(own, kept)) for (name, own), kept in pairs}


def _verdict(whole: NoisyTable, alpha: float) -> CertifiedChiSquare:
    counts = whole.certified
    if not counts.possible.all():
        beta = split_for(counts.n, counts.answers.law(0), alpha)
        sizes = counts.answers.rows.bounds(counts.answers.rows.spent(alpha))
        return CertifiedChiSquare(
            "inconclusive", 0.0, np.inf, np.inf, alpha, beta, sizes,
            "there is no certified test where cells cannot occur",
        )  # fmt: skip
    rows = counts.answers.rows
    of_rows = rows.spent(alpha)
    beta = split_for(counts.n, counts.answers.law(0), alpha - of_rows)
    box, sizes = counts.box(beta), rows.bounds(of_rows)
    return independence_verdict(*box, sizes, alpha, beta + of_rows)


def noisy_table(analysis: Independence, release: ReleaseView) -> NoisyTable:
    """The table that an analysis needs, from plain sums of cells or from all measured tables.

    Whichever has less noise in the interactions: plain sums have the sharper law.
    """
    table, group = analysis._table(release.schema), analysis._group(release.schema)
    if group is not None:
        return _table_of(group, table, (analysis.a, analysis.b), release)
    order = [c.name for c in table.columns]
    names = (*analysis._strata(release.schema), analysis.a, analysis.b)
    axes = [order.index(name) for name in names]
    cells = np.arange(table.size).reshape(table.shape).transpose(axes)
    cells = cells.reshape(-1, *cells.shape[-2:])
    combined = NoisyTable(release.answers(table).with_totals, cells)
    plain = NoisyTable(release.answers(table, disjoint=True), cells)
    return combined if combined.interaction_noise < plain.interaction_noise * 0.999 else plain


def _table_of(
    group: Subgroup, table: Table, pair: tuple[str, str], release: ReleaseView
) -> NoisyTable:
    """The table of two columns in a subgroup, whose number of rows is not public."""
    shown = [release.schema[name] for name in pair]
    sets = pairs_in(group, table.columns, shown)
    blocks = [Indicator(cell_set(table.columns, held), text) for text, held in sets.items()]
    every = Indicator(group.cells, group.name)
    whole = release.answers([*blocks, every], disjoint=True).of_counted_rows()
    cells = np.arange(len(blocks)).reshape(1, *(column.bins for column in shown))
    return NoisyTable(whole.subset(slice(len(blocks))), cells)


def pairs_in(
    group: Subgroup, columns: tuple[Column, ...], pair: Sequence[Column]
) -> dict[str, NDArray[np.bool_]]:
    """Cells over the columns of every pair of levels in a subgroup, by their names."""
    inside, sets = group.over(columns), {}
    for levels in itertools.product(*(range(column.bins) for column in pair)):
        held, texts = inside.copy(), []
        for column, level in zip(pair, levels, strict=True):
            axis = columns.index(column)
            shape = [column.bins if i == axis else 1 for i in range(held.ndim)]
            held &= (np.arange(column.bins) == level).reshape(shape)
            texts.append(f"{column.name}={column.bin_labels[level]}")
        sets[", ".join(texts)] = held
    return sets
