"""Gives changed files and tables to the package, and counts what came of them.

``make fuzz`` runs a million of them, in about an hour of one processor, and writes the table of
docs/explanation/privacy/fuzzing.md. An input is a kind and a number: it is the same again on every
machine with the same versions. ``python tests/fuzz/run.py KIND NUMBER`` repeats one.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "privacy" / "fuzzing.md"
COUNTS = ROOT / "build" / "fuzz.json"
_BEGIN, _END = "<!-- table of outcomes -->\n", "<!-- end of the table -->\n"
MIX = {  # so that every kind takes a few minutes
    "schemas": 240_000, "ledgers": 240_000, "plans": 110_000, "requests": 80_000,
    "measurements": 90_000, "releases": 30_000, "CSV": 135_000, "Parquet, bytes changed": 75_000,
}  # fmt: skip
CHUNK = 5_000  # inputs of one process, which a crash would end
MOST_MEMORY = 2**32  # bytes of address space that an input may need on top of what is mapped
FIRST_FINDINGS = 20


def kinds(folder: Path) -> dict[str, Callable[[random.Random], str]]:
    """Every kind of input, as a function of a generator that gives an outcome."""
    import own_files
    import private_tables

    return own_files.Kinds(folder).by_name() | private_tables.Kinds(folder).by_name()


def outcome(kind: str, make: Callable[[random.Random], str], number: int) -> tuple[str, str]:
    """What came of one input, and what was found if that is not allowed."""
    from outcomes import REFUSED, Refused

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return make(random.Random(f"{kind}-{number}")), ""
    except Refused:
        return REFUSED, ""
    except Exception:
        return "found", f"{kind} {number}: {traceback.format_exc(limit=-3)}"


def chunk(kind: str, first: int, count: int) -> dict[str, Any]:
    """Counts of outcomes of some inputs, and the first findings among them."""
    counts: Counter[str] = Counter()
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        make = kinds(Path(folder))[kind]
        outcome(kind, make, 0)  # what every input needs is made once
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_MEMORY, hard))
        for number in range(first, first + count):
            how, found = outcome(kind, make, number)
            counts[how] += 1
            findings += [found] if found else []
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"counts": counts, "findings": findings[:FIRST_FINDINGS], "peak": peak}


def run() -> dict[str, Any]:
    """All kinds, each chunk in a process of its own; what was counted before is kept."""
    COUNTS.parent.mkdir(exist_ok=True)
    done = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    for kind in MIX:
        done.setdefault(kind, {"next": 0, "counts": {}, "findings": [], "peak": 0})
    while left := [kind for kind, count in MIX.items() if done[kind]["next"] < count]:
        # The kind that is behind most comes next, so that a run that is stopped has all of them.
        kind = min(left, key=lambda k: done[k]["next"] / MIX[k])
        held, count = done[kind], min(CHUNK, MIX[kind] - done[kind]["next"])
        command = [sys.executable, __file__, kind, str(held["next"]), str(count)]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode:
            end = f"{kind} {held['next']} to {held['next'] + count}: {child.returncode}"
            made = {"counts": {"found": 1}, "findings": [end + child.stderr[-500:]], "peak": 0}
        else:
            made = json.loads(child.stdout)
        held["next"] += count
        held["counts"] = dict(Counter(held["counts"]) + Counter(made["counts"]))
        held["findings"] = [*held["findings"], *made["findings"]][:FIRST_FINDINGS]
        held["peak"] = max(held["peak"], made["peak"])
        COUNTS.write_text(json.dumps(done, indent=1))
        print(kind, held["next"], held["counts"], flush=True)  # noqa: T201
    return done


def table(done: dict[str, Any]) -> str:
    """Lines of Markdown."""
    lines = ["| Kind | Inputs | Refused | Equal | Consistent | Anything else |",
             "|---|--:|--:|--:|--:|--:|"]  # fmt: skip
    counted = {kind: Counter(done[kind]["counts"]) for kind in MIX}
    for kind, counts in (counted | {"all": sum(counted.values(), Counter())}).items():
        outcomes = (counts[how] for how in ("refused", "equal", "consistent", "found"))
        shown = (f"{number:,}" for number in (sum(counts.values()), *outcomes))
        lines.append(f"| {kind} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all, or some inputs of one kind; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?")
    parser.add_argument("number", nargs="?", type=int, default=0)
    parser.add_argument("count", nargs="?", type=int, default=1)
    asked = parser.parse_args()
    if asked.kind is not None:
        print(json.dumps(chunk(asked.kind, asked.number, asked.count)))  # noqa: T201
        return 0
    done = run()
    page = PAGE.read_text("utf-8")
    head, tail = page.split(_BEGIN)[0], page.split(_END)[1]
    PAGE.write_text(f"{head}{_BEGIN}\n{table(done)}\n{_END}{tail}", "utf-8")
    findings = [line for held in done.values() for line in held["findings"]]
    print(*findings, sep="\n")  # noqa: T201
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
