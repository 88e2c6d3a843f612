"""A pure Python loop over rows: what every engine must agree with, integer for integer."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dpstats.families.group_moments import GroupMoments
from dpstats.families.losses.functions import PinballLoss
from dpstats.families.losses.linear import LinearLosses
from dpstats.families.moments import Moments
from dpstats.families.pilot_score import PilotScore
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator, Table
from dpstats.families.tables.lattice import PEAK, KernelLattice
from dpstats.schema import Boolean, Category, Number, Schema

SCHEMA = Schema([
    Category("word", ["no", "yes", "é, \"quoted\"\n'ü'"], other="yes", allow_missing=True),
    Category("grade", [1, 2.5, -3], missing=2.5, other=-3),
    Boolean("flag", missing=True),
    Number("x", -1, 2.5, points=15, edges=[0, 0.3, 1.1], missing=0.7),
    Number("y", 0, 10, points=41, edges=[2.5, 5], closed="right", missing=5),
    Number("score", values=[17.5, 22, 27], allow_missing=True),
])  # fmt: skip


SCORE = [(), (("x", None),), (("word", 1),), (("x", None), ("y", None), ("grade", 0))]


def blocks_of(schema):
    """Blocks of every kind, in an order of columns that is not that of the schema."""
    return [
        Cells.table(schema, ["score"]),
        Cells.condition(
            schema, "x >= 0.3 and word == 'yes' or score > 22 and not flag or grade == 1 and y > 5"
        ),
        Cells.table(schema, ["word", "flag"]),
        Cells.table(schema, ["grade", "x", "y"]),
        Cells.condition(schema, "word != '(missing)'"),
        Moments.of(schema, ["x", "y"], ["word"]),
        Moments.of(schema, ["score"], ["x"], degree=1),
        KernelLattice((schema["x"], schema["y"]), 3, 0.2),
        GroupMoments.by(schema["y"], schema["word"], (0, 2, 3)),
        GroupMoments.by(schema["score"], schema["x"], (1, 3)),
        GroupMoments(schema["y"], (Subgroup.of(schema, "flag and x >= 0.3", ["y", "score"]),)),
        Moments.of(schema, ["y", "score"], ["word"], given="not flag and y > 2.5"),
        LinearLosses.of(
            schema,
            PinballLoss(0.25),
            "y ~ x + flag",
            {"Intercept": (0, 10, 4), "x": (-4, 5, 3), "flag[T.True]": (0, 2, 3)},
        ),
        PilotScore.of(schema, SCORE, ("flag", 1), "logit").at(np.array([0.3, -4.7, 1.1, 2.9])),
    ]


def code_of(column, cell):
    """The documented rule for one cell, in plain Python."""
    absent = cell is None or (isinstance(cell, float) and math.isnan(cell))
    if isinstance(column, Category):
        if absent:
            return column.missing_code
        for code, value in enumerate(column.stored):
            if isinstance(value, str) == isinstance(cell, str) and value == cell:
                return code
        return column.other_code
    if absent and column.allow_missing:
        return (column.points - 1) // 2 + 1
    value = column.missing if absent else cell
    low, high = float(column.low), float(column.high)
    value = min(max(float(value), low), high)
    if column.values is not None:  # the nearest, the lower one if two are equally near
        nearest = min(column.values, key=lambda v: (abs(v - value), v))
        return int(column._value_codes[column.values.index(nearest)])

    def bin_of(v):
        below = (lambda e: e <= v) if column.closed == "left" else (lambda e: e < v)
        return sum(below(edge) for edge in column.edges)

    k = (column.points - 1) // 2
    code = math.floor((value - (low + high) / 2) * (k / ((high - low) / 2)) + 0.5)
    grid = [low + (high - low) * (i / (2 * k)) for i in range(2 * k)] + [high]
    own = [c for c in range(-k, k + 1) if bin_of(grid[c + k]) == bin_of(value)]
    return min(max(code, own[0]), own[-1])


def naive_sums(schema, blocks, rows):
    """Sums of every block by a loop; `rows` are mappings of column name to cell."""
    coded = [{c.name: code_of(c, row[c.name]) for c in schema} for row in rows]
    bins = [
        {c.name: int(c.bins_of(np.array([codes[c.name]]))[0]) for c in schema} for codes in coded
    ]
    return [_block_sums(block, coded, bins) for block in blocks]


def _block_sums(block, coded, bins):
    sums = [0] * block.size
    for codes, levels in zip(coded, bins, strict=True):
        cell = tuple(levels[c.name] for c in block.columns)
        if isinstance(block, Table):
            sums[int(np.ravel_multi_index(cell, block.shape))] += 1
        elif isinstance(block, Indicator):
            sums[0] += int(block.cells.array[cell])
        elif isinstance(block, GroupMoments):
            code, k = codes[block.number.name], block.number.half_points
            for i, group in enumerate(block.groups):
                values = (k - code) ** 2, 2 * (k - code) * (k + code), (k + code) ** 2
                for f, value in enumerate(values, start=3 * i):
                    sums[f] += value if _inside(group, levels) else 0
        elif isinstance(block, KernelLattice):
            for f, point in enumerate(itertools.product(range(block.k + 1), repeat=len(cell))):
                value = 1
                for i, column in zip(point, block.columns, strict=True):
                    u, t = i / block.k, codes[column.name] / (column.points - 1) + 0.5
                    distances = (u - t, u + t, 2 - u - t)
                    height = sum(math.exp(-0.5 * (d / block.bandwidth) ** 2) for d in distances)
                    value *= round(PEAK * height * (0.5 if i in (0, block.k) else 1))
                sums[f] += value
        elif isinstance(block, LinearLosses):
            of = {c.name: c for c in block.columns}
            y, x = (float(of[n].grid[codes[n] + of[n].half_points]) for n in "yx")
            for f, (one, slope, more) in enumerate(
                itertools.product(*(axis.values.tolist() for axis in block.axes))
            ):
                residual = y - (one + (x - 0.75) * slope + levels["flag"] * more)
                loss = max(0.25 * residual, -0.75 * residual)
                sums[f] += math.floor(loss / block.unit + 0.5)
        elif isinstance(block, PilotScore):
            half = {c.name: (c.points - 1) // 2 for c in block.columns if isinstance(c, Number)}
            grids = [math.prod(half[n] for n, level in t if level is None) for t in block.terms]
            terms = [
                math.prod(codes[n] if level is None else int(levels[n] == level) for n, level in t)
                for t in block.terms
            ]
            parts = zip(terms, block.pilot, grids, strict=True)
            step = sum(term * b // grid for term, b, grid in parts) // 64
            mean = round(65_536 / (1 + math.exp(-step / 1_024)))
            for f, (term, grid) in enumerate(zip(terms, grids, strict=True)):
                value = term * (65_536 * levels["flag"] - mean)
                sums[f] += abs(value) // grid * (1 if value > 0 else -1)
        else:
            for f, term in enumerate(block.terms):
                value = 1 if block.given is None else int(_inside(block.given, levels))
                for name, level in term:
                    value *= codes[name] if level is None else int(levels[name] == level)
                sums[f] += value
    return sums


def _inside(group, levels):
    """Whether a row, by its bins, is in a subgroup."""
    known = all(c.bin_labels[levels[c.name]] != "(missing)" for c in group.answered)
    return known and bool(group.cells.array[tuple(levels[c.name] for c in group.cells.columns)])


def random_rows(n, seed):
    """Cells of the schema's columns, undeclared and missing ones among them."""
    rng = np.random.default_rng(seed)
    return pa.table({
        "word": pa.array(rng.choice(["no", "yes", "Yes", None], n).tolist(), pa.string()),
        "grade": rng.choice([1, 2.5, -3, 4, np.nan], n),
        "flag": rng.random(n) < 0.5,
        "x": rng.normal(0.5, 1.5, n).round(1),
        "y": rng.choice([-1, 0, 2.5, 2.6, 5, 9.99, 10, np.inf], n),
        "score": rng.choice([17.5, 20, 22, 27, np.nan], n),
    })  # fmt: skip


@pytest.fixture(scope="session")
def loop():
    """The schema, its blocks, and the loop itself."""
    return SimpleNamespace(
        schema=SCHEMA,
        blocks=blocks_of(SCHEMA),
        blocks_of=blocks_of,
        sums=naive_sums,
        code=code_of,
        random_rows=random_rows,
    )
