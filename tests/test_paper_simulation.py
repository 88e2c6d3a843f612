"""The paper's simulation: sizes, the page that shows them, and promises."""

import importlib
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("measuring", "paper_methods", "paper_simulation")


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tests" / "benchmarks")
        yield {name: importlib.import_module(name) for name in NAMES}
        for name in NAMES:
            patch.delitem(sys.modules, name)


@pytest.fixture(scope="module")
def methods(modules):
    return modules["paper_methods"]


def test_sizes_are_the_printed_lower_bounds(methods):
    for p in [3, 6, 10]:
        f, omega = 1 + p + p * (p - 1) // 2, 2**p
        log = math.log(f / 0.25)
        n, k = math.ceil(2 * f * log / (0.2 * 0.5)), math.ceil(log / 0.25)
        assert methods.sizes("uniform", p) == (n, k, 16 * omega * f, pytest.approx(0.5 / log))
        # Corollary III.1.1; its constants C1 = 57/16 and C2 = 57/8 are those of the proof
        noise = 2 * 0.5 * omega * math.log(omega) / (0.25 * math.log(f / 0.5))
        rows = max(n, 8 * omega**3 + 16 * omega**2 * math.log(4), 8 * omega * noise)
        rows = math.ceil(rows)
        sampled = math.sqrt(2 * math.log(4) / rows) + math.sqrt(omega / rows)
        kappa = math.sqrt((1 + 57 / 16 * sampled) * (1 + 57 / 8 * noise / rows))
        printed = (rows, k, math.ceil(32 * kappa * f), pytest.approx(0.5 / log))
        assert methods.sizes("histogram", p) == printed
        assert methods.sizes("Bernstein", p)[1:3] == (k, math.ceil(32 * (1 + 14 / 3) * f))


def test_the_promise_is_the_least_that_the_rows_afford(methods):
    for reference in ["uniform", "histogram"]:
        n = methods.sizes(reference, 5)[0]
        promised = methods.promised(reference, 5, n)
        gamma = 0.05 / (4 if reference == "uniform" else 6)
        theorem = methods.theorem(reference, 5, False, gamma, sensitivity=15)
        assert theorem.sizes(1.001 * promised / 8).n <= n < theorem.sizes(0.999 * promised / 8).n
        assert theorem.sizes(promised / 8).probability == pytest.approx(0.95)


def test_a_release_is_within_the_promise_for_its_rows(methods):
    n = methods.sizes("histogram", 3)[0]
    promised = methods.promised("histogram", 3, n)
    assert methods.released(3, n, 2 * methods.EPSILON, 0).rows < promised < 0.3


def test_the_page_shows_the_sizes(modules):
    page = (ROOT / "docs" / "explanation" / "paper" / "simulation.md").read_text("utf-8")
    head, rule, *lines = modules["paper_simulation"].size_table(10).splitlines()
    shown = page[page.index(f"{head}\n{rule}\n") :].split("\n\n")[0].splitlines()[2:]
    assert len(shown) >= 5
    assert set(shown) <= set(lines)
