"""Files of dpstats: zip archives of JSON and CSV, versioned, written atomically, nothing else."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpstats.errors import FileFormatError

VERSION = 2  # 2: one record for plans and measurements, one kind of block for moments
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # files carry no times


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write a whole file or nothing: to a temporary file beside it, then rename."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_archive(path: str | Path, members: Mapping[str, str]) -> None:
    """Write texts as one zip archive; equal contents give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            info = zipfile.ZipInfo(name, date_time=_FIXED_DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, text)
    write_atomically(path, buffer.getvalue())


def load_archive(path: str | Path, wanted: Iterable[str]) -> dict[str, str]:
    """Read the wanted members of a zip archive as text.

    Raises
    ------
    FileFormatError
        If the file is missing, is not a zip archive, or lacks a member.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = set(archive.namelist())
            for name in wanted:
                if name not in members:
                    raise FileFormatError(
                        f"{path.name} lacks {name}; open a release with dps.load and measurements "
                        "with dps.Measurements.load"
                    )
            return {name: archive.read(name).decode("utf-8") for name in wanted}
    except OSError as error:
        raise FileFormatError(f"cannot read {path.name}: {error.strerror}") from None
    except (
        zipfile.BadZipFile, zlib.error, KeyError, UnicodeDecodeError, EOFError,
        NotImplementedError, RuntimeError,
    ):  # fmt: skip
        raise FileFormatError(
            f"{path.name} is not an archive of a release or of measurements; open a plan with "
            "dps.Plan.load"
        ) from None


def to_json(document: Mapping[str, Any]) -> str:
    """JSON text, readable in an editor."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str, kind: str, name: str) -> dict[str, Any]:
    """Parse JSON text and check that it is the expected kind of file, in a known version."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        raise FileFormatError(f"{name} does not hold valid JSON") from None
    if not isinstance(document, dict) or document.get("dpstats") != kind:
        raise FileFormatError(f"{name} is not a dpstats {kind}")
    if document.get("version") != VERSION:
        raise FileFormatError(
            f"{name} has format version {document.get('version')!r}; this dpstats reads {VERSION}"
        )
    return document


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV text with a header; floats in their shortest exact form."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def from_csv(text: str, header: Sequence[str], name: str) -> list[list[str]]:
    """Rows of CSV text under the expected header."""
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or rows[0] != list(header):
        raise FileFormatError(f"{name} does not start with the columns {list(header)}")
    if any(len(row) != len(header) for row in rows[1:]):
        raise FileFormatError(f"{name} has a line with a wrong number of columns")
    return rows[1:]
