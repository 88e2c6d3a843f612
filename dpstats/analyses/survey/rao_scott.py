"""Tests of first order of Rao and Scott: statistics over the mean of their design effects.

Equations are those of docs/explanation/inference/survey.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.survey.estimand import ratios
from dpstats.analyses.survey.weighted import (
    HIDDEN,
    Estimates,
    Totals,
    design_footer,
    design_notes,
    effective_number,
)
from dpstats.analyses.tables.cells import TableOfCells, crosstab, with_levels
from dpstats.arrays import Codes, Floats
from dpstats.checks import Target, check_choice
from dpstats.families.block import Block
from dpstats.measured.view import ReleaseView
from dpstats.results.hypothesis import HypothesisResult
from dpstats.results.rendering import (
    MOST,
    Page,
    fixed,
    more_rows,
    shown_df,
    shown_pvalue,
    significant,
)
from dpstats.schema import Design

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount

_LEAST_SHARE = 0.25  # of a cell, over its expected one, that design effects are computed at


@dataclass(frozen=True)
class FirstOrder:
    """A quadratic form, corrected by the traces of its design effects (eq. rao-scott).

    Attributes
    ----------
    statistic, pvalue : float
        Of an F distribution.
    df : (float, float)
        Degrees of freedom of both sorts.
    effect : float
        Mean of the design effects.
    """

    statistic: float
    pvalue: float
    df: tuple[float, float]
    effect: float


_NO_TEST = FirstOrder(np.nan, 1.0, (np.nan, np.nan), np.nan)


@dataclass(frozen=True)
class Covariances:
    """Covariances (q, q) of q departures from a null hypothesis.

    Attributes
    ----------
    independent
        Of the sampling error of as many independent rows, under the null hypothesis.
    linearised : (J, q) float64
        Contrasts of the departures; none with a declared design effect.
    subtracted
        What noise adds to the sum of their products.
    noise
        Of the noise on the departures.
    most_contrasts : float
        Effective number of contrasts, where all have about the same variance.
    deff : float or None
    """

    independent: Floats
    linearised: Floats
    subtracted: Floats
    noise: Floats
    most_contrasts: float
    deff: float | None

    @classmethod
    def of(cls, estimates: Estimates, slopes: Floats, independent: Floats) -> Covariances:
        """Covariances of combinations (q, p) of some estimates."""
        used = np.flatnonzero(slopes.any(axis=0))  # others may have no estimate
        slopes, within = slopes[:, used], np.ix_(used, used)
        return cls(
            independent,
            estimates.linearised[:, used] @ slopes.T,
            slopes @ estimates.contrast_moments[1][within] @ slopes.T,
            slopes @ estimates.noise_covariance[within] @ slopes.T,
            estimates.most_contrasts if estimates.contrasts else 0.0,
            estimates.totals.design.deff,
        )

    def effects(self) -> tuple[float, float, float]:
        """Trace of the design effects, that of their squares, and degrees of freedom.

        A variance in any direction that noise could hide is at least that of independent rows.
        """
        root = np.linalg.cholesky(self.independent)

        def over(covariance: Floats) -> Floats:
            half = np.linalg.solve(root, covariance)
            return np.asarray(np.linalg.solve(root, half.T))

        noise, df = over(self.noise), np.inf
        if len(self.linearised):
            z, subtracted = np.linalg.solve(root, self.linearised.T).T, over(self.subtracted)
            products = z.T @ z
            shape = np.trace(products) ** 2 / max(np.sum(products**2), 1e-300)
            squares, shape = np.sum(z**2, axis=1), max(float(shape), 1.0)
            contrasts = float(effective_number(squares, shape, self.most_contrasts))
            in_all = float(effective_number(squares, 1.0, np.inf))  # of the trace, in any case
            contrasts = max(min(contrasts, in_all / shape), 1.0)
            values, vectors = np.linalg.eigh(products - subtracted)
            added = np.diag(vectors.T @ subtracted @ vectors)
            floor = np.minimum(HIDDEN * added * np.sqrt(2 / contrasts), 1)
            sampling = (vectors * np.maximum(values, floor)) @ vectors.T
            measured = max(np.trace(products), np.trace(sampling + subtracted))
            whole = np.trace(sampling + noise)
            ratio = float(whole / measured) if measured > 0 else 1.0
            df = float(np.clip(contrasts * ratio**2, 1.0, contrasts))
        else:
            assert self.deff is not None
            sampling = self.deff * np.eye(len(noise))
        delta = np.linalg.solve(np.eye(len(noise)) + noise, sampling + noise)
        return float(np.trace(delta)), float(np.trace(delta @ delta)), df


def first_order(departures: Floats, null: Floats, parts: Covariances) -> FirstOrder:
    """Test that departures (q,) are zero, of covariance `null` (q, q) if rows were independent.

    `null` includes the noise, as the design effects of `parts` do.
    """
    from scipy import stats

    if not (np.isfinite(null).all() and np.isfinite(departures).all()):
        return _NO_TEST
    try:
        np.linalg.cholesky(null)
        np.linalg.cholesky(parts.independent)
    except np.linalg.LinAlgError:  # noise leaves fewer rows than none
        return _NO_TEST
    quadratic = float(departures @ np.linalg.solve(null, departures))
    trace, squared, df = parts.effects()
    if trace <= 0:  # all are known
        return FirstOrder(quadratic, float(quadratic < 1), (float(len(departures)), df), 0.0)
    k = trace**2 / squared
    statistic = quadratic / trace
    law = stats.chi2.sf(quadratic / trace * k, k) if np.isinf(df) else None
    pvalue = stats.f.sf(statistic, k, k * df) if law is None else law
    return FirstOrder(statistic, float(pvalue), (k, k * df), trace / len(departures))


@dataclass(frozen=True, repr=False, eq=False)
class RaoScottResult(HypothesisResult):
    """A chi-square test of a survey, of first order of Rao and Scott [1]_ [2]_.

    Pearson's statistic of weighted shares over the mean of their design effects, which allow for
    the noise too. Its distribution is F with the degrees of freedom of `df`.

    Attributes
    ----------
    df : (float, float)
        Thomas and Rao's, and those times the degrees of freedom of the covariance.
    cells : list of str
    shares, expected, residuals : (d,) float64
        Noisy weighted shares, those under the null hypothesis, and their differences over standard
        errors of the design; nan in levels that may have no rows.
    design_effect : float
        Mean of the design effects.
    effect_name : str
        Cohen's w, sqrt(sum (p - p0)^2 / p0), or Cramer's V.
    effect : float
        Its estimate, corrected for the bias of the noise.
    design : Design
    rows : RowCount
        Sum of the weights.
    budget : str
    tables : tuple of TableOfCells

    References
    ----------
    .. [1] Rao, J. N. K. and Scott, A. J. (1984). On chi-squared tests for multiway contingency
       tables with cell proportions estimated from survey data. Ann. Statist. 12, 46-60.
    .. [2] Thomas, D. R. and Rao, J. N. K. (1987). Small-sample comparisons of level and power for
       simple goodness-of-fit statistics under cluster sampling. JASA 82, 630-636.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> design = dps.Design("weight", mean=2, cap=3, unit="school", units=list(range(40)))
    >>> columns = [dps.Boolean("smoker"), dps.Category("region", ["north", "south"])]
    >>> schema, link = dps.Schema(columns, design=design), dps.Independence("smoker", "region")
    >>> plan = dps.plan(schema, {"link": link}, budget=dps.PureDP(5), n=4_000)
    >>> rows = pd.DataFrame({"smoker": [True, False] * 2_000, "weight": [3, 1] * 2_000})
    >>> rows["region"] = ["north", "north", "south", "south"] * 1_000
    >>> rows["school"] = rows.index // 100
    >>> result = dps.release(plan, rows).infer(link)
    >>> result.pvalue > 0.001, result.effect < 0.1
    (True, True)
    """

    df: tuple[float, float] = field(kw_only=True)
    cells: list[str] = field(kw_only=True)
    shares: Floats = field(kw_only=True)
    expected: Floats = field(kw_only=True)
    residuals: Floats = field(kw_only=True)
    design_effect: float = field(kw_only=True)
    effect_name: str = field(kw_only=True)
    effect: float = field(kw_only=True)
    design: Design = field(kw_only=True)
    rows: RowCount = field(kw_only=True)
    budget: str = field(kw_only=True)
    tables: tuple[TableOfCells, ...] = field(kw_only=True)

    @property
    def headline(self) -> str:
        """The p-value, and the effect."""
        known = "" if np.isnan(self.effect) else f"; {self.effect_name} {significant(self.effect)}"
        return super().headline + known

    def to_frame(self) -> pd.DataFrame:
        """One row per cell.

        Returns
        -------
        DataFrame
            Columns cell, one of levels for each column of the table, share, expected and residual.
        """
        return with_levels(self._shares(), self.tables, "cell")

    def _shares(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame({"cell": self.cells, "share": self.shares, "expected": self.expected,
                             "residual": self.residuals})  # fmt: skip

    def crosstab(self, *columns: str, values: str = "share") -> pd.DataFrame:
        """The table as rows and columns, as ``pandas.crosstab`` has them.

        Parameters
        ----------
        *columns : str
            All columns of the table: the last one across, the others down.
        values : {"share", "expected", "residual"}

        Returns
        -------
        DataFrame
            The levels of the last column across, those of the others as index.

        Raises
        ------
        RequestError
            If these are not the columns of the table, or the values are not known.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> design = dps.Design("weight", mean=2, cap=3, unit="school", units=list(range(40)))
        >>> columns = [dps.Boolean("smoker"), dps.Category("region", ["north", "south"])]
        >>> schema, link = dps.Schema(columns, design=design), dps.Independence("smoker", "region")
        >>> plan = dps.plan(schema, {"link": link}, budget=dps.PureDP(10), n=4_000)
        >>> rows = pd.DataFrame({"smoker": ([True] + [False] * 3) * 1_000, "weight": 2})
        >>> rows["region"] = ["north"] * 2_000 + ["south"] * 2_000
        >>> rows["school"] = rows.index % 40
        >>> result = dps.release(plan, rows).infer(link)
        >>> print(result.crosstab("region", "smoker", values="expected").round(1))
        smoker  False  True
        region
        north     0.4   0.1
        south     0.4   0.1
        """
        frame = self._shares()
        check_choice("values", values, list(frame.columns[1:]))
        return crosstab(self.tables, columns, frame[values])

    def _page(self, target: Target) -> Page:
        if target == "table":
            return super()._page(target)
        cells = zip(self.cells, self.shares, self.expected, self.residuals, strict=True)
        rows = [[cell, fixed(share, 4), fixed(expected, 4), fixed(residual, 2)]
                for cell, share, expected, residual in cells][:MOST]  # fmt: skip
        left = len(self.cells) - len(rows)
        remarks = [f"Note: {note}" for note in ([more_rows(left)] if left else []) + [*self.notes]]
        lines = [f"null hypothesis: {self.null}", ""]
        if np.isfinite(self.statistic):
            lines += [
                f"p-value {shown_pvalue(self.pvalue)} (F = {significant(self.statistic)} on "
                f"{shown_df(self.df)} df; design effect {significant(self.design_effect)})",
                f"{self.effect_name} = {significant(self.effect)}",
            ]
        head = ["cell", "share", "expected", "residual"]
        return Page(self.title, lines, head, rows, after=[*self.footer.splitlines(), *remarks])


@dataclass(frozen=True)
class WeightedTable:
    """Cells of a block whose shares are tested.

    Attributes
    ----------
    block : Block
    cells : (R, C) int64
        Place of every cell among the functions of the block; R is 1 for a single column.
    used : (R,) bool and (C,) bool
        Levels that surely have rows.
    table : TableOfCells
    """

    block: Block
    cells: Codes
    used: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    table: TableOfCells


def chi_square_test(
    release: ReleaseView, title: str, null: str, tested: WeightedTable, effect: str,
    probabilities: Floats | None, notes: Sequence[str],
) -> RaoScottResult:  # fmt: skip
    """Test of given probabilities of cells, or without them of independence."""
    totals, design = Totals.of(release, tested.block).uncalibrated, release.schema.design
    assert design is not None
    places = tested.cells[np.ix_(*tested.used)]
    rows, columns = places.shape
    every = np.zeros((len(places.ravel()), tested.block.size))
    every[:, places.ravel()] = 1
    own = np.zeros_like(every)
    own[np.arange(len(every)), places.ravel()] = 1
    names = [tested.block.names[i] for i in tested.cells.ravel()]
    shares = ratios(tested.block, [tested.block.names[i] for i in places.ravel()], own, every)
    estimates = Estimates(shares, totals)
    p, n = estimates.params, float(totals.values[places].sum()) / design.coded_mean
    fit = probabilities
    if fit is None:
        fit = np.outer(
            p.reshape(places.shape).sum(axis=1), p.reshape(places.shape).sum(axis=0)
        ).ravel()
    noise = estimates.noise_covariance
    shown, expected, residuals = np.full((3, *tested.cells.shape), np.nan)
    shown.ravel()[:] = totals.values[tested.cells.ravel()] / max(
        totals.values[tested.cells].sum(), 1
    )
    test, size = _NO_TEST, np.nan
    if n > 0 and columns > 1 and (rows > 1 or probabilities is not None) and fit.min() > 0:
        contrasts = _contrasts_of(rows, columns)
        over_fit = contrasts / fit
        found = over_fit @ (p - fit)
        plain = over_fit @ np.diag(fit) @ over_fit.T
        at = fit if probabilities is not None else _between(p, fit, np.diag(noise), n)
        slopes = contrasts / at
        parts = Covariances.of(estimates, slopes, slopes @ np.diag(at) @ slopes.T / n)
        test = first_order(found, plain / n + over_fit @ noise @ over_fit.T, parts)
        squared = found @ np.linalg.solve(plain, found)
        squared -= np.trace(np.linalg.solve(plain, over_fit @ noise @ over_fit.T))
        largest = float(1 / fit.min() - 1) if probabilities is not None else min(rows, columns) - 1
        size = float(
            np.sqrt(np.clip(squared, 0, largest) / (1 if probabilities is not None else largest))
        )
        inside = np.ix_(*tested.used)
        expected[inside] = fit.reshape(places.shape)
        change = _residuals_of(places.shape, fit) if probabilities is None else np.eye(len(fit))
        of_sampling, of_noise = (
            np.diag(change @ one @ change.T) for one in (estimates.sampling_covariance, noise)
        )
        sd = np.sqrt(np.maximum(np.maximum(of_sampling, 0) + of_noise, 1e-300))
        residuals[inside] = ((p - fit) / sd).reshape(places.shape)
    else:
        notes = ["there is no test, since fewer than two levels of a column surely have rows, or "
                 "fewer rows than the noise",
                 *notes]  # fmt: skip
    answers = totals.answers
    method = "Rao and Scott's, by an F distribution, with the noise in both covariances"
    budget = str(release.budget)
    return RaoScottResult(
        title, null, test.statistic, test.pvalue, "two-sided",
        design_footer(design, answers.rows, budget, method, "population"),
        notes=(*notes, *design_notes(design, [estimates])),
        df=test.df,
        cells=names, shares=shown.ravel(), expected=expected.ravel(), residuals=residuals.ravel(),
        design_effect=test.effect,
        effect_name=effect, effect=float(size), design=design, rows=answers.rows, budget=budget,
        tables=(tested.table,),
    )  # fmt: skip


def _contrasts_of(rows: int, columns: int) -> Floats:
    """(q, rows columns) interactions of a table; of a single row, differences to its last cell."""

    def differences(size: int) -> Floats:
        return (
            np.column_stack([np.eye(size - 1), -np.ones(size - 1)]) if size > 1 else np.ones((1, 1))
        )

    return np.asarray(np.kron(differences(rows), differences(columns)), np.float64)


def _between(p: Floats, fit: Floats, noise: Floats, n: float) -> Floats:
    """Shares (d,) for design effects: noisy ones, or expected ones where noise is large."""
    sampling = fit * (1 - fit) / n
    near = sampling / (sampling + noise)
    return np.asarray(np.maximum(near * p + (1 - near) * fit, _LEAST_SHARE * fit))


def _residuals_of(shape: tuple[int, ...], fit: Floats) -> Floats:
    """Derivatives (d, d) of shares less products of their margins."""
    rows, columns = shape
    table = fit.reshape(shape)
    of_row = np.kron(np.eye(rows), np.ones((columns, columns)))  # cells of the same row
    of_column = np.kron(np.ones((rows, rows)), np.eye(columns))
    r, c = table.sum(axis=1), table.sum(axis=0)
    return np.asarray(np.eye(len(fit)) - of_row * np.tile(c, rows)[:, np.newaxis]
                      - of_column * np.repeat(r, columns)[:, np.newaxis])  # fmt: skip
