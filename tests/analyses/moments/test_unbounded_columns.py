"""The page on unbounded columns: its bounds and its biases, by simulation."""

import re
from pathlib import Path

import numpy as np
import pytest

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
