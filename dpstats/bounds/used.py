"""What the interval of a question is known from, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpstats.analyses.questions import Question
from dpstats.bounds.joint_certificate import places_of
from dpstats.bounds.sums import Sums
from dpstats.checks import counted
from dpstats.families.block import Block
from dpstats.families.tables.cells import Indicator, Table
from dpstats.measured.combining import Sources
from dpstats.schema import Column

UNKNOWN = "nothing that limits it"


@dataclass(frozen=True)
class Used:
    """The functions whose sums are bounded in a program, each counted once.

    Attributes
    ----------
    measured, follow : int
        How many were measured, and how many are sums that follow from those.
    measured_of, follow_of : tuple of str
        Names of the columns that either depend on.
    """

    measured: int
    measured_of: tuple[str, ...]
    follow: int
    follow_of: tuple[str, ...]

    def __str__(self) -> str:
        parts = []
        if self.measured:
            names = ", ".join(self.measured_of)
            parts.append(f"{counted(self.measured, 'measured function')} of {names}")
        if self.follow:
            verb = "follows" if self.follow == 1 else "follow"
            names = f" of {', '.join(self.follow_of)}" if self.follow_of else ""
            parts.append(f"{counted(self.follow, 'sum')}{names} that {verb} from the answers")
        return " and ".join(parts) or UNKNOWN


def used_in(sources: Sources, blocks: Iterable[Block], sums: Sequence[Sums]) -> Used:
    """Used part of some blocks and sums, without repetitions."""
    distinct = list(dict.fromkeys([*blocks, *(one.block for one in sums)]))
    tables = [block for block in distinct if isinstance(block, Table)]
    measured: set[int] = set()
    follow, measured_of, follow_of = 0, set[Column](), set[Column]()
    for block in distinct:
        if isinstance(block, Indicator) and any(_is_cell(table, block) for table in tables):
            continue
        places = places_of(sources, block)
        own = places[places >= 0].tolist()
        if own:
            measured |= set(own)
            measured_of |= set(block.columns)
        if rest := int(np.sum(places < 0)):
            follow += rest
            follow_of |= set(block.columns)
    return Used(
        len(measured), _names(sources, measured_of), follow, _names(sources, follow_of)
    )  # fmt: skip


def no_limit(sources: Sources, question: Question) -> str:
    """Message where measured functions of a question's columns leave it open."""
    own = set(question.columns)
    blocks = [b for b in sources.measurements.published.answering.blocks if own & set(b.columns)]
    of = _names(sources, {column for block in blocks for column in block.columns})
    return f"no limit from {Used(sum(block.size for block in blocks), of, 0, ())}"


def _is_cell(table: Table, condition: Indicator) -> bool:
    derivation = table.derive(condition, complements=False)
    return derivation is not None and int(derivation.terms[0]) == 1


def _names(sources: Sources, columns: set[Column]) -> tuple[str, ...]:
    return tuple(c.name for c in sources.measurements.schema if c in columns)
