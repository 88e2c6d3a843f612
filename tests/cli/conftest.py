"""A folder with a request and its table, for the command line; and one with a release of it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import dpstats as dps
from dpstats.cli import DONE, main


def tables(kind, *entries):
    """An array of tables in TOML."""
    lines = ([f"{key} = {json.dumps(value)}\n" for key, value in one.items()] for one in entries)
    return "".join(f"[[{kind}]]\n{''.join(one)}" for one in lines)


YES = "smoker == 'yes'"
REQUEST = (
    "[budget]\nepsilon = 1\n"
    + tables(
        "column",
        {"name": "smoker", "levels": ["no", "yes"]},
        {"name": "age", "low": 0, "high": 120, "edges": [65]},
    )
    + tables(
        "analysis",
        {"name": "smoking", "kind": "proportion", "condition": YES},
        {"name": "old", "kind": "proportion", "condition": YES, "given": "age >= 65"},
    )
)
NUMBER = {"low": 0, "high": 100, "points": 9, "missing": 0}
PAIR = {"kind": "graphical_model", "columns": ["height", "weight"]}
MORE = tables("column", {"name": "weight"} | NUMBER, {"name": "height"} | NUMBER) + tables(
    "analysis",
    {"name": "table", "kind": "marginals", "columns": ["smoker", "age"]},
    {"name": "link", "kind": "independence", "a": "smoker", "b": "age", "simulations": 99},
    {"name": "graph"} | PAIR,
    {"name": "picture", "estimator": "clime", "penalties": [0.1, 0.3]} | PAIR,
    {"name": "weights", "kind": "group_means", "column": "weight", "by": "smoker"},
)


@pytest.fixture(scope="session")
def entries():
    return tables


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
    numbers = np.arange(len(survey))
    rows = survey.assign(weight=numbers % 100, height=numbers % 70)
    rows.to_csv(folder / "survey.csv", index=False)
    place = folder / "r.zip"
    command = ["release", "--unchecked", str(folder / "more.toml"), str(folder / "survey.csv")]
    assert main([*command, "-o", str(place), "--m", "100"]) == DONE
    return place


@pytest.fixture
def archive(released, folder, capsys):
    shutil.copy(released, folder / "r.zip")
    shutil.copy(released.parent / "more.toml", folder)
    capsys.readouterr()
    return dps.load("r.zip")


@pytest.fixture
def streams(capsys):
    """What a command writes to both streams; a single text is split at its spaces."""

    def run(*arguments, code=DONE):
        capsys.readouterr()
        assert main(arguments[0].split() if len(arguments) == 1 else [*arguments]) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def printed(streams):
    """What a command prints: its results, or its error where another code is expected."""

    def run(*arguments, code=DONE):
        out, err = streams(*arguments, code=code)
        return out if code == DONE else err

    return run
