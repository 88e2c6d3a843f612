"""What an analysis is: the functions it needs, and what it concludes from a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dpstats.families.block import Family
from dpstats.measured.view import ReleaseView
from dpstats.schema import Schema

if TYPE_CHECKING:
    pass


class Analysis(Protocol):
    """A frozen dataclass of the user's parameters, with the two halves."""

    kind: ClassVar[str]

    def family(self, schema: Schema) -> Family:
        """The test functions it needs, known before any row is read."""

    def infer(self, release: ReleaseView) -> Any:
        """Conclusions, from functions that `family` asked for and nothing else."""
