"""An analysis of one's own on the command line: ``--with FILE.py``."""

import shutil
import zipfile
from pathlib import Path

import pytest

from dpstats.analyses import registry
from dpstats.cli import DONE

FILE = Path(__file__).parents[2] / "docs/how-to/analyse/trimmed_mean.py"


@pytest.fixture
def run(folder, entries, printed, monkeypatch):
    """Runs a command as in a process of its own: nothing is registered before."""
    age = {"name": "age", "low": 0, "high": 120, "edges": [18, 30, 40, 50, 65, 80]}
    asked = {"name": "ages", "kind": "trimmed_mean", "column": "age", "trim": 0.2}
    (folder / "request.toml").write_text(
        "[budget]\nepsilon = 1\n" + entries("column", age) + entries("analysis", asked)
    )
    shutil.copy(FILE, folder / "mine.py")

    def command(line, own="mine.py", code=DONE):
        monkeypatch.setattr(registry, "_registered", {})
        return " ".join(printed(line + (f" --with {own}" if own else ""), code=code).split())

    return command


def test_from_the_request_to_the_report(run, folder):
    assert "age, in its own unit" in run("preview request.toml --n 2000")
    run("plan request.toml -o plan.json")
    run("check plan.json survey.csv")
    run("release --unchecked plan.json survey.csv -o r.zip --m 50")
    assert "Trimmed mean of age, 0.2 of the rows" in run("infer r.zip")
    assert "ages" in run("infer r.zip ages --csv")
    run("report r.zip -o r.html")
    assert "Trimmed mean of age" in (folder / "r.html").read_text()
    assert "cannot be read here" not in run("show r.zip")
    with zipfile.ZipFile("r.zip") as archive:  # it names the kind, and holds nothing of the file
        texts = [archive.read(name).decode() for name in archive.namelist()]
    assert any('"trimmed_mean"' in text for text in texts)
    assert not any("mine" in text or "TrimmedMean" in text for text in texts)
    run("verify r.zip", own="")
