"""The analysis of docs/how-to: as shown, and valid."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses import registry
from dpstats.privacy.noise import _noise_from

FOLDER = Path(__file__).parents[1] / "docs" / "how-to" / "analyse"
PAGE, FILE = FOLDER / "your-own-analysis.md", FOLDER / "trimmed_mean.py"
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
