"""The analyses to ask a custodian for, where functions are asked about that no analysis names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dpstats.analyses.counts.marginals import Marginals
from dpstats.analyses.moments.correlation import Correlation
from dpstats.analyses.moments.covariance import Covariance
from dpstats.analyses.moments.group_means import GroupMeans
from dpstats.analyses.moments.mean import Mean
from dpstats.analyses.registry import spelled
from dpstats.analyses.regression.ols import OLS
from dpstats.errors import DpstatsError
from dpstats.families.block import Block
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.schema import Number, Schema, quoted_name

_MOST = 3


def analyses_for(schema: Schema, blocks: Sequence[Block]) -> str:
    """Analyses that measure these functions, or what they are about, as you write them.

    Tables for cells and conditions, means, covariances and regressions for moments. The first few,
    with an ellipsis after them.
    """
    texts = list(dict.fromkeys(_analysis_for(schema, block) for block in blocks))
    return ", ".join([*texts[:_MOST], *(["…"] if len(texts) > _MOST else [])])


def _analysis_for(schema: Schema, block: Block) -> str:
    """The first that can be planned."""
    for analysis in _candidates(block):
        try:
            analysis.family(schema)
        except DpstatsError:
            continue
        return spelled(analysis)
    return spelled(Marginals([c.name for c in block.columns], len(block.columns)))


def _candidates(block: Block) -> Iterator[Any]:
    numbers = [c.measured_name for c in block.coded if isinstance(c, Number)]
    if not numbers:
        return
    given = None
    if isinstance(block, Moments):
        given = None if block.given is None else block.given.label or None
        if levels := [*block.groups, *block.signs]:
            of_formula = [c.formula_name for c in block.coded if isinstance(c, Number)]
            right = [*of_formula[1:], *(f"C({quoted_name(c.name)})" for c in levels)]
            yield OLS(f"{of_formula[0]} ~ {' + '.join(right)}", given=given)
    if isinstance(block, GroupMoments):
        others = [c for c in block.columns if c != block.number]
        if len(others) == 1 and len(block.groups) > 1:
            yield GroupMeans(numbers[0], by=others[0].name)
        if len(block.groups) == 1:
            yield Mean(numbers[0], given=block.groups[0].label or None)
    if len(numbers) > 1:
        yield Covariance(numbers) if given is None else Correlation(numbers, given=given)
    yield Mean(numbers[0] if len(numbers) == 1 else numbers, given=given)
