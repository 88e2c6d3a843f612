"""Section E: sensitivities against brute force and search over pairs of rows."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families import block_from_dict
from dpstats.families.ball_moments import BallMoments
from dpstats.families.group_moments import GroupMoments
from dpstats.families.subgroups import Subgroup

SCHEMA = dps.Schema(
    [
        dps.Category("c", ["a", "b"], allow_missing=True),
        *(dps.Boolean(name) for name in "bd"),
        dps.Number("x", -1, 1, points=5, edges=[0, 0.75], missing=0),
        dps.Number("y", 0, 2, points=3, edges=[1], missing=1),
        dps.Number("z", values=[17.5, 22, 27], missing=22),
        dps.Number("m", -1, 1, points=5, edges=[0], allow_missing=True),
    ]
)


def table(*columns):
    return dps.Cells.table(SCHEMA, list(columns))


def moments(numbers, groups=(), degree=2):
    return dps.Moments.of(SCHEMA, numbers, groups, degree)


def clipped(numbers, norm=0.8, **options):
    return BallMoments.of(SCHEMA, numbers, norm, **options)


def group_moments(name, given=None):
    return GroupMoments(SCHEMA[name], (Subgroup.of(SCHEMA, given, [name]),))


SUBGROUPS = [
    group_moments("m"), group_moments("y", "b"), group_moments("m", "m >= 0 or c == 'a'"),
    moments(["m"]), moments(["m", "y"]), dps.Moments.of(SCHEMA, ["x", "y"], given="b"),
    dps.Moments.of(SCHEMA, ["m"], ["c"], given="d"),
]  # fmt: skip


def test_p49_p51_functions_of_subgroups():
    """Rows outside, rows without a value, and rows that enter or leave; exact for numbers alone."""
    for block in SUBGROUPS:
        l1, l2 = brute_force(block)
        claimed = block.sensitivity("replace")
        assert l1 <= claimed.l1
        assert l2 <= claimed.l2_squared
        values, bounds = values_of(block)
        added = [norms(value, bounds) for value in values]
        removed = block.sensitivity("add_remove")
        assert max(a for a, _ in added) <= removed.l1
        assert max(b for _, b in added) <= removed.l2_squared
        if "c" not in {name for term in getattr(block, "terms", ()) for name, _ in term}:
            assert (l1, l2) == (claimed.l1, claimed.l2_squared)


def test_p49_claims_are_what_brute_force_finds_where_they_are_exact():
    for block in (table("c"), table("c", "x"), dps.Cells.condition(SCHEMA, "b or d"),
                  moments(["x"]), moments(["x", "y"]), moments(["x", "y"], degree=1),
                  clipped(["x"]), clipped(["x", "y"]),
                  clipped(["x", "y", "z"], 1.5, center={"z": 18})):  # fmt: skip
        l1, l2 = brute_force(block)
        claimed = block.sensitivity("replace")
        assert l1 <= claimed.l1
        assert l2 <= claimed.l2_squared
        if not isinstance(block, dps.Moments | BallMoments):
            assert (l1, l2) == (claimed.l1, claimed.l2_squared)


def values_of(block):
    """Values f = g / B of all functions at every row, (rows, d) of integers g, and B."""
    names = [column.name for column in block.columns]
    ranges = [range(c.code_range[0], c.code_range[1] + 1) for c in block.columns]
    rows = list(itertools.product(*ranges))
    values = np.stack(
        [
            block.sums({n: np.array([v]) for n, v in zip(names, row, strict=True)})
            for row in rows
        ]
    )  # fmt: skip
    low, high = block.ranges
    return values, np.maximum(abs(low), abs(high))


def norms(change, bounds):
    exact = [Fraction(abs(c), b) for c, b in zip(change.tolist(), bounds.tolist(), strict=True)]
    return sum(exact, Fraction(0)), sum((e * e for e in exact), Fraction(0))


def brute_force(block):
    """Largest l1 and squared l2 norm over all pairs of rows, in integers of any size."""
    values, bounds = values_of(block)
    changes = {tuple(np.abs(a - b).tolist()) for a, b in itertools.combinations(values, 2)}
    common = math.lcm(*bounds.tolist())
    scaled = np.array(list(changes), dtype=object) * [common // b for b in bounds.tolist()]
    l1, l2 = scaled.sum(axis=1).max(), (scaled**2).sum(axis=1).max()
    return Fraction(l1, common), Fraction(l2, common**2)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("p", "groups"), [(6, 0), (4, 2), (10, 1)])
def test_p50_random_and_coordinate_ascent_search_for_larger_p(p, groups, seed):
    rng = np.random.default_rng(seed)
    numbers = [dps.Number(f"x{i}", 0, 1, points=9, missing=0) for i in range(p)]
    others = [dps.Category(f"g{i}", ["a", "b", "c"]) for i in range(groups)]
    schema = dps.Schema([*numbers, *others])
    block = dps.Moments.of(schema, [c.name for c in numbers], [c.name for c in others])
    low, high = block.ranges
    bounds = np.maximum(abs(low), abs(high))
    claimed = block.sensitivity("replace")

    def difference(pair):
        sums = [block.sums({c.name: row[[i]] for i, c in enumerate(schema)}) for row in pair]
        return (sums[0] - sums[1]) / bounds

    best = [0.0, 0.0]
    for power in (1, 2):
        for _ in range(6):
            pair = np.array([[rng.integers(c.code_range[0], c.code_range[1], endpoint=True)
                              for c in schema] for _ in range(2)])  # fmt: skip
            size = np.sum(np.abs(difference(pair)) ** power)
            improved = True
            while improved:
                improved = False
                for side, (i, column) in itertools.product((0, 1), enumerate(schema)):
                    for code in range(column.code_range[0], column.code_range[1] + 1):
                        before, pair[side, i] = pair[side, i], code
                        new = np.sum(np.abs(difference(pair)) ** power)
                        if new > size + 1e-12:
                            size, improved = new, True
                        else:
                            pair[side, i] = before
            best[power - 1] = max(best[power - 1], size)
    assert best[0] <= float(claimed.l1) + 1e-9
    assert best[1] <= float(claimed.l2_squared) + 1e-9
    assert best[0] > 0.75 * claimed.l1  # the search comes near, so it would notice a bug
    assert best[1] > 0.6 * claimed.l2_squared


def test_p51_both_neighbour_relations():
    for block in [table("c", "b"), dps.Cells.condition(SCHEMA, "c == 'a'"), moments(["x", "y"]),
         moments(["x"], ["c"]), moments(["z"], degree=1), clipped(["x", "y", "z"]),
         clipped(["y", "z"], 0.5, scale={"z": 20})]:  # fmt: skip
        values, bounds = values_of(block)
        added = [norms(value, bounds) for value in values]
        l1, l2 = brute_force(block)
        for unit, most in (
            ("replace", (l1, l2)),
            ("add_remove", (max(a for a, _ in added), max(b for _, b in added))),
        ):
            claimed = block.sensitivity(unit)
            assert most[0] <= claimed.l1
            assert most[1] <= claimed.l2_squared


def test_p63_a_plan_file_that_repeats_functions_is_refused(asking):
    plain = dps.plan(
        SCHEMA, {"m": asking(moments(["x", "y"]))}, budget=dps.PureDP(1)
    ).blocks[0].block.to_dict()  # fmt: skip
    assert block_from_dict(plain, SCHEMA) == moments(["x", "y"])
    x, y, a = ["x", None], ["y", None], ["c", 0]
    for terms in (
        [*plain["terms"], [x]],  # one function twice
        [*plain["terms"], [y, x]],  # a product in another order
        [[x, y, y], [y, x, y]],  # of three numbers too
        [[x, y, y], [x, y, y]],
        [[["c", None]]],  # a category is not a number
        [[["c", 7]]],
        [[["x", 7]]],
        [[["x", 0], ["x", 1]]],  # two bins of one number
        [[]],
        [],
    ):
        with pytest.raises(dps.RequestError, match="distinct terms"):
            block_from_dict(plain | {"terms": terms}, SCHEMA)
    for terms in ([[a, a]], [[a, ["c", 1]]]):
        with pytest.raises(dps.RequestError, match="distinct terms"):
            block_from_dict({"kind": "moments", "terms": terms}, SCHEMA)
    longer = block_from_dict(plain | {"terms": [*plain["terms"], [x, y, y]]}, SCHEMA)
    claimed, whole = (b.sensitivity("replace") for b in (longer, moments(["x", "y"])))
    assert (claimed.l1, claimed.l2_squared) == (whole.l1 + 2, whole.l2_squared + 4)
