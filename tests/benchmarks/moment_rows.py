"""Misfit and cost of synthetic rows where numbers have moments.

    python tests/benchmarks/moment_rows.py measure FOLDER [--draws 3] [--only PLAN ...]
    python tests/benchmarks/moment_rows.py score FOLDER [--draws 3] [--only PLAN ...]

`measure` saves the measurements of every plan, so that versions of the package can be compared on
the same noise. `score` synthesises as many rows as were measured and prints CPU seconds, imports
not included, and how far the means of the rows are from the noisy answers and from the true ones,
in standard deviations of the noise: the largest of all functions, and the root mean square. Medians
over draws.
"""

import argparse
import os
import time
from functools import partial
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd
import pyarrow as pa

import dpstats as dps

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
    """PCA of 20 numbers."""
    schema, rows = numbers(20)
    return dps.plan(schema, {"pca": dps.PCA(schema.names)}, budget=dps.PureDP(5), n=N), rows


def mixed(asked, epsilon, numbers=4):
    """Two categories and numbers that depend on them."""
    rng = np.random.default_rng(0)
    group, edu = rng.choice(3, N, p=[0.6, 0.3, 0.1]), rng.choice(4, N)
    factor = rng.standard_normal(N) + 0.5 * group - 0.4 * edu
    rows = {"group": group, "edu": edu}
    columns = [dps.Category("group", range(3)), dps.Category("edu", range(4))]
    for j in range(numbers):
        rows[f"x{j}"] = np.clip(0.25 * factor + 0.2 * rng.standard_normal(N), -1, 1).round(2)
        edges = [-0.5, -0.2, 0, 0.2, 0.5]
        columns.append(dps.Number(f"x{j}", -1, 1, points=201, missing=0, edges=edges))
    plan = dps.plan(dps.Schema(columns), asked, budget=dps.PureDP(epsilon), n=N)
    return plan, pd.DataFrame(rows)


def subgroups():
    """Moments of all rows, of groups and of a subgroup."""
    numbers = [f"x{j}" for j in range(4)]
    asked = {f"{x} by group": dps.GroupMeans(x, "group") for x in numbers}
    asked["in a subgroup"] = dps.Mean(numbers, given="edu == 0")
    return mixed(asked | {"covariance": dps.Covariance(numbers)}, 3)


def tables(columns=6):
    """All two-way tables, of numbers in bins too, and second moments of the numbers."""
    numbers = [f"x{j}" for j in range(columns - 2)]
    asked = {"pairs": dps.Marginals(["group", "edu", *numbers])}
    return mixed(asked | {"covariance": dps.Covariance(numbers)}, 3, len(numbers))


PLANS = {
    "components": components,
    "subgroups": subgroups,
    "15 tables": tables,
    "28 tables": partial(tables, 8),
}


def measure(folder, draws, plans):
    folder.mkdir(parents=True, exist_ok=True)
    for name in plans:
        plan, rows = PLANS[name]()
        for draw in range(draws):
            measured = dps.measure(plan, rows)
            measured.save(folder / f"{name}-{draw}.zip")
        np.save(folder / f"{name}.npy", true_means(measured, rows))


def true_means(measured, rows):
    """Means of the published functions over the private rows."""
    codes = {column.name: column.encode(pa.array(rows[column.name])) for column in measured.columns}
    return measured.published.evaluate(codes).average(np.full(len(rows), 1 / len(rows)))


def score(folder, draws, plans):
    import scipy.optimize
    import scipy.stats  # noqa: F401

    from dpstats.rows.entropy import targets

    columns = ("CPU s", "misfit: largest", "rms", "error: largest", "rms")
    print(f"{'plan':<12}" + "".join(f"{column:>17}" for column in columns))
    for name in plans:
        truth, runs = np.load(folder / f"{name}.npy"), []
        for draw in range(draws):
            measured = dps.Measurements.load(folder / f"{name}-{draw}.zip")
            started = time.process_time()
            synthetic = dps.synthesize(measured, rng=draw)
            seconds = time.process_time() - started
            family, answers, deviations = targets(measured)
            copies = synthetic.counts / synthetic.counts.sum()
            found = family.evaluate(synthetic.candidates).average(copies)
            off = [(found - of) / deviations for of in (answers, truth)]
            sizes = [f(np.abs(d)) for d in off for f in (np.max, lambda a: np.sqrt(np.mean(a**2)))]
            runs.append([seconds, *sizes])
        figures = np.median(runs, axis=0)
        print(f"{name:<12}" + "".join(f"{value:>17.2f}" for value in figures), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("work", choices=["measure", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=PLANS, default=PLANS)
    given = parser.parse_args()
    {"measure": measure, "score": score}[given.work](given.folder, given.draws, given.only)


if __name__ == "__main__":
    main()
