"""Infer, explain and bound: what prints, as text, JSON and CSV, and what is refused."""

import json
from pathlib import Path

import pytest

import dpstats as dps
from dpstats.analyses.registry import analysis_from_text
from dpstats.cli import REFUSED, main


def test_options_of_summaries(archive, printed):
    graph, picture = archive.infer("graph"), archive.infer("picture")
    shown = printed("infer r.zip graph --simultaneous").rstrip()
    assert shown == graph.summary(simultaneous=True)
    assert printed("infer r.zip graph --adjust fdr_bh").rstrip() == graph.summary(adjust="fdr_bh")
    weights = archive.infer("weights")
    pairs = printed("infer r.zip weights --adjust holm").rstrip()
    assert pairs == f"{weights.summary()}\n\n{weights.pairwise().summary()}"
    other = next(one for one in (0.1, 0.3) if one != picture.nearest)
    assert f"below: penalty {other}" in printed(f"infer r.zip picture --penalty {other}")
    refused = printed("infer r.zip graph --penalty 0.3", code=REFUSED)
    assert "--penalty has no meaning for 'graph'" in refused


def test_long_tables_print_as_many_rows_as_asked_for(archive, printed, capsys):
    for rows, lines in (("all", 4), ("2", 2)):
        text = printed(f"infer r.zip table smoking --most {rows}")
        assert text.count("smoker=") == lines
        assert ("2 more rows in to_frame(); print them with most=" in text) == (lines == 2)
    with pytest.raises(SystemExit, match="2"):
        main(["infer", "r.zip", "--most=0"])
    assert "--most: give a number of rows, or all" in capsys.readouterr().err


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


def test_what_has_no_such_interval_is_left_out_and_others_are_written(archive, printed, streams):
    ends = archive.infer("smoking").conf_int(method="certified")
    out, err = streams("infer r.zip smoking link --csv --method certified")
    assert "link" not in out
    assert all(repr(float(end)) in out for end in ends)
    assert "'link' is left out: there is no certified interval for Cramer's V" in err
    refused = printed("infer r.zip link --csv --method certified", code=REFUSED)
    assert "no analysis is left" in refused
    refused = printed("infer r.zip smoking link --csv --simultaneous", code=REFUSED)
    assert "--simultaneous is for the text" in refused


def test_asking_for_more(archive, printed):
    for text in [
        "dps.Proportion(condition='age >= 65')",
        "proportion('age >= 65')",
        '{kind = "proportion", condition = "age >= 65"}',
    ]:
        found = printed("infer", "r.zip", "--ask", text)
        assert found.rstrip() == archive.infer(dps.Proportion("age >= 65")).summary()


def test_explain_and_bound_print_what_python_shows(archive, printed):
    joint = "smoker == 'yes' and age >= 65"
    marginals = dps.Marginals(["smoker", "age"])
    for verb, query, options, wanted in [
        ("explain", joint, [], archive.explain(joint)),
        ("explain", "Marginals(['smoker', 'age'])", [], archive.explain(marginals)),
        ("explain", "age < 65", ["--over", "age >= 65"],
         archive.explain("age < 65", over="age >= 65")),
        ("bound", "smoker == 'yes'",
         ["--minus", "age >= 65", "--alpha", "0.2", "--target", "population"],
         archive.bound("smoker == 'yes'", minus="age >= 65", alpha=0.2, target="population")),
    ]:  # fmt: skip
        assert printed(verb, "r.zip", query, *options).rstrip() == str(wanted)
    assert printed("bound", "r.zip", "open('survey.csv')", code=REFUSED)


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
