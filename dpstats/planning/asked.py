"""What analyses ask for, compared with what a plan measures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from dpstats.analyses.base import Analysis, combines
from dpstats.analyses.registry import family_of, spelled
from dpstats.analyses.second_stage import second_stages
from dpstats.checks import check_label, excerpt, short
from dpstats.errors import RequestError
from dpstats.families import is_library_block
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block
from dpstats.families.merging import BlockIndex
from dpstats.measured.contents import unasked
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import Strategy, check_rows
from dpstats.privacy.budget import Budget, check_budget
from dpstats.results.base import Result
from dpstats.rows.base import Reference
from dpstats.schema import Schema

_EDITED = "it was edited by hand: make it again with dps.plan"


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


def with_even_edges(schema: Schema, analyses: Mapping[str, Analysis[Result]]) -> Schema:
    """The schema with even bins for the numbers without edges that regressions count rows in.

    The others must do without: what they refuse of the schema as it is declared, they still refuse.
    """
    lacking: dict[str, tuple[str, ...]] = {}
    for name, analysis in analyses.items():
        with _about(name):
            lacking[name] = getattr(analysis, "without_bins", lambda schema: ())(schema)
    chosen = {column for columns in lacking.values() for column in columns}
    if chosen:
        asked_by_name({n: a for n, a in analyses.items() if not lacking[n]}, schema)
    return schema.with_even_edges(chosen) if chosen else schema


@contextmanager
def _about(name: str) -> Iterator[None]:
    """Errors that begin with the name of the analysis they are about."""
    try:
        yield
    except RequestError as error:
        raise type(error)(f"analysis {name!r}: {error}") from error


def asked_by_name(
    analyses: Mapping[str, Analysis[Result]], schema: Schema
) -> dict[str, tuple[Block, ...]]:
    """The same of all analyses; errors begin with the name of the analysis they are about."""
    found = {}
    for name, analysis in analyses.items():
        with _about(name):
            found[name] = blocks_asked(analysis, schema)
    return found


def refuse_needless_norms(blocks: Iterable[Block]) -> None:
    """Refuse to shrink rows to a norm that none exceeds; files of such plans can still be read.

    Raises
    ------
    RequestError
    """
    for block in blocks:
        if isinstance(block, BallMoments) and block.clip_norm**2 > block.squared_reach:
            raise RequestError(
                f"clip_norm={float(block.clip_norm):g} would shrink no row: within the declared "
                f"bounds of {[number.name for number in block.numbers]} no norm is above "
                f"{math.sqrt(block.squared_reach):.4g}, and the noise grows with the square of "
                "clip_norm; give a smaller one, or leave it out"
            )


def check_asked(strategy: Strategy, analyses: Mapping[str, Analysis[Result]]) -> None:
    """Refuse a plan that does not measure what its analyses ask for, or measures more.

    Raises
    ------
    RequestError
        If an analysis could not be inferred, a block is not one that some analysis asks for, or a
        block stands twice.
    """
    if not analyses:
        raise RequestError("the plan asks for no analysis; make it again with dps.plan")
    blocks, every = strategy.published.blocks, []
    published, measured = BlockIndex(blocks), BlockIndex(strategy.family.blocks)
    for name, analysis in analyses.items():
        sources = published if combines(analysis, strategy.schema) else measured
        for wanted in blocks_asked(analysis, strategy.schema):
            every.append(wanted)
            follows = sources.derivable(wanted, complements=strategy.unit == "replace")
            if not follows.all():
                lacking = wanted.names[int(np.argmin(follows))]
                raise RequestError(
                    f"analysis {name!r} needs {excerpt(lacking)}, which the plan does not measure; "
                    f"{_EDITED}"
                )
    for block, times in Counter(blocks).items():
        if times > 1:
            raise RequestError(f"the plan measures {excerpt(block.names[0])} twice; {_EDITED}")
    for block in unasked(blocks, every):
        raise RequestError(
            f"the plan measures {excerpt(block.names[0])} by functions that none of its analyses "
            f"asks for; {_EDITED}"
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
        or (strategy.schema, strategy.neighbours, strategy.n, strategy.tables)
        != (old.schema, old.neighbours, old.n, old.tables)
        or strategy.budget.kind != old.budget.kind
    ):
        raise RequestError(
            "the plan does not add second stages to what its start measured; it was edited by "
            "hand: make it again with dps.plan"
        )


def check_arguments(
    schema: Schema,
    analyses: Mapping[str, Analysis[Result]],
    budget: Budget,
    n: int | None,
    reference: Reference | None,
) -> None:
    """Refuse arguments of `plan` of the wrong type.

    Raises
    ------
    BudgetError, RequestError
    """
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
