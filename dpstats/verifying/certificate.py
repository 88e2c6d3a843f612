"""The certificate of a release, computed again from its rows, its answers and the law of the noise.

For every function, the mean over the rows is at most misfit + q / (n B) from the private one, where
the misfit is seen and q bounds the noise of all functions with the stated probability.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from operator import mul
from statistics import NormalDist
from typing import Any

from dpstats.verifying.blocks import Block, Row
from dpstats.verifying.columns import Column, day
from dpstats.verifying.kinds import table
from dpstats.verifying.noise import jointly, quantile, quantile_of_sum, scale_of, variance
from dpstats.verifying.reading import Contents, Measured, csv_rows
from dpstats.verifying.shapes import is_number

Names = tuple[str, ...]
_MOST = 30_000_000  # functions times rows that are computed
Rows = Sequence[tuple[Row, int]]


def scales_of(one: Measured, power: int) -> list[float]:
    """Noise scales of a block."""
    by_bound = {bound: scale_of(one.multiplier, bound, power) for bound in set(one.block.bounds)}
    return [by_bound[bound] for bound in one.block.bounds]


class Combined:
    """Tables, residuals of tables and conditions, combined by their precisions.

    The interaction of some columns is what is left of their counts without smaller margins. A
    residual over its bound and number of cells estimates it, and so does a table that holds these
    columns, summed over the others. They are weighted by their precisions, centred, and spread
    evenly over the other columns. Noise in different interactions is uncorrelated.

    A condition counts the cells of a table. Its estimate and that of a cell have as covariance the
    sum over interactions of v times the scalar product of its own with the cell's, v the variance
    of an entry; by these, what conditions measured beyond their estimates updates all others.
    """

    def __init__(self, measured: Sequence[Measured], power: int, n: float | None) -> None:
        self.tables = [o for o in measured if o.block.kind in ("table", "residual")]
        self.variance = {id(o): scales_of(o, power)[0] ** 2 for o in measured}
        self.known = dict[Names, tuple[list[float], float]]()
        if n is not None:  # public: the interaction of no columns
            self.known[()] = [n], 0.0
        conditions = [o for o in measured if o.block.kind == "condition"]
        self.seen = [o for o in conditions if all(map(self._sources, _subsets(o.names)[1:]))]
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
        columns, cells = block.columns, math.prod(column.bins for column in block.columns)
        sums, variance = [0.0] * cells, 0.0
        shared = [[0.0] * len(self.seen) for _ in sums]
        for names in _subsets([column.name for column in columns]):
            own = [column for column in columns if column.name in names]
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
        """Blocks that see the interaction of some columns, with the precision of its entries."""
        sources = []
        for one in self.tables:
            variance = self.variance[id(one)]
            if one.block.kind == "residual" and one.names == names:
                sources.append((one, one.block.size**2 / variance))
            elif one.block.kind == "table" and set(names) <= set(one.names):
                others = math.prod(c.bins for c in one.block.columns if c.name not in names)
                sources.append((one, 1 / (variance * others)))
        return sources

    def _interaction(self, columns: Sequence[Column]) -> tuple[list[float], float]:
        """Its estimate, and the variance of an entry before it is centred."""
        names = tuple(column.name for column in columns)
        if names not in self.known:
            sources, total = self._sources(names), [0.0] * math.prod(c.bins for c in columns)
            precision = sum(p for _, p in sources)
            for one, own in sources:
                values = [t / one.block.size for t in one.sums]
                if one.block.kind == "table":
                    values = _margin(one.sums, one.block.columns, names)
                total = [t + own / precision * v for t, v in zip(total, values, strict=True)]
            self.known[names] = _centred(total, columns), 1 / precision
        return self.known[names]

    def _interactions(self, block: Block) -> dict[Names, list[float]]:
        """Interactions of the cells that a condition counts."""
        cells, inside = math.prod(c.bins for c in block.columns), set(block.plain["cells"])
        counted, found = [float(cell in inside) for cell in range(cells)], {}
        for names in _subsets([column.name for column in block.columns]):
            values = _margin(counted, block.columns, names)
            own = [column for column in block.columns if column.name in names]
            found[names] = _centred([v * len(values) / cells for v in values], own)
        return found


def _subsets(names: Sequence[str]) -> list[Names]:
    sizes = range(len(names) + 1)
    return [some for size in sizes for some in itertools.combinations(names, size)]


def _cells_of(columns: Sequence[Column], names: Names) -> Iterator[int]:
    """For every cell of a table the cell of some of its columns, the last one running first."""
    for cell in itertools.product(*(range(column.bins) for column in columns)):
        at = 0
        for column, place in zip(columns, cell, strict=True):
            if column.name in names:
                at = at * column.bins + place
        yield at


def _margin(values: Sequence[float], columns: Sequence[Column], names: Names) -> list[float]:
    total = [0.0] * math.prod(column.bins for column in columns if column.name in names)
    for at, value in zip(_cells_of(columns, names), values, strict=True):
        total[at] += value
    return total


def _centred(values: list[float], columns: Sequence[Column]) -> list[float]:
    for column in columns:
        others = tuple(c.name for c in columns if c is not column)
        means = [total / column.bins for total in _margin(values, columns, others)]
        places = _cells_of(columns, others)
        values = [value - means[at] for value, at in zip(values, places, strict=True)]
    return values


def _inverted(matrix: list[list[float]]) -> list[list[float]]:
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in set(range(size)) - {i}:
            rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows]


@dataclass(frozen=True)
class Published:
    """Functions that the certificate is about: noisy sums, and bounds on their noise, over B."""

    block: Block
    noisy: Sequence[float]
    radius: Sequence[float]


def check_rows(contents: Contents) -> Rows:
    """The candidates with how often each is a row; rows.csv must hold these rows."""
    (*names, weight, count), *lines = csv_rows(contents, "candidates.csv")
    columns = [contents.columns[name] for name in names]
    rows = list[tuple[Row, int]]()
    whole = all(is_number(cell, int) for line in lines for cell in (*line[:-2], line[-1]))
    if whole and all(is_number(line[-2]) for line in lines):
        rows = [(dict(zip(names, map(int, r[:-2]), strict=True)), int(r[-1])) for r in lines]
    if not contents.require(
        bool(rows)
        and (weight, count) == ("_weight", "_count")
        and abs(math.fsum(float(line[-2]) for line in lines) - 1) < 1e-6
        and all(float(cell) >= 0 for line in lines for cell in line[-2:])
        and all(row[column.name] in column.bin_of for row, _ in rows for column in columns),
        "candidates.csv holds no density over rows that the schema can code, as dpstats writes it",
    ):
        return []
    expected: Counter[tuple[Any, ...]] = Counter()
    for row, times in rows:
        expected[tuple(_decoded(column, row[column.name]) for column in columns)] += times
    header, *written = csv_rows(contents, "rows.csv")
    contents.require(
        header == names and +expected == Counter(tuple(map(_read, columns, r)) for r in written),
        "rows.csv does not hold the rows of candidates.csv in original units",
        f"rows.csv: {len(written):,} rows, those of candidates.csv.",
    )
    return [(row, times) for row, times in rows if times]


def _decoded(column: Column, code: int) -> Any:
    """A value as it can be compared: text of a level, a float, None if missing."""
    if not column.half:
        return str(column.values[code])
    return None if code == column.missing else _rounded(column, column.values[code])


def _read(column: Column, cell: str) -> Any:
    """Value of a cell of rows.csv; the cell itself if it is not as dpstats writes it."""
    if not column.half:
        return cell
    if cell == ("" if column.dates else "nan"):
        return None
    if column.dates:
        return float(day(cell)) if date.fromisoformat(cell).isoformat() == cell else cell
    written = is_number(cell, int) or is_number(cell)
    return _rounded(column, float(cell)) if written else cell


def _rounded(column: Column, value: float) -> float:
    """To ten digits on a grid of logarithms, where machines may differ in the last ones."""
    return float(f"{value:.10g}") if column.log else float(value)


def check_certificate(contents: Contents, rows: Rows) -> list[str]:
    """Compare the published certificate with what is computed here; a line for each block."""
    assert contents.release is not None
    stated = contents.release["accuracy"]
    alpha = round(1 - stated["level"], 12)
    if not contents.require(bool(rows) and 0 < alpha < 1, "the certificate states no level"):
        return []
    family = [one for one in contents.blocks if one.role == "family"]
    functions = sum(one.block.size for one in family)
    counted = all(one.block.kind in ("table", "condition", "residual") for one in family)
    if functions * len(rows) > _MOST and not counted:
        contents.undecided.append(
            "the certificate is not computed again, for it would take long: "
            f"{functions:,} functions on {len(rows):,} different rows"
        )
        return []
    tables = contents.document["tables"]
    publish = _combine if tables else _separate
    parts, n, slack_of_n = publish(contents, family, alpha)
    high = max(1, math.floor(n + slack_of_n + 1e-9))
    sizes = [min(high, max(1, math.ceil(n - slack_of_n - 1e-9))), high]
    lines, largest = [], 0.0
    for part in parts:
        bound = _largest_error(part, rows, sizes)
        largest = max(largest, bound)
        noise = max(part.radius) / max(1, round(n))
        lines.append(f"{_name(part.block)}: noise within {noise:.3g}, bound {bound:.3g}")
    delta = float(stated["delta"])
    larger = largest > 0 and delta > 1.001 * largest
    ratio = f", larger by a factor of {delta / largest:.3f}" if larger else ""
    contents.require(
        delta >= largest * (1 - 1e-9),
        f"the certificate states delta = {delta:g}, and {largest:.6g} is computed here",
        f"Certificate: delta = {delta:g} is at least {largest:.6g}{ratio}.",
    )
    if stated["analyses"]:
        contents.said.append("The radius of each analysis is not computed again: it needs them.")
    all_n = [stated["n"], *(one["n"] for one in stated["analyses"].values())]
    if contents.count_is_public:
        holds = all(own == contents.document["rows"] for own in all_n)
    else:
        holds = all(map(_is_range, all_n)) and (bool(tables) or stated["n"] == sizes)
    contents.require(holds, f"the certificate states n = {stated['n']}, and not {sizes} as here")
    return lines


def _is_range(n: object) -> bool:
    """True for two numbers of rows, the smaller one first."""
    return isinstance(n, list) and [*map(type, n)] == [int, int] and 1 <= n[0] <= n[1]


def _alone(one: Measured, quantiles: Sequence[float]) -> Published:
    asked = slice(_asked(one.block))
    noisy = [t / b for t, b in zip(one.sums, one.block.bounds, strict=True)][asked]
    radius = [q / b for q, b in zip(quantiles, one.block.bounds, strict=True)][asked]
    return Published(one.block, noisy, radius)


def _asked(block: Block) -> int:
    """How many functions the certificate is about: not the other rows, which only count them."""
    return block.size - ("rest" in block.plain)


def _separate(
    contents: Contents, family: Sequence[Measured], alpha: float
) -> tuple[list[Published], float, float]:
    """Functions by their own answers, n, and a bound on its noise."""
    power = contents.power
    kept = [one for one in family if not one.block.plain.get("coarse")] or list(family)
    scales = {id(one): scales_of(one, power) for one in contents.blocks}
    every = [scale for one in kept for scale in scales[id(one)][: _asked(one.block)]]
    counts = [one for one in contents.blocks if one.role == "count"]
    totals = counts + [one for one in family if counts and _adds_up_to(one.block)]
    parts = {id(one): _adds_up_to(one.block) for one in totals}
    noise = {id(one): parts[id(one)] * variance(scales[id(one)][0], power) for one in totals}
    total = min(totals, key=lambda one: noise[id(one)], default=None)
    n, radius = float(contents.document["rows"] or 0), 0.0
    if total is None:
        limits = jointly(every, power, alpha)
    elif total in counts:
        limits = jointly([*every, *scales[id(total)]], power, alpha)
        n, radius = float(sum(total.sums)), limits[scales[id(total)][0]]
    else:  # its noise is that of cells: Bonferroni's inequality
        own, cells = alpha / (len(every) + 1), parts[id(total)]
        limits = jointly(every, power, alpha - own)
        n = float(sum(total.sums[:cells]))
        radius = quantile_of_sum(scales[id(total)][0], power, cells, own)
    return [_alone(one, [limits[s] for s in scales[id(one)]]) for one in kept], n, radius


def _adds_up_to(block: Block) -> int:
    """How many of the first functions add up to the number of rows; 0 if none do."""
    if block.kind == "partition":
        cells = sum(len(one["cells"]) for one in block.plain["sets"])
        if cells < math.prod(column.bins for column in block.columns):
            return 0
        return 1 if "rotated" in block.plain else block.size
    return block.size if block.kind == "table" else 0


def _combine(
    contents: Contents, family: Sequence[Measured], alpha: float
) -> tuple[list[Published], float, float]:
    """Tables from all that see a part of them; every function gets alpha over their number.

    A combination of discrete Gaussian noises is taken as normal, less the coarsest step that it can
    have: of a sum of integers a quantile is lower by up to that. A weight is at most the standard
    deviation of the combination over the smallest scale among its tables.
    """
    power = contents.power
    count = [one for one in contents.blocks if one.role == "count"]
    n = None if count else float(contents.document["rows"])
    combined = Combined([*family, *count], power, n)
    others = [o for o in family if o.block.kind != "residual" and not o.block.plain.get("coarse")]
    alone = [one for one in others if one.block.kind != "table" and one not in combined.seen]
    whole = [one.names for one in others if one.block.kind == "table"]
    wanted = [_table(names, contents) for names in (*contents.document["tables"], *whole)]
    wanted += [one.block for one in combined.seen]
    functions = sum(block.size for block in wanted) + sum(one.block.size for one in alone)
    own = alpha / (functions + len(count))
    normal = NormalDist().inv_cdf(1 - own / 2)

    everywhere = n is None or bool(combined.seen)  # else other columns have no weight

    def quantile_of(block: Block) -> float:
        """In standard deviations."""
        names = {column.name for column in block.columns}
        variances = (combined.variance[id(one)] for one in (*combined.tables, *combined.seen)
                     if everywhere or names & set(one.names))  # fmt: skip
        return max(0.0, normal - 1 / math.sqrt(min(variances)))

    parts = []
    for block in wanted:
        noisy, variances = combined.estimates(block)
        z = quantile_of(block)
        parts.append(Published(block, noisy, [z * math.sqrt(v) for v in variances]))
    parts += [_alone(one, [quantile(s, power, own) for s in scales_of(one, power)])
              for one in alone]  # fmt: skip
    if n is not None:
        return parts, n, 0.0
    every_row = _table((), contents)
    (n,), (of_n,) = combined.estimates(every_row)
    if whole or combined.seen:
        return parts, n, quantile_of(every_row) * math.sqrt(of_n)
    return parts, n, quantile(scales_of(count[0], power)[0], power, own)


def _table(names: Sequence[str], contents: Contents) -> Block:
    return table({"kind": "table", "columns": list(names)}, contents.columns)


def _largest_error(part: Published, rows: Rows, sizes: Sequence[int]) -> float:
    """The largest distance of a mean over the rows from the private one, range and n allowing."""
    block, largest = part.block, 0.0
    means = _means(block, rows)[: len(part.noisy)]
    for f, (mean, t, q) in enumerate(zip(means, part.noisy, part.radius, strict=True)):
        low = -1.0 if block.signed and block.signed[f] else 0.0
        ends = (min(max(s / n, low), 1.0) for s in (t - q, t + q) for n in sizes)
        largest = max(largest, *(abs(mean - end) for end in ends))
    return largest


def _means(block: Block, rows: Rows) -> list[float]:
    total, k = [0] * block.size, sum(count for _, count in rows)
    names = [column.name for column in block.columns]
    alike: Counter[tuple[int, ...]] = Counter()
    for row, count in rows:
        alike[tuple(row[name] for name in names)] += count
    for codes, count in alike.items():
        assert block.of is not None  # as of every block that answers
        for f, value in block.of(dict(zip(names, codes, strict=True))).items():
            total[f] += count * value
    return [t / (k * b) for t, b in zip(total, block.bounds, strict=True)]


def _name(block: Block) -> str:
    if block.kind == "condition":
        return f"condition {block.plain.get('label', '')!r}"
    return f"{block.kind} of {', '.join(column.name for column in block.columns)}"
