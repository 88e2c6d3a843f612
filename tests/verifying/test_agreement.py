"""The second opinion agrees with the package on every kind of block, relation and budget."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import dpstats as dps
from dpstats.verifying.arguing import main, verify


def test_every_block_of_a_plan_and_tables_by_residuals(whole, reread, differences, unit, budget):
    plan, residuals = whole(budget, unit), whole(dps.ZCDP(1), unit, "tables")
    assert {one.block.kind for one in reread(plan).blocks} >= {
        "table", "condition", "moments", "group_moments", "pair_moments", "ball_moments",
        "kernel_lattice", "bin_offsets", "linear_losses", "tabulated_losses", "pilot_score",
    }  # fmt: skip
    assert "residual" in {one.block.kind for one in reread(residuals).blocks}
    assert differences(plan) == differences(residuals) == []


def test_the_file_of_a_release(whole, rows, tmp_path, unit, budget):
    names = ["smoking", "retired", "rents", "pair", "odds", "typical"]
    plan = whole(budget, unit, *(names if unit == "replace" else ["tables", "means"]))
    dps.release(plan, rows, m=100, rng=1).save(tmp_path / "release.zip")
    verdict = verify(tmp_path / "release.zip")
    assert verdict.agrees, verdict.text
    assert "larger by a factor" not in verdict.text.split("Certificate: delta")[1]
    assert "The radius of each analysis is not computed again" in verdict.text


def test_conditions_beside_all_other_rows(whole, reread, differences, rows, tmp_path):
    """Of which the last set only counts rows: the certificate leaves it out."""
    for budget in (dps.PureDP(2), dps.ZCDP(2)):
        plan = whole(budget, "add_remove", "smoking", "retired")
        assert [one.block.kind for one in reread(plan).blocks] == ["partition"] * 2 + ["table"]
        assert differences(plan) == []
        path = tmp_path / f"{budget.kind}.zip"
        dps.release(plan, rows, m=100, rng=1).save(path)
        verdict = verify(path)
        assert verdict.agrees, verdict.text
        assert "larger by a factor" not in verdict.text


def test_the_command_on_the_file_of_a_plan_and_on_what_is_none(whole, tmp_path, capsys):
    path = tmp_path / "file"
    whole(dps.ApproxDP(2, 1e-6), "add_remove").save(path)
    assert main([str(path)]) == 0
    out, err = capsys.readouterr()
    assert (out.endswith("\nagrees\n"), err) == (True, "")
    for content in [b"", b"PK", b"[1", b"\xff", b'{"dpstats": "plan"}']:
        path.write_bytes(content)
        assert [main(given) for given in ([str(path)], [str(tmp_path / "none")], [])] == [2] * 3
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 3)
        assert "Traceback" not in err


def test_honest_releases_with_odd_noise_agree(tmp_path):
    """Hardly any noise or very much, few rows, weights of persons."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, 2, (400, 4)).astype(bool), columns=list("abcd"))
    rows["w"], rows["id"] = rng.uniform(0.5, 2, 400), np.arange(400) // 2
    rows["u"], rows["v"] = rng.choice([1, 2, 5, 9], (2, 400))
    numbers = [dps.Number(name, values=[1, 2, 5, 9], missing=1) for name in "uv"]
    plain = dps.Schema([*map(dps.Boolean, "abcd"), *numbers])
    surveyed = dps.Schema(plain, design=dps.Design("w", mean=1, cap=3, deff=1.5))
    shrunk = {"shrunk": dps.Correlation(["u", "v"], clip_norm=1.0)}
    of_person = "replacing the values in all rows of one person."
    for schema, asked, budget, n, options, said in [
        (plain, {"pairs": dps.Marginals(list("abcd"), 2)}, dps.ZCDP(4), 400, {}, "one row."),
        (plain, {"median": dps.Quantile("u", 0.5)}, dps.PureDP(200), 400, {}, "= 200 with"),
        (plain, shrunk, dps.PureDP(1), 3, {}, "replacing one row."),
        (plain, {"a": dps.Proportion("a")}, dps.PureDP(1), 400, {"person": "id"}, of_person),
        (surveyed, {"a": dps.Proportion("a")}, dps.PureDP(0.001), 400, {"person": "id"}, "caps"),
    ]:
        plan = dps.plan(schema, asked, budget=budget, **options)
        dps.release(plan, rows[:n], m=30).save(tmp_path / "r.zip", overwrite=True)
        verdict = verify(tmp_path / "r.zip")
        assert verdict.agrees, (asked, verdict.text)
        assert said in verdict.text


def test_it_runs_without_the_package(whole, rows, tmp_path):
    """A copy of the folder runs where neither dpstats nor NumPy can be imported."""
    folder = Path(dps.__file__).parent / "verifying"
    shutil.copytree(folder, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
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
