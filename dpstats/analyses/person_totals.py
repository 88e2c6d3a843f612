"""Products of person totals that analyses use where a plan asks for them."""

from __future__ import annotations

from dpstats.analyses.base import Analysis
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.results.base import Result
from dpstats.schema import Schema


def person_blocks(analysis: Analysis[Result], schema: Schema) -> tuple[Block, ...]:
    """What the variance of an analysis over persons follows from; none for most analyses.

    An analysis that uses them names them in a method ``person_totals(schema)``.

    Raises
    ------
    RequestError
        Where they are too many, or of too many numbers.
    """
    own = getattr(analysis, "person_totals", None)
    return () if own is None else tuple(own(schema))


def possible_blocks(analysis: Analysis[Result], schema: Schema) -> tuple[Block, ...]:
    """The same; none where `person_blocks` refuses."""
    try:
        return person_blocks(analysis, schema)
    except RequestError:
        return ()
