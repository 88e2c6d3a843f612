"""The whole command line: an example from start to end, streams that fail, names of outputs."""

import io
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

import dpstats as dps
from dpstats.cli import DONE, FAILED, REFUSED, main
from dpstats.display import line_width
from dpstats.terminal import fitted

RELEASE = "release --unchecked request.toml survey.csv --m 50 -o"


def test_demo_tells_the_whole_story(tmp_path, monkeypatch, capsys, fast):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpstats.reports.pictures.can_draw", lambda: False)
    assert main(["demo"]) == DONE
    text = capsys.readouterr().out
    for part in ("The preview", "certificate", "non-private", "noise-aware", "naive on rows"):
        assert part in text
    page = Path("dpstats-demo-report.html")
    assert f"report is in {page}" in text
    assert "religion by marriage" in page.read_text("utf-8")
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text().split()
    for path in tmp_path.iterdir():  # git has nothing to add
        assert any(fnmatch(path.name, pattern) for pattern in ignored), path.name
    opened = dps.load("dpstats-demo.zip")
    assert opened.n == 6366
    assert opened.budget == dps.PureDP(1)
    assert not opened.measurements.not_private
    low, high = opened.infer("affair").conf_int(alpha=1e-6)
    assert low < 2053 / 6366 < high  # the published share of women with an affair


def test_a_run_without_standard_streams(folder):
    command = "release --unchecked request.toml survey.csv --m 50 -o a.zip <&- >&- 2>&-"
    subprocess.run(f"{sys.executable} -m dpstats {command}", shell=True, cwd=folder, check=True)
    assert dps.load(folder / "a.zip").n == 2000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_release_that_cannot_be_printed_is_written(folder, monkeypatch, capsys):
    for command, said in (
        (f"{RELEASE} b.zip", "b.zip is written; printing failed"),
        ("infer b.zip", "printing failed"),
    ):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert main(command.split()) == FAILED
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == f"dpstats: {said}: No space left on device"
    assert dps.load("b.zip").n == 2000


class Closed(io.StringIO):
    """A terminal or a pipe whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError


def test_a_reader_that_goes_away_does_not_stop_a_release(folder, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Closed())
    assert main(f"{RELEASE} out.zip".split()) == DONE
    assert dps.load("out.zip").n == 2000
    assert main(f"{RELEASE} x.zip".replace("survey", "none").split()) == REFUSED


def test_outputs_have_the_ending_of_what_is_written(folder, printed):
    for command, given, better in (
        ("report z.zip", "z.pdf", "z.html"), ("init survey.csv", "n.json", "n.toml"),
        ("plan request.toml", "p.toml", "p.json"), ("synthesize z.zip", "z.csv", "z.zip"),
        ("release request.toml survey.csv", "z.csv", "z.zip"),
    ):  # fmt: skip
        refused = printed(f"{command} -o {given}", code=REFUSED)
        assert f"name it {better}, not {given}" in refused
        assert not (folder / given).exists()


def test_sentences_wrap_and_hang_below_what_they_describe():
    schema = "age     number, 0 to 120, 121 points; missing: counted as 40"
    assert fitted(schema, 40).splitlines() == [
        "age     number, 0 to 120, 121 points;", "        missing: counted as 40",
    ]  # fmt: skip
    command = "dpstats synthesize a.measurements.zip -o another.zip --overwrite"
    assert command in fitted(f"dpstats: finish the release with: {command}", 40)


def test_one_width_for_all_that_prints(monkeypatch):
    """COLUMNS decides, then a terminal; a pipe has no width, and a text by itself has 100."""
    pipe = io.StringIO()
    assert (line_width(pipe), line_width()) == (sys.maxsize, 100)
    pipe.close()
    assert line_width(pipe) == sys.maxsize
    for said, width in (("72", 72), ("7", 40)):
        monkeypatch.setenv("COLUMNS", said)
        assert line_width() == line_width(io.StringIO()) == width
