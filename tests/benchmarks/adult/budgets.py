"""Rows of the Adult census extract at rising budgets: more is never worse.

    python tests/benchmarks/adult/budgets.py adult.csv [--rho 1/100 15 1000] [--seeds 1]

The table is that of `releases.py`, eight columns, all pairs measured. Printed are the mean total
variation between synthetic and private rows over the tables of one, two (measured) and three
columns (not measured), the number of candidates, and the CPU seconds of the release.
"""

import argparse
import json
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
from releases import COLUMNS

import dpstats as dps


def distances(release, schema, codes, n):
    """Mean total variation over all tables of one, two and three columns."""
    shares = release.counts / release.k
    found = []
    for degree in (1, 2, 3):
        blocks = dps.Marginals(schema.names, degree=degree).family(schema).blocks
        found.append(np.mean([
            np.abs(b.evaluate(release.candidates).average(shares) - b.sums(codes) / n).sum() / 2
            for b in blocks
        ]))  # fmt: skip
    return found


def main():
    """Print a line per release."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--rho", type=Fraction, nargs="+", default=[
        Fraction(rho) for rho in ("1/100", "15/1000", "15/100", "3/2", "15", "1000")
    ])  # fmt: skip
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    domain = json.loads(given.path.with_name("adult-domain.json").read_text())
    names = COLUMNS["8"]
    schema = dps.Schema([dps.Category(name, list(range(domain[name]))) for name in names])
    frame = pd.read_csv(given.path, usecols=names)
    codes = {name: frame[name].to_numpy(np.int64) for name in names}
    print(f"{'rho':>8}{'one':>9}{'two':>9}{'three':>9}{'candidates':>12}{'CPU s':>8}")
    for rho in given.rho:
        plan = dps.plan(schema, {"pairs": dps.Marginals(names)}, budget=dps.ZCDP(rho))
        for _ in range(given.seeds):
            start = time.process_time()
            release = dps.release(plan, frame)
            seconds = time.process_time() - start
            found = distances(release, schema, codes, len(frame))
            print(f"{float(rho):>8g}" + "".join(f"{value:>9.4f}" for value in found)
                  + f"{len(release.weights):>12,}{seconds:>8.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
