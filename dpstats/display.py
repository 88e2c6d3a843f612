"""Lines and tables that fit terminals and notebooks, also as HTML, and a progress bar."""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from dpstats.checks import Progress, short
from dpstats.errors import RequestError

Shown = Progress | bool | None  # None: a bar where somebody sees it; True: always; False: never
PATIENCE = 2.0  # seconds before a bar is shown
_STEP = 0.1  # seconds between two pictures of it
_LINE, _LEAST_LINE = 100, 40  # characters of a line where there is no terminal, and at least
_LEAST_CELL = 12  # characters of a column of text that is made narrower
_FIFTH = 5  # of a line: the least for text beside all columns; two where some come below
_GAP = "  "
_NUMBER = re.compile(r"[\[(<>=±~+-]*\s*\.?\d|[\[(+-]*inf|nan$|none\b|about \d|at (least|most) \d")
_HANG = "  "  # before further lines of a name, which look like the next one otherwise


def line_width(stream: TextIO | None = None) -> int:
    """Characters of a line: of the terminal, or as the variable COLUMNS says.

    Without either 100, or as many as there are on a stream, which is then a file or a pipe.
    """
    said = os.environ.get("COLUMNS", "").isdecimal()
    if stream is not None and not said and not _is_terminal(stream):
        return sys.maxsize
    return max(_LEAST_LINE, shutil.get_terminal_size((_LINE, 24)).columns)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def wrapped(line: str, indent: int = 4) -> list[str]:
    """Lines that fit, the further ones indented; an empty line stays one.

    Examples
    --------
    >>> wrapped("one two")
    ['one two']
    >>> [len(line) < 100 for line in wrapped("words " * 30)], wrapped("words " * 30)[1][:6]
    ([True, True], '    wo')
    """
    start = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line, line_width(), subsequent_indent=start + " " * indent, break_on_hyphens=False,
        break_long_words=False, drop_whitespace=True, replace_whitespace=False,
    ) or [""]  # fmt: skip


