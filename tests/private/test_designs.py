"""Weights and units of a survey: the same sums on every route, whatever other rows there are."""

import hashlib
import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.families.tables.cells import ROWS
from dpstats.planning.survey import contrasts_of
from dpstats.privacy import noise
from dpstats.private import sources
from dpstats.private.design_rows import SCALED, DesignRows
from dpstats.private.keys import key_of
from dpstats.private.persons import PersonWeights, used_rows
from dpstats.schema.design import STEPS, UNPAIRED

DESIGN = dps.Design(
    "weight", mean=2, low=0.5, cap=8, missing=1, strata="area", unit="school",
    units={"north": [1, 2, 3, 4], "south": [5, 6, 7]},
)  # fmt: skip
DESIGN_OF_ONE = dps.Design("w", mean=2, cap=8, deff=2)
CELLS = {
    "flag": [True, False, True, True, False, False, True, True, False, True, False, True],
    "weight": [1.0, 3.25, 0.001, 8.0, 50.0, None, 0.0, -2.0, 2.0, 2.0, 2.0, 2.0],
    "area": ["north", "north", "south", "south", "south", "north", "north", "south", "south",
             "east", None, "North"],
    "school": [1, 2, 5, 6, 7, 3, 4, 1, 99, 1, 2, None],
}  # fmt: skip
TABLE, DRAWN = pa.table(CELLS | {"more": ["x"] * 12}), list(zip(*CELLS.values(), strict=True))


def schema_of(design):
    columns = [dps.Boolean("flag", missing=False), dps.Category("more", ["x", "y", "z"])]
    return dps.Schema(columns, design=design)


def blocks_of(schema):
    table = dps.Cells.table(schema, ["flag"])
    most_cells = dps.Cells.condition(schema, "more != 'y'")  # here all rows
    blocks = [table, most_cells, ROWS]
    pairs = schema.design.pairs
    return [*blocks, contrasts_of(table, pairs, min(pairs.count, 7))] if pairs.count else blocks


SCHEMA, ASKED = schema_of(DESIGN), {"p": dps.Proportion("flag")}
BLOCKS = blocks_of(SCHEMA)


def steps_of(weight):
    """The documented rule for a weight, in plain Python."""
    if weight is None or not math.isfinite(weight) or weight <= 0:
        weight = DESIGN.missing
    return math.floor(min(max(weight, DESIGN.low), DESIGN.cap) / DESIGN.cap * STEPS + 0.5)


def hash_of(area, school, design):
    text = b"dpstats unit " + len(area).to_bytes(8, "big") + area + school
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return number % (2 * design.pairs.plain)


def unit_of(area, school):
    """That for the code of a unit; undeclared ones by a hash of their keys."""
    strata, units = DESIGN.listed_units, [key for _, keys in DESIGN.listed_units for key in keys]
    for h, (stratum, keys) in enumerate(strata):
        if area == stratum and school in keys:
            return DESIGN.pairs.codes[h, units.index(school)]
    return hash_of(*(key_of(key) or b"" for key in (area, school)), DESIGN)


def expected(rows):
    """Sums of the blocks over rows and their steps."""
    table, total = np.zeros(2, int), np.zeros((BLOCKS[-1].count, 2), int)
    for (flag, _, area, school), steps in rows:
        unit = unit_of(area, school)
        table[int(flag)] += steps
        if unit != UNPAIRED:
            pair, plain = unit // 2, BLOCKS[-1].pairs
            j = pair % plain[1] if pair < plain[0] else plain[1] + (pair - plain[0])
            total[j, int(flag)] += steps * (-1 if unit % 2 else 1)
    return [table.tolist(), [int(table.sum())], [int(table.sum())], total.ravel().tolist()]


