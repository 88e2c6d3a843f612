"""The names that a vignette defines."""

import re
from pathlib import Path

VIGNETTES = Path(__file__).parents[3] / "vignettes"


def names_of(vignette, before=None, until=None):
    """Run its code: all, the blocks before one with a text, or until a name is defined."""
    scope = {}
    text = (VIGNETTES / f"{vignette}.md").read_text("utf-8")
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        if before is not None and before in code:
            return scope
        exec(code, scope)
        if until in scope:
            return scope
    if before or until:
        raise SystemExit(f"the vignette {vignette} lacks {before or until!r}")
    return scope
