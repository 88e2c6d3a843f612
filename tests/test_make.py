"""make says what it does before each step that takes long."""

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_every_long_step_is_announced():
    for target in ["demo", "test"]:
        told = subprocess.run(
            ["make", "--always-make", "--dry-run", target],
            cwd=REPOSITORY, capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        long = [i for i, line in enumerate(told)
                if "-m venv .venv" in line or "pip install" in line or line.endswith("dpstats demo")
                if not line.startswith("echo")]  # fmt: skip
        assert len(long) == {"demo": 3, "test": 2}[target]
        assert all(told[i - 1].startswith("echo ") for i in long)
