"""Plants bugs into a copy of the package, one by one, and runs the tests that have to see them.

``make mutants`` runs all of them and writes the table of docs/explanation/privacy/planted-bugs.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "privacy" / "planted-bugs.md"
_BEGIN, _END = "<!-- table of planted bugs -->\n", "<!-- end of the table -->\n"
_COPIED = ("dpstats", "tests", "docs", "examples", "vignettes")
_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Bug:
    """One text of one file of the package, its replacement, and where it has to be seen."""

    name: str
    file: str  # below dpstats/
    before: str
    after: str
    tests: tuple[str, ...]  # files or folders below tests/, or single tests of a file after ::

    def planted_in(self, source: str) -> str:
        """The file's text with the bug; `before` must occur once."""
        if source.count(self.before) != 1:
            raise ValueError(f"{self.name!r}: {self.file} holds its text other than once")
        return source.replace(self.before, self.after)


def planted_bugs() -> list[Bug]:
    """All of them, from planted.toml."""
    plain = tomllib.loads((Path(__file__).parent / "planted.toml").read_text("utf-8"))["bug"]
    return [Bug(**{**bug, "tests": tuple(bug["tests"])}) for bug in plain]


def seen_before() -> dict[str, str]:
    """The test that saw each bug first, from the table of the page."""
    rows = re.findall(r"^\| (.+) \| `.+` \| `(.+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return dict(rows)


def find(bug: Bug) -> str | None:
    """The first test that fails with a bug planted: what saw it before is tried first."""
    known = seen_before().get(bug.name)
    try:
        seen = known and first_failure(bug, [known])
    except RuntimeError:  # there is no such test any more
        seen = None
    return seen or first_failure(bug, bug.tests)


def first_failure(bug: Bug | None, tests: Iterable[str]) -> str | None:
    """The first of some tests that fails with a bug planted, or as the package is; None if none."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in _COPIED:
            shutil.copytree(ROOT / name, root / name)
        for path in (path for path in ROOT.iterdir() if path.is_file()):
            shutil.copy(path, root / path.name)
        if bug is not None:
            file = root / "dpstats" / bug.file
            file.write_text(bug.planted_in(file.read_text("utf-8")), "utf-8")
            for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
                compiled.unlink()  # it might be taken for that of the bug
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-rfE",
                   "-p", "no:cacheprovider", "-m", "not slow",
                   *(f"tests/{test}" for test in tests)]  # fmt: skip
        run = subprocess.run(
            command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
    if run.returncode == 0:
        return None
    if run.returncode != 1:  # nothing was collected, or the bug breaks the import: no bug at all
        raise RuntimeError(
            f"{bug and bug.name!r}: pytest ended with {run.returncode}\n{run.stdout[-2000:]}"
        )
    found = _FAILED.search(run.stdout)
    return found[1] if found else "?"


def table(seen: dict[str, str | None]) -> str:
    """Lines of Markdown: what was planted, where, and the first test that failed."""
    lines = ["| Planted | In | Seen first by |", "|---|---|---|"]
    for bug in planted_bugs():
        test = seen[bug.name]
        shown = "**not seen**" if test is None else f"`{test.partition('[')[0]}`"
        lines.append(f"| {bug.name} | `{bug.file}` | {shown} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Plant all bugs, or those whose names hold a text; 1 if one of them is not seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="only bugs whose names hold this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = [bug for bug in planted_bugs() if asked.text in bug.name]
    every = dict.fromkeys(test for bug in chosen for test in bug.tests)
    if (failing := first_failure(None, every)) is not None:
        parser.error(f"{failing} fails without a bug; mend that first")
    seen: dict[str, str | None] = {}
    with ThreadPoolExecutor(asked.jobs) as pool:
        for bug, test in zip(chosen, pool.map(find, chosen), strict=True):
            seen[bug.name] = test
            print(f"{len(seen):>3} of {len(chosen)}  {bug.name}: {test or 'NOT SEEN'}", flush=True)
    if not asked.text:
        page = PAGE.read_text("utf-8")
        head, tail = page.split(_BEGIN)[0], page.split(_END)[1]
        PAGE.write_text(f"{head}{_BEGIN}\n{table(seen)}\n{_END}{tail}", "utf-8")
    return 1 if None in seen.values() else 0


if __name__ == "__main__":
    sys.exit(main())
