"""The pages that need nothing but themselves: files, Python and commands run in their order."""

import re
import shlex
from pathlib import Path

import pytest
from matplotlib import pyplot

from dpstats.cli import DONE, main
from dpstats.privacy.noise import _noise_from

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    "coming-from.md",
    "explanation/inference/what-a-release-can-answer.md",
    "explanation/inference/missing-and-bad-values.md",
    "explanation/privacy/privacy-promise.md",
    "explanation/privacy/sensitivity.md",
    "faq.md",
    "how-to/analyse/export.md",
    "how-to/analyse/report.md",
    "how-to/analyse/rows-only.md",
    "how-to/analyse/survey.md",
    "how-to/analyse/survival.md",
    "how-to/release/approve-a-plan.md",
    "how-to/plan/choose-a-guarantee.md",
    "how-to/engines/dask.md",
    "how-to/engines/large-tables.md",
    "how-to/engines/warehouses.md",
    "how-to/plan/people-not-rows.md",
    "how-to/plan/choose-an-analysis.md",
    "how-to/analyse/read-a-summary.md",
    "how-to/release/recover.md",
    "how-to/release/several-releases.md",
    "how-to/release/verify-a-release.md",
    "how-to/plan/write-a-schema.md",
]
NEEDED = {"how-to/engines/dask.md": "dask", "how-to/engines/warehouses.md": "ibis"}
NUMBER = re.compile(r"[-+]?(\d[\d.,]*\d|\d)(e[-+]?\d+)?|-?inf")


def shape(line):
    """A printed line without its numbers and widths, which the noise changes."""
    return re.sub(r"[\s\-]+", " ", NUMBER.sub("#", line)).strip()


def run_command(line):
    """One line of a shell; a comment names the exit code where it is not that of success."""
    comment = line.partition("#")[2]
    last = comment.split()[-1] if comment else ""
    expected = int(last) if last.isdigit() else DONE
    assert main(shlex.split(line, comments=True)[1:]) == expected, line


def run_page(page, capsys):
    """All blocks of a page, in a folder of its own."""
    text, scope, printed = (DOCS / page).read_text("utf-8"), {}, ""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert fences
    for language, block in fences:
        if language == "toml":
            name = re.match(r"# (\S+\.toml)\n", block)[1]
            Path(name).write_text(block, encoding="utf-8")
        elif language == "python":
            exec(compile(block, page, "exec"), scope)
        else:  # commands, or an excerpt of what was printed so far
            for line in block.splitlines():
                if line.startswith("dpstats "):
                    run_command(line)
                elif language == "text":
                    assert shape(line) in {shape(one) for one in printed.splitlines()}, line
        out, err = capsys.readouterr()
        printed += out + err
    pyplot.close("all")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page, tmp_path, monkeypatch, capsys, seeded_noise):
    """With the noise of a seed: an interval that is nearly always infinite may be finite."""
    if page in NEEDED:
        pytest.importorskip(NEEDED[page])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpstats.planning.previews.simulated._MOST", 3)
    pyplot.switch_backend("Agg")
    with _noise_from(seeded_noise(4)):
        run_page(page, capsys)


def test_every_page_runs_in_some_test():
    tests = Path(__file__).parents[1]
    others = ("test_how_to.py", "private/engines/test_spark.py")
    elsewhere = "".join((tests / name).read_text("utf-8") for name in others)
    for path in (DOCS / "how-to").rglob("*.md"):
        page = path.relative_to(DOCS).as_posix()
        assert page in PAGES or path.name in elsewhere, page
