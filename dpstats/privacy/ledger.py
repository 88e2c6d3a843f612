"""Append-only record of what was spent on one data set, with a cap.

A text file of JSON lines: a header, then one line for each spending. Every line holds a digest of
itself and of the line before it, so that a line that is changed, or removed from the middle, is
noticed. Lines removed from the end are not: keep a copy elsewhere. No number of rows and no folder
is written.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Literal, NoReturn

from dpstats import files
from dpstats.checks import check_text, printable, short
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.privacy.budget import KINDS, ZCDP, ApproxDP, Budget, PureDP, check_budget
from dpstats.privacy.neighbours import NEIGHBOURS, Neighbours, Unit
from dpstats.privacy.rationals import parse_fraction

_VERSION = 2  # 2: a date, the plan's digest and the table's name; lines are chained
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HEADER = {"dpstats_ledger", "kind", "cap", "unit"}
_SPENDING = {"spent", "date", "plan", "data", "note"}
_RHO_ADDS = "epsilons do not add; rho does, and each epsilon is that of its rho by itself"
_LONGEST = 400  # bits of a fraction that is printed exactly
_FIRST_LINE = 2**20  # bytes in which the first line must end
_MOST_BYTES = 2**26  # some hundred thousand spendings
_NO_LOCK = (
    "there is no lock on this system, so two releases at the same moment could together pass the "
    "ledger's cap; release one at a time"
)


@dataclass(frozen=True)
class Spending:
    """One line of a ledger.

    Attributes
    ----------
    amount : Fraction
        Of epsilon or rho.
    date : str
        The day, in universal time.
    plan : str
        The plan's digest; empty if none was given.
    data : str
        Name of the table's file, without its folder; empty if it was no file.
    note : str
    """

    amount: Fraction
    date: str
    plan: str = ""
    data: str = ""
    note: str = ""


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

        Raises
        ------
        RequestError
            If the file exists: a ledger is never overwritten.
        """
        check_budget(cap, "cap")
        header = {"dpstats_ledger": _VERSION, "kind": cap.kind, "cap": str(cap.total)}
        header |= Neighbours(unit, rows_per_person, person).counted.to_dict()
        if isinstance(cap, ApproxDP):
            header["delta"] = str(cap.delta)
        path = files.as_path(path)
        try:
            with path.open("xb") as file, _locked(file), _removed_on_failure(path):
                _append(file, header, "")
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
        if not _has_locks():
            warnings.warn(_NO_LOCK, RuntimeWarning, stacklevel=2)
        with _opened(path) as file:
            read = _read(file)
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
        with _opened(self.path) as file:
            return self._same(_read(file)).spendings

    @property
    def spent(self) -> Fraction:
        """Sum of all spendings, read from the file."""
        return sum((spending.amount for spending in self.spendings), Fraction(0))

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
        with _opened(self.path, "r+b") as file:
            read = self._same(_read(file))
            self._check(budget, Neighbours(unit, rows_per_person, person), read.spent)
            day = datetime.now(UTC).date().isoformat()
            try:
                _append(file, {"spent": str(budget.total), "date": day, **texts}, read.last)
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
        return "\n".join([*amounts, *note, str(self.neighbours)])

    def table(self) -> str:
        """All spendings as lines: date, amount, digest of the plan, table and note.

        Below them the digest of the last line of the file: kept elsewhere, it shows whether lines
        were removed from the end.
        """
        with _opened(self.path) as file:
            read = self._same(_read(file))
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

    def _same(self, read: _Read) -> _Read:
        own = (self.kind, self.cap, self.neighbours, self.delta)
        if (read.kind, read.cap, read.neighbours, read.delta) != own:
            _damaged(
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
        unit, k = neighbours.unit, neighbours.rows_per_person
        of_unit = "" if unit == "replace" else f" --unit {unit}"
        of_unit += "" if k == 1 else f" --rows-per-person {k}"
        of_unit += (
            "" if neighbours.person is None else f" --person {shlex.quote(neighbours.person)}"
        )
        start = (
            f"or start another ledger, 'dpstats ledger new FILE {budget.cap_options}{of_unit}', "
            "whose spendings come on top of those in this one"
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
        if neighbours.person != self.person:
            raise BudgetError(
                f"this ledger counts what is spent with person={self.person!r}, got "
                f"{neighbours.person!r}; amounts for rows and for persons, or for persons known by "
                f"different keys, cannot be added; plan with the ledger's, {start}"
            )
        if k != self.rows_per_person:
            raise BudgetError(
                f"this ledger counts what is spent with rows_per_person={self.rows_per_person}, "
                f"got {k}; amounts for different numbers of rows of one person cannot be added; "
                f"plan with the ledger's, {start}"
            )
        remaining = self.cap - spent
        if budget.total > remaining:
            asked = self._text(budget.total)
            raise BudgetError(
                f"the ledger's cap would be exceeded: requested {asked}, remaining "
                f"{self._text(remaining)}, difference {_show(budget.total - remaining)}; "
                "ask for a smaller budget"
            )


@contextmanager
def _opened(path: Path, mode: Literal["rb", "r+b"] = "rb") -> Iterator[BinaryIO]:
    """Existing file, locked, positioned at its start."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            raise FileFormatError(f"{path.name or str(path)} is not a ledger")
        file = path.open(mode)
    except FileNotFoundError:
        raise RequestError(
            f"there is no ledger {str(path)!r}; start one with "
            "'dpstats ledger new FILE --cap EPSILON' or dps.Ledger.create(path, dps.PureDP(2))"
        ) from None
    except OSError as error:
        raise RequestError(f"cannot open the ledger {str(path)!r}: {error.strerror}") from None
    with file, _locked(file):
        yield file


@contextmanager
def _locked(file: BinaryIO) -> Iterator[None]:
    """Lock against other processes and threads; exclusive if the file may be written."""
    if not _has_locks():
        yield
        return
    import fcntl

    # flock, not lockf: it belongs to the open file, so it keeps out threads as well.
    fcntl.flock(file, fcntl.LOCK_EX if file.writable() else fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _has_locks() -> bool:
    """Whether files can be locked; not on Windows."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _removed_on_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _append(file: BinaryIO, content: dict[str, object], previous: str) -> None:
    """Add a line, which is on disk when this returns; if it raises OSError, the file is as it was.

    Raises
    ------
    OSError
    FileFormatError
        If the file could not be restored either.
    """
    line = json.dumps({**content, "digest": files.digest([previous, content])}).encode("ascii")
    left = line + b"\n"
    handle = file.fileno()  # a buffer would be written once more when the file is closed
    length = os.lseek(handle, 0, os.SEEK_END)
    try:
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except BaseException:
        try:
            os.ftruncate(handle, length)
        except OSError as error:
            raise FileFormatError(
                f"cannot write the ledger {file.name!r}, nor remove a part of its last line: "
                f"{error.strerror}; nothing was released; restore the file from a copy"
            ) from None
        raise


@dataclass(frozen=True)
class _Read:
    """What a ledger file holds; `last` is the digest of its last line."""

    kind: str
    cap: Fraction
    neighbours: Neighbours
    delta: Fraction | None
    spendings: tuple[Spending, ...]
    last: str

    @property
    def spent(self) -> Fraction:
        return sum((spending.amount for spending in self.spendings), Fraction(0))


def _read(file: BinaryIO) -> _Read:
    if b'"dpstats_ledger"' not in file.readline(_FIRST_LINE):
        raise FileFormatError(
            f"{Path(file.name).name} is not a ledger; if it was one, restore it from a copy"
        )
    file.seek(0)
    header, *entries = (_entry(i, line) for i, line in enumerate(file.readlines() or [b""], 1))
    version = header.get("dpstats_ledger", _VERSION)
    if version != _VERSION:
        raise FileFormatError(
            f"the ledger has version {short(version)}; this dpstats reads {_VERSION}; start a new "
            "ledger, with what remains in this one as its cap"
        )
    kind = header.get("kind")
    more = {"delta"} if kind == ApproxDP.kind else set[str]()
    more |= header.keys() & {"rows_per_person", "person_key"}
    if header.keys() != {*_HEADER, *more, "digest"}:
        _damaged(1, "the header of a ledger is missing")
    cap, delta = parse_fraction(header["cap"]), parse_fraction(header.get("delta"))
    if not isinstance(kind, str) or kind not in KINDS:
        _damaged(1, f"unknown kind of budget; allowed: {', '.join(KINDS)}")
    if not cap:
        _damaged(1, "the cap must be a positive fraction such as '2'")
    if "delta" in more and not (delta and delta < 1):
        _damaged(1, "delta must be a fraction between 0 and 1")
    if not isinstance(header["unit"], str) or header["unit"] not in NEIGHBOURS:
        _damaged(1, f"unknown neighbour relation; allowed: {', '.join(NEIGHBOURS)}")
    try:
        neighbours = Neighbours.from_dict(header)
    except RequestError:
        _damaged(1, "rows_per_person must be a whole number from 1, and person_key text")
    last = _checked(1, header, "")
    spendings = []
    for number, entry in enumerate(entries, 2):
        spendings.append(_spending(number, entry))
        last = _checked(number, entry, last)
    return _Read(kind, cap, neighbours, delta, tuple(spendings), last)


def _spending(number: int, entry: dict[str, object]) -> Spending:
    amount = parse_fraction(entry.get("spent"))
    texts = [entry.get(name) for name in ("date", "plan", "data", "note")]
    known = [text for text in texts if isinstance(text, str)]
    if (
        entry.keys() != {*_SPENDING, "digest"}
        or not amount
        or len(known) < len(texts)
        or not _DAY.fullmatch(known[0])
    ):
        _damaged(number, "expected a positive fraction 'spent', a date, a digest and texts")
    return Spending(amount, *known)


def _checked(number: int, entry: dict[str, object], previous: str) -> str:
    """The digest of a line; refused unless it is that of its content and of the line before."""
    content = {key: value for key, value in entry.items() if key != "digest"}
    digest = files.digest([previous, content])
    if entry["digest"] != digest:
        _damaged(number, "it was changed, or a line before it was changed or removed")
    return digest


def _entry(number: int, line: bytes) -> dict[str, object]:
    if not line.endswith(b"\n"):  # every line is written whole, so the last one was cut
        _damaged(number, "the line is cut off")
    try:
        entry = files.parse_json(line)
    except ValueError:
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
    if value.numerator.bit_length() + value.denominator.bit_length() > _LONGEST:
        return f"{decimal:.6g}"
    return str(value) if value.denominator == 1 else f"{decimal:.6g} ({value})"
