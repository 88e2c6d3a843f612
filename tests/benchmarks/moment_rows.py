"""Misfit and cost of synthetic rows where numbers have moments.

    python tests/benchmarks/moment_rows.py [--draws 5] [--only PLAN ..]

How far the means of the rows are from the noisy answers and from the true ones, in standard
deviations of the noise: medians over draws, whose noise has seeds, so that versions of the package
can be compared. CPU seconds are without imports.
"""

import os
from functools import partial

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd
import pyarrow as pa
from measuring import markdown, noise_of, parsed, timed

import dpstats as dps
from dpstats.privacy.noise import _noise_from
from dpstats.rows.entropy import targets

N = 20_000


def numbers(p, n=N):
    """p columns, and rows with four factors."""
    names = [f"x{i}" for i in range(p)]
    schema = dps.Schema([dps.Number(name, -1, 1, points=201, missing=0) for name in names])
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((4, p)) * [[0.3], [0.2], [0.15], [0.1]]
    rows = rng.standard_normal((n, 4)) @ loadings + 0.15 * rng.standard_normal((n, p))
    return schema, pd.DataFrame(np.round(np.clip(rows, -1, 1), 2), columns=names)


def components():
    schema, rows = numbers(20)
    return dps.plan(schema, {"pca": dps.PCA(schema.names)}, budget=dps.PureDP(5), n=N), rows


def mixed(p, **asked):
    """The covariance of p numbers and more, and rows with two categories that they depend on."""
    rng = np.random.default_rng(0)
    group, edu = rng.choice(3, N, p=[0.6, 0.3, 0.1]), rng.choice(4, N)
    factor = rng.standard_normal(N) + 0.5 * group - 0.4 * edu
    rows = {"group": group, "edu": edu}
    columns = [dps.Category("group", range(3)), dps.Category("edu", range(4))]
    for j in range(p):
        rows[f"x{j}"] = np.clip(0.25 * factor + 0.2 * rng.standard_normal(N), -1, 1).round(2)
        edges = [-0.5, -0.2, 0, 0.2, 0.5]
        columns.append(dps.Number(f"x{j}", -1, 1, points=201, missing=0, edges=edges))
    asked["covariance"] = dps.Covariance(list(rows)[2:])
    plan = dps.plan(dps.Schema(columns), asked, budget=dps.PureDP(3), n=N)
    return plan, pd.DataFrame(rows)


def subgroups():
    """Moments of all rows, of groups and of a subgroup."""
    numbers = [f"x{j}" for j in range(4)]
    asked = {f"{x} by group": dps.GroupMeans(x, "group") for x in numbers}
    return mixed(4, **asked, subgroup=dps.Mean(numbers, given="edu == 0"))


def tables(p):
    """All two-way tables too, of numbers in bins."""
    return mixed(p, pairs=dps.Marginals(["group", "edu", *(f"x{j}" for j in range(p))]))


PLANS = {
    "components": components,
    "subgroups": subgroups,
    "15 tables": partial(tables, 4),
    "28 tables": partial(tables, 6),
}


def score(plan, rows, draw):
    with _noise_from(noise_of(plan.budget)(draw)):
        measured = dps.measure(plan, rows)
    synthetic, seconds = timed(lambda: dps.synthesize(measured, rng=draw))
    family, answers, deviations = targets(measured)
    copies = synthetic.counts / synthetic.counts.sum()
    found = family.evaluate(synthetic.candidates).average(copies)
    codes = {column.name: column.encode(pa.array(rows[column.name])) for column in measured.columns}
    truth = family.evaluate(codes).average(np.full(len(rows), 1 / len(rows)))
    off = np.abs([(found - of) / deviations for of in (answers, truth)])
    return [seconds, *np.column_stack([off.max(axis=1), np.sqrt((off**2).mean(axis=1))]).ravel()]


if __name__ == "__main__":
    given = parsed(__doc__, draws=5, only=[str])
    lines = []
    for name in given.only or PLANS:
        plan, rows = PLANS[name]()
        figures = np.median([score(plan, rows, draw) for draw in range(given.draws)], axis=0)
        lines.append([name, *figures])
    print(markdown(["plan", "CPU s", "misfit: largest", "rms", "error: largest", "rms"], lines))
