"""Families: what follows from what, merging without loss, and plain data."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import RequestError
from dpstats.families import KINDS, block_from_dict, is_library_block
from dpstats.families.block import Block, Family
from dpstats.families.merging import BlockIndex, merge, with_other_rows
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import ROWS, Cells, Table
from dpstats.privacy.budget import PureDP
from dpstats.schema import Boolean, Category, Number, Schema

SCHEMA = Schema([
    Category("region", ["north", "south", "east"]), Boolean("smoker"),
    Category("job", list("abcd")), Number("age", 0, 6, points=7, edges=[2, 5], missing=3),
    Number("pay", -4, 4, points=9, missing=0),
])  # fmt: skip
COUNTED = ["region", "smoker", "job", "age"]
CONDITIONS = [
    "smoker", "not smoker", "region == 'north'", "region in ['south', 'east']", "job in ['a', 'b']",
    "job == 'a' and age >= 5",
    "smoker and region == 'north' and job == 'd' or not smoker and region != 'east' and job == 'b'",
]  # fmt: skip


def equal_noise(blocks, chosen=None):
    """The noise variance of every block, or some, when a budget of one is split evenly."""
    budget = PureDP(1)
    multiplier = budget.multiplier(Family(tuple(blocks)).sensitivity("replace"), budget.total)
    return [budget.law(float(multiplier)).variance] * len(blocks if chosen is None else chosen)


def table(names):
    """In any order of its columns."""
    return Table(tuple(SCHEMA[name] for name in names))


tables = st.lists(st.sampled_from(COUNTED), min_size=1, max_size=3, unique=True).map(table)
conditions = st.sampled_from(CONDITIONS).map(lambda text: Cells.condition(SCHEMA, text))
moments = st.builds(
    Moments.of,
    st.just(SCHEMA),
    st.sampled_from([["age"], ["pay"], ["age", "pay"]]),
    st.sampled_from([[], ["region"], ["smoker"], ["region", "smoker"]]),
    st.sampled_from([1, 2]),
)
blocks = tables | conditions | moments


def some_codes(seed, n=40):
    rng = np.random.default_rng(seed)
    return {c.name: c.draw_inside(rng.integers(c.bins, size=n), rng) for c in SCHEMA}


@given(
    sources=st.tuples(blocks, st.permutations(COUNTED).map(table)),
    wanted=blocks,
    complements=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_what_is_derived_equals_what_is_summed(sources, wanted, complements, seed):
    codes = some_codes(seed)
    for source in sources:
        derivation = source.derive(wanted, complements=complements)
        if derivation is None:
            assert source is not sources[1] or isinstance(wanted, Moments)
            continue
        derived = derivation.apply(source.sums(codes), 40)
        follows = derivation.terms > 0
        np.testing.assert_array_equal(derived[follows], wanted.sums(codes)[follows])
        assert derivation.offset == 0 or complements


@given(chosen=st.lists(blocks, min_size=1, max_size=3), seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_a_family_is_its_blocks_in_the_scale_of_the_paper(chosen, seed):
    family, codes = Family(tuple(chosen)), some_codes(seed)
    values = family.evaluate(codes)
    matrix = values.matrix().toarray()
    assert matrix.shape == (family.size, 40)
    assert len(family.names) == len(family.bounds) == family.size
    assert np.all(abs(matrix) <= 1)
    sums = np.concatenate(family.sums(codes))
    np.testing.assert_allclose(matrix.sum(axis=1) * family.bounds, sums, atol=1e-9)
    weights = np.random.default_rng(seed).dirichlet(np.ones(40))
    np.testing.assert_allclose(values.average(weights), matrix @ weights, atol=1e-12)
    y = np.linspace(-1, 1, family.size)
    np.testing.assert_allclose(values.combine(y), y @ matrix, atol=1e-12)
    seen = {}  # points of one signature are the same to every function
    for point, key in enumerate(zip(*family.signature(codes), strict=True)):
        first = seen.setdefault(key, point)
        np.testing.assert_array_equal(matrix[:, first], matrix[:, point])


def test_the_table_of_kinds_has_the_blocks_of_the_library_and_no_others():
    def below(kind):
        return {kind, *(c for child in kind.__subclasses__() for c in below(child))}

    ours = (kind for kind in below(Block) if kind.__module__.startswith("dpstats."))
    own = {kind for kind in ours if not inspect.isabstract(kind)}
    assert set(KINDS.values()) == own
    assert len(KINDS) == len(own)
    assert all(kind.kind == name for name, kind in KINDS.items())

    class Cheaper(Table):
        def sensitivity(self, unit):
            return super().sensitivity(unit) * 0

    assert is_library_block(table(["smoker"]))
    for one in (Cheaper((SCHEMA["smoker"],)), Table, "table"):
        assert not is_library_block(one)


def test_a_margin_is_dropped_where_few_cells_are_summed_and_kept_where_many_are():
    region, narrow, wide = table(["region"]), table(["smoker", "region"]), table(COUNTED)
    assert merge([region, narrow], equal_noise).blocks == (narrow,)
    assert set(merge([region, wide], equal_noise).blocks) == {region, wide}
    noise = {region: 0.6, narrow: 0.1 + 0.2}  # two cells have that of the margin but for a last bit

    def tied(blocks, chosen):
        return [noise[blocks[i]] for i in chosen]

    assert merge([region, narrow], tied).blocks == (narrow,)


def test_conditions_become_sets_of_all_rows():
    """With others of which no row meets two, and with the rows of none."""
    smoker, north, south, warm, cold = (
        Cells.condition(SCHEMA, text)
        for text in ("smoker", "region == 'north'", "region == 'south'", "region != 'south'",
                     "region != 'north'")
    )  # fmt: skip
    [sets] = with_other_rows([north, south])
    assert (sets.conditions[: sets.asked], sets.size) == ((north, south), 3)
    assert sets.sensitivity("add_remove").l1 == 1
    assert sets.derive(ROWS, complements=False).terms.tolist() == [3]
    assert sets.derive(warm, complements=False).terms.tolist() == [2]
    assert block_from_dict(sets.to_dict(), SCHEMA) == sets
    [sets] = with_other_rows([north, cold])
    assert (sets.conditions, sets.rest) == ((north, cold), False)
    every = with_other_rows([table(["region"]), smoker, north, warm])
    assert [(block.kind, block.size) for block in every] == [
        ("table", 3), ("partition", 2), ("partition", 2), ("partition", 2)
    ]  # fmt: skip


def test_the_last_set_holds_all_rows_that_are_left():
    [sets] = with_other_rows([Cells.condition(SCHEMA, "region == 'north'")])
    plain = sets.to_dict()
    plain["sets"][1]["cells"].pop()
    with pytest.raises(RequestError, match="holds not all"):
        block_from_dict(plain, SCHEMA)
    with pytest.raises(RequestError, match="union and the difference"):
        replace(sets, rotated=True)


@given(wanted=st.lists(blocks, min_size=1, max_size=5))
@settings(max_examples=30)
def test_merging_never_costs_accuracy(wanted):
    family = merge(wanted, equal_noise)
    apart = equal_noise(list(dict.fromkeys(wanted)))[0]
    noise = dict(zip(family.blocks, equal_noise(family.blocks), strict=True))
    for block in wanted:
        best = np.full(block.size, np.inf)
        for source in family.blocks:
            derivation = source.derive(block)
            if derivation is not None:
                terms = np.where(derivation.terms > 0, derivation.terms, np.inf)
                best = np.minimum(best, terms * noise[source])
        assert np.all(best <= apart * (1 + 1e-12))


@given(listed=st.lists(blocks, min_size=1, max_size=6), wanted=blocks, complements=st.booleans())
@settings(max_examples=40)
def test_no_block_that_another_follows_from_is_overlooked(listed, wanted, complements):
    listed = [*listed, ROWS, Moments.of(SCHEMA, ["pay"], degree=1)]
    for one in (wanted, ROWS):
        derivations = [block.derive(one, complements=complements) for block in listed]
        found = list(BlockIndex(listed).of(one))
        assert {i for i, found in enumerate(derivations) if found is not None} <= set(found)
        assert len(found) == len(set(found))
        follows = sum(d.terms for d in derivations if d is not None) > 0
        given = BlockIndex(listed).derivable(one, complements=complements)
        np.testing.assert_array_equal(given, np.broadcast_to(follows, one.size))
