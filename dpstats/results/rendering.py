"""How numbers and tables of results print: one rule for text and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

LEAST_SHOWN = 1e-6  # the numeric accuracy of p-values
_WIDEST = 48  # characters of a name in a table
_MOST_DIGITS = 15


def significant(value: float, scale: float = np.nan) -> str:
    """A number to three digits of its `scale`, such as its standard error; blank if nan.

    So an estimate shows what its error leaves of it, in any unit. Four digits without a scale.

    Examples
    --------
    >>> significant(0.0000004857), significant(1987.312, 0.213), significant(1.5, np.inf)
    ('4.857e-07', '1987.312', '1.5')
    """
    if np.isnan(value):
        return ""
    digits = 4
    if value != 0 and np.isfinite(value) and 0 < scale < np.inf:
        apart = np.floor(np.log10(abs(value))) - np.floor(np.log10(scale))
        digits = int(np.clip(apart + 3, 3, _MOST_DIGITS))
    return f"{value + 0.0:.{digits}g}"  # no -0


def share(value: float) -> str:
    """A percentage, or blank if nan."""
    return "" if np.isnan(value) else f"{value:.0%}"


def shown_pvalue(pvalue: float) -> str:
    """``= 0.0123``, or ``< 1e-06`` where it is below the accuracy."""
    return f"= {pvalue:.4g}" if pvalue >= LEAST_SHOWN else f"< {LEAST_SHOWN:g}"


def table_of(shown: pd.DataFrame, alpha: float) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a frame of estimates, as `EstimateResult.to_frame` has it.

    With `certified_low` and `certified_high` beside; tests only where there are some.
    """
    level = f"{100 * (1 - alpha):g}%"
    tested = bool(shown["p_value"].notna().any())
    header = ["", "estimate", "std err", *(["t", "P>|t|"] if tested else []),
              f"{level} noise-aware", f"{level} certified", "privacy"]  # fmt: skip
    numbers = {name: shown[name].to_numpy(dtype=np.float64) for name in shown if name != "term"}
    rows = []
    for i, term in enumerate(shown["term"]):
        row = {str(name): float(column[i]) for name, column in numbers.items()}
        width = row["conf_high"] - row["conf_low"]
        scale = row["std_error"] if 0 < row["std_error"] < np.inf else width
        shorter = {name: significant(value, scale) for name, value in row.items()}
        rows.append([
            str(term), shorter["estimate"], shorter["std_error"],
            *([f"{row['statistic']:.2f}", f"{row['p_value']:.3f}"] if tested else []),
            f"[{shorter['conf_low']}, {shorter['conf_high']}]",
            f"[{shorter['certified_low']}, {shorter['certified_high']}]",
            share(row["privacy_share"]),
        ])  # fmt: skip
    return header, rows


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with a rule below the header; the first column is to the left."""
    cut = [[_shortened(row[0]), *row[1:]] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cut, strict=True)]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in (header, *cut)
    ]
    return [lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]]


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table as HTML, escaped."""
    head, *body = (
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
        for tag, line in (("th", header), *(("td", row) for row in rows))
    )
    lines = "".join(f"<tr>{line}</tr>" for line in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def as_html(title: str, before: Sequence[str], table: str = "", after: Sequence[str] = ()) -> str:
    """A title, lines, a table that is HTML already, and lines."""
    head, foot = ("<br>".join(html.escape(line) for line in lines) for lines in (before, after))
    return f"<h4>{html.escape(title)}</h4><p>{head}</p>{table}<p>{foot}</p>"


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."
