"""Whole releases of the Adult census extract, their errors, cost and intervals.

    python tests/benchmarks/adult/releases.py adult.csv [--columns 8|other|14|a,b,c]
        [--budget 1|1,1e-9] [--unit replace|add_remove]

The table is the integer-coded one of private-pgm (https://github.com/ryan112358/private-pgm, in
``data/``: adult.csv and adult-domain.json, 48,842 rows); the domain file is read from beside it.
All two-way tables of the columns are measured. Every seed is a fresh process, so that CPU seconds
and peak memory are those of the whole release, imports included; the errors of k = n rows and of
the weights are against the true table, and so is the coverage of the 95% intervals for the table
(target="table") and, as if the rows were the population's, of those for the population.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

COLUMNS = {
    "8": [
        "workclass", "education-num", "marital-status", "occupation",
        "relationship", "race", "sex", "income>50K",
    ],
    "other": [
        "age", "workclass", "marital-status", "occupation", "race", "sex", "native-country",
        "income>50K",
    ],
}  # fmt: skip
COMMON = 0.001  # intervals are judged on cells above this


def budget_of(text):
    """`1` is PureDP(1), `1,1e-9` ApproxDP(1, 1e-9)."""
    import dpstats as dps

    if "," not in text:
        return dps.PureDP(float(text))
    return dps.ApproxDP(*map(float, text.split(",")))


def one_release(path, columns, budget, unit, m, intervals):
    """Figures of one release, in this process."""
    import numpy as np
    import pandas as pd

    import dpstats as dps

    domain = json.loads(path.with_name("adult-domain.json").read_text())
    columns = COLUMNS.get(columns) or (list(domain) if columns == "14" else columns.split(","))
    schema = dps.Schema([dps.Category(name, list(range(domain[name]))) for name in columns])
    plan = dps.plan(
        schema, {"pairs": dps.Marginals(columns)}, budget=budget_of(budget), unit=unit
    )  # fmt: skip
    frame = pd.read_csv(path, usecols=columns)
    release = dps.release(plan, frame, m=m)
    used = {
        "cpu": time.process_time(),
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "functions": plan.published.size,
    }
    codes = {name: frame[name].to_numpy(np.int64) for name in columns}
    truth = np.concatenate(plan.published.sums(codes)) / len(frame)
    for of in ("weights", "rows"):
        error = np.abs(release.accuracy(of=of).synthetic - truth)
        used |= {f"{of}_mean": error.mean(), f"{of}_max": error.max()}
    answers = np.abs(release.answers(plan.published).means - truth)
    used |= {"answers_mean": answers.mean(), "answers_max": answers.max()}
    if intervals:
        result = release.infer("pairs")
        order = [result.terms.index(name) for name in plan.published.names]
        common = truth > COMMON
        for method, target in itertools.product(
            ("noise_aware", "certified"), ("table", "population")
        ):
            low, high = np.asarray(result.conf_int(method=method, target=target))[order][common].T
            inside = (low <= truth[common]) & (truth[common] <= high)
            used |= {
                f"{method}_{target}_cover": inside.mean(),
                f"{method}_{target}_width": np.median(high - low),
            }
        used["common"] = int(common.sum())
    return {key: float(value) for key, value in used.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--columns", default="8")
    parser.add_argument("--budget", default="1", help="epsilon, or epsilon,delta")
    parser.add_argument("--unit", default="replace", choices=["replace", "add_remove"])
    parser.add_argument("--seeds", type=int, default=3, help="number of releases")
    parser.add_argument("--m", type=int, help="candidates; by default as many as the package takes")
    parser.add_argument("--no-intervals", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        figures = one_release(
            given.path, given.columns, given.budget, given.unit, given.m, not given.no_intervals
        )
        print(json.dumps(figures))
        return
    command = [sys.executable, __file__, *sys.argv[1:], "--one"]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(given.seeds)
    ]
    print(
        f"columns {given.columns}, budget {given.budget}, {given.unit}, m = {given.m or 'default'}"
    )
    print(f"{'':<32}{'median':>12}" + "".join(f"{f'run {i + 1}':>12}" for i in range(len(runs))))
    for key in runs[0]:
        values = [run[key] for run in runs]
        print(f"{key:<32}" + "".join(f"{value:>12.6g}" for value in (median(values), *values)))


if __name__ == "__main__":
    main()
