"""What a release knows of a question: measured, derivable, bounded or out of reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.base import answered
from dpstats.analyses.counts.marginals import Marginals
from dpstats.analyses.counts.proportion import Proportion
from dpstats.analyses.moments.correlation import Correlation
from dpstats.analyses.moments.covariance import Covariance
from dpstats.analyses.moments.group_means import GroupMeans
from dpstats.analyses.moments.mean import Mean
from dpstats.analyses.registry import spelled
from dpstats.analyses.regression.ols import OLS
from dpstats.bounds.bounding import Asker
from dpstats.bounds.joint_certificate import places_of
from dpstats.errors import DpstatsError, NotMeasuredError
from dpstats.families.block import Block, Family
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.measured.answers import answer
from dpstats.measured.combining import Sources
from dpstats.planning.plan import plan
from dpstats.planning.previews.preview import previewed_width
from dpstats.results.explanation import COMPARED, SHOWN, Explanation
from dpstats.schema import Number, Schema, quoted_name

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.results.explanation import Verdict
    from dpstats.schema import Schema


def explain(
    release: ReleaseView,
    sources: Sources,
    query: Any,
    *,
    given: str | None = None,
    minus: str | None = None,
    over: str | None = None,
    alpha: float = 0.05,
    totals: bool = False,
) -> Explanation:
    """See `Release.explain`."""
    if isinstance(query, str) and minus is None and over is None:
        query, given = Proportion(query, given), None
    asker = Asker(release, sources, alpha, "table", SHOWN + 1, totals=totals)
    bounds = asker.of(query, given, minus, over)  # refuses what it cannot read
    if isinstance(query, str):
        texts = [text for text in (query, minus, over) if text is not None]
        analyses: list[Any] = [Proportion(text, given) for text in texts]
    else:
        analyses = [] if isinstance(query, Family | Block) else [query]
    if analyses:
        follows = all(asker.inferred(analysis) is not None for analysis in analyses)
        ask = ", ".join(map(spelled, analyses))
    else:
        blocks = query.blocks if isinstance(query, Family) else (query,)
        follows = _have_answers(sources, blocks)
        ask = analyses_for(release.schema, blocks)
    alone = len(analyses) == 1
    if len(analyses) > 1 and follows:
        bounds = replace(bounds, notes=(*bounds.notes, COMPARED))
    verdict: Verdict = "bounded" if bounds.informative.any() else "out of reach"
    if follows:
        needed = _needed(release.schema, analyses[0]) if alone else [] if analyses else [blocks]
        verdict = "measured" if _any_measured(sources, needed) else "derivable"
    return Explanation(
        query=bounds.terms[0] if len(analyses) > 1 else getattr(query, "label", ask),
        verdict=verdict,
        bounds=bounds,
        ask=ask,
        expected_width=_expected_width(release, sources, analyses[0]) if alone else float("nan"),
        left=asker.left,
    )


def _needed(schema: Schema, analysis: Any) -> list[tuple[Block, ...]]:
    """Functions that an analysis measures, and those it uses; either may have been measured."""
    families = (answered(analysis, schema), analysis.family(schema).answering)
    return [family.blocks for family in families]


def _any_measured(sources: Sources, needed: list[tuple[Block, ...]]) -> bool:
    return any(all((places_of(sources, block) >= 0).all() for block in blocks) for blocks in needed)


def _have_answers(sources: Sources, blocks: tuple[Block, ...]) -> bool:
    try:
        answer(sources, list(blocks))
    except NotMeasuredError:
        return False
    return True


def _expected_width(release: ReleaseView, sources: Sources, analysis: Any) -> float:
    """Median width of the analysis' 95% intervals if it alone were planned with this budget."""
    measured = sources.measurements
    try:
        alone = plan(
            release.schema, {"asked": analysis}, budget=measured.budget, unit=measured.unit,
            rows_per_person=measured.rows_per_person, person=measured.person, n=measured.strategy.n,
        )  # fmt: skip
        results = alone.preview(n=release.n).results["asked"]
    except DpstatsError:  # a plan of its own may need more, such as a number of rows
        return float("nan")
    return float(np.median([previewed_width(result, "noise_aware") for result in results]))


_MOST = 3


def analyses_for(schema: Schema, blocks: Sequence[Block]) -> str:
    """First analyses that measure these functions, or what they are about, as you write them."""
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
