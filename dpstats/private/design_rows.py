"""The coded weight of every row of a survey, and its unit: functions of that row alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dpstats.arrays import Codes
from dpstats.families.contrasts import UNIT
from dpstats.private.persons import codes_of_keys
from dpstats.schema import Design
from dpstats.schema.arrow import floats, level_codes
from dpstats.schema.design import STEPS, UNPAIRED, hash_of, unit_keys


class DesignRows:
    """The coding of weights and units.

    Parameters
    ----------
    design : Design
        With a cap.
    """

    def __init__(self, design: Design) -> None:
        self._design = design
        self._number = design.number
        self._least = min(int(np.ceil(design.low / design.unit_weight)), STEPS)
        self._missing = min(round((design.missing or 0) / design.unit_weight), STEPS)
        self._pairs = design.pairs if design.has_contrasts else None
        self._strata = tuple(stratum for stratum, _ in design.listed_units)
        self._keys = unit_keys(design)

    def weights(self, batch: pa.RecordBatch) -> Codes:
        """Coded weights (n,), from 0 to `STEPS`."""
        weights = floats(batch.column(self._design.weights))
        usable = np.isfinite(weights) & (weights > 0)
        codes = self._number.encode_numbers(np.where(usable, weights, 0.0))
        steps = np.maximum(codes + self._number.half_points, self._least)
        return np.where(usable, steps, self._missing)

    def units(self, batch: pa.RecordBatch) -> Mapping[str, Codes]:
        """Codes of units (n,), as `Pairs` has them, by their name among the codes of columns."""
        if self._pairs is None:
            return {}
        columns = [self._design.strata, self._design.unit]
        declared = [self._strata, self._keys]
        numbers, raw, names = [], [], list[list[bytes]]()
        for column, known in zip(columns, declared, strict=True):
            cells = None if column is None else batch.column(column)
            codes, keys = _no_keys(batch) if cells is None else codes_of_keys(cells)
            raw.append(codes)
            names.append([*keys, b""])  # the last is of cells without a key
            listed = bool(known) and cells is not None
            numbers.append(level_codes(cells, known, -1, -1) if listed else np.zeros_like(codes))
        distinct, which = np.unique(np.stack([*numbers, *raw]), axis=1, return_inverse=True)
        codes = np.array([
            self._code((h, k) if self._keys else None, names[0][s], names[1][u])
            for h, k, s, u in distinct.T.tolist()
        ], dtype=np.int64)  # fmt: skip
        return {UNIT: codes[which.ravel()]}

    def _code(self, numbers: tuple[int, int] | None, stratum: bytes, unit: bytes) -> int:
        """Code of a unit, from its place in the declaration or by its hash."""
        assert self._pairs is not None
        code = None if numbers is None else self._pairs.codes.get(numbers)
        if code is not None:
            return code
        several = self._pairs.plain or self._pairs.count  # such as the three units of one stratum
        return hash_of(stratum, unit) % (2 * several) if several else UNPAIRED


def _no_keys(batch: pa.RecordBatch) -> tuple[Codes, list[bytes]]:
    """Keys of a design without strata."""
    return np.full(batch.num_rows, -1, np.int64), []
