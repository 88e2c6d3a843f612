"""Files of the package, and their lines, that one analysis enters.

    python tests/benchmarks/trace.py

Two counts for `OLS`: `release.infer("ols")` with both kinds of intervals, and everything from the
plan to the summary. A file counts if one of its functions runs; modules that are imported alone do
not. Lines are those of the functions that run, of all in these files.
"""

import inspect
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

import dpstats as dps

PACKAGE = Path(dps.__file__).parent


def report(label, work, *given):
    """Print files and lines of the functions that run in `work`, and return its result."""
    lines = defaultdict(set)

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # a function, not a class
            last = max(line for *_, line in code.co_lines() if line)
            lines[Path(code.co_filename)] |= set(range(code.co_firstlineno, last + 1))

    sys.setprofile(note)
    result = work(*given)
    sys.setprofile(None)
    every = {str(path.relative_to(PACKAGE)): (len(lines[path]), len(path.read_text().splitlines()))
             for path in sorted(lines) if PACKAGE in path.parents}  # fmt: skip
    counts = pd.DataFrame(every, index=["lines run", "of"]).T
    run, of = counts.sum()
    print(f"{label}: {len(counts)} files, {run:,} of their {of:,} lines run\n{counts.to_string()}")
    return result


def released():
    rng, n = np.random.default_rng(0), 2_000
    rows = pd.DataFrame({"x": rng.normal(50, 10, n), "g": rng.choice(["a", "b"], n)})
    rows["y"] = rows["x"] + 5 * (rows["g"] == "b") + rng.normal(0, 5, n)
    numbers = [dps.Number(name, 0, 100, missing=50) for name in ("x", "y")]
    schema = dps.Schema([*numbers, dps.Category("g", ["a", "b"])])
    plan = dps.plan(schema, {"ols": dps.OLS("y ~ x + g")}, budget=dps.PureDP(5))
    return dps.release(plan, rows, rng=0)


def inferred(release):
    result = release.infer("ols")
    result.conf_int()
    result.conf_int(method="certified")
    return result


report("plan to summary", lambda: inferred(released()).summary())
report("infer and both intervals", inferred, released())
