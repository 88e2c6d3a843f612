"""CPU and memory of PCA: intervals for 10, 20 and 50 columns, preview and synthesis of 20.

    python tests/benchmarks/eigen.py

Every figure is of a process of its own. The ratio is the CPU time of a component, in decompositions
of a p x p matrix (`eigh` of many at once): it hardly depends on the machine.
"""

import os
import resource
import subprocess
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

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


def plan_of(p):
    """A plan with one PCA of p columns, and rows."""
    schema, rows = numbers(p)
    return dps.plan(schema, {"pca": dps.PCA(schema.names)}, budget=dps.PureDP(5), n=N), rows


def decomposition(p):
    """CPU seconds of one full decomposition among many."""
    drawn = np.random.default_rng(1).standard_normal((2_000, p, p))
    started = time.process_time()
    np.linalg.eigh(drawn + drawn.swapaxes(1, 2))
    return (time.process_time() - started) / len(drawn)


def measure(what, p):
    plan, rows = plan_of(p)
    if what == "infer":
        release = dps.release(plan, rows, m=2_000, k=10, rng=0)
    elif what == "rows":
        measurements = dps.measure(plan, rows)
    started = time.process_time()
    if what == "infer":
        release.infer("pca").summary()
    elif what == "rows":
        dps.synthesize(measurements, rng=0)
    else:
        str(plan.preview(N))
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000
    ratio = seconds / p / decomposition(p)
    print(f"{what:<8} p = {p:<3} {seconds:7.2f} s {peak:6.0f} MB {ratio:9.0f}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(sys.argv[1], int(sys.argv[2]))
    else:
        print("                    CPU   peak    decompositions per component", flush=True)
        for what, p in (("infer", 10), ("infer", 20), ("infer", 50), ("preview", 20), ("rows", 20)):
            subprocess.run([sys.executable, __file__, what, str(p)], check=True)
