"""Every kind of block: its sensitivity by brute force, sums of its functions, ranges and files."""

import itertools
import json
import pickle

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.regression.design_moments import Design, DesignMoments
from dpstats.families import KINDS, block_from_dict
from dpstats.families.ball_moments import BallMoments
from dpstats.families.contrasts import UNIT, Contrasts
from dpstats.families.group_moments import GroupMoments, PairMoments
from dpstats.families.losses.linear import LinearLosses
from dpstats.families.moments import Moments, fourth_moments_of_pairs, third_and_fourth_powers
from dpstats.families.pilot_score import PilotScore
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import ROWS, Partition
from dpstats.families.tables.inside_bins import BinOffsets, SplineTable, knots_of
from dpstats.families.tables.lattice import KernelLattice
from dpstats.families.tables.residuals import Residual
from dpstats.privacy.neighbours import Neighbours, Sensitivity
from dpstats.schema.design import UNPAIRED

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=5, edges=[0], missing=0),
    dps.Number("y", 0, 2, points=3, edges=[1], missing=1),
    dps.Number("v", 0, 4, points=5, missing=0),
    dps.Number("m", -1, 1, points=5, edges=[0], allow_missing=True),
    dps.Number("w", 0, 2, points=3, allow_missing=True),
    dps.Number("fine", -1, 1, points=1001, missing=0),
    dps.Category("c", ["a", "b", "z"]), dps.Category("g", ["one", "two"], allow_missing=True),
    dps.Boolean("b"), dps.Boolean("d"),
])  # fmt: skip
X, Y, M, W = (("x", None), ("y", None), ("m", None), ("w", None))
SURVEY = dps.Schema(SCHEMA.columns, design=dps.Design(
    "weight", mean=1, cap=2, strata="h", unit="u", units={"n": [1, 2, 3, 4], "s": [5, 6, 7]},
))  # fmt: skip
SQUARE, LINE = {"Intercept": (0, 2, 3), "x": (-1, 1, 3)}, {"m": (0, 2, 3)}


def absolute(row, at):
    return np.abs(row["y"] - at["m"]) * (1 + (row["b"] == "true"))


def moments(*numbers, **options):
    return Moments.of(SCHEMA, numbers, **options)


def design(formula):
    blocks = DesignMoments(SCHEMA, Design.of(formula, SCHEMA)).blocks
    return {f"{formula} {i}": block for i, block in enumerate(blocks)}


def partition(*conditions):
    sets = [dps.Cells.condition(SCHEMA, text).cells for text in conditions]
    (columns,) = {cells.columns for cells in sets}
    return Partition.of(columns, {t: c.array for t, c in zip(conditions, sets, strict=True)})


def splines(*names, given=None):
    axes = tuple(SCHEMA[name] for name in names)
    knots = {c.name: knots_of(c) for c in axes if isinstance(c, dps.Number)}
    return SplineTable(axes, tuple(map(knots.get, names)), Subgroup.of(SCHEMA, given, knots))


