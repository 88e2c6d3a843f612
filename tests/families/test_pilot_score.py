"""The score at a pilot: exact integers of single rows, and a sensitivity for any pilot."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.contrasts import Contrasts
from dpstats.families.pilot_score import LARGEST, UNIT, PilotScore
from dpstats.families.subgroups import Subgroup
from dpstats.schema.design import UNPAIRED

SCHEMA = dps.Schema([
    dps.Number("x", -1, 3, points=9, edges=[0, 1], missing=0), dps.Boolean("u"),
    dps.Category("g", ["a", "b", "c"]), dps.Boolean("y"),
    dps.Number("count", 0, 4, points=5, edges=[1, 2], missing=0),
    dps.Number("gap", 0, 2, points=3, edges=[1], allow_missing=True),
])  # fmt: skip
ONE, X, U, B, C = (), (("x", None),), (("u", 1),), (("g", 1),), (("g", 2),)
YES, COUNT, NUMBERS = ("y", 1), ("count", None), {"x", "count", "gap"}


def score(terms, response=YES, link="logit", given=None):
    return PilotScore.of(SCHEMA, terms, response, link, given)


BLOCKS = [
    score([ONE, U]), score([ONE, U, B, C]), score([ONE, U, B, C, (*B, *U), (*C, *U)]),
    score([ONE, X]), score([ONE, X, U, B, C]), score([ONE, X, (*X, *X), (*X, *U)]),
    score([ONE, X], COUNT, "log"), score([ONE, U], given=Subgroup.of(SCHEMA, "g == 'a'", [])),
    score([ONE, (("gap", None),)], given=Subgroup.of(SCHEMA, None, ["gap"])),
]  # fmt: skip
LINES = [score(terms, response, "identity") for terms, response in (
    ([ONE], YES), ([ONE, U, B, C], COUNT), ([ONE, X, U], COUNT), ([X, U], YES))]  # fmt: skip


def pilots(block, rng):
    """Random pilots of all sizes, and those at which means are zero or one."""
    steep = rng.choice([-LARGEST, -100, 0, 100, LARGEST], (16, block.size))
    small = [rng.normal(0, size, block.size) for size in (0.5, 3, 30)]
    return [block, *(block.at(np.array(pilot)) for pilot in [*small, *steep])]


def farthest(change_of, blocks, before, unit):
    """The largest changes by any of some blocks, by norm."""
    found = [change_of(one, before, before if unit == "replace" else None) for one in blocks]
    return max(one.l1 for one in found), max(one.l2_squared for one in found)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_no_pair_of_rows_passes_the_claim_at_any_pilot(unit, rows_of, change_of):
    for block in BLOCKS:
        known = pilots(block, np.random.default_rng(0))
        l1, l2_squared = farthest(change_of, known, rows_of(block.columns), unit)
        claimed = block.sensitivity(unit)
        # Grids are coarse: numbers cannot stay near 1.
        assert claimed.l1 / 2 <= l1 <= claimed.l1
        assert claimed.l2_squared / 3 <= l2_squared <= claimed.l2_squared
        numbers = any(level is None for term in block.terms for _, level in term)
        if block.given is None and not numbers and block.size <= 4 and block.link == "logit":
            assert (l1, l2_squared) == (claimed.l1, claimed.l2_squared)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_no_pair_of_rows_passes_the_claim_of_a_residual_that_is_cut_off(unit, rows_of, change_of):
    """At any pilot and clip, and with units of which replaced rows may change."""
    rng = np.random.default_rng(0)
    for block in LINES:
        rows = rows_of(block.columns)
        with_units = rows_of(block.columns, [0, 1, 2, UNPAIRED])
        known = [block.at(np.full(block.size, 0.5), 0.3)]
        for one in pilots(block, rng)[1:6]:
            known.append(block.at(np.array(one.pilot) / UNIT, rng.choice([1e-3, 0.3, 1, 4])))
        dealt = [Contrasts(one, (2, 2)) for one in known]
        for claim, blocks, before in (
            (block, known, rows), (Contrasts(block, (2, 2)), dealt, with_units)
        ):  # fmt: skip
            l1, l2_squared = farthest(change_of, blocks, before, unit)
            claimed = claim.sensitivity(unit)
            assert claimed.l1 / 4 <= l1 <= claimed.l1
            assert claimed.l2_squared / 4 <= l2_squared <= claimed.l2_squared
            if block.terms == (ONE,):
                assert (l1, l2_squared) == (claimed.l1, claimed.l2_squared)


def test_functions_are_the_score_of_the_model(rows_of):
    for block in BLOCKS + LINES:
        rows = rows_of(block.columns)
        clip = [0.7] if block.link == "identity" else []
        known = block.at(np.linspace(-0.6, 1, block.size), *clip)
        factors = {
            (name, level): codes == level for name, codes in rows.items() for level in (1, 2)
        }
        factors |= {(n, None): rows[n] / SCHEMA[n].half_points for n in rows if n in NUMBERS}
        one = np.ones(len(rows[block.columns[0].name]))
        terms = np.array([np.prod([one, *map(factors.get, t)], axis=0) for t in block.terms])
        predictor = np.array(known.pilot) / UNIT @ terms
        response = rows["y"] == 1 if block.response == YES else rows["count"] / 2
        if block.link == "logit":
            residual = response - special.expit(predictor)
        elif block.link == "log":
            residual = (response + 1) / 2 - np.minimum(np.exp(predictor) / 4, 1)
        else:
            residual = np.clip(response - predictor, -0.7, 0.7) / 0.7
            assert known.unit == pytest.approx(0.7, abs=1e-4)
        inside = 1 if block.given is None else block.given.holds(rows)
        tolerance = 1e-4 if clip else 1e-3
        found = known.functions(rows) / UNIT
        np.testing.assert_allclose(found, terms * residual * inside, atol=tolerance)
        assert block_from_dict(known.to_dict(), SCHEMA) == known
        assert known.settles(block)


def test_a_row_adds_the_same_whatever_rows_are_beside_it(rows_of):
    """Rounding must not depend on the place of a row, or one row would change many values."""
    block, n = BLOCKS[4].at(np.array([0.3, 1.7, -0.4, 0.9, 1.1])), 203
    order = np.random.default_rng(1).integers(0, 108, n)
    codes = {name: own[order] for name, own in rows_of(block.columns).items()}
    whole = block.evaluate(codes).matrix().toarray()
    alone = [block.sums({name: own[i : i + 1] for name, own in codes.items()}) for i in range(n)]
    np.testing.assert_array_equal(whole, np.array(alone).T)


def test_pilots_are_whole_numbers_and_cut_off():
    block = BLOCKS[3].at(np.array([1e9, -np.inf]))
    assert block.pilot == (LARGEST * UNIT, -LARGEST * UNIT)
    assert BLOCKS[3].at(np.array([np.nan, 0.5])).pilot == (0, UNIT // 2)
    assert block.settles(BLOCKS[3])
    assert not BLOCKS[3].settles(BLOCKS[3])
    assert not block.settles(BLOCKS[4])
    assert BLOCKS[3].derive(block) is None
    assert block_from_dict(BLOCKS[3].to_dict(), SCHEMA) == BLOCKS[3]


def test_blocks_whose_sensitivity_would_not_hold_are_refused():
    for changes in [
        {"terms": ()}, {"terms": (ONE, ONE)}, {"terms": (ONE, (("u", 7),))},
        {"terms": (ONE, (("y", 1),))}, {"link": "probit"}, {"link": "log"},
        {"response": ("x", None), "link": "log"}, {"response": ("g", None)}, {"pilot": (0,)},
        {"pilot": (0, LARGEST * UNIT + 1)}, {"pilot": (0, 0.5)}, {"pilot": (0, True)},
    ]:  # fmt: skip
        with pytest.raises(RequestError, match="a second stage needs distinct terms"):
            replace(score([ONE, U]), **changes)
    for clip in (None, 0, 2**20, 1.0):
        with pytest.raises(RequestError, match="a second stage"):
            replace(LINES[0].at(np.array([0.5]), 0.7), clip=clip)
    with pytest.raises(RequestError, match="allow_missing"):
        score([ONE, (("gap", None),)])
    fine = dps.Schema([dps.Number(n, 0, 1, points=2**16 + 1, missing=0) for n in "pqr"]
                      + [dps.Boolean("y")])  # fmt: skip
    with pytest.raises(RequestError, match="fewer points"):
        PilotScore.of(fine, [(("p", None), ("q", None), ("r", None))], YES, "logit")
