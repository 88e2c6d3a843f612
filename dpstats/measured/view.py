"""What an analysis may look at: noisy answers and the fitted density, never rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Block, Family
from dpstats.measured.answers import Answers
from dpstats.privacy.budget import Budget
from dpstats.schema import Schema


class ReleaseView(Protocol):
    """What an analysis may look at: a release, or the pretend release of a preview."""

    @property
    def schema(self) -> Schema:
        """The public schema."""

    @property
    def n(self) -> int:
        """Number of private rows."""

    @property
    def budget(self) -> Budget:
        """The budget that was spent."""

    @property
    def candidates(self) -> Mapping[str, Codes]:
        """Points of the fitted density, (m,) codes per column."""

    @property
    def weights(self) -> Floats:
        """Their weights (m,); an analysis uses them for nothing that was measured."""

    def answers(
        self,
        wanted: Family | Block | Sequence[Block],
        *,
        disjoint: bool = False,
        with_count: bool = False,
    ) -> Answers:
        """Noisy sums of functions, with the exact law of their noise; see `Release.answers`."""
