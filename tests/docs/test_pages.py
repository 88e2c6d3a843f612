"""Pages and vignettes: their files, code and commands run in their order."""

import re
import shlex
from pathlib import Path

import pytest
from matplotlib import pyplot
from matplotlib.layout_engine import ConstrainedLayoutEngine

from dpstats.cli import DONE, main
from dpstats.privacy.noise import _noise_from

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LONG = {"large-table"}  # `make docs` runs it too, when it changes
OTHERS = [
    "coming-from.md", "explanation/inference/what-a-release-can-answer.md",
    "explanation/inference/missing-and-bad-values.md", "explanation/privacy/privacy-promise.md",
    "explanation/privacy/sensitivity.md", "faq.md",
]  # fmt: skip
ELSEWHERE = "".join(
    (ROOT / "tests" / name).read_text("utf-8")
    for name in ("test_how_to.py", "private/engines/test_spark.py")
)
HOW_TO = sorted(p for p in (DOCS / "how-to").rglob("*.md") if p.name not in ELSEWHERE)
PAGES = [*OTHERS, *(path.relative_to(DOCS).as_posix() for path in HOW_TO)]
NEEDED = {"how-to/engines/dask.md": "dask", "how-to/engines/warehouses.md": "ibis"}
NUMBER = re.compile(r"[-+]?(\d[\d.,]*\d|\d)(e[-+]?\d+)?|-?inf")


# What a fast run has fewer of; `make test-slow` runs all as written.
FEWER = {
    "vignettes/chi-square.md": {
        "invent(100_000,": "invent(5_000,",
        'GoodnessOfFit("education", electorate)': 'GoodnessOfFit("education", electorate, 199)',
        'Independence("vote", "income")': 'Independence("vote", "income", simulations=199)',
        'income", given="party")': 'income", given="party", simulations=199)',
        "60, np.random.default_rng()": "10, np.random.default_rng(1)",
        "<= 15).all()": "<= 4).all()",
        '"noisy counts"] > 12': '"noisy counts"] > 1',
        "(n, 3_000, 10_000, 30_000)": "(n, 10_000)",
        "for e in (3, 10, 30)": "for e in (10,)",
        "linspace(0, 0.6, 61)": "linspace(0, 0.6, 13)",
    },
    "vignettes/from-the-paper.md": {
        "for _ in range(20)": "for _ in range(5)",
        "for _ in range(10)": "for _ in range(2)",
    },
    "vignettes/graphical-model.md": {
        "for e in (1, 3, 10)}": "for e in (1, 10)}",
        "expected[3].median() < ": "",
        "results[3]": "results[10]",
        "plt.subplots(1, 3, ": "plt.subplots(1, 2, ",
        "alpha=1e-4": "alpha=0.01",
    },
    "vignettes/proportions.md": {
        "(0.5, 25, np.random.default_rng())": "(0.5, 3, np.random.default_rng(1))",
        "(0.25, 0.5, 1, 2, 4, 8, 100)": "(0.25, 8)",
    },
    "vignettes/randhie.md": {
        "(n, 50_000, 100_000, 500_000)": "(n, 500_000)",
        "(2, 4, 8, 16)": "(8,)",
        "(13, 26, 52)": "(13, 52)",
    },
    "vignettes/your-own-analysis.md": {"runs = 40": "runs = 4"},
}
CANDIDATES = re.compile(r"\bm=\d+_\d+")


def as_run(page, fast):
    """The text of a page, with fewer rows, releases and candidates in a fast run."""
    text = (ROOT / page).read_text("utf-8")
    if fast:
        for written, fewer in FEWER.get(page, {}).items():
            assert written in text, (page, written)
            text = text.replace(written, fewer)
        text = CANDIDATES.sub("m=1_000", text)
    return text


def shape(line):
    """A printed line without its numbers and widths, which the noise changes."""
    return re.sub(r"[\s\-]+", " ", NUMBER.sub("#", line)).strip()


def run_command(line):
    """One line of a shell; a comment names the exit code where it is not that of success."""
    comment = line.partition("#")[2]
    last = comment.split()[-1] if comment else ""
    expected = int(last) if last.isdigit() else DONE
    assert main(shlex.split(line, comments=True)[1:]) == expected, line


def run_page(page, text, capsys):
    """All blocks of a page, in a folder of its own; errors name the page and its line."""
    scope, printed = {}, ""
    fences = list(re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert fences
    for fence in fences:
        language, block = fence.groups()
        if language == "toml":
            name = re.match(r"# (\S+\.toml)\n", block)[1]
            Path(name).write_text(block, encoding="utf-8")
        elif language == "python":
            above = "\n" * text.count("\n", 0, fence.start(2))
            exec(compile(above + block, page, "exec"), scope)
        else:  # commands, or an excerpt of what was printed so far
            for line in block.splitlines():
                if line.startswith("dpstats "):
                    run_command(line)
                elif language == "text":
                    assert shape(line) in {shape(one) for one in printed.splitlines()}, line
        out, err = capsys.readouterr()
        printed += out + err


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch, fast):
    """A folder for a page, and figures that nobody sees."""
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("Agg")
    if fast:  # tests/plots are of the layout
        monkeypatch.setattr("dpstats.rows.generator.CANDIDATES", 300)
        monkeypatch.setattr("dpstats.rows.loglinear.FIT_ROWS", 300)
        monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda self, figure: None)
    yield
    pyplot.close("all")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page, fast, capsys, seeded_noise):
    """With the noise of a seed: an interval that is nearly always infinite may be finite."""
    if page in NEEDED:
        pytest.importorskip(NEEDED[page])
    with _noise_from(seeded_noise(4)):
        run_page(page, as_run(f"docs/{page}", fast), capsys)


@pytest.mark.parametrize("name", [
    pytest.param(path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
    for path in sorted((ROOT / "vignettes").glob("*.md"))
])  # fmt: skip
def test_the_vignette_runs_and_draws(name, fast, capsys, monkeypatch):
    page = f"vignettes/{name}.md"
    if name == "randhie":  # it compares widths, of which a single release shows too little
        monkeypatch.setattr("dpstats.planning.previews.simulated.PRETEND_RELEASES", 3)
    run_page(page, as_run(page, fast), capsys)
    assert pyplot.get_fignums(), "no figure"
