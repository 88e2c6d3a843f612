"""The figures that vignettes/from-the-paper.md quotes: the whole vignette, many times.

Run `python tests/benchmarks/vignettes/from_the_paper.py [runs, 40]`.
"""

import contextlib
import io
import os
import sys
import tempfile

import numpy as np
import pandas as pd
from defined import names_of


def run():
    """One run of all code blocks, and the numbers of it."""
    import matplotlib.pyplot as plt

    with contextlib.redirect_stdout(io.StringIO()):
        scope = names_of("from-the-paper")
    plt.close("all")
    noise = np.abs(scope["b"] - scope["mean"])
    found = {("noise", "mean"): noise.mean(), ("noise", "largest"): noise.max()}
    for name, error in scope["errors"].items():
        found |= {(name, "mean"): error.mean(), (name, "largest"): error.max()}
    for name in ("clipped", "printed"):
        found["400 rows", name] = np.mean(scope[name])
    for draw, apart in scope["apart"].items():
        found["rows from weights", draw] = apart.max()
    for name, value in scope["condition"].items():
        found["condition number", name] = value
        for m, error in zip(scope["candidates"], scope["lost"][name], strict=True):
            found[f"error, {name}", m] = error
    for name, one in scope["made"].items():
        found[name, "seen"] = scope["error"](one)
        found[name, "certified"] = one.accuracy().delta
    found["correlation", "rows"] = scope["rows"].corr().iloc[0, 1]
    return found


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "agg"
    os.chdir(tempfile.mkdtemp())  # figures
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    frame = pd.DataFrame([run() for _ in range(runs)])
    print(frame.describe().T[["mean", "std", "min", "50%", "max"]].round(5).to_string())
