"""Append-only record of what was spent on one data set, with a cap.

Neither a number of rows nor a folder is written.
"""

from __future__ import annotations

import math
import shlex
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from dpstats import files
from dpstats.checks import check_text, printable
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.privacy import ledger_file
from dpstats.privacy.budget import KINDS, ZCDP, ApproxDP, Budget, PureDP, check_budget
from dpstats.privacy.ledger_file import Spending
from dpstats.privacy.neighbours import Neighbours, Unit

_RHO_ADDS = "epsilons do not add; rho does, and each epsilon is that of its rho by itself"
_LONGEST = 400  # bits of a fraction that is printed exactly
_NO_LOCK = (
    "there is no lock on this system, so two releases at the same moment could together pass the "
    "ledger's cap; release one at a time"
)


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
        Kind of the cap, "pure", "zcdp" or "approx". The first counts epsilon; the other two count
        rho, in which every release with Gaussian noise is paid.
    cap : Fraction
        The most that may be spent in total: epsilon or rho, both of which add up.
    unit : {"replace", "add_remove"}
        Neighbour relation of every spending: amounts for different relations do not add up.
    rows_per_person : int
        The most rows of one person in every spending, for the same reason.
    person : str or None
        The column of keys that tells persons apart in every spending: then each protects all rows
        of a person, whatever its own `rows_per_person`.
    delta : Fraction or None
        Of an `ApproxDP` cap: what was spent is read as an epsilon at this delta.

    Examples
    --------
    >>> import dpstats as dps
    >>> ledger = dps.Ledger.create("survey.ledger", dps.PureDP(2))
    >>> ledger.spend(dps.PureDP(0.5), note="release of 2026")
    >>> dps.Ledger.open("survey.ledger").remaining
    Fraction(3, 2)
    >>> "release of 2026" in ledger.table()
    True
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
    delta: Fraction | None = None
    rows_per_person: int = 1
    person: str | None = None

    @classmethod
    def create(
        cls,
        path: str | Path,
        cap: Budget,
        *,
        unit: Unit = "replace",
        rows_per_person: int = 1,
        person: str | None = None,
    ) -> Ledger:
        """Start a ledger in a new file.

        Parameters
        ----------
        path : str or Path
        cap : PureDP, ZCDP or ApproxDP
            The most that all releases together may spend.
        unit, rows_per_person, person
            Neighbour relation of every release, as in `dps.plan`.

        Returns
        -------
        Ledger

        Raises
        ------
        RequestError
            If the file exists: a ledger is never overwritten.
        """
        check_budget(cap, "cap")
        header = {"dpstats_ledger": ledger_file.VERSION, "kind": cap.kind, "cap": str(cap.total)}
        header |= Neighbours(unit, rows_per_person, person).counted.to_dict()
        if isinstance(cap, ApproxDP):
            header["delta"] = str(cap.delta)
        path = files.as_path(path)
        try:
            ledger_file.create(path, header)
        except FileExistsError:
            raise RequestError(
                f"{str(path)!r} exists and a ledger is never overwritten; "
                "use it as it is, or name another file"
            ) from None
        except OSError as error:
            raise RequestError(f"cannot write the ledger {str(path)!r}: {error.strerror}") from None
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> Ledger:
        """Open the ledger in a file, which is checked line by line.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Ledger

        Raises
        ------
        RequestError
            If there is no such file.
        FileFormatError
            If it is not a ledger or a line is damaged; the message gives the line.

        Warns
        -----
        RuntimeWarning
            Where the system has no ``fcntl``, as on Windows: there is no lock.
        """
        path = files.as_path(path)
        files.check_kind(path, "a ledger")
        if not ledger_file.has_locks():
            warnings.warn(_NO_LOCK, RuntimeWarning, stacklevel=2)
        with ledger_file.opened(path) as file:
            read = ledger_file.read(file)
        at = read.neighbours
        return cls(
            path, read.kind, read.cap, at.unit, read.delta, at.rows_per_person, at.person
        )  # fmt: skip

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation of every spending."""
        return Neighbours(self.unit, self.rows_per_person, self.person)

    @property
    def spendings(self) -> tuple[Spending, ...]:
        """All spendings, in their order, read from the file."""
        return self._read().spendings

    @property
    def spent(self) -> Fraction:
        """Sum of all spendings, read from the file."""
        return self._read().spent

    @property
    def remaining(self) -> Fraction:
        """The budget that may still be spent."""
        return self.cap - self.spent

    def check(
        self,
        budget: Budget,
        *,
        unit: Unit = "replace",
        rows_per_person: int = 1,
        person: str | None = None,
    ) -> None:
        """Raise BudgetError if `budget` could not be spent now. Writes nothing."""
        self._check(budget, Neighbours(unit, rows_per_person, person), self.spent)

    def spend(
        self,
        budget: Budget,
        note: str = "",
        *,
        unit: Unit = "replace",
        rows_per_person: int = 1,
        person: str | None = None,
        plan: str = "",
        data: str = "",
    ) -> None:
        """Record a spending, before any noise is drawn for it.

        The file is read again under an exclusive lock (where the system has ``fcntl``), so two
        processes cannot both spend the remainder, and is on disk when this returns.

        Parameters
        ----------
        budget : PureDP, ZCDP or ApproxDP
            What is spent.
        note : str
            Public text stored next to it.
        unit : {"replace", "add_remove"}
            Neighbour relation that it is stated for.
        rows_per_person : int
            The most rows of one person that it is stated for.
        person : str, optional
            The column of keys that tells persons apart.
        plan : str
            The plan's digest.
        data : str
            Name of the table's file.

        Raises
        ------
        BudgetError
            If the cap would be exceeded, or the budget is of another kind or for another neighbour
            relation; nothing is written.
        FileFormatError
            If the file is damaged or cannot be written, such as on a full disk; in both cases it
            is as it was.
        """
        texts = {"plan": plan, "data": data, "note": note}
        for name, text in texts.items():
            check_text(name, text)
        with ledger_file.opened(self.path, "r+b") as file:
            read = self._same(ledger_file.read(file))
            self._check(budget, Neighbours(unit, rows_per_person, person), read.spent)
            day = datetime.now(UTC).date().isoformat()
            try:
                spending: dict[str, object] = {"spent": str(budget.total), "date": day, **texts}
                ledger_file.append(file, spending, read.last)
            except OSError as error:
                raise FileFormatError(
                    f"cannot write the ledger {str(self.path)!r}: {error.strerror}; nothing was "
                    "spent and the ledger is as it was; make it writable or free some space"
                ) from None

    def __str__(self) -> str:
        spent = self.spent
        lines = (("cap", self.cap), ("spent", spent), ("remaining", self.cap - spent))
        parameter = KINDS[self.kind].parameter
        amounts = [f"{name:<9} {parameter} = {self._text(value)}" for name, value in lines]
        note = [] if self.kind == PureDP.kind else [_RHO_ADDS]
        known = "" if self.person is None else f"; persons are known by the key {self.person!r}"
        return "\n".join([*amounts, *note, f"{self.neighbours}{known}"])

    def table(self) -> str:
        """All spendings as lines: date, amount, digest of the plan, table and note.

        Below them the digest of the last line of the file: kept elsewhere, it shows whether lines
        were removed from the end.

        Returns
        -------
        str
        """
        read = self._read()
        lines = [
            "  ".join(
                [
                    one.date,
                    self._text(one.amount),
                    files.short_digest(one.plan) or "-",
                    printable(one.data) or "-",
                    printable(one.note),
                ]
            )
            for one in read.spendings
        ]
        head = "date, amount, digest of the plan, table, analyses:"
        last = f"digest of the last line: {files.short_digest(read.last)}"
        return "\n".join([head, *lines, last])

    def _read(self) -> ledger_file.Contents:
        with ledger_file.opened(self.path) as file:
            return self._same(ledger_file.read(file))

    def _same(self, read: ledger_file.Contents) -> ledger_file.Contents:
        own = (self.kind, self.cap, self.neighbours, self.delta)
        if (read.kind, read.cap, read.neighbours, read.delta) != own:
            ledger_file.damaged(
                1, "the kind, cap, delta, persons or unit has changed since the ledger was "
                "opened"
            )  # fmt: skip
        return read

    def _text(self, amount: Fraction) -> str:
        """An amount; of rho with the epsilon that it guarantees by itself, at a delta."""
        if self.kind == PureDP.kind or amount <= 0:
            return _show(amount)
        if amount.numerator.bit_length() + amount.denominator.bit_length() > _LONGEST:
            amount = Fraction(math.nextafter(float(amount), math.inf))  # of many spendings
        budget = ZCDP(amount) if self.delta is None else ApproxDP.from_rho(amount, self.delta)
        return f"{_show(amount)}: {budget.reading}"

    def _check(self, budget: Budget, neighbours: Neighbours, spent: Fraction) -> None:
        # rho of Gaussian noise adds up, whichever guarantee is read from the sum
        check_budget(budget)
        neighbours = neighbours.counted
        unit, k, person = neighbours.unit, neighbours.rows_per_person, neighbours.person
        options = [
            budget.cap_options,
            *([] if unit == "replace" else [f"--unit {unit}"]),
            *([] if k == 1 else [f"--rows-per-person {k}"]),
            *([] if person is None else [f"--person {shlex.quote(person)}"]),
        ]
        start = (
            f"or start another ledger, 'dpstats ledger new FILE {' '.join(options)}', whose "
            "spendings come on top of those in this one"
        )
        counted = KINDS[self.kind]
        if budget.parameter != counted.parameter:
            allowed = [f"dps.{cls.__name__}" for cls in KINDS.values()
                       if cls.parameter == counted.parameter]  # fmt: skip
            raise BudgetError(
                f"this ledger of kind {self.kind!r} counts {counted.parameter}, and a budget of "
                f"kind {budget.kind!r} spends {budget.parameter}; amounts of different kinds "
                f"cannot be added; plan with {' or '.join(allowed)}, {start}"
            )
        if unit != self.unit:
            raise BudgetError(
                f"this ledger counts what is spent under unit={self.unit!r}, got {unit!r}; amounts "
                "for different neighbour relations cannot be added; plan with the ledger's unit, "
                f"{start}"
            )
        if (person, k) != (self.person, self.rows_per_person):
            raise BudgetError(
                f"this ledger counts budgets for {self.neighbours.protected}, and this one is for "
                f"{neighbours.protected}; amounts for rows and for persons, for persons known by "
                "different keys, or for different numbers of rows of one person, cannot be added; "
                f"plan for what it counts, {start}"
            )
        remaining = self.cap - spent
        if budget.total > remaining:
            asked = self._text(budget.total)
            advice = "ask for a smaller budget" if remaining else "nothing is left to spend"
            raise BudgetError(
                f"the ledger's cap would be exceeded: requested {asked}, remaining "
                f"{self._text(remaining)}, difference {_show(budget.total - remaining)}; "
                f"{advice}"
            )


def _show(value: Fraction) -> str:
    """Decimal, and the fraction next to it unless it is a whole number."""
    decimal = Decimal(value.numerator) / value.denominator
    if value.numerator.bit_length() + value.denominator.bit_length() > _LONGEST:
        return f"{decimal:.6g}"
    return str(value) if value.denominator == 1 else f"{decimal:.6g} ({value})"
