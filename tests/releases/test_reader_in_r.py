"""docs/r/dpstats.R reproduces estimates and noise-aware intervals from the file alone."""

import json
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy.noise import _noise_from

READER = Path(__file__).parents[2] / "docs" / "r" / "dpstats.R"
ESTIMATE, END = 1e-8, 1e-6  # of a share, and of the width of an interval
SCRIPT = """
options(digits = 17)
source(commandArgs(TRUE)[1])
asked <- jsonlite::fromJSON(commandArgs(TRUE)[2], simplifyVector = FALSE)
answer <- function(one) tryCatch({
  release <- dps_open(one$file)
  found <- if (!is.null(one$name)) dps_infer(release, one$name, one$alpha)
           else if (!is.null(one$condition)) dps_proportion(release, one$condition, one$alpha)
           else dps_table(release, unlist(one$columns), one$alpha)
  found <- found[c("estimate", "conf_low", "conf_high")]
  list(rows = unname(lapply(seq_len(nrow(found)), function(i) unname(as.list(found[i, ])))))
}, error = function(error) list(error = conditionMessage(error)))
cat(jsonlite::toJSON(lapply(asked, answer), auto_unbox = TRUE, digits = NA))
"""
SCHEMA = dps.Schema([
    dps.Category("smoker", ["no", "yes"]),
    dps.Category("region", {"it's north": 1, "south": 2, "west": 3}),
    dps.Number("age", 0, 120, edges=[18, 65.5], missing=40, closed="right"),
    dps.Boolean("flag", allow_missing=True), dps.Number("score", values=[17.5, 22, 27]),
    dps.Number("day", "2020-01-01", "2020-12-31", edges=["2020-06-01"]),
])  # fmt: skip
CONDITIONS = [
    "smoker == 'yes' and region in [\"it's north\", 'west']",
    "not (smoker == 'yes' or region != 'south')",
    "smoker == 'yes' & score >= 22",
    "smoker == 'no' or age <= 65.5",
]
SIMPLE = {
    "smoking": dps.Proportion("smoker == 'yes'"),
    "young": dps.Proportion("age <= 18 or day >= '2020-06-01'"),
    "there": dps.Proportion("flag != '(missing)'"),
    "table": dps.Marginals(["smoker", "region"]),
}
OVERLAPPING = {
    "smoking": dps.Proportion("smoker == 'yes'"),
    "pairs": dps.Marginals(["smoker", "region", "score"], degree=2),
    "three": dps.Marginals(["smoker", "age", "score"], degree=3),
    "mean": dps.Mean("age"),
}
PAIRS = {name: OVERLAPPING[name] for name in ("smoking", "pairs")}
LARGE = {"pairs", "three"}  # R takes a third of a second for one of their cells
CASES = {
    "laplace": (SIMPLE, dps.PureDP(1), "replace"),
    "gaussian": (SIMPLE, dps.ZCDP(0.01), "replace"),
    "overlapping": (OVERLAPPING, dps.PureDP(1), "replace"),
    "residuals": (OVERLAPPING, dps.ApproxDP(0.5, 1e-8), "replace"),
    "measured n, residuals": (PAIRS, dps.ZCDP(0.05), "add_remove"),
    "measured n, sets of rows": (SIMPLE, dps.PureDP(1), "add_remove"),
}


def in_r(folder, asked):
    """What the reader answers to a list of questions."""
    (folder / "asked.json").write_text(json.dumps(asked))
    (folder / "script.R").write_text(SCRIPT)
    done = subprocess.run(
        ["Rscript", "--vanilla", "script.R", str(READER), "asked.json"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def _r():
    if shutil.which("Rscript") is None:
        pytest.skip("Rscript is not installed")
    if subprocess.run(["Rscript", "-e", "library(jsonlite)"], capture_output=True).returncode:
        pytest.skip("R has no package jsonlite")


@pytest.fixture(scope="module")
def survey_in_r():
    rng = np.random.default_rng(4)
    n = 1_500
    return pd.DataFrame({
        "smoker": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
        "region": rng.choice([1, 2, 3], n, p=[0.5, 0.495, 0.005]),  # a cell is nearly empty
        "age": rng.integers(0, 110, n),
        "flag": rng.choice([True, False, None], n),
        "score": rng.choice([17.5, 22, 27], n),
        "day": pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 200, n), "D"),
    })  # fmt: skip


