"""The page on what a release can answer: its examples run."""

import re
from pathlib import Path

PAGE = (
    Path(__file__).parents[2]
    / "docs"
    / "explanation"
    / "inference"
    / "what-a-release-can-answer.md"
)


def test_the_examples_of_the_page_run(capsys):
    text, scope = PAGE.read_text("utf-8"), {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block, scope)
    printed = capsys.readouterr().out
    assert printed.count("bounded: ") == 1
    assert printed.count("out of reach: ") == 1
    assert "Pooled estimates from 20 plausible tables" in printed
