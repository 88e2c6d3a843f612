"""The numbers in names of tests are those of docs/explanation/privacy/privacy-cases.md."""

import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "explanation" / "privacy" / "privacy-cases.md"


def test_every_number_is_on_the_page_and_has_a_test():
    cases = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE.read_text("utf-8"), re.M)]
    assert cases == list(range(1, 81))
    source = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    tested = Counter(int(number) for number in re.findall(r"^def test_p(\d+)_", source, re.M))
    assert sorted(set(cases) - set(tested)) == []  # on the page, without a test
    assert sorted(set(tested) - set(cases)) == []  # a test, not on the page
