"""Moments within groups: exact sums, the moments they give, and the sensitivity by brute force."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.group_moments import TO_MOMENTS, GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup

SCHEMA = dps.Schema([
    dps.Number("pay", -10, 30, points=41, missing=0), dps.Number("bare", 0, 1),
    dps.Category("region", ["n", "s", "w", "e"]),
    dps.Number("age", 0, 100, points=11, edges=[40], missing=0),
])  # fmt: skip
BLOCK = GroupMoments.by(SCHEMA["pay"], SCHEMA["region"], (0, 2))


def rows(n=300):
    rng = np.random.default_rng(0)
    return {"pay": rng.integers(-20, 21, n), "region": rng.integers(0, 4, n)}


def test_sums_give_size_sum_and_squares_of_each_group():
    codes = rows()
    sums = BLOCK.sums(codes)
    assert sums.dtype == np.int64
    np.testing.assert_array_equal(BLOCK.evaluate(codes).average(np.ones(300)), sums)
    for i, level in enumerate((0, 2)):
        x = codes["pay"][codes["region"] == level] / 20
        found = TO_MOMENTS @ sums[3 * i : 3 * i + 3] / (4 * 20**2)
        np.testing.assert_allclose(found, [len(x), x.sum(), np.sum(x**2)], rtol=1e-12)


def test_the_sensitivity_within_a_condition_is_the_same(rows_of, change_of):
    number = dps.Number("x", 0, 1, points=5, allow_missing=True)
    schema = dps.Schema([number, *SCHEMA])
    given = Subgroup.of(schema, "age >= 40", ["x"])
    block = GroupMoments.by(number, SCHEMA["region"], (0, 1, 3), given)
    assert block.names[0] == "x low, region=n, age >= 40 and x answered"
    assert block_from_dict(block.to_dict(), schema) == block
    every = rows_of(block.columns)
    assert change_of(block, every, every) == block.sensitivity("replace")
    assert change_of(block, every) == block.sensitivity("add_remove")
    inside = (every["age"] >= -1) & (every["region"] == 3) & (every["x"] <= 2)
    parts = block.evaluate(every).matrix().toarray()[6:].sum(axis=0)
    np.testing.assert_array_equal(parts, 4 * 2**2 * inside)


def test_size_sum_and_squares_would_cost_three_times_as_much(rows_of, change_of):
    number = dps.Number("x", 0, 1, points=5, missing=0)
    every = rows_of((number, SCHEMA["region"]))
    unit = every["x"] / 2
    x = np.stack([np.ones_like(unit), unit, unit**2])
    plain = np.concatenate([x * (every["region"] == i) for i in range(4)])
    change = np.abs(plain[:, :, None] - plain[:, None, :]).sum(axis=0).max()
    assert change == 3 * 2


def test_groups_are_found_in_a_larger_block_and_left_out():
    one = GroupMoments.by(SCHEMA["pay"], SCHEMA["region"], (2, 3))
    codes = rows()
    derivation = BLOCK.derive(one)
    assert derivation.terms.tolist() == [1, 1, 1, 0, 0, 0]
    np.testing.assert_array_equal(derivation.apply(BLOCK.sums(codes), 300)[:3], one.sums(codes)[:3])
    kept = np.array([False, False, False, True, False, False])
    assert BLOCK.restrict(kept) == GroupMoments.by(SCHEMA["pay"], SCHEMA["region"], (2,))
    assert BLOCK.derive(GroupMoments.by(SCHEMA["pay"], SCHEMA["region"], (1,))) is None
    assert BLOCK.derive(GroupMoments.by(SCHEMA["age"], SCHEMA["region"], (0,))) is None
    assert BLOCK.derive(Moments.of(SCHEMA, ["pay"])) is None


def test_plain_form_and_names():
    assert block_from_dict(BLOCK.to_dict(), SCHEMA) == BLOCK
    assert BLOCK.names[:2] == ["pay low, region=n", "pay middle, region=n"]
    assert len(set(BLOCK.names)) == BLOCK.size == 6


def test_a_group_listed_twice_in_a_file_is_refused():
    plain = BLOCK.to_dict()
    with pytest.raises(RequestError, match="without a row in common"):
        block_from_dict({**plain, "groups": [*plain["groups"], plain["groups"][0]]}, SCHEMA)


def test_bad_requests():
    for number, group, levels, message in [
        ("region", "age", (0, 1), "not a number"),
        ("bare", "region", (0, 1), "missing="),
        ("age", "age", (0, 1), "own groups"),
        ("pay", "region", (1, 0), "increasing"),
        ("pay", "region", (0, 0), "increasing"),  # a row would move both copies of its level
        ("pay", "region", (0, 4), "below 4"),
        ("pay", "region", (), "increasing"),
    ]:
        with pytest.raises(RequestError, match=message):
            GroupMoments.by(SCHEMA[number], SCHEMA[group], levels)
