"""Sets of cells that follow from tables and from finer sets, and in another basis."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.families.tables.cells import Cells, Partition

SCHEMA = dps.Schema(
    [dps.Category("a", ["x", "y", "z"]), dps.Boolean("b"), dps.Category("c", ["p", "q", "r", "s"])]
)
A, B, C = SCHEMA


def partition(columns, number):
    """Sets of the cells with each number; -1 is in none."""
    number = np.asarray(number).reshape([column.bins for column in columns])
    return Partition.of(columns, {f"set {i}": number == i for i in range(number.max() + 1)})


@pytest.fixture
def codes():
    rng = np.random.default_rng(0)
    return {"a": rng.integers(0, 3, 500), "b": rng.integers(0, 2, 500),
            "c": rng.integers(0, 4, 500)}  # fmt: skip


@pytest.mark.parametrize("columns", [(A, B), (B, A), (C, A)])
def test_sums_are_those_of_the_functions(codes, columns):
    rng = np.random.default_rng(1)
    number = rng.permutation(np.arange(np.prod([c.bins for c in columns])) % 4 - 1)
    block = partition(columns, number)
    for one in (block, partition(columns, np.minimum(number, 1)).rotate()):
        np.testing.assert_array_equal(one.sums(codes), one.functions(codes).sum(axis=1))


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a")])
def test_sets_follow_from_tables_in_any_order(codes, order):
    table = Cells.table(SCHEMA, order)
    wanted = partition((B, A), [0, 1, -1, 2, 1, 0])
    found = table.derive(wanted, complements=False).apply(table.sums(codes), 500)
    np.testing.assert_array_equal(found, wanted.sums(codes))


def test_unions_follow_from_finer_sets(codes):
    fine = partition((A, B, C), np.arange(24) % 6)
    coarse = partition((C, A, B), np.transpose(np.arange(24).reshape(3, 2, 4) % 6 // 2, (2, 0, 1)))
    found = fine.derive(coarse, complements=False)
    assert found.terms.tolist() == [2, 2, 2]
    np.testing.assert_array_equal(found.apply(fine.sums(codes), 500), coarse.sums(codes))


def test_sets_that_are_no_unions_do_not_follow():
    fine = partition((A, B), [0, 0, 1, 1, 2, 2])
    assert fine.derive(partition((A, B), [0, 1, 0, 1, 0, 1])) is None
    assert fine.derive(partition((C,), [0, 1, 1, 0])) is None
    some = fine.derive(partition((A, B), [0, 0, 1, 2, 1, 1]))
    assert some.terms.tolist() == [1, 0, 0]
    half = partition((A, B), [0, 0, 0, -1, 1, 1])  # a set as large as one that it is no part of
    assert half.derive(partition((A, B), [0, 0, 1, 0, -1, -1])) is None
    outside = partition((A, B), [-1, 0, 1, 1, 2, 2]).derive(partition((A, B), [0, 0, 1, 1, 2, 2]))
    assert outside.terms.tolist() == [0, 1, 1]  # a cell of the first is in no set


def test_two_sets_settle_each_other_in_any_order(codes):
    one, other = partition((A,), [0, 1, 1]), partition((A,), [1, 0, 0])
    assert one.rotate().settles(one)
    assert one.rotate().settles(other)
    assert not one.rotate().settles(partition((A,), [0, 0, 1]))
    schema = dps.Schema([A], design=dps.Design("w", mean=1, cap=1, unit="u", units=list(range(8))))
    asked = {"x": dps.Proportion("a == 'x'"), "others": dps.Proportion("a != 'x'")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1e9), n=100)
    assert len(plan.blocks) == 1
    rows = pd.DataFrame(
        {"a": ["x", "y", "z", "z"] * 25, "w": [1.0] * 100, "u": list(range(4)) * 25}
    )
    release = dps.release(plan, rows, rng=0, m=2, k=5)
    shares = [float(release.infer(name)) for name in asked]
    np.testing.assert_allclose(shares, [0.25, 0.75], rtol=1e-8)
