r"""The log-linear reference: candidates that follow the noisy answers themselves.

Where a domain is too large to enumerate, points drawn without the answers miss almost all of its
mass. The answers are released anyway, so candidates may use them at no privacy cost: they start as
rows of the log-linear model of the answers (`fit_loglinear`).

Where every function is a cell, and most are of tables of one or two columns, these are denoised
(`denoising`), and the rows are then edited until their own tables are the denoised ones
(`editing`). For other families they are exchanged for other rows of the model until their means
are those of its fit (`exchanging`). Either way all candidates have the same weight.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.density.candidates import merged
from dpstats.density.entropy import targets, usable_deviations
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.tables.cells import Indicator, Table
from dpstats.inference.simulation import with_more_noise
from dpstats.measured.answers import answer
from dpstats.measured.combining import Sources
from dpstats.references.base import Proposal, Unmeasured
from dpstats.references.denoising import SURE, PairTables, blend
from dpstats.references.editing import Others, edited
from dpstats.references.exchanging import exchanged
from dpstats.references.gibbs import GibbsSampler, knows
from dpstats.references.levels import Levels, is_small
from dpstats.references.loglinear_fit import LogLinearFit, fit_loglinear
from dpstats.references.own_density import own_density
from dpstats.references.uniform import Uniform

if TYPE_CHECKING:
    from dpstats.measured.measurements import Measurements

FIT_ROWS = 16_000  # that stand for the model where rows are edited afterwards
EARLY = 5_000  # rows that serve at first where they are exchanged afterwards
MOST_FITTED = 6_400_000  # rows times tables up to which the model is fitted before edits
MOST_LEVELS = 2_000  # of all columns up to which rows are edited,
MOST_OTHERS = 40  # and blocks besides small tables
LIKELY = 3.0  # noise standard deviations by which a cell may be corrected
MOVED = 0.1  # of a noise, to differentiate denoised tables

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogLinear(Unmeasured):
    """Points that follow the noisy answers; spends nothing.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Number("age", 0, 100, edges=[18, 65], missing=40)])
    >>> asked, budget = {"age": dps.Mean("age")}, dps.PureDP(1)
    >>> plan = dps.plan(schema, asked, budget=budget, reference=dps.LogLinear())
    >>> plan.reference.share  # the whole budget is left to the analyses
    Fraction(0, 1)
    """

    def check_family(self, family: Family) -> None:
        """Refuse functions whose conditional distributions are not known.

        Raises
        ------
        RequestError
        """
        if not knows(family):
            raise RequestError(
                "a log-linear reference takes tables, conditions, moments and products only; use "
                "reference=dps.Uniform()"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": "log_linear", "sweeps": 1}  # always; digests of plans include it

    def candidates(
        self, measurements: Measurements, m: int, rng: np.random.Generator, *, stratified: bool
    ) -> Proposal:
        """Candidates that follow the answers, with their density; uniform ones if that fails.

        The budget is spent, so a failure on noisy answers must not lose the release.
        """
        drawn = self._edited if edits(measurements) else self._exchanged
        try:
            proposal = drawn(measurements, m, rng)
            if proposal.density is not None and np.all(np.isfinite(proposal.density)):
                return proposal
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            _log.warning("log-linear reference: %s", error)
        uniform = Uniform().candidates(measurements, m, rng, stratified=stratified)
        note = "the log-linear reference failed on these answers; candidates were drawn uniformly"
        return replace(uniform, notes=(note, *uniform.notes))

    def _edited(self, measurements: Measurements, m: int, rng: np.random.Generator) -> Proposal:
        """M rows of equal weight whose tables are the denoised ones."""
        problem, schema = _Tables(measurements), measurements.columns
        sampler = GibbsSampler(schema, problem.family, _base(measurements))
        model = None
        if (problem.pairs or problem.others) and FIT_ROWS * problem.pairs <= MOST_FITTED:
            means, deviations = problem.means, problem.deviations
            model = fit_loglinear(sampler, means, deviations, FIT_ROWS, rng)
            which = rng.permutation(np.arange(max(m, FIT_ROWS)) % FIT_ROWS)[:m]
            start = {name: codes[which] for name, codes in model.codes.items()}
        else:
            start = sampler.draw_base(m, rng)
        bins = {column.name: column.bins_of(start[column.name]) for column in schema}
        share = m / problem.n
        wanted, others = problem.wanted(model, rng) * share, None
        if problem.others:
            others = Others(schema, problem.others, problem.wanted_of_others(model) * share)
        bins = edited(problem.levels, bins, wanted, problem.used, rng, others)
        points = {column.name: column.draw_inside(bins[column.name], rng) for column in schema}
        candidates = merged(schema, points, np.ones(m))
        return Proposal(candidates, candidates.weights)

    def _exchanged(self, measurements: Measurements, m: int, rng: np.random.Generator) -> Proposal:
        """M rows of equal weight, of the model and exchanged until their means fit."""
        family, means, deviations = targets(measurements)
        sampler = GibbsSampler(measurements.columns, family, _base(measurements))
        model = fit_loglinear(sampler, means, deviations, m, rng, early=min(m, EARLY))
        codes = exchanged(model, model.trusted(rng), rng)
        candidates = merged(measurements.columns, codes, np.ones(m))
        return Proposal(candidates, candidates.weights)


def edits(measurements: Measurements) -> bool:
    """Whether rows are edited: all functions are cells, and most are of small tables."""
    blocks, columns = measurements.published.blocks, measurements.columns
    cells = all(isinstance(block, Table | Indicator) and block.columns for block in blocks)
    tables = any(isinstance(block, Table) for block in blocks)
    few = sum(not is_small(block) for block in blocks) <= MOST_OTHERS
    return cells and tables and few and sum(column.bins for column in columns) <= MOST_LEVELS


def _base(measurements: Measurements) -> dict[str, Floats]:
    """Logarithms of the own densities of all columns."""
    sources = Sources(measurements)
    return {c.name: np.log(own_density(sources, c)) for c in measurements.columns}


def independent(measurements: Measurements, m: int, rng: np.random.Generator) -> dict[str, Codes]:
    """M rows of independent columns, column name -> (m,) codes, by their own densities."""
    sampler = GibbsSampler(measurements.columns, measurements.published, _base(measurements))
    return sampler.draw_base(m, rng)


class _Tables:
    """The noisy tables of one and two columns, also those that follow from larger ones.

    Attributes
    ----------
    small : Family
        These tables.
    others : tuple of Block
        The published blocks that are none of them.
    family : Family
        Both.
    means, deviations : (|F|,) float64
        Noisy means of the family, and standard deviations of their noise.
    """

    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        schema, sources = measurements.columns, Sources(measurements)
        published = measurements.published.blocks
        tables = [block for block in published if isinstance(block, Table)]
        pairs = dict.fromkeys(
            Table(two) for table in tables for two in itertools.combinations(table.columns, 2)
        )
        tabled = dict.fromkeys(column for table in tables for column in table.columns)
        others = (block for block in published if not is_small(block))
        self.small = Family((*pairs, *(Table((c,)) for c in schema if c in tabled)))
        self.others = tuple(others)
        self.family = Family((*self.small.blocks, *self.others))
        answers = answer(sources, self.family)
        self.means, self.n, self.pairs = answers.means, answers.n, len(pairs)
        noise = np.sqrt(answers.noise_variances)
        self.deviations = usable_deviations(measurements, noise)
        self.levels = Levels(schema)
        self.places = self.levels.places(self.small)
        self.of_pairs = np.flatnonzero(self.places[0] != self.places[1])
        self.used = self._matrix(np.ones(self.small.size)) > 0
        scales = self._matrix(self.deviations) * self.n
        self._scales = np.where(self.used, scales, 1.0)
        noise_of_levels = self._matrix(noise).diagonal() * self.n
        self._least = 0.5 * np.clip(noise_of_levels, 1e-6, 1.0)  # without noise, empty is empty

    def _matrix(self, values: Floats) -> Floats:
        """Values (|F|,) of the functions, those of the small tables as a matrix."""
        return self.levels.matrix(self.small, values[: self.small.size])

    def tables_of(self, means: Floats) -> PairTables:
        """Noisy means (|F|,) as counts in a matrix; margins of one sum."""
        counts = self._matrix(means) * self.n
        margins = np.maximum(counts.diagonal(), self._least)
        for place in self.levels.slices.values():
            margins[place] *= self.n / margins[place].sum()
        return PairTables(
            counts=np.where(self._off_diagonal, counts, 0.0),
            deviations=self._scales,
            margins=margins,
            column=self.levels.column,
            used=self._off_diagonal,
            n=self.n,
        )

    @cached_property
    def _off_diagonal(self) -> NDArray[np.bool_]:
        return self.used & ~np.eye(self.levels.size, dtype=np.bool_)

    def wanted(self, model: LogLinearFit | None, rng: np.random.Generator) -> Floats:
        """Counts (L, L) that rows are edited to."""
        if not self.pairs:
            return np.diag(self.tables_of(self.means).margins)

        def estimates(means: Floats) -> Floats:
            tables = self.tables_of(means)
            found = [tables.independent(), tables.denoised_cells(), tables.low_rank()]
            cells = (self.places[0][self.of_pairs], self.places[1][self.of_pairs])
            return np.array([table[cells] for table in found]) / self.n

        noise = self._noise(rng)
        found = estimates(self.means)
        moved = (estimates(self.means + MOVED * noise) - found) / MOVED
        if model is not None:
            following = model.following(noise / self.deviations, rng) - model.expected
            found = np.vstack([found, (model.expected * self.deviations)[self.of_pairs]])
            moved = np.vstack([moved, (following * self.deviations)[self.of_pairs]])
        own, precision = self.of_pairs, 1 / self.deviations[self.of_pairs] ** 2
        blended = self.means[own].copy()
        sure = blended > SURE * self.deviations[own]
        for alike in filter(np.any, (sure, ~sure)):
            freedom = moved[:, alike] @ (precision * noise[own])[alike]
            blended[alike], weights = blend(
                found[:, alike], self.means[own][alike], freedom, precision[alike]
            )
            _log.info("tables: weights %s of independence, cells, low rank, model", weights)
        # No answer is corrected by more than its noise may have moved it.
        most = LIKELY * self.deviations[own]
        means = self.means.copy()
        means[own] = np.clip(blended, means[own] - most, means[own] + most)
        return self.tables_of(self.means).balanced(self._matrix(means) * self.n)

    def wanted_of_others(self, model: LogLinearFit | None) -> Floats:
        """Counts of the other functions that rows are edited to: those of the model."""
        means = self.means if model is None else model.expected * self.deviations
        return means[self.small.size :] * self.n

    def _noise(self, rng: np.random.Generator) -> Floats:
        """A draw from the joint law of the noise on the means."""
        noisier = Sources(with_more_noise(self.measurements, rng))
        return answer(noisier, self.family).sums / self.n - self.means
