"""The numbers in names of tests are those of docs/explanation/privacy/privacy-cases.md."""

import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "explanation" / "privacy" / "privacy-cases.md"


def test_every_number_is_on_the_page_and_has_a_test():
    cases = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE.read_text("utf-8"), re.M)]
    assert cases == list(range(1, 81))
    paths = [*TESTS.rglob("test_*.py"), *(TESTS.parent / "private").rglob("test_*.py")]
    source = "\n".join(path.read_text("utf-8") for path in paths)
    names = re.findall(r"^def test((?:_p\d+)+)_", source, re.M)
    tested = Counter(int(number) for name in names for number in re.findall(r"\d+", name))
    assert sorted(set(cases) - set(tested)) == []  # on the page, without a test
    assert sorted(set(tested) - set(cases)) == []  # a test, not on the page
