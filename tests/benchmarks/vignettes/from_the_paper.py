"""The figures that vignettes/from-the-paper.md quotes: many releases with the real noise.

python tests/benchmarks/vignettes/from_the_paper.py [runs]
"""

import numpy as np
from defined import names_of, numbers, show
from matplotlib import pyplot as plt


def run():
    scope = names_of("from-the-paper")
    plt.close("all")
    errors = {"noise": np.abs(scope["b"] - scope["mean"])} | scope["errors"]
    found = {(name, "mean"): error.mean() for name, error in errors.items()}
    found |= {(name, "largest"): error.max() for name, error in errors.items()}
    found |= {("400 rows", name): np.mean(scope[name]) for name in ("clipped", "printed")}
    for draw, distances in scope["apart"].items():
        found["rows from weights", draw] = distances.max()
    for name, value in scope["condition"].items():
        found["condition number", name] = value
        for m, error in zip(scope["candidates"], scope["lost"][name], strict=True):
            found[f"error, {name}", f"{m}"] = error
    for name, one in scope["made"].items():
        found[name, "seen"] = scope["error"](one)
        found[name, "certified"] = one.accuracy().delta
    found["correlation", "rows"] = scope["rows"].corr().iloc[0, 1]
    return found


(runs,) = numbers(40)
show("the vignette", [run() for _ in range(runs)])
