"""Kernel sums on a lattice: the public tables, exact sums, and sensitivity against brute force."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.tables import lattice
from dpstats.families.tables.lattice import KernelLattice


def columns(*points):
    return tuple(dps.Number(f"x{j}", -3, 5, points=p) for j, p in enumerate(points))


def products(block, codes):
    """Reflected Gaussian kernels at the lattice, in units of their peak, multiplied."""
    u, values = np.arange(block.k + 1)[:, None] / block.k, np.ones((1, 1), np.int64)
    weight = np.where((u == 0) | (u == 1), 0.5, 1)
    for column in block.columns:
        t = (codes[column.name] + column.half_points) / (2 * column.half_points)
        kernels = sum(np.exp(-0.5 * (d / block.bandwidth) ** 2) for d in (u - t, u + t, 2 - u - t))
        own = np.rint(lattice.PEAK * weight * kernels).astype(np.int64)
        values = (values[:, None] * own).reshape(-1, len(t))
    return values


@pytest.mark.parametrize(("points", "k", "h"), [
    ((17,), 8, 0.5), ((65,), 20, 0.025), ((9, 9), 4, 0.13), ((5, 9), 3, 0.4), ((5, 5, 5), 4, 0.15),
])  # fmt: skip
def test_sums_and_sensitivity_are_those_of_all_rows(points, k, h, rows_of, change_of, monkeypatch):
    if len(points) > 2:  # so that brute force stays within int64
        monkeypatch.setattr(lattice, "PEAK", 2**5)
    block = KernelLattice(columns(*points), k, h)
    rows = rows_of(block.columns)
    values = products(block, rows)
    np.testing.assert_array_equal(block.functions(rows), values)
    assert block.sums(rows).tolist() == values.sum(axis=1).tolist()
    assert len(block.names) == len(set(block.names)) == block.size == (k + 1) ** len(points)
    once = block.sensitivity("add_remove")
    assert change_of(block, rows) == once  # exact, both norms
    found, claimed = change_of(block, rows, rows), block.sensitivity("replace")
    if len(points) == 1:
        assert found == claimed
        return
    assert found.l1 <= claimed.l1 == 2 * once.l1
    assert found.l2_squared <= claimed.l2_squared == 2 * once.l2_squared
    assert h > 0.15 or claimed.l1 <= 1.3 * found.l1  # the bound is close where kernels are narrow


def test_chunks_keep_float_sums_below_2_to_the_53(monkeypatch):
    """The limit lowered to seven largest rows: no chunk holds more."""
    block = KernelLattice(columns(9, 9, 9, 9), 3, 0.5)
    rng = np.random.default_rng(0)
    codes = {c.name: rng.integers(-c.half_points, c.half_points + 1, 300) for c in block.columns}
    exact = block.evaluate(codes).array.astype(object).sum(axis=1).tolist()
    steps, real = [], KernelLattice._product

    def product(self, rows, chosen):
        steps.append(len(rows["x0"]))
        return real(self, rows, chosen)

    monkeypatch.setattr(lattice, "_EXACT", 7 * block._bound)
    monkeypatch.setattr(KernelLattice, "_product", product)
    assert block.sums(codes).tolist() == exact
    assert max(steps) == 7


def test_fine_grids_are_seen_at_1025_positions():
    fine, coarse = columns(2**20 + 1)[0], columns(1025)[0]
    codes = np.random.default_rng(0).integers(-(2**19), 2**19 + 1, 2000)
    codes[:2] = -(2**19), 2**19
    nearest = np.floor((codes + 2**19) / 2**10 + 0.5).astype(np.int64) - 512
    assert (nearest.min(), nearest.max()) == (-512, 512)
    for k, h in ((20, 0.1), (64, 0.01)):
        mine = KernelLattice((fine,), k, h)
        assert mine.tables[0].shape == (k + 1, 1025)
        np.testing.assert_array_equal(
            mine.sums({"x0": codes}), KernelLattice((coarse,), k, h).sums({"x0": nearest})
        )


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
