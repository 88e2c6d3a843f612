"""Rows of a census table with and without the rules of its code book.

Usage: python tests/benchmarks/rules.py DIRECTORY [--epsilons 0.1 1 10 100 10000] [--draws 3]

The directory holds ma2019.csv (NIST excerpts of the American Community Survey 2019, Massachusetts:
7,634 persons). All pairs of 15 columns, replacing a row, Gaussian noise at delta 1e-5. Printed are
the rows that break a rule, two- and three-way total variation of the rows to the table, the noise
of answers, and CPU seconds of planning, measuring and fitting; means of the draws.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from measuring import cpu_seconds, markdown

import dpstats as dps
from dpstats.measured.answers import answer

CATEGORIES = ["SEX", "MSP", "HISP", "RAC1P", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT", "INDP_CAT",
              "EDU", "PINCP_DECILE", "DREM", "DPHY", "DVET"]  # fmt: skip
AGES = [3, 5, 15, 16, 25, 35, 45, 55, 65, 75]
BELOW = {  # column -> age below which it does not apply, and what older persons without it get
    "MSP": (15, "6"), "PINCP_DECILE": (15, "0"), "EDU": (3, "1"), "DREM": (5, "2"),
    "DPHY": (5, "2"),
}  # fmt: skip
NOT_APPLICABLE = "N"


def rules():
    """The rules of the code book on these columns."""
    found = []
    for column, (age, other) in BELOW.items():
        found += [
            dps.Never(f"AGEP < {age} and {column} != 'N'", set={column: NOT_APPLICABLE}),
            dps.Never(f"AGEP >= {age} and {column} == 'N'", set={column: other}),
        ]
    found.append(dps.Never("AGEP < 16 and INDP_CAT != 'N'", set={"INDP_CAT": NOT_APPLICABLE}))
    for column, outside, inside in (("OWN_RENT", "0", "2"), ("NOC", NOT_APPLICABLE, "0")):
        found += [
            dps.Never(f"HOUSING_TYPE != '1' and {column} != '{outside}'", set={column: outside}),
            dps.Never(f"HOUSING_TYPE == '1' and {column} == '{outside}'", set={column: inside}),
        ]
    return found


def read(data):
    """The table, and a schema of its columns without rules."""
    table = pd.read_csv(data / "ma2019.csv", dtype=str, keep_default_na=False)
    table = table[["AGEP", *CATEGORIES]].assign(AGEP=table["AGEP"].astype(float))
    columns = [dps.Number("AGEP", 0, 99, points=100, edges=AGES, missing=40)]
    for name in CATEGORIES:
        levels = sorted(
            table[name].unique(), key=lambda level: (level == NOT_APPLICABLE, len(level), level)
        )
        columns.append(dps.Category(name, levels))
    return table, dps.Schema(columns)


def cells(schema, codes):
    return {column.name: column.bins_of(codes[column.name]) for column in schema}


def total_variation(schema, truth, codes, weights, degree):
    """Mean over all sets of `degree` columns of the total variation of their tables."""
    found = []
    for names in itertools.combinations(schema.names, degree):
        shape = [schema[name].bins for name in names]
        of_truth, of_rows = (
            np.bincount(np.ravel_multi_index([c[name] for name in names], shape), w, np.prod(shape))
            for c, w in (
                (truth, np.full(len(truth["SEX"]), 1 / len(truth["SEX"]))),
                (codes, weights),
            )
        )
        found.append(np.abs(of_truth - of_rows).sum() / 2)
    return float(np.mean(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1, 10, 100, 10_000])
    parser.add_argument("--draws", type=int, default=3)
    asked = parser.parse_args()
    table, without = read(asked.data)
    with_rules = dps.Schema(without.columns, rules=rules())
    repairs = with_rules.repairs(with_rules.names)
    batch = pa.RecordBatch.from_pandas(table)
    truth = cells(without, repairs.encode(batch))
    assert not any(repairs.broken(without.encode(batch)))
    lines = []
    for epsilon in asked.epsilons:
        for name, schema in (("without", without), ("with", with_rules)):
            figures = []
            for draw in range(asked.draws):
                spent = [cpu_seconds()]
                budget = dps.ApproxDP(epsilon, 1e-5)
                marginals = {"pairs": dps.Marginals(list(schema.names))}
                plan = dps.plan(schema, marginals, budget=budget, n=len(table))
                spent.append(cpu_seconds())
                measurements = dps.measure(plan, table)
                spent.append(cpu_seconds())
                release = dps.synthesize(measurements, rng=draw)
                spent.append(cpu_seconds())
                weights = release.counts / release.counts.sum()
                codes = cells(schema, release.candidates)
                broken = weights[repairs.breaking(release.candidates)].sum()
                noise = np.sqrt(
                    np.mean(answer(measurements, plan.analyses["pairs"]).noise_variances)
                )
                figures.append([
                    broken, *(total_variation(schema, truth, codes, weights, d) for d in (2, 3)),
                    noise * len(table), *np.diff(spent),
                ])  # fmt: skip
            broken, two, three, noise, *seconds = np.mean(figures, axis=0)
            lines.append([f"{epsilon:g}", name, f"{broken:.2%}", f"{two:.5f}", f"{three:.5f}",
                          f"{noise:.4g}", *(f"{s:.2f}" for s in seconds)])  # fmt: skip
            print(lines[-1], flush=True)
    head = ["epsilon", "rules", "broken rows", "TV of pairs", "of triples", "noise sd, rows"]
    print(markdown([*head, "CPU s: plan", "measure", "fit"], lines))


if __name__ == "__main__":
    main()
