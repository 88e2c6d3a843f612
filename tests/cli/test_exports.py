"""Infer and show for other programs: JSON, CSV, analyses that were not planned, descriptions."""

import csv
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.spelled_text import analysis_from_text
from dpstats.cli import DONE, REFUSED, main

MORE = """
[[analysis]]
name = "table"
kind = "marginals"
columns = ["smoker", "age"]
[[analysis]]
name = "link"
kind = "independence"
a = "smoker"
b = "age"
simulations = 99
"""


@pytest.fixture
def archive(folder, capsys):
    (folder / "more.toml").write_text((folder / "request.toml").read_text() + MORE)
    release = ["release", "--unchecked", "more.toml", "survey.csv", "-o", "r.zip"]
    assert main([*release, "--m", "500"]) == DONE
    capsys.readouterr()
    return dps.load("r.zip")


@pytest.fixture
def printed(capsys):
    def run(*arguments, code=DONE):
        assert main([*arguments]) == code
        out, err = capsys.readouterr()
        return out if code == DONE else err

    return run


def test_json(archive, printed):
    found = json.loads(printed("infer", "r.zip", "--json", "--alpha", "0.1"))
    assert [one["name"] for one in found] == list(archive.analyses)
    smoking, _, table, link = found
    ends = archive.infer("smoking").conf_int(alpha=0.1)
    assert [smoking["table"][0][key] for key in ("conf_low", "conf_high")] == list(ends)
    assert smoking["table"][0]["p_value"] is None  # NaN is no JSON
    assert smoking["analysis"] == {"kind": "proportion", "condition": "smoker == 'yes'"}
    assert smoking["notes"] == archive.infer("smoking").notes
    assert table["table"][0]["smoker"] == "no"
    assert link["pvalue"] == archive.infer("link").pvalue
    assert link["conf_int"] == list(archive.infer("link").conf_int(alpha=0.1))
    assert len(link["table"]) == 4


def test_no_zero_is_negative(archive, printed, monkeypatch):
    frame = pd.DataFrame({"term": ["a"], "conf_low": [-0.0], "conf_high": [0.5]})
    monkeypatch.setattr(type(archive.infer("smoking")), "to_frame", lambda self, **_: frame)
    assert "-0" not in printed("infer", "r.zip", "smoking", "--csv")
    assert '"conf_low": 0.0' in printed("infer", "r.zip", "smoking", "--json")


def test_csv_has_all_tables(archive, printed):
    rows = list(csv.DictReader(io.StringIO(printed("infer", "r.zip", "smoking", "table", "--csv"))))
    assert [row["analysis"] for row in rows] == ["smoking"] + ["table"] * 4
    assert rows[0]["smoker"] == ""
    assert rows[1]["smoker"] == "no"
    for row, end in zip(rows[1:], archive.infer("table").conf_int()[:, 0], strict=True):
        assert float(row["conf_low"]) == end


def test_method_and_target(archive, printed):
    result = archive.infer("smoking")
    options = {"method": "certified", "target": "table"}
    text = printed(
        "infer", "r.zip", "smoking", "--csv", "--method", "certified", "--target", "table"
    )
    (row,) = csv.DictReader(io.StringIO(text))
    assert [float(row["conf_low"]), float(row["conf_high"])] == list(result.conf_int(**options))
    text = printed("infer", "r.zip", "link", "--csv", "--method", "certified", code=REFUSED)
    assert "'link' is left out: there is no certified interval for Cramer's V" in text
    text = printed("infer", "r.zip", "smoking", "--json", "--simultaneous", code=REFUSED)
    assert "--simultaneous is for the text" in text


def test_asking_for_more(archive, printed):
    for text in [
        'Proportion("age >= 65")',
        "dps.Proportion(condition='age >= 65')",
        "proportion('age >= 65')",
        '{kind = "proportion", condition = "age >= 65"}',
    ]:
        found = printed("infer", "r.zip", "--ask", text)
        assert found.rstrip() == archive.infer(dps.Proportion("age >= 65")).summary()
        (one,) = json.loads(printed("infer", "r.zip", "--json", "--ask", text))
        assert one["analysis"] == {"kind": "proportion", "condition": "age >= 65"}
        assert "Proportion" in one["name"]


def test_what_was_not_measured(archive, printed):
    text = printed("infer", "r.zip", "--ask", "OLS('age ~ smoker')", code=REFUSED)
    assert "'age' need missing= in the schema" in text or "cannot answer" in text
    assert (
        printed("infer", "r.zip", "smoking", "--ask", "Proportion('age >= 65')").count("Target")
        == 2
    )


