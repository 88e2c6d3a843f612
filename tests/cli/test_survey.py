"""A sample survey through all commands: the design is read, shown and used, and never left out."""

import json

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, REFUSED, main

DESIGN = """
[design]
weights = "weight"
mean = 2700
cap = 8000
total = 5_400_000
strata = "region"
unit = "school"

[design.units]
north = ["n1", "n2", "n3", "n4", "n5"]
south = ["s1", "s2", "s3", "s4"]
"""
COLUMNS = """
[[column]]
name = "smoker"
levels = ["no", "yes"]

[[column]]
name = "age"
low = 0
high = 120
points = 121
missing = 40
"""
ASKED = """
[budget]
epsilon = {epsilon}

[[analysis]]
name = "smoking"
kind = "proportion"
condition = "smoker == 'yes'"

[[analysis]]
name = "age"
kind = "mean"
columns = "age"
"""


@pytest.fixture
def rows():
    rng, n = np.random.default_rng(3), 2_000
    school = rng.choice(["n1", "n2", "n3", "n4", "n5", "s1", "s2", "s3", "s4"], n)
    smoker = rng.random(n) < 0.2 + 0.1 * (school > "n3")
    return pd.DataFrame({
        "smoker": np.where(smoker, "yes", "no"), "age": rng.integers(10, 90, n),
        "weight": np.where(smoker, 1_500, 3_000), "school": school,
        "region": np.where(np.char.startswith(school.astype(str), "n"), "north", "south"),
    })  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, rows):
    """Runs a command in a folder with the rows; gives the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    rows.to_csv("rows.csv", index=False)

    def command(line):
        code = main(line.split())
        out, err = capsys.readouterr()
        return code, out + err

    return command


def shares(rows):
    return np.average(rows["smoker"] == "yes", weights=rows["weight"].clip(upper=8_000))


@pytest.mark.parametrize(("unit", "apart"), [("replace", False), ("add_remove", True)])
def test_every_command_knows_the_design(run, rows, tmp_path, monkeypatch, unit, apart):
    text = f"unit = {unit!r}\n" + ("schema = 'schema.toml'\n" if apart else "")
    declared = COLUMNS + DESIGN
    (tmp_path / "schema.toml").write_text(declared)
    (tmp_path / "request.toml").write_text(
        text + ASKED.format(epsilon=1e6) + ("" if apart else declared)
    )
    named = (
        "weights weight, mean 2700, at most 8000; strata region (2) of units school (9 declared)"
    )
    code, printed = run("plan request.toml -o plan.json")
    assert code == DONE
    assert named in " ".join(printed.split())
    code, printed = run("check plan.json rows.csv")
    assert code == DONE
    assert "design: weights and units are as declared" in printed
    code, _ = run("release plan.json rows.csv -o r.zip --checked --m 200 --k 100 --rng 1")
    assert code == DONE
    code, printed = run("show r.zip")
    assert code == DONE
    assert named in " ".join(printed.split())
    code, printed = run("infer r.zip")
    assert code == DONE
    assert f"\nsmoker == 'yes'    {shares(rows):.4f}" in printed
    assert printed.count("the population, by the survey design") == 2
    code, printed = run("verify r.zip")
    assert code == DONE
    assert "weighted by 'weight'" in printed
    monkeypatch.setattr("dpstats.reports.pictures.can_draw", lambda: False)
    assert run("report r.zip -o page.html")[0] == DONE
    assert named in (tmp_path / "page.html").read_text()
    again = dps.load(tmp_path / "r.zip")
    assert again.schema.design == dps.Schema.load(tmp_path / "schema.toml").design
    assert again.measurements.strategy.n == (2_000 if unit == "replace" else None)
    assert dps.Plan.load(tmp_path / "plan.json").digest == again.measurements.plan_digest


def test_a_design_beside_the_schema_is_refused(run, tmp_path):
    (tmp_path / "schema.toml").write_text(COLUMNS)
    (tmp_path / "request.toml").write_text(
        "schema = 'schema.toml'\n" + ASKED.format(epsilon=1) + DESIGN
    )
    code, printed = run("plan request.toml -o plan.json")
    assert code == REFUSED
    assert "[design] tables belong in the file of the schema" in printed


def test_a_plan_file_with_contrasts_that_nothing_needs_is_refused(run, tmp_path):
    text = ASKED.format(epsilon=2) + COLUMNS + DESIGN + '\n[[column]]\nname = "b"\n'
    (tmp_path / "request.toml").write_text(text + 'kind = "boolean"\n')
    assert run("plan request.toml -o plan.json")[0] == DONE
    plain = json.loads((tmp_path / "plan.json").read_text())
    assert run("verify plan.json")[0] == DONE
    (first, second) = (block for block in plain["blocks"] if block["role"] == "contrasts")
    for base in ({"kind": "table", "columns": ["b"]}, second["base"]):
        first["base"] = base
        (tmp_path / "plan.json").write_text(json.dumps(plain))
        code, printed = run("show plan.json")
        assert code == REFUSED
        assert "contrasts of functions that answer nothing, or some twice" in printed
