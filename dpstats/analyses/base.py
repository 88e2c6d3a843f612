"""The protocol of an analysis: the functions it needs, and its inference from a release."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol, TypeVar

from dpstats.arrays import Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.measured.view import ReleaseView
from dpstats.results.base import Result
from dpstats.schema import Schema

R = TypeVar("R", bound=Result)
R_co = TypeVar("R_co", bound=Result, covariant=True)


class Analysis(Protocol[R_co]):
    """A frozen dataclass of the user's parameters: what to measure, and how to infer from it.

    It is generic in the class of its result, which `release.infer` returns.

    To write your own, see ``docs/how-to/analyse/your-own-analysis.md``, `dps.register` and
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

    def infer(self, release: ReleaseView) -> R_co:
        """The result, from the functions of `family` and nothing else."""


class AlternativeShares(NamedTuple):
    """Alternative hypothesis that the power of an analysis' test is simulated under.

    Attributes
    ----------
    groups : list of (members, shares)
        Numbers of functions that it answers, of cells or conditions that exclude each other, and
        their shares (adding up to one) of the rows in all of these.
    value : float or (d,) float64
        The tested quantity under the alternative.
    null : float, (d,) float64 or None
        Its value under the analysis' own null hypothesis, if it has one.
    """

    groups: list[tuple[list[int], Floats]]
    value: float | Floats
    null: float | Floats | None = None


def answered(analysis: Analysis[Result], schema: Schema) -> Family:
    """The functions whose answers an analysis uses: its family without coarse moments.

    An analysis that uses other functions, which follow from its family, names them in a method
    ``answered(schema)``.
    """
    own = getattr(analysis, "answered", None)
    family: Family = analysis.family(schema) if own is None else own(schema)
    return family.answering


def combines(analysis: Analysis[Result], schema: Schema) -> bool:
    """True if an analysis can use tables that follow from several measurements together.

    An analysis says so in a method ``combines(schema)``; one that asks for `disjoint` answers has
    independent noise if its own table is measured as it is.
    """
    own = getattr(analysis, "combines", None)
    return own is not None and own(schema) is True


def person_blocks(analysis: Analysis[Result], schema: Schema) -> tuple[Block, ...]:
    """Blocks of person totals that give the variance of an analysis; most have none.

    An analysis that uses them names them in a method ``person_totals(schema)``.
    """
    own = getattr(analysis, "person_totals", None)
    return () if own is None else tuple(own(schema))


def possible_blocks(analysis: Analysis[Result], schema: Schema) -> tuple[Block, ...]:
    """`person_blocks`, or none where that refuses."""
    try:
        return person_blocks(analysis, schema)
    except RequestError:
        return ()
