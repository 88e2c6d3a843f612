"""At most k rows of one person: the first in the table's order, by a column of keys.

In a survey all rows are used, and the weights of a person with more than k rows at the cap are
scaled down to as much. What is used of a person follows from that person's rows alone, so what one
person adds, removes or changes never decides what of others is used. A random choice from a stream
that persons share would. A row without a key is not used: it could be anyone's, and to count it
would give a person more rows than k. Keys reach no output, message or file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.families.persons import PersonProducts
from dpstats.measured.strategy import MOST_ROWS
from dpstats.private.design_rows import SCALED, DesignRows
from dpstats.private.keys import codes_of_keys
from dpstats.private.sources import (
    Part,
    Source,
    one_by_one,
    require_again,
    without_rows,
)
from dpstats.schema import Design, Schema
from dpstats.schema.arrow import unwrapped
from dpstats.schema.design import STEPS

_FIRST = 2**10  # persons with room for their totals


class PersonTotals:
    """The totals of each person, added up while rows are read in their order."""

    def __init__(self, schema: Schema, blocks: Sequence[PersonProducts]) -> None:
        used = {column.name for block in blocks for column in block.columns}
        self._repairs = schema.repairs(used) if blocks else None
        self._blocks = blocks
        self._rows, self._number = 0, dict[bytes, int]()
        self._totals = [np.zeros((len(b.totals), _FIRST), dtype=np.int64) for b in blocks]

    @property
    def asked(self) -> bool:
        """True if there are totals to add up."""
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
        try:
            return without_rows(
                lambda: [b.of_totals(t) for b, t in zip(self._blocks, self._totals, strict=True)],
                lambda error: f"adding up the totals of persons failed ({type(error).__name__})",
            )
        finally:
            self.clear()

    def clear(self) -> None:
        """Forget all totals: the frames of a traceback may hold this object."""
        self._totals, self._number = [], {}

    def __enter__(self) -> PersonTotals:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.clear()


class PersonWeights:
    """Weights of rows in a survey, scaled so that those of a person add up to at most k caps."""

    def __init__(self, design: Design, person: str, most: int) -> None:
        self._coded, self._person, self.most = DesignRows(design), person, most * STEPS
        self.columns = [design.weights, person]
        self._totals = dict[bytes, int]()

    def read(self, batches: Iterable[pa.RecordBatch]) -> PersonWeights:
        """Add up the coded weights of every person."""
        for batch in batches:
            codes, distinct = codes_of_keys(batch.column(self._person))
            sums = np.zeros(len(distinct) + 1, dtype=np.int64)
            np.add.at(sums, codes, self._coded.weights(batch))  # the last is of rows without a key
            for key, total in zip(distinct, sums.tolist(), strict=False):
                self._totals[key] = self._totals.get(key, 0) + total
        return self

    @property
    def over(self) -> int:
        """Number of persons whose weights are scaled; private."""
        return sum(total > self.most for total in self._totals.values())

    def of_rows(self, batch: pa.RecordBatch, codes: Codes, distinct: Sequence[bytes]) -> Codes:
        """Scaled weights (n,), rounded down."""
        totals = [*(self._totals.get(key, 0) for key in distinct), 0]
        return self._coded.weights(batch) * self.most // np.maximum(totals, self.most)[codes]


def of_persons(
    source: Source,
    person: str,
    most: int,
    totals: PersonTotals | None = None,
    counts: Counter[str] | None = None,
    design: Design | None = None,
) -> Source:
    """The first `most` rows of each person; in a survey all rows, with scaled weights.

    It is read in its order, whatever the number of threads, unless its engine does this by itself;
    that of a survey twice. In memory is a number for each key (see `key_of`), and its totals. Rows
    that are used are added to `totals`. The numbers of rows without a key and of persons whose
    weights are scaled go to `counts`: they are private, for the custodian's screen only.
    """
    if design is not None:
        require_again(source)
    if source.limited is not None:
        if totals is not None and totals.asked:
            raise DataError(
                "totals of persons need all rows of the table in their order, which this engine "
                "adds up apart: write them to Parquet files, sorted by columns that do not depend "
                "on other persons, and pass the folder, or leave out person_totals; nothing was "
                "released or spent"
            )
        return source.limited(most, design)

    def parts(names: Sequence[str]) -> Iterator[Part]:
        weights, needed = None, [*names, person]
        if design is not None:
            weights = PersonWeights(design, person, most)
            needed += weights.columns
            weights.read(source.batches(weights.columns))
            if counts is not None:
                counts["scaled"] = weights.over
        every = source.batches(list(dict.fromkeys(needed)))
        return one_by_one(used_rows(every, list(names), person, most, totals, counts, weights))

    return replace(source, parts=parts, rows=None, sums=None)  # an engine would sum all rows


def used_rows(
    batches: Iterable[pa.RecordBatch],
    names: list[str],
    person: str,
    most: int,
    totals: PersonTotals | None = None,
    counts: Counter[str] | None = None,
    weights: PersonWeights | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches with some columns, and without later rows of a person, or with scaled weights."""
    before: dict[bytes, int] = {}
    for batch in batches:
        codes, distinct = codes_of_keys(batch.column(person))
        if counts is not None:
            counts["keyless"] += int(np.count_nonzero(codes < 0))
        held = batch.select(names)
        if weights is None:
            used = _within(np.ones_like(codes), codes, distinct, before, most)
            kept = used > 0
        else:  # within the same bound if a query gives other rows when it is run again
            scaled = weights.of_rows(batch, codes, distinct)
            used = _within(scaled, codes, distinct, before, weights.most)
            kept, held = codes >= 0, held.append_column(SCALED, pa.array(used))
        rows = held
        if not kept.all():  # in a form of which Arrow can choose rows
            arrays = [unwrapped(values).filter(pa.array(kept)) for values in held.columns]
            rows = pa.RecordBatch.from_arrays(arrays, names=held.schema.names)
        if totals is not None:
            totals.add(rows, codes[kept], distinct)
        yield rows


def _within(
    amounts: Codes, codes: Codes, distinct: list[bytes], before: dict[bytes, int], most: int
) -> Codes:
    """Amounts (n,), cut where those of a person are above `most`; adds them to `before`."""
    order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]
    persons, added = codes[order], amounts[order]
    used = np.zeros(len(codes), dtype=np.int64)
    first = np.flatnonzero(np.diff(persons, prepend=-1))
    keys = [distinct[code] for code in persons[first]]
    held = np.array([before.get(key, 0) for key in keys], dtype=np.int64)
    sums = np.cumsum(added)
    start = np.repeat(sums[first] - added[first] - held, np.diff(first, append=len(persons)))
    used[order] = np.minimum(sums - start, most) - np.minimum(sums - start - added, most)
    totals = np.add.reduceat(used[order], first) if len(first) else first
    before.update(zip(keys, (held + totals).tolist(), strict=True))
    return used