def fitted_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    text: Collection[int],
    room: int | None = None,
    *,
    first: int | None = None,
    rule: bool = False,
) -> list[str]:
    r"""Lines of a table that fit: text wraps, and columns without room come below the rest.

    `text` has the numbers of the columns of text, which are left-aligned; the others are numbers.
    The first column is repeated where columns come below. `room` is the width of a line, by default
    that of the terminal, `first` that of a line of the first column at most; `rule` asks for a rule
    below the header.

    Examples
    --------
    >>> print(*fitted_table(["name", "width"], [["age", "0.5"], ["income", "12"]], [0]), sep="\n")
    name    width
    age       0.5
    income     12
    """
    room = line_width() if room is None else room
    natural = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    natural[0] = min(natural[0], first or natural[0])
    wide = _narrowed(natural, text, room, max(_LEAST_CELL, room // _FIFTH))
    if _together(wide) > room:  # text in full, and some columns below
        wide = [min(w, 2 * room // _FIFTH) if j in text else w for j, w in enumerate(natural)]
    lines: list[str] = []
    for block in _blocks(wide, room):
        inside = _narrowed([wide[j] for j in block], _places(text, block), room, _LEAST_CELL)
        lines += [""] if lines else []
        lines += _lines(header, block, inside, text)
        lines += ["-" * _together(inside)] if rule else []
        for row in rows:
            lines += _lines(row, block, inside, text)
    return lines


def _narrowed(wide: Sequence[int], text: Collection[int], room: int, least: int) -> list[int]:
    """Widths of columns, those of text less until they fit, the widest first."""
    found = list(wide)
    while _together(found) > room:
        longest = max(text, key=lambda j: found[j], default=None)
        if longest is None or found[longest] <= least:
            break
        found[longest] -= 1
    return found


def _places(text: Collection[int], block: Sequence[int]) -> list[int]:
    """Where the columns of text are among those of a block."""
    return [place for place, j in enumerate(block) if j in text]


def _lines(
    row: Sequence[str], block: Sequence[int], wide: Sequence[int], text: Collection[int]
) -> list[str]:
    """One row of some columns."""
    parts = [
        textwrap.wrap(row[j], max(room, 1), subsequent_indent="" if j else _HANG) or [""]
        if j in text
        else [row[j]]
        for j, room in zip(block, wide, strict=True)
    ]
    lines = []
    for i in range(max(map(len, parts))):
        cells = [part[i] if i < len(part) else "" for part in parts]
        line = [
            cell.ljust(w) if j in text else cell.rjust(w)
            for j, cell, w in zip(block, cells, wide, strict=True)
        ]
        lines.append(_GAP.join(line).rstrip())
    return lines


def _together(wide: Sequence[int]) -> int:
    return sum(wide) + len(_GAP) * (len(wide) - 1)


def _blocks(wide: Sequence[int], room: int) -> list[list[int]]:
    """Numbers of the columns that fit beside the first, block by block."""
    blocks = [[0]]
    for j in range(1, len(wide)):
        if len(blocks[-1]) > 1 and _together([wide[i] for i in (*blocks[-1], j)]) > room:
            blocks.append([0])
        blocks[-1].append(j)
    return blocks


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as HTML, escaped; the first cell of a row is its header.

    Columns of text are aligned left; those of numbers, intervals and dates as the page has it.
    """
    left = [
        ' style="text-align: left"' if any(map(_is_text, cells)) or not any(cells) else ""
        for cells in zip(*(row[: len(header)] for row in rows), strict=True)
    ] or [""] * len(header)
    head = "".join(
        f'<th scope="col"{how if j else ""}>{html.escape(cell)}</th>' if cell else "<td></td>"
        for j, (cell, how) in enumerate(zip(header, left, strict=True))
    )
    lines = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(
            f"<td{how}>{html.escape(cell)}</td>" for cell, how in zip(cells, left[1:], strict=True)
        )
        + "</tr>"
        for first, *cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _is_text(cell: str) -> bool:
    """True if a cell is neither empty nor a number, an interval or a date."""
    return bool(cell) and _NUMBER.match(cell) is None


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
    """Yield the given function; without one a bar, where somebody sees it, until the work ends."""
    if progress is not None and not isinstance(progress, bool):
        if not callable(progress):
            raise RequestError(
                "progress must be a function of (text, done, total), True for a bar or False for "
                f"none, got {short(progress)}"
            )
        yield progress
        return
    notebook = _notebook()
    if progress is False or (progress is None and notebook is None and not _terminal()):
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
        self._step = ("", self._start)  # and when it began
        self._shown = False

    def __call__(self, text: str, done: int, total: int | None) -> None:
        """So much of a step is done."""
        now = time.monotonic()
        if text != self._step[0]:
            self._step = (text, now)
        if now - self._start >= PATIENCE and now - self._drawn >= _STEP:
            self._drawn, self._shown = now, True
            with suppress(Exception):
                share = done / total if total else None
                self._draw(text, share, time_left(now - self._step[1], share))

    def clear(self) -> None:
        """Take it away."""
        if self._shown:
            self._shown = False
            with suppress(Exception):
                self._draw("", None)

    def _draw(self, text: str, share: float | None, left: str = "") -> None:
        if self._display is None:
            percent = "" if share is None else f" {share:.0%}"
            sys.stderr.write(f"\r\033[K{text}{percent}{left}")
            sys.stderr.flush()
            return
        value = "" if share is None else f' value="{share:.3f}"'
        bar = f"{html.escape(text)} <progress{value}></progress>{left}" if text else ""
        shown = self._display.HTML(bar)
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)


def time_left(seconds: float, share: float | None) -> str:
    """Remaining time of a step, extrapolated from the share done; empty where that is rough."""
    if share is None or not 0.05 <= share < 1 or seconds < PATIENCE:
        return ""
    left = seconds * (1 - share) / share
    return f", about {left:.0f} s left" if left < 100 else f", about {left / 60:.0f} min left"
