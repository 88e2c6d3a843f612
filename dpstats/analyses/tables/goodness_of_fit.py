"""Chi-square goodness of fit: whether a column follows given probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from dpstats.analyses.base import AlternativeShares
from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand, shares_of_all
from dpstats.analyses.survey.rao_scott import RaoScottResult, WeightedTable, chi_square_test
from dpstats.analyses.tables.cells import TableOfCells
from dpstats.analyses.tables.chi_square_result import ChiSquareResult, noise_notes, standardised
from dpstats.analyses.tables.likelihood_ratio import (
    average_likelihood_ratio,
    laplace_mixture,
    normal_likelihood_ratio,
)
from dpstats.arrays import Floats
from dpstats.checks import as_float, check_whole, listed, short
from dpstats.corrected.chi_square import CertifiedChiSquare, check_probabilities, fit_verdict
from dpstats.error_rates import LEAST_OF_COUNT, of_simulation, splits_of_fit
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator, Partition
from dpstats.inference.simplex import project_to_total
from dpstats.inference.simulation import (
    MOST_SIMULATIONS,
    calibration_generator,
    draw_noise,
    draws_for_interval,
)
from dpstats.measured.answers import Answers, joint_noise_quantiles
from dpstats.measured.view import ReleaseView
from dpstats.results.base import footer
from dpstats.schema import Category, Column, Schema
from dpstats.schema.column_fields import MISSING_LABEL
from dpstats.schema.conditions import CellSet


@weighted_by_design
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
                for a in (
                    release.answers(family, with_count=True).with_totals,
                    _tested(release, family),
                )
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
            effect_name="Cohen's w",
            effect=float(np.clip(np.sqrt(max(0.0, pearson - excess) / n), 0, largest)),
            levels=1,
            largest_effect=largest,
            certified_at=partial(_certified, of_rows),
            effect_at=partial(self._effect_at, best, rows.answers.rows.rows_per_person > 1),
            notes=(
                *subgroup_notes(given, rows.answers.rows),
                *rows.counts.constraint_notes,
                *noise_notes(excess, d - 1, n * p0),
                cell_rules(release.schema, self),
            ),
            tables=(TableOfCells((self.column,), (column.bin_labels[:d],)),),
        )

    def _cells(self, schema: Schema) -> Block:
        """The levels with a probability, whose shares in a survey are tested."""
        column = schema[self.column]
        size = len(self.expected_shares(schema))
        if size == column.bins:
            return Cells.table(schema, [self.column])
        at = np.arange(column.bins)
        sets = {f"{column.name}={column.bin_labels[i]}": at == i for i in range(size)}
        return Partition.of((column,), sets)

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Weighted shares of the levels."""
        block = self._cells(schema)
        return [shares_of_all(block)]

    def infer_weighted(self, release: ReleaseView) -> RaoScottResult:
        """Test of Rao and Scott, and effect size."""
        p0, block = self.expected_shares(release.schema), self._cells(release.schema)
        used, labels = np.ones(len(p0), np.bool_), release.schema[self.column].bin_labels
        tested = WeightedTable(
            block, np.arange(len(p0))[np.newaxis], (used[:1], used),
            TableOfCells((self.column,), (labels[: len(p0)],)),
        )  # fmt: skip
        return chi_square_test(
            release, f"Goodness of fit: {self.column}",
            f"{self.column} has the given probabilities in the population", tested, "Cohen's w",
            p0, [cell_rules(release.schema, self)],
        )  # fmt: skip

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
    """Remark that the level of missing cells may be omitted; empty if the column has none."""
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
    combined = release.answers(family, with_count=True).with_totals
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

    tested = replace(tested, answers=tested.answers.without_totals)
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


_MIXTURE = 400  # draws of the noise variances in the statistic
_MOST_MIXED = 12  # cells; beyond it the average over draws is too inaccurate


