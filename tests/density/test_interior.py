"""The interior point method: its equations, its end, and candidates that join."""

import numpy as np
import pytest

from dpstats.density import interior
from dpstats.density.interior import start, step
from dpstats.density.products import Products
from dpstats.families.block import FamilyValues
from dpstats.families.tables.cells import DenseValues


def program(points, seed=0, functions=10):
    """Functions at some points, and a target out of reach."""
    rng = np.random.default_rng(seed)
    array = rng.uniform(-1, 1, (functions, points))
    values = FamilyValues((DenseValues(array),), np.ones(functions, np.int64))
    return array, Products(values, np.ones(functions)), rng.uniform(-1, 1, functions)


def lacks(array, target, at):
    """By how much the equations fail."""
    misfit = array @ at.weights - target
    return np.concatenate([
        at.largest - misfit - at.over,
        at.largest + misfit - at.under,
        at.level - array.T @ at.y - at.excess,
        [1 - at.weights.sum(), 1 - (at.u + at.v).sum()],
    ])  # fmt: skip


def positive(at):
    return all(np.all(x > 0) for x in (at.weights, at.over, at.under, at.u, at.v, at.excess))


def test_it_starts_inside_and_ends_at_the_optimum():
    array, products, target = program(40)
    at = start(products, target)
    np.testing.assert_allclose(lacks(array, target, at), 0, atol=1e-12)
    assert positive(at)
    for _ in range(25):
        at = step(products, target, at, 1e-12)
        assert positive(at)
    np.testing.assert_allclose(lacks(array, target, at), 0, atol=1e-9)
    assert at.mu < 1e-11
    dual = target @ at.y - (array.T @ at.y).max()
    assert at.largest == pytest.approx(np.abs(array @ at.weights - target).max(), abs=1e-8)
    assert dual == pytest.approx(at.largest, abs=1e-8)


def test_equations_hold_ever_better_near_the_aim(monkeypatch):
    """Also where every system is solved roughly: then t is no less than the misfit of weights."""
    for joint in [3, 30]:
        monkeypatch.setattr(interior, "EXACT", 0)
        monkeypatch.setattr(interior, "JOINT", joint)
        array, products, target = program(200, functions=60)
        at = start(products, target)
        for _ in range(25):
            at = step(products, target, at, 1e-6)
        np.testing.assert_allclose(lacks(array, target, at), 0, atol=1e-12)
        assert at.mu == pytest.approx(1e-6)
        assert np.abs(array @ at.weights - target).max() <= at.largest


def test_candidates_join_between_steps():
    """Also those that violate the dual: the next steps mend the equations."""
    array, products, target = program(60)
    few = FamilyValues((DenseValues(array[:, :20]),), np.ones(10, np.int64))
    at = start(Products(few, np.ones(10)), target)
    for _ in range(3):
        at = step(Products(few, np.ones(10)), target, at, 1e-12)
    excess = at.level - array[:, 20:].T @ at.y
    assert excess.min() < 0
    joined = at.joined(excess)
    assert positive(joined)
    assert joined.mu == pytest.approx(at.mu)
    for _ in range(25):
        joined = step(products, target, joined, 1e-12)
    np.testing.assert_allclose(lacks(array, target, joined), 0, atol=1e-9)
    assert joined.largest < at.largest - 1e-3
