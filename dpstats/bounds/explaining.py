"""Verdict on a question to a release: measured, derivable, bounded or out of reach."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.base import answered
from dpstats.analyses.counts.proportion import Proportion
from dpstats.analyses.registry import spelled
from dpstats.bounds.bounding import Asker, places_of
from dpstats.errors import DpstatsError, NotMeasuredError
from dpstats.families.block import Block, Family
from dpstats.measured.answers import answer
from dpstats.measured.combining import Sources
from dpstats.planning.plan import plan
from dpstats.planning.previews.preview import previewed_width
from dpstats.results.explanation import COMPARED, SHOWN, Explanation
from dpstats.schema import Schema

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
        names = dict.fromkeys(c.name for block in blocks for c in block.columns)
        ask = f"an analysis of {', '.join(names)}"
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
