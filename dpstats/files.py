"""Files of dpstats: zip archives of JSON and CSV, versioned, written atomically, nothing else."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from dpstats.errors import DpstatsError, FileFormatError, RequestError
from dpstats.mistaken_files import mistaken

VERSION = 3  # 3: a digest of the plan; answers carry the names of their functions
MOST_BYTES = 2**31  # of a file, or of a member of an archive when expanded
_SMALL = 2**26  # an archive may expand to this, whatever its size
_MOST_EXPANSION = 500  # answers hold random digits, which do not compress
_DIGITS = 16  # of a digest that is printed: by 64 bits no two plans look the same
DIGESTS = "digests.json"  # of the other members of an archive: they show a change, not who made it
_LONGEST_KEY = 100  # characters of a key that a message shows
_FIRST_LINE = 2**12  # bytes of a line that may be the header of a ledger
_MEASUREMENTS = "an archive of measurements, which a budget has paid for, without their release"
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # files carry no times


def as_path(path: object) -> Path:
    """Return a path given as text or as a Path.

    Raises
    ------
    RequestError
        For anything else, such as bytes, None or a table; its content is not quoted.
    """
    if not isinstance(path, str | Path):
        raise RequestError(f"a path must be text or a pathlib.Path, got {type(path).__name__}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise RequestError(f"the path {str(path)!r} is no text that a file name can hold") from None
    if "\0" in str(path) or not str(path):
        raise RequestError(f"the path {str(path)!r} cannot name a file")
    return Path(path)


def check_place(path: str | Path, *, overwrite: bool = False) -> Path:
    """Return the path of a file that may be written.

    Raises
    ------
    RequestError
        If it names anything but a file, a file that exists without `overwrite`, or a record of
        what was spent, which nothing replaces: a ledger, or measurements without a release.
    """
    path = as_path(path)
    try:
        path.lstat()
    except FileNotFoundError:
        return path
    except OSError as error:
        raise RequestError(f"cannot write {_shown(path)!r}: {error.strerror}") from None
    if path.exists() and not path.is_file():
        raise RequestError(f"cannot write {_shown(path)!r}: it is not a file; name a file")
    if (kind := _kept_for_ever(path)) is not None:
        raise RequestError(
            f"{_shown(path)!r} is {kind}, and is never replaced; name another output"
        )
    if not overwrite:
        raise RequestError(
            f"{_shown(path)!r} exists and is kept; name another file, or replace it with "
            "overwrite=True (--force on the command line)"
        )
    return path


def _kept_for_ever(path: Path) -> str | None:
    """What an existing file is, if it holds what cannot be made again; else None."""
    if not path.is_file():  # a link to nothing
        return None
    try:
        with path.open("rb") as file:
            if b'"dpstats_ledger"' in file.readline(_FIRST_LINE):
                return "a ledger, the record of what was spent on a data set"
            with zipfile.ZipFile(file) as archive:
                names = archive.namelist()
    except OSError as error:
        raise RequestError(f"cannot see what {_shown(path)!r} is: {error.strerror}") from None
    except Exception:  # zipfile raises errors of many kinds on what is no archive
        return None
    if "measurements.json" in names and "release.json" not in names:
        return _MEASUREMENTS
    return None


def holds_measurements(path: Path) -> bool:
    """Whether a file is an archive of measurements without their release."""
    return _kept_for_ever(path) == _MEASUREMENTS


@contextmanager
def reserved(
    path: str | Path, *, overwrite: bool = False, size: int = 0
) -> Iterator[Callable[[bytes], None]]:
    """Open the place of a file before the work whose result it will hold.

    Gives a function that writes the whole file, or nothing: to a temporary file beside it, which
    is open from the start, then renames it. The temporary file is filled with `size` zeros first,
    so that a full disk is seen now.

    Raises
    ------
    RequestError
        If the file cannot be written.
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
    """An open file that gets its name when all of it is written; without an error, or not at all.

    Raises
    ------
    RequestError
        If the file cannot be written.
    """
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
        raise RequestError(f"cannot write {_shown(path)!r}: {why}") from None


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
                    f"{_shown(path)!r} has come into being in the meantime and is kept; name "
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
    """Content of a regular file of a bounded size, or only its first bytes.

    Raises
    ------
    FileFormatError
        If it cannot be read.
    """
    path = as_path(path)
    try:
        _check_regular(path)
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1 if most is None else most)
    except OSError as error:
        raise FileFormatError(f"cannot read {_shown(path)}: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise FileFormatError(f"{_shown(path)} is larger than {MOST_BYTES} bytes")
    return data


def pack(members: Mapping[str, str]) -> bytes:
    """Texts as one zip archive, with their digests; equal contents give equal bytes."""
    buffer = io.BytesIO()
    members = {name: text for name, text in members.items() if name != DIGESTS}
    digests = {name: digest_of_bytes(text.encode()) for name, text in members.items()}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (*members.items(), (DIGESTS, to_json(digests))):
            info = zipfile.ZipInfo(name, date_time=_FIXED_DATE)
            info.compress_type = _compression(text)
            archive.writestr(info, text)
    return buffer.getvalue()


def _compression(text: str) -> int:
    """Deflated, unless `_member` would take the result for one made to fill a disk."""
    start = text[: 2**20].encode() if len(text) > 2**24 else b""
    same = start and len(zlib.compress(start)) * _MOST_EXPANSION < 2 * len(start)
    return zipfile.ZIP_STORED if same else zipfile.ZIP_DEFLATED


def unpack(file: BinaryIO, wanted: Iterable[str], name: str) -> dict[str, str]:
    """The wanted members of a zip archive as text; `name` is the file's, for messages.

    Raises
    ------
    FileFormatError
        If it is not a zip archive that `pack` could have written, or lacks a member.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            found = {member: _member(archive, infos.get(member), member, name) for member in wanted}
            _check_digests(archive, infos, name)
            return found
    except FileFormatError:
        raise
    except Exception:  # zipfile raises errors of many kinds on damaged archives
        raise FileFormatError(
            f"{name} is not an archive of a release or of measurements, or it is damaged"
        ) from None


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo | None, member: str, name: str) -> str:
    if info is None:
        raise FileFormatError(f"{name} lacks {member}; restore it from a copy")
    if info.flag_bits & 1:
        raise FileFormatError(f"{name} is encrypted; dpstats writes and reads plain archives")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FileFormatError(
            f"{name} is compressed in a way that dpstats does not write; pack it again as an "
            "ordinary zip archive (deflate)"
        )
    size, packed = info.file_size, max(info.compress_size, 1)
    if size > MOST_BYTES or (size > _SMALL and size > _MOST_EXPANSION * packed):
        raise FileFormatError(
            f"{member} in {name} would expand from {packed} to {size} bytes, which no file of "
            "dpstats does; it was not read"
        )
    return archive.read(info).decode("utf-8")  # never more than the stated size


def _check_digests(
    archive: zipfile.ZipFile, infos: Mapping[str, zipfile.ZipInfo], name: str
) -> None:
    """Refuse an archive in which a member was changed, added or removed after it was written."""
    digests = parse_json(_member(archive, infos.get(DIGESTS), DIGESTS, name))
    if not isinstance(digests, dict) or {*digests, DIGESTS} != set(infos):
        raise FileFormatError(
            f"{name} does not hold the members that were written; restore it from a copy"
        )
    for member, expected in digests.items():
        if digest_of_bytes(_member(archive, infos[member], member, name).encode()) != expected:
            raise FileFormatError(
                f"{member} in {name} was changed after it was written; restore it from a copy"
            )


def save_archive(path: str | Path, members: Mapping[str, str], *, overwrite: bool = False) -> None:
    """Write texts as one zip archive."""
    with reserved(path, overwrite=overwrite) as write:
        write(pack(members))


def load_archive(path: str | Path, wanted: Iterable[str]) -> dict[str, str]:
    """Read the wanted members of a zip archive as text.

    Raises
    ------
    FileFormatError
        If the file is missing, is not a zip archive, or lacks a member.
    """
    path = as_path(path)
    wanted = tuple(wanted)
    kinds = ["a release"] if "release.json" in wanted else ["measurements", "a release"]
    try:
        _check_regular(path)
        check_kind(path, *kinds)
        with path.open("rb") as file:
            return unpack(file, wanted, path.name)
    except OSError as error:
        raise FileFormatError(f"cannot read {_shown(path)}: {error.strerror}") from None


def check_kind(path: Path, *wanted: str) -> None:
    """Refuse a file that is recognised as another kind than those that are wanted.

    Raises
    ------
    FileFormatError
    """
    if other := mistaken(path, *wanted):
        raise FileFormatError(other)


def to_json(document: Mapping[str, Any]) -> str:
    """JSON text, readable in an editor."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_document(document: Mapping[str, Any]) -> str:
    """Plain data as JSON that other programs read and people too."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def parse_json(text: str | bytes) -> Any:
    """Value of a JSON text.

    Raises
    ------
    ValueError
        If it is not JSON that `to_json` could have written: numbers that are infinite or of
        thousands of digits, a key that occurs twice, half a surrogate pair, or deep nesting.
    """
    try:
        value = json.loads(text, object_pairs_hook=_distinct_keys)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def from_json(text: str | bytes, kind: str, name: str) -> dict[str, Any]:
    """Parse JSON text and check that it is the expected kind of file, in a known version."""
    try:
        document = parse_json(text)
    except ValueError:
        raise FileFormatError(f"{name} does not hold valid JSON") from None
    if not isinstance(document, dict) or document.get("dpstats") != kind:
        raise FileFormatError(f"{name} is not a dpstats {kind}")
    if document.get("version") != VERSION:
        raise FileFormatError(
            f"{name} has format version {document.get('version')!r}; this dpstats reads {VERSION}"
        )
    return document


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Errors of dpstats begin with the name of the file that they are about."""
    try:
        yield
    except DpstatsError as error:
        raise type(error)(f"{path.name}: {error}") from None


@contextmanager
def reading(what: str, passed: type[DpstatsError] = FileFormatError) -> Iterator[None]:
    """Turn whatever goes wrong while the content of a file is read into FileFormatError.

    Errors of the class `passed` are raised as they are.
    """
    try:
        yield
    except Exception as error:  # any value may be anywhere in a file
        if isinstance(error, FileFormatError | passed):
            raise
        lacking = "it lacks " if isinstance(error, KeyError) else ""
        raise FileFormatError(f"{what} cannot be read: {lacking}{error}") from None


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a reader of the file might see either of two equal keys."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key occurs twice")
    return made


