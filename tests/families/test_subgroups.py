"""Functions of subgroups: exact sums over complete cases, and what has no sensitivity."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.ball_moments import BallMoments
from dpstats.families.group_moments import TO_MOMENTS, GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.lattice import KernelLattice

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=5, edges=[0], allow_missing=True),
    dps.Number("y", 0, 2, points=3, allow_missing=True),
    dps.Number("z", 0, 1, points=3, missing=0),
    dps.Boolean("b"),
    dps.Category("c", ["one", "two"], allow_missing=True),
])  # fmt: skip


PART = GroupMoments(SCHEMA["x"], (Subgroup.of(SCHEMA, "not b", ["x"]),))


def test_sums_are_those_of_the_complete_cases():
    rng = np.random.default_rng(0)
    codes = {c.name: rng.integers(c.code_range[0], c.code_range[1] + 1, 200) for c in SCHEMA}
    block = Moments.of(SCHEMA, ["x", "y"], given="not b")
    kept = (codes["x"] <= 2) & (codes["y"] <= 1) & (codes["b"] == 0)
    x, y = codes["x"][kept], codes["y"][kept]
    expected = [x.sum(), y.sum(), (x * x).sum(), (x * y).sum(), (y * y).sum(), kept.sum()]
    assert block.sums(codes).tolist() == expected
    parts = PART.sums(codes) / 16
    own = codes["x"][(codes["x"] <= 2) & (codes["b"] == 0)] / 2
    np.testing.assert_allclose(TO_MOMENTS @ parts, [len(own), own.sum(), (own**2).sum()])


PLAIN = GroupMoments.by(SCHEMA["x"], SCHEMA["c"], (0, 2)).to_dict()
B_OR_ONE = (Subgroup.of(SCHEMA, "b", []), Subgroup.of(SCHEMA, "c == 'one'", []))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Moments((SCHEMA["x"],), ((("x", None),),)), "need a value in every row"),
        (lambda: GroupMoments.by(SCHEMA["b"], SCHEMA["c"], (0, 1)), "not a number"),
        (lambda: GroupMoments.by(SCHEMA["x"], SCHEMA["x"], (0, 1)), "own groups"),
        (lambda: GroupMoments.by(SCHEMA["z"], SCHEMA["c"], (1, 0)), "increasing"),
        (lambda: GroupMoments.by(SCHEMA["z"], SCHEMA["c"], (0, 4)), "below 3"),
        (lambda: block_from_dict(PLAIN | {"groups": 2 * PLAIN["groups"]}, SCHEMA), "in common"),
        (lambda: Moments((SCHEMA["z"],), ((),)), "distinct terms"),
        (lambda: BallMoments.of(SCHEMA, ["x", "z"], 0.5), "declare missing= instead"),
        (lambda: KernelLattice((SCHEMA["x"],), 2, 0.2), "declare missing= instead"),
        (lambda: GroupMoments(SCHEMA["x"], (Subgroup.of(SCHEMA, "b", ["y"]),)), "allow_missing"),
        (lambda: Subgroup.of(SCHEMA, "x == '(missing)'", ["x"]), "no row with .* a value of 'x'"),
        (lambda: Subgroup.of(SCHEMA, "b or not b", ["x"]), "always True"),
        (lambda: Subgroup(Subgroup.of(SCHEMA, "b", []).cells, (SCHEMA["z"],)), "in every row"),
        (lambda: GroupMoments(SCHEMA["z"], B_OR_ONE), "without a row in common"),
    ],
)  # fmt: skip
def test_what_would_break_the_sensitivity_is_refused(make, message):
    with pytest.raises(RequestError, match=message):
        make()
