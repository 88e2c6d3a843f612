"""The coded weight of every row of a survey, and its unit: functions of that row alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.contrasts import UNIT
from dpstats.private.keys import codes_of_keys
from dpstats.schema import Design
from dpstats.schema.arrow import floats, level_codes
from dpstats.schema.design import STEPS, UNPAIRED, hash_of, unit_keys

SCALED = "\x00scaled weight"
"""Name of a column of coded weights that take the place of the table's: no column is named so."""


class DesignRows:
    """The coding of weights and units, of a design with a cap."""

    def __init__(self, design: Design) -> None:
        self._design = design
        self._number = design.number
        self._missing = min(round((design.missing or 0) / design.unit_weight), STEPS)
        self._pairs = design.pairs if design.has_contrasts else None
        self._strata = tuple(stratum for stratum, _ in design.listed_units)
        self._keys = unit_keys(design)

    def weights(self, batch: pa.RecordBatch) -> Codes:
        """Coded weights (n,), from 0 to `STEPS`; as they are where they were scaled."""
        if SCALED in batch.schema.names:
            return batch.column(SCALED).to_numpy()  # type: ignore[no-any-return]
        _, clamped, usable = self.clamped(batch)
        codes = self._number.encode_numbers(np.where(usable, clamped, 0.0))
        return np.where(usable, codes + self._number.half_points, self._missing)

    def clamped(self, batch: pa.RecordBatch) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Weights (n,) as they are and within the declared bounds, and which can be used."""
        weights = floats(batch.column(self._design.weights))
        usable = np.isfinite(weights) & (weights > 0)
        return weights, np.clip(weights, self._design.low, self._design.high or np.inf), usable

    def units(self, batch: pa.RecordBatch) -> Mapping[str, Codes]:
        """Codes of units (n,), as `Pairs` has them, by their name among the codes of columns."""
        if self._pairs is None:
            return {}
        raw, names = self._keys_of(batch)
        numbers = self.declared(batch)
        distinct, which = np.unique(np.stack([*numbers, *raw]), axis=1, return_inverse=True)
        codes = np.array([
            self._code((h, k) if self._keys else None, names[0][s], names[1][u])
            for h, k, s, u in distinct.T.tolist()
        ], dtype=np.int64)  # fmt: skip
        return {UNIT: codes[which.ravel()]}

    def hashes(self, batch: pa.RecordBatch) -> set[int]:
        """Public hashes of the distinct units of rows."""
        raw, (strata, units) = self._keys_of(batch)
        distinct = np.unique(np.stack(raw), axis=1).T.tolist()
        return {hash_of(strata[s], units[u]) for s, u in distinct}

    def _keys_of(self, batch: pa.RecordBatch) -> tuple[list[Codes], list[list[bytes]]]:
        """Number of the key of stratum and unit of each row, two (n,), and the distinct keys."""
        raw, names = [], list[list[bytes]]()
        for column in (self._design.strata, self._design.unit):
            codes, keys = np.full(batch.num_rows, -1), list[bytes]()
            if column is not None:
                codes, keys = codes_of_keys(batch.column(column))
            raw.append(codes)
            names.append([*keys, b""])  # the last is of cells without a key
        return raw, names

    def declared(self, batch: pa.RecordBatch) -> list[Codes]:
        """Numbers of stratum and key of each row, two (n,), -1 for those that are not declared."""
        columns = (self._design.strata, self._strata), (self._design.unit, self._keys)
        return [
            level_codes(batch.column(column), known, -1, -1)
            if known and column is not None
            else np.zeros(batch.num_rows, np.int64)
            for column, known in columns
        ]

    def _code(self, numbers: tuple[int, int] | None, stratum: bytes, unit: bytes) -> int:
        """Code of a unit, from its place in the declaration or by its hash."""
        assert self._pairs is not None
        code = None if numbers is None else self._pairs.codes.get(numbers)
        if code is not None:
            return code
        several = self._pairs.plain or self._pairs.count  # such as the three units of one stratum
        return hash_of(stratum, unit) % (2 * several) if several else UNPAIRED
