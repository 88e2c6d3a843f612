"""The paper's simulation: the page that shows its sizes, and the promise for its rows."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("measuring", "paper_methods", "paper_simulation")


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tests" / "benchmarks")
        yield [importlib.import_module(name) for name in NAMES]
        for name in NAMES:
            patch.delitem(sys.modules, name)


def test_a_release_is_within_the_promise_for_its_rows(modules):
    _, methods, _ = modules
    n = methods.sizes("histogram", 3)[0]
    promised = methods.promised("histogram", 3, n)
    assert methods.released(3, n, 2 * methods.EPSILON, 0).rows < promised < 0.3


def test_the_page_shows_the_sizes(modules):
    *_, simulation = modules
    page = (ROOT / "docs" / "explanation" / "paper" / "simulation.md").read_text("utf-8")
    head, rule, *lines = simulation.size_table(10).splitlines()
    shown = page[page.index(f"{head}\n{rule}\n") :].split("\n\n")[0].splitlines()[2:]
    assert len(shown) >= 5
    assert set(shown) <= set(lines)
