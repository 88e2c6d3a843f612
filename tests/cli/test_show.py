"""Show, report and verify: descriptions of a release for people and for other programs."""

import csv
import hashlib
import io
import json
from pathlib import Path

import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import FAILED, REFUSED
from dpstats.reports import pictures


def test_descriptions(archive, printed):
    described = json.loads(printed("show r.zip --croissant"))
    assert described == archive.to_croissant("r")
    held, rows = described["distribution"]
    assert held["sha256"] == hashlib.sha256(Path("r.zip").read_bytes()).hexdigest()
    assert rows["containedIn"] == {"@id": held["@id"]} == {"@id": "r.zip"}
    fields = {field["name"]: field for field in described["recordSet"][0]["field"]}
    assert fields["age"]["dataType"] == "sc:Float"
    assert fields["smoker"]["references"]["field"]["@id"] == "levels/smoker/level"
    table = json.loads(printed("show r.zip --frictionless"))
    assert dps.Schema.from_frictionless(table) == archive.schema
    refused = printed("show more.toml --croissant", code=REFUSED)
    assert "is a request, not a release" in refused


def test_the_rows_as_a_parquet_file(archive, printed, monkeypatch):
    monkeypatch.setattr("dpstats.releases.interchange._ROW_GROUP", 1_000)  # more than one
    assert archive.k > 1_000
    wrote = printed("show r.zip --parquet rows.parquet")
    assert wrote == f"wrote {archive.k} rows to rows.parquet\n"
    pd.testing.assert_frame_equal(pd.read_parquet("rows.parquet"), archive.to_frame())


def test_levels_that_spreadsheets_run_are_kept_and_named(folder, entries, printed, streams):
    name, levels = "risky", ["=cmd|' /C calc'!A1", "@SUM(A1)", "-2+3", "fine", "-5"]
    asked = {"name": "t", "kind": "marginals", "columns": [name], "degree": 1}
    column = entries("column", {"name": name, "levels": levels})
    request = f"[budget]\nepsilon = 1\n{column}{entries('analysis', asked)}"
    (folder / "r.toml").write_text(request)
    pd.DataFrame({name: levels * 40}).to_csv("t.csv")
    out = printed("release --unchecked r.toml t.csv -o f.zip --m 50")
    note = "its rows.csv holds texts that spreadsheets run as formulas"
    assert note in " ".join(out.split())
    out, err = streams("infer f.zip --csv")
    assert "import its columns as text" in err
    assert set(dps.load("f.zip").to_frame()[name]) <= set(levels)
    assert {row[name] for row in csv.DictReader(io.StringIO(out))} == set(levels)


def test_both_pages_and_what_is_refused(archive, printed, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    assert printed("report r.zip -o s.html --title Smoking") == "written to s.html\n"
    assert "<h1>Smoking</h1>" in Path("s.html").read_text()
    printed("report r.zip -o s.html --overwrite --audience board")
    assert "What leaves the building" in Path("s.html").read_text()
    before = Path("r.zip").read_bytes()
    refused = printed("report r.zip -o r.zip --overwrite", code=REFUSED)
    assert "the output 'r.zip' is the release" in refused
    assert Path("r.zip").read_bytes() == before
    refused = printed("report request.toml -o r.html", code=REFUSED)
    assert "is a request, not a release; make its plan with" in refused


def test_a_plan_that_was_edited_does_not_agree(folder, printed, streams):
    printed("plan request.toml -o plan.json")
    plan = json.loads((folder / "plan.json").read_text())
    plan["budget"]["epsilon"] = "99/100"
    (folder / "plan.json").write_text(json.dumps(plan))
    out, _ = streams("verify plan.json", code=FAILED)
    assert "Disagreement: the noise spends 1 on rows" in out


def test_other_files_are_not_verified(folder, streams):
    (folder / "notes.txt").write_text("secret")
    (folder / "other.json").write_text("{}")
    for name, says in {
        "request.toml": "request.toml is a request, not a release, measurements or a plan; make",
        "notes.txt": "notes.txt is not a file of dpstats: neither a release",
        "other.json": "other.json is not a plan of dpstats",
        "none": "cannot read none: No such file",
    }.items():
        out, err = streams(f"verify {name}", code=REFUSED)
        assert not out
        assert err.startswith(f"dpstats: {says}")
        assert "secret" not in err
