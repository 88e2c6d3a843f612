"""Append-only record of what was spent on one data set, with a cap.

A text file of JSON lines: a header, then one line for each spending. No times, no paths.
"""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Literal, NoReturn

from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.privacy.budget import KINDS, Budget, check_budget
from dpstats.privacy.neighbours import NEIGHBOURS, Unit, check_unit
from dpstats.privacy.rationals import parse_fraction

_VERSION = 1


@dataclass(frozen=True)
class Ledger:
    """The budget spent on a data set, and its cap.

    Open with `Ledger.create` or `Ledger.open`. The file is the only state: every query reads
    it again, and every spending is on disk before `spend` returns.

    Attributes
    ----------
    path : Path
        The file.
    kind : str
        Kind of budget, "pure" or "zcdp"; every spending is of this kind.
    cap : Fraction
        The most that may be spent in total: epsilon or rho, both of which add up.
    unit : {"replace", "add_remove"}
        Neighbour relation of every spending: amounts for different relations do not add up.

    Examples
    --------
    >>> import dpstats as dps
    >>> ledger = dps.Ledger.create("survey.ledger", dps.PureDP(2))
    >>> ledger.spend(dps.PureDP(0.5), note="release of 2026")
    >>> ledger.remaining
    Fraction(3, 2)
    >>> ledger.check(dps.PureDP(1.75))
    Traceback (most recent call last):
        ...
    dpstats.errors.BudgetError: the ledger's cap would be exceeded: requested 1.75 (7/4),
    remaining 1.5 (3/2), difference 0.25 (1/4); ask for a smaller budget
    """

    path: Path
    kind: str
    cap: Fraction
    unit: Unit = "replace"

    @classmethod
    def create(cls, path: str | os.PathLike[str], cap: Budget, *, unit: Unit = "replace") -> Ledger:
        """Start a ledger in a new file.

        Raises
        ------
        RequestError
            If the file exists: a ledger is never overwritten.
        """
        check_budget(cap, "cap")
        header = {"dpstats_ledger": _VERSION, "kind": cap.kind, "cap": str(cap.total)}
        header["unit"] = check_unit(unit)
        try:
            with Path(path).open("xb") as file, _locked(file):
                _append(file, header)
        except FileExistsError:
            raise RequestError(
                f"{os.fspath(path)!r} exists and a ledger is never overwritten; "
                "use it as it is, or name another file"
            ) from None
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open the ledger in a file, which is checked line by line.

        Raises
        ------
        RequestError
            If there is no such file.
        FileFormatError
            If it is not a ledger or a line is damaged; the message gives the line.
        """
        with _opened(Path(path)) as file:
            kind, cap, unit, _ = _read(file)
        return cls(Path(path), kind, cap, unit)

    @property
    def spent(self) -> Fraction:
        """Sum of all spendings, read from the file."""
        with _opened(self.path) as file:
            return self._spent(file)

    @property
    def remaining(self) -> Fraction:
        """The budget that may still be spent."""
        return self.cap - self.spent

    def check(self, budget: Budget, *, unit: Unit = "replace") -> None:
        """Raise BudgetError if `budget` could not be spent now. Writes nothing."""
        self._check(budget, unit, self.spent)

    def spend(self, budget: Budget, note: str = "", *, unit: Unit = "replace") -> None:
        """Record a spending, before any noise is drawn for it.

        The file is read again under an exclusive lock (where the system has ``fcntl``), so two
        processes cannot both spend the remainder, and is on disk when this returns.

        Parameters
        ----------
        budget : PureDP or ZCDP
            What is spent.
        note : str
            Public text stored next to it.
        unit : {"replace", "add_remove"}
            Neighbour relation that it is stated for.

        Raises
        ------
        BudgetError
            If the cap would be exceeded, or the budget is of another kind or for another neighbour
            relation; nothing is written.
        """
        if not isinstance(note, str):
            raise RequestError(f"note must be text, got {reprlib.repr(note)}")
        with _opened(self.path, "r+b") as file:
            self._check(budget, unit, self._spent(file))
            _append(file, {"spent": str(budget.total), "note": note})

    def __str__(self) -> str:
        spent = self.spent
        lines = (("cap", self.cap), ("spent", spent), ("remaining", self.cap - spent))
        parameter = KINDS[self.kind].parameter
        amounts = [f"{name:<9} {parameter} = {_show(value)}" for name, value in lines]
        return "\n".join([*amounts, NEIGHBOURS[self.unit]])

    def _spent(self, file: BinaryIO) -> Fraction:
        kind, cap, unit, spent = _read(file)
        if (kind, cap, unit) != (self.kind, self.cap, self.unit):
            _damaged(1, "the kind, cap or unit has changed since the ledger was opened")
        return spent

    def _check(self, budget: Budget, unit: Unit, spent: Fraction) -> None:
        kind = getattr(budget, "kind", None)
        if kind != self.kind:
            raise BudgetError(
                f"this ledger counts budgets of kind {self.kind!r}, got {reprlib.repr(budget)}; "
                "amounts of different kinds cannot be added; plan with a budget of this kind"
            )
        if check_unit(unit) != self.unit:
            raise BudgetError(
                f"this ledger counts what is spent under unit={self.unit!r}, got {unit!r}; amounts "
                "for different neighbour relations cannot be added; plan with the ledger's unit"
            )
        remaining = self.cap - spent
        if budget.total > remaining:
            raise BudgetError(
                f"the ledger's cap would be exceeded: requested {_show(budget.total)}, remaining "
                f"{_show(remaining)}, difference {_show(budget.total - remaining)}; "
                "ask for a smaller budget"
            )


@contextmanager
def _opened(path: Path, mode: Literal["rb", "r+b"] = "rb") -> Iterator[BinaryIO]:
    """Existing file, locked, positioned at its start."""
    try:
        file = path.open(mode)
    except FileNotFoundError:
        raise RequestError(
            f"there is no ledger {str(path)!r}; start one with "
            "'dpstats ledger new FILE --cap EPSILON' or dps.Ledger.create(path, dps.PureDP(2))"
        ) from None
    with file, _locked(file):
        yield file


@contextmanager
def _locked(file: BinaryIO) -> Iterator[None]:
    """Lock against other processes and threads; exclusive if the file may be written."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    # flock, not lockf: it belongs to the open file, so it keeps out threads as well.
    fcntl.flock(file, fcntl.LOCK_EX if file.writable() else fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _append(file: BinaryIO, entry: dict[str, object]) -> None:
    file.seek(0, os.SEEK_END)
    file.write(json.dumps(entry).encode("ascii") + b"\n")
    file.flush()
    os.fsync(file.fileno())


def _read(file: BinaryIO) -> tuple[str, Fraction, Unit, Fraction]:
    """Kind, cap, neighbour relation and sum of the spendings of a ledger file."""
    header, *entries = (_entry(i, line) for i, line in enumerate(file.readlines() or [b""], 1))
    if header.keys() != {"dpstats_ledger", "kind", "cap", "unit"}:
        _damaged(1, "the header of a ledger is missing")
    if header["dpstats_ledger"] != _VERSION:
        _damaged(1, f"this version of dpstats reads ledgers of version {_VERSION}")
    kind, cap = header["kind"], parse_fraction(header["cap"])
    if not isinstance(kind, str) or kind not in KINDS:
        _damaged(1, f"unknown kind of budget; allowed: {', '.join(KINDS)}")
    if not cap:
        _damaged(1, "the cap must be a positive fraction such as '2'")
    try:
        unit = check_unit(header["unit"])
    except RequestError:
        _damaged(1, f"unknown neighbour relation; allowed: {', '.join(NEIGHBOURS)}")
    spent = Fraction(0)
    for number, entry in enumerate(entries, 2):
        amount = parse_fraction(entry.get("spent"))
        if entry.keys() != {"spent", "note"} or not amount or not isinstance(entry["note"], str):
            _damaged(number, "expected a positive fraction 'spent' and a text 'note'")
        spent += amount
    return kind, cap, unit, spent


def _entry(number: int, line: bytes) -> dict[str, object]:
    if not line.endswith(b"\n"):  # every line is written whole, so the last one was cut
        _damaged(number, "the line is cut off")
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        _damaged(number, "the line is not a JSON object")
    return entry


def _damaged(number: int, reason: str) -> NoReturn:
    raise FileFormatError(
        f"the ledger is damaged in line {number}: {reason}; restore the file from a copy"
    )


def _show(value: Fraction) -> str:
    """Decimal, and the fraction next to it unless it is a whole number."""
    decimal = Decimal(value.numerator) / value.denominator
    return str(value) if value.denominator == 1 else f"{decimal:.6g} ({value})"