@dataclass(frozen=True)
class Departures:
    """T - n p0 for noisy counts T of one column's cells.

    Where n is public this is X - n p0 + Z. Otherwise the measured number of rows N takes its place:
    X - n p0 + Z - p0 (N - n), which depends on the true n through sampling alone (eq. 7 of
    docs/explanation/inference/shares-and-tables.md).
    """

    answers: Answers  # the d counts; last also the number of rows, where it is not public
    p0: Floats  # (d,)

    @property
    def of_persons(self) -> Departures:
        """Departures of persons, whose rows may depend on each other: see `Answers.of_persons`."""
        return replace(self, answers=self.answers.of_persons)

    @property
    def n(self) -> int:
        """Number of rows, or its estimate."""
        return self.answers.n

    @property
    def counts(self) -> Answers:
        """The d counts alone."""
        return self.answers.subset(slice(0, len(self.p0)))

    def _reduced(self, vectors: Floats) -> Floats:
        """Departures (..., d) of counts, or changes of them by noise, and of the total."""
        d = len(self.p0)
        total = 0 if self.answers.rows.public else vectors[..., d:]
        return np.asarray(vectors[..., :d] - total * self.p0)

    @cached_property
    def observed(self) -> Floats:
        """Departures (d,) of the noisy counts."""
        level = self.n * self.p0 if self.answers.rows.public else 0.0
        return self._reduced(self.answers.sums) - level

    @cached_property
    def covariance(self) -> Floats:
        """Covariance (d, d) of the noise in them."""
        return self._reduced(self._reduced(self.answers.noise_covariance).T).T

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        """Draws (size, d) of the noise in them."""
        return self._reduced(draw_noise(self.answers, size, rng))

    @cached_property
    def _inflation(self) -> float:
        """Effects of about a third of the total variance of sampling and noise."""
        return 0.3 * (1 + float(np.trace(self.covariance)) / self.n)

    @cached_property
    def _mixture(self) -> Floats | None:
        """Noise variances whose average is the law of the noise, if it is independent Laplace."""
        laws = [self.answers.law(f) for f in range(len(self.answers.sums))]
        if (
            not self.answers.rows.public
            or not self.answers.independent
            or all(law.gaussian for law in laws)
            or len(laws) > _MOST_MIXED
        ):
            return None
        variances = np.array([law.variance for law in laws])
        terms = np.array([getattr(law, "terms", 1) for law in laws])
        rng = calibration_generator(self.answers)  # of the statistic, drawn or observed
        return laplace_mixture(variances, _MIXTURE, rng, terms)

    def statistic(self, departures: Floats) -> Floats:
        """Average likelihood ratios (R,) of departures (R, d): all directions, one size.

        The alternative multiplies the multinomial covariance. Noises that are Gaussian, correlated
        or too many for an average over draws are taken as normal.
        """
        n, p0 = self.n, self.p0
        if self._mixture is not None:
            return average_likelihood_ratio(
                departures, n * p0, np.sqrt(n) * p0, self._mixture, self._inflation
            )
        sampling = n * (np.diag(p0) - np.outer(p0, p0))
        # A small constant keeps the covariance definite where there is little noise, or where the
        # noise on the counts sums to zero; it is the same under both hypotheses.
        noise = float(np.trace(self.covariance)) / len(p0)
        ridge = self.covariance + 1e-9 * (n * np.diag(p0) + noise * np.eye(len(p0)))
        wide = (1 + self._inflation) * sampling
        return normal_likelihood_ratio(departures, sampling + ridge, wide + ridge)

    def test(self, simulations: int, rng: np.random.Generator) -> tuple[float, float]:
        """Statistic and p-value, exact by simulation under p0 where n is public.

        Otherwise the largest p-value at the ends and the middle of a confidence set of error 0.001
        for n, plus that error; the law changes slowly and in one direction with n.
        """
        rows = self.answers.rows
        observed = float(self.statistic(self.observed[np.newaxis])[0])
        beta = 0.0 if rows.public else LEAST_OF_COUNT
        noise = self.noise(simulations, rng)
        largest = 0.0
        for n in {rows.value, *rows.bounds(beta)}:
            drawn = rng.multinomial(n, self.p0, simulations) - n * self.p0 + noise
            # ties may differ by rounding; counting all of them is conservative
            extreme = np.sum(self.statistic(drawn) >= observed - 1e-9 * (1 + abs(observed)))
            largest = max(largest, of_simulation(int(extreme), simulations).item())
        return observed, min(1.0, largest + beta)


def effect_interval(
    departures: Floats,
    noise: Floats,
    n: int,
    p0: Floats,
    rng: np.random.Generator,
    *,
    alpha: float,
    bounded: bool = False,
) -> Floats:
    """Noise-aware interval for w = sqrt(sum (p - p0)^2 / p0), Cohen's effect size.

    Pearson's statistic Q of the noisy counts is inverted: with e the unit direction of the
    departure and xi the error of the counts (sampling plus noise), it is
    ``n w^2 + 2 w <e, xi> + |xi|^2 / n`` in the metric of 1 / p0, and xi is simulated. The direction
    and the sampling law are plugged in, so the interval is approximate; its coverage is checked
    by simulation.

    Where only a bound on the sampling covariance is known, Q may be smaller than its law says. It
    is at least the square of the component along e, whose lower quantile is smallest at the bound:
    the upper limit is that of the component.
    """
    largest = float(np.sqrt(1 / p0.min() - 1))
    shares = project_to_total(n * p0 + departures, n) / n
    observed = float(np.sum(departures**2 / (n * p0)))
    chance = float(np.sum(np.mean(noise**2, axis=0) / (n * p0))) + len(p0) - 1
    # the smaller the excess over the null mean, the closer the sampling law is to the null
    kept = max(0.0, 1 - chance / max(observed, 1e-300))
    p = p0 + kept * (shares - p0)
    errors = rng.multinomial(n, p / p.sum(), len(noise)) - n * p + noise
    direction = shares - p0
    length = float(np.sqrt(np.sum(direction**2 / p0)))
    along = errors @ (direction / p0) / length if length > 0 else np.zeros(len(errors))
    square = np.sum(errors**2 / (n * p0), axis=1)
    # Beyond nearly all of its law at an end of w it is read as the median there, else no w is kept.
    at_ends = square, n * largest**2 + 2 * largest * along + square
    observed = float(np.clip(observed, *(np.median(drawn) for drawn in at_ends)))

    def above(w: float) -> float:
        return float(np.mean(n * w**2 + 2 * w * along + square >= observed))

    def along_above(w: float) -> float:
        return float(np.mean(n * w + along >= np.sqrt(n * observed)))

    low = _crossing(above, alpha / 2, largest)
    high = _crossing(along_above if bounded else above, 1 - alpha / 2, largest)
    return np.array([low, high])


def _crossing(share: Callable[[float], float], level: float, largest: float) -> float:
    """Least w on [0, largest] from which on a share of draws is at least a level."""
    from scipy import optimize

    level -= 1e-12  # shares have steps, and none is at the level itself
    if share(0.0) >= level:
        return 0.0
    if share(largest) < level:
        return largest
    return float(optimize.bisect(lambda w: share(w) - level, 0.0, largest, xtol=1e-14))
