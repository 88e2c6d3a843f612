"""What an analysis is: the functions it needs, and what it concludes from a release."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeVar

from dpstats.families.block import Family
from dpstats.measured.view import ReleaseView
from dpstats.results.base import Result
from dpstats.schema import Schema

R = TypeVar("R", bound=Result)
R_co = TypeVar("R_co", bound=Result, covariant=True)


class Analysis(Protocol[R_co]):
    """A frozen dataclass of the user's parameters, with two methods; generic in its result."""

    kind: ClassVar[str]

    def family(self, schema: Schema) -> Family:
        """The test functions it needs, known before any row is read."""

    def infer(self, release: ReleaseView) -> R_co:
        """Conclusions, from functions that `family` asked for and nothing else."""
