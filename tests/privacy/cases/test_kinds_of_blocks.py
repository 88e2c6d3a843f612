"""Section E: the exact guard of conftest.py on every kind of block, alone and in pairs."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.ball_moments import BallMoments
from dpstats.families.coarse_moments import fourth_moments_of_pairs, third_and_fourth_powers
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.families.tables.bin_offsets import BinOffsets
from dpstats.privacy.neighbours import Sensitivity

SCHEMA = dps.Schema(
    [
        dps.Category("c", ["a", "b"], allow_missing=True),
        dps.Boolean("b"),
        dps.Boolean("d"),
        dps.Number("x", -1, 1, points=5, edges=[0, 0.75], missing=0),
        dps.Number("y", 0, 2, points=3, edges=[1], missing=1),
    ]
)
BY = [(("x", None), ("y", None), (name, 1)) for name in ("b", "d")]
GRID, GRID_OF_M = {"Intercept": (0, 2, 3), "x": (-1, 1, 3)}, {"m": (-1, 1, 3)}


def of(analysis, number=0):
    return analysis.family(SCHEMA).blocks[number]


def absolute(row, at):
    return np.abs(row["x"] - at["m"]) * (1 + (row["b"] == "true"))


KINDS = {
    "table": dps.Cells.table(SCHEMA, ["c", "b"]),
    "condition": dps.Cells.condition(SCHEMA, "b and x < 0"),
    "moments": dps.Moments.of(SCHEMA, ["x", "y"]),
    "moments and groups": dps.Moments.of(SCHEMA, ["x"], ["c"]),
    "products of several groups": Moments.of_terms(SCHEMA, BY),
    "signs": dps.Moments.of(SCHEMA, ["x"], signs=["b", "d"]),
    "moments of a subgroup": dps.Moments.of(SCHEMA, ["x", "y"], given="b"),
    "means of groups": GroupMoments.by(SCHEMA["x"], SCHEMA["c"], (0, 1)),
    "clipped moments": BallMoments.of(SCHEMA, ["x", "y"], 0.8),
    "fourth powers": third_and_fourth_powers(SCHEMA, ["x", "y"]),
    "fourth moments of pairs": fourth_moments_of_pairs(SCHEMA, ["x", "y"]),
    "robust errors": of(dps.OLS("y ~ x + b", cov_type="HC1"), 1),
    "offsets in bins": BinOffsets.of(SCHEMA, ["c", "x"], "x"),
    "losses": of(dps.LossGrid(dps.HuberLoss(1.5), "y ~ x", GRID)),
    "tabulated losses": dps.TabulatedLoss.of(SCHEMA, ["x", "b"], GRID_OF_M, absolute).losses,
}
REFERENCES = {
    "histogram": dps.PerturbedHistogram(Fraction(1, 3)),
    "lattice": dps.BernsteinKDE(["x"], k=3, share=0.5),
}
BUDGETS = [(kind, unit) for kind in (dps.PureDP, dps.ZCDP) for unit in ("replace", "add_remove")]
PAIRS = list(itertools.combinations(KINDS, 2))
WITH_REFERENCE = [
    (name, reference)
    for name, reference in itertools.product(KINDS, REFERENCES)
    if reference != "lattice" or "x" in [column.name for column in KINDS[name].columns]
]


@pytest.fixture
def make_plan(asking):
    """A plan of two analyses, each of which needs one block; of one if they are the same."""

    def make(one, other, kind, unit, **options):
        blocks = dict.fromkeys([KINDS[one], KINDS[other]])
        analyses = {str(i): asking(block) for i, block in enumerate(blocks)}
        return dps.plan(SCHEMA, analyses, budget=kind(1000), unit=unit, n=1, **options)

    return make


def thinned(cases, part):
    """Half of the cases, each under one of the four budgets; the slow tests take all others."""
    for (i, case), (j, budget) in itertools.product(enumerate(cases), enumerate(BUDGETS)):
        if ((i + j) % 8 == 0) == (part == "one budget"):
            yield *case, *budget


PARTS = pytest.mark.parametrize(
    "part", ["one budget", pytest.param("other budgets", marks=pytest.mark.slow)]
)


@pytest.mark.parametrize("name", KINDS)
def test_p49_p51_every_kind_of_block_costs_at_most_its_budget(guard, name, make_plan):
    for kind, unit in BUDGETS:
        used = guard(make_plan(name, name, kind, unit))
        assert used > 0.3, (kind, unit, float(used))  # not vacuous


@PARTS
@pytest.mark.parametrize("first", list(KINDS)[:-1])
def test_p49_p51_every_two_kinds_cost_at_most_their_budget(guard, first, part, make_plan):
    for one, other, kind, unit in thinned(PAIRS, part):
        if one == first:
            guard(make_plan(one, other, kind, unit))


@PARTS
def test_p49_p51_every_kind_beside_a_reference(guard, part, make_plan):
    for name, reference, kind, unit in thinned(WITH_REFERENCE, part):
        guard(make_plan(name, name, kind, unit, reference=REFERENCES[reference]))


PERSONS = {
    "mean": dps.Mean("y"),
    "share": dps.Proportion("b"),
    "difference": dps.Difference("b", by="d"),
    "gap": dps.MeanDifference("y", by="b"),
    "ols": dps.OLS("y ~ b"),
}


@pytest.mark.parametrize("name", PERSONS)
def test_p49_p51_products_of_person_totals_cost_at_most_the_budget(guard, name, monkeypatch):
    """All persons of two rows; and a smaller claim for products, as if they grew like sums."""
    options = {"rows_per_person": 2, "person": "id", "person_totals": True}

    def planned(kind, unit):
        return dps.plan(SCHEMA, {name: PERSONS[name]}, budget=kind(1000), unit=unit, **options)

    plans = [planned(kind, unit) for kind, unit in BUDGETS]
    assert min(guard(plan) for plan in plans) > 0.5
    (block,) = [planned.block for planned in plans[0].strategy.of_persons]
    real = type(block).sensitivity

    def smaller(self, unit):
        claimed = real(self, unit)
        return Sensitivity(claimed.l1 / 4, claimed.l2_squared / 16)

    monkeypatch.setattr(type(block), "sensitivity", smaller)
    for kind, unit in BUDGETS:
        with pytest.raises(AssertionError, match="costs more than the budget"):
            guard(planned(kind, unit))


@PARTS
def test_p49_p51_every_two_products_of_person_totals_cost_at_most_their_budget(guard, part):
    """Together with the sums of both analyses, of which one may follow from the other's."""
    for one, other, kind, unit in thinned(itertools.combinations(PERSONS, 2), part):
        asked = {name: PERSONS[name] for name in (one, other)}
        options = {"unit": unit, "rows_per_person": 2, "person": "id", "person_totals": True}
        assert guard(dps.plan(SCHEMA, asked, budget=kind(1000), **options)) > 0.3
