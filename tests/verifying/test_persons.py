"""The second opinion on files of persons with several rows."""

import json

import pandas as pd
import pytest

import dpstats as dps
from dpstats.verifying.arguing import verify
from dpstats.verifying.reading import NotReadError

SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b", "c"]), dps.Boolean("b"), dps.Boolean("d"),
    dps.Number("x", -1, 1, points=5, edges=[0], missing=0),
])  # fmt: skip
ASKED = {"m": dps.Marginals(["c", "b", "d"]), "x": dps.Mean("x")}


def planned(kind, unit, **options):
    return dps.plan(SCHEMA, ASKED, budget=kind(3), unit=unit, **options)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", [dps.PureDP, dps.ZCDP])
@pytest.mark.parametrize("person", [None, "id"])
def test_both_agree_on_the_cost_of_a_person(kind, relation, person, tmp_path):
    path = tmp_path / "plan.json"
    planned(kind, relation, rows_per_person=3, person=person).save(path)
    found = verify(path)
    assert found.agrees, found.wrong
    assert found.reached == found.bound == 3
    assert f"costs {3 if kind is dps.PureDP else 9} times" in found.text
    assert ("found by the key 'id'" in found.text) == (person is not None)
    plain = json.loads(path.read_text())
    path.write_text(json.dumps({**plain, "rows_per_person": 4}))
    assert not verify(path).agrees
    for wrong in (1, 0, True, "3", None):
        path.write_text(json.dumps({**plain, "rows_per_person": wrong}))
        with pytest.raises(NotReadError):
            verify(path)
    path.write_text(json.dumps({**plain, "person_key": "b"}))
    with pytest.raises(NotReadError, match="tells persons apart"):
        verify(path)


def test_a_release_of_persons_is_verified(tmp_path):
    frame = pd.DataFrame({
        "id": [i // 3 for i in range(300)], "c": ["a", "b", "c"] * 100, "b": [True, False] * 150,
        "d": True, "x": [0.5, -1.0, 0.0] * 100,
    })  # fmt: skip
    plan = planned(dps.ZCDP, "replace", rows_per_person=2, person="id")
    dps.release(plan, frame, m=100, k=50, rng=0).save(tmp_path / "r.zip")
    found = verify(tmp_path / "r.zip")
    assert found.agrees, found.wrong
    assert "Digest of the plan" in found.text
