"""The command that writes a page."""

from pathlib import Path

import pytest

from dpstats.cli import DONE, REFUSED, main
from dpstats.reports import pictures

pytest.importorskip("matplotlib")
RELEASE = ["release", "--unchecked", "request.toml", "survey.csv", "-o", "s.zip"]


def test_both_pages_and_what_is_refused(folder, capsys, monkeypatch):
    assert main([*RELEASE, "--m", "50", "--k", "50"]) == DONE
    capsys.readouterr()
    page = ["report", "s.zip", "-o", "s.html"]
    assert main([*page, "--title", "Smoking"]) == DONE
    assert capsys.readouterr().out == "written to s.html\n"
    assert "<h1>Smoking</h1>" in Path("s.html").read_text()
    assert main(page) == REFUSED
    assert "exists and is kept" in capsys.readouterr().err
    assert main([*page, "--overwrite", "--audience", "board"]) == DONE
    assert "What leaves the building" in Path("s.html").read_text()
    capsys.readouterr()

    before = Path("s.zip").read_bytes()
    assert main(["report", "s.zip", "-o", "s.zip", "--overwrite"]) == REFUSED
    assert "the output 's.zip' is the release" in capsys.readouterr().err
    assert Path("s.zip").read_bytes() == before
    assert main(["report", "request.toml", "-o", "r.html"]) == REFUSED
    assert "is a request, not a release; make its plan with" in capsys.readouterr().err

    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    assert main([*page, "--overwrite"]) == DONE
    assert "pip install 'dpstats[plots]'" in capsys.readouterr().err
