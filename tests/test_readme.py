"""The examples of the README run as written."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def fences(kind):
    return re.findall(rf"```{kind}\n(.*?)```", README, flags=re.DOTALL)


def test_custodian_and_analyst(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 5_000
    survey = pd.DataFrame(
        {
            "smoker": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
            "region": rng.choice(["north", "south", "east", "west"], n),
            "age": rng.integers(0, 100, n),
        }
    )
    survey.to_parquet("survey.parquet")
    (toml,) = fences("toml")
    Path("survey.toml").write_text(toml)
    assert main(["ledger", "new", "survey.ledger", "--cap", "2"]) == DONE
    custodian, hidden_n, analyst = fences("python")
    scope = {}
    exec(custodian, scope)
    assert dps.Ledger.open("survey.ledger").spent == 1
    exec(hidden_n, scope)
    printed = capsys.readouterr().out
    assert "95% width" in printed  # the custodian's preview
    assert "number of rows is noisy" in str(scope["hidden_n"])
    assert scope["release_of_hidden_n"].measurements.count is not None
    assert scope["release"].measurements.count is None
    exec(analyst, scope)
    printed = capsys.readouterr().out
    assert "delta" in printed
    low, high = scope["release"].infer("smoking").conf_int(alpha=1e-6)
    assert low < 0.3 < high
    assert set(scope["release"].to_frame()["age"]) <= set(range(121))


def test_commands_of_the_readme_exist(capsys):
    for command in re.findall(r"^dpstats (\w+)", README, flags=re.MULTILINE):
        with pytest.raises(SystemExit, match=r"^0$"):
            main([command, "--help"])
        assert command in capsys.readouterr().out
