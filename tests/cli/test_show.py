"""Show and report: descriptions of a release for people and for other programs."""

import csv
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import REFUSED, main
from dpstats.reports import pictures


def test_show_prints_what_a_release_holds(archive, printed):
    text = printed("show", "r.zip")
    assert text.startswith(str(archive))
    assert str(archive.schema) in text
    assert "table: dps.Marginals(['smoker', 'age'])" in text
    assert "smoker, age" in text.split("Measured")[1]
    for part in ("epsilon = 1", archive.measurements.plan_digest[:16], "with probability 95%"):
        assert part in text


def test_show_gives_the_reasons_for_analyses_that_cannot_be_read(archive, printed):
    requests = {**archive.measurements.requests, "mine": {"kind": "mine"}}
    held = replace(archive.measurements, requests=requests)
    held.save("measured.zip")
    replace(archive, measurements=held).save("unread.zip")
    for name in ("unread.zip", "measured.zip"):
        text = printed("show", name)
        analyses = text.split("\nAnalyses\n")[1].split("\n\n")[0]
        assert "smoking: dps.Proportion" in analyses
        assert "analysis 'mine' cannot be read here: unknown kind of analysis 'mine'" in analyses


def test_descriptions(archive, printed):
    described = json.loads(printed("show", "r.zip", "--croissant"))
    assert described == archive.to_croissant("r")
    held, rows = described["distribution"]
    assert held["sha256"] == hashlib.sha256(Path("r.zip").read_bytes()).hexdigest()
    assert rows["containedIn"] == {"@id": held["@id"]} == {"@id": "r.zip"}
    fields = {field["name"]: field for field in described["recordSet"][0]["field"]}
    assert fields["age"]["dataType"] == "sc:Float"
    assert fields["smoker"]["references"]["field"]["@id"] == "levels/smoker/level"
    assert fields["smoker"]["source"]["extract"] == {"column": "smoker"}
    levels = described["recordSet"][1]
    assert [list(one.values()) for one in levels["data"]] == [["no"], ["yes"]]
    assert "epsilon = 1" in described["description"]
    table = json.loads(printed("show", "r.zip", "--frictionless"))
    assert dps.Schema.from_frictionless(table) == archive.schema
    refused = printed("show", "more.toml", "--croissant", code=REFUSED)
    assert "is a request, not a release" in refused


def test_identifiers_of_a_description_have_no_spaces():
    schema = dps.Schema([dps.Category("a b/c", ["x y", "z"]), dps.Boolean("<d>")])
    plan = dps.plan(schema, {"t": dps.Marginals(schema.names)}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"a b/c": ["x y", "z"] * 50, "<d>": [True] * 100})
    described = dps.release(plan, rows, m=100).to_croissant("my survey", license="CC-BY-4.0")

    def identifiers(value):
        if isinstance(value, dict):
            for key, item in value.items():
                yield from [item] if key == "@id" else identifiers(item)
        elif isinstance(value, list):
            for item in value:
                yield from identifiers(item)

    del described["@context"]
    found = set(identifiers(described))
    assert {"my%20survey.zip", "rows/a%20b%2Fc", "levels/a%20b%2Fc/level"} <= found
    assert not any(set(" <>") & set(one) for one in found)
    assert described["license"] == "CC-BY-4.0"


def test_the_rows_as_a_parquet_file(archive, printed, monkeypatch):
    monkeypatch.setattr("dpstats.releases.interchange._ROW_GROUP", 1_000)  # more than one
    assert archive.k > 1_000
    command = ("show", "r.zip", "--parquet", "rows.parquet")
    assert printed(*command) == f"wrote {archive.k} rows to rows.parquet\n"
    pd.testing.assert_frame_equal(pd.read_parquet("rows.parquet"), archive.to_frame())
    assert "overwrite=True" in printed(*command, code=REFUSED)
    assert "wrote" in printed(*command, "--overwrite")


@pytest.mark.parametrize("name", ["risky", "plain"])
def test_levels_that_spreadsheets_run_are_kept_and_named(folder, printed, capsys, name):
    levels = {
        "risky": ["=cmd|' /C calc'!A1", "@SUM(A1)", "-2+3", "fine", "-5"],
        "plain": ["-1", "+2.5e3", "a=b"],
    }[name]
    (folder / "r.toml").write_text(
        f"[budget]\nepsilon = 1\n[[column]]\nname = {name!r}\nlevels = {json.dumps(levels)}\n"
        f"[[analysis]]\nname = 't'\nkind = 'marginals'\ncolumns = ['{name}']\ndegree = 1\n"
    )
    pd.DataFrame({name: levels * 40}).to_csv("t.csv")
    out = printed("release", "--unchecked", "r.toml", "t.csv", "-o", "f.zip", "--m", "50")
    note = "its rows.csv holds texts that spreadsheets run as formulas"
    assert (note in " ".join(out.split())) == (name == "risky")
    assert ("cmd" in out.split("written to")[1]) == (name == "risky")
    main(["infer", "f.zip", "--csv"])
    out, err = capsys.readouterr()
    assert (", such as " in err and "import its columns as text" in err) == (name == "risky")
    assert set(dps.load("f.zip").to_frame()[name]) <= set(levels)
    assert {row[name] for row in csv.DictReader(io.StringIO(out))} == set(levels)


def test_both_pages_and_what_is_refused(archive, printed, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    page = ("report", "r.zip", "-o", "s.html")
    assert printed(*page, "--title", "Smoking") == "written to s.html\n"
    assert "<h1>Smoking</h1>" in Path("s.html").read_text()
    assert "exists and is kept" in printed(*page, code=REFUSED)
    printed(*page, "--overwrite", "--audience", "board")
    assert "What leaves the building" in Path("s.html").read_text()
    before = Path("r.zip").read_bytes()
    refused = printed("report", "r.zip", "-o", "r.zip", "--overwrite", code=REFUSED)
    assert "the output 'r.zip' is the release" in refused
    assert Path("r.zip").read_bytes() == before
    refused = printed("report", "request.toml", "-o", "r.html", code=REFUSED)
    assert "is a request, not a release; make its plan with" in refused
