"""Which analyses of a plan have products of person totals measured for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dpstats.analyses.base import Analysis
from dpstats.analyses.person_totals import person_blocks, possible_blocks
from dpstats.checks import did_you_mean, first_few, short
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.merging import BlockIndex
from dpstats.families.persons.products import PersonProducts
from dpstats.measured.strategy import PlannedBlock, Strategy, check_totals
from dpstats.privacy.neighbours import Neighbours
from dpstats.results.base import Result
from dpstats.schema import Schema

Asked: TypeAlias = bool | Sequence[str]


def asked_for(
    person_totals: Asked,
    analyses: Mapping[str, Analysis[Result]],
    schema: Schema,
    neighbours: Neighbours,
) -> dict[str, tuple[Block, ...]]:
    """The products of person totals to measure, by the name of the analysis.

    Raises
    ------
    RequestError
        For names that are no analyses with person totals, and where persons are not known.
    """
    if person_totals is False:
        return {}
    check_totals(neighbours)
    if person_totals is True:
        able = {name: blocks for name, one in analyses.items()
                if (blocks := possible_blocks(one, schema))}  # fmt: skip
        if not able:
            raise RequestError(
                "no analysis of this plan has intervals from person totals: leave out "
                "person_totals="
            )
        return able
    names = list(person_totals) if isinstance(person_totals, list | tuple) else []
    unknown = [name for name in names if not isinstance(name, str) or name not in analyses]
    if not names or unknown:
        got = (
            f"{first_few(unknown)}{did_you_mean(unknown, analyses)}"
            if unknown
            else short(person_totals)
        )
        raise RequestError(
            "person_totals must be True, or names of analyses of the plan, "
            f"{list(analyses)}; got {got}"
        )
    found = {name: person_blocks(analyses[name], schema) for name in names}
    for name, blocks in found.items():
        if not blocks:
            raise RequestError(
                f"{name!r} has no intervals from person totals; these are for Mean, "
                "MeanDifference, Proportion, Difference, and OLS without clip_norm="
            )
    return found


def planned_for(strategy: Strategy, analyses: Mapping[str, Analysis[Result]]) -> list[str]:
    """Names of the analyses whose products of person totals are all measured."""
    held = BlockIndex([planned.block for planned in strategy.of_persons])
    return [
        name
        for name, blocks in _wanted(strategy, analyses).items()
        if blocks and all(held.derivable(block).all() for block in blocks)
    ]


def _wanted(
    strategy: Strategy, analyses: Mapping[str, Analysis[Result]]
) -> dict[str, tuple[Block, ...]]:
    """What each analysis uses, by name; nothing if no person totals are measured."""
    if not strategy.of_persons:
        return {}
    return {name: possible_blocks(one, strategy.schema) for name, one in analyses.items()}


def apart(
    planned: Sequence[PlannedBlock],
) -> tuple[tuple[PlannedBlock, ...], tuple[PlannedBlock, ...]]:
    """The blocks of the family, and the products of person totals."""
    of_persons = [isinstance(one.block, PersonProducts) for one in planned]
    pairs = list(zip(planned, of_persons, strict=True))
    return (
        tuple(one for one, own in pairs if not own),
        tuple(PlannedBlock(one.block, one.multiplier, "persons") for one, own in pairs if own),
    )


def check_person_totals(strategy: Strategy, analyses: Mapping[str, Analysis[Result]]) -> None:
    """Refuse a plan with products of person totals that no analysis has, or with one twice.

    Raises
    ------
    RequestError
    """
    held = [planned.block for planned in strategy.of_persons]
    blocks, names = _wanted(strategy, analyses), planned_for(strategy, analyses)
    wanted = {block for name in names for block in blocks[name]}
    if len(set(held)) < len(held) or not wanted.issuperset(held):
        raise RequestError(
            "the plan measures person totals that none of its analyses has, or has some twice; it "
            "was edited by hand: make it again with dps.plan"
        )
