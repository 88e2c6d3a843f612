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


class Entered:
    """Files of the package whose functions run within a block."""

    def __enter__(self):
        self.lines = defaultdict(set)  # of each file
        sys.setprofile(self._note)
        return self

    def _note(self, frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # a function, not a class
            last = max(line for *_, line in code.co_lines() if line)
            self.lines[Path(code.co_filename)] |= set(range(code.co_firstlineno, last + 1))

    def __exit__(self, *_):
        sys.setprofile(None)

    def report(self, label):
        own = {path: len(lines) for path, lines in self.lines.items() if PACKAGE in path.parents}
        whole = {path: len(path.read_text().splitlines()) for path in sorted(own)}
        run, of = sum(own.values()), sum(whole.values())
        print(f"{label}: {len(own)} files, {run:,} of their {of:,} lines run")
        for path, count in whole.items():
            print(f"    {own[path]:>5} of {count:>5}  {path.relative_to(PACKAGE)}")


def main():
    rng, n = np.random.default_rng(0), 2_000
    rows = pd.DataFrame({"x": rng.normal(50, 10, n), "g": rng.choice(["a", "b"], n)})
    rows["y"] = rows["x"] + 5 * (rows["g"] == "b") + rng.normal(0, 5, n)
    numbers = [dps.Number(name, 0, 100, missing=50) for name in ("x", "y")]
    schema = dps.Schema([*numbers, dps.Category("g", ["a", "b"])])
    with Entered() as all_steps:
        plan = dps.plan(schema, {"ols": dps.OLS("y ~ x + g")}, budget=dps.PureDP(5))
        release = dps.release(plan, rows, rng=0)
        with Entered() as inference:
            result = release.infer("ols")
            result.conf_int()
            result.conf_int(method="certified")
        sys.setprofile(all_steps._note)
        result.summary()
    inference.report("infer and both intervals")
    for path, lines in inference.lines.items():
        all_steps.lines[path] |= lines
    all_steps.report("plan to summary")


if __name__ == "__main__":
    main()
