"""The file of a ledger: JSON lines, locked, appended and on disk, each with a digest.

A header, then one line for each spending. The digest of a line is of itself and of the line before
it, so that a line that is changed, or removed from the middle, is noticed. Lines removed from the
end are not: keep a copy elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Literal, NoReturn

from dpstats import files
from dpstats.checks import short
from dpstats.errors import FileFormatError, RequestError
from dpstats.privacy.budget import KINDS, ApproxDP
from dpstats.privacy.neighbours import NEIGHBOURS, Neighbours
from dpstats.privacy.rationals import parse_fraction

VERSION = 2  # 2: a date, the plan's digest and the table's name; lines are chained
SPENDING = {"spent", "date", "plan", "data", "note"}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HEADER = {"dpstats_ledger", "kind", "cap", "unit"}
_FIRST_LINE = 2**20  # bytes in which the first line must end
_MOST_BYTES = 2**26  # some hundred thousand spendings


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


@contextmanager
def opened(path: Path, mode: Literal["rb", "r+b"] = "rb") -> Iterator[BinaryIO]:
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
    with file, locked(file):
        yield file


@contextmanager
def locked(file: BinaryIO) -> Iterator[None]:
    """Lock against other processes and threads; exclusive if the file may be written."""
    if not has_locks():
        yield
        return
    import fcntl

    # flock, not lockf: it belongs to the open file, so it keeps out threads as well.
    fcntl.flock(file, fcntl.LOCK_EX if file.writable() else fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def has_locks() -> bool:
    """True if files can be locked, which Python cannot do on Windows."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    return True


def create(path: Path, header: dict[str, object]) -> None:
    """Write the first line of a new file; nothing is left of it if that fails.

    Raises
    ------
    OSError
        FileExistsError among them: no file is overwritten.
    """
    with path.open("xb") as file, locked(file):
        try:
            append(file, header, "")
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def append(file: BinaryIO, content: dict[str, object], previous: str) -> None:
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
class Contents:
    """Contents of a ledger file; `last` is the digest of its last line."""

    kind: str
    cap: Fraction
    neighbours: Neighbours
    delta: Fraction | None
    spendings: tuple[Spending, ...]
    last: str

    @property
    def spent(self) -> Fraction:
        """Sum of all spendings."""
        return sum((spending.amount for spending in self.spendings), Fraction(0))


def read(file: BinaryIO) -> Contents:
    """All lines, checked one by one.

    Raises
    ------
    FileFormatError
        If it is not a ledger or a line is damaged; the message gives the line.
    """
    if b'"dpstats_ledger"' not in file.readline(_FIRST_LINE):
        raise FileFormatError(
            f"{Path(file.name).name} is not a ledger; if it was one, restore it from a copy"
        )
    file.seek(0)
    header, *entries = (_entry(i, line) for i, line in enumerate(file.readlines() or [b""], 1))
    version = header.get("dpstats_ledger", VERSION)
    if version != VERSION:
        raise FileFormatError(
            f"the ledger has version {short(version)}; this dpstats reads {VERSION}; start a new "
            "ledger, with what remains in this one as its cap"
        )
    kind = header.get("kind")
    more = {"delta"} if kind == ApproxDP.kind else set[str]()
    more |= header.keys() & {"rows_per_person", "person_key"}
    if header.keys() != {*_HEADER, *more, "digest"}:
        damaged(1, "the header of a ledger is missing")
    cap, delta = parse_fraction(header["cap"]), parse_fraction(header.get("delta"))
    if not isinstance(kind, str) or kind not in KINDS:
        damaged(1, f"unknown kind of budget; allowed: {', '.join(KINDS)}")
    if not cap:
        damaged(1, "the cap must be a positive fraction such as '2'")
    if "delta" in more and not (delta and delta < 1):
        damaged(1, "delta must be a fraction between 0 and 1")
    if not isinstance(header["unit"], str) or header["unit"] not in NEIGHBOURS:
        damaged(1, f"unknown neighbour relation; allowed: {', '.join(NEIGHBOURS)}")
    try:
        neighbours = Neighbours.from_dict(header)
    except RequestError:
        damaged(1, "rows_per_person must be a whole number from 1, and person_key text")
    last = _checked(1, header, "")
    spendings = []
    for number, entry in enumerate(entries, 2):
        spendings.append(_spending(number, entry))
        last = _checked(number, entry, last)
    return Contents(kind, cap, neighbours, delta, tuple(spendings), last)


def _spending(number: int, entry: dict[str, object]) -> Spending:
    amount = parse_fraction(entry.get("spent"))
    texts = [entry.get(name) for name in ("date", "plan", "data", "note")]
    known = [text for text in texts if isinstance(text, str)]
    if (
        entry.keys() != {*SPENDING, "digest"}
        or not amount
        or len(known) < len(texts)
        or not _DAY.fullmatch(known[0])
    ):
        damaged(number, "expected a positive fraction 'spent', a date, a digest and texts")
    return Spending(amount, *known)


def _checked(number: int, entry: dict[str, object], previous: str) -> str:
    """The digest of a line; refused unless it is that of its content and of the line before."""
    content = {key: value for key, value in entry.items() if key != "digest"}
    digest = files.digest([previous, content])
    if entry["digest"] != digest:
        damaged(number, "it was changed, or a line before it was changed or removed")
    return digest


def _entry(number: int, line: bytes) -> dict[str, object]:
    if not line.endswith(b"\n"):  # every line is written whole, so the last one was cut
        damaged(number, "the line is cut off")
    try:
        entry = files.parse_json(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        damaged(number, "the line is not a JSON object")
    return entry


def damaged(number: int, reason: str) -> NoReturn:
    """Refuse a ledger for its line of that number, from 1."""
    raise FileFormatError(
        f"the ledger is damaged in line {number}: {reason}; restore the file from a copy"
    )
