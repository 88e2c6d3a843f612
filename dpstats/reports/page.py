"""The HTML of a report: a single page that loads nothing, with every text escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from dpstats.display import html_table


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes
    ----------
    key : str
        Its anchor, a word.
    title : str
        Plain text.
    parts : tuple of str
        HTML.
    """

    key: str
    title: str
    parts: tuple[str, ...]

    def html(self) -> str:
        """The section with its heading."""
        inner = "\n".join(self.parts)
        heading = f'<h2 id="{self.key}-title">{html.escape(self.title)}</h2>'
        return (
            f'<section id="{self.key}" aria-labelledby="{self.key}-title">\n{heading}\n{inner}\n'
            "</section>"
        )


def page(title: str, lead: Iterable[str], sections: Sequence[Section]) -> str:
    """The whole document.

    A content policy forbids scripts and everything from elsewhere, whatever the texts hold.

    Parameters
    ----------
    title : str
    lead : iterable of HTML
        What stands below the title.
    sections : sequence of Section
        Listed under the lead, with links.
    """
    links = "".join(
        f'<li><a href="#{one.key}">{html.escape(one.title)}</a></li>' for one in sections
    )
    body = "\n".join(section.html() for section in sections)
    css = resources.files("dpstats.reports").joinpath("page.css").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title)}</title>
<style>
{css}</style>
</head>
<body>
<header>
<h1>{html.escape(title)}</h1>
{"".join(lead)}
<nav aria-label="Contents"><ul>{links}</ul></nav>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text, its lines kept."""
    lines = "<br>".join(html.escape(line) for line in text.splitlines())
    return f'<p class="{kind}">{lines}</p>' if kind else f"<p>{lines}</p>"


def bullets(texts: Iterable[str], *, numbered: bool = False) -> str:
    """A list of plain texts."""
    tag = "ol" if numbered else "ul"
    return f"<{tag}>{''.join(f'<li>{html.escape(text)}</li>' for text in texts)}</{tag}>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names with their values."""
    inner = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in pairs
    )
    return f"<dl>{inner}</dl>"


def table(label: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of plain texts that scrolls by itself where the page is narrow."""
    return scrolling(label, html_table(header, rows))


def prose(table: str, *, last: bool = False) -> str:
    """A table whose cells are sentences, which wrap; or only those of its last column."""
    return table.replace('class="scroll"', f'class="scroll {"last" if last else "prose"}"', 1)


def scrolling(label: str, inner: str) -> str:
    """HTML in a box that scrolls, with the mouse or the arrow keys."""
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{html.escape(label)}">'
        f"{inner}</div>"
    )


def heading(text: str, level: int = 3) -> str:
    """A heading below that of a section."""
    return f"<h{level}>{html.escape(text)}</h{level}>"
