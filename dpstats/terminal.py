"""What the command line prints and asks: results to stdout, all else to stderr."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from dpstats.checks import Progress


_RULE = re.compile(r"-{3,}")  # below the header of a table
_LEAD = re.compile(r"\s*\S{1,24}\s{2,}(?=\S)")  # a name with its description beside it
_COMMAND = re.compile(r"dpstats [a-z]+ [^;'\n]*")  # to be copied in one piece
_NARROWEST = 12  # characters of the first column of a table


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
    """A text whose lines fit a width: sentences wrap, and so does one column of a table.

    Commands to copy stay in one piece, and so do the other columns.

    Examples
    --------
    >>> print(fitted("Note: cells that are missing count as zero", 24))
    Note: cells that are
        missing count as
        zero
    """
    left, done = text.split("\n"), list[str]()
    while left:
        rows = next((i for i, line in enumerate(left) if not line), len(left))
        if len(left) > 1 and _RULE.fullmatch(left[1]):
            done += _fitted_table(left[:rows], width)
            left = left[rows:]
        else:
            done += _fitted_line(left.pop(0), width)
    return "\n".join(done)


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


def _fitted_table(lines: Sequence[str], width: int) -> list[str]:
    """A table with a rule below its header: the first or else the last column wraps."""
    header, rule, *rows = lines
    over = len(rule) - width
    full = [line.ljust(len(rule)) for line in (header, *rows)]
    # Where columns end: two blanks that all lines have below each other.
    blank = [i for i in range(1, len(rule)) if {line[i : i + 2] for line in full} == {"  "}]
    first = next((i for i in blank if any(line[:i].strip() for line in full)), 0)
    last = next((i + 2 for i in reversed(blank) if any(line[i:].strip() for line in full)), 0)
    if over <= 0 or not first:
        return list(lines)
    done = [[header], [rule[:width]]]
    if first - over >= _NARROWEST:
        room = first - over
        done[0] = [header[:room].ljust(room) + header[first:]]
        for row in rows:
            name, *more = textwrap.wrap(row[:first], room, subsequent_indent="  ") or [""]
            done.append([(name.ljust(room) + row[first:]).rstrip(), *more])
    elif (room := width - last) >= _NARROWEST:
        done[0] = [header[:last] + header[last:].strip()[:room].rjust(room)]
        for row in rows:
            text, *more = textwrap.wrap(row[last:].strip(), room) or [""]
            done.append([(row[:last].ljust(last) + text.rjust(room)).rstrip(),
                         *(" " * last + line.rjust(room) for line in more)])  # fmt: skip
    else:
        return list(lines)
    return [line for row in done for line in row]


def _width(stream: TextIO) -> int | None:
    """Characters in a line of a terminal, or as the variable COLUMNS says; None without either."""
    try:
        known = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    except ValueError:  # it is closed
        return None
    return max(shutil.get_terminal_size().columns, 40) if known else None


def _wrapped(text: object, stream: TextIO) -> str:
    width = _width(stream)
    if width is None:
        return str(text)
    own = getattr(text, "fitted", None)  # of what knows its own table
    return fitted(str(text) if own is None else own(), width)


def show(text: object, *, end: str = "\n", done: str = "", wrap: bool = True) -> None:
    """Print a result to stdout; with `wrap` it fits the terminal.

    Raises
    ------
    BrokenPipeError
        If its reader has closed it.
    Unprinted
        If it cannot be printed otherwise; with what is `done` already.
    """
    try:
        print(_wrapped(text, sys.stdout) if wrap else text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unprinted(f"{done and done + '; '}printing failed: {error.strerror}") from None


def close_output() -> None:
    """Send what stdout still holds, and cannot print, to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def as_flags(message: str) -> str:
    """A message of the library with options as the command line spells them.

    Examples
    --------
    >>> as_flags("replace it with overwrite=True (--force on the command line)")
    'replace it with --force'
    >>> as_flags("drop solver=, or give fit='minimax'")
    'drop --solver, or give --fit minimax'
    """
    message = message.replace("overwrite=True (--force on the command line)", "--force")
    return re.sub(r"\b(fit|solver|draw)=(?:'(\w+)')?", r"--\1 \2", message).replace(" ,", ",")


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
    with suppress(OSError):
        text = text if "\r" in text else _wrapped(text, sys.stderr)
        print(text, end=end, file=sys.stderr, flush=True)


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
    live = sys.stderr.isatty()
    last = [""]

    def report(text: str, done: int, total: int | None) -> None:
        if at and text in at and text != last[0]:
            at[text]()
        if live:
            share = f" {done / total:.0%}" if total else ""
            say(f"\r\033[K{text}{share}", end="\n" if text == "done" else "")
        elif text != last[0]:
            say(text)
        last[0] = text

    return report
