"""An archive is read and analysed where OpenDP, which draws the noise, is not installed."""

import subprocess
import sys

import numpy as np
import pandas as pd

import dpstats as dps

CODE = """
import sys
sys.modules["opendp"] = sys.modules["matplotlib"] = None  # as if they were not installed
import pyarrow
import dpstats as dps
from dpstats.cli import main

made = dps.synthesize(dps.Measurements.load("m.zip"), m=50, k=20, rng=1)
assert len(made.to_frame()) == 20
release = dps.load("r.zip")
assert release.bound("smoker and age >= 65")
assert len(release.draws(2, rng=1)[0])
assert pyarrow.table(release).num_rows == release.k
assert release.to_croissant("r")
dps.report(release, "r.html", audience="board")
assert main(["show", "r.zip"]) == 0
assert main(["infer", "r.zip", "--json"]) == 0
print("read")
plan = dps.plan(release.schema, release.analyses, budget=dps.PureDP(1))
dps.release(plan, "rows.csv", m=50)
"""


def test_reading_and_inferring_need_no_opendp_and_a_measurement_says_what_is_lacking(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"smoker": rng.random(900) < 0.3, "age": rng.integers(0, 99, 900)})
    schema = dps.Schema([dps.Boolean("smoker"), dps.Number("age", 0, 99, edges=[65], missing=40)])
    asked = {
        "share": dps.Proportion("smoker", given="age >= 65"),
        "link": dps.Independence("smoker", "age", simulations=99),
        "middle": dps.Quantile("age"),
    }
    saved = dps.release(dps.plan(schema, asked, budget=dps.PureDP(5)), rows, m=100)
    saved.save("r.zip")
    saved.measurements.save("m.zip")
    rows.to_csv("rows.csv", index=False)
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.endswith("read\n"), done.stderr
    assert done.returncode == 1
    assert "NoiseError" in done.stderr
    assert 'pip install "opendp' in done.stderr
