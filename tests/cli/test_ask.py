"""Explain and bound: what a release knows of other questions."""

import pytest

import dpstats as dps
from dpstats.cli import DONE, REFUSED, main

JOINT = "smoker == 'yes' and age >= 65"


@pytest.fixture
def release(folder, capsys):
    run = ["release", "--unchecked", "request.toml", "survey.csv", "-o", "r.zip"]
    assert main([*run, "--m", "300"]) == DONE
    capsys.readouterr()
    return dps.load("r.zip")


def test_what_prints_is_what_python_shows(release, capsys):
    assert main(["explain", "r.zip", JOINT]) == DONE
    assert capsys.readouterr().out.rstrip() == str(release.explain(JOINT))
    assert main(["bound", "r.zip", "age >= 65", "--given", "smoker == 'no'"]) == DONE
    wanted = str(release.bound("age >= 65", given="smoker == 'no'"))
    assert capsys.readouterr().out.rstrip() == wanted
    options = ["--minus", "age >= 65", "--alpha", "0.2", "--target", "population"]
    assert main(["bound", "r.zip", "smoker == 'yes'", *options]) == DONE
    found = release.bound("smoker == 'yes'", minus="age >= 65", alpha=0.2, target="population")
    assert capsys.readouterr().out.rstrip() == str(found)
    assert main(["explain", "r.zip", "smoker == 'yes'", "--over", "age >= 65"]) == DONE
    wanted = str(release.explain("smoker == 'yes'", over="age >= 65"))
    assert capsys.readouterr().out.rstrip() == wanted


def test_names_and_analyses_are_questions_too(release, capsys):
    for query, analysis in [
        ("smoking", "smoking"),
        ("Marginals(['smoker', 'age'])", dps.Marginals(["smoker", "age"])),
        ("{kind = 'proportion', condition = 'age < 65'}", dps.Proportion("age < 65")),
    ]:
        assert main(["explain", "r.zip", query]) == DONE
        assert capsys.readouterr().out.rstrip() == str(release.explain(analysis))


def test_questions_that_cannot_be_read_are_refused(release, capsys):
    for query in ["height > 3", "open('survey.csv')", "smoker == "]:
        assert main(["bound", "r.zip", query]) == REFUSED
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err
