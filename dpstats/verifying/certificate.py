"""The certificate of a release, computed again from its rows, its answers and the law of the noise.

For every function, the mean over the rows is at most misfit + q / (n B) from the private one, where
the misfit is seen and q bounds the noise of all functions with the stated probability.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from statistics import NormalDist
from typing import Any

from dpstats.verifying.columns import Column, day
from dpstats.verifying.combining import Sources, Update, scales_of
from dpstats.verifying.functions import (
    BinOffsets,
    Block,
    Condition,
    Moments,
    Residual,
    Row,
    Table,
)
from dpstats.verifying.noise import jointly, quantile, quantile_of_sum, variance
from dpstats.verifying.numeric_functions import BallMoments
from dpstats.verifying.reading import Held, Measured, csv_rows
from dpstats.verifying.shapes import is_number

_PLACES = 2e-3  # a combination of Gaussian noises is taken as normal
_MOST = 30_000_000  # functions times rows that are computed


@dataclass(frozen=True)
class Published:
    """Some functions that the certificate is about, in unit scale.

    Attributes
    ----------
    name : str
    synthetic, noisy : list of float
        Means over the rows; noisy sums over the bounds B, not yet over n.
    low : list of float
        The least value of every function.
    radius : list of float
        The bound on the noise of the noisy sums, over B.
    """

    name: str
    synthetic: list[float]
    noisy: list[float]
    low: list[float]
    radius: list[float]


def check_rows(held: Held) -> list[tuple[dict[str, int], int]]:
    """The candidates with how often each is a row; rows.csv must hold these rows."""
    lines = csv_rows(held, "candidates.csv")
    names = lines[0][:-2]
    whole = all(is_number(cell, int) for line in lines[1:] for cell in (*line[:-2], line[-1]))
    if not whole or not all(is_number(line[-2]) for line in lines[1:]):
        held.wrong.append("candidates.csv has a number that is not written as dpstats writes it")
        return []
    found = [
        ({n: int(c) for n, c in zip(names, line[:-2], strict=True)}, int(line[-1]))
        for line in lines[1:]
    ]
    weights = math.fsum(float(line[-2]) for line in lines[1:])
    outside = any(row[n] not in held.columns[n].bin_of for row, _ in found for n in names)
    below = any(float(cell) < 0 for line in lines[1:] for cell in line[-2:])
    density = abs(weights - 1) < 1e-6 and not outside and not below
    if lines[0][-2:] != ["_weight", "_count"] or not density:
        held.wrong.append("candidates.csv holds no density over rows that the schema can code")
        return []
    columns = [held.columns[name] for name in names]
    expected: Counter[tuple[Any, ...]] = Counter()
    for row, count in found:
        if count:
            expected[tuple(_decoded(c, row[c.name]) for c in columns)] += count
    rows = csv_rows(held, "rows.csv")
    written = Counter(tuple(map(_read, columns, line)) for line in rows[1:])
    if rows[0] != names or {*map(len, rows)} != {len(names)} or written != expected:
        held.wrong.append("rows.csv does not hold the rows of candidates.csv in original units")
    else:
        held.said.append(f"rows.csv: {sum(expected.values()):,} rows, those of candidates.csv.")
    return [(row, count) for row, count in found if count]


def _decoded(column: Column, code: int) -> Any:
    """A value as it can be compared: text of a level, a float, None if missing."""
    if column.is_number:
        return None if code == column.missing else _compared(column, column.values[code])
    return str(column.values[code])


def _read(column: Column, cell: str) -> Any:
    """The same of a cell of rows.csv; the cell itself if it is not written as dpstats writes it."""
    if not column.is_number:
        return cell
    if cell == ("" if column.dates else "nan"):
        return None
    if column.dates:
        value = float(day(cell))
        return value if date.fromisoformat(cell).isoformat() == cell else cell
    written = is_number(cell, int) or is_number(cell)
    return _compared(column, float(cell)) if written else cell


def _compared(column: Column, value: float) -> float:
    """To ten digits on a grid of logarithms, where machines may differ in the last ones."""
    return float(f"{value:.10g}") if column.log else float(value)


def check_certificate(held: Held) -> list[str]:
    """Compare the published certificate with what is computed here; a line for each block."""
    assert held.release is not None
    assert held.answers is not None
    rows = check_rows(held)
    plain, power = held.release["accuracy"], 1 if held.document["budget"]["kind"] == "pure" else 2
    alpha = 1 - plain["level"]
    alpha = round(alpha, 12)
    family = [one for one in held.blocks if one.role == "family"]
    sizes = sum(one.block.size for one in family)
    if not rows or not 0 < alpha < 1:
        held.wrong.append("the certificate states no level")
        return []
    if sizes * len(rows) > _MOST and not all(isinstance(o.block, Table) for o in family):
        return [f"not computed again: {sizes:,} functions on {len(rows):,} different rows"]
    tables = [[held.columns[name] for name in names] for names in held.document["tables"]]
    if tables:
        parts, count, estimate = _combined(held, family, tables, rows, power, alpha)
    else:
        parts, count, estimate = _separate(held, family, rows, power, alpha)
    ends = _sizes(estimate, count)
    lines, largest = [], 0.0
    for part in parts:
        bounds = _bounds(part, round(max(1, round(estimate))), ends)
        largest = max(largest, max(bounds))
        n = max(1, round(estimate))
        lines.append(
            f"{part.name}: noise within {max(part.radius) / n:.3g}, bound {max(bounds):.3g}"
        )
    stated = float(plain["delta"])
    slack = _PLACES if tables else 1e-9
    if stated < largest * (1 - slack):
        held.wrong.append(
            f"the certificate states delta = {stated:g}, and {largest:.6g} is computed here"
        )
    else:
        ratio = (
            f", larger by a factor of {stated / largest:.3f}" if stated > 1.001 * largest else ""
        )
        held.said.append(f"Certificate: delta = {stated:g} is at least {largest:.6g}{ratio}.")
    if plain["analyses"]:
        held.said.append("The radius of each analysis is not computed again: it needs them.")
    n_stated, computed = plain["n"], list(ends)
    if held.unit == "replace":
        computed = held.document["rows"]
        wrong = any(n != computed for n in (n_stated, *_own_sizes(plain)))
    else:
        wrong = not all(map(_are_ends, (n_stated, *_own_sizes(plain))))
        wrong = wrong or not (tables or n_stated == computed)
    if wrong:
        held.wrong.append(f"the certificate states n = {n_stated}, and {computed} is computed here")
    return lines


def _own_sizes(plain: dict[str, Any]) -> list[Any]:
    """The numbers of rows that are stated with the radii."""
    return [one["n"] for one in plain["analyses"].values()]


def _are_ends(n: object) -> bool:
    """Whether it is two numbers of rows, the smaller one first."""
    return isinstance(n, list) and [*map(type, n)] == [int, int] and 1 <= n[0] <= n[1]


def _separate(
    held: Held,
    family: Sequence[Measured],
    rows: Sequence[tuple[Row, int]],
    power: int,
    alpha: float,
) -> tuple[list[Published], float, float]:
    """Every function by its own answer; noises are independent.

    The number of rows is the count, or the total of a table where that has less noise.
    """
    answers = _by_block(held)
    kept = [one for one in family if not one.block.plain.get("coarse")] or list(family)
    scales = {id(one): scales_of(one, power) for one in held.blocks}
    every = [s for one in kept for s in scales[id(one)]]
    counts = [one for one in held.blocks if one.role == "count"]
    totals = [*counts, *(one for one in family if type(one.block) is Table)] if counts else []
    noise = {id(one): one.block.size * variance(scales[id(one)][0], power) for one in totals}
    total = min(totals, key=lambda one: noise[id(one)], default=None)
    own = alpha / (len(every) + 1)
    if total is None:
        limits = jointly(every, power, alpha)
    elif total in counts:
        limits = jointly([*every, *scales[id(total)]], power, alpha)
    else:  # its noise is that of cells: Bonferroni's inequality
        limits = jointly(every, power, alpha - own)
    parts = [
        Published(
            _named(one.block),
            _means(one.block, rows),
            [t / b for t, b in zip(answers[id(one)], one.block.bounds, strict=True)],
            _least(one.block),
            [limits[s] / b for s, b in zip(scales[id(one)], one.block.bounds, strict=True)],
        )
        for one in kept
    ]
    if total is None:
        return parts, 0.0, float(held.document["rows"])
    scale, estimate = scales[id(total)][0], float(sum(answers[id(total)]))
    if total in counts:
        return parts, float(limits[scale]), estimate
    return parts, float(quantile_of_sum(scale, power, total.block.size, own)), estimate


def _combined(
    held: Held,
    family: Sequence[Measured],
    tables: Sequence[Sequence[Column]],
    rows: Sequence[tuple[Row, int]],
    power: int,
    alpha: float,
) -> tuple[list[Published], float, float]:
    """Tables from all that see a part of them; every function gets alpha over their number.

    The interaction of some columns is what is left of their counts without smaller margins. A
    residual over its bound and number of cells estimates it, and so does a table that holds these
    columns, summed over the others. They are weighted by their precisions, centred, and spread
    evenly over the other columns. Noise in different interactions is uncorrelated.
    """
    count = [one for one in held.blocks if one.role == "count"]
    others = [one for one in family if not isinstance(one.block, Residual)]
    others = [one for one in others if not one.block.plain.get("coarse")]
    public = None if count else float(held.document["rows"])
    sources = Sources([*family, *count], _by_block(held), power, public)
    whole = [one.block.columns for one in others if type(one.block) is Table]
    seen = [one for one in others if isinstance(one.block, Condition) and sources.sees(one.block)]
    others = [one for one in others if type(one.block) is not Table and one not in seen]
    wanted = [Table({"kind": "table"}, tuple(columns)) for columns in (*tables, *whole)]
    total = sum(block.size for block in wanted) + len(seen) + len(count)
    total += sum(one.block.size for one in others)
    z = NormalDist().inv_cdf(1 - alpha / (2 * total))
    updated = Update(sources, seen)
    parts = []
    for block in [*wanted, *(one.block for one in seen)]:
        noisy, variances = updated.estimates(block)
        radius = [z * math.sqrt(variance) for variance in variances]
        low = [0.0] * len(noisy)
        parts.append(Published(_named(block), _means(block, rows), noisy, low, radius))
    for one in others:
        pairs = zip(scales_of(one, power), one.block.bounds, strict=True)
        radius = [quantile(s, power, alpha / total) / b for s, b in pairs]
        noisy = [t / b for t, b in zip(sources.sums[id(one)], one.block.bounds, strict=True)]
        name, means = _named(one.block), _means(one.block, rows)
        parts.append(Published(name, means, noisy, _least(one.block), radius))
    if public is not None:
        return parts, 0.0, public
    (n,), (variance,) = updated.estimates(Table({"kind": "table"}, ()))
    if whole or seen:
        return parts, z * math.sqrt(variance), n
    return parts, float(quantile(scales_of(count[0], power)[0], power, alpha / total)), n


def _bounds(part: Published, n: int, ends: tuple[int, int]) -> list[float]:
    """The largest distance of a mean over the rows from the private one, range and n allowing."""
    found = []
    for y, t, low, q in zip(part.synthetic, part.noisy, part.low, part.radius, strict=True):
        corners = [min(max(s / size, low), 1.0) for s in (t - q, t + q) for size in ends]
        found.append(max(abs(y - corner) for corner in corners))
    return found


def _sizes(estimate: float, q: float) -> tuple[int, int]:
    """Bounds on the number of rows."""
    high = max(1, math.floor(estimate + q + 1e-9))
    return min(high, max(1, math.ceil(estimate - q - 1e-9))), high


def _means(block: Block, rows: Sequence[tuple[Row, int]]) -> list[float]:
    """Means over the rows, in unit scale."""
    total, k = [0] * block.size, sum(count for _, count in rows)
    names = [column.name for column in block.columns]
    alike: Counter[tuple[int, ...]] = Counter()
    for row, count in rows:
        alike[tuple(row[name] for name in names)] += count
    for codes, count in alike.items():
        for f, value in block.of(dict(zip(names, codes, strict=True))).items():
            total[f] += count * value
    return [t / (k * b) for t, b in zip(total, block.bounds, strict=True)]


def _least(block: Block) -> list[float]:
    """The least value of every function, over its bound."""
    if isinstance(block, Moments):
        odd = [any(n % 2 for f, n in Counter(t).items() if f[1] in (None, -1)) for t in block.terms]
        return [-1.0 if one else 0.0 for one in odd]
    if isinstance(block, BallMoments):
        squares = [0.0 if i == j else -1.0 for i, j in block.pairs]
        return [-1.0] * len(block.columns) + squares + [-1.0]
    return [-1.0 if isinstance(block, BinOffsets) else 0.0] * block.size


def _by_block(held: Held) -> dict[int, list[int]]:
    """The noisy sums of every block."""
    assert held.answers is not None
    sums, at, found = [int(row[3]) for row in held.answers], 0, {}
    for one in held.blocks:
        found[id(one)] = sums[at : at + one.block.size]
        at += one.block.size
    return found


def _named(block: Block) -> str:
    if isinstance(block, Condition):
        return f"condition {block.plain.get('label', '')!r}"
    return f"{block.kind} of {', '.join(column.name for column in block.columns)}"
