"""The page on unbounded columns: its bounds and its biases, by simulation."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "inference" / "unbounded-columns.md"


def test_the_bounds_of_the_table_clamp_rarely_and_little():
    """1,000 tables of 500 rows: a share of g has mean g and three deviations above it."""
    page = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(code, PAGE, "exec"), page)
    rng, n, g, runs = np.random.default_rng(0), 500, 0.05, 1_000
    shape = (runs, n)
    pareto = np.sqrt(1 / 5) * (1 - rng.random(shape)) ** (-1 / 2.5)  # of which E X^2 = 1
    for name, rows, bound, bias in [
        ("exponential", rng.exponential(size=shape), page["bound"](1, n), g / n),
        ("normal", np.abs(rng.standard_normal(shape)), np.sqrt(2 * np.log(2 * n / g)), g / n),
        ("Pareto", pareto, np.sqrt(n / g), np.sqrt(g / n)),
    ]:
        clamped = (rows > bound).any(axis=1).mean()
        assert clamped <= g + 3 * np.sqrt(g / runs), name
        assert np.mean(np.maximum(rows - bound, 0)) <= 2 * bias, name
        if name == "exponential":  # of which half of the bound would clamp in most tables
            assert (rows > bound / 2).any(axis=1).mean() > 0.5
