"""The examples of the README and of the vignettes run as written."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
START = ROOT / "docs" / "getting-started.md"
GRAPHS = ROOT / "docs" / "explanation" / "inference" / "graphical-models.md"


def fences(path, kind):
    """The blocks of a document, each after as many empty lines as stand before it there."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{kind}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in found]


def run(path, code, scope):
    """Run one block; errors name the document and its line."""
    exec(compile(code, path, "exec"), scope)


@pytest.fixture
def examples(tmp_path, monkeypatch, fast):
    """A copy of the folder, in which a document's commands run."""
    if fast:  # tests/reports have figures
        monkeypatch.setattr("dpstats.reports.pictures.can_draw", lambda: False)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path / "examples")
    return tmp_path / "examples"


def commands_of(path):
    """Its command lines, without comments."""
    return re.findall(r"^dpstats (.*?)(?: *#.*)?$", path.read_text("utf-8"), re.MULTILINE)


def test_the_readme_runs_in_the_folder_of_its_example(examples, capsys):
    schema, request = fences(README, "toml")
    assert schema.strip() == (examples / "survey.toml").read_text().strip()
    assert request.strip() == (examples / "request.toml").read_text().strip()
    (start,) = re.findall(r"`dpstats (ledger new .*?)`", README.read_text("utf-8"))
    assert main(start.split()) == DONE
    custodian, hidden_n, analyst = fences(README, "python")
    scope = {}
    run(README, custodian, scope)
    assert dps.Ledger.open("survey.ledger").spent == 1
    run(README, hidden_n, scope)
    printed = capsys.readouterr().out
    assert "rows invented from guesses of smoker, age" in " ".join(printed.split())
    assert "number of rows is noisy" in str(scope["hidden_n"])
    assert scope["release_of_hidden_n"].measurements.count is not None
    assert scope["release"].measurements.count is None
    run(README, analyst, scope)
    rows = pd.read_csv("survey.csv")
    truth = (rows["smoker"].dropna() == "yes").mean()
    low, high = scope["release"].infer("smoking").conf_int(alpha=1e-6)
    assert low < truth < high
    assert set(scope["release"].to_frame()["age"]) <= set(range(121))

    commands = commands_of(README)
    assert len(commands) == 8
    for command in commands:
        assert main(command.split()) == DONE, command
    printed = capsys.readouterr().out
    assert "smoker == 'yes'" in printed
    assert dps.Ledger.open("survey.ledger").spent == 2


def test_getting_started_runs_as_written(examples, capsys, fast):
    schema, request = fences(START, "toml")
    (code,) = fences(START, "python")
    commands = commands_of(START)
    assert len(commands) == 11
    assert main(commands[0].split()) == DONE  # init
    with pytest.raises(dps.SchemaError, match="nothing is decided yet"):
        dps.Schema.load("pums.toml")
    names = re.findall(r'^name = "(\w+)"$', (examples / "pums.toml").read_text(), re.MULTILINE)
    assert names == ["age", "sex", "educ", "race", "income", "married"]
    (examples / "pums.toml").write_text(schema)
    (examples / "request.pums.toml").write_text(request)
    curve = "preview request.pums.toml --curve"  # computed once more for the figure
    for command in commands[1:]:
        assert (fast and command == curve) or main(command.split()) == DONE, command
    printed = capsys.readouterr().out
    assert "rows invented from guesses of every column" in " ".join(printed.split())
    assert "least epsilon" in printed
    assert (examples / "curve.svg").exists()
    assert (examples / "report.html").exists()
    scope = {}
    run(START, code, scope)
    assert 0 < scope["low"] < scope["high"] < 1
    assert dps.Ledger.open("pums.ledger").spent == 1


def test_the_page_on_graphs_shows_what_its_code_prints(tmp_path, monkeypatch, capsys):
    scope = {}
    for block in fences(GRAPHS, "python"):
        run(GRAPHS, block, scope)
    false_edges, leaks = capsys.readouterr().out.split("\n0.4 0 ", 1)
    text = GRAPHS.read_text("utf-8")
    found = [line.split() for line in false_edges.splitlines()]
    said = re.findall(r"(\d\.\d\d) for (\d+)", text)
    assert [(number, p) for p, number in found] == said
    assert len(said) == 3
    shown = re.findall(r"^\| (-?0\.\d) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    printed = [line.split() for line in f"0.4 0 {leaks}".splitlines()]
    rings, grids = printed[::2], printed[1::2]
    for row, ring, grid in zip(shown, rings, grids, strict=True):
        assert row[:2] == tuple(ring[:2]) == tuple(grid[:2])
        assert (float(row[2]), float(row[3])) == (float(ring[2]), float(grid[2]))

    monkeypatch.chdir(tmp_path)
    (entry,) = fences(GRAPHS, "toml")
    numbers = "".join(
        f'[[column]]\nname = "{name}"\nlow = 0\nhigh = 200\nmissing = 50\n'
        for name in ("age", "pressure", "bmi")
    )
    smoker = '[budget]\nepsilon = 1.0\n[[column]]\nname = "smoker"\nkind = "boolean"\n'
    Path("request.toml").write_text(smoker + numbers + entry)
    assert main(["plan", "request.toml", "-o", "plan.json"]) == DONE
    assert dps.Plan.load("plan.json").analyses["network"] == scope["graph"]
