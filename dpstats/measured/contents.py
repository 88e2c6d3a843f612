"""Descriptions of the measured blocks, and of functions that lack a measurement."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from dpstats.errors import NotMeasuredError
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Block, Family
from dpstats.families.features import is_level
from dpstats.families.merging import BlockIndex
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import ROWS, Table
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
    "pilot_score": "score at a pilot",
    "person_shares": "products of person totals",
    "person_moments": "products of person totals",
}
_MOST = 4  # names that a sentence lists


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
            kind_of(block),
            ", ".join(column.name for column in block.columns),
            block.size,
            block.names[0],
            options_of(block),
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
        names = [repr(name) for name in measurements.schema.names if name in unseen]
        return f"{_listed(names)} {'was' if len(names) == 1 else 'were'} not measured"
    functions: list[str] = []
    for block in wanted.blocks:
        try:
            answer(block)
        except NotMeasuredError:
            functions += _functions(measurements, answer, block)
    return f"it lacks {_listed(list(dict.fromkeys(functions)))}" if functions else ""


def _functions(measurements: Measurements, answer: Answer, wanted: Block) -> Iterable[str]:
    """The part of a block that does not follow: a description of it, or its functions by name."""
    kind = kind_of(wanted)
    if kind == "condition":
        return [f"the condition {wanted.names[0]!r}"]
    if kind != "moments":
        options = options_of(wanted)
        of = _listed([repr(column.name) for column in wanted.columns])
        return [f"the {kind} of {of}{options and ' with ' + options}"]
    sources = BlockIndex([noisy.block for noisy in measurements.sources])
    follows = sources.derivable(wanted, complements=measurements.count is None)
    names = wanted.names
    lacked = [f for f, known in enumerate(follows) if not known]
    if isinstance(wanted, Moments) and wanted.given is None:
        shares = _shares(answer, wanted)
        lacked = [f for f in lacked if f not in shares] or lacked
    return [f"the mean of {names[f]!r}" for f in lacked]


def _shares(answer: Answer, wanted: Moments) -> set[int]:
    """Moments of levels alone of which a table follows, so that they are not what is missing.

    Products with numbers follow from no table, and are measured together with such shares.
    """
    levels = {
        f: tuple(name for name, _ in term)
        for f, term in enumerate(wanted.terms)
        if all(map(is_level, term))
    }
    follow = set()
    for columns in set(levels.values()):
        with suppress(NotMeasuredError):
            answer(Table(tuple(c for c in wanted.columns if c.name in columns)))
            follow.add(columns)
    return {f for f, columns in levels.items() if columns in follow}


def _listed(texts: Sequence[str]) -> str:
    if len(texts) > _MOST:
        texts = [*texts[: _MOST - 1], f"{len(texts) - _MOST + 1} more"]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)