@pytest.mark.usefixtures("_r")
@pytest.mark.parametrize("left_out", [LARGE, pytest.param(set(), marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_proportions_and_tables(case, left_out, survey_in_r, seeded_noise, tmp_path):
    """Of large tables the usual tests ask for the cells of one pair of columns."""
    asked, budget, unit = CASES[case]
    plan = dps.plan(SCHEMA, asked, budget=budget, unit=unit)
    with _noise_from(seeded_noise(5)):
        release = dps.release(plan, survey_in_r, m=500, rng=1)
    release.save(tmp_path / "r.zip")
    questions, results = [], []
    for name in asked:
        if name not in {"mean", *left_out}:
            questions.append({"name": name, "alpha": 0.05})
            results.append(release.infer(name).to_frame())
    for condition in CONDITIONS:
        with suppress(dps.NotMeasuredError):
            results.append(release.infer(dps.Proportion(condition)).to_frame(alpha=0.1))
            questions.append({"condition": condition, "alpha": 0.1})
    assert "condition" in questions[-1]
    questions.append({"columns": ["region", "smoker"], "alpha": 0.01})
    results.append(release.infer(dps.Marginals(["smoker", "region"])).to_frame(alpha=0.01))
    answers = in_r(tmp_path, [{"file": "r.zip", **one} for one in questions])
    for question, answer, frame in zip(questions, answers, results, strict=True):
        assert "rows" in answer, (question, answer)
        found = np.array(answer["rows"], dtype=np.float64)
        expected = frame[["estimate", "conf_low", "conf_high"]].to_numpy()
        assert np.abs(found[:, 0] - expected[:, 0]).max() <= ESTIMATE, question
        width = expected[:, 2] - expected[:, 1]
        tolerance = END * np.where(width > 0, width, 1e-2)[:, np.newaxis]
        assert np.all(np.abs(found[:, 1:] - expected[:, 1:]) <= tolerance), question


@pytest.mark.usefixtures("_r")
def test_what_the_reader_does_not_answer(survey_in_r, tmp_path):
    asked = SIMPLE | {
        "within": dps.Proportion("smoker == 'yes'", given="region == 'south'"),
        "of those asked": dps.Proportion("flag"),
        "mean": dps.Mean("age"),
    }
    drawn = replace(SCHEMA, design=dps.Design("age", mean=40, cap=80, unit="score"))
    for name, plan in {
        "r": dps.plan(SCHEMA, asked, budget=dps.PureDP(1)),
        "persons": dps.plan(SCHEMA, SIMPLE, budget=dps.PureDP(1), rows_per_person=3),
        "survey": dps.plan(drawn, SIMPLE, budget=dps.PureDP(1)),
    }.items():
        dps.release(plan, survey_in_r, m=500, k=50).save(tmp_path / f"{name}.zip")
    (tmp_path / "no.zip").write_bytes(b"PK nothing")
    questions = {
        "infer 'within' with the Python package": {"name": "within"},
        "infer 'mean' with the Python package": {"name": "mean"},
        "a value of flag; infer it with the Python package": {"name": "of those asked"},
        "there is no analysis 'none'": {"name": "none"},
        "rows have weights": {"name": "table", "file": str(tmp_path / "survey.zip")},
        "were not measured together": {"columns": ["age", "score"]},
        "compare at declared edges": {"condition": "age > 20"},
        "'maybe' is not a level of 'smoker'": {"condition": "smoker == 'maybe'"},
        "cannot read the condition": {"condition": "smoker = 'yes'"},
        "alpha must be": {"columns": ["smoker"], "alpha": 0.7},
        "a person may have 3 rows": {"file": "persons.zip", "columns": ["smoker"]},
        "is not a release of dpstats": {"file": "no.zip", "name": "smoking"},
    }
    asked_of = [{"file": "r.zip", "alpha": 0.05, **one} for one in questions.values()]
    for sentence, answer in zip(questions, in_r(tmp_path, asked_of), strict=True):
        assert sentence in answer.get("error", ""), answer
