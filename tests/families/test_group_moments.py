"""Moments within groups: exact sums, the moments they give, and the sensitivity by brute force."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.group_moments import TO_MOMENTS, GroupMoments
from dpstats.families.moments import Moments

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
