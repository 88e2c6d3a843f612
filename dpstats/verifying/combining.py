"""Tables, residuals of tables and conditions, combined by their precisions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dpstats.verifying.columns import Column
from dpstats.verifying.functions import Block, Condition, Residual, Table
from dpstats.verifying.noise import scale_of
from dpstats.verifying.reading import Measured


@dataclass(frozen=True)
class Sources:
    """Measured tables, residuals of tables and the number of rows, to be combined."""

    family: Sequence[Measured]
    sums: dict[int, list[int]]
    power: int
    n: float | None
    known: dict[tuple[str, ...], tuple[list[float], float]] = field(default_factory=dict)

    def holding(self, names: Sequence[str]) -> list[tuple[Measured, float]]:
        """What sees the interaction of some columns, with the precision of its entries."""
        found = []
        for one in self.family:
            own = [column.name for column in one.block.columns]
            variance = scales_of(one, self.power)[0] ** 2
            if isinstance(one.block, Residual):
                if own == list(names):
                    found.append((one, one.block.size**2 / variance))
            elif type(one.block) is Table and set(names) <= set(own):
                rest = math.prod(c.bins for c in one.block.columns if c.name not in names)
                found.append((one, 1 / (variance * rest)))
        return found

    def sees(self, block: Block) -> bool:
        """Whether all interactions of the columns of a block are seen."""
        names = [column.name for column in block.columns]
        return all(
            self.holding(some)
            for size in range(1, len(names) + 1)
            for some in itertools.combinations(names, size)
        )

    def interaction(self, columns: Sequence[Column]) -> tuple[list[float], float]:
        """Its estimate, and the variance of an entry before it is centred."""
        names, shape = [c.name for c in columns], [c.bins for c in columns]
        if (*names,) in self.known:
            return self.known[(*names,)]
        holding = self.holding(names)
        precision = sum(p for _, p in holding)
        total = [0.0] * math.prod(shape)
        for one, own in holding:
            seen = self.sums[id(one)]
            if isinstance(one.block, Residual):
                values = [t / one.block.size for t in seen]
            else:
                values = [0.0] * len(total)
                cells = itertools.product(*(range(c.bins) for c in one.block.columns))
                places = [[c.name for c in one.block.columns].index(name) for name in names]
                for cell, t in zip(cells, seen, strict=True):
                    values[_flat([cell[i] for i in places], shape)] += t
            for at, value in enumerate(centred(values, shape)):
                total[at] += own / precision * value
        self.known[(*names,)] = total, 1 / precision
        return total, 1 / precision

    def parts(self, columns: Sequence[Column]) -> Iterator[tuple[int, ...]]:
        """Places of the columns of every interaction; of none where n is not public."""
        for size in range(0 if self.n is None else 1, len(columns) + 1):
            yield from itertools.combinations(range(len(columns)), size)

    def table(self, columns: Sequence[Column]) -> tuple[list[float], float]:
        """Counts of all cells, and the variance of each."""
        shape = [column.bins for column in columns]
        cells = list(itertools.product(*map(range, shape)))
        noisy, variance = [(self.n or 0.0) / len(cells)] * len(cells), 0.0
        for places in self.parts(columns):
            own = [shape[i] for i in places]
            values, of_entry = self.interaction([columns[i] for i in places])
            rest = len(cells) // math.prod(own)
            for at, cell in enumerate(cells):
                noisy[at] += values[_flat([cell[i] for i in places], own)] / rest
            variance += of_entry * math.prod(1 - 1 / m for m in own) / rest**2
        return noisy, variance


class Update:
    """Estimates from tables, updated by conditions that were measured by themselves.

    A function of some columns is a sum of its own interactions h; its estimate is that of h times
    the counts, and two of them have the covariance sum of v <g, h> over the interactions, v the
    variance of an entry.
    """

    def __init__(self, sources: Sources, seen: Sequence[Measured]) -> None:
        self.sources, self.seen = sources, seen
        self.own = [self._of_condition(one.block) for one in seen]
        self.surprise = []
        for one, parts in zip(seen, self.own, strict=True):
            inside = len(one.block.plain["cells"]) / math.prod(c.bins for c in one.block.columns)
            found = (sources.n or 0.0) * inside
            for names, values in parts.items():
                estimate, _ = sources.known[names]
                found += sum(h * t for h, t in zip(values, estimate, strict=True))
            self.surprise.append(sources.sums[id(one)][0] - found)
        matrix = [[self._covariance(g, h) for h in self.own] for g in self.own]
        for i, one in enumerate(seen):
            matrix[i][i] += scales_of(one, sources.power)[0] ** 2
        self.inverse = _inverted(matrix)

    def _of_condition(self, block: Block) -> dict[tuple[str, ...], list[float]]:
        columns, found = block.columns, {}
        shape, cells = [c.bins for c in columns], set(block.plain["cells"])
        for places in self.sources.parts(columns):
            own = [shape[i] for i in places]
            values, rest = [0.0] * math.prod(own), math.prod(shape) // math.prod(own)
            for at, cell in enumerate(itertools.product(*map(range, shape))):
                values[_flat([cell[i] for i in places], own)] += (at in cells) / rest
            self.sources.interaction([columns[i] for i in places])
            found[tuple(columns[i].name for i in places)] = centred(values, own)
        return found

    def _covariance(
        self, one: dict[tuple[str, ...], list[float]], other: dict[tuple[str, ...], list[float]]
    ) -> float:
        return sum(
            self.sources.known[names][1] * sum(a * b for a, b in zip(g, other[names], strict=True))
            for names, g in one.items()
            if names in other
        )

    def estimates(self, block: Block) -> tuple[list[float], list[float]]:
        """Sums of the functions of a table or of a measured condition, and their variances."""
        if isinstance(block, Condition):
            i = next(i for i, one in enumerate(self.seen) if one.block is block)
            surprises = [[self._covariance(self.own[i], h) for h in self.own]]
            start = [self.sources.sums[id(self.seen[i])][0] - self.surprise[i]]
            variances = [surprises[0][i]]
        else:
            start, variance = self.sources.table(block.columns)
            variances = [variance] * len(start)
            surprises = [[0.0] * len(self.own) for _ in start]
            shape = [column.bins for column in block.columns]
            for places in self.sources.parts(block.columns) if self.own else ():
                names, own = (
                    tuple(block.columns[i].name for i in places),
                    [shape[i] for i in places],
                )
                rest = math.prod(shape) // math.prod(own)
                for j, parts in enumerate(self.own):
                    if names in parts:
                        v = self.sources.known[names][1] / rest
                        for at, cell in enumerate(itertools.product(*map(range, shape))):
                            surprises[at][j] += (
                                v * parts[names][_flat([cell[i] for i in places], own)]
                            )
        noisy = []
        for at, shared in enumerate(surprises):
            gain = [sum(a * b for a, b in zip(row, shared, strict=True)) for row in self.inverse]
            noisy.append(start[at] + sum(g * s for g, s in zip(gain, self.surprise, strict=True)))
            variances[at] -= sum(g * c for g, c in zip(gain, shared, strict=True))
        return noisy, variances


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


def _flat(places: Sequence[int], shape: Sequence[int]) -> int:
    index = 0
    for place, length in zip(places, shape, strict=True):
        index = index * length + place
    return index


def centred(values: list[float], shape: Sequence[int]) -> list[float]:
    """Minus the mean along every axis."""
    inner = 1
    for length in reversed(shape):
        step = inner * length
        for start in range(0, len(values), step):
            for at in range(start, start + inner):
                line = range(at, at + step, inner)
                mean = sum(values[i] for i in line) / length
                for i in line:
                    values[i] -= mean
        inner = step
    return values


def scales_of(one: Measured, power: int) -> list[float]:
    """The scale of the noise on every function."""
    known = {b: scale_of(one.multiplier, b, power) for b in set(one.block.bounds)}
    return [known[bound] for bound in one.block.bounds]
