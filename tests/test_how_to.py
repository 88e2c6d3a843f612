"""The pages of docs/how-to. The analysis: as shown, from plan to a fresh process, and valid."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses import registry
from dpstats.cli import DONE, main
from dpstats.planning import measures
from dpstats.planning.requests import load_request
from dpstats.privacy.noise import _noise_from

FOLDER = Path(__file__).parents[1] / "docs" / "how-to"
PAGE, FILE = FOLDER / "analyse/your-own-analysis.md", FOLDER / "analyse/trimmed_mean.py"
SCHEMA = dps.Schema([dps.Number("age", 0, 120, edges=[18, 30, 40, 50, 65, 80])])


@pytest.fixture(scope="module")
def example():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", {})
        spec = importlib.util.spec_from_file_location("trimmed_mean", FILE)
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "trimmed_mean", module)
        spec.loader.exec_module(module)
        yield module


def ages(n, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"age": rng.gamma(4, 11, n).clip(0, 120)})


def test_the_page_shows_the_file(example, capsys, fast):
    first, *others = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    assert first == FILE.read_text("utf-8")
    assert f"[{FILE.name}]({FILE.name})" in PAGE.read_text("utf-8")
    assert "from dpstats" not in first  # public names serve
    scope = dict(vars(example))
    for block in others:
        exec(block, scope)
    assert "Trimmed mean of age" in capsys.readouterr().out


def test_the_request_of_the_page_is_a_plan_in_two_stages(tmp_path):
    page = (FOLDER / "plan/write-a-request.md").read_text("utf-8")
    (tmp_path / "risk.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    plan = load_request(tmp_path / "risk.toml")
    assert plan.in_two_stages
    assert isinstance(plan.schema["ill"], dps.Boolean)


# What is fewer here than on the pages, whose texts do not say it: rows, candidates, budgets.
FEWER = {
    "analyse/compare-groups.md": {
        "8_000": "2_000", "m=2_000": "m=100", "[0.4, 0.3, 0.2, 0.1]": "[0.6, 0.4]",
        '["north", "south", "east", "west"]': '["south", "east"]',
    },
    "plan/choose-a-budget.md": {
        'Independence("smoker", "region")': 'Independence("smoker", "region", simulations=99)',
        "[0.4, 0.4, 0.2])": "[0.4, 0.4, 0.2], simulations=99)",
        "curve(n=5_000)": "curve(budgets=[0.5, 1], n=5_000)",
    },
    "plan/plan-from-guesses.md": {"release(plan, rows)": "release(plan, rows, m=100)"},
}  # fmt: skip


def run_page(name):
    """The text of a page, whose blocks have run, and their names."""
    page, scope = (FOLDER / name).read_text("utf-8"), {}
    assert all(written in page for written in FEWER.get(name, {}))
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        for written, fewer in FEWER.get(name, {}).items():
            block = block.replace(written, fewer)
        exec(block, scope)
    return page, scope


def test_the_page_on_groups_runs_and_its_request_is_its_schema(capsys, tmp_path, fast):
    page, _ = run_page("analyse/compare-groups.md")
    assert "C(region, Treatment('south'))[T.east]" in capsys.readouterr().out
    (request,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "request.toml").write_text(request)
    plan = load_request(tmp_path / "request.toml")
    assert plan.analyses["hours"] == dps.GroupMeans("hours", by="region")
    wage = dps.Number("wage", 1, 1000, scale="log", missing=10, edges=[10, 100])
    assert plan.schema["wage"] == wage


def test_the_page_on_the_schema_shows_what_is_printed(capsys):
    page, _ = run_page("plan/check-the-schema.md")
    printed = capsys.readouterr().out
    assert printed.startswith("Fit of the schema")
    assert f"```\n{printed}```" in page


def test_the_page_on_rules_declares_the_same_in_code_and_in_a_file(tmp_path, capsys):
    page, _ = run_page("plan/rules.md")
    assert capsys.readouterr().out.startswith("rule 1: never age < 15 and marital != 'never'")
    rules, totals = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    year = "low = 2024-01-01\nhigh = 2024-12-31"
    columns = "".join(f"[[column]]\nname = '{name}'\n{rest}\n" for name, rest in {
        "age": "low = 0\nhigh = 99\nedges = [15]", "marital": "levels = ['never', 'married']",
        "town": "levels = ['Ely', 'Cambridge', 'Norwich']", "admission": year,
        "county": "levels = ['Cambridgeshire', 'Norfolk']", "discharge": year,
    }.items())  # fmt: skip
    (tmp_path / "schema.toml").write_text(columns + rules + totals)
    schema = dps.Schema.load(tmp_path / "schema.toml")
    assert [rule.kind for rule in schema.rules] == ["never", "determines", "order"]
    assert schema.totals == (dps.Total("age < 15", 760, of="table"),)


def test_the_page_on_audits_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page("release/audit-a-plan.md")
    assert ": passed\n" in capsys.readouterr().out
    assert main(["audit", "plan.json", "--draws", "100", "--json"]) == DONE


def released(example, n=800):
    asked = {"t": example.TrimmedMean("age")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1))
    return dps.release(plan, ages(n), m=100, k=50, rng=1)


def test_it_can_be_inferred_from_rows_alone(example, monkeypatch):
    release = released(example, 2_000)

    def inferred():
        return dps.corrected.infer(
            example.TrimmedMean("age"), release.to_frame(), radius=release.radius("t"),
            schema=SCHEMA,
        )  # fmt: skip

    low, high = inferred().conf_int().tolist()
    assert low < float(release.infer("t").params[0]) < high
    with pytest.raises(dps.RequestError, match="only a radius"):
        inferred().conf_int(method="noise_aware")
    monkeypatch.setattr(example.TrimmedMeanIntervals, "from_bounds", False)
    with pytest.raises(dps.RequestError, match="only a radius of the noise is known"):
        inferred()


def test_without_certified_intervals_it_keeps_the_contract_too(example, monkeypatch):
    none = np.array([-np.inf]), np.array([np.inf])
    monkeypatch.setattr(example.TrimmedMeanIntervals, "certified", lambda *given: none)
    dps.testing.check_analysis(example.TrimmedMean("age", 0.2), SCHEMA, ages(200))
    summary = released(example).infer("t").summary()
    assert "none" in next(line for line in summary.splitlines() if line.startswith("age "))
    assert 'certified "none": no interval holds for every possible table' in summary


def test_answers_to_a_table_are_in_the_order_that_the_page_says(no_noise):
    columns = [dps.Boolean("b", allow_missing=True), dps.Category("g", ["v", "u"])]
    schema = dps.Schema(columns)
    rows = pd.DataFrame({"b": [True, None, False, True], "g": ["u", "v", "v", "u"]})
    plan = dps.plan(schema, {"t": dps.Marginals(["g", "b"])}, budget=dps.PureDP(1))
    table = dps.Cells.table(schema, ["g", "b"])
    shares = dps.release(plan, rows, m=50, k=10).answers(table).means
    shown = shares.reshape([c.bins for c in table.columns])
    np.testing.assert_array_equal(shown, [[0.25, 0], [0, 0.5], [0.25, 0]])
    assert table.names[:2] == ["b=False, g=v", "b=False, g=u"]


def test_it_is_read_in_a_fresh_process(example, tmp_path):
    release = released(example)
    release.save(tmp_path / "release.zip")
    code = (
        "import dpstats as dps\n"
        "release = dps.load('release.zip')\n"
        "assert list(release.unread) == ['t'] and len(release.to_frame()) == 50\n"
        "import trimmed_mean\n"
        "print(*release.infer('t').conf_int().tolist())\n"
    )
    path = os.pathsep.join([str(FILE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout.split() == [repr(end) for end in release.infer("t").conf_int().tolist()]


# Values at the low end of a bin leave an interval no slack: its lower end must cover by itself.
LEAST = np.array([0.0, 18, 30, 40, 50, 65, 80])


RUNS = [(25, "replace"), *(
    pytest.param(2_000, unit, marks=pytest.mark.slow) for unit in ("replace", "add_remove")
)]  # fmt: skip


@pytest.mark.parametrize(("runs", "unit"), RUNS)
def test_coverage(example, seeded_noise, runs, unit):
    """A right interval fails here less than once in 10^5 runs of the test."""
    mass, alpha, trim = np.array([0.1, 0.2, 0.2, 0.2, 0.15, 0.1, 0.05]), 0.2, 0.1
    truth = example.trimmed(LEAST, mass.cumsum()[:-1], trim)
    asked = {"t": example.TrimmedMean("age", trim)}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), unit=unit)
    rng, missed = np.random.default_rng(5), 0
    with _noise_from(seeded_noise(6)):
        for _ in range(runs):
            rows = pd.DataFrame({"age": rng.choice(LEAST, 300, p=mass)})
            low, high = dps.release(plan, rows, m=20, k=10, rng=0).infer("t").conf_int(alpha=alpha)
            missed += not low <= truth <= high
    assert missed <= stats.binom.isf(1e-5, runs, alpha)


def test_the_page_on_budgets_shows_what_is_printed(capsys, monkeypatch):
    monkeypatch.setattr(measures, "RELEASES", 20)
    monkeypatch.setattr(measures, "FEW_RELEASES", 5)
    page, _ = run_page("plan/choose-a-budget.md")
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"```\n(smoking: .*?)```", page, flags=re.DOTALL)
    assert shown in printed
    for line in (
        r"least epsilon = 0\.\d+ at n = 5000: width 0\.0\d+; at epsilon = 0\.\d+ it is 0\.03",
        r"\n\d{4}\n",
        r"link: delta of at most 0\.01 .*\nleast epsilon",
        r"smoking: power of at least 0\.8 .*\nleast epsilon",
        r"not even epsilon = 10000 gives 'smoking' a width of 0\.01 at n = 5000: it gives 0\.02",
    ):
        assert re.search(line, printed), line


def test_the_page_on_guesses_runs_and_its_file_states_the_same(capsys, tmp_path):
    page, scope = run_page("plan/plan-from-guesses.md")
    printed = capsys.readouterr().out
    assert "rows invented from guesses of every column" in " ".join(printed.split())
    (shown,) = re.findall(r"```\n(pay: .*?)```", page, flags=re.DOTALL)
    numbers = re.compile(r"[\d.]+(e\+\d+)?")  # which may differ in the last digit elsewhere
    assert numbers.sub("#", shown) in numbers.sub("#", printed)
    (table,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "guesses.toml").write_text(table)
    assert dps.Guesses.load(tmp_path / "guesses.toml") == scope["guesses"]
