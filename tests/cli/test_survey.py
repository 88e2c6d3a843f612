"""A sample survey through all commands: the design is read, shown and used, and never left out."""

import json

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, REFUSED

UNITS = {"north": ["n1", "n2", "n3", "n4", "n5"], "south": ["s1", "s2", "s3", "s4"]}
DESIGN = f"""
[design]
weights = "weight"
mean = 2700
cap = 8000
total = 5_400_000
strata = "region"
unit = "school"
units = {{ north = {UNITS["north"]}, south = {UNITS["south"]} }}
"""
BUDGET = "[budget]\nepsilon = {}\n"


@pytest.fixture
def texts(entries):
    """Columns, and what is asked of them."""
    columns = entries(
        "column",
        {"name": "smoker", "levels": ["no", "yes"]},
        {"name": "age", "low": 0, "high": 120, "points": 121, "missing": 40},
    )
    smoking = {"name": "smoking", "kind": "proportion", "condition": "smoker == 'yes'"}
    return columns, entries("analysis", smoking, {"name": "age", "kind": "mean", "columns": "age"})


@pytest.fixture
def rows():
    rng, n = np.random.default_rng(3), 2_000
    school = rng.choice([unit for units in UNITS.values() for unit in units], n)
    smoker = rng.random(n) < 0.2 + 0.1 * (school > "n3")
    return pd.DataFrame({
        "smoker": np.where(smoker, "yes", "no"), "age": rng.integers(10, 90, n),
        "weight": np.where(smoker, 1_500, 3_000), "school": school,
        "region": np.where(np.char.startswith(school.astype(str), "n"), "north", "south"),
    })  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch, rows, streams):
    """Runs a command in a folder with the rows; gives what was written, on one line."""
    monkeypatch.chdir(tmp_path)
    rows.to_csv("rows.csv", index=False)
    return lambda line, code=DONE: " ".join("".join(streams(line, code=code)).split())


@pytest.mark.parametrize(("unit", "apart"), [("replace", False), ("add_remove", True)])
def test_every_command_knows_the_design(run, rows, texts, tmp_path, monkeypatch, unit, apart):
    columns, asked = texts
    declared, text = columns + DESIGN, f"unit = {unit!r}\n"
    (tmp_path / "schema.toml").write_text(declared)
    text += ("schema = 'schema.toml'\n" if apart else "") + BUDGET.format(1e6) + asked
    (tmp_path / "request.toml").write_text(text + ("" if apart else declared))
    named = (
        "weights weight, mean 2700, at most 8000; strata region (2) of units school (9 declared)"
    )
    assert named in run("plan request.toml -o plan.json")
    fit = run("check plan.json rows.csv")
    assert "design: weights and units are as declared" in fit
    run("release plan.json rows.csv -o r.zip --checked --m 100 --k 100 --rng 1")
    assert named in run("show r.zip")
    printed = run("infer r.zip")
    share = np.average(rows["smoker"] == "yes", weights=rows["weight"])
    assert f" smoker == 'yes' {share:.4f}" in printed
    assert printed.count("the population, by the survey design") == 2
    assert "weighted by 'weight'" in run("verify r.zip")
    monkeypatch.setattr("dpstats.reports.pictures.can_draw", lambda: False)
    run("report r.zip -o page.html")
    assert named in (tmp_path / "page.html").read_text()
    again = dps.load(tmp_path / "r.zip")
    assert again.schema.design == dps.Schema.load(tmp_path / "schema.toml").design
    assert again.measurements.strategy.n == (2_000 if unit == "replace" else None)
    assert dps.Plan.load(tmp_path / "plan.json").digest == again.measurements.plan_digest


def test_a_design_beside_the_schema_is_refused(run, texts, tmp_path):
    columns, asked = texts
    (tmp_path / "schema.toml").write_text(columns)
    text = f"schema = 'schema.toml'\n{BUDGET.format(1)}{asked}{DESIGN}"
    (tmp_path / "request.toml").write_text(text)
    printed = run("plan request.toml -o plan.json", code=REFUSED)
    assert "[design] tables belong in the file of the schema" in printed


def test_a_plan_file_with_contrasts_that_nothing_needs_is_refused(run, texts, entries, tmp_path):
    more = entries("column", {"name": "b", "kind": "boolean"})
    (tmp_path / "request.toml").write_text(BUDGET.format(2) + "".join(texts) + more + DESIGN)
    run("plan request.toml -o plan.json")
    plain = json.loads((tmp_path / "plan.json").read_text())
    run("verify plan.json")
    (first, second) = (block for block in plain["blocks"] if block["role"] == "contrasts")
    for base in ({"kind": "table", "columns": ["b"]}, second["base"]):
        first["base"] = base
        (tmp_path / "plan.json").write_text(json.dumps(plain))
        printed = run("show plan.json", code=REFUSED)
        assert "contrasts of functions that answer nothing, or some twice" in printed
