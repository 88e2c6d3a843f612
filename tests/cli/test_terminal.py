"""What the command line prints fits the terminal: sentences and names wrap, data never."""

import io
import sys

from dpstats.display import line_width
from dpstats.terminal import fitted


def test_sentences_wrap_and_hang_below_what_they_describe():
    schema = "age     number, 0 to 120, 121 points; missing: counted as 40"
    assert fitted(schema, 40).splitlines() == [
        "age     number, 0 to 120, 121 points;", "        missing: counted as 40",
    ]  # fmt: skip
    command = "dpstats synthesize a.measurements.zip -o another.zip --overwrite"
    assert command in fitted(f"dpstats: finish the release with: {command}", 40)


def test_one_width_for_all_that_prints(monkeypatch):
    """COLUMNS decides, then a terminal; a pipe has no width, and a text by itself has 100."""
    pipe = io.StringIO()
    assert line_width(pipe) == sys.maxsize
    assert line_width() == 100
    pipe.close()
    assert line_width(pipe) == sys.maxsize
    for said, width in (("72", 72), ("7", 40)):
        monkeypatch.setenv("COLUMNS", said)
        assert line_width() == line_width(io.StringIO()) == width
