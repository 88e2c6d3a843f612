"""Parquet files: one, those of a folder or of a pattern, and partitioned data sets.

One row group at a time is read in each thread, so that memory does not grow with the files. Columns
that a data set keeps in the names of its folders (``year=2026/``) have the same value in all rows
of a file; it is read as a cell of a text file is, which has no type either.
"""

from __future__ import annotations

import glob
import itertools
import operator
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dpstats.errors import DataError
from dpstats.files import shown
from dpstats.private import sources
from dpstats.private.sources import Part, Source, describe_failure, describe_unopened, without_rows

SUFFIXES = (".parquet", ".pq")
_TEXT = pa.large_binary()
_NULL = "__HIVE_DEFAULT_PARTITION__"  # what stands for a missing value in the name of a folder


def is_several(path: Path) -> bool:
    """True if a path is a folder or, where there is no such file, a pattern of names."""
    return path.is_dir() or (glob.has_magic(str(path)) and not os.path.lexists(path))


def parquet(path: Path) -> Source:
    """A Parquet file, all those in a folder and its folders, or those that fit a pattern.

    Names that begin with ``_`` or ``.`` are passed over, as other readers do. Messages name the
    given path and a file by its place: the name of a folder or file inside can hold a value.
    """
    files = _opened(path)
    first = files[0]
    other = [file.place for file in files if set(file.keys) != set(first.keys)]
    if other:
        raise DataError(
            f"the files of {shown(path)!r} lie in folders that name other columns: those of "
            f"{other[0]} are not those of the first"
        )
    twice = sorted(name for name in first.keys if any(name in file.names for file in files))
    if twice:
        raise DataError(f"the files of {shown(path)!r} and their folders both have columns {twice}")
    read = [0]  # rows, about: several threads count

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            read[0] += batch.num_rows

    def parts(names: Sequence[str]) -> Iterator[Part]:
        read[0] = 0
        for file in files:
            for group in range(file.metadata.num_row_groups):
                yield counted(file.read(group, list(names)))

    counts = reduce(operator.or_, (Counter(file.names) for file in files))  # 2 if twice in any file
    lacking = {name: file.place for file in files for name in counts.keys() - set(file.names)}
    fields = [name for name in counts.elements() if name not in lacking]
    rows = sum(file.metadata.num_rows for file in files)
    return Source(
        [*fields, *first.keys], parts, rows, lambda: read[0] / max(rows, 1), lacking=lacking
    )


def _opened(path: Path) -> list[_File]:
    named = _found(path)
    files: list[_File] = []
    for number, (name, keys) in enumerate(named, 1):
        place = repr(shown(path))
        if len(named) > 1:
            place = f"file {number} of {len(named)} of {place}, in the order of their names,"
        opened = partial(_File.opened, name, place, keys)
        files.append(without_rows(opened, partial(describe_unopened, place)))
    return files


def _found(path: Path) -> list[tuple[Path, dict[str, bytes | None]]]:
    """Files in the order of their names, with the values that the names of their folders give."""
    if path.is_file():
        return [(path, {})]
    root, inside = path, list(path.rglob("*"))
    if not path.is_dir():
        root = Path(*itertools.takewhile(lambda part: not glob.has_magic(part), path.parts))
        inside = [Path(name) for name in glob.iglob(str(path), recursive=True)]
    named, others = [], 0
    for file in sorted(inside):
        folders = file.relative_to(root).parts
        if any(name.startswith(("_", ".")) and "=" not in name for name in folders):
            continue
        if file.is_file() and file.suffix.lower() in SUFFIXES:
            named.append((file, _keys(folders[:-1])))
        elif file.is_file():
            others += 1
    if others and not named:
        raise DataError(
            f"none of the {others} files of {shown(path)!r} is a .parquet file; text files are "
            "read one at a time: give the path of one"
        )
    if others:
        raise DataError(
            f"{shown(path)!r} has {others} files that are not .parquet; give a pattern such as "
            "'folder/*.parquet' for those that are"
        )
    if not named:
        fits = "in" if path.is_dir() else "that fits"
        raise DataError(f"there is no .parquet file {fits} {shown(path)!r}")
    return named


def _keys(folders: Sequence[str]) -> dict[str, bytes | None]:
    """Values of columns in names of folders such as ``year=2026``."""
    pairs = (name.partition("=") for name in folders if "=" in name)
    return {
        unquote(name): None if value == _NULL else unquote(value).encode("utf-8", "surrogateescape")
        for name, _, value in pairs
    }


@dataclass(frozen=True)
class _File:
    """One file, its footer, and the values that are the same in all its rows."""

    path: Path
    place: str  # what messages call it
    keys: Mapping[str, bytes | None]
    names: Sequence[str]
    metadata: pq.FileMetaData
    free: list[pq.ParquetFile] = field(default_factory=list)  # one serves one thread at a time

    @classmethod
    def opened(cls, path: Path, place: str, keys: Mapping[str, bytes | None]) -> _File:
        with pa.OSFile(os.fsencode(path)) as raw:  # of any name
            reader = pq.ParquetFile(raw)
        return cls(path, place, keys, reader.schema_arrow.names, reader.metadata)

    def read(self, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of a row group; an error says which file it is, and nothing of rows."""
        failure = ""
        try:
            yield from self._batches(group, names)
        except DataError:
            raise
        except Exception as error:
            failure = describe_failure(error)
        if failure:
            raise DataError(f"{failure} in {self.place}")

    def _batches(self, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        reader = self.free.pop() if self.free else self._reader()
        left = self.metadata.row_group(group).num_rows
        stored = [name for name in names if name not in self.keys]
        for batch in reader.iter_batches(
            sources.BATCH_ROWS, row_groups=[group], columns=stored, use_threads=False
        ):
            left -= batch.num_rows
            yield self._with_keys(batch, names)
        if left:  # the reader stops without an error where the pages of a column end early
            raise DataError(
                f"{self.place} has a row group of another number of rows than the file states; it "
                "is damaged: write it again from its source; nothing was released or spent"
            )
        self.free.append(reader)
        if group == self.metadata.num_row_groups - 1:
            self.free.clear()  # so that few of many files are open

    def _reader(self) -> pq.ParquetFile:
        reader = pq.ParquetFile(pa.OSFile(os.fsencode(self.path)))
        if not reader.metadata.equals(self.metadata):
            raise DataError(
                f"{self.place} has changed since it was opened; nothing was released or spent"
            )
        return reader

    def _with_keys(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        if not self.keys:
            return batch
        arrays = [
            pa.repeat(pa.scalar(self.keys[name], _TEXT), batch.num_rows)
            if name in self.keys
            else batch.column(name)
            for name in names
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(names))
