"""Second stages of analyses: what they measure once their family has given a pilot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.analyses.survey.estimand import estimands_of
from dpstats.families.block import Family
from dpstats.families.pilot_score import PilotScore
from dpstats.measured.strategy import PlannedBlock
from dpstats.results.base import Result
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView


def second_stage(analysis: Analysis[Result], schema: Schema) -> PilotScore | None:
    """Block that an analysis measures in a second stage, before its pilot is known; usually None.

    Such an analysis has two methods: ``second_stage(schema)`` returns this block, and
    ``at_pilot(release)`` returns it at the pilot that the first stage of a release estimates.
    """
    method = getattr(analysis, "second_stage", None)
    block: PilotScore | None = None if method is None else method(schema)
    return block


def second_stages(
    analyses: Mapping[str, Analysis[Result]], schema: Schema
) -> dict[str, PilotScore]:
    """By name, for the analyses that have one."""
    found = {name: second_stage(one, schema) for name, one in analyses.items()}
    return {name: block for name, block in found.items() if block is not None}


def needs(analysis: Analysis[Result], schema: Schema) -> Family:
    """All that an analysis measures: its family, and a second stage if it has one."""
    family, more = analysis.family(schema), second_stage(analysis, schema)
    return family if more is None else Family((*family.blocks, more))


def at_pilots(
    blocks: tuple[PlannedBlock, ...], analyses: Mapping[str, Analysis[Result]], release: ReleaseView
) -> tuple[PlannedBlock, ...]:
    """The blocks, with those of these analyses that wait for a pilot at what a release gives."""
    known: dict[PilotScore, PilotScore] = {}
    for analysis in analyses.values():
        for wanted in _pending_scores(analysis, release.schema):
            if wanted not in known:
                known[wanted] = _at_pilot(analysis, wanted, release)
    return tuple(planned.at_pilot(lambda score: known.get(score, score)) for planned in blocks)


def _pending_scores(analysis: Analysis[Result], schema: Schema) -> list[PilotScore]:
    """Scores at a pilot that an analysis needs: its second stage, or those of contrasts."""
    stage = second_stage(analysis, schema)
    if schema.design is None:
        return [] if stage is None else [stage]
    others = (estimand.contrasted for estimand in estimands_of(analysis, schema))
    return [other for other in others if isinstance(other, PilotScore)]


def _at_pilot(analysis: Analysis[Result], wanted: PilotScore, release: ReleaseView) -> PilotScore:
    """A second stage at the pilot that a release gives; at zero, where it gives none."""
    try:
        found: PilotScore = analysis.at_pilot(release)  # type: ignore[attr-defined]
    except Exception:  # any pilot is valid, and the budget is spent
        return wanted.at(np.zeros(wanted.size))
    return found
