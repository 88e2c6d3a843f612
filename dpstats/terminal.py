"""What the command line prints and asks: results to stdout, all else to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpstats.checks import Progress


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


def show(text: object, *, end: str = "\n", done: str = "") -> None:
    """Print a result to stdout, on a terminal with lines that fit it.

    Raises
    ------
    BrokenPipeError
        If its reader has closed it.
    Unprinted
        If it cannot be printed otherwise; with what is `done` already.
    """
    fitted = getattr(text, "fitted", None) if sys.stdout.isatty() else None
    try:
        print(text if fitted is None else fitted(), end=end, flush=True)
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
        print(text, end=end, file=sys.stderr, flush=True)


def attended() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agrees(question: str) -> bool:
    """Whether a person answers yes."""
    say(f"{question} [y/N] ", end="")
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