def digest(value: object) -> str:
    """SHA-256 of a JSON value, as 64 hexadecimal digits; the order of keys counts."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return digest_of_bytes(text.encode("ascii"))


def digest_of_bytes(data: bytes) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def short_digest(digest: str) -> str:
    """The first digits of a digest, as plans, ledgers and releases print it."""
    return digest[:_DIGITS]


def difference(given: object, made: object) -> str | None:
    """Where two JSON values first differ, such as ``blocks[0].cells``; None if they are equal."""
    parts: Iterable[tuple[str, object, object]]
    if isinstance(given, dict) and isinstance(made, dict):
        keys = dict.fromkeys([*given, *made])
        parts = (
            (f".{str(key)[:_LONGEST_KEY]}", given.get(key, _ABSENT), made.get(key, _ABSENT))
            for key in keys
        )
    elif isinstance(given, list) and isinstance(made, list) and len(given) == len(made):
        parts = ((f"[{i}]", *both) for i, both in enumerate(zip(given, made, strict=True)))
    else:
        return None if type(given) is type(made) and given == made else ""
    for name, one, other in parts:
        inner = difference(one, other)
        if inner is not None:
            return name + inner
    return None


_ABSENT = object()


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV text with a header; floats in their shortest exact form."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def csv_line(row: Sequence[Any]) -> str:
    """One line of CSV text, as `to_csv` writes it."""
    return to_csv(row, [])


def from_csv(text: str, header: Sequence[str], name: str) -> list[list[str]]:
    """Rows of CSV text under the expected header."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error:  # such as a cell of more than 131,072 characters
        raise FileFormatError(f"{name} does not hold a table that dpstats wrote") from None
    if not rows or rows[0] != list(header):
        raise FileFormatError(f"{name} does not start with the columns {list(header)}")
    if any(len(row) != len(header) for row in rows[1:]):
        raise FileFormatError(f"{name} has a line with a wrong number of columns")
    return rows[1:]


def _check_regular(path: Path) -> None:
    """Refuse folders and devices, which could be endless; OSError if there is no such file."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise FileFormatError(f"cannot read {_shown(path)}: it is not a file but {kind_of(path)}")


def kind_of(path: Path) -> str:
    """What is at a path that is no regular file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return "a link to nothing"
    kinds = {"a folder": stat.S_ISDIR, "a pipe": stat.S_ISFIFO, "a socket": stat.S_ISSOCK}
    return next((kind for kind, is_one in kinds.items() if is_one(mode)), "a device")


def _shown(path: Path) -> str:
    return path.name or str(path)
