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
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block, Family
from dpstats.families.features import Term
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Indicator, Table
from dpstats.inference.simulation import with_more_noise
from dpstats.measured.answers import Answers, answer
from dpstats.measured.combining import Sources
from dpstats.rows.base import Proposal, Unmeasured
from dpstats.rows.candidates import merged
from dpstats.rows.denoising import PairTables, blend, denoised_levels
from dpstats.rows.editing import COARSE, FINE, FINEST, Others, edited
from dpstats.rows.entropy import fit_entropy, targets, usable_deviations
from dpstats.rows.exchanging import chosen, exchanged
from dpstats.rows.gibbs import GibbsSampler, Support, has_conditionals
from dpstats.rows.levels import Levels, is_small
from dpstats.rows.loglinear_fit import LogLinearFit, fit_loglinear
from dpstats.rows.uniform import Uniform
from dpstats.schema import Column, Number
from dpstats.schema.possible import impossible_pairs

if TYPE_CHECKING:
    from dpstats.measured.measurements import Measurements
    from dpstats.schema import Schema

FIT_ROWS = 16_000  # that stand for the model where rows are edited afterwards
EARLY = 5_000  # rows that serve at first where they are exchanged afterwards
MOST_FITTED = 6_400_000  # rows times tables up to which the model is fitted before edits
MOST_LEVELS = 2_000  # of all columns up to which rows are edited,
MOST_OTHERS = 40  # and blocks besides small tables
BLENDED = (0.3, 1.0, 12.0)  # edges of E / S between which estimates have weights of their own
LEAST_COUNT = 0.05  # of a level, for a density
LIKELY = 3.0  # noise standard deviations by which a cell may be corrected
MOVED = 0.1  # of a noise, to differentiate denoised tables
MOST_CORRECTED = 0.75  # noise standard deviations by which exchanged rows correct an answer

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
        if not has_conditionals(family):
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
        proposal = self._proposal(measurements, m, rng)
        return replace(proposal, serves_inference=edits(measurements))

    def candidates_for_inference(
        self, measurements: Measurements, m: int, rng: np.random.Generator
    ) -> Proposal:
        """Candidates that are rows of the model as far as noise allows (eq. 17)."""
        return self._proposal(measurements, m, rng, for_inference=True)

    def _proposal(
        self,
        measurements: Measurements,
        m: int,
        rng: np.random.Generator,
        *,
        for_inference: bool = False,
    ) -> Proposal:
        try:
            if edits(measurements):
                proposal = self._edited(measurements, m, rng)
            else:
                proposal = self._exchanged(measurements, m, rng, for_inference=for_inference)
            if proposal.density is not None and np.all(np.isfinite(proposal.density)):
                return proposal
        except (ArithmeticError, ValueError, LookupError, MemoryError) as error:
            _log.warning("log-linear reference: %s", error)
        uniform = Uniform().candidates(measurements, m, rng, stratified=True)
        note = "the log-linear reference failed on these answers; candidates were drawn uniformly"
        return replace(uniform, notes=(note, *uniform.notes))

    def _edited(self, measurements: Measurements, m: int, rng: np.random.Generator) -> Proposal:
        """M rows of equal weight whose tables are the denoised ones."""
        problem, schema = _Tables(measurements), measurements.columns
        sampler = GibbsSampler(schema, problem.family, problem.base())
        model = None
        if (problem.pairs or problem.others) and FIT_ROWS * problem.pairs <= MOST_FITTED:
            model = fit_loglinear(sampler, problem.means, problem.deviations, FIT_ROWS, rng)
            which = rng.permutation(np.arange(max(m, FIT_ROWS)) % FIT_ROWS)[:m]
            start = {name: codes[which] for name, codes in model.codes.items()}
        else:
            start = sampler.draw_base(m, rng)
        bins = {column.name: column.bins_of(start[column.name]) for column in schema}
        share = m / problem.n
        wanted, others = problem.wanted(model, rng) * share, None
        if problem.others:
            others = Others(schema, problem.others, problem.wanted_of_others(model) * share)
        used = problem.used | problem.impossible
        passes = (*COARSE, *FINE, *([FINEST] if problem.impossible.any() else []))
        bins = edited(problem.levels, bins, wanted, used, rng, others, passes)
        points = {column.name: column.draw_inside(bins[column.name], rng) for column in schema}
        return _of_rows(schema, points)

    def _exchanged(
        self,
        measurements: Measurements,
        m: int,
        rng: np.random.Generator,
        *,
        for_inference: bool,
    ) -> Proposal:
        """M rows of equal weight, of the model and exchanged until their means fit (eq. 13)."""
        family, means, deviations = targets(measurements)
        sampler = GibbsSampler(measurements.columns, family, _base(measurements))
        model = fit_loglinear(sampler, means, deviations, m, rng, early=min(m, EARLY))
        trusted = model.trusted(rng)
        if for_inference:
            return _of_rows(measurements.columns, chosen(model, trusted, rng))
        change = np.clip(trusted - model.target, -MOST_CORRECTED, MOST_CORRECTED)
        rows = exchanged(model, model.target + change, rng)
        return replace(_of_rows(measurements.columns, rows), moves_with_views=True)


