"""The figures that vignettes/graphical-model.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/randhie_graph.py [releases]

Of the vignette's table, and of rows of independent columns.
"""

from collections import Counter

import numpy as np
from defined import names_of, numbers, show
from scipy import stats
from statsmodels.stats.multitest import multipletests

import dpstats as dps
from dpstats.analyses.graphs.tree import spanning_tree


def of_table(scope, release, inside):
    """What a release of the table says; `inside` are the pairs of the table's own tree."""
    exact = scope["exact"].to_numpy()
    small = np.abs(exact) < 0.02
    result, tree = release.infer("graph"), np.array(release.infer(scope["tree"]).verdicts())
    picture = release.infer(dps.GraphicalModel(scope["columns"], estimator="glasso"))
    kept = picture.pairs()["estimate"].to_numpy() != 0
    methods = scope["compared"](release).assign(glasso=kept)
    found = {("edges", name): sum(methods[name]) for name in methods}
    found |= {("edges below .02", name): sum(methods[name][small]) for name in methods}
    low, high = result.conf_int(simultaneous=True).T
    found["edges", "beyond .1 jointly"] = np.sum((low > 0.1) | (high < -0.1))
    for target in ("table", "population"):
        verdicts = Counter(result.verdicts(target=target))
        found |= {(target, one): verdicts[one] for one in ("present", "absent")}
    found |= {("tree", one): np.sum(tree == one) for one in ("sure", "impossible")}
    wrong = np.any(tree[inside] == "impossible") or np.any(tree[~inside] == "sure")
    found["tree", "without a wrong verdict"] = not wrong
    return found | {("edge", term): one for term, one in methods["noise-aware"].items()}


def of_nothing(scope, release):
    found = dict(scope["compared"](release).sum())
    statistics = release.infer("graph").intervals.statistics()
    pvalues = 2 * stats.norm.sf(np.abs(statistics))
    found["normal tail"] = multipletests(pvalues, 0.05, "holm")[0].sum()
    return {("any edge", name): count > 0 for name, count in found.items()} | {
        ("edges", name): count for name, count in found.items()
    }


(releases,) = numbers(40)
scope, rng = names_of("graphical-model"), np.random.default_rng(2)
table, columns = scope["table"], scope["columns"]
clamped = scope["cleaned"](table)
print("share clamped", table[columns[2:]].ne(clamped[columns[2:]]).mean().round(4).to_dict())
pairs = np.array(np.triu_indices(len(columns), 1))
inside = spanning_tree(np.abs(clamped.corr().to_numpy()[tuple(pairs)]), pairs, len(columns))
for epsilon, plan in scope["plans"].items():
    every = (dps.release(plan, table, m=4_000) for _ in range(releases))
    show(f"the table, epsilon {epsilon}", [of_table(scope, one, inside) for one in every])
for epsilon, plan in scope["plans"].items():
    invented = (scope["invent"](scope["n"], rng) for _ in range(3 * releases))
    found = [of_nothing(scope, dps.release(plan, rows, m=2_000)) for rows in invented]
    show(f"rows without an edge, epsilon {epsilon}", found)
