"""Products of person totals: exact sums, and what any person of a few rows changes."""

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import dpstats as dps
from dpstats.auditing.pairs import codes_of
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.persons import PersonMoments, PersonShares
from dpstats.families.subgroups import Subgroup
from dpstats.measured.strategy import MOST_ROWS, SAFE_TOTAL
from dpstats.privacy.neighbours import Neighbours

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=5, missing=0), dps.Number("y", -2, 2, points=3, missing=0),
    dps.Number("fine", 0, 1, points=20_001, missing=0),
    dps.Category("c", ["a", "b", "z"]), dps.Boolean("d"),
    dps.Number("m", -1, 1, points=3, allow_missing=True),
    dps.Number("size", 0, 2, points=3, missing=0),
])  # fmt: skip


def of(analysis):
    (block,) = analysis.person_totals(SCHEMA)
    return block


BLOCKS = {
    "mean": of(dps.Mean("x")),
    "mean where answered": of(dps.Mean("m")),
    "share in a group": of(dps.Proportion("c == 'a'", given="d")),
    "gap": of(dps.MeanDifference("x", by="c", groups=("a", "b"))),
    "ratios": of(dps.Ratio("m", "size", by="d")),
    "line": of(dps.OLS("y ~ x")),
    "no intercept": of(dps.OLS("y ~ x - 1")),
    "levels and response": of(dps.OLS("d ~ C(c)")),
    "line in a group": of(dps.OLS("y ~ x", given="d")),
    "one total": PersonMoments.of(SCHEMA, [(("x", None),)]),
}


def persons(block, rows):
    """Totals over so many rows (T, persons) of persons of exactly that many rows, in all ways."""
    names = [column.name for column in block.columns]
    codes = [codes_of(c, coded=True) for c in block.columns]
    every = np.array(list(itertools.product(*codes)), dtype=np.int64).T
    values = np.unique(block.of_rows(dict(zip(names, every, strict=True))), axis=1)
    chosen = itertools.combinations_with_replacement(range(values.shape[1]), rows)
    picked = np.array(list(chosen))
    if len(picked) > 1_000:
        picked = np.random.default_rng(0).choice(picked, 1_000, axis=0)
    return values[:, picked].sum(axis=2)


def products(block, totals):
    """In units of B, of persons of one row."""
    i, j = block.pairs
    return totals[i] * totals[j] / block.bounds[:, None]


@pytest.mark.parametrize("name", BLOCKS)
def test_no_person_changes_the_products_by_more_than_is_claimed(name):
    block, seen = BLOCKS[name], []
    for k in (1, 2) if block.kind == "person_shares" and block.number is None else (1, 2, 3):
        # Keys stay where values are replaced: persons of as many rows are compared.
        seen.append(products(block, persons(block, k)).T)
        for power, metric in ((1, "cityblock"), (2, "sqeuclidean")):
            replaced = max(cdist(f, f, metric).max() for f in seen)
            added = max((np.abs(f) ** power).sum(axis=1).max() for f in seen)
            for unit, found in (("replace", replaced), ("add_remove", added)):
                moved = block.moved_by(Neighbours(unit, k, "id"))
                claimed = float(moved.l1 if power == 1 else moved.l2_squared)
                assert found <= claimed * (1 + 1e-12)
                reached = block.kind == "person_shares" or unit == "add_remove"
                assert found >= claimed * (1 - 1e-6 if reached else 0.6 if power == 1 else 0.5)


def test_sums_are_those_of_a_loop_and_blocks_come_back():
    for block in BLOCKS.values():
        rng = np.random.default_rng(1)
        codes = {c.name: rng.choice(codes_of(c, coded=True), 40) for c in block.columns}
        keys = rng.integers(0, 9, 40)
        values, (i, j) = block.of_rows(codes), block.pairs
        totals = np.array([values[:, keys == key].sum(axis=1) for key in range(9)]).T
        assert block.of_totals(totals).tolist() == (totals[i] * totals[j]).sum(axis=1).tolist()
        low, high = block.ranges
        single = block.evaluate(codes).array
        assert block.sums(codes).tolist() == single.sum(axis=1).tolist()
        assert np.all((single >= low[:, None]) & (single <= high[:, None]))
        again = block_from_dict(block.to_dict(), SCHEMA)
        assert (again, again.names) == (block, block.names)


def test_sums_over_any_table_stay_exact():
    fine = of(dps.Mean("fine"))
    for block in (*BLOCKS.values(), fine, of(dps.OLS("fine ~ x"))):
        assert 63 * int(block.bounds.max()) * MOST_ROWS < SAFE_TOTAL, block.names
    assert fine.units.tolist() == [4096, 4096]
    codes = {"fine": np.array([-10_000, 0, 10_000, 2])}
    assert fine.of_rows(codes).tolist() == [[4096, 2048, 0, 2048], [0, 2048, 4096, 2048]]


def test_groups_with_a_row_in_common_are_refused():
    for texts in [("d", "c == 'a'"), ("c == 'a'", "c in ['a', 'b']")]:
        groups = tuple(Subgroup.of(SCHEMA, text, ["m"]) for text in texts)
        with pytest.raises(RequestError, match="without a row in common"):
            PersonShares(SCHEMA["m"], groups)
    with pytest.raises(RequestError, match="value in every row"):
        PersonShares.of_all(SCHEMA["m"])
