"""Moments of clipped rows: exact integers inside the ball, and a sensitivity brute force keeps."""

import math
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.ball_moments import RADIUS, BallMoments

SCHEMA = dps.Schema([
    dps.Number("age", 0, 100, points=201, missing=40),
    dps.Number("pay", -10, 30, points=401, missing=0),
    dps.Number("score", values=[0, 1, 2, 5], missing=0),
])  # fmt: skip
CENTER, SCALE = {"age": 45, "pay": 2.5}, {"age": 15, "pay": 5.7}
BLOCK = BallMoments.of(SCHEMA, ["pay", "age", "score"], 2.1, CENTER, SCALE)


def naive(block, codes):
    """Rows y and whether they were shrunk, in fractions: nearest integers, then towards zero."""
    found, shrunk = [], []
    for row in zip(*(codes[number.name].tolist() for number in block.numbers), strict=True):
        y = []
        for code, number, center, scale in zip(
            row, block.numbers, block.center, block.scale, strict=True
        ):
            low, high = Fraction(str(number.low)), Fraction(str(number.high))
            value = (low + high) / 2 + code * (high - low) / (number.points - 1)
            z = (value - center) / (scale * block.clip_norm) * RADIUS
            y.append(math.floor(z + Fraction(1, 2)))
        square = sum(v * v for v in y)
        shrunk.append(square > RADIUS**2)
        if shrunk[-1]:
            norm = math.isqrt(square - 1) + 1  # rounded up
            y = [abs(v) * RADIUS // norm * (1 if v > 0 else -1) for v in y]
        found.append(y)
    return np.array(found), np.array(shrunk)


def random_block(p, rng):
    """Of p numbers with any bounds, centers and scales."""
    names, low = [f"x{i}" for i in range(p)], rng.integers(-50, 50, p)
    high, points = low + rng.integers(1, 1_000, p) / 10, 2 * rng.integers(1, 600, p) + 1
    schema = dps.Schema([
        dps.Number(name, *map(float, bounds), int(k), missing=float(bounds[0]))
        for name, k, *bounds in zip(names, points, low, high, strict=True)
    ])  # fmt: skip
    center = dict(zip(names, rng.uniform(low, high), strict=True))
    scale = dict(zip(names, rng.uniform(1, 200, p), strict=True))
    return BallMoments.of(schema, names, rng.uniform(0.2, 4), center, scale)


@pytest.mark.parametrize("p", [None, 1, 2, 3, 4, 5])
def test_functions_are_those_of_rows_in_fractions_which_never_leave_the_ball(p):
    rng = np.random.default_rng(p)
    block = BLOCK if p is None else random_block(p, rng)
    codes = {c.name: rng.choice(c.codes_in_use, 200) for c in block.numbers}
    y = block.rows(codes)
    assert np.all((y * y).sum(axis=0) <= RADIUS**2)
    reference, shrunk = naive(block, {name: array[:20] for name, array in codes.items()})
    np.testing.assert_array_equal(y[:, :20], reference.T)
    assert block is not BLOCK or 0 < shrunk.sum() < 20
    values = block.evaluate(codes).matrix().toarray()
    i, j = np.triu_indices(len(y))
    np.testing.assert_array_equal(values[:-1], [*y, *(y[i] * y[j])])
    np.testing.assert_array_equal(values[-1, :20], shrunk)
    low, high = block.ranges
    assert np.all((values >= low[:, None]) & (values <= high[:, None]))
    assert np.all(np.abs(values) <= block.bounds[:, None])


@pytest.mark.parametrize(
    ("p", "half_points", "clip_norm"),
    [(1, 40, 0.6), (2, 9, 0.5), (2, 6, 1.41), (3, 3, 0.5), (3, 2, 1.0), (4, 2, 0.8)],
)
def test_no_pair_of_rows_of_a_whole_grid_passes_the_claim(
    p, half_points, clip_norm, rows_of, change_of
):
    points = 2 * half_points + 1
    schema = dps.Schema([dps.Number(f"x{i}", -1, 1, points=points, missing=0) for i in range(p)])
    for moved in ({}, {"center": {"x0": 0.4}, "scale": {"x0": 0.3}}):
        block = BallMoments.of(schema, schema.names, clip_norm, **moved)
        rows = rows_of(block.numbers)
        for unit, others, near in (("replace", rows, 0.9), ("add_remove", None, 0.97)):
            found, claimed = change_of(block, rows, others), block.sensitivity(unit)
            assert found.l1 <= claimed.l1
            assert found.l2_squared <= claimed.l2_squared
            if p > 1 and not moved and clip_norm < 1:
                assert found.l1 > near * claimed.l1
                assert found.l2_squared > 0.96 * claimed.l2_squared
