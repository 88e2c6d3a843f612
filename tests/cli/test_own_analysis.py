"""An analysis of one's own on the command line: ``--with FILE.py``."""

import shutil
import zipfile
from pathlib import Path

import pytest

from dpstats.analyses import registry
from dpstats.cli import DONE, REFUSED, main

FILE = Path(__file__).parents[2] / "docs/how-to/analyse/trimmed_mean.py"
REQUEST = """
[budget]
epsilon = 1
[[column]]
name = "age"
low = 0
high = 120
edges = [18, 30, 40, 50, 65, 80]
[[analysis]]
name = "ages"
kind = "trimmed_mean"
column = "age"
trim = 0.2
"""


@pytest.fixture
def run(folder, capsys, monkeypatch):
    """Runs a command as in a process of its own: nothing is registered before."""
    (folder / "request.toml").write_text(REQUEST)
    shutil.copy(FILE, folder / "mine.py")

    def command(*arguments, code=DONE):
        monkeypatch.setattr(registry, "_registered", {})
        assert main([*arguments]) == code
        out, err = capsys.readouterr()
        return " ".join((err if code else out).split())

    return command


def test_from_the_request_to_the_report(run, folder):
    own = ("--with", "mine.py")
    assert "age, in its own unit" in run("preview", "request.toml", "--n", "2000", *own)
    run("plan", "request.toml", "-o", "plan.json", *own)
    run("check", "plan.json", "survey.csv", *own)
    run("release", "--unchecked", "plan.json", "survey.csv", "-o", "r.zip", "--m", "50", *own)
    assert "Trimmed mean of age, 0.2 of the rows" in run("infer", "r.zip", *own)
    assert "ages" in run("infer", "r.zip", "--csv", "ages", *own)
    run("report", "r.zip", "-o", "r.html", *own)
    assert "Trimmed mean of age" in (folder / "r.html").read_text()
    assert "cannot be read here" not in run("show", "r.zip", *own)
    with zipfile.ZipFile("r.zip") as archive:  # it names the kind, and holds nothing of the file
        texts = [archive.read(name).decode() for name in archive.namelist()]
    assert any('"trimmed_mean"' in text for text in texts)
    assert not any("mine" in text or "TrimmedMean" in text for text in texts)
    run("verify", "r.zip")


def test_files_that_are_none(run, folder):
    for name, says in [
        ("none.py", "none.py is none"),
        ("mine.txt", "mine.txt is none"),
        ("broken.py", "broken.py cannot be run: ZeroDivisionError"),
    ]:
        if name != "none.py":
            (folder / name).write_text("1 / 0")
        assert says in run("plan", "request.toml", "-o", "p.json", "--with", name, code=REFUSED)
        assert not (folder / "p.json").exists()
