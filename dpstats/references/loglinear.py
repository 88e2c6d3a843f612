"""The log-linear reference: candidates fitted to the noisy answers themselves.

Where a domain is too large to enumerate, points drawn without the answers miss almost all of its
mass. The answers are released anyway, so candidates may use them at no privacy cost: start with the
product of the columns' own densities, fit the weights, resample by weight, move every point by
Gibbs sweeps under the fitted exponential model, and repeat while the misfit falls.

The points of a round come from base(x) exp(t'f(x)), t the last fit. With weights exp(-t'f(x)) they
represent the base, which depends on the answers only slightly: every round solves the same problem,
with the penalty on the whole tilt, at better points.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import short
from dpstats.density.candidates import Candidates, Seen, merged, seen_by
from dpstats.density.entropy import (
    FLAT,
    ROUGH,
    EntropyFit,
    fit_entropy,
    fit_tilted,
    targets,
    usable_deviations,
)
from dpstats.density.penalties import adapted
from dpstats.density.rows import systematic
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block, Family
from dpstats.families.features import Term
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Indicator, Table
from dpstats.measured.answers import Answers, answer
from dpstats.measured.combining import Sources
from dpstats.references.base import Proposal, Unmeasured
from dpstats.references.gibbs import GibbsSampler, Support, knows
from dpstats.references.sizes import for_noise
from dpstats.references.uniform import Uniform
from dpstats.schema import Column, Number

if TYPE_CHECKING:
    from dpstats.measured.measurements import Measurements
    from dpstats.privacy.laws import Noise

MAX_ROUNDS = 16
_MOST_SWEEPS = 1_000
FIRST = 64.0  # penalty of the first round, times the noise standard deviation
COARSE, FINE = 0.25, 0.5  # least factor of a penalty in a round, above and below one
TRUSTED = 2.0  # residual of one function, in noise standard deviations, that is accepted
# Once penalties are low, the risk must fall by this share to go on: it is optimistic for points
# that follow the answers, and more so the lower the penalties are. Where they are high and
# functions few, any fall counts: convergence may be slow and still far from the answers.
GAIN = 0.15
ROUGHEST = 0.5  # largest gradient of fits whose penalties are not low; of others it is ROUGH
MOST = 1e12  # penalty beyond which nothing is fitted
PER_FUNCTION = 10  # candidates per function at which falls of the risk below GAIN count
MAX_TRUSTED = 4  # times that penalties of single functions fall in the end
SUPPORTED = 0.02  # least effective share of candidates that a fit may rest on
# Once penalties are low, the least effective share relative to the round before. The model may have
# a mode that none of its candidates showed; points then flow there, the next fit has to take them
# out again, and what it leaves is worse in all that was not measured.
EVEN = 0.85

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogLinear(Unmeasured):
    """Points that follow the noisy answers; spends nothing.

    Parameters
    ----------
    sweeps : int
        Gibbs sweeps over all columns in each round.

    Raises
    ------
    RequestError
        For sweeps that are not a positive whole number.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Number("age", 0, 100, edges=[18, 65], missing=40)])
    >>> asked, budget = {"age": dps.Mean("age")}, dps.PureDP(1)
    >>> plan = dps.plan(schema, asked, budget=budget, reference=dps.LogLinear(sweeps=4))
    >>> plan.reference.share  # the whole budget is left to the analyses
    Fraction(0, 1)
    """

    sweeps: int = 2

    def __post_init__(self) -> None:
        if type(self.sweeps) is not int or not 1 <= self.sweeps <= _MOST_SWEEPS:
            raise RequestError(
                f"LogLinear(sweeps=...) must be a positive whole number of at most {_MOST_SWEEPS}, "
                f"got {short(self.sweeps)}"
            )

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
        return {"kind": "log_linear", "sweeps": self.sweeps}

    def candidates(
        self, measurements: Measurements, m: int, rng: np.random.Generator, *, stratified: bool
    ) -> Proposal:
        """Draw candidates that follow the answers, with their fit; uniform ones if that fails.

        The budget is spent, so a failure on noisy answers must not lose the release.
        """
        try:
            drawn, fit = self.refine(measurements, m, rng)
            if np.all(np.isfinite(fit.density)):
                return Proposal(drawn, fit)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            _log.warning("log-linear reference: %s", error)
        uniform = Uniform().candidates(measurements, m, rng, stratified=stratified)
        note = "the log-linear reference failed on these answers; candidates were drawn uniformly"
        return replace(uniform, notes=(note, *uniform.notes))

    def refine(
        self, measurements: Measurements, m: int, rng: np.random.Generator
    ) -> tuple[Candidates, EntropyFit]:
        """Draw m candidates that follow the answers, and fit their weights.

        Penalties are found with as many as the noise asks for, see `sizes`; the last fit has all.

        Parameters
        ----------
        measurements : Measurements
        m : int
            Number of points; equal ones are merged.
        rng : numpy Generator

        Returns
        -------
        candidates : Candidates
            With weights of equal draws from the last round's model.
        fit : EntropyFit
            Of what the family sees of them.
        """
        problem = _Problem(measurements)
        size, searched = problem.family.size, min(m, for_noise(measurements))
        points = problem.sampler.draw_base(searched, rng)
        best = problem.round(points, np.zeros(size), FIRST / problem.deviations)
        while not best.supported and best.fit.penalty[0] < MOST:
            best = problem.round(points, best.tilt, 4 * best.fit.penalty)
        fine, many = False, searched >= PER_FUNCTION * size
        for number in range(1, MAX_ROUNDS):
            fine = fine or problem.is_low(best.fit.penalty)
            points = problem.moved(best, searched, self.sweeps, rng)
            this = problem.round(points, best.fit.dual, problem.next_penalty(best.fit, fine))
            _log.info(
                "round %d: misfit %.4g sd, risk %.6g", number, this.fit.residual, this.fit.risk
            )
            cautious = problem.is_low(this.fit.penalty) or not many
            gain = GAIN * abs(best.fit.risk) if cautious else 0.0
            even = not fine or this.share >= EVEN * best.share
            if this.supported and even and this.fit.risk < best.fit.risk - gain:
                best = this
            elif fine:
                break
            fine = fine or this is not best  # the step was too long for these candidates
        last = problem.lowered(best) if many else best
        if m > searched:
            last = problem.enlarged(last, problem.moved(last, m, self.sweeps, rng))
        return last.candidates, problem.finished(last)


@dataclass(frozen=True)
class _Round:
    """Candidates, the tilt of the model they were drawn from, and their fit."""

    candidates: Candidates
    seen: Seen
    tilt: Floats
    fit: EntropyFit

    @cached_property
    def share(self) -> float:
        """Effective share of the candidates: one where all keep the weight they were drawn with."""
        return 1 / float(np.sum(self.fit.density**2 / self.seen.reference))

    @property
    def supported(self) -> bool:
        """Whether the fit rests on more than a few of the candidates."""
        return self.fit.converged and math.isfinite(self.fit.risk) and self.share >= SUPPORTED


class _Problem:
    """The constants of all rounds."""

    def __init__(self, measurements: Measurements) -> None:
        self.schema = measurements.columns
        self.family, self.means, self.deviations = targets(measurements)
        self.far = _far(len(self.means), measurements.budget.noise)
        sources = Sources(measurements)
        base = {c.name: np.log(own_density(sources, c)) for c in self.schema}
        self.sampler = GibbsSampler(self.schema, self.family, base)

    def round(self, points: Mapping[str, Codes], tilt: Floats, penalty: Floats) -> _Round:
        """Fit points drawn under a tilt."""
        candidates = merged(self.schema, points, np.ones(len(points[self.schema.names[0]])))
        seen = seen_by(self.family, candidates)
        tolerance = ROUGH if self.is_low(penalty) else ROUGHEST
        fit = self._fit(seen, penalty, tilt, tilt, tolerance=tolerance, risk=True)
        return _Round(candidates, seen, tilt, fit)

    def _fit(
        self, seen: Seen, penalty: Floats, tilt: Floats, start: Floats, **options: Any
    ) -> EntropyFit:
        return fit_tilted(
            seen.values, seen.reference, self.means, self.deviations, penalty,
            tilt=tilt, start=start, **options,
        )  # fmt: skip

    def is_low(self, penalty: Floats) -> bool:
        """Whether penalties are near the values that fits end with."""
        return float(np.median(penalty * self.deviations)) <= 1

    def next_penalty(self, fit: EntropyFit, fine: bool) -> Floats:
        """Lower penalties where the residuals are large, in small steps once they are low."""
        sizes = [block.size for block in self.family.blocks]
        trusted = TRUSTED if self.is_low(fit.penalty) else math.inf
        return adapted(fit, sizes, FINE if fine else COARSE, trusted)

    def moved(
        self, last: _Round, m: int, sweeps: int, rng: np.random.Generator
    ) -> dict[str, Codes]:
        """M points resampled by weight and moved under the fitted model."""
        self.sampler.set_coefficients(last.fit.dual / self.deviations)
        copies = systematic(last.seen.spread(last.fit.density), m, rng)
        points = {name: np.repeat(codes, copies) for name, codes in last.candidates.codes.items()}
        for _ in range(sweeps):
            points = self.sampler.sweep(points, rng)
        return points

    def lowered(self, last: _Round) -> _Round:
        """Lower penalties for the same candidates, while the risk falls as in `fit_entropy`.

        For many candidates per function: with few, the risk is too optimistic for candidates that
        already follow the answers, and the fit of many tables gets worse.
        """
        for _ in range(MAX_ROUNDS):
            penalty = COARSE * last.fit.penalty
            fit = self._fit(
                last.seen, penalty, last.tilt, last.fit.dual, tolerance=ROUGH, risk=True
            )
            this = replace(last, fit=fit)
            if not this.supported or fit.risk > last.fit.risk - FLAT * len(self.means):
                break
            last = this
        return last

    def enlarged(self, last: _Round, points: Mapping[str, Codes]) -> _Round:
        """The last fit at more points of the same model, whose weights are then more even."""
        candidates = merged(self.schema, points, np.ones(len(points[self.schema.names[0]])))
        seen, tilt = seen_by(self.family, candidates), last.fit.dual
        fit = self._fit(seen, last.fit.penalty, tilt, tilt, tolerance=ROUGH)
        return _Round(candidates, seen, tilt, fit) if fit.converged else last

    def finished(self, last: _Round) -> EntropyFit:
        """The last fit to full accuracy, near all answers that noise cannot have moved so far.

        A function whose residual is larger gets a lower penalty until it is within one standard
        deviation: a penalty by blocks shrinks the few strong associations of a table with many
        weak ones.
        """
        fit, penalty = last.fit, last.fit.penalty
        strong = np.zeros(len(penalty), dtype=np.bool_)
        for _ in range(MAX_TRUSTED):
            residuals = np.abs(penalty * fit.dual)
            strong |= residuals > self.far
            shrunk = strong & (residuals > 1)
            if not shrunk.any():
                break
            penalty = np.where(shrunk, penalty / (2 * np.maximum(residuals, 1)), penalty)
            fit = self._fit(last.seen, penalty, last.tilt, fit.dual, tolerance=ROUGH)
        return self._fit(last.seen, penalty, last.tilt, fit.dual)


def _far(functions: int, noise: Noise) -> float:
    """Standard deviations that no noise of so many exceeds, in about 69 of 70 releases.

    Of |F| normal noises that is sqrt(2 log(16 |F|)); Laplace noises have the same probability
    exp(-sqrt(2) t) further out. To trust a noise costs a fit to few functions much: with
    sqrt(2 log(2 |F|)), one release in eight, the error of nine moments rises by a sixth.
    """
    from scipy import special

    normal = math.sqrt(2 * math.log(16 * functions))
    if noise == "gaussian":
        return normal
    return -(math.log(2) + float(special.log_ndtr(-normal))) / math.sqrt(2)


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
