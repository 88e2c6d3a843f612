"""The figures that vignettes/randhie.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/randhie.py [releases]

For each budget: in how many releases an interval left out zero, and in how many the interval for
the table held what least squares and the eigenvectors of the table itself give.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from defined import names_of
from statsmodels.datasets import randhie

import dpstats as dps

SIMPLE = "mdvis ~ lncoins"


def prepared():
    table = randhie.load_pandas().data
    told = [table["hlthg"] == 1, table["hlthf"] == 1, table["hlthp"] == 1]
    table["health"] = np.select(told, ["good", "fair", "poor"], "excellent")
    return table


def truth(table, schema, analyses):
    """Every parameter of the two analyses on the table, numbers clamped to their bounds."""
    clamped = table.copy()
    for name in ("mdvis", "lncoins", "physlm", "disea"):
        clamped[name] = clamped[name].clip(schema[name].low, schema[name].high)
    levels = pd.Categorical(clamped["health"], ["excellent", "good", "fair", "poor"])
    fit = smf.ols(analyses["visits"].formula, clamped.assign(health=levels)).fit()
    names = {"idp": "idp[T.True]"}
    coefficients = {names.get(name, name): value for name, value in fit.params.items()}
    columns = analyses["shape"].columns
    unit = np.column_stack([2 * clamped[c] / (schema[c].high - schema[c].low) - 1 for c in columns])
    values, vectors = np.linalg.eigh(np.cov(unit.T))
    return coefficients, values[::-1], vectors[:, ::-1].T, clamped


def clusters(table, formula):
    """Standard errors clustered by person, and robust ones, over the plain ones."""
    source = pd.read_csv(Path(randhie.__file__).parent / "src" / "randhie.csv")
    if not np.array_equal(source["mdvis"], table["mdvis"]):
        raise SystemExit("the original file has other rows")
    rows = table.assign(mdvis=table["mdvis"].clip(upper=26))
    plain = smf.ols(formula, rows).fit().bse
    grouped = {"cov_type": "cluster", "cov_kwds": {"groups": source["zper"]}}
    ratios = {
        "by person": smf.ols(formula, rows).fit(**grouped).bse / plain,
        "robust": smf.ols(formula, rows).fit(cov_type="HC1").bse / plain,
    }
    years = source.groupby("zper").size()
    print(f"{len(years)} people, at most {years.max()} rows each")
    print(pd.DataFrame(ratios).round(2).to_string())


def main(releases):
    scope = names_of("randhie", before="dps.release(")
    schema, analyses, budgets = scope["schema"], scope["analyses"], scope["budgets"]
    table = prepared()
    coefficients, values, vectors, clamped = truth(table, schema, analyses)
    clusters(table, analyses["visits"].formula)
    slope = smf.ols(SIMPLE, clamped).fit().params["lncoins"]
    for budget in budgets.values():
        plan = dps.plan(schema, analyses, budget=budget)
        rows, shapes, simple = [], [], []
        for _ in range(releases):
            release = dps.release(plan, table, m=2_000)
            visits = release.infer("visits")
            for term, (low, high), (least, most) in zip(
                visits.terms, visits.conf_int(), visits.conf_int(target="table"), strict=True
            ):
                rows.append(
                    (term, low > 0 or high < 0, least <= coefficients[term] <= most,
                     low <= coefficients[term] <= high, high - low)
                )  # fmt: skip
            shapes.append(shape_of(release.infer("shape"), values, vectors))
            simple.append(simple_of(release.infer(dps.OLS(SIMPLE)), slope))
        print(f"\n{budget}, {releases} releases")
        frame = pd.DataFrame(rows, columns=["term", "excludes 0", "covers", "population", "width"])
        by = frame.groupby("term", sort=False)
        counts = by[["excludes 0", "covers", "population"]].sum()
        print(counts.assign(width=by["width"].median().round(3)).to_string())
        print("all coefficients:", frame["covers"].mean().round(3))
        print(pd.DataFrame(shapes).agg(["sum", "median"]).T.to_string())
        print(f"{SIMPLE}, slope {slope:.4f}")
        print(pd.DataFrame(simple).agg(["sum", "median"]).T.to_string())


def shape_of(shape, values, vectors):
    k = len(values)
    ends = shape.conf_int(target="table")
    held = (ends[:k, 0] <= values) & (values <= ends[:k, 1])
    components = shape.components_
    signed = vectors * np.sign(np.sum(components * vectors, axis=1))[:, None]
    loadings = ends[2 * k :].reshape(k, k, 2)
    inside = (loadings[..., 0] <= signed) & (signed <= loadings[..., 1])
    angles = np.degrees(np.arccos(np.clip(np.abs(np.sum(components * vectors, axis=1)), 0, 1)))
    bounds = shape.angles(target="table")["vector"].to_numpy()
    certified = shape.angles(target="table", method="certified")["vector"].to_numpy()
    found = {}
    for i in range(k):
        found |= {
            f"PC{i + 1} eigenvalue covered": held[i],
            f"PC{i + 1} loadings covered, of {k}": inside[i].sum(),
            f"PC{i + 1} angle": angles[i],
            f"PC{i + 1} angle bound": bounds[i],
            f"PC{i + 1} angle within bound": angles[i] <= bounds[i],
            f"PC{i + 1} angle bound below 90": bounds[i] < 90,
            f"PC{i + 1} certified below 90": certified[i] < 90,
        }
    return found


def simple_of(result, slope):
    found = {}
    for method in ("noise_aware", "certified"):
        for target in ("population", "table"):
            low, high = result.conf_int(method=method, target=target)[1]
            found |= {
                f"{method} {target} covered": low <= slope <= high,
                f"{method} {target} excludes 0": high < 0 or low > 0,
                f"{method} {target} width": high - low,
            }
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
