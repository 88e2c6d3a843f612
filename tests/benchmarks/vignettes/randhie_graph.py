"""The figures that vignettes/graphical-model.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/randhie_graph.py [releases]

The code of the vignette runs first, and its functions are used. Then, at each epsilon: how often
each pair was an edge, and what certified verdicts, trees and sparse pictures said; and how often
each method found an edge in rows of independent columns.
"""

import contextlib
import io
import sys
import tempfile
from collections import Counter

import numpy as np
import pandas as pd
from defined import names_of
from scipy import stats
from statsmodels.stats.multitest import multipletests

import dpstats as dps
from dpstats.analyses.graphs.tree import spanning_tree


def vignette():
    """All names that the vignette defines."""
    import matplotlib as mpl

    mpl.use("agg")
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        return names_of("graphical-model")


def beyond(limits, size):
    """Which intervals (d, 2) are beyond +- size."""
    return (limits[:, 0] > size) | (limits[:, 1] < -size)


def of_table(scope, epsilon, runs):
    """Print what releases of the table say."""
    exact = scope["exact"].to_numpy()
    terms = list(scope["exact"].index)
    pairs = np.array(np.triu_indices(len(scope["columns"]), 1))
    correlation = scope["cleaned"](scope["table"]).corr().to_numpy()[pairs[0], pairs[1]]
    inside = spanning_tree(np.abs(correlation), pairs, len(scope["columns"]))
    edges, strong, sure = Counter(), Counter(), Counter()
    rows, held = [], Counter()
    for _ in range(runs):
        release = dps.release(scope["plans"][epsilon], scope["table"], m=4_000)
        result, tree = release.infer("graph"), release.infer(scope["tree"])
        methods = scope["compared"](release)
        edges.update(methods.index[methods["noise-aware"]])
        jointly = result.conf_int(simultaneous=True)
        strong.update(np.array(terms)[beyond(jointly, 0.1)])
        own = result.conf_int(simultaneous=True, target="table")
        held["simultaneous, table"] += np.all((own[:, 0] <= exact) & (exact <= own[:, 1]))
        limits = result.conf_int(method="certified", target="table")
        held["certified, table"] += np.all((limits[:, 0] <= exact) & (exact <= limits[:, 1]))
        found = {f"edges, {name}": methods[name].sum() for name in methods}
        small = np.abs(exact) < 0.02
        found |= {f"below .02, {name}": methods[name][small].sum() for name in methods}
        found["beyond .1 jointly"] = beyond(jointly, 0.1).sum()
        found["width"] = float(np.median(np.diff(result.conf_int())))
        for target in ("table", "population"):
            verdicts = Counter(result.verdicts(target=target))
            found |= {f"{one}, {target}": verdicts[one] for one in ("present", "absent")}
        verdicts = np.array(tree.verdicts())
        found |= {f"tree, {one}": np.sum(verdicts == one) for one in ("sure", "impossible")}
        sure.update(np.array(terms)[verdicts == "sure"])
        wrong = np.any(verdicts[inside] == "impossible") or np.any(verdicts[~inside] == "sure")
        held["tree without a wrong verdict"] += not wrong
        picture = release.infer(dps.GraphicalModel(scope["columns"], estimator="glasso"))
        kept = picture.pairs()["estimate"].to_numpy() != 0
        found |= {"glasso": kept.sum(), "glasso, below .02": kept[small].sum()}
        rows.append(found)
    print(f"\nepsilon {epsilon}, {runs} releases of the table: median, least, most")
    print(pd.DataFrame(rows).agg(["median", "min", "max"]).T.round(3).to_string())
    print("held in", dict(held))
    counts = pd.DataFrame({"exact": exact, "edge": [edges[t] for t in terms]}, terms)
    counts["beyond .1"] = [strong[t] for t in terms]
    counts["sure in the tree"] = [sure[t] for t in terms]
    order = counts["exact"].abs().sort_values(ascending=False).index
    print(counts.loc[order].round(3).to_string(), flush=True)


def of_nothing(scope, epsilon, runs):
    """Print how often each method finds an edge in independent columns."""
    rng, rows = np.random.default_rng(2), []
    for _ in range(runs):
        release = dps.release(scope["plans"][epsilon], scope["invent"](scope["n"], rng), m=2_000)
        found = dict(scope["compared"](release).sum())
        statistics = release.infer("graph").intervals.statistics()
        pvalues = 2 * stats.norm.sf(np.abs(statistics))
        found["normal tail"] = multipletests(pvalues, 0.05, "holm")[0].sum()
        rows.append(found)
    counts = pd.DataFrame(rows)
    print(f"\nepsilon {epsilon}, {runs} releases of rows without an edge")
    print(
        pd.DataFrame({"any edge": (counts > 0).mean(), "edges": counts.mean()}).round(3), flush=True
    )


def main(runs):
    scope = vignette()
    numbers = scope["columns"][2:]
    outside = scope["table"][numbers].ne(scope["cleaned"](scope["table"])[numbers]).mean()
    print("share clamped", outside.round(4).to_dict(), flush=True)
    for epsilon in (1, 3, 10):
        of_table(scope, epsilon, runs)
    for epsilon in (1, 3, 10):
        of_nothing(scope, epsilon, 3 * runs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
