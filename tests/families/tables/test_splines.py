"""Tables of B-splines: those of de Boor's recursion, in whole units that add up to one."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.inside_bins import SplineTable, knots_of

SCHEMA = dps.Schema([
    dps.Number("x", 0, 10, points=11, edges=[2, 3, 9], missing=0), dps.Category("g", ["n", "s"]),
    dps.Number("fine", 0, 1, points=1001, edges=[0.2, 0.21, 0.5], missing=0),
    dps.Number("z", 0, 6, points=7, edges=[2], allow_missing=True),
])  # fmt: skip


@pytest.mark.parametrize("name", ["x", "fine"])
def test_splines_are_those_of_de_boor(name, rows_of):
    knots = knots_of(SCHEMA[name])
    table = SplineTable((SCHEMA[name],), (knots,))
    codes = rows_of(table.columns)
    every = np.array([knots[0]] * 2 + list(knots) + [knots[-1]] * 2, dtype=float)
    inside = np.minimum(codes[name], knots[-1] - 1e-9)
    wanted = BSpline.design_matrix(inside, every, 2).toarray().T
    found = table.functions(codes)
    assert found.min() >= 0
    np.testing.assert_array_equal(found.sum(axis=0), table.bounds[0])
    np.testing.assert_allclose(found / table.bounds[0], wanted, atol=1.001 / table.bounds[0])


def test_rows_outside_a_condition_add_nothing(rows_of):
    given = Subgroup.of(SCHEMA, "g == 's'", ["z"])
    table = SplineTable((SCHEMA["z"],), (knots_of(SCHEMA["z"]),), given)
    codes = rows_of(table.columns)
    used = (codes["g"] == 1) & (codes["z"] <= 3)
    np.testing.assert_array_equal(table.functions(codes).sum(axis=0), used * table.bounds[0])


def test_what_has_no_splines_is_refused():
    fine = tuple(range(-500, 501)), tuple(range(-5, 6)), None
    for names, knots, match in [
        (["x", "x"], [(-5, 5), None], "different columns"), (["x"], [None], "numbers among them"),
        (["x"], [(-5, 4)], "first and last"), (["x"], [(-5, 2, 2, 5)], "increasing"),
        (["z"], [(-3, 3)], "allow_missing"), (["fine", "x", "g"], fine, "cells, more than"),
    ]:  # fmt: skip
        with pytest.raises(RequestError, match=match):
            SplineTable(tuple(SCHEMA[name] for name in names), tuple(knots))
    columns = tuple(dps.Number(f"n{i}", 0, 1, points=1025, missing=0) for i in range(7))
    with pytest.raises(RequestError, match="too fine"):
        SplineTable(columns, ((-512, 512),) * 7)