def scaled_rows(most, key, rows):
    """Rows with a key and their steps, scaled down where those of the key are above `most` caps."""
    steps, total = [steps_of(row[1]) for row in rows], {}
    for row, own in zip(rows, steps, strict=True):
        total[row[key]] = total.get(row[key], 0) + own
    return [(row[:4], own * most * STEPS // max(total[row[key]], most * STEPS))
            for row, own in zip(rows, steps, strict=True) if row[key] is not None]  # fmt: skip


def test_every_way_has_the_sums_of_a_loop(way, on_route, sums_of, monkeypatch):
    """Of all rows; and where units are what is protected, of those with a key, scaled."""
    monkeypatch.setattr(sources, "BATCH_ROWS", 5)
    data = on_route(way, pa.concat_tables([TABLE] * 3))
    of_units = {"person": "school", "most": 2, "design": DESIGN}
    assert sums_of(data, SCHEMA, BLOCKS)[0] == expected([(r, steps_of(r[1])) for r in 3 * DRAWN])
    if way == "any stream":
        with pytest.raises(dps.DataError, match="reads the rows twice, and this is a stream"):
            sums_of(data, SCHEMA, BLOCKS, **of_units)
    else:
        found, _ = sums_of(data, SCHEMA, BLOCKS, **of_units)
        assert found == expected(scaled_rows(2, 3, 3 * DRAWN))


# Declared keys, a cell, and whether it is one of them.
KEYS = [
    ([1, 2], "1.0", True), ([1, 2], 1.5, False), ([1, 2], None, False), ([1, 2], math.inf, False),
    ([2**53 - 1, 2], 2**53 - 1, True), (["1", "2"], 1.0, True), (["01", "02"], "01", True),
    (["a", "b"], "A", False), (["a", "b"], "", False),
]  # fmt: skip


def test_a_key_is_declared_or_has_a_hash():
    for keys, cell, declared in KEYS:
        others = [f"key {i}" if isinstance(keys[0], str) else 1_000 + i for i in range(40)]
        design = dps.Design("w", mean=1, cap=1, unit="u", units=[*keys, *others])
        batch = pa.RecordBatch.from_pydict({"w": [1.0], "u": pa.array([cell])})
        (code,) = DesignRows(design).units(batch)["(unit)"]
        hashed = hash_of(b"", key_of(cell) or b"", design)
        assert code == (design.pairs.codes[0, 0] if declared else hashed), (keys, cell)


def test_cells_that_are_no_weights_have_the_declared_one_and_others_are_clamped():
    none = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, -3.0]
    texts = ["", "many", "inf", "-1", "2 kg", "true"]
    others = [1e-300, 0.0009, 7.9999, 1e308]
    for missing, low, steps in ((None, 0, 0), (1, 0.5, STEPS // 8), (100, 0, STEPS)):
        design = dps.Design("w", mean=2, low=low, cap=8, missing=missing, deff=2)
        coded = [
            DesignRows(design).weights(pa.RecordBatch.from_pydict({"w": cells})).tolist()
            for cells in (none, texts, others)
        ]
        least = int(low * STEPS // 8)
        assert coded == [[steps] * 7, [steps] * 5 + [STEPS // 8], [least] * 2 + [STEPS] * 2]


def test_a_key_that_is_not_declared_stops_no_release():
    for units, lonely in (
        ({"a": [1, 2, 3]}, None), ({"a": [1, 2, 3], "b": [4, 5, 6]}, None),
        ({"a": [1], "b": [2]}, "certainty"), ({"a": [1]}, "collapse"),
    ):  # fmt: skip
        options = {"lonely": lonely} if lonely else {}
        design = dps.Design("w", mean=2, cap=8, strata="h", unit="u", units=units, **options)
        batch = pa.RecordBatch.from_pydict({"h": ["a", "a", "none", None], "u": [1, 9, 1, 9]})
        codes = DesignRows(design).units(batch)["(unit)"]
        assert codes[0] == design.pairs.codes[0, 0]
        assert set(codes[1:]) <= set(range(2 * design.pairs.count) or [UNPAIRED]), units


def test_a_row_adds_the_same_whatever_other_rows_there_are(sums_of):
    """So which units occur changes nothing of how others are paired, if all are unknown."""
    schema = schema_of(dps.Design("weight", mean=2, cap=8, strata="area", unit="school"))
    blocks = blocks_of(schema)
    whole, _ = sums_of(TABLE.take(np.random.default_rng(1).permutation(12)), schema, blocks)
    parts = [sums_of(TABLE.slice(row, 1), schema, blocks)[0] for row in range(12)]
    assert whole == [np.sum(block, axis=0).tolist() for block in zip(*parts, strict=True)]
    assert any(whole[3])


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize(
    ("whose", "most"), [("one", 1), ("units", 1), ("units", 2), ("persons", 1), ("persons", 2)]
)
def test_sums_move_by_no_more_than_is_claimed(unit, whose, most):
    """A row in place of another or of none, or four rows of a person, whose keys may be units'."""
    rng, weights = np.random.default_rng(3), [None, 0.6, 5.0, 8.0, 1e9]
    places = {
        "one": [*(("north", key) for key in (1, 2, 3)), *(("south", key) for key in (5, 6, 7)),
                ("east", 99)],
        "units": [("north", 1)],
        "persons": [("north", key) for key in (1, 2, 3, 4)],
    }[whose]  # fmt: skip
    if whose == "one":
        persons = [[row] for row in itertools.product((True, False), weights, places)]
        options, exact = {}, {BLOCKS[-1]}
    else:
        persons = [[(flag, 1e9, place)] * 4 for flag in (True, False) for place in places]
        persons += [
            [(rng.random() < 0.5, rng.choice(weights), places[rng.integers(len(places))])
             for _ in range(4)] for _ in range(100)
        ]  # fmt: skip
        options = {"person": "school" if whose == "units" else "id", "rows_per_person": most}
        exact = {BLOCKS[0], *(BLOCKS[-1:] if whose == "persons" else [])}
        exact = exact if unit == "replace" else set(BLOCKS)
    plan = dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1), unit=unit, **options)
    rows = [[(flag, weight, *place, "p") for flag, weight, place in own] for own in persons]
    values = [expected(scaled_rows(most, 4, own)) for own in rows]
    for block, every in zip(BLOCKS, map(np.array, zip(*values, strict=True)), strict=True):
        claimed = block.moved_by(plan.strategy.neighbours)
        others = every if unit == "replace" else 0 * every[:1]
        moved = np.abs(every[:, None, :] - others[None, :, :])
        found = moved.sum(axis=2).max(), (moved**2).sum(axis=2).max()
        assert found[0] <= claimed.l1
        assert found[1] <= claimed.l2_squared
        if block in exact:
            assert found == (claimed.l1, claimed.l2_squared)


def test_a_query_that_changes_between_two_readings_gives_no_person_more():
    """Weights that grow after they were added up are used up to the bound, row by row."""
    first, then = ({"w": [w] * 6, "id": [1] * 4 + [2] * 2} for w in (1.0, 8.0))
    batches = [pa.RecordBatch.from_pydict(first), pa.RecordBatch.from_pydict(then)]
    weights = PersonWeights(DESIGN_OF_ONE, "id", 2).read(batches[:1])
    parts = [batches[1].slice(0, 3), batches[1].slice(3)]
    rows = list(used_rows(parts, ["w"], "id", 2, weights=weights))
    found = np.concatenate([DesignRows(DESIGN_OF_ONE).weights(part) for part in rows])
    assert found.tolist() == [STEPS, STEPS, 0, 0, STEPS, STEPS]


def test_a_plan_protects_units_or_persons_beside_them():
    keys, every = [*range(9)] * 4, 3 * DRAWN
    table = pa.concat_tables([TABLE] * 3).append_column("id", pa.array(keys))
    with_ids = [(*row, key) for row, key in zip(every, keys, strict=True)]
    for person, of, key in (("school", every, 3), ("id", with_ids, 4)):
        plan = dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1), unit="add_remove", person=person)
        caution = "Caution: whole units are protected, and there are 7" in str(plan)
        assert caution == (person == "school")
        with noise._noise_from(lambda scale, size: np.zeros(size, np.int64)):
            measured = dps.measure(plan, table)
        rows = scaled_rows(1, key, of)
        assert measured.count.sums.tolist() == expected(rows)[2]
        fit = dps.check(plan, table)
        assert fit.rows == len(rows)
        scaled = {row[key] for row in of if row[key] is not None and sum(
            steps_of(r[1]) for r in of if r[key] == row[key]) > STEPS}  # fmt: skip
        assert f"by the key '{person}', are scaled to at most the cap in all" in fit.persons
        assert f"those of {len(scaled)} keys are scaled" in fit.persons
    for person in ("weight", "area", "flag"):
        with pytest.raises(dps.RequestError, match="tells persons apart"):
            dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1), person=person)
    for name in ("weights", "unit", "strata"):  # else its cells would be weights without a bound
        given = {"weights": "w", "unit": "u", "strata": "h", name: SCALED}
        with pytest.raises(dps.SchemaError, match="control character"):
            dps.Design(**given, mean=2, cap=8, units={"a": [1, 2]})


