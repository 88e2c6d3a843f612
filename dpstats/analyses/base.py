"""What an analysis is: the functions it needs, and what it concludes from a release."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from dpstats.families.block import Family
from dpstats.measured.view import ReleaseView
from dpstats.schema import Schema


class Analysis(Protocol):
    """A frozen dataclass of the user's parameters: what to measure, and what to conclude.

    To write your own, see ``docs/how-to/your-own-analysis.md``, `dps.register` and
    `dps.testing.check_analysis`.

    Examples
    --------
    >>> import dpstats as dps
    >>> def functions(analysis: dps.Analysis, schema: dps.Schema) -> int:
    ...     return analysis.family(schema).size
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> functions(dps.Independence("smoker", "region"), schema)
    4
    """

    kind: ClassVar[str]

    def family(self, schema: Schema) -> Family:
        """The test functions it needs, known before any row is read."""

    def infer(self, release: ReleaseView) -> Any:
        """Conclusions, from functions that `family` asked for and nothing else."""
