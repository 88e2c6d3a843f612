"""Where files are written and read, whole or not at all, and what a file is.

No record of spending is replaced. The kind of a file shows by its name and by marks that programs
write: no cell of a table is looked at.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from uuid import uuid4

from dpstats.errors import FileFormatError, RequestError

_START = 2**12  # bytes that hold the marks of a text file
_LARGEST = 2**24  # bytes of a .toml file that is read to see what it declares
_OPENED_BY = {
    "a release": "open it with dps.load ('dpstats show' or 'dpstats infer')",
    "measurements": "open them with dps.Measurements.load ('dpstats show'), and make a release of "
    "them with dps.synthesize ('dpstats synthesize')",
    "a plan": "open it with dps.Plan.load ('dpstats show'), and make a release under it with "
    "dps.release ('dpstats release')",
    "a ledger": "open it with dps.Ledger.open ('dpstats ledger show')",
    "a request": "make its plan with 'dpstats plan'",
    "a schema": "open it with dps.Schema.load (on the command line: name it in a request, as in "
    'schema = "FILE")',
    "guesses": "open them with dps.Guesses.load (on the command line: give them to "
    "'dpstats preview' with --like)",
    "a table": "make a plan, and pass both to dps.check or dps.release ('dpstats check' or "
    "'dpstats release')",
    "a workbook": "save its table as CSV",
    "a page": "open it with a browser",
}
_NAMED = re.compile(  # what has a name of its own
    r"\.(?:(?P<table>[ct]sv(?:\.gz)?|parquet)|(?P<workbook>xlsx?|ods)|(?P<page>html?))$",
    re.IGNORECASE,
)
_DECLARED = {"analysis": "a request", "column": "a schema", "guesses": "guesses"}
MOST_BYTES = 2**31  # of a file, or of a member of an archive when expanded
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # longer than the letter of a drive
_FIRST_LINE = 2**12  # bytes of a line that may be the header of a ledger
_MEASUREMENTS = "an archive of measurements, which a budget has paid for, without their release"


def mistaken(path: Path, *wanted: str) -> str:
    """Say what a file is instead: "x.csv is a table, not a release; make a plan, ...".

    "" for a file that is one of the wanted kinds, or that is not recognised.
    """
    kind = kind_of_file(path)
    if not kind or kind in wanted:
        return ""
    verb = "holds" if kind in ("measurements", "guesses") else "is"
    return f"{path.name} {verb} {kind}, not {wanted[0]}; {_OPENED_BY[kind]}"


def kind_of_file(path: Path) -> str:
    """The kind of a file; "" if it is not recognised, or cannot be read."""
    try:
        if not path.is_file():  # a pipe, perhaps, which would be waited for
            return ""
        with path.open("rb") as file:
            start = file.read(_START)
            if start.startswith(b"PK"):
                return _of_archive(zipfile.ZipFile(file).namelist())
        if b'"dpstats_ledger"' in start.partition(b"\n")[0]:
            return "a ledger"
        if start.startswith(b"PAR1"):
            return "a table"
        if named := _NAMED.search(path.name):
            return f"a {named.lastgroup}"
        if path.suffix.lower() == ".toml" and path.stat().st_size <= _LARGEST:
            declared = tomllib.loads(path.read_text("utf-8-sig"))
            return next((kind for key, kind in _DECLARED.items() if key in declared), "")
        if start.lstrip().startswith(b"{") and b'"dpstats"' in start:
            return "a plan" if json.loads(path.read_bytes()).get("dpstats") == "plan" else ""
    except Exception:  # damaged: whoever reads it says so
        return ""
    return ""


def _of_archive(members: list[str]) -> str:
    if "release.json" in members:
        return "a release"
    if "measurements.json" in members and "rows.csv" not in members:  # else it is damaged
        return "measurements"
    return "a workbook" if any(name.startswith("xl/") for name in members) else ""


def as_path(path: object) -> Path:
    """Return a path given as text or as a Path; a first ``~`` is the home folder."""
    if not isinstance(path, str | Path):
        raise RequestError(f"a path must be text or a pathlib.Path, got {type(path).__name__}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise RequestError(f"the path {str(path)!r} is no text that a file name can hold") from None
    if "\0" in str(path) or not str(path):
        raise RequestError(f"the path {str(path)!r} cannot name a file")
    if scheme := _SCHEME.match(str(path)):
        raise RequestError(
            f"URLs ({scheme[1]}://...) are not read or written: open a table with DuckDB, Ibis or "
            "Arrow and pass that, or name a file of this computer"
        )
    return Path(os.path.expanduser(path))


def check_place(path: str | Path, *, overwrite: bool = False) -> Path:
    """Return the path of a file that may be written."""
    path = as_path(path)
    try:
        path.lstat()
    except FileNotFoundError:
        return path
    except OSError as error:
        raise RequestError(f"cannot write {shown(path)!r}: {error.strerror}") from None
    if path.exists() and not path.is_file():
        raise RequestError(f"cannot write {shown(path)!r}: it is not a file; name a file")
    if (kind := _kept_for_ever(path)) is not None:
        raise RequestError(f"{shown(path)!r} is {kind}, and is never replaced; name another output")
    if not overwrite:
        raise RequestError(
            f"{shown(path)!r} exists and is kept; name another file, or replace it with "
            "overwrite=True"
        )
    return path


def _kept_for_ever(path: Path) -> str | None:
    """Name an existing file that holds what cannot be made again; else None."""
    if not path.is_file():  # a link to nothing
        return None
    try:
        with path.open("rb") as file:
            if b'"dpstats_ledger"' in file.readline(_FIRST_LINE):
                return "a ledger, the record of what was spent on a data set"
            with zipfile.ZipFile(file) as archive:
                names = archive.namelist()
    except OSError as error:
        raise RequestError(f"cannot see what {shown(path)!r} is: {error.strerror}") from None
    except Exception:  # zipfile raises errors of many kinds on what is no archive
        return None
    if "measurements.json" in names and "release.json" not in names:
        return _MEASUREMENTS
    return None


def holds_measurements(path: Path) -> bool:
    """True if a file is an archive of measurements without their release."""
    return _kept_for_ever(path) == _MEASUREMENTS


@contextmanager
def reserved(
    path: str | Path, *, overwrite: bool = False, size: int = 0
) -> Iterator[Callable[[bytes], None]]:
    """Open the place of a file before the work whose result it will hold.

    Gives a function that writes the whole file, or nothing, by a temporary file beside it, which is
    filled with `size` zeros first so that a full disk is seen now.
    """
    path = check_place(path, overwrite=overwrite)
    with _temporary(path) as (file, temporary):

        def write(data: bytes) -> None:
            with _writing(path):
                _fill(file, data)
                file.close()
                _put(temporary, path, overwrite=overwrite)

        with _writing(path):
            _fill(file, bytes(size))
        yield write


@contextmanager
def written_in_parts(path: str | Path, *, overwrite: bool = False) -> Iterator[FileIO]:
    """An open file that gets its name once all of it is written, or not at all."""
    path = check_place(path, overwrite=overwrite)
    with _temporary(path) as (file, temporary), _writing(path):
        yield file
        os.fsync(file.fileno())
        file.close()
        _put(temporary, path, overwrite=overwrite)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[FileIO, Path]]:
    """An open file beside the one that it may become, removed at the end if it has not."""
    temporary = path.parent / f".dpstats.{uuid4().hex}"
    try:
        # With the permissions that a new file gets; a buffer would be written again at the end.
        opened = temporary.open("xb", buffering=0)
    except OSError as error:
        raise RequestError(
            f"cannot write to the folder {str(path.parent)!r}: {error.strerror}"
        ) from None
    try:
        with opened as file:
            yield file, temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise RequestError(f"cannot write {shown(path)!r}: {why}") from None


def _fill(file: FileIO, data: bytes) -> None:
    """Make some bytes the whole content of an open file, on disk."""
    left = memoryview(data)
    file.seek(0)
    while left:
        left = left[file.write(left) :]
    file.truncate()
    os.fsync(file.fileno())


def _put(temporary: Path, path: Path, *, overwrite: bool) -> None:
    """Give a file its name, which may have come into being since it was checked."""
    if not overwrite:
        try:
            os.link(temporary, path)  # unlike os.replace, it never replaces what is there
            return
        except OSError:  # such as a file system without links
            if os.path.lexists(path):
                raise RequestError(
                    f"{shown(path)!r} has come into being in the meantime and is kept; name "
                    "another file"
                ) from None
    check_place(path, overwrite=overwrite)
    os.replace(temporary, path)


def write_atomically(path: str | Path, data: bytes, *, overwrite: bool = False) -> None:
    """Write a whole file or nothing; a file that holds the same already is left."""
    path = as_path(path)
    if overwrite and path.is_file() and read_bytes(path, len(data) + 1) == data:
        return
    with reserved(path, overwrite=overwrite) as write:
        write(data)


def read_bytes(path: str | Path, most: int | None = None) -> bytes:
    """Content of a regular file of a bounded size, or only its first bytes."""
    path = as_path(path)
    try:
        check_regular(path)
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1 if most is None else most)
    except OSError as error:
        raise FileFormatError(f"cannot read {shown(path)}: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise FileFormatError(f"{shown(path)} is larger than {MOST_BYTES} bytes")
    return data


def check_kind(path: Path, *wanted: str) -> None:
    """Refuse a file that is recognised as another kind than those that are wanted."""
    if other := mistaken(path, *wanted):
        raise FileFormatError(other)


def check_regular(path: Path) -> None:
    """Refuse folders and devices, which could be endless; OSError if there is no such file."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise FileFormatError(f"cannot read {shown(path)}: it is not a file but {kind_of(path)}")


def kind_of(path: Path) -> str:
    """Name the kind of what is at a path that is no regular file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return "a link to nothing"
    kinds = {"a folder": stat.S_ISDIR, "a pipe": stat.S_ISFIFO, "a socket": stat.S_ISSOCK}
    return next((kind for kind, is_one in kinds.items() if is_one(mode)), "a device")


def shown(path: Path) -> str:
    """A path in a message: the file's name, without its folder."""
    return path.name or str(path)
