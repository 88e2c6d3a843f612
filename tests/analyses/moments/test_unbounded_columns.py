"""The page on unbounded columns: its bounds and its biases, by simulation, and what results say."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.notes import CLAMPED

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "inference" / "unbounded-columns.md"


@pytest.fixture(scope="module")
def page():
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(code, PAGE, "exec"), scope)
    return scope


def test_the_bounds_of_the_table_clamp_rarely_and_little(page):
    """2,000 tables of 500 rows: a share of g has mean g and three deviations above it."""
    rng, n, g, runs = np.random.default_rng(0), 500, 0.05, 2_000
    laws = {
        "exponential": (rng.exponential(size=(runs, n)), page["bound"](1, n), g / n),
        "normal": (np.abs(rng.standard_normal((runs, n))), np.sqrt(2 * np.log(2 * n / g)), g / n),
        # E X^2 = 1 and P(X > t) = (1 - 1 / a) t^-a; the bound of the table at q = 2
        "Pareto": (
            np.sqrt(1 / 5) * (1 - rng.random((runs, n))) ** (-1 / 2.5), np.sqrt(n / g),
            np.sqrt(g / n),
        ),
    }  # fmt: skip
    for name, (rows, bound, bias) in laws.items():
        clamped = (rows > bound).any(axis=1).mean()
        assert clamped <= g + 3 * np.sqrt(g / runs), name
        assert np.mean(np.maximum(rows - bound, 0)) <= 2 * bias, name
    # Half of the bound would clamp in most tables: the check can fail.
    rows, bound, _ = laws["exponential"]
    assert (rows > bound / 2).any(axis=1).mean() > 0.5


def test_the_mean_of_clamped_values_is_near_and_the_share_at_the_bound_bounds_the_bias(page):
    plan, n, bound = page["plan"], page["n"], page["B"]
    rows = pd.DataFrame({"wait": np.random.default_rng(1).exponential(size=n)})
    release = dps.release(plan, rows, m=500, k=100, rng=0)
    mean, beyond = release.infer("wait"), release.infer("beyond")
    assert abs(float(mean) - 1) < 6 * (1 + np.sqrt(2) * bound / np.sqrt(n)) / np.sqrt(n)
    high = beyond.conf_int(method="certified")[1]
    assert np.exp(-bound) <= high <= 0.01
    assert CLAMPED in mean.summary()
    assert CLAMPED not in beyond.summary()  # its edge is below the bound


def test_the_costs_of_the_page_are_those_of_its_formula():
    text = " ".join(PAGE.read_text("utf-8").split())
    shares = [np.log(2 * n / 0.05) * np.sqrt(2 / n) for n in (10**4, 10**6)]
    assert "{:.2f} at n = 10,000 and {:.3f} at n = 1,000,000".format(*shares) in text
