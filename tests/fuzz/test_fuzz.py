"""Some changed files and tables of every kind: `make fuzz` runs a million."""

import importlib.util
import sys
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("fuzz_run", Path(__file__).with_name("run.py"))
run = sys.modules["fuzz_run"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run)
COUNT = {"ledgers": 50, "schemas": 50, "releases": 12, "CSV": 50}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return run.kinds(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("kind", run.MIX)
def test_a_changed_input_is_refused_with_a_sentence_or_means_what_it_says(kind, kinds):
    counts = dict.fromkeys(("refused", "equal", "consistent", "found"), 0)
    for number in range(COUNT.get(kind, 25)):
        how, found = run.outcome(kind, kinds[kind], number)
        assert not found
        counts[how] += 1
    assert counts["refused"]
    assert counts["equal"] + counts["consistent"]  # changes do not only break


def test_every_kind_has_its_share_of_a_million_and_its_line_in_the_page(kinds):
    assert kinds.keys() == run.MIX.keys()
    assert sum(run.MIX.values()) == 10**6
    page = run.PAGE.read_text("utf-8")
    assert [kind for kind in run.MIX if f"| {kind} | " not in page] == []
