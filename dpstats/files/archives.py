"""Zip archives of texts with their digests: equal contents give equal bytes."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from dpstats.errors import FileFormatError
from dpstats.files.places import MOST_BYTES, as_path, check_kind, check_regular, shown
from dpstats.files.texts import digest_of_bytes, parse_json, to_json

_SMALL = 2**26  # an archive may expand to this, whatever its size
_MOST_EXPANSION = 500  # answers hold random digits, which do not compress
_DIGESTS = "digests.json"  # of the other members: they show a change, not who made it
MEASUREMENTS = ("measurements.json", "answers.csv")
RELEASE = ("release.json", *MEASUREMENTS, "candidates.csv", "rows.csv")
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # files carry no times


def pack(members: Mapping[str, str]) -> bytes:
    """Texts as one zip archive, with their digests; equal contents give equal bytes."""
    buffer = io.BytesIO()
    members = {name: text for name, text in members.items() if name != _DIGESTS}
    digests = {name: digest_of_bytes(text.encode()) for name, text in members.items()}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (*members.items(), (_DIGESTS, to_json(digests))):
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
    """The wanted members of a zip archive as text; `name` is the file's, for messages."""
    try:
        with zipfile.ZipFile(file) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            if sum(info.file_size for info in archive.infolist()) > MOST_BYTES:
                raise FileFormatError(f"{name} would expand to more than {MOST_BYTES} bytes")
            members = {
                member: _member(archive, infos.get(member), member, name) for member in wanted
            }
            if len(infos) < len(archive.infolist()):
                raise FileFormatError(f"{name} holds a member twice; restore it from a copy")
            _check_digests(archive, infos, name)
            return members
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
    digests = parse_json(_member(archive, infos.get(_DIGESTS), _DIGESTS, name))
    known = any({*kind, _DIGESTS} == set(infos) for kind in (MEASUREMENTS, RELEASE))
    if not known or not isinstance(digests, dict) or {*digests, _DIGESTS} != set(infos):
        raise FileFormatError(
            f"{name} does not hold the members that were written, and those alone; restore it from "
            "a copy"
        )
    for member, expected in digests.items():
        if digest_of_bytes(_member(archive, infos[member], member, name).encode()) != expected:
            raise FileFormatError(
                f"{member} in {name} was changed after it was written; restore it from a copy"
            )


def load_archive(path: str | Path, wanted: Iterable[str]) -> dict[str, str]:
    """Read the wanted members of a zip archive as text."""
    path = as_path(path)
    wanted = tuple(wanted)
    kinds = ["a release"] if "release.json" in wanted else ["measurements", "a release"]
    try:
        check_regular(path)
        check_kind(path, *kinds)
        with path.open("rb") as file:
            return unpack(file, wanted, path.name)
    except OSError as error:
        raise FileFormatError(f"cannot read {shown(path)}: {error.strerror}") from None
