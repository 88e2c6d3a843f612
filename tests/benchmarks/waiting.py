"""What people wait for, before and now: CPU seconds and peak memory of two versions.

    python tests/benchmarks/waiting.py [--base 83b3659] [--only intervals]

The base is a commit of this repository; it is checked out beside the working tree. Every figure is
of a process of its own, base and now at the same time, so that both meet the same load. Tables are
those of eight columns with the numbers of levels of columns of the Adult census extract and 48,842
made-up rows: 28 two-way tables, 1,582 cells, or 9,256. Clocks start when scipy is loaded, except
for `first`.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

LEVELS = (9, 16, 7, 15, 6, 5, 2, 2)
LARGE = (85, 9, 7, 15, 5, 2, 42, 2)
ROOT = Path(__file__).parents[2]
N = 48_842


def categories(levels, n):
    """Columns with these numbers of levels, and rows that depend on a common factor."""
    import numpy as np
    import pandas as pd

    import dpstats as dps

    names = [f"c{i}" for i in range(len(levels))]
    schema = dps.Schema(
        [dps.Category(c, list(range(k))) for c, k in zip(names, levels, strict=True)]
    )
    rng = np.random.default_rng(0)
    factor = rng.random(n)
    rows = {
        c: np.minimum((k * (0.6 * factor + 0.4 * rng.random(n)) ** 2).astype(int), k - 1)
        for c, k in zip(names, levels, strict=True)
    }
    return schema, pd.DataFrame(rows)


def tables(levels=LEVELS, n=N, unit="add_remove", epsilon=1):
    """Plan of all two-way tables, and rows."""
    import dpstats as dps

    schema, rows = categories(levels, n)
    asked = {"pairs": dps.Marginals(schema.names)}
    return dps.plan(schema, asked, budget=dps.PureDP(epsilon), unit=unit), rows


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


def large():
    result = pairs(levels=LARGE)
    return lambda: result.conf_int()


def joint():
    result = pairs(levels=(4,) * 10, n=20_000)
    return lambda: result.conf_int(simultaneous=True)


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


def factors(p):
    """A plan with one PCA of p columns, and rows with four factors."""
    import numpy as np
    import pandas as pd

    import dpstats as dps

    n, rng, names = 20_000, np.random.default_rng(0), [f"x{i}" for i in range(p)]
    loadings = rng.standard_normal((4, p)) * [[0.3], [0.2], [0.15], [0.1]]
    rows = rng.standard_normal((n, 4)) @ loadings + 0.15 * rng.standard_normal((n, p))
    schema = dps.Schema([dps.Number(name, -1, 1, points=201, missing=0) for name in names])
    frame = pd.DataFrame(np.round(np.clip(rows, -1, 1), 2), columns=names)
    return dps.plan(schema, {"pca": dps.PCA(names)}, budget=dps.PureDP(5), n=n), frame


def components(p):
    import dpstats as dps

    plan, rows = factors(p)
    release = dps.release(plan, rows, m=2_000, k=10, rng=0)
    return lambda: release.infer("pca").summary()


def preview_components():
    plan, rows = factors(20)
    return lambda: str(plan.preview(len(rows)))


def synthesis():
    import dpstats as dps

    plan, rows = factors(20)
    measured = dps.measure(plan, rows)
    return lambda: dps.synthesize(measured, k=20_000, rng=0)


def minimax():
    """448 functions, 10^5 candidates; those are uniform, and drawn in little time."""
    import dpstats as dps

    plan, rows = tables(levels=(4,) * 8)
    plan = dps.plan(
        plan.schema, plan.analyses, budget=dps.PureDP(1), reference=dps.Uniform()
    )  # fmt: skip
    measured = dps.measure(plan, rows)
    return lambda: dps.synthesize(measured, fit="minimax", m=100_000, k=100, draw="iid", rng=0)


def data_pass(numbers):
    """10^6 rows of eight columns of text, or of numbers, from a Parquet file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import dpstats as dps

    rng, n = np.random.default_rng(0), 1_000_000
    if numbers:
        names = [f"x{i}" for i in range(8)]
        columns = [dps.Number(x, 0, 100, points=101, missing=50) for x in names]
        rows = {x: rng.normal(50, 20, n).round() for x in names}
        asked = dps.Covariance(names)
    else:
        names = [f"c{i}" for i in range(8)]
        labels = [[f"level {j}" for j in range(levels)] for levels in LEVELS]
        columns = [dps.Category(c, of) for c, of in zip(names, labels, strict=True)]
        rows = {
            c: pa.DictionaryArray.from_arrays(rng.integers(len(of), size=n).astype(np.int8), of)
            for c, of in zip(names, labels, strict=True)
        }
        asked = dps.Marginals(names)
    plan = dps.plan(dps.Schema(columns), {"asked": asked}, budget=dps.PureDP(1))
    folder = Path(tempfile.mkdtemp())
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    return lambda: (dps.measure(plan, folder / "rows.parquet"), shutil.rmtree(folder))


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
    "large": (large, "9,256 cells, add/remove: intervals"),
    "joint": (joint, "45 tables of 4 x 4 cells: simultaneous intervals"),
    "rows_10_4": (rows_10_4, "448 cells, 10^4 rows: intervals"),
    "rows_10_6": (rows_10_6, "  10^6 rows"),
    "preview_mixed": (preview_mixed, "thirteen analyses: preview"),
    "all_intervals": (all_intervals, "  release.intervals()"),
    "difference": (difference, "  summary of a Difference"),
    "components_10": (lambda: components(10), "PCA of 10 columns: infer and summary"),
    "components_20": (lambda: components(20), "  of 20 columns"),
    "preview_components": (preview_components, "  preview, with its text"),
    "synthesis": (synthesis, "  synthesis"),
    "minimax": (minimax, "minimax fit, 448 functions, 10^5 candidates"),
    "texts": (lambda: data_pass(False), "10^6 rows of Parquet: 28 tables of texts"),
    "numbers": (lambda: data_pass(True), "  moments of 8 numbers, to the fourth power"),
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


def both(name, trees):
    """The same in processes of their own, with the packages of two trees at the same time."""
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "--run", name], env=os.environ | {"PYTHONPATH": str(tree)},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) for tree in trees
    ]  # fmt: skip
    printed = [process.communicate()[0] for process in running]
    failed = [float("nan")] * 2
    return [
        json.loads(text) if process.returncode == 0 else failed
        for text, process in zip(printed, running, strict=True)
    ]


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
                (old, before), (new, now) = both(name, (tree, ROOT))
                figures = f"{old:8.2f}{new:8.2f}{old / new:7.1f}{before:6.0f}{now:6.0f}"
                print(f"{WORK[name][1]:<50}{figures}", flush=True)
            print(f"{time.monotonic() - started:.0f} s in all")
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
