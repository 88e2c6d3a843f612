"""Descriptions of the measured blocks, and of functions that lack a measurement."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpstats.errors import NotMeasuredError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block, Family
from dpstats.families.tables.cells import ROWS
from dpstats.measured.answers import Answers
from dpstats.measured.measurements import Measurements

if TYPE_CHECKING:
    import pandas as pd

Answer = Callable[[Block], Answers]

_KINDS = {
    "table": "table",
    "condition": "condition",
    "moments": "moments",
    "ball_moments": "clipped moments",
    "group_moments": "moments in groups",
    "kernel_lattice": "kernel averages",
    "bin_offsets": "offsets in bins",
    "spline_table": "splines of numbers",
    "pilot_score": "score at a pilot",
    "partition": "conditions",
    "contrasts": "contrasts of units",
    "person_shares": "products of person totals",
    "person_moments": "products of person totals",
}


def kind_of(block: Block) -> str:
    """A short description of what a block measures."""
    if block == ROWS:
        return "number of rows"
    plain = block.to_dict()
    kind: str = plain["kind"]
    if kind == "moments" and any(len(term) > 2 for term in plain["terms"]):
        return "higher moments"
    return _KINDS.get(kind, kind)


def options_of(block: Block) -> str:
    """How rows were clipped before their moments were measured, as an analysis is asked for it."""
    if not isinstance(block, BallMoments):
        return ""
    center, scale = (
        {c.name: float(value) for c, value in zip(block.numbers, values, strict=True)}
        for values in (block.center, block.scale)
    )
    return f"clip_norm={float(block.clip_norm)}, center={center}, scale={scale}"


def describe(block: Block) -> tuple[str, str, int, str, str]:
    """Kind, columns, number of functions, the first of them, and options of a block."""
    columns = ", ".join(column.name for column in block.columns)
    return kind_of(block), columns, block.size, block.names[0], options_of(block)


def contents(
    measurements: Measurements, answer: Answer, asked: Mapping[str, Family]
) -> pd.DataFrame:
    """One row per measured block: what it is, its noise, and the analyses that use it."""
    import pandas as pd

    public = measurements.count is None
    further = (noisy.block for noisy in (*measurements.scores, *measurements.of_persons))
    blocks = (*measurements.published.blocks, *further, *(() if public else (ROWS,)))
    rows = [
        (
            *describe(block),
            float(np.sqrt(np.median(answer(block).noise_variances))),
            ", ".join(
                name
                for name, family in asked.items()
                if any(
                    block.settles(wanted) or block.derive(wanted, complements=public) is not None
                    for wanted in family.blocks
                )
            ),
        )
        for block in blocks
    ]
    names = ["kind", "columns", "functions", "first_function", "options", "noise_sd", "analyses"]
    return pd.DataFrame(rows, columns=names)


def unasked(blocks: Iterable[Block], wanted: Iterable[Block]) -> list[Block]:
    """The blocks that are neither wanted nor a part of a wanted one, names included."""
    whole = list(wanted)
    written = {_written(block) for block in whole}

    def part_of(block: Block, other: Block) -> bool:
        whole_only = type(other).restrict is Block.restrict
        if type(block) is not type(other) or whole_only or block.size >= other.size:
            return False
        kept = np.isin(other.names, block.names)
        return bool(kept.any()) and other.restrict(kept).to_dict() == block.to_dict()

    return [
        block
        for block in blocks
        if _written(block) not in written and not any(part_of(block, other) for other in whole)
    ]


def _written(block: Block) -> str:
    return json.dumps(block.to_dict())


def lacking(measurements: Measurements, answer: Answer, wanted: Family) -> str:
    """Describe what is missing for a family: "'age' was not measured"; "" if nothing is."""
    unseen = wanted.column_names - measurements.family.column_names
    if unseen:
        names = [name for name in measurements.schema.names if name in unseen]
        return f"{_quoted(names)} {'was' if len(names) == 1 else 'were'} not measured"
    parts = []
    for block in wanted.blocks:
        try:
            answer(block)
        except NotMeasuredError:
            options = options_of(block)
            of = _quoted([column.name for column in block.columns])
            parts.append(f"the {kind_of(block)} of {of}{options and ' with ' + options}")
    return f"it lacks {' and '.join(dict.fromkeys(parts))}" if parts else ""


def _quoted(names: Sequence[str]) -> str:
    *first, last = [repr(name) for name in names]
    return f"{', '.join(first)} and {last}" if first else last
