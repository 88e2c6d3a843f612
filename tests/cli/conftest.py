"""A folder with a request and its table, for the command line; and one with a release of it."""

import shutil
from pathlib import Path

import pytest

import dpstats as dps
from dpstats.cli import DONE, main

REQUEST = """
[budget]
epsilon = 1
[[column]]
name = "smoker"
levels = ["no", "yes"]
[[column]]
name = "age"
low = 0
high = 120
edges = [65]
[[analysis]]
name = "smoking"
kind = "proportion"
condition = "smoker == 'yes'"
[[analysis]]
name = "old"
kind = "proportion"
condition = "smoker == 'yes'"
given = "age >= 65"
"""
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
simulations = 199
[[analysis]]
name = "fit"
kind = "goodness_of_fit"
column = "smoker"
probabilities = { no = 0.7, yes = 0.3 }
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
"""


@pytest.fixture
def folder(tmp_path, survey, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "request.toml").write_text(REQUEST)
    survey.to_csv(tmp_path / "survey.csv", index=False)
    return tmp_path


@pytest.fixture(scope="session")
def released(tmp_path_factory, survey) -> Path:
    """A release of many kinds of analyses, made once."""
    folder = tmp_path_factory.mktemp("released")
    (folder / "more.toml").write_text(REQUEST + MORE)
    survey.to_csv(folder / "survey.csv", index=False)
    place = folder / "r.zip"
    command = ["release", "--unchecked", str(folder / "more.toml"), str(folder / "survey.csv")]
    assert main([*command, "-o", str(place), "--m", "500"]) == DONE
    return place


@pytest.fixture
def archive(released, folder, capsys):
    shutil.copy(released, folder / "r.zip")
    shutil.copy(released.parent / "more.toml", folder)
    capsys.readouterr()
    return dps.load("r.zip")


@pytest.fixture
def printed(capsys):
    """What a command prints: its results, or its error where another code is expected."""

    def run(*arguments, code=DONE):
        assert main([*arguments]) == code
        out, err = capsys.readouterr()
        return out if code == DONE else err

    return run
