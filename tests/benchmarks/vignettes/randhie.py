"""The figures that vignettes/randhie.md quotes: many releases with the real noise.

python tests/benchmarks/vignettes/randhie.py [releases]
"""

from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from defined import names_of, numbers, show
from statsmodels.datasets import randhie

import dpstats as dps

SIMPLE = "mdvis ~ lncoins"


def components(table, schema, columns):
    """Eigenvalues and eigenvectors of the table, numbers clamped to their bounds at -1 and 1."""
    low, high = np.array([(schema[c].low, schema[c].high) for c in columns]).T
    unit = 2 * (table[columns].clip(low, high, axis=1) - low) / (high - low) - 1
    values, vectors = np.linalg.eigh(np.cov(unit.T))
    return values[::-1], vectors[:, ::-1].T


def clusters(table, formula):
    """Print standard errors clustered by person, and robust ones, over the plain ones."""
    source = pd.read_csv(Path(randhie.__file__).parent / "src" / "randhie.csv")
    if not np.array_equal(source["mdvis"], table["mdvis"]):
        raise SystemExit("the original file has other rows")
    model = smf.ols(formula, table.assign(mdvis=table["mdvis"].clip(upper=26)))
    by_person = model.fit(cov_type="cluster", cov_kwds={"groups": source["zper"]})
    ratios = {"by person": by_person.bse, "robust": model.fit(cov_type="HC1").bse}
    print(f"{source['zper'].nunique()} people")
    print(pd.DataFrame(ratios).div(model.fit().bse, axis=0).round(2).to_string())


def of_visits(result, exact):
    found = {}
    limits = zip(result.terms, result.conf_int(), result.conf_int(target="table"), strict=True)
    for term, (low, high), (least, most) in limits:
        found |= {f"{term} excludes 0": low > 0 or high < 0, f"{term} width": high - low,
                  f"{term} covered": least <= exact[term] <= most}  # fmt: skip
    return found


def of_shape(result, values, vectors):
    k = len(values)
    low, high = result.conf_int(target="table")[:k].T
    cosines = np.abs(np.sum(result.components_ * vectors, axis=1))
    angles = np.degrees(np.arccos(np.minimum(cosines, 1)))
    bounds = result.angles(target="table")["vector"].to_numpy()
    found = {"eigenvalue covered": (low <= values) & (values <= high), "angle bound": bounds,
             "angle within bound": angles <= bounds}  # fmt: skip
    return {f"PC{i + 1} {what}": found[what][i] for what in found for i in range(k)}


def of_simple(result, slope):
    low, high = result.conf_int(method="certified", target="table")[1]
    return {"simple slope, certified": low <= slope <= high,
            "simple slope, certified, excludes 0": high < 0 or low > 0}  # fmt: skip


(releases,) = numbers(40)
scope = names_of("randhie", until="compared")
table, formula = scope["table"], scope["analyses"]["visits"].formula
exact = scope["exact_fit"](26).params
slope = scope["exact_fit"](26, SIMPLE).params["lncoins"]
shape = components(table, scope["schema"], list(scope["analyses"]["shape"].columns))
clusters(table, formula)
for name, plan in scope["plans"].items():
    found = []
    for _ in range(releases):
        release = dps.release(plan, table, m=2_000)
        found.append(of_visits(release.infer("visits"), exact)
                     | of_shape(release.infer("shape"), *shape)
                     | of_simple(release.infer(dps.OLS(SIMPLE)), slope))  # fmt: skip
    show(name, found)
