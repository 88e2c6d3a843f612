"""Requests of analyses, compared with what a plan measures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from dpstats.analyses.base import Analysis, combines, person_blocks, possible_blocks
from dpstats.analyses.registry import family_of, spelled
from dpstats.analyses.second_stage import second_stages
from dpstats.analyses.survey.estimand import estimands_of
from dpstats.checks import check_label, did_you_mean, excerpt, first_few, short
from dpstats.errors import RequestError
from dpstats.families import is_library_block
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block
from dpstats.families.contrasts import Contrasts
from dpstats.families.merging import BlockIndex
from dpstats.measured.contents import unasked
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import Strategy, check_person_totals, check_rows, edited
from dpstats.privacy.budget import Budget, check_budget
from dpstats.privacy.neighbours import Neighbours
from dpstats.results.base import Result
from dpstats.rows.base import Reference
from dpstats.schema import Schema

PersonTotals: TypeAlias = bool | Sequence[str]


def check_arguments(
    schema: Schema,
    analyses: Mapping[str, Analysis[Result]],
    budget: Budget,
    n: int | None,
    reference: Reference | None,
) -> None:
    """Refuse arguments of `plan` of the wrong type."""
    if not isinstance(schema, Schema):
        raise RequestError("the first argument must be a dps.Schema; read one with dps.Schema.load")
    if not isinstance(analyses, Mapping) or not analyses:
        raise RequestError("analyses must be a non-empty mapping of names to analyses")
    for name, analysis in analyses.items():
        if not isinstance(name, str) or not name.strip():
            raise RequestError(f"names of analyses must be non-empty strings, got {short(name)}")
        check_label("the name of an analysis", name)
        if isinstance(analysis, type):
            raise RequestError(
                f"{name!r} is the class dps.{analysis.__name__}; make an analysis of it, with its "
                f"parameters: dps.{analysis.__name__}(...)"
            )
        if not (hasattr(analysis, "family") and hasattr(analysis, "infer")):
            raise RequestError(f"{name!r} is not an analysis such as dps.Proportion(...)")
    check_budget(budget)
    if n is not None:
        check_rows(n)
    if reference is not None and (isinstance(reference, type) or not hasattr(reference, "share")):
        raise RequestError(
            f"reference must be a density such as dps.Uniform(), got {short(reference)}"
        )


def blocks_asked(analysis: Analysis[Result], schema: Schema) -> tuple[Block, ...]:
    """The blocks of an analysis; RequestError unless their sensitivities are proven."""
    blocks = family_of(analysis, schema).blocks
    for block in blocks:
        if not is_library_block(block):
            raise RequestError(
                f"{spelled(analysis)} asks for a block of class {type(block).__name__}, whose "
                "sensitivity is not proven; ask for blocks of dpstats, such as dps.Cells or "
                "dps.Moments"
            )
    return blocks


def asked_by_name(
    analyses: Mapping[str, Analysis[Result]], schema: Schema
) -> dict[str, tuple[Block, ...]]:
    """The blocks of all analyses; errors begin with the name of the analysis they are about."""
    asked = {}
    for name, analysis in analyses.items():
        with _about(name):
            asked[name] = blocks_asked(analysis, schema)
    return asked


@contextmanager
def _about(name: str) -> Iterator[None]:
    try:
        yield
    except RequestError as error:
        raise type(error)(f"analysis {name!r}: {error}") from error


def with_even_edges(schema: Schema, analyses: Mapping[str, Analysis[Result]]) -> Schema:
    """Schema with even bins for the numbers without edges that regressions count rows in."""
    lacking: dict[str, tuple[str, ...]] = {}
    for name, analysis in analyses.items():
        with _about(name):
            lacking[name] = getattr(analysis, "without_bins", lambda schema: ())(schema)
    chosen = {column for columns in lacking.values() for column in columns}
    if chosen:
        asked_by_name({n: a for n, a in analyses.items() if not lacking[n]}, schema)
    return schema.with_even_edges(chosen) if chosen else schema


def refuse_needless_norms(blocks: Iterable[Block]) -> None:
    """Refuse to shrink rows to a norm that none exceeds; files of such plans can still be read."""
    for block in blocks:
        if isinstance(block, BallMoments) and block.clip_norm**2 > block.squared_reach:
            raise RequestError(
                f"clip_norm={float(block.clip_norm):.10g} would shrink no row: within the declared "
                f"bounds of {[number.name for number in block.numbers]} no norm is above "
                f"{math.sqrt(block.squared_reach):.4g}, and the noise grows with the square of "
                "clip_norm; give a smaller one, or leave it out"
            )


def person_totals_asked(
    person_totals: PersonTotals,
    analyses: Mapping[str, Analysis[Result]],
    schema: Schema,
    neighbours: Neighbours,
) -> dict[str, tuple[Block, ...]]:
    """The products of person totals to measure, by the name of the analysis."""
    if person_totals is False:
        return {}
    check_person_totals(neighbours)
    if person_totals is True:
        possible = {name: possible_blocks(a, schema) for name, a in analyses.items()}
        able = {name: blocks for name, blocks in possible.items() if blocks}
        if not able:
            raise RequestError(
                "no analysis of this plan has intervals from person totals: leave out "
                "person_totals="
            )
        return able
    names = list(person_totals) if isinstance(person_totals, list | tuple) else []
    unknown = [name for name in names if not isinstance(name, str) or name not in analyses]
    if not names or unknown:
        got = f"{first_few(unknown)}{did_you_mean(unknown, analyses)}"
        raise RequestError(
            "person_totals must be True, or names of analyses of the plan, "
            f"{list(analyses)}; got {got if unknown else short(person_totals)}"
        )
    asked = {name: person_blocks(analyses[name], schema) for name in names}
    for name, blocks in asked.items():
        if not blocks:
            raise RequestError(
                f"{name!r} has no intervals from person totals; these are for Mean, "
                "MeanDifference, Proportion, Difference, and OLS without clip_norm="
            )
    return asked


def with_person_totals(
    strategy: Strategy, analyses: Mapping[str, Analysis[Result]]
) -> dict[str, tuple[Block, ...]]:
    """The analyses whose products of person totals are all measured, with these blocks."""
    if not strategy.of_persons:
        return {}
    measured = BlockIndex([planned.block for planned in strategy.of_persons])
    used = {name: possible_blocks(a, strategy.schema) for name, a in analyses.items()}
    return {
        name: blocks
        for name, blocks in used.items()
        if blocks and all(measured.derivable(block).all() for block in blocks)
    }


def check_measured(strategy: Strategy, analyses: Mapping[str, Analysis[Result]]) -> None:
    """Refuse a plan file that does not measure what its analyses ask for, or measures more."""
    _check_families(strategy, analyses)
    stages = list(dict.fromkeys(second_stages(analyses, strategy.schema).values()))
    scores = [planned.block for planned in strategy.scores]
    fits = [any(score == stage or score.settles(stage) for score in scores) for stage in stages]
    if len(scores) != len(stages) or not all(fits):
        raise edited("does not measure the second stages of its analyses")
    totals = [planned.block for planned in strategy.of_persons]
    used = {block for of in with_person_totals(strategy, analyses).values() for block in of}
    if len(set(totals)) < len(totals) or not used.issuperset(totals):
        raise edited("measures person totals that none of its analyses has, or has some twice")
    bases = [p.block.base for p in strategy.contrasts if isinstance(p.block, Contrasts)]
    blocks = strategy.family.blocks
    answered: set[Block | None] = set(blocks)
    if bases:
        estimands = (each for a in analyses.values() for each in estimands_of(a, strategy.schema))
        answered.update(each.contrasted for each in estimands)
    settled = (base in answered or any(block.settles(base) for block in blocks) for base in bases)
    if len(set(bases)) < len(bases) or not all(settled):
        raise edited("measures contrasts of functions that answer nothing, or some twice")


def _check_families(strategy: Strategy, analyses: Mapping[str, Analysis[Result]]) -> None:
    if not analyses:
        raise edited("asks for no analysis")
    blocks, asked = strategy.published.blocks, []
    of_family = strategy.family.blocks
    published, measured = BlockIndex((*blocks, *of_family)), BlockIndex(of_family)
    for name, analysis in analyses.items():
        sources = published if combines(analysis, strategy.schema) else measured
        for wanted in blocks_asked(analysis, strategy.schema):
            asked.append(wanted)
            if any(block.settles(wanted) for block in blocks):
                continue
            follows = sources.derivable(wanted, complements=strategy.count_is_public)
            if not follows.all():
                lacking = excerpt(wanted.names[int(np.argmin(follows))])
                raise edited(f"does not measure {lacking}, which analysis {name!r} needs")
    for block, times in Counter(blocks).items():
        if times > 1:
            raise edited(f"measures {excerpt(block.names[0])} twice")
    others = [block for block in blocks if not any(map(block.settles, asked))]
    for block in unasked(others, asked):
        name = excerpt(block.names[0])
        raise edited(f"measures {name} by functions that none of its analyses asks for")


def check_start(strategy: Strategy, start: Measurements | None) -> None:
    """Refuse a plan that does not add known second stages alone to what its start measured."""
    if start is None:
        if not all(planned.pending for planned in strategy.scores):
            raise edited("has the pilot of a second stage, which its first stage gives")
        return
    old = start.strategy
    new = [planned for planned in strategy.blocks if planned not in old.blocks]
    if (
        [planned for planned in strategy.blocks if planned in old.blocks] != list(old.blocks)
        or not new
        or any(planned.role != "score" or planned.pending for planned in new)
        or (strategy.schema, strategy.neighbours, strategy.n, strategy.tables)
        != (old.schema, old.neighbours, old.n, old.tables)
        or strategy.budget.kind != old.budget.kind
    ):
        raise edited("does not add second stages to what its start measured")
