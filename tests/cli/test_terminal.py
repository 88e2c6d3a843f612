"""What the command line prints fits the terminal: sentences and names wrap, data never."""

import io
import json
import sys

import dpstats as dps
from dpstats.cli import DONE, main
from dpstats.display import line_width
from dpstats.terminal import fitted, progress, say


def test_sentences_wrap_and_hang_below_what_they_describe():
    schema = "age     number, 0 to 120, 121 points; missing: counted as 40"
    assert fitted(schema, 40).splitlines() == [
        "age     number, 0 to 120, 121 points;", "        missing: counted as 40",
    ]  # fmt: skip
    command = "dpstats synthesize a.measurements.zip -o another.zip --overwrite"
    said = f"dpstats: the measurements are kept; finish the release with: {command}"
    assert command in fitted(said, 40)
    assert " ".join(fitted(said, 40).split()) == said
    for text in ("", "\n\n", "-----", "x\n-----"):
        assert fitted(text, 40) == text


def test_progress_says_how_much_is_done_and_the_time_left(monkeypatch):
    now, seen = [5.0], io.StringIO()
    monkeypatch.setattr(seen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setattr("dpstats.terminal.time.monotonic", lambda: now[0])
    report = progress()
    report("reading rows", 0, 100)
    now[0] += 6
    report("reading rows", 10, 100)
    now[0] += 1
    report("drawing noise", 1, 2)
    say("dpstats: stopped")
    shown = seen.getvalue().split("\r\033[K")[1:]
    assert shown == [
        "reading rows 0%", "reading rows 10%, about 54 s left", "drawing noise 50%",
        "dpstats: stopped\n",
    ]  # fmt: skip


def test_what_the_command_line_prints_fits_the_terminal(folder, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["ledger", "new", "rho.ledger", "--kind", "zcdp", "--cap", "1/3"]) == DONE
    commands = [
        ["plan", "request.toml", "-o", "plan.json"],
        ["check", "plan.json", "survey.csv"],
        ["release", "plan.json", "survey.csv", "--unchecked", "-o", "a.zip", "--m", "50"],
        ["infer", "a.zip"],
        ["show", "a.zip"],
        ["show", "plan.json"],
        ["ledger", "show", "rho.ledger"],
        ["explain", "a.zip", "smoking"],
        ["bound", "a.zip", "smoking"],
    ]
    for command in commands:
        assert main(command) == DONE
        printed = capsys.readouterr()
        for line in f"{printed.out}\n{printed.err}".splitlines():
            assert len(line) <= 60, command
    assert main(["infer", "a.zip", "smoking"]) == DONE
    shown = capsys.readouterr().out
    whole = dps.load("a.zip").infer("smoking").summary()
    assert " ".join(shown.split()).endswith(" ".join(whole.split("privacy: ")[1].split()))
    assert main(["show", "a.zip", "--croissant"]) == DONE
    assert json.loads(capsys.readouterr().out)["@type"]
    assert main(["infer", "a.zip", "--csv"]) == DONE
    (header, *_) = capsys.readouterr().out.splitlines()
    assert header.startswith("analysis,")
    assert header.endswith(",privacy_share")


def test_one_width_for_all_that_prints(monkeypatch):
    """COLUMNS decides, then a terminal; a pipe has no width, and a text by itself has 100."""
    pipe = io.StringIO()
    assert line_width(pipe) == sys.maxsize
    assert line_width() == 100
    pipe.close()
    assert line_width(pipe) == sys.maxsize
    for said, width in (("72", 72), ("7", 40)):
        monkeypatch.setenv("COLUMNS", said)
        assert line_width() == line_width(io.StringIO()) == width
