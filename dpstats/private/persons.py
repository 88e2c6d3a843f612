"""At most k rows of one person: the first in the table's order, by a column of keys.

Which rows of a person are used follows from that person's rows alone, so what one person adds,
removes or changes never decides which rows of others are used. A random choice from a stream that
persons share would. A row without a key is not used: it could be anyone's, and to count it would
give a person more rows than k. Keys reach no output, message or file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.families.persons.products import PersonProducts
from dpstats.measured.strategy import MOST_ROWS
from dpstats.private.keys import codes_of_keys
from dpstats.private.sources import Part, Source, one_by_one
from dpstats.schema import Schema
from dpstats.schema.arrow import unwrapped

_FIRST = 2**10  # persons with room for their totals


class PersonTotals:
    """The totals of each person, added up while rows are read in their order.

    Parameters
    ----------
    schema : Schema
    blocks : sequence of PersonProducts
    """

    def __init__(self, schema: Schema, blocks: Sequence[PersonProducts]) -> None:
        used = {column.name for block in blocks for column in block.columns}
        self._repairs = schema.repairs(used) if blocks else None
        self._blocks = blocks
        self._rows, self._number = 0, dict[bytes, int]()
        self._totals = [np.zeros((len(b.totals), _FIRST), dtype=np.int64) for b in blocks]

    @property
    def asked(self) -> bool:
        """Whether there are totals to add up."""
        return bool(self._blocks)

    def add(self, rows: pa.RecordBatch, codes: Codes, distinct: Sequence[bytes]) -> None:
        """Add rows (n,) of persons, given by number among distinct keys."""
        if self._repairs is None or not rows.num_rows:
            return
        self._rows += rows.num_rows
        if self._rows > MOST_ROWS:
            raise DataError(
                f"products of the totals of persons are exact up to {MOST_ROWS} rows, and the "
                "table has more; leave out person_totals"
            )
        numbers = self._number
        places = np.array([numbers.setdefault(key, len(numbers)) for key in distinct], np.int64)
        values, at = self._repairs.encode(rows), places[codes]
        for i, block in enumerate(self._blocks):
            held = self._totals[i].shape[1]
            if len(numbers) > held:
                grown = max(len(numbers) - held, held)
                self._totals[i] = np.pad(self._totals[i], ((0, 0), (0, grown)))
            for total, added in zip(self._totals[i], block.of_rows(values), strict=True):
                np.add.at(total, at, added)

    def taken(self) -> list[Codes]:
        """Sums over persons (d,) int64 of each block; nothing of the rows is kept."""
        found: list[Codes] = []
        stopped = None
        try:
            pairs = zip(self._blocks, self._totals, strict=True)
            found = [block.of_totals(totals) for block, totals in pairs]
        except BaseException as error:  # its frames hold the totals of persons
            stopped = error.with_traceback(None)
            stopped.__cause__ = stopped.__context__ = None
        self.clear()
        if stopped is not None:
            raise stopped
        return found

    def clear(self) -> None:
        """Forget all totals: the frames of a traceback may hold this object."""
        self._totals, self._number = [], {}

    def __enter__(self) -> PersonTotals:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.clear()


def of_persons(
    source: Source,
    person: str,
    most: int,
    totals: PersonTotals | None = None,
    keyless: list[int] | None = None,
) -> Source:
    """The same table with the first `most` rows of each person.

    It is read in its order, whatever the number of threads, unless its engine does this by itself.
    In memory is a number for each key, and its totals.

    Parameters
    ----------
    source : Source
    person : str
        The column of keys; see `key_of`.
    most : int
        Positive.
    totals : PersonTotals, optional
        To which all rows are added that are used.
    keyless : list of int, optional
        Gets the number of rows without a key of each batch, unless an engine chooses the rows. It
        is private: for the custodian's screen only.
    """
    if source.limited is not None:
        if totals is not None and totals.asked:
            raise DataError(
                "totals of persons need all rows of the table in their order, which this engine "
                "adds up apart: write them to Parquet files, sorted by columns that do not depend "
                "on other persons, and pass the folder, or leave out person_totals; nothing was "
                "released or spent"
            )
        return source.limited(most)

    def parts(names: Sequence[str]) -> Iterator[Part]:
        every = source.batches(list(dict.fromkeys([*names, person])))
        return one_by_one(first_rows(every, list(names), person, most, totals, keyless))

    return replace(source, parts=parts, rows=None, sums=None)  # an engine would sum all rows


def first_rows(
    batches: Iterable[pa.RecordBatch],
    names: list[str],
    person: str,
    most: int,
    totals: PersonTotals | None = None,
    keyless: list[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches with some columns, and without later rows of a person."""
    used: dict[bytes, int] = {}
    for batch in batches:
        codes, distinct = codes_of_keys(batch.column(person))
        if keyless is not None:
            keyless.append(int(np.count_nonzero(codes < 0)))
        kept = _kept(codes, distinct, used, most)
        held = batch.select(names)
        rows = held if kept.all() else _in_place(held).filter(pa.array(kept))
        if totals is not None:
            totals.add(rows, codes[kept], distinct)
        yield rows


def _in_place(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same in a form of which Arrow can choose rows."""
    return pa.RecordBatch.from_arrays(
        [unwrapped(values) for values in batch.columns], names=batch.schema.names
    )


def _kept(
    codes: Codes, distinct: list[bytes], used: dict[bytes, int], most: int
) -> NDArray[np.bool_]:
    """Which rows (n,) are among the first of their person; counts them in `used`."""
    before = np.array([used.get(key, 0) for key in distinct], dtype=np.int64)
    known = codes >= 0
    kept = known.copy()
    found = codes[known]
    kept[known] = _ranks(found) + before[found] < most
    counts = np.minimum(before + np.bincount(found, minlength=len(distinct)), most)
    used.update(zip(distinct, counts.tolist(), strict=True))
    return kept


def _ranks(codes: Codes) -> Codes:
    """How many earlier rows have the same code, (n,)."""
    order = np.argsort(codes, kind="stable")
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(first, np.diff(first, append=len(codes)))
    return ranks
