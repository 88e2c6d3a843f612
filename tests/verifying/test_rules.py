"""Published rows against rules between columns, as the program reads both from the file."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.schema.repairs import compile_rules
from dpstats.schema.rules import rule_to_dict
from dpstats.verifying import reading, rules
from dpstats.verifying.arguing import verify

COLUMNS = [
    dps.Number("age", 0, 99, points=100, edges=[15, 65], missing=40, closed="right"),
    dps.Category("marital", ["never", "married", "widowed"], allow_missing=True),
    dps.Category("code", [1, 2, 30]),
    dps.Category("county", {"north": 7, "south": 8}),
    dps.Boolean("old", allow_missing=True),
    dps.Number("pay in", 0, 50, points=26, edges=[10, 20], closed="right", allow_missing=True),
    dps.Number("log_pay", 1, 50, points=9, scale="log", edges=[8], source="pay in"),
    dps.Number("coarse", 2, 40, points=4, source="pay in"),
    dps.Number("score", values=[1, 2.5, 4, 9], missing=4),
    dps.Number("came", "2024-01-01", "2024-01-20", edges=["2024-01-05"], allow_missing=True),
    dps.Number("went", "2024-01-01", "2024-01-21", edges=["2024-01-05"], allow_missing=True),
]
RULES = [
    dps.Never("age <= 15 & marital != 'never'", set={"marital": "never"}),
    dps.Never("not (marital in ['never', 'married']) and (old or code in [2, 30])",
              set={"marital": "married"}),
    dps.Never("old == '(missing)' and not (age > 65)", set={"old": False}),
    dps.Never("`pay in` > 10 and old == False and age <= 15", set={"pay in": 5}),
    dps.Never("came < '2024-01-05' and log_pay < 8 and code != 1", set={"code": 1}),
    dps.Determines("county", by="code", mapping={"1": "north", 2: "north", 30: "south"}),
    dps.Determines("county", by="pay in",
                   mapping={"[0, 10]": "north", "(10, 20]": "north", "(20, 50]": "south"}),
    dps.Determines("marital", by="score",
                   mapping={1: "never", 2.5: "(missing)", 4: "never", 9: "married"}),
    dps.Order("went > came"),
    dps.Order("age <= `pay in`", change="age"),
]  # fmt: skip


BARE = dps.Schema(COLUMNS)  # the rules need not be possible together


@pytest.fixture(scope="module")
def contents():
    plain = json.loads(json.dumps(BARE.to_dict()))
    columns = {one["name"]: reading.read_column(one) for one in plain}
    return reading.Contents("plan", {"schema": plain}, columns, [])


@pytest.mark.parametrize("number", range(len(RULES) + 2))
def test_the_program_and_the_package_find_the_same_rows(number, contents):
    """On random rows of codes, in half of which views agree."""
    if number < len(RULES):
        compiled = RULES[number].compiled(BARE)
        plain = json.loads(json.dumps(rule_to_dict(RULES[number])))
        text, names, breaks = rules._read(plain, contents)
    else:
        compiled = compile_rules(BARE)[number - len(RULES)]
        (name,) = compiled.changes
        possible = rules._possible_views(BARE[name].to_dict(), contents.columns[name])
        text, names, breaks = rules._view(name, "pay in", possible)
    assert text == compiled.text
    assert names == compiled.names
    rng = np.random.default_rng(3)
    codes = {c.name: rng.choice(contents.columns[c.name].codes, 600) for c in BARE}
    agreeing = BARE.with_views(codes)
    codes = {name: np.append(code[:300], agreeing[name][300:]) for name, code in codes.items()}
    wanted = compiled.broken(codes)
    assert 0 < np.count_nonzero(wanted) < 600
    for i in range(600):
        row = {n: rules._value(contents.columns[n], int(code[i])) for n, code in codes.items()}
        assert breaks(row) == wanted[i]


def test_a_row_that_breaks_a_rule_is_seen(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "r.zip"
    rows = pd.DataFrame({
        "town": rng.choice(list("abc"), 300), "area": rng.choice(["n", "s"], 300),
        "cost": rng.integers(0, 101, 300), "sex": rng.choice(["f", "m"], 300),
    })  # fmt: skip
    towns = dps.Determines("area", by="town", mapping={"a": "n", "b": "n", "c": "s"})
    other = dps.Never("area == 's' and sex == 'f'", set={"sex": "m"})
    columns = [dps.Category("town", ["a", "b", "c"]), dps.Category("area", ["n", "s"]),
               dps.Number("cost", 0, 100, points=101, missing=0), dps.Category("sex", ["f", "m"]),
               dps.Number("log_cost", 1, 100, scale="log", points=21, source="cost")]  # fmt: skip
    asked = {"t": dps.Marginals(["town", "area"]), "m": dps.Mean(["cost", "log(log_cost)"])}
    schema = dps.Schema(columns, rules=[towns, other])
    made = dps.release(dps.plan(schema, asked, budget=dps.PureDP(1), n=300), rows, rng=0)
    made.save(path)
    right = verify(path)
    assert right.agrees
    assert "no published row breaks any of 2 between published columns" in right.text
    assert "1 rule needs columns that are not published" in right.text
    for column, rule in (
        ("area", "area follows from town"), ("log_cost", "log_cost is a view of cost")
    ):  # fmt: skip
        codes, at = made.candidates[column].copy(), np.argmax(made.counts)
        codes[at] += 1 if codes[at] == 0 else -1
        edited = replace(made, candidates={**made.candidates, column: codes})
        edited.save(path, overwrite=True)
        (wrong,) = verify(path).wrong
        assert f"published rows break the rule {rule!r}" in wrong
