"""Second stages of regressions in a plan: their part of the budget, and plans that begin later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstats.analyses.base import Analysis, at_pilot, second_stage
from dpstats.checks import short
from dpstats.errors import RequestError
from dpstats.families.pilot_score import PilotScore
from dpstats.measured.contents import lacking
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.planning.allocation import Split, relative_price
from dpstats.privacy.budget import Budget
from dpstats.results.base import Result
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.privacy.neighbours import Unit


def second_stages(
    analyses: Mapping[str, Analysis[Result]], schema: Schema
) -> dict[str, PilotScore]:
    """By name, for the analyses that have one."""
    found = {name: second_stage(one, schema) for name, one in analyses.items()}
    return {name: block for name, block in found.items() if block is not None}


def split_stages(
    rule: Split, stages: Mapping[str, PilotScore]
) -> tuple[Split, tuple[PlannedBlock, ...]]:
    """The rule for what is measured first, and the second stages with their noise.

    A second stage gets as much as the first one of its analysis: half of the analysis' share where
    shares are given, otherwise as much as its functions would cost by themselves in an equal split
    of what all analyses ask for.
    """
    if not stages:
        return rule, ()
    if rule.shares is not None:
        whole = sum(rule.shares.values(), Fraction(0))
        parts = {name: rule.shares[name] / whole / 2 for name in stages}
        left = {name: share / whole - parts.get(name, 0) for name, share in rule.shares.items()}
        first, total = replace(rule, shares=left), Fraction(1)
    else:
        every = list(dict.fromkeys(block for blocks in rule.asked.values() for block in blocks))
        price = relative_price(every, rule.budget, rule.unit)
        parts = {
            name: relative_price(list(dict.fromkeys(rule.asked[name])), rule.budget, rule.unit)
            / price
            for name in stages
        }
        first, total = rule, 1 + sum(parts.values(), Fraction(0))
    amounts: dict[PilotScore, Fraction] = {}  # two analyses of one formula share theirs
    for name, block in stages.items():
        amounts[block] = amounts.get(block, Fraction(0)) + rule.amount * parts[name] / total
    spent = sum(amounts.values(), Fraction(0))
    return replace(first, amount=rule.amount - spent), _planned(amounts, rule.budget, rule.unit)


def at_pilots(
    blocks: tuple[PlannedBlock, ...],
    analyses: Mapping[str, Analysis[Result]],
    release: ReleaseView,
) -> tuple[PlannedBlock, ...]:
    """The blocks, with those that wait for a pilot at the one that a release gives."""
    known: dict[object, PilotScore] = {}
    for analysis in analyses.values():
        wanted = second_stage(analysis, release.schema)
        if wanted is not None and wanted not in known:
            found = at_pilot(analysis, release)
            assert found is not None  # it has a second stage
            known[wanted] = found
    return tuple(
        replace(planned, block=known[planned.block]) if planned.pending else planned
        for planned in blocks
    )


def continued(
    schema: Schema,
    analyses: Mapping[str, Analysis[Result]],
    budget: Budget,
    start: Any,
    shares: Mapping[str, Fraction] | None,
) -> Strategy:
    """What a release measured, and second stages at its pilots; the budget is that of all of it.

    Raises
    ------
    RequestError
        If `start` is not a release of this schema, with a budget of the same kind, that holds the
        first stage of all analyses and the second of none.
    """
    held = getattr(start, "measurements", None)
    if not isinstance(held, Measurements) or not hasattr(start, "candidates"):
        raise RequestError(f"start must be a dps.Release, got {short(start)}")
    old = held.strategy
    if schema != old.schema:
        raise RequestError(
            "the release given as start= declares other columns; plan with its own: start.schema"
        )
    deltas = {getattr(one, "delta", None) for one in (budget, old.budget)}
    if budget.kind != old.budget.kind or len(deltas) > 1:
        raise RequestError(
            f"the release given as start= spent {old.budget}; give a budget of the same kind (and "
            "delta), which is added to it"
        )
    stages = second_stages(analyses, schema)
    for name, analysis in analyses.items():
        if name not in stages:
            raise RequestError(
                f"start= adds the second stage of regressions, and {name!r} has none: give it "
                "stages=2, or plan it without start="
            )
        if missing := lacking(held, start.answers, analysis.family(schema)):
            raise RequestError(
                f"the release given as start= lacks the first stage of {name!r}: {missing}; plan "
                "it without start="
            )
        if any(planned.block.settles(stages[name]) for planned in old.scores):
            raise RequestError(
                f"the release given as start= has measured the second stage of {name!r} already"
            )
    parts = dict.fromkeys(stages, Fraction(1)) if shares is None else shares
    whole, amounts = sum(parts.values(), Fraction(0)), dict[PilotScore, Fraction]()
    for name, block in stages.items():
        amounts[block] = amounts.get(block, Fraction(0)) + budget.total * parts[name] / whole
    new = at_pilots(_planned(amounts, budget, old.unit), analyses, start)
    own = tuple(planned for planned in old.blocks if planned.role in ("reference", "count"))
    together = budget.of_total(old.budget.total + budget.total)
    return replace(old, blocks=(*old.measured, *old.scores, *new, *own), budget=together)


def check_start(strategy: Strategy, start: Measurements | None) -> None:
    """Refuse a plan that does not add known second stages alone to what was measured before.

    Or that knows pilots without a release that they come from.

    Raises
    ------
    RequestError
    """
    if start is None:
        if not all(planned.pending for planned in strategy.scores):
            raise RequestError(
                "the plan has the pilot of a second stage, which its first stage gives; it was "
                "edited by hand: make it again with dps.plan"
            )
        return
    old = start.strategy
    new = [planned for planned in strategy.blocks if planned not in old.blocks]
    if (
        [planned for planned in strategy.blocks if planned in old.blocks] != list(old.blocks)
        or not new
        or any(planned.role != "score" or planned.pending for planned in new)
        or (strategy.schema, strategy.unit, strategy.n, strategy.tables)
        != (old.schema, old.unit, old.n, old.tables)
        or strategy.budget.kind != old.budget.kind
    ):
        raise RequestError(
            "the plan does not add second stages to what its start measured; it was edited by "
            "hand: make it again with dps.plan"
        )


def check_stages(strategy: Strategy, analyses: Mapping[str, Analysis[Result]]) -> None:
    """Refuse a plan without the second stages that its analyses have, or with others.

    Raises
    ------
    RequestError
    """
    wanted = list(dict.fromkeys(second_stages(analyses, strategy.schema).values()))
    found = [planned.block for planned in strategy.scores]
    fits = [[one == block or one.settles(block) for one in found] for block in wanted]
    if len(found) != len(wanted) or not all(map(any, fits)):
        raise RequestError(
            "the plan does not measure the second stages of its analyses; it was edited by hand: "
            "make it again with dps.plan"
        )


def _planned(
    amounts: Mapping[PilotScore, Fraction], budget: Budget, unit: Unit
) -> tuple[PlannedBlock, ...]:
    return tuple(
        PlannedBlock(block, block.multiplier(budget, unit, amount), "score")
        for block, amount in amounts.items()
    )