TWO = partition("b and c == 'a'", "not b and c == 'a'")
EXACT = {  # in both norms, under both relations
    "table": dps.Cells.table(SCHEMA, ["c", "x"]),
    "condition": dps.Cells.condition(SCHEMA, "b or x < 0"),
    "moments of one number": moments("x"),
    "moments of the complete cases": moments("m", "w"),
    "first moments and groups": moments("x", groups=["c"], degree=1),
    "products over two groups": Moments.of_terms(SCHEMA, [(X, Y, ("c", 1)), (X, Y, ("b", 1))]),
    "a product and its group": Moments.of_terms(SCHEMA, [(X, Y), (X, Y, ("c", 1))]),
    "groups": GroupMoments.by(SCHEMA["x"], SCHEMA["c"], (0, 2)),
    "another of the groups": GroupMoments.by(SCHEMA["x"], SCHEMA["c"], (1, 2)),
    "groups in a condition": GroupMoments.by(
        SCHEMA["m"], SCHEMA["c"], (0, 1), Subgroup.of(SCHEMA, "b or y >= 1", ["m"])
    ),
    "pairs of numbers": PairMoments((SCHEMA["y"], SCHEMA["v"]), (Subgroup.of(SCHEMA, "b", "y"),)),
    "pairs in groups": dps.Ratio("w", "y", by="c", given="b").family(SCHEMA).blocks[0],
    "a mean in a group": GroupMoments(SCHEMA["y"], (Subgroup.of(SCHEMA, "b", ["y"]),)),
    "offsets with a missing level": BinOffsets.of(SCHEMA, ["g", "m"], "m"),
    "losses": LinearLosses.of(SCHEMA, dps.HuberLoss(1.5), "y ~ x", SQUARE),
    "losses of a level": LinearLosses.of(SCHEMA, dps.LogisticLoss(), "b ~ x", SQUARE),
    "tabulated losses": dps.TabulatedLoss.of(SCHEMA, ["y", "b"], LINE, absolute).losses,
    "sets": partition("c == 'a' and x < 0", "c == 'b' and x < 0", "c == 'a' and x >= 0"),
    "all sets": partition("c == 'a'", "c == 'b'", "c == 'z'"),
    "two sets, rotated": TWO.rotate(),
    "contrasts of rotated sets": Contrasts(TWO.rotate(), (2, 2), (1, 1)),
    "contrasts of a table": Contrasts(dps.Cells.table(SCHEMA, ["c", "x"]), (2, 1), (1, 1)),
    "contrasts of moments": Contrasts(moments("x"), (2, 2), (1, 1)),
    "splines of two numbers": splines("x", "y", "b"),
    "splines in a condition": splines("m", "c", given="b or c == 'a'"),
    "contrasts of splines": Contrasts(splines("x", "b"), (2, 2), (1, 1)),
}  # fmt: skip
BOUNDED = {
    "moments": moments("x", "y"),
    "moments and a binned group": moments("y", groups=["x", "c"]),
    "complete cases of a subgroup": moments("m", "x", given="b or m >= 0"),
    "complete cases with levels": moments("w", "y", groups=["g"], given="b"),
    "coarse powers": third_and_fourth_powers(SCHEMA, ["fine"]),
    "coarse pairs": fourth_moments_of_pairs(SCHEMA, ["x", "y", "w"], Subgroup.of(SCHEMA, "b", "w")),
    "coarse moments of the complete cases": Moments.of_terms(
        SCHEMA, [(M,) * 3, (M,) * 4, (M, M, W)], True, Subgroup.of(SCHEMA, None, ["m", "w"])
    ),
    "HC1": dps.OLS("y ~ x + b", cov_type="HC1").family(SCHEMA).blocks[-1],
    "clipped": BallMoments.of(SCHEMA, ["x", "y"], 0.8),
    "clipped more": BallMoments.of(SCHEMA, ["x", "y"], 0.5),
    "clipped off the middle": BallMoments.of(SCHEMA, ["x", "y"], 0.8, {"x": 0.4}, {"x": 0.3}),
    "lattice": KernelLattice((SCHEMA["x"],), 3, 0.2),
    "residual": Residual((SCHEMA["c"], SCHEMA["b"])),
    "score": PilotScore.of(SCHEMA, [(), (("d", 1),)], ("b", 1), "logit").at(np.array([9.0, -30])),
    "score of a line": PilotScore.of(SCHEMA, [(), (X,)], ("y", None), "identity").at(
        np.array([0.1, -9.0]), 0.4
    ),
    "splines of a fine number": splines("fine"),
    "contrasts of a score of counts": Contrasts(PilotScore.of(
        SCHEMA, [(), (X,), (("d", 1),)], ("v", None), "log").at(np.array([0.5, -2, 9])), (2, 1),
        (1, 1)),
    **design("y ~ x*v"), **design("y ~ x:b + b"), **design("b ~ x*c + y"),
}  # fmt: skip
BLOCKS = EXACT | BOUNDED


def units_of(block):
    """All codes of units, of contrasts: either sign in every pair, and those in none."""
    contrasts = isinstance(block, Contrasts)
    return range(UNPAIRED, 2 * (block.pairs[0] + block.triples[0])) if contrasts else None


def part_of(block):
    """At least its last function."""
    return block.restrict(np.arange(block.size) == block.size - 1)


def test_every_kind_is_here():
    of_persons = {"person_shares", "person_moments"}  # see persons/
    assert {block.kind for block in BLOCKS.values()} == KINDS.keys() - of_persons


