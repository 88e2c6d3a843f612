"""Pages and vignettes: their files, code and commands run in their order."""

import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.layout_engine import ConstrainedLayoutEngine

import dpstats as dps
from dpstats.cli import DONE, main
from dpstats.planning import measures
from dpstats.planning.previews import simulated
from dpstats.planning.requests import load_request
from dpstats.privacy.noise import _noise_from

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
# `make docs` runs them too, when they change.
LONG = {"chi-square", "graphical-model", "large-table", "randhie"}
OTHERS = [
    "coming-from.md", "explanation/inference/what-a-release-can-answer.md",
    "explanation/inference/missing-and-bad-values.md", "explanation/privacy/privacy-promise.md",
    "explanation/privacy/sensitivity.md", "faq.md",
]  # fmt: skip
ELSEWHERE = {  # in tests of their own: below, in test_how_to.py and private/engines/test_spark.py
    "check-the-schema.md", "choose-a-budget.md", "plan-from-guesses.md", "write-a-request.md",
    "your-own-analysis.md", "spark.md",
}  # fmt: skip
PAGES = [*(f"docs/{name}" for name in OTHERS), *(
    path.relative_to(ROOT).as_posix() for path in sorted(HOW_TO.rglob("*.md"))
    if path.name not in ELSEWHERE
)]  # fmt: skip
NEEDED = {"dask.md": "dask", "warehouses.md": "ibis"}
USUAL = {name: getattr(simulated, name) for name in ("PRETEND_RELEASES", "_MOST")}
NUMBER = re.compile(r"[-+]?(\d[\d.,]*\d|\d)(e[-+]?\d+)?|-?inf")


# What a fast run has fewer of; `make test-slow` runs all as written.
FEWER = {
    "docs/how-to/analyse/compare-groups.md": {
        "8_000": "2_000", "m=2_000": "m=100", "[0.4, 0.3, 0.2, 0.1]": "[0.6, 0.4]",
        '["north", "south", "east", "west"]\n': '["south", "east"]\n',
    },
    "docs/how-to/plan/choose-a-budget.md": {
        'Independence("smoker", "region")': 'Independence("smoker", "region", simulations=99)',
        "[0.4, 0.4, 0.2])": "[0.4, 0.4, 0.2], simulations=99)",
        "curve(n=5_000)": "curve(budgets=[0.5, 1], n=5_000)",
    },
    "docs/how-to/plan/plan-from-guesses.md": {"release(plan, rows)": "release(plan, rows, m=100)"},
    "docs/how-to/release/audit-a-plan.md": {"plan.json\n": "plan.json --draws 100\n"},
    "vignettes/from-the-paper.md": {
        "for _ in range(20)": "for _ in range(5)",
        "for _ in range(10)": "for _ in range(2)",
    },
    "vignettes/proportions.md": {
        "(0.5, 25, np.random.default_rng())": "(0.5, 3, np.random.default_rng(1))",
        "(0.25, 0.5, 1, 2, 4, 8, 100)": "(0.25, 8)",
    },
    "vignettes/your-own-analysis.md": {"runs = 40": "runs = 4"},
}  # fmt: skip
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


