"""Show and infer: what prints."""

import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, REFUSED, main

GRAPH = """
[[column]]
name = "weight"
low = 0
high = 100
missing = 0
[[column]]
name = "height"
low = 0
high = 100
missing = 0
[[analysis]]
name = "graph"
kind = "graphical_model"
columns = ["height", "weight", "smoker"]
[[analysis]]
name = "weights"
kind = "group_means"
column = "weight"
by = "smoker"
[[analysis]]
name = "picture"
kind = "graphical_model"
columns = ["height", "weight", "smoker"]
estimator = "clime"
penalties = [0.1, 0.3]
"""


def test_options_of_summaries(folder, capsys):
    (folder / "graph.toml").write_text((folder / "request.toml").read_text() + GRAPH)
    survey = pd.read_csv("survey.csv")
    numbers = pd.RangeIndex(len(survey)).to_numpy()
    survey.assign(weight=numbers % 100, height=numbers % 70).to_csv("survey.csv", index=False)
    release = ["release", "--unchecked", "graph.toml", "survey.csv", "-o", "g.zip"]
    assert main([*release, "--m", "1000"]) == DONE
    release = dps.load("g.zip")
    capsys.readouterr()

    def printed(*options):
        assert main(["infer", "g.zip", *options]) == DONE
        return capsys.readouterr().out.rstrip()

    graph, picture = release.infer("graph"), release.infer("picture")
    assert printed("graph", "--simultaneous") == graph.summary(simultaneous=True)
    smoking = release.infer("smoking").summary(simultaneous=True)
    assert printed("smoking", "--simultaneous") == smoking
    assert printed("graph", "--adjust", "fdr_bh") == graph.summary(adjust="fdr_bh")
    weights = release.infer("weights")
    pairs = printed("weights", "--adjust", "holm")
    assert pairs == f"{weights.summary()}\n\n{weights.pairwise().summary()}"
    other = next(one for one in (0.1, 0.3) if one != picture.nearest)
    assert f"below: penalty {other}" in printed("picture", "--penalty", str(other))
    assert main(["infer", "g.zip", "graph", "--penalty", "0.3"]) == REFUSED
    assert "--penalty has no meaning for 'graph'" in capsys.readouterr().err
    assert main(["infer", "g.zip", "--adjust", "none"]) == REFUSED
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("rows", ["all", "2"])
def test_long_tables_print_as_many_rows_as_asked_for(folder, capsys, monkeypatch, rows):
    table = '[[analysis]]\nname = "table"\nkind = "marginals"\ncolumns = ["smoker", "age"]'
    (folder / "table.toml").write_text((folder / "request.toml").read_text() + table)
    release = ["release", "--unchecked", "table.toml", "survey.csv", "-o", "t.zip"]
    assert main([*release, "--m", "100"]) == DONE
    capsys.readouterr()
    assert main(["infer", "t.zip", "--most", rows]) == DONE  # of all analyses, long or not
    text = capsys.readouterr().out
    assert text.count("smoker=") == (2 if rows == "2" else 4)
    assert ("2 more rows in to_frame(); print them with most=" in text) == (rows == "2")
    for wrong in ("0", "-1", "many", "1.5"):
        with pytest.raises(SystemExit, match="2"):
            main(["infer", "t.zip", f"--most={wrong}"])
        assert "--most: give a number of rows, or all" in capsys.readouterr().err


def test_certified_intervals_are_beside_the_others_in_any_case(folder, capsys):
    release = ["release", "--unchecked", "request.toml", "survey.csv", "-o", "t.zip"]
    assert main([*release, "--m", "100"]) == DONE
    capsys.readouterr()
    texts = []
    for options in ([], ["--method", "certified"], ["--method", "noise_aware"]):
        assert main(["infer", "t.zip", *options]) == DONE
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert "95% certified" in texts[0]


def test_what_has_no_such_interval_is_left_out_and_the_others_are_written(folder, capsys):
    asked = """
[[analysis]]
name = "link"
kind = "independence"
a = "smoker"
b = "age"
simulations = 199
"""
    whole = folder / "whole.toml"
    whole.write_text((folder / "request.toml").read_text() + asked)
    release = ["release", "--unchecked", "whole.toml", "survey.csv", "-o", "t.zip"]
    assert main([*release, "--m", "100"]) == DONE
    capsys.readouterr()
    for form in ("--csv", "--json"):
        assert main(["infer", "t.zip", form]) == DONE
        usual = capsys.readouterr()
        assert "link" in usual.out
        assert main(["infer", "t.zip", form, "--method", "certified"]) == DONE
        found = capsys.readouterr()
        assert "link" not in found.out
        assert "smoking" in found.out
        assert "'link' is left out: there is no certified interval for Cramer's V" in found.err
        assert main(["infer", "t.zip", "link", form, "--method", "certified"]) == REFUSED
        assert "no analysis is left" in capsys.readouterr().err
        assert main(["infer", "t.zip", form, "--method", "certified", "--target", "table"]) == DONE
        assert "link" in capsys.readouterr().out


def test_every_kind_of_analysis_from_a_request(folder, capsys):
    more = """
[[analysis]]
name = "fit"
kind = "goodness_of_fit"
column = "smoker"
probabilities = { no = 0.7, yes = 0.3 }
simulations = 199
[[analysis]]
name = "link"
kind = "independence"
a = "smoker"
b = "age"
simulations = 199
[[analysis]]
name = "gap"
kind = "difference"
condition = "age >= 65"
by = "smoker"
[[analysis]]
name = "middle"
kind = "quantile"
column = "age"
[[analysis]]
name = "table"
kind = "marginals"
columns = ["smoker", "age"]
"""
    (folder / "more.toml").write_text((folder / "request.toml").read_text() + more)
    assert main(["preview", "more.toml", "--n", "2000"]) == DONE
    assert main(["plan", "more.toml", "-o", "more.json"]) == DONE
    assert main(["release", "--unchecked", "more.json", "survey.csv", "-o", "more.zip"]) == DONE
    capsys.readouterr()
    assert main(["infer", "more.zip"]) == DONE
    text = capsys.readouterr().out
    for part in ("Cramer's V", "risk ratio", "quantile 0.5", "certified at alpha", "smoker=yes"):
        assert part in text
    assert main(["infer", "more.zip", "fit", "--alpha", "0.1"]) == DONE
    text = capsys.readouterr().out
    assert "certified at alpha = 0.1" in text
    assert "90% interval" in text
    assert main(["infer", "more.zip", "--target", "table"]) == DONE
    text = capsys.readouterr().out
    assert text.count("Target: the private table itself") == 7
    assert "Cramer's V of the private table" in text
    assert "Target: the population" not in text
    frame = dps.load("more.zip").intervals()
    assert set(frame["analysis"]) == {"smoking", "old", "gap", "middle", "table"}


def test_a_release_is_no_csv(folder, capsys):
    for command in (["release", "request.toml", "survey.csv"], ["synthesize", "z.zip"]):
        assert main([*command, "-o", "z.csv"]) == REFUSED
        assert "name it z.zip, not z.csv" in capsys.readouterr().err


def test_outputs_have_the_ending_of_what_is_written(folder, capsys):
    for command, given, better in (
        (["report", "z.zip"], "z.pdf", "z.html"), (["init", "survey.csv"], "n.json", "n.toml"),
        (["plan", "request.toml"], "p.toml", "p.json"),
    ):  # fmt: skip
        assert main([*command, "-o", given]) == REFUSED
        assert f"name it {better}, not {given}" in capsys.readouterr().err
        assert not (folder / given).exists()
