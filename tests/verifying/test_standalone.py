"""The program needs the standard library alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dpstats as dps

FOLDER = Path(dps.__file__).parent / "verifying"


def test_it_runs_without_the_package(whole, rows, tmp_path):
    """A copy of the folder runs where neither dpstats nor NumPy can be imported."""
    shutil.copytree(FOLDER, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def run(*arguments):
        command = [sys.executable, "-S", "-B", str(tmp_path / "elsewhere"), *arguments]
        options = {"capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
        return subprocess.run(command, check=False, **options)

    plan = whole(dps.ApproxDP(1, 1e-6), "replace", "smoking", "ages", "pair")
    dps.release(plan, rows, m=60, rng=1).save(tmp_path / "release.zip")
    done = run("release.zip")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("agrees\n")
    (tmp_path / "none.zip").write_bytes(b"PK")
    assert run("none.zip").returncode == 2
    assert run().returncode == 2
    with (tmp_path / "elsewhere" / "arguing.py").open("a") as program:
        program.write("\nimport numpy\n")
    assert "No module named 'numpy'" in run("release.zip").stderr
