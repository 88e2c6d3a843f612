"""The neighbour relation of a privacy guarantee, and the sensitivity of a vector of sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from dpstats.checks import check_label, check_whole, short
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
    """The sensitivity of a vector of sums to one row, in units of f = g / B."""

    l1: Fraction  # largest sum of absolute changes
    l2_squared: Fraction  # largest sum of squared changes

    def of_rows(self, k: int) -> Sensitivity:
        """Sensitivity to k rows: k times the L1, k^2 times the squared L2 (k equal rows)."""
        return self if k == 1 else Sensitivity(k * self.l1, k**2 * self.l2_squared)

    def __add__(self, other: Sensitivity) -> Sensitivity:
        # One row moves both blocks; (a, b) has squared L2 norm |a|^2 + |b|^2.
        return Sensitivity(self.l1 + other.l1, self.l2_squared + other.l2_squared)


MOST_ROWS_PER_PERSON = 2**20
WITHOUT_A_COUNT = (
    "plan with unit='add_remove', which needs no number of rows: put it at the top of the request "
    "and run dpstats plan request.toml -o plan.json"
)


@dataclass(frozen=True)
class Neighbours:
    """Which two tables are neighbours, and so what one person can change.

    Notes
    -----
    A step moves a block's sums by at most its sensitivity, so k steps move them by k times that in
    either norm, by the triangle inequality. It is attained: a person's rows may all be equal, and
    all change from one end of the worst pair to the other. With weights whose sum is at most k
    times the largest, a person adds a point of the convex hull of k times what rows add at that
    weight, and the norm of a difference of two such points is largest at corners.
    """

    unit: Unit = "replace"  # {"replace", "add_remove"}: the relation for one row
    # the most rows of one person, k. Neighbours then differ by up to k such steps
    rows_per_person: int = 1
    # the column of keys by which persons are known; at most k rows of each are used. Neighbours
    # then differ in all rows of one person, however many: these come or go, or the values in them
    # change while keys stay
    person: str | None = None
    # the largest weight of a row, a whole number: a row of weight u counts as u equal rows. Then
    # all rows of a person are used, with weights that are scaled to at most k times this
    copies: int = 1

    def __post_init__(self) -> None:
        check_unit(self.unit)
        said = "rows_per_person, the most rows of any one person,"
        check_whole(said, self.rows_per_person, 1, MOST_ROWS_PER_PERSON)
        if self.person is not None:
            check_person(self.person)

    def of_person(self, of_row: Sensitivity, degree: int = 1) -> Sensitivity:
        """Sensitivity to one person, from that to one row, or a person of one, under `unit`.

        Products of two person totals, of degree 2, grow with the square of the number of rows.
        """
        return of_row.of_rows((self.copies * self.rows_per_person) ** degree)

    @property
    def counted(self) -> Neighbours:
        """The relation that a ledger counts: where persons are known, whatever rows are used."""
        return self if self.person is None else Neighbours(self.unit, 1, self.person)

    @property
    def rows(self) -> str:
        """Difference between neighbouring tables, such as "one row"."""
        k = self.rows_per_person
        if self.person is not None:
            return "all rows of one person"
        return "one row" if k == 1 else f"up to {k} rows of one person"

    @property
    def whom(self) -> str:
        """Unit that is protected as a whole: "row", or "person" where one may have several."""
        return "row" if self.person is None and self.rows_per_person == 1 else "person"

    @property
    def protected(self) -> str:
        """Difference between neighbours, with the column of keys of persons."""
        return self.rows if self.person is None else f"{self.rows} by the key {self.person!r}"

    @property
    def persons(self) -> str:
        """How many rows a person has."""
        k = self.rows_per_person
        rows = f"{'one row' if k == 1 else f'at most {k} rows'} per person"
        if self.person is None:
            return rows
        if self.copies > 1:
            return (
                f"weights per person, by the key {self.person!r}, are scaled to at most "
                f"{'the cap' if k == 1 else f'{k} times the cap'} in all"
            )
        verb = "is used, the first" if k == 1 else "are used, the first ones"
        return f"{rows} {verb} by the key {self.person!r}"

    @property
    def stated(self) -> str:
        """The relation and, where persons are known, which of their rows are used."""
        return str(self) if self.person is None else f"{self}; {self.persons}"

    @property
    def counts_are_public(self) -> str:
        """Note on the public row counts of persons whose rows are replaced; "" for others."""
        if self.person is None or self.unit != "replace":
            return ""
        return (
            "it is public how many rows each person has, and n is the exact number of rows that "
            f"are used, {self.which_rows}. Unless that is public anyway, {WITHOUT_A_COUNT}"
        )

    @property
    def which_rows(self) -> str:
        """Which rows are used, where persons are known by a key."""
        k = self.rows_per_person
        if self.copies > 1:
            return "those with a key"
        return f"the first {'row' if k == 1 else f'{k} rows'} of each person"

    def __str__(self) -> str:
        known = self.person is not None and self.unit == "replace"
        rows = f"the values in {self.rows}" if known else self.rows
        return NEIGHBOURS[self.unit].replace("one row", rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; one row per person, as files had it before, is not written."""
        k, key = self.rows_per_person, self.person
        return {
            "unit": self.unit,
            **({} if k == 1 else {"rows_per_person": k}),
            **({} if key is None else {"person_key": key}),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Neighbours:
        """Inverse of `to_dict`."""
        k = plain.get("rows_per_person", 1)
        return cls(check_unit(plain["unit"]), k, plain.get("person_key"))


def check_person(name: object) -> None:
    """Refuse what is no name of a column."""
    if not isinstance(name, str) or not name.strip():
        raise RequestError(
            f"person must be the name of the column that tells persons apart, got {short(name)}"
        )
    check_label("the column of persons", name)
