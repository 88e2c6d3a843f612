"""Weights and units of a survey: the same sums on every route, whatever other rows there are."""

import hashlib
import math

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.families.contrasts import Contrasts
from dpstats.families.tables.cells import ROWS, Cells
from dpstats.planning.survey import contrasts_of
from dpstats.privacy import noise
from dpstats.private import sources
from dpstats.private.design_rows import SCALED, DesignRows
from dpstats.private.keys import key_of
from dpstats.private.persons import PersonWeights, of_persons, used_rows
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema.design import STEPS, UNPAIRED

DESIGN = dps.Design(
    "weight", mean=2, low=0.5, cap=8, missing=1, strata="area", unit="school",
    units={"north": [1, 2, 3, 4], "south": [5, 6, 7]},
)  # fmt: skip
DESIGN_OF_ONE = dps.Design("w", mean=2, cap=8, deff=2)
WEIGHTS = [1.0, 3.25, 0.001, 8.0, 50.0, None, 0.0, -2.0, 2.0, 2.0, 2.0, 2.0]
AREAS = ["north", "north", "south", "south", "south", "north", "north", "south", "south", "east",
         None, "North"]  # fmt: skip
SCHOOLS = [1, 2, 5, 6, 7, 3, 4, 1, 99, 1, 2, None]
FLAGS = [True, False, True, True, False, False, True, True, False, True, False, True]
TABLE = pa.table({
    "flag": FLAGS, "weight": pa.array(WEIGHTS, pa.float64()), "area": AREAS,
    "school": pa.array(SCHOOLS, pa.int64()), "more": ["x"] * len(FLAGS),
})  # fmt: skip


def schema_of(design):
    columns = [dps.Boolean("flag", missing=False), dps.Category("more", ["x", "y", "z"])]
    return dps.Schema(columns, design=design)


def blocks_of(schema):
    table = Cells.table(schema, ["flag"])
    most_cells = Cells.condition(schema, "more != 'y'")  # here all rows
    blocks = [table, most_cells, ROWS]
    pairs = schema.design.pairs
    return [*blocks, contrasts_of(table, pairs, min(pairs.count, 7))] if pairs.count else blocks


def sums_of(data, design=DESIGN, **options):
    schema = schema_of(design)
    blocks = blocks_of(schema)
    sums, _ = exact_sums(open_source(data, schema, **options), schema, blocks)
    return [block.tolist() for block in sums]


def steps_of(weight, design=DESIGN):
    """The documented rule for a weight, in plain Python."""
    if weight is None or not math.isfinite(weight) or weight <= 0:
        weight = design.missing or 0
    else:
        weight = max(weight, design.low)
    return math.floor(min(weight, design.cap) / design.cap * STEPS + 0.5)


def unit_of(area, school, design=DESIGN):
    """That for the code of a unit; undeclared ones by a hash of their keys."""
    strata, units = design.listed_units, [key for _, keys in design.listed_units for key in keys]
    for h, (stratum, keys) in enumerate(strata):
        if area == stratum and school in keys:
            return design.pairs.codes[h, units.index(school)]
    area, school = (key_of(key) or b"" for key in (area, school))
    text = b"dpstats unit " + len(area).to_bytes(8, "big") + area + school
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return number % (2 * design.pairs.plain)


def expected(design=DESIGN, rows=None):
    if rows is None:
        rows = list(zip(FLAGS, WEIGHTS, AREAS, SCHOOLS, strict=True))
        rows = [(row, steps_of(row[1], design)) for row in rows]
    *_, contrasts = blocks_of(schema_of(design))
    table, total = np.zeros(2, int), np.zeros((contrasts.count, 2), int)
    for (flag, _, area, school), steps in rows:
        unit = unit_of(area, school, design)
        table[int(flag)] += steps
        if unit != UNPAIRED:
            pair, plain = unit // 2, contrasts.pairs
            j = pair % plain[1] if pair < plain[0] else plain[1] + (pair - plain[0])
            total[j, int(flag)] += steps * (-1 if unit % 2 else 1)
    return [table.tolist(), [int(table.sum())], [int(table.sum())], total.ravel().tolist()]


def test_the_units_of_the_rows_are_of_all_kinds():
    codes = [unit_of(*keys) for keys in zip(AREAS, SCHOOLS, strict=True)]
    triples = 2 * DESIGN.pairs.plain
    assert UNPAIRED in codes
    assert {code % 2 for code in codes if 0 <= code < triples} == {0, 1}
    assert any(code >= triples for code in codes)


def test_every_route_has_the_sums_of_a_loop(route, every_route, tmp_path):
    objects = pd.DataFrame({n: pd.Series(TABLE[n].to_pylist(), dtype=object)
                            for n in TABLE.column_names})  # fmt: skip
    data = every_route[route](TABLE, objects, tmp_path)
    assert sums_of(data) == expected()


