"""What a release knows of a question: measured, derivable, bounded or out of reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.base import answered
from dpstats.analyses.counts.proportion import Proportion
from dpstats.analyses.registry import spelled
from dpstats.bounds.bounding import bound
from dpstats.checks import check_alpha, short
from dpstats.errors import DpstatsError, NotMeasuredError, RequestError
from dpstats.families.block import Block, Family
from dpstats.families.tables.cells import Indicator
from dpstats.measured.answers import answer
from dpstats.measured.combining import Sources
from dpstats.planning.plan import plan
from dpstats.planning.previews.preview import previewed_width
from dpstats.results.explanation import Explanation

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView


def explain(
    release: ReleaseView,
    sources: Sources,
    query: Any,
    *,
    given: str | None = None,
    alpha: float = 0.05,
) -> Explanation:
    """See `Release.explain`."""
    check_alpha(alpha)
    if isinstance(query, str):
        query = Proportion(query, given)
    elif given is not None:
        raise RequestError("given= goes with a condition as text")
    asked = not isinstance(query, type) and hasattr(query, "family") and hasattr(query, "infer")
    if not asked and not isinstance(query, Family | Block):
        raise RequestError(
            "explain takes a condition such as \"smoker == 'yes' & age >= 65\", an analysis, or a "
            f"family of functions; got {short(query)}"
        )
    bounds = bound(release, sources, query, alpha=alpha)
    family = answered(query, release.schema) if asked else query
    blocks = family.blocks if isinstance(family, Family) else (family,)
    if _follows(release, sources, query if asked else None, blocks):
        exact = all(_is_measured(sources, block) for block in blocks)
        verdict = "measured" if exact else "derivable"
    else:
        verdict = "bounded" if bounds.informative.any() else "out of reach"
    ask = spelled(query) if asked else _tables_of(blocks)
    return Explanation(
        query=query.label if isinstance(query, Indicator) else ask,
        verdict=verdict,  # type: ignore[arg-type]
        bounds=bounds,
        ask=ask,
        expected_width=_expected_width(release, sources, query) if asked else float("nan"),
    )


def _follows(
    release: ReleaseView, sources: Sources, analysis: Any, blocks: tuple[Block, ...]
) -> bool:
    """Whether an analysis can be inferred, or all functions have an answer."""
    try:
        if analysis is not None:
            analysis.infer(release)
        else:
            answer(sources, list(blocks))
    except NotMeasuredError:
        return False
    return True


def _is_measured(sources: Sources, wanted: Block) -> bool:
    """Whether every function of a block is itself a measured one."""
    found = np.zeros(wanted.size, dtype=np.bool_)
    for block in sources.measurements.published.blocks:
        derivation = block.derive(wanted, complements=False)
        if derivation is not None:
            found |= derivation.terms == 1
    return bool(found.all())


def _tables_of(blocks: tuple[Block, ...]) -> str:
    """The tables to ask for, for functions that no analysis names."""
    columns = [list(dict.fromkeys(c.name for c in block.columns)) for block in blocks]
    return ", ".join(f"dps.Marginals({names!r}, degree={len(names)})" for names in columns[:3])


def _expected_width(release: ReleaseView, sources: Sources, analysis: Any) -> float:
    """Median width of the analysis' 95% intervals if it alone were planned with this budget."""
    measured = sources.measurements
    try:
        alone = plan(
            release.schema, {"asked": analysis}, budget=measured.budget, unit=measured.unit,
            n=measured.strategy.n,
        )  # fmt: skip
        results = alone.preview(n=release.n).results["asked"]
    except DpstatsError:  # a plan of its own may need more, such as a number of rows
        return float("nan")
    return float(np.median([previewed_width(result, "noise_aware") for result in results]))
