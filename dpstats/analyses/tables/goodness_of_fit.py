"""Chi-square goodness of fit: whether a column follows given probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpstats.analyses.base import AlternativeShares
from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.tables.cells import TableOfCells
from dpstats.analyses.tables.chi_square_result import ChiSquareResult, noise_notes, standardised
from dpstats.analyses.tables.departures import Departures, effect_interval
from dpstats.arrays import Floats
from dpstats.checks import as_float, check_whole, listed, short
from dpstats.corrected.chi_square import CertifiedChiSquare, check_probabilities, fit_verdict
from dpstats.error_rates import splits_of_fit
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.conditions import CellSet
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator
from dpstats.inference.simulation import (
    MOST_SIMULATIONS,
    calibration_generator,
    draws_for_interval,
)
from dpstats.measured.answers import Answers, joint_noise_quantiles
from dpstats.measured.view import ReleaseView
from dpstats.results.base import footer
from dpstats.schema import Category, Column, Schema
from dpstats.schema.column_fields import MISSING_LABEL


@dataclass(frozen=True)
class GoodnessOfFit:
    """Chi-square test that a column follows given probabilities.

    The statistic is simulated under the null: multinomial counts plus the exact law of the
    privacy noise. Observed and simulated statistics are then exchangeable, so the p-value
    (1 + number of larger ones) / (simulations + 1) is valid for any n, sparse cells and any
    noise. The statistic is an average likelihood ratio, which has more power than Pearson's
    on noisy counts [1]_ [2]_.

    Parameters
    ----------
    column : str
        A column with levels, or a number with bins.
    probabilities : sequence or mapping
        The null hypothesis: one probability per level (or bin) in the order of the schema, or a
        mapping from each level's label (or declared value) to its probability; a pandas Series
        is a mapping from its index. Positive, sum 1 (to 1e-9). Of a column with ``allow_missing``,
        without a probability for "(missing)" the test is of the rows that have a value.
    simulations : int
        Simulated tables, 99 to a million; no p-value is below 1 / (simulations + 1).
    seed : int
        Seed of the simulation, combined with the release. Public, and independent of the privacy
        noise.

    References
    ----------
    .. [1] M. Gaboardi, H. W. Lim, R. Rogers and S. Vadhan (2016), Differentially private
       chi-squared hypothesis testing, ICML, Algorithm 1 (simulation under the null).
    .. [2] D. Kifer and R. Rogers (2017), A new class of private chi-square hypothesis tests,
       AISTATS.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.GoodnessOfFit("smoker", {"no": 0.8, "yes": 0.2})
    GoodnessOfFit(column='smoker', probabilities={'no': 0.8, 'yes': 0.2}, simulations=4999, seed=0)
    """

    kind: ClassVar[str] = "goodness_of_fit"

    column: str
    probabilities: Sequence[float] | Mapping[str, float]
    simulations: int = 4999
    seed: int = 0

    def __post_init__(self) -> None:
        given: Any = self.probabilities
        labelled = hasattr(given, "items")  # a mapping, or a Series
        given = given if labelled else listed(given)
        if not labelled and (isinstance(given, str) or not isinstance(given, Sequence)):
            raise RequestError(
                f"probabilities must be a list or a mapping from labels, got {short(given)}"
            )
        pairs = list(given.items()) if labelled else list(enumerate(given))
        labels, values = [str(label) for label, _ in pairs], [value for _, value in pairs]
        if len(set(labels)) < len(labels):
            raise RequestError("probabilities name a label twice")
        try:
            numbers = [as_float(value) for value in values]
        except (TypeError, ValueError):
            raise RequestError(f"probabilities must be numbers, got {short(given)}") from None
        if labelled and dict(zip(labels, numbers, strict=True)).get(MISSING_LABEL) == 0:
            raise RequestError(
                f"probabilities give {MISSING_LABEL!r} a probability of 0; leave it out, and the "
                "test is of the shares among the rows that have a value"
            )
        check_probabilities(numbers)
        plain = dict(zip(labels, numbers, strict=True)) if labelled else tuple(numbers)
        object.__setattr__(self, "probabilities", plain)
        check_whole("simulations", self.simulations, 99, MOST_SIMULATIONS)
        check_whole("seed", self.seed, 0)

    def __hash__(self) -> int:
        given = self.probabilities
        plain = frozenset(given.items()) if isinstance(given, Mapping) else given
        return hash((self.column, plain, self.simulations, self.seed))

    def family(self, schema: Schema) -> Family:
        """The table of the one column."""
        table = Cells.table(schema, [self.column])
        self.expected_shares(schema)
        return Family((table,))

    def combines(self, schema: Schema) -> bool:
        """Its table may be combined from several measurements."""
        return True

    def alternative(
        self, schema: Schema, effect: Sequence[float] | Mapping[str, float]
    ) -> AlternativeShares:
        """Rows with other probabilities of the same levels.

        Raises
        ------
        RequestError
            If these are no probabilities of the levels.
        """
        shares = replace(self, probabilities=effect).expected_shares(schema)
        null = self.expected_shares(schema)
        if len(shares) != len(null):
            raise RequestError(
                f"alternative={short(effect)} must be about the same levels as the probabilities "
                "of the test: both with a level for missing cells, or both without"
            )
        return AlternativeShares([(list(range(len(shares))), shares)], shares, null)

    def drawn_tables(self) -> list[tuple[str, ...]]:
        """The column, whose levels show it."""
        return [(self.column,)]

    def infer(self, release: ReleaseView) -> ChiSquareResult:
        """Calibrated and certified tests, residuals and effect size."""
        p0 = self.expected_shares(release.schema)
        column = release.schema[self.column]
        given = Subgroup.of(release.schema, None, [self.column]) if len(p0) < column.bins else None
        if given is None:
            family = self.family(release.schema)
            rows, of_rows = (
                Departures(a, p0)
                for a in (release.answers(family, with_count=True), _tested(release, family))
            )
        else:
            rows = of_rows = Departures(_of_answered(release, column, given), p0)
        best, tested = rows.of_persons, of_rows.of_persons
        among = "" if given is None else f" among the {given.described},"
        n, d = best.n, len(p0)
        rng = calibration_generator(tested.answers, (self.seed, 0))
        statistic, pvalue = tested.test(self.simulations, rng)
        noise_variances = np.diag(best.covariance)
        pearson = float(np.sum(best.observed**2 / (n * p0)))
        excess = float(np.sum(noise_variances / (n * p0)))
        largest = float(np.sqrt(1 / p0.min() - 1))
        return ChiSquareResult(
            title=f"Goodness of fit: {self.column}",
            null=f"{self.column} has the given probabilities{among} in the population",
            statistic=statistic,
            pvalue=pvalue,
            alternative="two-sided",
            rows=rows.answers.rows.of_persons,
            budget=str(release.budget),
            footer=footer(
                rows.answers.rows.of_persons,
                release.budget,
                "noise-aware (simulation of sampling and of the known law of the privacy noise "
                f"under the null, {self.simulations} tables)",
            ),
            df=d - 1,
            cells=best.counts.names,
            observed=rows.counts.sums,
            expected=rows.n * p0,
            residuals=standardised(best.observed, n * p0 * (1 - p0), noise_variances),
            classical="Pearson's",
            pearson=pearson,
            pearson_pvalue=_chi_square_tail(pearson, d - 1),
            effect_name="Cohen's w",
            effect=float(np.clip(np.sqrt(max(0.0, pearson - excess) / n), 0, largest)),
            levels=1,
            largest_effect=largest,
            certified_at=partial(_certified, of_rows),
            effect_at=partial(self._effect_at, best, rows.answers.rows.rows_per_person > 1),
            notes=(
                *subgroup_notes(given, rows.answers.rows),
                *noise_notes(excess, d - 1, n * p0),
                cell_rules(release.schema, self),
            ),
            tables=(TableOfCells((self.column,), (column.bin_labels[:d],)),),
        )

    def _effect_at(self, best: Departures, several: bool, alpha: float) -> Floats:
        """Noise-aware interval for the effect."""
        rng = calibration_generator(best.answers, (self.seed, 1))
        noise = best.noise(draws_for_interval(alpha, self.simulations), rng)
        return effect_interval(
            best.observed, noise, best.n, best.p0, rng, alpha=alpha, bounded=several
        )

    def expected_shares(self, schema: Schema) -> Floats:
        """Probabilities (d,) in the order of the levels; without one of "(missing)" if none is."""
        column, given = schema[self.column], self.probabilities
        labels = list(column.bin_labels)
        named = {str(label) for label in given} if isinstance(given, Mapping) else set()
        without = MISSING_LABEL not in named if named else len(given) == len(labels) - 1
        if column.allow_missing and without:
            labels.pop()
        if isinstance(given, Mapping):
            positions = {label: _position(column, label) for label in given}
            unknown = [label for label, i in positions.items() if i is None]
            lacking = [label for i, label in enumerate(labels) if i not in positions.values()]
            twice = len(set(positions.values())) < len(positions) and not unknown
            if unknown or lacking or twice:
                raise RequestError(
                    f"probabilities for {self.column!r}: "
                    + (f"unknown labels {unknown}; " if unknown else "")
                    + (f"no probability for {lacking}; " if lacking else "")
                    + ("a level is named twice; " if twice else "")
                    + f"its levels or bins are {labels}{_optional(column)}"
                )
            ordered = sorted((i, given[label]) for label, i in positions.items() if i is not None)
            return check_probabilities([probability for _, probability in ordered])
        if len(given) != len(labels):
            raise RequestError(
                f"{len(given)} probabilities were given, but {self.column!r} has {len(labels)} "
                f"levels or bins: {labels}{_optional(column)}"
            )
        return check_probabilities(given)


def _optional(column: Column) -> str:
    """That the level of missing cells may be left out, where there is one."""
    if not column.allow_missing:
        return ""
    return f"; without {MISSING_LABEL!r} the test is of the rows that have a value"


def _of_answered(release: ReleaseView, column: Column, given: Subgroup) -> Answers:
    """Counts of the levels, and last the number of rows with a value, whose share is free.

    Given that number, the counts are multinomial with the probabilities of the null hypothesis,
    whatever made the other cells missing.
    """
    every = np.arange(column.bins)
    cells = (CellSet((column,), (every == i).tobytes()) for i in every[:-1])
    levels = [
        Indicator(cell, f"{column.name}={label}")
        for cell, label in zip(cells, column.bin_labels[:-1], strict=True)
    ]
    answered = CellSet((column,), given.over((column,)).tobytes())
    return release.answers([*levels, Indicator(answered, given.name)]).of_counted_rows()


def _position(column: Column, label: str) -> int | None:
    """Number of the level or bin with this label, or with this number as its value."""
    if label in column.bin_labels:
        return column.bin_labels.index(label)
    try:
        number = float(label)
    except ValueError:
        return None
    if isinstance(column, Category):
        values: Sequence[object] = column.labels
    else:
        values = column.values if column.values and not column.edges else ()
    return next((i for i, v in enumerate(values) if not isinstance(v, str) and v == number), None)


def _tested(release: ReleaseView, family: Family) -> Answers:
    """Counts for the tests: with independent noise unless combining tables gains much.

    Best linear counts use a known n, which correlates their noise and saves only one part in d of
    its variance; a likelihood of the measured counts uses n and the shape of the law.
    """
    combined = release.answers(family, with_count=True)
    plain = release.answers(family, disjoint=True)
    enough = 0.9 * (1 - 1 / len(plain.sums)) * np.mean(plain.noise_variances)
    gains_little = bool(np.mean(combined.noise_variances) >= enough)
    return plain if plain.rows.public and plain.independent and gains_little else combined


def _certified(tested: Departures, alpha: float) -> CertifiedChiSquare:
    """The certified verdict; its split of alpha depends on public numbers only.

    The root of the statistic is a norm of the counts, and the box moves it by at most
    sqrt(sum radius^2 / (n p0)): take the split with the smallest effect that is surely detected.
    """
    from scipy.special import chdtri

    answers, p0 = tested.counts, tested.p0
    of_rows = tested.answers.rows.spent(alpha)
    n, left = answers.n, alpha - of_rows

    def detected(beta: float) -> float:
        radius = joint_noise_quantiles(answers, beta)
        return float(
            np.sqrt(chdtri(len(p0) - 1, left - beta)) + 2 * np.sqrt(np.sum(radius**2 / (n * p0)))
        )

    beta = min(splits_of_fit(left, bound_only=answers.bound_only), key=detected)
    radius = joint_noise_quantiles(answers, beta)
    ends = answers.sums - radius, answers.sums + radius
    return fit_verdict(*ends, answers.rows.bounds(of_rows), p0, alpha, beta + of_rows)


def _chi_square_tail(statistic: float, df: int) -> float:
    from scipy.special import chdtrc

    return float(chdtrc(df, statistic))
