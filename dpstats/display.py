"""What terminals and notebooks show by themselves: HTML of lines and tables, and a progress bar."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from dpstats.checks import Progress, short
from dpstats.errors import RequestError

Shown = Progress | Literal[False] | None  # None: a bar where somebody sees it; False: nothing
PATIENCE = 2.0  # seconds before a bar is shown
_STEP = 0.1  # seconds between two pictures of it


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as HTML, escaped; the first cell of a row is its header."""
    head = "".join(
        f'<th scope="col">{html.escape(cell)}</th>' if cell else "<td></td>" for cell in header
    )
    lines = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def as_html(
    title: str, before: Sequence[str] = (), table: str = "", after: Sequence[str] = ()
) -> str:
    """A title, lines, a table that is HTML already, and lines."""
    head, foot = (
        f"<p>{'<br>'.join(html.escape(line) for line in lines)}</p>" if lines else ""
        for lines in (before, after)
    )
    return f"<h4>{html.escape(title)}</h4>{head}{table}{foot}"


@contextmanager
def shown_progress(progress: Shown) -> Iterator[Progress | None]:
    """The function that was given; without one, a bar where somebody sees it, until the work ends.

    Raises
    ------
    RequestError
        Unless `progress` is a function, None (a bar, in a terminal or a notebook) or False (none).
    """
    if progress is not None and progress is not False:
        if not callable(progress):
            raise RequestError(
                "progress must be a function of (text, done, total), or False for none, got "
                f"{short(progress)}"
            )
        yield progress
        return
    notebook = _notebook()
    if progress is False or (notebook is None and not _terminal()):
        yield None
        return
    bar = Bar(notebook)
    try:
        yield bar
    finally:
        bar.clear()


def _terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _notebook() -> Any | None:
    """IPython's display module where this runs in a notebook; it is loaded there already."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return sys.modules.get("IPython.display")


class Bar:
    """A line that is rewritten in place, once the work has taken two seconds.

    That it cannot be drawn stops nothing.

    Parameters
    ----------
    display : module or None
        IPython's display module, in a notebook.
    """

    def __init__(self, display: Any | None = None) -> None:
        self._display = display
        self._handle: Any = None
        self._start = self._drawn = time.monotonic()
        self._shown = False

    def __call__(self, text: str, done: int, total: int | None) -> None:
        """So much of a step is done."""
        now = time.monotonic()
        if now - self._start >= PATIENCE and now - self._drawn >= _STEP:
            self._drawn, self._shown = now, True
            with suppress(Exception):
                self._draw(text, done / total if total else None)

    def clear(self) -> None:
        """Take it away."""
        if self._shown:
            self._shown = False
            with suppress(Exception):
                self._draw("", None)

    def _draw(self, text: str, share: float | None) -> None:
        if self._display is None:
            percent = "" if share is None else f" {share:.0%}"
            sys.stderr.write(f"\r\033[K{text}{percent}")
            sys.stderr.flush()
            return
        value = "" if share is None else f' value="{share:.3f}"'
        bar = f"{html.escape(text)} <progress{value}></progress>" if text else ""
        shown = self._display.HTML(bar)
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)
