"""Infer, explain and bound: what prints, as text, JSON and CSV, and what is refused."""

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.registry import analysis_from_text
from dpstats.cli import REFUSED, main

JOINT = "smoker == 'yes' and age >= 65"
OLD, SHOWN = dps.Proportion("age >= 65"), [
    (["infer", "graph", "--simultaneous"], lambda r: r.infer("graph").summary(simultaneous=True)),
    (["infer", "graph", "--adjust", "fdr_bh"], lambda r: r.infer("graph").summary(adjust="fdr_bh")),
    (["infer", "weights", "--adjust", "holm"], lambda r: "\n\n".join(
        found.summary() for found in (r.infer("weights"), r.infer("weights").pairwise()))),
    *((["infer", "--ask", text], lambda r: r.infer(OLD).summary()) for text in (
        "dps.Proportion(condition='age >= 65')", "proportion('age >= 65')",
        '{kind = "proportion", condition = "age >= 65"}')),
    (["explain", JOINT], lambda r: r.explain(JOINT)),
    (["explain", "Marginals(['smoker', 'age'])"],
     lambda r: r.explain(dps.Marginals(["smoker", "age"]))),
    (["explain", "age < 65", "--over", "age >= 65"],
     lambda r: r.explain("age < 65", over="age >= 65")),
    (["bound", "smoker == 'yes'", "--minus", "age >= 65", "--alpha", "0.2", "--target",
      "population"],
     lambda r: r.bound("smoker == 'yes'", minus="age >= 65", alpha=0.2, target="population")),
]  # fmt: skip


def test_commands_print_what_python_shows(archive, printed, streams):
    for (verb, *rest), wanted in SHOWN:
        assert printed(verb, "r.zip", *rest).rstrip() == str(wanted(archive))
    nearest = archive.infer("picture").nearest
    other = next(one for one in (0.1, 0.3) if one != nearest)
    assert f"below: penalty {other}" in printed(f"infer r.zip picture --penalty {other}")
    for options, message in {
        "graph --penalty 0.3": "--penalty has no meaning for 'graph'",
        "link --csv --method certified": "no analysis is left",
        "smoking link --csv --simultaneous": "--simultaneous is for the text",
    }.items():
        assert message in printed(f"infer r.zip {options}", code=REFUSED)
    assert printed("bound", "r.zip", "open('survey.csv')", code=REFUSED)
    ends = archive.infer("smoking").conf_int(method="certified")
    out, err = streams("infer r.zip smoking link --csv --method certified")
    assert "link" not in out
    assert all(repr(float(end)) in out for end in ends)
    assert "'link' is left out: there is no certified interval for Cramer's V" in err


def test_long_tables_print_as_many_rows_as_asked_for(archive, printed, capsys):
    for rows, lines in (("all", 4), ("2", 2)):
        text = printed(f"infer r.zip table smoking --most {rows}")
        assert text.count("smoker=") == lines
        assert ("2 more rows in to_frame(); print them with most=" in text) == (lines == 2)
    with pytest.raises(SystemExit, match="2"):
        main(["infer", "r.zip", "--most=0"])
    assert "--most: give a number of rows, or all" in capsys.readouterr().err


def test_columns_of_the_table_may_be_named_as_those_of_results(folder, printed):
    names = ["analysis", "analysis (level)", "term", "term (level)"]
    schema = dps.Schema([dps.Boolean(name) for name in names])
    asked = {"t": dps.Marginals(names, degree=4), "p": dps.Proportion("term")}
    rows = pd.DataFrame({name: [True, False] for name in names})
    made = dps.release(dps.plan(schema, asked, budget=dps.PureDP(1)), rows, m=20, rng=1)
    made.save("named.zip")
    header, first, *_ = csv.reader(io.StringIO(printed("infer named.zip --csv")))
    assert header[:6] == ["analysis", "term", "analysis (level) (level)", "analysis (level)",
                          "term (level) (level)", "term (level)"]  # fmt: skip
    assert first[:2] == ["t", ", ".join(f"{name}=False" for name in names)]


def test_json(archive, printed):
    found = json.loads(printed("infer r.zip --json --alpha 0.1"))
    assert [one["name"] for one in found] == list(archive.analyses)
    smoking, _, table, link, *_ = found
    ends = archive.infer("smoking").conf_int(alpha=0.1)
    assert [smoking["table"][0][key] for key in ("conf_low", "conf_high")] == list(ends)
    assert smoking["table"][0]["p_value"] is None  # NaN is no JSON
    assert smoking["analysis"] == {"kind": "proportion", "condition": "smoker == 'yes'"}
    assert table["table"][0]["smoker"] == "no"
    assert link["pvalue"] == archive.infer("link").pvalue
    assert link["conf_int"] == list(archive.infer("link").conf_int(alpha=0.1))


REFUSALS = {
    "Proportion(open('survey.csv').read())": "argument 1 of Proportion is not a literal",
    "Proportion('a', given=x)": "given= of Proportion is not a literal",
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
    monkeypatch.chdir(tmp_path)
    for text, says in REFUSALS.items():
        with pytest.raises(dps.RequestError) as error:
            analysis_from_text(text)
        assert says in str(error.value)
        assert not list(Path().iterdir())
    for text in [
        "Marginals(['a', 'b'], degree=1)", "Marginals(('a', 'b'))", "OLS('y ~ a + C(g)')",
        "GoodnessOfFit('a', {'x': 0.25, 'y': 0.75})",
    ]:  # fmt: skip
        assert analysis_from_text(text) == eval(f"dps.{text}")
