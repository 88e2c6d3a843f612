"""Run the vignettes when the site is built, and show what each block prints and draws."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LONGEST = 900  # seconds for one vignette

# What runs in a process of its own: blocks on standard input, their output on standard output.
RUNNER = """
import contextlib, io, json, sys, warnings
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot
shown, scope = [], {}
for block in json.load(sys.stdin):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "vignette", "exec"), scope)
    figures = []
    for number in pyplot.get_fignums():
        drawn = io.StringIO()
        pyplot.figure(number).savefig(drawn, format="svg", bbox_inches="tight")
        figures.append(drawn.getvalue())
    pyplot.close("all")
    shown.append([printed.getvalue(), figures])
json.dump(shown, sys.stdout)
"""


def run(blocks, folder):
    """Pairs of printed text and figures, SVG, one pair per block; kept until a block changes."""
    kept = folder / (hashlib.sha256("".join(blocks).encode()).hexdigest()[:16] + ".json")
    if not kept.exists():
        work = folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", RUNNER],
            input=json.dumps(blocks), capture_output=True, text=True, timeout=LONGEST, cwd=work,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"a block of the vignette failed:\n{done.stderr}")
        kept.write_text(done.stdout, encoding="utf-8")
    return json.loads(kept.read_text("utf-8"))


def render(app, page, source):
    """Put the output of every block of a vignette below it."""
    if not page.startswith("vignettes/") or not app.config.run_vignettes:
        return
    name = page.rpartition("/")[2]
    folder = Path(app.doctreedir).parent / "vignettes"
    shown = iter(run(FENCE.findall(source[0]), folder))
    pictures = ROOT / "vignettes" / "figures"  # made here, not kept in the repository

    def with_output(match):
        printed, figures = next(shown)
        text = match[0]
        if printed.strip():
            fence = "```" if "```" not in printed else "~~~~~~"
            text += f"\n\n{fence}text\n{printed.rstrip()}\n{fence}\n"
        for i, figure in enumerate(figures):
            pictures.mkdir(exist_ok=True)
            file = pictures / f"{name}-{match.start()}-{i}.svg"
            file.write_text(figure, encoding="utf-8")
            text += f"\n\n![Figure drawn by the code above](figures/{file.name})\n"
        return text

    source[0] = FENCE.sub(with_output, source[0])


def setup(app):
    """Register the step, which `-D run_vignettes=0` leaves out."""
    app.add_config_value("run_vignettes", True, "env", [bool, str])
    app.connect("source-read", render)
    return {"parallel_read_safe": True}
