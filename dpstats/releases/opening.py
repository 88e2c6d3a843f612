"""Open any file of dpstats, and say which kind it is."""

from __future__ import annotations

from pathlib import Path

from dpstats import files
from dpstats.errors import FileFormatError
from dpstats.measured.measurements import Measurements
from dpstats.planning.plan import Plan
from dpstats.planning.requests import load_request
from dpstats.privacy.ledger import Ledger
from dpstats.releases.release import Release, load

_START = 2**12  # bytes that show what a text file is


def open_file(path: Path) -> Release | Measurements | Plan | Ledger:
    """The object that a file holds; a request gives its plan."""
    start = files.read_bytes(path, most=_START)
    if start.startswith(b"PK"):
        measured = files.kind_of_file(path) == "measurements"
        return Measurements.load(path) if measured else load(path)
    if b'"dpstats_ledger"' in start:
        return Ledger.open(path)
    if start.lstrip().startswith(b"{"):
        return Plan.load(path)
    if path.suffix.lower() == ".toml":
        return load_request(path)
    raise not_wanted(path, "a file of dpstats")


def not_wanted(path: Path, *wanted: str) -> FileFormatError:
    """The error for a file of another kind than those wanted, or of none of dpstats."""
    return FileFormatError(
        files.mistaken(path, *wanted)
        or f"{path.name} is not a file of dpstats: neither a release, measurements, a plan, a "
        "ledger nor a request"
    )


def open_release(path: Path) -> Release:
    """The release that a file holds."""
    files.check_kind(path, "a release")
    opened = open_file(path)
    if not isinstance(opened, Release):
        raise not_wanted(path, "a release")
    return opened
