"""Tables, residuals of tables and conditions, combined by their precisions.

The interaction of some columns is what is left of their counts without smaller margins. A residual
over its bound and number of cells estimates it, and so does a table that holds these columns,
summed over the others. They are weighted by their precisions, centred, and spread evenly over the
other columns. Noise in different interactions is uncorrelated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from operator import mul

from dpstats.verifying.blocks import Block
from dpstats.verifying.columns import Column
from dpstats.verifying.noise import scale_of
from dpstats.verifying.reading import Measured

Names = tuple[str, ...]


def scales_of(one: Measured, power: int) -> list[float]:
    """Noise scales of a block."""
    by_bound = {bound: scale_of(one.multiplier, bound, power) for bound in set(one.block.bounds)}
    return [by_bound[bound] for bound in one.block.bounds]


class Combined:
    """Estimates of tables, updated by conditions that were measured by themselves as well.

    A condition counts the cells of a table. Its estimate and that of a cell have as covariance the
    sum over interactions of v times the scalar product of its own with the cell's, v the variance
    of an entry; by these, what conditions measured beyond their estimates updates all others.
    """

    def __init__(self, measured: Sequence[Measured], power: int, n: float | None) -> None:
        self.tables = [o for o in measured if o.block.kind in ("table", "residual")]
        self.variance = {id(o): scales_of(o, power)[0] ** 2 for o in measured}
        self.n = n  # where it is public; else it is the interaction of no columns
        self.known: dict[Names, tuple[list[float], float]] = {}
        conditions = [o for o in measured if o.block.kind == "condition"]
        self.seen = [o for o in conditions if all(map(self._sources, self._parts(o.names)))]
        self.parts = [self._interactions(one.block) for one in self.seen]
        estimates = [self._estimate(one.block) for one in self.seen]
        self.surprises = [
            one.sums[0] - sums[0] for one, (sums, _, _) in zip(self.seen, estimates, strict=True)
        ]
        matrix = [shared[0] for _, _, shared in estimates]
        for i, one in enumerate(self.seen):
            matrix[i][i] += self.variance[id(one)]
        self.inverse = _inverted(matrix)

    def estimates(self, block: Block) -> tuple[list[float], list[float]]:
        """Sums of the functions of a table or of a condition that is seen, and their variances."""
        sums, variances, shared = self._estimate(block)
        for at, own in enumerate(shared):
            gain = [sum(map(mul, row, own)) for row in self.inverse]
            sums[at] += sum(map(mul, gain, self.surprises))
            variances[at] -= sum(map(mul, gain, own))
        return sums, variances

    def _estimate(self, block: Block) -> tuple[list[float], list[float], list[list[float]]]:
        """Before the update: sums, their variances, and their covariances with the conditions."""
        columns, by_name = block.columns, {column.name: column for column in block.columns}
        cells = math.prod(column.bins for column in columns)
        sums, variance = [(self.n or 0.0) / cells] * cells, 0.0
        shared = [[0.0] * len(self.seen) for _ in sums]
        for names in self._parts(tuple(by_name)):
            own = [by_name[name] for name in names]
            values, of_entry = self._interaction(own)
            rest = cells // len(values)
            variance += of_entry * math.prod(1 - 1 / c.bins for c in own) / rest**2
            conditions = [(j, parts[names]) for j, parts in enumerate(self.parts) if names in parts]
            for cell, at in enumerate(_cells_of(columns, names)):
                sums[cell] += values[at] / rest
                for j, h in conditions:
                    shared[cell][j] += of_entry / rest * h[at]
        if block.kind == "table":
            return sums, [variance] * cells, shared
        inside = block.plain["cells"]
        total = [sum(shared[cell][j] for cell in inside) for j in range(len(self.seen))]
        own_place = [one.block for one in self.seen].index(block)
        return [sum(sums[cell] for cell in inside)], [total[own_place]], [total]

    def _sources(self, names: Names) -> list[tuple[Measured, float]]:
        """What sees the interaction of some columns, with the precision of its entries."""
        sources = []
        for one in self.tables:
            variance = self.variance[id(one)]
            if one.block.kind == "residual" and one.names == names:
                sources.append((one, one.block.size**2 / variance))
            elif one.block.kind == "table" and set(names) <= set(one.names):
                others = math.prod(c.bins for c in one.block.columns if c.name not in names)
                sources.append((one, 1 / (variance * others)))
        return sources

    def _parts(self, names: Names) -> Iterator[Names]:
        """The columns of every interaction; of none where n is not public."""
        for size in range(0 if self.n is None else 1, len(names) + 1):
            yield from itertools.combinations(names, size)

    def _interaction(self, columns: Sequence[Column]) -> tuple[list[float], float]:
        """Its estimate, and the variance of an entry before it is centred."""
        names = tuple(column.name for column in columns)
        if names not in self.known:
            sources, shape = self._sources(names), [column.bins for column in columns]
            total = [0.0] * math.prod(shape)
            precision = sum(p for _, p in sources)
            for one, own in sources:
                if one.block.kind == "residual":
                    values = [t / one.block.size for t in one.sums]
                else:
                    values = [0.0] * len(total)
                    for at, t in zip(_cells_of(one.block.columns, names), one.sums, strict=True):
                        values[at] += t
                for at, value in enumerate(_centred(values, shape)):
                    total[at] += own / precision * value
            self.known[names] = total, 1 / precision
        return self.known[names]

    def _interactions(self, block: Block) -> dict[Names, list[float]]:
        """Those of a condition."""
        found, by_name = {}, {column.name: column for column in block.columns}
        for names in self._parts(tuple(by_name)):
            places, shape = list(_cells_of(block.columns, names)), [by_name[n].bins for n in names]
            values = [0.0] * math.prod(shape)
            for cell in block.plain["cells"]:
                values[places[cell]] += len(values) / len(places)
            found[names] = _centred(values, shape)
        return found


def _cells_of(columns: Sequence[Column], names: Names) -> Iterator[int]:
    """For every cell of a table the cell of some of its columns, the last one running first."""
    for cell in itertools.product(*(range(column.bins) for column in columns)):
        at = 0
        for column, place in zip(columns, cell, strict=True):
            if column.name in names:
                at = at * column.bins + place
        yield at


def _inverted(matrix: list[list[float]]) -> list[list[float]]:
    """The inverse of a positive matrix."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows]


def _centred(values: list[float], shape: Sequence[int]) -> list[float]:
    """Minus the mean along every axis."""
    inner = 1
    for length in reversed(shape):
        step = inner * length
        for start in itertools.chain(*(range(s, s + inner) for s in range(0, len(values), step))):
            line = range(start, start + step, inner)
            mean = sum(values[i] for i in line) / length
            for i in line:
                values[i] -= mean
        inner = step
    return values