def blocks(page, language):
    """The blocks of a page, each after as many empty lines as stand before it there."""
    text = (ROOT / page).read_text("utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in found]


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
    """All blocks of a page, in a folder of its own; errors name the page and its line.

    What a page shows of what was printed is the same, in blocks of text but for numbers. A file
    without a name at its top is not for the commands.
    """
    scope, printed = {}, ""
    found = list(re.finditer(r"^```(\S*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert found
    for fence in found:
        language, block = fence.groups()
        if language == "toml":
            if named := re.match(r"# (\S+\.toml)\n", block):
                Path(named[1]).write_text(block, encoding="utf-8")
        elif language == "python":
            above = "\n" * text.count("\n", 0, fence.start(2))
            exec(compile(above + block, page, "exec"), scope)
        elif language == "text":
            shown = {shape(one) for one in printed.splitlines()}
            assert [line for line in block.splitlines() if shape(line) not in shown] == []
        elif "dpstats " in block:
            for line in re.findall(r"^dpstats .*", block, re.MULTILINE):
                run_command(line)
        elif language != "{math}":
            assert block in printed
        printed += "".join(capsys.readouterr())


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
    if Path(page).name in NEEDED:
        pytest.importorskip(NEEDED[Path(page).name])
    with _noise_from(seeded_noise(4)):
        run_page(page, as_run(page, fast), capsys)


@pytest.mark.parametrize("name", ["check-the-schema", "choose-a-budget", "plan-from-guesses"])
def test_the_page_shows_what_is_printed(name, fast, capsys, monkeypatch):
    """With as many simulated releases as it says; its commands are of another request."""
    for what, usual in USUAL.items():
        monkeypatch.setattr(simulated, what, usual)
    monkeypatch.setattr(measures, "RELEASES", 20)
    monkeypatch.setattr(measures, "FEW_RELEASES", 5)
    page = f"docs/how-to/plan/{name}.md"
    run_page(page, re.sub(r"^dpstats .*\n", "", as_run(page, fast), flags=re.MULTILINE), capsys)


def test_files_on_pages_declare_what_is_said_of_them():
    def written(page, before=""):
        """The first file of a page, below what it lacks."""
        text = before + "".join(blocks(f"docs/how-to/{page}.md", "toml"))
        Path("file.toml").write_text(text, "utf-8")
        return "file.toml"

    groups = load_request(written("analyse/compare-groups"))
    assert groups.analyses["hours"] == dps.GroupMeans("hours", by="region")
    wage = dps.Number("wage", 1, 1000, scale="log", missing=10, edges=[10, 100])
    assert groups.schema["wage"] == wage
    risk = load_request(written("plan/write-a-request"))
    assert risk.in_two_stages
    assert isinstance(risk.schema["ill"], dps.Boolean)
    scope = {}
    exec(blocks("docs/how-to/plan/plan-from-guesses.md", "python")[0], scope)
    assert dps.Guesses.load(written("plan/plan-from-guesses")) == scope["guesses"]
    year = "low = 2024-01-01\nhigh = 2024-12-31"
    columns = "".join(f"[[column]]\nname = '{name}'\n{rest}\n" for name, rest in {
        "age": "low = 0\nhigh = 99\nedges = [15]", "marital": "levels = ['never', 'married']",
        "town": "levels = ['Ely', 'Cambridge', 'Norwich']", "admission": year,
        "county": "levels = ['Cambridgeshire', 'Norfolk']", "discharge": year,
    }.items())  # fmt: skip
    schema = dps.Schema.load(written("plan/rules", columns))
    assert [rule.kind for rule in schema.rules] == ["never", "determines", "order"]
    assert schema.totals == (dps.Total("age < 15", 760, of="table"),)


@pytest.mark.parametrize("name", [
    pytest.param(path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
    for path in sorted((ROOT / "vignettes").glob("*.md"))
])  # fmt: skip
def test_the_vignette_runs_and_draws(name, fast, capsys):
    page = f"vignettes/{name}.md"
    run_page(page, as_run(page, fast), capsys)
    assert pyplot.get_fignums(), "no figure"


README, START = "README.md", "docs/getting-started.md"
GRAPHS = "docs/explanation/inference/graphical-models.md"


@pytest.fixture
def examples(tmp_path, monkeypatch, fast):
    """A copy of the folder, in which a document's commands run."""
    if fast:  # tests/reports have figures
        monkeypatch.setattr("dpstats.reports.pictures.can_draw", lambda: False)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path / "examples")


def run(page, block, scope):
    exec(compile(block, page, "exec"), scope)


def commands_of(page):
    """Its command lines."""
    return re.findall(r"^dpstats .*", (ROOT / page).read_text("utf-8"), re.MULTILINE)


def test_the_readme_runs_in_the_folder_of_its_example(examples, capsys):
    for file, block in zip(("survey", "request"), blocks(README, "toml"), strict=True):
        assert block.strip() == Path(f"{file}.toml").read_text().strip()
    (start,) = re.findall(r"`(dpstats ledger new .*?)`", (ROOT / README).read_text("utf-8"))
    run_command(start)
    custodian, hidden_n, analyst = blocks(README, "python")
    scope = {}
    run(README, custodian, scope)
    assert dps.Ledger.open("survey.ledger").spent == 1
    run(README, hidden_n, scope)
    assert "number of rows is noisy" in str(scope["hidden_n"])
    assert scope["release_of_hidden_n"].measurements.count is not None
    assert scope["release"].measurements.count is None
    run(README, analyst, scope)
    rows = pd.read_csv("survey.csv")
    truth = (rows["smoker"].dropna() == "yes").mean()
    low, high = scope["release"].infer("smoking").conf_int(alpha=1e-6)
    assert low < truth < high
    commands = commands_of(README)
    assert len(commands) == 8
    for command in commands:
        run_command(command)
    assert "smoker == 'yes'" in capsys.readouterr().out
    assert dps.Ledger.open("survey.ledger").spent == 2


def test_getting_started_runs_as_written(examples, fast):
    schema, request = blocks(START, "toml")
    (code,) = blocks(START, "python")
    first, *others = commands_of(START)
    assert len(others) == 10
    run_command(first)  # init
    with pytest.raises(dps.SchemaError, match="nothing is decided yet"):
        dps.Schema.load("pums.toml")
    names = re.findall(r'^name = "(\w+)"$', Path("pums.toml").read_text(), re.MULTILINE)
    assert names == ["age", "sex", "educ", "race", "income", "married"]
    Path("pums.toml").write_text(schema)
    Path("request.pums.toml").write_text(request)
    for command in others:
        if not (fast and command.endswith("--curve")):  # computed once more for the figure
            run_command(command)
    assert Path("curve.svg").exists()
    assert Path("report.html").exists()
    scope = {}
    run(START, code, scope)
    assert 0 < scope["low"] < scope["high"] < 1
    assert dps.Ledger.open("pums.ledger").spent == 1


def test_the_page_on_graphs_shows_what_its_code_prints(capsys):
    scope = {}
    for block in blocks(GRAPHS, "python"):
        run(GRAPHS, block, scope)
    false_edges, leaks = capsys.readouterr().out.split("\n0.4 0 ", 1)
    text = (ROOT / GRAPHS).read_text("utf-8")
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

    numbers = "".join(
        f'[[column]]\nname = "{name}"\nlow = 0\nhigh = 200\nmissing = 50\n'
        for name in ("age", "pressure", "bmi")
    )
    smoker = '[budget]\nepsilon = 1.0\n[[column]]\nname = "smoker"\nkind = "boolean"\n'
    Path("request.toml").write_text(smoker + numbers + blocks(GRAPHS, "toml")[0])
    assert load_request("request.toml").analyses["network"] == scope["graph"]