@pytest.mark.parametrize("name", BLOCKS)
def test_no_pair_of_rows_passes_the_claim(name, rows_of, change_of):
    """All pairs of rows, those outside a subgroup and missing cells included; not far above it."""
    block = BLOCKS[name]
    rows = rows_of(block.columns, units_of(block))
    part = part_of(block)
    for unit, after in (("replace", rows), ("add_remove", None)):
        found, claimed = change_of(block, rows, after), block.sensitivity(unit)
        assert found.l1 <= claimed.l1 <= 4 * found.l1, unit
        assert found.l2_squared <= claimed.l2_squared <= 4 * found.l2_squared, unit
        assert name in BOUNDED or found == claimed, unit
        found, less = change_of(part, rows, after), part.sensitivity(unit)
        assert found.l1 <= less.l1 <= claimed.l1, unit
        assert found.l2_squared <= less.l2_squared <= claimed.l2_squared, unit


def test_what_follows_has_the_sums_of_its_own():
    rng, follow = np.random.default_rng(1), set()
    rows = {c.name: rng.integers(*c.code_range, 40, endpoint=True) for c in SCHEMA}
    rows[UNIT] = rng.integers(0, 6, 40)
    pairs = [((name, block), ("its part", part_of(block))) for name, block in BLOCKS.items()]
    assert all(block.names[-1] in part.names for (_, block), (_, part) in pairs)
    for (name, block), (other, wanted) in [*pairs, *itertools.permutations(BLOCKS.items(), 2)]:
        derivation = block.derive(wanted)
        if derivation is not None:
            follows = derivation.terms > 0
            derived = derivation.apply(block.sums(rows), 40)
            np.testing.assert_array_equal(derived[follows], wanted.sums(rows)[follows])
            follow.add((name, other))
    some = ("groups", "another of the groups"), ("moments", "first moments and groups")
    assert follow >= {("table", "all sets"), *some, *((name, "its part") for name in BLOCKS)}


@pytest.mark.parametrize("name", BLOCKS)
def test_no_pair_of_weighted_rows_passes_the_claim(name, rows_of, weighted_change_of):
    """A replaced row may have another weight too; a person k rows with a weight each."""
    block, copies = BLOCKS[name], 3
    rows, rng = rows_of(block.columns, units_of(block)), np.random.default_rng(2)
    for unit, k in (("replace", 1), ("replace", 2), ("add_remove", 2)):
        found = weighted_change_of(block, rows, unit, copies, k, rng)
        claimed = block.moved_by(Neighbours(unit, k, copies=copies))
        assert found.l1 <= claimed.l1, (unit, k)
        assert found.l2_squared <= claimed.l2_squared, (unit, k)
        assert name in BOUNDED or found == claimed, (unit, k)


def test_the_number_of_rows_changes_where_weights_do():
    for unit, k in itertools.product(("replace", "add_remove"), (1, 2)):
        weights = [sum(each) for each in itertools.product(range(4), repeat=k)]
        l1 = max(abs(one - other) for one in weights for other in weights)
        assert ROWS.moved_by(Neighbours(unit, k, copies=3)) == Sensitivity(l1, l1**2)


@pytest.mark.parametrize("name", BLOCKS)
def test_sums_ranges_and_files_fit_the_functions(name, rows_of):
    block, rng = BLOCKS[name], np.random.default_rng(0)
    every = rows_of(block.columns, units_of(block))
    rows = {column: rng.choice(codes, 60) for column, codes in every.items()}
    functions = block.functions(rows)
    assert block.sums(rows).tolist() == functions.sum(axis=1).tolist()
    assert block.sums(rows).dtype == np.int64
    np.testing.assert_array_equal(block.evaluate(rows).matrix().toarray(), functions)
    one_by_one = [block.sums({c: codes[[i]] for c, codes in rows.items()}) for i in range(9)]
    np.testing.assert_array_equal(functions[:, :9], np.array(one_by_one).T)
    nothing = {c: codes[:0] for c, codes in rows.items()}  # of a digit that no row's weight has
    assert block.sums(nothing).tolist() == [0] * block.size
    assert block.functions(nothing).shape == (block.size, 0)
    low, high = block.ranges
    assert np.all((functions >= low[:, None]) & (functions <= high[:, None]))
    again = block_from_dict(json.loads(json.dumps(block.to_dict())), SURVEY)
    assert (again, again.names, hash(again)) == (block, block.names, hash(block))
    assert len(set(block.names)) == block.size
    assert block.derive(again).apply(np.arange(block.size), 1).tolist() == list(range(block.size))
    assert pickle.loads(pickle.dumps(block)) == block
