"""The search for two rows: it finds what a comparison of all pairs finds."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.auditing import pairs
from dpstats.auditing.pairs import WEIGHT, Search, sums_of_rows
from dpstats.families.ball_moments import BallMoments
from dpstats.families.group_moments import GroupMoments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import ROWS

SCHEMA = dps.Schema(
    [
        dps.Category("c", ["a", "b"], allow_missing=True),
        dps.Boolean("b"),
        dps.Number("x", -1, 1, points=5, edges=[0, 0.75], missing=0),
        dps.Number("y", 0, 2, points=9, edges=[1], missing=1),
        dps.Number("z", values=[17.5, 22, 27], missing=22),
        dps.Number("m", -1, 1, points=5, edges=[0], allow_missing=True),
    ]
)
VALUES = {  # that cells can have
    "c": ["a", "b", None], "b": [True, False], "x": np.linspace(-1, 1, 5),
    "y": np.linspace(0, 2, 9), "z": [17.5, 22, 27], "m": [-1, -0.5, 0, 0.5, 1, None],
}  # fmt: skip
BLOCKS = [
    dps.Cells.condition(SCHEMA, "b and x < 0"),
    dps.Moments.of(SCHEMA, ["x", "y"], ["c"], 2),
    BallMoments.of(SCHEMA, ["x", "y"], 0.8),
    GroupMoments(SCHEMA["m"], (Subgroup.of(SCHEMA, "m >= 0 or c == 'a'", ["m"]),)),
    ROWS,
]


def search(block, power, replaced):
    rng = np.random.default_rng(3)
    return Search(SCHEMA, [block], [block.bounds], power, replaced, rng)


def values_of_all_rows(block):
    """Sums of every row alone, in units of the bounds, (rows, functions)."""
    used = [column.name for column in block.columns] or ["b"]
    codes = {n: np.unique(SCHEMA[n].encode(pa.array(VALUES[n]))) for n in used} | {WEIGHT: [1]}
    rows = itertools.product(*codes.values())
    alone = ({n: np.array([v]) for n, v in zip(codes, row, strict=True)} for row in rows)
    return np.array([sums_of_rows(block, row) for row in alone]) / block.bounds


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.names[-1])
def test_all_pairs_and_an_ascent_find_the_same(block, monkeypatch):
    values = values_of_all_rows(block)
    for power, replaced in itertools.product((1, 2), (True, False)):
        others = values if replaced else np.zeros((1, block.size))
        expected = max((np.abs(values - other) ** power).sum(axis=1).max() for other in others)
        whole = search(block, power, replaced).farthest()
        assert whole.size == pytest.approx(expected, rel=1e-12)
        assert whole.every
        if block.size > 1:
            with monkeypatch.context() as patch:
                patch.setattr(pairs, "_MOST_ROWS", 4)  # rows to start from
                searched = search(block, power, replaced).farthest()
            assert not searched.every
            assert searched.size == pytest.approx(expected, rel=1e-12)