def test_keys_of_units_are_refused_that_no_cell_or_file_can_hold_or_two_are_the_same():
    for units, says in [
        ({"n": [1, 2, math.nan], "s": [3]}, "units of the design must be finite; leave out"),
        ({"n": [1, 2], "s": [3, math.inf]}, "units of the design must be finite; leave out"),
        ({math.nan: [1, 2]}, "strata of the design must be finite; leave out"),
        ({"n": [2**53, 2**53 + 1]}, r"units of the design must be below 2\*\*53"),
        ({"n": ["a", ""]}, "units of the design must not be empty text"),
        ({"n": ["a", "b"], "": ["c"]}, "strata of the design must not be empty text"),
        ({"n": ["a", "\ud800"]}, "units of the design holds half a surrogate"),
        ({"n": [1, True]}, "units of a design must be all text or all numbers"),
        ({"n": [1, 1.0, 2]}, "'n' of the design names a unit twice"),
        ([("n", [1, 2]), ("n", [3])], "the design names a stratum twice"),
        ([[[1], [2]], [[3], [4]]], "strata of a design must be all text or all numbers"),
    ]:
        with pytest.raises(dps.SchemaError, match=says):
            dps.Design("w", mean=2, cap=8, strata="h", unit="u", units=units)
    units = {"n": ["1", "1.0"], "s": ["1"]}
    design = dps.Design("w", mean=2, cap=8, strata="h", unit="u", units=units, lonely="adjust")
    assert dps.Design.from_dict(design.to_dict()) == design
    assert design.number_of_units == 3
