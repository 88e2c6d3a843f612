"""Section E: sensitivities against brute force and search over pairs of rows."""

import itertools

import numpy as np
import pytest

import dpstats as dps
from dpstats.families import block_from_dict

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


def moments(numbers, groups=(), degree=2):
    return dps.Moments.of(SCHEMA, numbers, groups, degree)


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
