"""Output and questions of the command line: results to stdout, all else to stderr."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from dpstats.checks import Progress


_LEAD = re.compile(r"\s*\S{1,24}\s{2,}(?=\S)")  # a name with its description beside it
_COMMAND = re.compile(r"dpstats [a-z]+ [^;'\n]*")  # to be copied in one piece


_CLEAR = "\r\033[K"  # begins a line that is rewritten in place
_rewritten = False  # whether such a line stands on stderr


class Unprinted(Exception):
    """Results could not be printed."""


def prepare_streams() -> None:
    """Open the standard streams that are closed, on nothing, and write every text to the others.

    Otherwise the next file that is opened would get the number of a closed one.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, open until the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # characters that the encoding lacks as \xe4
            stream.reconfigure(errors="backslashreplace")


def fitted(text: str, width: int) -> str:
    """A text whose lines fit a width; commands to copy stay in one piece.

    Examples
    --------
    >>> print(fitted("Note: cells that are missing count as zero", 24))
    Note: cells that are
        missing count as
        zero
    """
    return "\n".join(part for line in text.split("\n") for part in _fitted_line(line, width))


def _fitted_line(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    lead = _LEAD.match(line)
    hang = lead.end() if lead and lead.end() <= width // 3 else len(line) - len(line.lstrip()) + 4
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), line)
    parts = textwrap.wrap(
        whole, width, subsequent_indent=" " * hang, break_long_words=False,
        break_on_hyphens=False, replace_whitespace=False, expand_tabs=False,
    )  # fmt: skip
    return [part.replace("\0", " ") for part in parts]


def _wrapped(text: object, stream: TextIO) -> str:
    from dpstats.display import line_width  # later: it takes a while

    width = line_width(stream)
    own = getattr(text, "fitted", None)  # of what knows its own table
    if width == sys.maxsize or own is None:
        return fitted(str(text), width)
    return str(own())


def show(text: object, *, end: str = "\n", done: str = "", wrap: bool = True) -> None:
    """Print a result to stdout; with `wrap` it fits the terminal."""
    clear_progress()
    try:
        print(_wrapped(text, sys.stdout) if wrap else text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unprinted(f"{done and done + '; '}printing failed: {error.strerror}") from None


def close_output() -> None:
    """Send what stdout still holds, and cannot print, to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str, end: str = "\n") -> None:
    """Print to stderr; that nobody reads it stops nothing."""
    clear_progress()
    with suppress(OSError):
        print(_wrapped(text, sys.stderr), end=end, file=sys.stderr, flush=True)


def clear_progress() -> None:
    """Remove the line of `progress` from the terminal."""
    global _rewritten
    if _rewritten:
        _rewritten = False
        with suppress(OSError):
            print(_CLEAR, end="", file=sys.stderr, flush=True)


def attended() -> bool:
    """True if somebody sits at a terminal who can answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agrees(question: str) -> bool:
    """Ask a question, and return True if the answer is yes."""
    say(f"{question} [y/N]", end=" ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def progress(at: Mapping[str, Callable[[], None]] | None = None) -> Progress:
    """Progress on stderr: one line rewritten in place, or one line per stage in a log.

    What `at` names for a stage is called when it begins.
    """
    from dpstats.display import time_left

    live = sys.stderr.isatty()
    last, began = "", 0.0

    def report(text: str, done: int, total: int | None) -> None:
        nonlocal last, began
        global _rewritten
        now, new = time.monotonic(), text != last
        if at and text in at and new:
            at[text]()
        if new:
            last, began = text, now
        if live and text == "done":
            clear_progress()
        elif live:
            percent = f" {done / total:.0%}" if total else ""
            left = time_left(now - began, done / total) if total else ""
            with suppress(OSError):
                print(f"{_CLEAR}{text}{percent}{left}", end="", file=sys.stderr, flush=True)
            _rewritten = True
        elif new:
            say(text)

    return report
