"""Kernel sums on a lattice: the public tables, exact sums, and sensitivity against brute force."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.tables import lattice
from dpstats.families.tables.lattice import PEAK, KernelLattice


def columns(*points):
    return tuple(dps.Number(f"x{j}", -3, 5, points=p) for j, p in enumerate(points))


def kernel(u, t, h):
    """The reflected Gaussian kernel."""
    return sum(math.exp(-0.5 * (d / h) ** 2) for d in (u - t, u + t, 2 - u - t))


def random_codes(block, n, seed=0):
    rng = np.random.default_rng(seed)
    return {c.name: rng.integers(-c.half_points, c.half_points + 1, n) for c in block.columns}


def loop(block, codes):
    """Sums by a loop over rows and lattice points, in Python's integers."""
    total = dict.fromkeys(itertools.product(range(block.k + 1), repeat=len(block.columns)), 0)
    for row in zip(*(codes[c.name].tolist() for c in block.columns), strict=True):
        for point in total:
            value = 1
            for i, code, column in zip(point, row, block.columns, strict=True):
                t = Fraction(code + column.half_points, 2 * column.half_points)
                weight = 0.5 if i in (0, block.k) else 1
                value *= round(PEAK * weight * kernel(i / block.k, float(t), block.bandwidth))
            total[point] += value
    return list(total.values())


@pytest.mark.parametrize(
    ("points", "k", "h"),
    [((65,), 20, 0.025), ((5, 9, 17), 3, 0.2), ((5, 5, 5, 5), 2, 0.3)],
)
def test_sums_are_those_of_a_loop(points, k, h):
    block = KernelLattice(columns(*points), k, h)
    codes = random_codes(block, 40)
    assert block.sums(codes).tolist() == loop(block, codes)
    assert block.sums(codes).dtype == np.int64
    evaluated = block.evaluate(codes).average(np.ones(40))
    np.testing.assert_array_equal(block.sums(codes), evaluated)
    assert len(block.names) == len(set(block.names)) == block.size == (k + 1) ** len(points)


def test_chunks_keep_float_sums_below_2_to_the_53(monkeypatch):
    """The limit lowered to seven largest rows: no chunk holds more."""
    block = KernelLattice(columns(9, 9, 9, 9), 3, 0.5)
    codes = random_codes(block, 300)
    exact = block.evaluate(codes).array.astype(object).sum(axis=1).tolist()
    steps = []
    monkeypatch.setattr(lattice, "_EXACT", 7 * block._bound)
    real = KernelLattice._product
    monkeypatch.setattr(
        KernelLattice,
        "_product",
        lambda self, rows, chosen: (steps.append(len(rows["x0"])), real(self, rows, chosen))[1],
    )
    assert block.sums(codes).tolist() == exact
    assert max(steps) == 7


def test_fine_grids_are_seen_at_1025_positions():
    fine, coarse = columns(2**20 + 1)[0], columns(1025)[0]
    codes = np.random.default_rng(0).integers(-(2**19), 2**19 + 1, 2000)
    codes[:2] = -(2**19), 2**19
    nearest = np.floor((codes + 2**19) / 2**10 + 0.5).astype(np.int64) - 512
    assert nearest.min() == -512
    assert nearest.max() == 512
    for k, h in ((20, 0.1), (64, 0.01)):
        mine = KernelLattice((fine,), k, h)
        assert mine.tables[0].shape == (k + 1, 1025)
        np.testing.assert_array_equal(
            mine.sums({"x0": codes}), KernelLattice((coarse,), k, h).sums({"x0": nearest})
        )


SMALL = [
    ((17,), 8, 0.5), ((65,), 20, 0.025), ((9, 9), 4, 0.13), ((5, 9), 3, 0.4), ((5, 5, 5), 4, 0.15),
]  # fmt: skip


@pytest.mark.parametrize(("points", "k", "h"), SMALL)
def test_sensitivity_against_all_pairs_of_rows(points, k, h, rows_of, change_of, monkeypatch):
    if len(points) > 2:  # so that brute force stays within int64
        monkeypatch.setattr(lattice, "PEAK", 2**5)
    block = KernelLattice(columns(*points), k, h)
    rows = rows_of(block.columns)
    assert change_of(block, rows) == block.sensitivity("add_remove")  # exact, both norms
    found, claimed = change_of(block, rows, rows), block.sensitivity("replace")
    once = block.sensitivity("add_remove")
    if len(points) == 1:
        assert found == claimed
    else:
        assert found.l1 <= claimed.l1 == 2 * once.l1
        assert found.l2_squared <= claimed.l2_squared == 2 * once.l2_squared
        if h <= 0.15:  # the bound is close where kernels are narrow
            assert claimed.l1 <= Fraction(13, 10) * found.l1


def test_what_cannot_work_is_refused():
    for made in [
        lambda: KernelLattice((), 4, 0.1), lambda: KernelLattice(columns(*[65] * 5), 2, 0.1),
        lambda: KernelLattice(columns(65) * 2, 2, 0.1),
        lambda: KernelLattice(columns(65), True, 0.1),
        lambda: KernelLattice(columns(65), 65, 0.1),
        lambda: KernelLattice(columns(*[1025] * 3), 64, 0.1),
        lambda: KernelLattice(columns(65), 4, 0.51),
        lambda: KernelLattice(columns(65), 4, "auto"),
        lambda: KernelLattice((dps.Boolean("b"),), 1, 0.1),
        lambda: KernelLattice((dps.Number("v", values=[1, 2]),), 1, 0.1),
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            made()
