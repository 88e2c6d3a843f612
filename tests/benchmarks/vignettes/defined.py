"""What these scripts share: the names that a vignette defines, and figures of many releases."""

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import pandas as pd

VIGNETTES = Path(__file__).parents[3] / "vignettes"


def numbers(*usual):
    """Those of the command line, and the usual ones where they are missing."""
    given = [int(argument) for argument in sys.argv[1:]]
    return *given, *usual[len(given) :]


def names_of(vignette, before=None, until=None):
    """Run its code: all, the blocks before one with a text, or until a name is defined."""
    scope = {}
    text = (VIGNETTES / f"{vignette}.md").read_text("utf-8")
    mpl.use("agg")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
            if before is not None and before in code:
                return scope
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, scope)
            if until in scope:
                return scope
    if before or until:
        raise SystemExit(f"the vignette {vignette} lacks {before or until!r}")
    return scope


def show(title, releases):
    """Print the figures of releases, a dictionary for each; some may lack a figure."""
    figures = pd.DataFrame(releases).astype(float)
    print(f"\n{title}, {len(figures)} releases")
    summary = figures.agg(["count", "sum", "mean", "median", "min", "max"])
    print(summary.T.round(4).to_string(), flush=True)
