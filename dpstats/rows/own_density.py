"""The density of one column by the answers that it alone gives: the base of log-linear models."""

from __future__ import annotations

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import NotMeasuredError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block, Family
from dpstats.families.features import Term
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Indicator, Table
from dpstats.measured.answers import Answers, answer
from dpstats.measured.combining import Sources
from dpstats.rows.entropy import fit_entropy, usable_deviations
from dpstats.rows.gibbs import Support
from dpstats.schema import Column, Number


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