def _of_rows(schema: Schema, codes: dict[str, Codes]) -> Proposal:
    """Distinct rows as candidates, each with the weight of its copies."""
    candidates = merged(schema, codes, np.ones(len(codes[schema.names[0]])))
    return Proposal(candidates, candidates.weights)


def edits(measurements: Measurements) -> bool:
    """True if rows are edited: all blocks count cells, nearly all of them in small tables."""
    blocks, columns = measurements.published.blocks, measurements.columns
    cells = all(isinstance(block, Table | Indicator) and block.columns for block in blocks)
    tables = any(isinstance(block, Table) for block in blocks)
    few_others = sum(not is_small(block) for block in blocks) <= MOST_OTHERS
    few_levels = sum(column.bins for column in columns) <= MOST_LEVELS
    return cells and tables and few_others and few_levels


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
    noisy, deviations : (|F|,) float64
        Noisy means of the family, and standard deviations of their noise.
    denoised : PairTables
        The noisy counts, which agree on denoised single levels.
    means : (|F|,) float64
        Their means: the noisy ones of other functions.
    """

    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        self.schema = schema = measurements.columns
        sources = Sources(measurements, "totals")
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
        self.noisy, self.n, self.pairs = answers.means, answers.n, len(pairs)
        # Without constraints: a cell that they make exact would otherwise get all the weight.
        unconstrained = answer(sources.with_constraints("none"), self.family)
        noise = np.sqrt(unconstrained.noise_variances)
        self.deviations = usable_deviations(measurements, noise)
        self.levels = Levels(schema)
        self.places = self.levels.places(self.small)
        self.of_pairs = np.flatnonzero(self.places[0] != self.places[1])
        self.used = self._matrix(np.ones(self.small.size)) > 0
        scales = self._matrix(self.deviations) * self.n
        self._scales = np.where(self.used, scales, 1.0)

    def _matrix(self, values: Floats) -> Floats:
        """Values (|F|,) of the functions, those of the small tables as a matrix."""
        return self.levels.matrix(self.small, values[: self.small.size])

    def tables_of(self, noisy: Floats) -> PairTables:
        """Noisy means (|F|,) as counts in a matrix, which agree on denoised single levels."""
        counts, column = self._matrix(noisy) * self.n, self.levels.column
        own, tabled = counts.diagonal(), self.used.diagonal()
        sizes = np.bincount(column)[column]
        margins = self.n / sizes
        margins[tabled] = denoised_levels(
            own[tabled], self._scales.diagonal()[tabled], column[tabled], self.n
        )
        evenly = ((margins - own) * tabled)[:, np.newaxis] / sizes
        return PairTables(
            counts=np.where(self._off_diagonal, counts + evenly + evenly.T, 0.0),
            deviations=self._scales,
            margins=margins,
            column=column,
            used=self._off_diagonal,
            n=self.n,
        )

    @cached_property
    def _off_diagonal(self) -> NDArray[np.bool_]:
        return self.used & ~np.eye(self.levels.size, dtype=np.bool_)

    @cached_property
    def impossible(self) -> NDArray[np.bool_]:
        """Cells (L, L) that rules between two columns do not allow."""
        cells = np.zeros((self.levels.size, self.levels.size), np.bool_)
        for first, second, broken in impossible_pairs(self.schema):
            cells[self.levels.slices[first], self.levels.slices[second]] |= broken
        return cells | cells.T

    @cached_property
    def denoised(self) -> PairTables:
        return self.tables_of(self.noisy)

    @cached_property
    def means(self) -> Floats:
        return self._means_of(self.denoised, self.noisy)

    def _means_of(self, tables: PairTables, noisy: Floats) -> Floats:
        """Means (|F|,) of tables; noisy ones of other functions."""
        counts = tables.counts + np.diag(tables.margins)
        return np.append(counts[self.places] / self.n, noisy[self.small.size :])

    def base(self) -> dict[str, Floats]:
        """Logarithms of densities of all columns: those of denoised levels, where it has tables."""
        sources, found = Sources(self.measurements), {}
        for column in self.measurements.columns:
            place = self.levels.slices[column.name]
            if self.used.diagonal()[place].all():
                counts = np.maximum(self.denoised.margins[place], LEAST_COUNT)
                found[column.name] = np.log(counts / counts.sum())
            else:
                found[column.name] = np.log(own_density(sources, column))
        return found

    def wanted(self, model: LogLinearFit | None, rng: np.random.Generator) -> Floats:
        """Counts (L, L) that rows are edited to."""
        if not self.pairs:
            return np.diag(self.denoised.margins)

        def estimates(tables: PairTables) -> Floats:
            found = [tables.independent(), tables.denoised_cells(), tables.low_rank()]
            return np.array([table[cells] for table in found]) / self.n

        cells = (self.places[0][self.of_pairs], self.places[1][self.of_pairs])
        noise = self._noise(rng)
        noisier = self.noisy + MOVED * noise
        near = self.tables_of(noisier)
        found = estimates(self.denoised)
        moved = (estimates(near) - found) / MOVED
        if model is not None:
            change = (self._means_of(near, noisier) - self.means) / MOVED
            following = model.following(change / self.deviations, rng) - model.expected
            found = np.vstack([found, (model.expected * self.deviations)[self.of_pairs]])
            moved = np.vstack([moved, (following * self.deviations)[self.of_pairs]])
        own, deviations = self.of_pairs, self.deviations[self.of_pairs]
        blended, stratum = self.noisy[own].copy(), np.digitize(found[0] / deviations, BLENDED)
        for alike in (stratum == k for k in np.unique(stratum)):
            precision = 1 / deviations[alike] ** 2
            freedom = moved[:, alike] @ (precision * noise[own][alike])
            blended[alike], weights = blend(
                found[:, alike], self.noisy[own][alike], freedom, precision
            )
            _log.info("tables: weights %s of independence, cells, low rank, model", weights)
        # No answer is corrected by more than its noise may have moved it.
        most, means = LIKELY * deviations, self.noisy.copy()
        means[own] = np.clip(blended, means[own] - most, means[own] + most)
        counts = np.where(self.impossible, 0.0, self._matrix(means) * self.n)
        return self.denoised.balanced(counts)

    def wanted_of_others(self, model: LogLinearFit | None) -> Floats:
        """Counts of the other functions that rows are edited to: those of the model."""
        means = self.means if model is None else model.expected * self.deviations
        return means[self.small.size :] * self.n

    def _noise(self, rng: np.random.Generator) -> Floats:
        """A draw from the joint law of the noise on the means."""
        noisier = Sources(with_more_noise(self.measurements, rng), "totals")
        return answer(noisier, self.family).sums / self.n - self.noisy


def own_density(sources: Sources, column: Column) -> Floats:
    """Probabilities of a column's states by the entropy fit to the answers that it alone gives."""
    family = sources.measurements.published
    support = Support.of(column, column.name in family.coded_columns)
    inside = np.bincount(support.bins, minlength=column.bins)[support.bins]
    uniform = 1.0 / (column.bins * inside)
    blocks: list[Block] = []
    means: list[Floats] = []
    variances: list[Floats] = []
    for block in _own_blocks(family, column):
        try:
            answers = answer(sources, block)
        except NotMeasuredError:
            continue
        blocks.append(block)
        means.append(answers.means)
        variances.append(answers.noise_variances)
    for block in family.blocks:
        if (
            isinstance(block, BallMoments)
            and isinstance(column, Number)
            and column in block.numbers
        ):
            seen = _as_unclipped(block, answer(sources, block), column)
            blocks.append(Moments((column,), _moments_of(column)))
            means.append(seen[0])
            variances.append(seen[1])
    if not blocks:
        return uniform
    values = Family(tuple(blocks)).evaluate({column.name: support.codes})
    deviations = usable_deviations(sources.measurements, np.sqrt(np.concatenate(variances)))
    fit = fit_entropy(values, uniform, np.concatenate(means), deviations)
    return np.maximum(fit.density, 1e-12)


