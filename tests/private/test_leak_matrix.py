"""Section G: everything that can be observed is equal on neighbours, on every route.

A pair of tables differs in one cell, which changes the type, the encoding, the order of categories,
the length or the quoting of what surrounds it; or, where the number of rows is private, in one row.
All of the noise comes from a source that gives the same again. The noisy sums may then differ by
the contribution of that row, and nothing else may differ at all.
"""

import itertools
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy import noise
from dpstats.private import sources

N, AT = 30, 7
SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b", "c"], allow_missing=True),
    dps.Category("g", [1, 2, 3], missing=2, other=3),
    dps.Number("x", 0, 4, points=5, edges=[1, 3], missing=2),
    dps.Number("d", -2, 2, points=5, edges=[0], missing=1, source="x - u"),
])  # fmt: skip
ASKED = {"t": dps.Marginals(["c", "g"]), "m": dps.Mean("x"), "p": dps.Proportion("x < 1"),
         "d": dps.Mean("d")}  # fmt: skip
INFERRED = ("csv", "pandas", "pandas objects")  # ways on which a cell alone decides how it is read
USUAL = {"c": "a", "g": 1, "x": 0.5, "u": 1}
# What the cell is, and what it changes about its column.
CELLS = {
    "the only cell of a level, first in order": {"c": "A first Zq"},
    "missing text": {"c": None},
    "empty text": {"c": ""},
    "not ASCII": {"c": "Zq\u00e9\u4e2d"},
    "long": {"c": "Zq" * 60_000},
    "quoted": {"c": 'Zq,"\t;'},
    "lines within": {"c": "Zq\n\nZq\r\nZq"},
    "a number among texts": {"c": 17},
    "text among numbers": {"x": "Zq n/a"},
    "text among whole numbers": {"g": "Zq"},
    "missing among whole numbers": {"g": None},
    "a fraction among whole numbers": {"g": 1.5},
    "beyond 64 bits": {"g": 2**70},
    "a truth value": {"g": True},
    "infinite": {"x": float("inf")},
    "a decimal": {"x": Decimal("0.25")},
    "two dates among numbers": {"x": "2024-05-01", "u": "2024-05-02"},
    "everything": {"c": None, "g": "Zq", "x": "Zq", "u": "Zq"},
}
# Those that give an Arrow table another type, another dictionary or other batches.
OF_TYPES = (
    "the only cell of a level, first in order", "long", "text among numbers",
    "a fraction among whole numbers", "everything",
)  # fmt: skip


def cells_of(changed, rows=N):
    """Columns of Python cells; row AT is the one that differs."""
    columns = {"c": ["a", "b"], "g": [1, 2], "x": [0.0, 3.5], "u": [1, 0]}
    made = {name: list(itertools.islice(itertools.cycle(c), rows)) for name, c in columns.items()}
    if rows > AT:
        for name, cell in (USUAL | changed).items():
            made[name][AT] = cell
    return made


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Every table is read in several batches and several blocks."""
    monkeypatch.setattr(sources, "BATCH_ROWS", 8)


@pytest.fixture(scope="module")
def plans():
    of_persons = {"person": "id", "rows_per_person": 2, "person_totals": ["m", "p"]}
    return {
        unit: dps.plan(
            SCHEMA, ASKED, budget=dps.PureDP(1), unit=unit.removesuffix(" persons"),
            **of_persons if "persons" in unit else {},
        )
        for unit in ("replace", "add_remove", "replace persons", "add_remove persons")
    }  # fmt: skip


@pytest.fixture(scope="module")
def added(plans):
    """By what is changed, the contribution of the row that differs: its sums without noise."""

    def contribution(changed):
        one = pd.DataFrame({n: pd.Series([c], dtype=object) for n, c in (USUAL | changed).items()})
        with noise._noise_from(lambda scale, size: np.zeros(size, np.int64)):
            return dps.measure(plans["replace"], one).noisy_sums

    return {name: contribution(changed) for name, changed in {"usual": {}, **CELLS}.items()}


def finished(measured):
    """What follows from noisy sums alone, but for their values."""
    release = dps.synthesize(measured, m=20, k=5, rng=1)
    frame = release.to_frame()
    results = [release.infer(name).to_frame() for name in ("t", "m")]
    shapes = [(list(r), r.shape, r["term"].tolist()) for r in results]
    return list(vars(release)), frame.dtypes.to_dict(), len(frame), shapes


def test_p73_p74_one_cell_changes_nothing_that_is_observed(way, on_route, observed, plans, added):
    usual, first = observed(plans["replace"], on_route(way, cells_of({})))
    rest = first.noisy_sums - added["usual"]
    assert usual["progress"][-1] == ("drawing noise", 0, None)
    assert usual["logs"]
    for name in CELLS if way in INFERRED else OF_TYPES:
        seen, last = observed(plans["replace"], on_route(way, cells_of(CELLS[name])))
        assert seen == usual, name
        np.testing.assert_array_equal(last.noisy_sums - added[name], rest, name)
    if way == "pandas objects":
        assert finished(last) == finished(first)


KEYS = ("Zq" * 60_000, None, 99, "Zq", 1.5, 2**70)  # the last four where cells decide a type


def rows_of_persons(changed=None, key=None, rows=0):
    """Three rows of each person, of whom two are used; at the end some of one person more."""
    cells = cells_of(changed or {}) | {"id": [i // 3 for i in range(N)]}
    for name, cell in (USUAL | {"id": key}).items():
        cells[name] += [cell] * rows
    return cells


def test_p40_p67_p73_p74_rows_and_persons_change_nothing(adapter, on_route, observed, plans):
    """A private number of rows; the cells of a person's rows; all rows of one of any key."""

    def of(unit, cells):
        return observed(plans[unit], on_route(adapter, cells))

    usual, _ = of("add_remove", cells_of({}))
    for rows in (1, N * 3):
        assert of("add_remove", cells_of({}, rows))[0] == usual, rows
    if adapter.startswith("ibis"):
        return  # its rows have no order: see test_ibis.py
    usual, _ = of("replace persons", rows_of_persons())
    assert of("replace persons", rows_of_persons(CELLS["everything"]))[0] == usual
    usual, first = of("add_remove persons", rows_of_persons())
    for key in KEYS if adapter in INFERRED else KEYS[:2]:
        seen, last = of("add_remove persons", rows_of_persons(key=key, rows=5))
        assert seen == usual, key
        same = np.array_equal(first.noisy_sums, last.noisy_sums)
        assert same == (key is None)  # rows without a key are not used


def failing(*args):
    raise RuntimeError("planted")


def test_p72_p73_errors_are_equal_on_neighbours(adapter, on_route, plans, logged, monkeypatch):
    usual, wrong = plans["replace"], dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1), n=N + 1)
    for plan, without, broken in ((wrong, None, False), (usual, "g", False), (usual, None, True)):
        said = []
        for changed in ({}, CELLS["everything"]):
            cells = cells_of(changed)
            cells.pop(without, None)
            data = on_route(adapter, cells)
            logged()
            with monkeypatch.context() as patch:
                if broken:
                    patch.setattr(dps.Moments, "sums", failing)
                with pytest.raises(dps.DpstatsError) as caught:
                    dps.measure(plan, data)
            assert caught.value.__cause__ is caught.value.__context__ is None
            said.append((caught.type, str(caught.value), logged()))
        assert said[0] == said[1]
        assert "Zq" not in str(said)
