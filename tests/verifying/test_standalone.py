"""The program needs the standard library alone."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dpstats as dps

FOLDER = Path(dps.__file__).parent / "verifying"
MODULES = sorted(FOLDER.glob("*.py"))


def imported(text: str) -> set[str]:
    """The first parts of everything that a module imports, within dpstats the first two."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return {".".join(name.split(".")[:2]) for name in found}


def foreign(text: str) -> set[str]:
    """What is neither of the standard library nor of the program itself."""
    own = {"dpstats.verifying"}
    return {n for n in imported(text) - own if n.split(".")[0] not in sys.stdlib_module_names}


def test_only_the_standard_library():
    for path in MODULES:
        text = path.read_text()
        assert foreign(text) == set()
        assert "__import__" not in text


def test_another_import_is_seen():
    for line in [
        "import numpy",
        "from dpstats import files",
        "import dpstats",
        "from . import x",
        "def f():\n    from dpstats.families.block import Block",
    ]:
        assert foreign(line)


@pytest.fixture
def without_packages(tmp_path):
    """Runs a copy of the folder where neither dpstats nor NumPy can be imported."""
    shutil.copytree(FOLDER, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-B", str(tmp_path / "elsewhere"), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )

    return run


def test_it_runs_without_the_package(whole, rows, tmp_path, without_packages):
    plan = whole(dps.ApproxDP(1, 1e-6), "replace", "smoking", "ages", "pair")
    release = dps.release(plan, rows, m=300, rng=1)
    release.save(tmp_path / "release.zip")
    done = without_packages("release.zip")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("agrees\n")
    (tmp_path / "none.zip").write_bytes(b"PK")
    assert without_packages("none.zip").returncode == 2
    assert without_packages().returncode == 2
    text = (tmp_path / "elsewhere" / "arguing.py").read_text()
    (tmp_path / "elsewhere" / "arguing.py").write_text(text + "\nimport numpy\n")
    assert "No module named 'numpy'" in without_packages("release.zip").stderr
