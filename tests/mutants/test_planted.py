"""The list of planted bugs is up to date, and planting one is seen."""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("plant", Path(__file__).with_name("plant.py"))
plant = sys.modules["plant"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plant)
BUGS = plant.planted_bugs()


def test_every_bug_can_be_planted_and_its_tests_exist():
    read, missing = cache(lambda path: path.read_text("utf-8") if path.is_file() else ""), []
    for bug in BUGS:
        bug.planted_in(read(plant.ROOT / "dpstats" / bug.file))
        for test in bug.tests:
            file, _, name = test.partition("::")
            path = plant.ROOT / "tests" / file
            if not path.exists() or (name and f"def {name}(" not in read(path)):
                missing.append((bug.name, test))
    assert missing == []


def test_the_page_lists_every_bug_as_seen_and_every_number_of_the_cases():
    """By a bug of the table; or a test of that number plants one itself."""
    page = plant.PAGE.read_text("utf-8")
    assert [bug.name for bug in BUGS if f"| {bug.name} |" not in page] == []
    assert "**not seen**" not in page
    seen = " ".join(re.findall(r"::(test_\w+)` \|$", page, re.M))
    folder = plant.ROOT / "tests" / "privacy"
    source = "\n".join(path.read_text("utf-8") for path in folder.rglob("test_*.py"))
    by_themselves = re.findall(r"^def (test_p\w*_(?:planted|injected|rejects)_\w+)", source, re.M)
    numbers = re.findall(r"_p(\d\d)(?=_)", " ".join([seen, *by_themselves]))
    assert {int(number) for number in numbers} == set(range(1, 81))


@pytest.mark.parametrize("name", [
    "a sensitivity of zero, or a float, is taken",
    pytest.param("replacing a row moves one cell of a table", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_planted_bug_is_seen(name):
    (bug,) = (bug for bug in BUGS if bug.name == name)
    assert plant.first_failure(bug, bug.tests) is not None
