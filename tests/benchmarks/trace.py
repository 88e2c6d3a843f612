"""Files of the package, and their lines, that one analysis enters.

    python tests/benchmarks/trace.py

Two counts for `OLS`: `release.infer("ols")` with both kinds of intervals, and everything from the
plan to the summary. A file counts if one of its functions runs; modules that are imported alone do
not. Lines are all lines of these files.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import dpstats as dps

PACKAGE = Path(dps.__file__).parent


class Entered:
    """Files of the package whose functions run within a block."""

    def __enter__(self):
        self.files = set()
        sys.setprofile(self._note)
        return self

    def _note(self, frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and "dpstats" in code.co_filename:
            self.files.add(code.co_filename)

    def __exit__(self, *_):
        sys.setprofile(None)

    def report(self, label):
        own = sorted(Path(f) for f in self.files if Path(f).is_relative_to(PACKAGE))
        lines = {path: len(path.read_text().splitlines()) for path in own}
        print(f"{label}: {len(own)} files, {sum(lines.values()):,} lines")
        for path, count in lines.items():
            print(f"    {count:>5}  {path.relative_to(PACKAGE)}")


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
    all_steps.files |= inference.files
    all_steps.report("plan to summary")


if __name__ == "__main__":
    main()
