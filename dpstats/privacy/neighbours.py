"""The neighbour relation of a privacy guarantee, and the sensitivity of a vector of sums."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from dpstats.checks import short
from dpstats.errors import RequestError

Unit: TypeAlias = Literal["replace", "add_remove"]


NEIGHBOURS: dict[Unit, str] = {
    "replace": "neighbours differ by replacing one row",
    "add_remove": "neighbours differ by one row more or less, so the number of rows is noisy",
}


def check_unit(unit: object) -> Unit:
    """Return the neighbour relation, or raise RequestError.

    Parameters
    ----------
    unit : {"replace", "add_remove"}
        How two neighbouring tables differ. There is no default.

    Raises
    ------
    RequestError
        If the relation is unknown.
    """
    if isinstance(unit, str) and unit in NEIGHBOURS:
        return unit
    raise RequestError(
        f"unit must be 'replace' or 'add_remove', got {short(unit)}; "
        "it defines how two neighbouring tables differ"
    )


@dataclass(frozen=True)
class Sensitivity:
    """The sensitivity of a vector of sums to one row, in units of f = g / B.

    Attributes
    ----------
    l1 : Fraction
        Largest sum of absolute changes.
    l2_squared : Fraction
        Largest sum of squared changes.
    """

    l1: Fraction
    l2_squared: Fraction

    def __add__(self, other: Sensitivity) -> Sensitivity:
        # One row moves both blocks; (a, b) has squared L2 norm |a|^2 + |b|^2.
        return Sensitivity(self.l1 + other.l1, self.l2_squared + other.l2_squared)
