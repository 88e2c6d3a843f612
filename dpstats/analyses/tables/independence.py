"""Independence of two columns, in the population or within strata, from noisy counts.

The p-value is from a parametric bootstrap: tables are drawn under the fitted null hypothesis, noise
from its exact law is added, and the statistic is computed again, fit included. It is valid for any
statistic whose null law varies little with the margins over the error of their fit.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpstats.analyses.notes import cell_rules, left_out, subgroup_notes
from dpstats.analyses.tables.association import Association
from dpstats.analyses.tables.cells import TableOfCells
from dpstats.analyses.tables.chi_square_result import ChiSquareResult, noise_notes, standardised
from dpstats.analyses.tables.noisy_table import NoisyTable
from dpstats.arrays import Floats
from dpstats.checks import check_whole
from dpstats.corrected.chi_square import CertifiedChiSquare, independence_verdict
from dpstats.error_rates import split_for
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.conditions import cell_set
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator, Table
from dpstats.inference.simulation import (
    MOST_SIMULATIONS,
    calibration_generator,
    draws_for_interval,
)
from dpstats.measured.view import ReleaseView
from dpstats.results.base import footer
from dpstats.schema import Schema

_FEW = 20
_DRAWS = 400  # of the noise, for the interval of Cramer's V


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
        from scipy import special

        of_rows = noisy_table(self, release)
        counts = of_rows.of_persons
        rng = calibration_generator(counts.answers, (self.seed, 0))
        statistic, pvalue = counts.test(self.simulations, rng)
        several = of_rows.answers.rows.rows_per_person > 1
        strata, *shape = of_rows.cells.shape
        strata_of, group = self._strata(release.schema), self._group(release.schema)
        within = f" within levels of {self.given}" if strata_of else ""
        within += "" if group is None else f", given {self.given}"
        chosen = [of_rows.strata.used, *np.split(of_rows.levels.used, shape[:1])]
        inside, names = np.ix_(*chosen), (*strata_of, self.a, self.b)
        labels = {name: release.schema[name].bin_labels for name in names}
        used = {
            name: tuple(itertools.compress(labels[name], levels))
            for name, levels in zip(names, chosen[-len(names) :], strict=True)
        }
        notes = subgroup_notes(group, of_rows.answers.rows)
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
            pearson, df = tested.classical(), (shape[0] - 1) * (shape[1] - 1)
            if tested.expected(tested.observed).sum(axis=(1, 2)).min() < _FEW:
                notes.append(
                    f"a stratum has fewer than about {_FEW} rows, too few for an accurate "
                    "bootstrap: in simulations with seven rows in each of three strata a 5% test "
                    "had level 6.5%"
                )
        if plain is not None and seen is not None:
            expected[inside] = plain.expected(plain.observed)
            fitted = seen.expected(seen.observed)
            association = Association(fitted, seen.n, seen.covariance, several)
            residuals[inside] = standardised(
                (seen.observed - fitted).ravel(),
                association.residual_variance,
                association.noise_variance,
            ).reshape(fitted.shape)
            effect = association.cramers_v(seen.observed)
            excess = float(np.sum(association.noise_variance / fitted.ravel()))
            notes += noise_notes(excess, len(fitted) * df, fitted)
        if effect == 0:
            notes.append("Cramer's V is no larger than expected from the privacy noise alone")
        if strata > 1:
            notes.append(
                "the certified verdict and Cramer's V use the sum of Pearson's statistics of the "
                "strata, which includes associations that cancel between strata"
            )
        return ChiSquareResult(
            title=f"Independence: {self.a} and {self.b}{within}",
            null=f"{self.a} and {self.b} are independent{within}",
            statistic=statistic,
            pvalue=pvalue,
            alternative="two-sided",
            rows=of_rows.answers.rows.of_persons,
            budget=str(release.budget),
            footer=footer(
                of_rows.answers.rows.of_persons,
                release.budget,
                f"score statistic, parametric bootstrap with {self.simulations} tables; the "
                "interval of Cramer's V is approximate (bootstrap); the p-value says whether there "
                "is an association, the interval how strong it may be",
            ),
            df=df,
            cells=of_rows.names,
            observed=of_rows.observed.ravel(),
            expected=expected.ravel(),
            residuals=residuals.ravel(),
            classical="Pearson's" if strata == 1 else "Cochran-Mantel-Haenszel",
            pearson=pearson,
            pearson_pvalue=float(special.chdtrc(df, pearson)),
            effect_name="Cramer's V",
            effect=effect,
            levels=min(shape) - 1,
            largest_effect=1.0,
            certified_at=partial(_verdict, plain or of_rows),
            effect_at=partial(self._effect_at, seen, association, pvalue),
            notes=(*notes, cell_rules(release.schema, self)),
            tables=(TableOfCells.of(release.schema[c] for c in (*strata_of, self.a, self.b)),),
            used=used,
        )

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


def _verdict(counts: NoisyTable, alpha: float) -> CertifiedChiSquare:
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
    combined = NoisyTable(release.answers(table), cells)
    plain = NoisyTable(release.answers(table, disjoint=True), cells)
    return combined if combined.interaction_noise < plain.interaction_noise * 0.999 else plain


def _table_of(
    group: Subgroup, table: Table, pair: tuple[str, str], release: ReleaseView
) -> NoisyTable:
    """The table of two columns in a subgroup, whose number of rows is not public."""
    inside = group.over(table.columns)
    blocks = []
    shown = [release.schema[name] for name in pair]
    for levels in itertools.product(*(range(column.bins) for column in shown)):
        held, texts = inside.copy(), []
        for column, level in zip(shown, levels, strict=True):
            axis = table.columns.index(column)
            shape = [column.bins if i == axis else 1 for i in range(held.ndim)]
            held &= (np.arange(column.bins) == level).reshape(shape)
            texts.append(f"{column.name}={column.bin_labels[level]}")
        blocks.append(Indicator(cell_set(table.columns, held), ", ".join(texts)))
    every = Indicator(group.cells, group.name)
    whole = release.answers([*blocks, every], disjoint=True).of_counted_rows()
    cells = np.arange(len(blocks)).reshape(1, *(column.bins for column in shown))
    return NoisyTable(whole.subset(slice(len(blocks))), cells)
