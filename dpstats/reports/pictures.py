"""Plots as SVG inside a page: text stays text, colours follow the page, ids are its own."""

from __future__ import annotations

import html
import importlib.util
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 5.2  # inches
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text as text, without a font
    "svg.hashsalt": "dpstats",  # the same ids every time
    "font.family": ["DejaVu Sans"],
    "font.size": 11.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Colours that the plots use, and those of the page, which differ in the dark.
_COLOURS = {
    "#000000": "--ink", "#333333": "--ink", "#666666": "--quiet", "#808080": "--mid",
    "#999999": "--mid", "#b3b3b3": "--rule", "#cccccc": "--rule", "#d9d9d9": "--rule",
    "#1f77b4": "--blue", "#ff7f0e": "--orange", "#2ca02c": "--green", "#d62728": "--red",
    "#9467bd": "--purple",
}  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A plot to be drawn.

    Attributes
    ----------
    title, description : str
        Its name, and what it shows, for those who do not see it.
    draw : callable
        Draws on the Axes that it gets.
    height : float
        In inches; the width is that of all pictures.
    """

    title: str
    description: str
    draw: Callable[[Axes], object]
    height: float = 3.4

    def html(self, key: str) -> str:
        """A figure; `key` makes its ids different from those of other pictures."""
        caption = f"<figcaption>{html.escape(self.description)}</figcaption>"
        return f"<figure>{self.svg(key)}{caption}</figure>"

    def svg(self, key: str) -> str:
        """The drawing with a title and a description."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        buffer = io.StringIO()
        with rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fonts: the page has its own
            from matplotlib import rcdefaults, rcParams

            rcdefaults()  # a report does not depend on anyone's settings
            rcParams.update(_SETTINGS)
            figure = Figure(figsize=(WIDTH, self.height), layout="constrained")
            self.draw(figure.subplots())
            figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        named = f'<title id="{key}-title">{html.escape(self.title)}</title>'
        named += f'<desc id="{key}-desc">{html.escape(self.description)}</desc>'
        return _inlined(buffer.getvalue(), key, named)


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def _inlined(svg: str, key: str, named: str) -> str:
    """What matplotlib writes, as a part of a page."""
    text = svg[svg.index("<svg") :]
    for cut in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r"<!--.*?-->"):
        text = re.sub(cut, "", text, flags=re.DOTALL)
    text = re.sub(r"\s*\n\s*", " ", text).replace("xlink:href", "href")
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    start = (
        f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{key}-title" '
        f'aria-describedby="{key}-desc">{named}'
    )
    text = start + text[text.index(">") + 1 :]
    text = re.sub(r"font: (?:[\w ]*)?(\d[\d.]*px)[^;\"]*", r"font-size: \1", text)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    for colour, variable in _COLOURS.items():
        text = text.replace(colour, f"var({variable})")
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))

    def renamed(found: re.Match[str]) -> str:
        own = found[1].startswith(f"{key}-")
        return found[0] if own else f' id="{key}-{found[1]}"' if found[1] in used else ""

    text = re.sub(r' id="([^"]*)"', renamed, text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", text)