def _own_blocks(family: Family, column: Column) -> list[Block]:
    """Functions of one column alone that the family's answers may give."""
    own: list[Block] = []
    tables = (block for block in family.blocks if isinstance(block, Table))
    if any(column in table.columns for table in tables):
        own.append(Table((column,)))
    for block in family.blocks:
        if isinstance(block, Indicator) and block.columns == (column,):
            own.append(block)
        if isinstance(block, GroupMoments) and block.columns == (column,):
            own.append(block)
        if isinstance(block, Moments):
            alone = np.array([{name for name, _ in t} == {column.name} for t in block.terms])
            if alone.any() and (block.given is None or block.given.columns == (column,)):
                own.append(block.restrict(alone))
    return own


def _moments_of(column: Column) -> tuple[Term, ...]:
    feature = (column.name, None)
    return (feature,), (feature, feature)


def _as_unclipped(block: BallMoments, answers: Answers, column: Number) -> tuple[Floats, Floats]:
    """Mean and second moment of a number of clipped rows, its own unit scale, and variances.

    Used as those of the number itself, which is accurate enough for a base.
    """
    at = [block.terms.index(term) for term in _moments_of(column)]
    unit = answers.bounds[at] / block.ones[at]
    means, variances = answers.means[at] * unit, answers.noise_variances[at] * unit**2
    origin, spread = block.origin_and_spread(column.name)
    middle, half = (column.grid[0] + column.grid[-1]) / 2, (column.grid[-1] - column.grid[0]) / 2
    shift, slope = (origin - middle) / half, spread / half
    turn = np.array([[slope, 0.0], [2 * shift * slope, slope**2]])
    return np.array([shift, shift**2]) + turn @ means, turn**2 @ variances