REFUSALS = {
    "Proportion(open('survey.csv').read())": "argument 1 of Proportion is not a literal",
    "Proportion('a', given=x)": "given= of Proportion is not a literal",
    "Proportion({'a'})": "argument 1 of Proportion is not a literal",
    "__import__('os').system('touch touched')": "it calls no analysis",
    "os.Proportion('a')": "it calls no analysis",
    "Proportion": "no analysis with its parameters",
    "Proportion('a', 'b', 'c')": "takes 2 parameters without names",
    "Proportion(*['a'])": "is not a literal",
    "Proportion(**{'condition': 'a'})": "given one by one",
    "Proportion('a', condition='b')": "condition is given twice",
    "Proportion('a', other=1)": "unknown keys ['other']",
    "Proportion('a'": "it is not an expression",
    "(" * 9_000: "it is not an expression",
    "Proportion('" + "a" * 20_000 + "')": "at most 10000 characters",
    "{kind = 'proportion', condition = }": "not an inline table",
    "{kind = 'none'}": "unknown kind",
}


def test_text_is_parsed_and_never_evaluated(tmp_path, monkeypatch):
    for text in REFUSALS:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(dps.RequestError) as error:
            analysis_from_text(text)
        assert REFUSALS[text] in str(error.value)
        assert not list(Path().iterdir())


def test_every_analysis_can_be_spelled():
    for text, made in {
        "Marginals(['a', 'b'], degree=1)": dps.Marginals(["a", "b"], degree=1),
        "Marginals(('a', 'b'))": dps.Marginals(["a", "b"]),
        "GoodnessOfFit('a', {'x': 0.25, 'y': 0.75})": dps.GoodnessOfFit(
            "a", {"x": 0.25, "y": 0.75}
        ),
        "Quantile('a', probability=0.25 + 0.25)": None,
        "OLS('y ~ a + C(g)')": dps.OLS("y ~ a + C(g)"),
    }.items():
        if made is None:
            with pytest.raises(dps.RequestError, match="not a literal"):
                analysis_from_text(text)
        else:
            assert analysis_from_text(text) == made


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
    assert "is a request, not a release" in printed(
        "show", "more.toml", "--croissant", code=REFUSED
    )


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
    assert printed("show", "r.zip", "--parquet", "rows.parquet") == (
        f"wrote {archive.k} rows to rows.parquet\n"
    )
    pd.testing.assert_frame_equal(pd.read_parquet("rows.parquet"), archive.to_frame())
    assert "overwrite=True" in printed("show", "r.zip", "--parquet", "rows.parquet", code=REFUSED)
    assert "wrote" in printed("show", "r.zip", "--parquet", "rows.parquet", "--overwrite")


def test_levels_that_spreadsheets_run_are_kept_and_named(folder, capsys):
    levels = ["=cmd|' /C calc'!A1", "@SUM(A1)", "-2+3", "fine", "-5"]
    columns = "".join(
        f"[[column]]\nname = {name!r}\nlevels = {json.dumps(own)}\n"
        for name, own in (("risky", levels), ("plain", ["-1", "+2.5e3", "a=b"]))
    )
    for name, plain in (("risky", False), ("plain", True)):
        asked = f"[[analysis]]\nname = 't'\nkind = 'marginals'\ncolumns = ['{name}']\ndegree = 1\n"
        (folder / "r.toml").write_text(f"[budget]\nepsilon = 1\n{columns}{asked}")
        pd.DataFrame({"risky": levels * 40, "plain": ["-1", "+2.5e3"] * 100}).to_csv("t.csv")
        assert (
            main(["release", "--unchecked", "r.toml", "t.csv", "-o", "f.zip", "--overwrite"])
            == DONE
        )
        out = " ".join(capsys.readouterr().out.split())
        assert ("its rows.csv holds texts that spreadsheets run as formulas" in out) != plain
        assert ("cmd" in out.split("written to")[1]) != plain
        assert main(["infer", "f.zip", "--csv"]) == DONE
        out, err = capsys.readouterr()
        assert (", such as " in err and "import its columns as text" in err) != plain
        if not plain:
            assert set(dps.load("f.zip").to_frame()["risky"]) <= set(levels)
            assert {row["risky"] for row in csv.DictReader(io.StringIO(out))} == set(levels)
