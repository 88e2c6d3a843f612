"""What people wait for, before and now: CPU seconds and peak memory of two versions.

    python tests/benchmarks/waiting.py [--base 83b3659] [--only intervals]

The base is a commit of this repository; it is checked out beside the working tree. Every figure is
of a process of its own, base and now in turn, so that both meet the same load. Tables are those of
eight columns with the numbers of levels of the Adult census extract and 48,842 made-up rows: 28
two-way tables, 1,582 cells. Clocks start when scipy is loaded, except for `first`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

LEVELS = (9, 16, 7, 15, 6, 5, 2, 2)
ROOT = Path(__file__).parents[2]
N = 48_842


def tables(levels=LEVELS, n=N, unit="add_remove", epsilon=1):
    """Plan of all two-way tables, and rows that depend on a common factor."""
    import numpy as np
    import pandas as pd

    import dpstats as dps

    names = [f"c{i}" for i in range(len(levels))]
    schema = dps.Schema(
        [dps.Category(c, list(range(k))) for c, k in zip(names, levels, strict=True)]
    )
    plan = dps.plan(
        schema, {"pairs": dps.Marginals(names)}, budget=dps.PureDP(epsilon), unit=unit
    )  # fmt: skip
    rng = np.random.default_rng(0)
    factor = rng.random(n)
    rows = {
        c: np.minimum((k * (0.6 * factor + 0.4 * rng.random(n)) ** 2).astype(int), k - 1)
        for c, k in zip(names, levels, strict=True)
    }
    return plan, pd.DataFrame(rows)


def pairs(**options):
    """The inferred tables of a release without many synthetic rows."""
    import dpstats as dps

    plan, rows = tables(**options)
    return dps.release(plan, rows, m=100, k=10, rng=0).infer("pairs")


def mixed():
    """A plan with thirteen analyses of all kinds, and its rows."""
    import numpy as np
    import pandas as pd

    import dpstats as dps

    n, rng = 20_000, np.random.default_rng(0)
    numbers = {"age": (45, 15), "bmi": (26, 4), "pay": (30, 9), "sbp": (130, 15)}
    rows = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "edu": rng.choice(list("abcd"), n),
            "region": rng.choice(list("nesw"), n),
            "smoker": rng.random(n) < 0.3,
        }
        | {name: rng.normal(*law, n) for name, law in numbers.items()}
    )
    schema = dps.Schema([
        dps.Category("sex", ["f", "m"]), dps.Category("edu", list("abcd")),
        dps.Category("region", list("nesw")), dps.Boolean("smoker"),
        dps.Number("age", 18, 90, missing=45, edges=[25, 35, 45, 55, 65, 75]),
        dps.Number("bmi", 15, 45, missing=26), dps.Number("pay", 0, 80, missing=30),
        dps.Number("sbp", 80, 200, missing=130),
    ])  # fmt: skip
    asked = {
        "share": dps.Proportion("smoker"),
        "in a group": dps.Proportion("smoker", given="sex == 'f'"),
        "tables": dps.Marginals(["sex", "edu", "region"]), "risks": dps.Difference("smoker", "sex"),
        "quantile": dps.Quantile("age"), "fit": dps.GoodnessOfFit("edu", [0.25] * 4),
        "association": dps.Independence("edu", "region"), "means": dps.Mean(["age", "bmi"]),
        "two means": dps.MeanDifference("bmi", "sex"),
        "correlations": dps.Correlation(["age", "bmi", "pay"]),
        "covariance": dps.Covariance(["age", "bmi", "pay"]),
        "components": dps.PCA(["age", "bmi", "pay", "sbp"]),
        "regression": dps.OLS("sbp ~ age + bmi + sex"),
    }  # fmt: skip
    return dps.plan(schema, asked, budget=dps.PureDP(3)), rows, n


def three_way():
    """A schema of 20 columns and all its 1,140 three-way tables."""
    import itertools

    import dpstats as dps

    names = [f"c{i}" for i in range(20)]
    schema = dps.Schema([dps.Category(c, list("abc")) for c in names])
    return schema, [list(chosen) for chosen in itertools.combinations(names, 3)]


def intervals():
    result = pairs()
    return lambda: result.conf_int()


def certified():
    result = pairs()
    return lambda: result.conf_int(method="certified")


def simultaneous():
    result = pairs()
    return lambda: result.conf_int(simultaneous=True)


def frame():
    result = pairs()
    return lambda: result.to_frame()


def rows_10_4():
    result = pairs(levels=(16, 28), n=10_000, unit="replace", epsilon=5)
    return lambda: result.conf_int()


def rows_10_6():
    result = pairs(levels=(16, 28), n=1_000_000, unit="replace", epsilon=5)
    return lambda: result.conf_int()


def preview():
    plan, _ = tables()
    return lambda: str(plan.preview(N))


def preview_mixed():
    plan, _, n = mixed()
    return lambda: str(plan.preview(n))


def all_intervals():
    import dpstats as dps

    plan, rows, _ = mixed()
    release = dps.release(plan, rows, m=1000, k=10, rng=0)
    return lambda: release.intervals()


def difference():
    import dpstats as dps

    plan, rows, _ = mixed()
    release = dps.release(plan, rows, m=1000, k=10, rng=0)
    release.infer("in a group").summary()
    return lambda: release.infer("risks").summary()


def planning():
    import dpstats as dps

    schema, tables = three_way()
    asked = {" ".join(columns): dps.Marginals(columns, 3) for columns in tables}
    return lambda: dps.plan(schema, asked, budget=dps.PureDP(1))


def first():
    code = (
        "import dpstats as dps; s = dps.Schema([dps.Category('a', [0, 1]), dps.Boolean('b')]);"
        "dps.plan(s, {'i': dps.Independence('a', 'b')}, budget=dps.PureDP(1))"
    )
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)


WORK = {
    "intervals": (intervals, "1,582 cells, add/remove: noise-aware intervals"),
    "certified": (certified, "  certified intervals"),
    "simultaneous": (simultaneous, "  simultaneous intervals"),
    "frame": (frame, "  to_frame()"),
    "preview": (preview, "  preview, with its text"),
    "rows_10_4": (rows_10_4, "448 cells, 10^4 rows: intervals"),
    "rows_10_6": (rows_10_6, "  10^6 rows"),
    "preview_mixed": (preview_mixed, "thirteen analyses: preview"),
    "all_intervals": (all_intervals, "  release.intervals()"),
    "difference": (difference, "  summary of a Difference"),
    "planning": (planning, "plan of 1,140 three-way tables"),
    "first": (first, "first plan of a process"),
}


def cpu():
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(name):
    """Print seconds and megabytes of one piece of work."""
    job = WORK[name][0]()
    if name != "first":
        import scipy.optimize
        import scipy.stats  # noqa: F401
    started = cpu()
    job()
    seconds = cpu() - started
    who = resource.RUSAGE_CHILDREN if name == "first" else resource.RUSAGE_SELF
    print(json.dumps([seconds, resource.getrusage(who).ru_maxrss / 1024]))


def measured(name, tree):
    """The same in a process of its own, with the package of a tree."""
    done = subprocess.run(
        [sys.executable, __file__, "--run", name], env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return json.loads(done.stdout) if done.returncode == 0 else [float("nan")] * 2


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--base", default="83b3659")
    parser.add_argument("--only", choices=list(WORK))
    parser.add_argument("--run", choices=list(WORK), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run(given.run)
        return
    load = os.getloadavg()[0]
    print(f"load {load:.1f}; before is {given.base}; CPU seconds and peak MB", flush=True)
    print(f"{'':<50}{'before':>8}{'now':>8}{'ratio':>7}{'MB':>6}{'MB':>6}")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), given.base], check=True)
        try:
            started = time.monotonic()
            for name in [given.only] if given.only else WORK:
                (old, before), (new, now) = measured(name, tree), measured(name, ROOT)
                figures = f"{old:8.2f}{new:8.2f}{old / new:7.1f}{before:6.0f}{now:6.0f}"
                print(f"{WORK[name][1]:<50}{figures}", flush=True)
            print(f"{time.monotonic() - started:.0f} s in all")
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