KEYS = {  # declared keys, a cell, and whether it is one of them
    "text of a number": ([1, 2], "1", True),
    "a number": ([1, 2], 1, True),
    "a float": ([1, 2], 1.0, True),
    "text of a float": ([1, 2], "1.0", True),
    "a number of declared text": (["1", "2"], 1, True),
    "a float of declared text": (["1", "2"], 1.0, True),
    "other zeros": (["01", "02"], "01", True),
    "text in another case": (["a", "b"], "A", False),
    "a part of a number": ([1, 2], 1.5, False),
    "no key": ([1, 2], None, False),
    "no number": ([1, 2], float("nan"), False),
    "an infinite one": ([1, 2], float("inf"), False),
    "no text": (["a", "b"], "", False),
    "another number": ([1, 2], 3, False),
    "a large number": ([2**53, 2], 2**53, True),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_declared_or_has_a_hash(name):
    keys, cell, declared = KEYS[name]
    design = dps.Design("w", mean=1, cap=1, unit="u", units=[*keys, *(
        f"key {i}" if isinstance(keys[0], str) else 1_000 + i for i in range(40)
    )])  # fmt: skip
    batch = pa.RecordBatch.from_pydict({"w": [1.0], "u": pa.array([cell])})
    (code,) = DesignRows(design).units(batch)["(unit)"]
    if declared:
        assert code == design.pairs.codes[0, 0]
    else:
        text = b"dpstats unit " + bytes(8) + (key_of(cell) or b"")
        number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
        assert code == number % (2 * design.pairs.plain)


def test_cells_that_are_no_weights_have_the_declared_one():
    cells = {"missing": None, "no number": math.nan, "infinite": math.inf, "less": -math.inf,
             "zero": 0.0, "negative zero": -0.0, "negative": -3.0}  # fmt: skip
    for missing in (None, 1, 100):
        design = dps.Design("w", mean=2, cap=8, missing=missing, deff=2)
        batch = pa.RecordBatch.from_pydict({"w": list(cells.values())})
        steps = 0 if missing is None else min(missing, 8) * STEPS // 8
        assert DesignRows(design).weights(batch).tolist() == [steps] * len(cells)
        texts = pa.RecordBatch.from_pydict({"w": ["", "many", "inf", "-1", "2 kg", "true"]})
        assert DesignRows(design).weights(texts).tolist() == [steps] * 5 + [STEPS // 8]


def test_weights_are_clamped_and_small_ones_are_not_missing():
    for low, least in ((0, 0), (0.5, STEPS // 16)):
        design = dps.Design("w", mean=2, low=low, cap=8, missing=4, deff=2)
        batch = pa.RecordBatch.from_pydict({"w": [1e-300, 1e-6, 0.0009, 7.9999, 8.0, 1e308]})
        found = DesignRows(design).weights(batch).tolist()
        assert found[:3] == [least] * 3
        assert found[3:] == [STEPS] * 3


LONELY = {
    "three of one stratum": {"units": {"a": [1, 2, 3]}},
    "odd strata": {"units": {"a": [1, 2, 3], "b": [4, 5, 6]}},
    "all alone, certain": {"units": {"a": [1], "b": [2]}, "lonely": "certainty"},
    "all alone, adjusted": {"units": {"a": [1], "b": [2]}, "lonely": "adjust"},
    "one alone": {"units": {"a": [1]}, "lonely": "collapse"},
}


@pytest.mark.parametrize("name", LONELY)
def test_a_key_that_is_not_declared_stops_no_release(name):
    design = dps.Design("weight", mean=2, cap=8, strata="area", unit="school", **LONELY[name])
    batch = pa.RecordBatch.from_pydict({"area": ["a", "a", "none", None], "school": [1, 9, 1, 9]})
    codes = DesignRows(design).units(batch)["(unit)"]
    assert codes[0] == design.pairs.codes[0, 0]
    within = range(2 * design.pairs.count) if design.pairs.count else [UNPAIRED]
    assert set(codes.tolist()) <= {*within, UNPAIRED}
    assert all(code in within for code in codes[1:])


@pytest.mark.parametrize("units", [DESIGN.units, 7, None], ids=["listed", "counted", "unknown"])
def test_a_row_adds_the_same_whatever_other_rows_there_are(units):
    """So which units occur changes nothing of how others are paired."""
    design = dps.Design("weight", mean=2, cap=8, strata="area", unit="school", units=units)
    rng = np.random.default_rng(1)
    whole = sums_of(TABLE, design)
    parts = [sums_of(TABLE.take([i]), design) for i in range(len(FLAGS))]
    for block, sums in enumerate(whole):
        assert sums == np.sum([part[block] for part in parts], axis=0).tolist()
    order = rng.permutation(len(FLAGS))
    assert sums_of(TABLE.take(order), design) == whole
    if units is None:
        assert any(whole[3])


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_a_row_moves_sums_by_no_more_than_is_claimed(unit):
    """Rows of any weight and unit, read as they are at a release."""
    schema = schema_of(DESIGN)
    neighbours = dps.plan(schema, {"p": dps.Proportion("flag")}, budget=dps.PureDP(1), n=9,
                          unit=unit).strategy.neighbours  # fmt: skip
    blocks = blocks_of(schema)
    cells = [(flag, weight, area, school) for flag in (True, False) for weight in (None, 0.6, 1e9)
             for area, school in [("north", 1), ("north", 2), ("north", 3), ("south", 5),
                                  ("south", 6), ("south", 7), ("east", 99)]]  # fmt: skip
    values = [expected(rows=[(row, steps_of(row[1]))]) for row in cells]
    none = [np.zeros(len(sums)) for sums in values[0]]
    for at, block in enumerate(blocks):
        claimed = block.moved_by(neighbours)
        every = np.array([value[at] for value in values])
        others = every if unit == "replace" else np.array([none[at]])
        moved = np.abs(every[:, None, :] - others[None, :, :])
        assert moved.sum(axis=2).max() <= claimed.l1
        assert (moved**2).sum(axis=2).max() <= claimed.l2_squared
        if isinstance(block, Contrasts):
            assert moved.sum(axis=2).max() == claimed.l1
            assert (moved**2).sum(axis=2).max() == claimed.l2_squared


ROWS_OF_TABLE = list(zip(FLAGS, WEIGHTS, AREAS, SCHOOLS, strict=True))


def scaled_rows(most, key=3, rows=ROWS_OF_TABLE):
    """Rows with a key and their steps, scaled down where those of the key are above `most` caps."""
    steps, total = [steps_of(row[1]) for row in rows], {}
    for row, own in zip(rows, steps, strict=True):
        total[row[key]] = total.get(row[key], 0) + own
    return [(row, own * most * STEPS // max(total[row[key]], most * STEPS))
            for row, own in zip(rows, steps, strict=True) if row[key] is not None]  # fmt: skip


def test_some_units_of_the_table_are_scaled_and_others_are_not():
    for most in (1, 2):
        rows = scaled_rows(most, rows=3 * ROWS_OF_TABLE)
        assert {0 < steps < steps_of(row[1]) for row, steps in rows} == {True, False}
    assert len(rows) == 3 * (len(FLAGS) - 1)


@pytest.mark.parametrize("most", [1, 2])
def test_units_may_be_what_is_protected(route, every_route, tmp_path, most, monkeypatch):
    """The keys of persons are those of units: rows without one are not used."""
    monkeypatch.setattr(sources, "BATCH_ROWS", 5)
    table = pa.concat_tables([TABLE] * 3)
    objects = pd.DataFrame({n: pd.Series(table[n].to_pylist(), dtype=object)
                            for n in table.column_names})  # fmt: skip
    schema = schema_of(DESIGN)
    source = open_source(every_route[route](table, objects, tmp_path), schema, "school")
    if not source.again:
        with pytest.raises(dps.DataError, match="reads the rows twice, and this is a stream"):
            of_persons(source, "school", most, design=DESIGN)
        return
    used = of_persons(source, "school", most, design=DESIGN)
    sums, n = exact_sums(used, schema, blocks_of(schema))
    wanted = expected(rows=scaled_rows(most, rows=3 * ROWS_OF_TABLE))
    assert [block.tolist() for block in sums] == wanted
    assert n == 3 * (len(FLAGS) - 1)


def test_an_order_is_needless_where_all_rows_are_used():
    table = ibis.memtable(TABLE)
    with pytest.raises(dps.DataError, match="this plan uses all rows: leave it out"):
        open_source(table, schema_of(DESIGN), "school", "weight")


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("whose", ["units", "persons beside them"])
def test_all_rows_of_a_person_move_sums_by_no_more_than_is_claimed(unit, most, whose):
    """Any four rows of one, and other such rows in their place; keys of units stay with units."""
    rng = np.random.default_rng(3)
    schema = schema_of(DESIGN)
    neighbours = dps.plan(
        schema, {"p": dps.Proportion("flag")}, budget=dps.PureDP(1), unit=unit,
        person="school" if whose == "units" else "id", rows_per_person=most,
    ).strategy.neighbours  # fmt: skip
    weights, schools = [None, 0.6, 5.0, 8.0, 1e9], [1, 2, 3, 4] if whose != "units" else [1]
    states = [[(flag, 1e9, "north", schools[at])] * 4 for flag in (True, False)
              for at in range(len(schools))]  # fmt: skip
    for _ in range(300):
        states.append([
            (bool(rng.integers(2)), weights[rng.integers(5)], "north",
             schools[rng.integers(len(schools))]) for _ in range(4)
        ])  # fmt: skip
    if unit == "add_remove":
        states.append([])
    of_one = [[(*row, "one") for row in rows] for rows in states]
    values = [expected(rows=[(row[:4], steps) for row, steps in scaled_rows(most, 4, rows)])
              for rows in of_one]  # fmt: skip
    for at, block in enumerate(blocks_of(schema)):
        claimed = block.moved_by(neighbours)
        every = np.array([value[at] for value in values])
        others = every if unit == "replace" else every[-1:]
        moved = np.abs(every[:, None, :] - others[None, :, :])
        assert moved.sum(axis=2).max() <= claimed.l1
        assert (moved**2).sum(axis=2).max() <= claimed.l2_squared
        signs_move = not isinstance(block, Contrasts) or whose != "units" or unit == "add_remove"
        if signs_move and not (unit == "replace" and block.size == 1):
            assert moved.sum(axis=2).max() == claimed.l1
            assert (moved**2).sum(axis=2).max() == claimed.l2_squared


def test_a_query_that_changes_between_two_readings_gives_no_person_more():
    """Weights that grow after they were added up are used up to the bound, row by row."""
    first, then = ({"w": [w] * 6, "id": [1] * 4 + [2] * 2} for w in (1.0, 8.0))
    batches = [pa.RecordBatch.from_pydict(first), pa.RecordBatch.from_pydict(then)]
    weights = PersonWeights(DESIGN_OF_ONE, "id", 2).read(batches[:1])
    parts = [batches[1].slice(0, 3), batches[1].slice(3)]
    rows = list(used_rows(parts, ["w"], "id", 2, weights=weights))
    found = np.concatenate([DesignRows(DESIGN_OF_ONE).weights(part) for part in rows])
    assert found.tolist() == [STEPS, STEPS, 0, 0, STEPS, STEPS]


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_a_plan_protects_units_or_persons_beside_them(unit, tmp_path):
    every, keys = 3 * ROWS_OF_TABLE, [*range(9)] * 4
    table = pa.concat_tables([TABLE] * 3).append_column("id", pa.array(keys))
    asked = {"p": dps.Proportion("flag")}
    with_ids = [(*row, key) for row, key in zip(every, keys, strict=True)]
    for person, of, key in (("school", every, 3), ("id", with_ids, 4)):
        plan = dps.plan(schema_of(DESIGN), asked, budget=dps.PureDP(1), unit=unit,
                        person=person)  # fmt: skip
        assert ("Caution: whole units are protected, and there are 7" in str(plan)) == (
            person == "school"
        )
        plan.save(tmp_path / "plan.json", overwrite=True)
        again = dps.Plan.load(tmp_path / "plan.json")
        assert again == plan
        with noise._noise_from(lambda scale, size: np.zeros(size, np.int64)):
            measured = dps.measure(again, table)
        rows = [(row[:4], steps) for row, steps in scaled_rows(1, key, of)]
        assert measured.count.sums.tolist() == expected(rows=rows)[2]
        fit = dps.check(plan, table)
        assert fit.rows == len(rows)
        scaled = {row[key] for row in of if row[key] is not None and sum(
            steps_of(r[1]) for r in of if r[key] == row[key]) > STEPS}  # fmt: skip
        assert f"by the key '{person}', are scaled to at most the cap in all" in fit.persons
        assert f"those of {len(scaled)} keys are scaled" in fit.persons
    plan = dps.plan(schema_of(DESIGN), asked, budget=dps.PureDP(1), unit=unit, person="school",
                    rows_per_person=2)  # fmt: skip
    assert "not independent" not in str(plan.preview(n=100))  # contrasts of units allow for it
    for person in ("weight", "area", "flag"):
        with pytest.raises(dps.RequestError, match="tells persons apart"):
            dps.plan(schema_of(DESIGN), asked, budget=dps.PureDP(1), unit=unit, person=person)


@pytest.mark.parametrize("name", ["weights", "unit", "strata"])
def test_no_column_of_a_design_is_taken_for_scaled_weights(name):
    """Its cells would be weights as they are, without a bound."""
    given = {"weights": "w", "unit": "u", "strata": "h"} | {name: SCALED}
    with pytest.raises(dps.SchemaError, match="control character"):
        dps.Design(**given, mean=2, cap=8, units={"a": [1, 2]})
