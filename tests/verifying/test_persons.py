"""The second opinion on files of persons with several rows."""

import json
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.auditing.pairs import codes_of
from dpstats.verifying.arguing import verify
from dpstats.verifying.columns import read_column
from dpstats.verifying.kinds import read_block
from dpstats.verifying.shapes import NotReadError

SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b", "c"]), dps.Boolean("b"), dps.Boolean("d"),
    dps.Number("x", -1, 1, points=5, edges=[0], missing=0, source="late - early"),
    dps.Number("age", 0, 2, points=3, missing=0),
])  # fmt: skip
ASKED = {"m": dps.Marginals(["c", "b", "d"]), "x": dps.Mean("x")}


def planned(kind, unit, **options):
    return dps.plan(SCHEMA, ASKED, budget=kind(3), unit=unit, **options)


def test_both_agree_on_the_cost_of_a_person(tmp_path):
    for relation in ["replace", "add_remove"]:
        for kind in [dps.PureDP, dps.ZCDP]:
            for person in [None, "id"]:
                path = tmp_path / "plan.json"
                planned(kind, relation, rows_per_person=3, person=person).save(path, overwrite=True)
                found = verify(path)
                assert found.agrees, found.wrong
                assert found.reached == found.bound == 3
                assert f"costs {3 if kind is dps.PureDP else 9} times" in found.text
                assert ("found by the key 'id'" in found.text) == (person is not None)
                assert "rows of one person" in found.text.splitlines()[1]
                plain = json.loads(path.read_text())
                path.write_text(json.dumps({**plain, "rows_per_person": 4}))
                assert not verify(path).agrees
                for wrong in (1, 0, True, "3", None):
                    path.write_text(json.dumps({**plain, "rows_per_person": wrong}))
                    with pytest.raises(NotReadError):
                        verify(path)
                for key in ("b", "early"):
                    path.write_text(json.dumps({**plain, "person_key": key}))
                    with pytest.raises(NotReadError, match="tells persons apart"):
                        verify(path)


TOTALS = {"r": dps.Ratio("x", "age", by="d"),
          "x": dps.Mean("x"), "p": dps.Proportion("b", given="d"),
          "d": dps.Difference("b", by="c", groups=("a", "c")), "l": dps.OLS("x ~ b + C(c)"),
          "g": dps.MeanDifference("x", by="d"), "i": dps.OLS("x ~ b - 1", given="d")}  # fmt: skip


def test_both_agree_on_person_totals(tmp_path):
    for relation in ["replace", "add_remove"]:
        for kind in [dps.PureDP, dps.ZCDP]:
            path = tmp_path / "plan.json"
            for name, analysis in TOTALS.items():
                plan = dps.plan(
                    SCHEMA, {name: analysis}, budget=kind(3), unit=relation, person="id",
                    rows_per_person=3, person_totals=True,
                )  # fmt: skip
                plan.save(path, overwrite=True)
                found = verify(path)
                assert found.agrees, (name, found.wrong)
                assert found.bound == 3, name
                assert found.reached > (2.5 if name in "li" else 2.999), name
                assert f"person totals {9 if kind is dps.PureDP else 81} times" in found.text
                # as if products grew like sums
                plain = json.loads(path.read_text())
                (one,) = [block for block in plain["blocks"] if block["role"] == "persons"]
                one["multiplier"] = str(
                    Fraction(one["multiplier"]) / (3 if kind is dps.PureDP else 9)
                )
                path.write_text(json.dumps(plain))
                assert not verify(path).agrees, name
                path.write_text(json.dumps({**plain, "rows_per_person": 64}))
                with pytest.raises(NotReadError, match="of too many rows"):
                    verify(path)
                del plain["person_key"]
                path.write_text(json.dumps(plain))
                with pytest.raises(NotReadError, match="without persons"):
                    verify(path)


def test_its_person_totals_are_those_of_the_package():
    rng = np.random.default_rng(0)
    for name, analysis in TOTALS.items():
        (block,) = analysis.person_totals(SCHEMA)
        columns = {plain["name"]: read_column(plain) for plain in SCHEMA.to_dict()}
        own = read_block(block.to_dict(), columns)
        assert list(own.bounds) == block.bounds.tolist()
        for _ in range(30):
            row = {c.name: int(rng.choice(codes_of(c))) for c in block.columns}
            found = own.of(row)
            expected = block.sums({n: np.array([code]) for n, code in row.items()}).tolist()
            assert [found.get(f, 0) for f in range(block.size)] == expected, name
