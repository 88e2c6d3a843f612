"""What an analysis is: the functions it needs, and what it concludes from a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dpstats.answers import Answers
from dpstats.columns import Codes
from dpstats.families.block import Block, Family, Floats
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.privacy.budget import Budget


class Answering(Protocol):
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
        self, wanted: Family | Block | Sequence[Block], *, disjoint: bool = False
    ) -> Answers:
        """Noisy sums of functions, with the exact law of their noise."""


class Analysis(Protocol):
    """A frozen dataclass of the user's parameters, with the two halves."""

    kind: ClassVar[str]

    def family(self, schema: Schema) -> Family:
        """The test functions it needs, known before any row is read."""

    def infer(self, release: Answering) -> Any:
        """Conclusions, from functions that `family` asked for and nothing else."""
