"""What the command line prints and asks: results to stdout, all else to stderr."""

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
_OPTIONS = "fit|solver|draw|like|alpha|start|minus|over|term"  # of commands
_DECLARED = "missing|edges|levels|values|points|low|high|other"  # of schemas
_KEYS = (  # of schemas and requests
    f"{_DECLARED}|given|by|groups|clip_norm|center|ridge|cov_type|penalties|estimator|tolerance|"
    "separators|person_totals|reference|weights|allocation|unit|rows_per_person|person"
)
_VALUES = "entropy|minimax|columns|highs|pulp|systematic|iid|certified|noise_aware|table|population"
_CALLS = r"(?:dps|release)\.[\w.]+(?: or dps\.[\w.]+)*(?: with \S+)?|\w+="
_ALONE = r"(?=[\s,;:.)]|$)"  # after an option without a value
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
        return fitted(as_commands(str(text)), width)
    lines = ((line, as_commands(line)) for line in str(own()).split("\n"))
    return "\n".join(new if new == line else fitted(new, width) for line, new in lines)


def show(text: object, *, end: str = "\n", done: str = "", wrap: bool = True) -> None:
    """Print a result to stdout; with `wrap` it fits the terminal.

    Raises
    ------
    BrokenPipeError
        If its reader has closed it.
    Unprinted
        If it cannot be printed otherwise; with what is `done` already.
    """
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


def as_commands(text: str) -> str:
    """What the library prints, with calls and options as the command line and files spell them.

    Names of terms and conditions stay as they are: no option of theirs is followed by a blank, or
    by one of these values.

    Examples
    --------
    >>> as_commands("replace it with overwrite=True (--force on the command line)")
    'replace it with --force'
    >>> as_commands("open it with dps.load ('dpstats show' or 'dpstats infer')")
    "open it with 'dpstats show' or 'dpstats infer'"
    >>> as_commands("7 more rows in to_frame(); print them with most= (dpstats infer --rows)")
    '7 more rows; print them with dpstats infer --rows'
    >>> as_commands("see release.bound, or preview with like= rows that resemble yours")
    'see dpstats bound, or preview with --like rows that resemble yours'
    >>> as_commands("drop solver=, or give fit='minimax'")
    'drop --solver, or give --fit minimax'
    >>> as_commands("declare allow_missing=True, use dps.Mean, or plan without clip_norm=")
    'declare allow_missing = true, use Mean, or plan without clip_norm'
    >>> as_commands("use reference=dps.LogLinear(), or allocation='optimal'")
    'use a [reference] of kind = "log_linear", or allocation = "optimal"'
    """
    text = re.sub(r"\S+= ?\S* \((--\w+) on the command line\)", r"\1", text)
    text = re.sub(r"open \w+ with dps\.[\w.]+ \(on the command line: ([^)]*)\)", r"\1", text)
    text = re.sub(rf"(?:{_CALLS}) \(('?dpstats [^)]*)\)", r"\1", text)
    text = re.sub(r"\brelease\.(bound|infer|explain)\b(?!\()", r"dpstats \1", text)
    text = re.sub(r"('dpstats \w+') or dps\.\w+", r"\1", text)
    text = re.sub(r"\bdps\.plan\b(?!\()", "'dpstats plan'", text)
    text = re.sub(r",? in to_frame\(\)(?=;|$)|\bsummary\((?=target='table'\))", "", text)
    text = text.replace("(simultaneous=True)", "(--simultaneous)")
    text = re.sub(rf"\b(fit|solver|draw|method|target)='({_VALUES})'\)?", r"--\1 \2", text)
    text = re.sub(rf"\b({_OPTIONS})={_ALONE}", r"--\1", text)
    text = re.sub(rf"\b({_KEYS})={_ALONE}", r"\1", text)
    text = re.sub(r"\b(allow_missing|person_totals)=True", r"\1 = true", text)
    text = re.sub(r"\b(allocation|unit)='(\w+)'", r'\1 = "\2"', text)
    text = re.sub(r"\breference=dps\.(\w+)\(\)", _reference, text)
    return re.sub(r"\bdps\.(?=[A-Z])", "", text)


def _reference(found: re.Match[str]) -> str:
    """A reference as a request has it."""
    return f'a [reference] of kind = "{re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[1]).lower()}"'


def as_flags(message: str) -> str:
    r"""The same of a message, and keys of files and options that have any value.

    Examples
    --------
    >>> as_flags("give n= (--rows on the command line)")
    'give --rows'
    >>> as_flags("'region' has scale='log'; add edges=[...]")
    '\'region\' has scale = "log"; add edges = [...]'
    >>> as_flags("did you mean alpha=0.05?")
    'did you mean --alpha 0.05?'
    """
    message = re.sub(r"\balpha=(?=[\d.])", "--alpha ", as_commands(message))
    quoted = "scale|link|cov_type|structure|estimator|form"
    message = re.sub(rf"\b({quoted})='(\w+)'", r'\1 = "\2"', message)
    return re.sub(rf"\b({_DECLARED}|stages|clip_norm)=(?=[^\s=])", r"\1 = ", message)


def as_options(message: str) -> str:
    """The same for the arguments of `Plan.solve`.

    Examples
    --------
    >>> as_options("give n= for the least budget, or budget= for the least n")
    'give --rows for the least budget, or --budget for the least n'
    """
    message = re.sub(r"\bn=", "--rows", re.sub(r"\bof=", "--solve", message))
    names = "width|delta|power|budget|alternative|null|term|like|method"
    return re.sub(rf"\b({names})=(?=\S)", r"--\1 ", re.sub(rf"\b({names})=(?=[\s,;]|$)", r"--\1",
                  message))  # fmt: skip


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
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agrees(question: str) -> bool:
    """Whether a person answers yes."""
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
