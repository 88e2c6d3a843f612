"""Synthetic rows of all two-way tables: their errors, cost and use, from little budget to much.

    python tests/benchmarks/rows.py score --data DIR [--draws 5] [--only ma20 wide ..] [--limit 120]
    python tests/benchmarks/rows.py train --data DIR [--draws 3]

DIR has the files that data_sets.py names. Neighbours add or remove a row. The noise of a draw has a
seed, so that versions of the package can be compared. `score` synthesises in processes of their own
with one thread. Against the true table it prints the mean total variation of the two-way tables,
mean and largest error of their cells, and the share of rows with a pair of levels that no true row
has; also of as many rows of independent columns, drawn from the one-way answers of the same
measurements, and of true rows drawn again. Draws beyond `--limit` CPU seconds are left out.

`train` prints the area under the ROC curve of gradient boosting on true rows held out, trained on
synthetic rows and on true ones.
"""

import json
import os
import tempfile
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd
from data_sets import SOURCES, ma20
from measuring import apart, noise_of, parsed, peak

import dpstats as dps
from dpstats.measured.answers import answer
from dpstats.privacy.noise import _noise_from


class Truth:
    """The true rows, and how far others are from them."""

    def __init__(self, table):
        self.first, self.size = np.cumsum([0, *table.levels[:-1]]), sum(table.levels)
        column = np.repeat(np.arange(len(table.levels)), table.levels)
        self.between = column[:, None] != column
        self.shares = self.pairs(self.one_hot(table.rows))

    def one_hot(self, rows):
        """Indicators (n, levels) of the levels of all columns."""
        indicators = np.zeros((len(rows), self.size), np.float32)
        indicators[np.arange(len(rows))[:, None], rows + self.first] = 1
        return indicators

    def pairs(self, found):
        """Shares of all pairs of levels among these rows."""
        return (found.T @ found).astype(float) / len(found)

    def figures(self, rows):
        found, p = self.one_hot(rows), len(self.first)
        errors = np.abs(self.pairs(found) - self.shares)[self.between]  # of each table twice
        never = ((self.shares == 0) & self.between).astype(np.float32)
        impossible = ((found @ never) * found).any(axis=1)
        return {"two-way": errors.sum() / (2 * p * (p - 1)), "mean": errors.mean(),
                "max": errors.max(), "impossible": impossible.mean()}  # fmt: skip


def measured(name, table, size, draw):
    """Measurements with noise that has a seed."""
    plan = SOURCES[name].plan(table, size)
    with _noise_from(noise_of(plan.budget)(draw)):
        return dps.measure(plan, table.frame)


def synthesise(folder, draw):
    """Make the rows of a folder's measurements, save their codes, and print what that took."""
    import scipy.optimize
    import scipy.stats  # noqa: F401

    held = dps.Measurements.load(folder / "measured.zip")
    started = time.process_time()
    frame = dps.synthesize(held, rng=draw).to_frame()
    used = time.process_time() - started, peak()
    np.save(folder / "rows.npy", frame[list(held.schema.names)].to_numpy(np.int64))
    print(json.dumps(used))


def independent(held, n, rng):
    """Rows of independent columns with the shares of the one-way answers, as even as can be."""
    tables = dps.Marginals(held.schema.names, degree=1).family(held.schema)
    means = np.maximum(answer(held, tables).means, 0)
    columns = []
    for share in np.split(means, np.cumsum([table.size for table in tables.blocks[:-1]])):
        ends = np.cumsum(share if share.any() else share + 1)
        code = np.searchsorted(ends / ends[-1], (np.arange(n) + rng.random()) / n)
        columns.append(rng.permutation(code))
    return np.stack(columns, 1)


def score(given):
    for name in given.only or SOURCES:
        table = SOURCES[name].read(given.data)
        truth, n = Truth(table), len(table.rows)
        again = np.random.default_rng(5).integers(n, size=n)
        found = [{"budget": 0, "rows": "drawn again", **truth.figures(table.rows[again])}]
        for size in SOURCES[name].sizes:
            for draw in range(given.draws):
                held = measured(name, table, size, draw)
                with tempfile.TemporaryDirectory() as folder:
                    held.save(Path(folder) / "measured.zip")
                    used = apart(__file__, "synthesise", folder, "--draws", draw, limit=given.limit)
                    if used is None:
                        print(f"{name} {size:g} {draw}: failed, or over {given.limit} CPU s")
                        continue
                    rows = np.load(Path(folder) / "rows.npy")
                figures = truth.figures(rows) | dict(zip(("CPU s", "MB"), used, strict=True))
                found.append({"budget": size, "rows": "synthetic", **figures})
                figures = truth.figures(independent(held, len(rows), np.random.default_rng(draw)))
                found.append({"budget": size, "rows": "independent", **figures})
        means = pd.DataFrame(found).groupby(["budget", "rows"]).mean()
        print(f"\n{name}, means of {given.draws} draws\n{means.round(6).to_string()}", flush=True)


QUESTIONS = {  # a column, the codes that mean yes, and columns that would tell
    "income above the 5th decile": ("PINCP_DECILE", range(5, 10), ["PINCP"]),
    "owns the home": ("OWN_RENT", [1], []),
    "cognitive difficulty": ("DREM", [0], []),
}


def auc(question, train, test):
    """Area under the ROC curve, on `test`, of gradient boosting on `train`."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    column, yes, telling = QUESTIONS[question]
    x, y = train.drop(columns=[column, *telling]), train[column].isin(yes)
    if y.nunique() < 2:
        return 0.5
    model = HistGradientBoostingClassifier(random_state=0).fit(x, y)
    return roc_auc_score(test[column].isin(yes), model.predict_proba(test[x.columns])[:, 1])


def train(given):
    """Two thirds of the rows are measured, by every draw; the others are held out."""
    table = ma20(given.data)
    held_out, kept = np.split(np.random.default_rng(0).permutation(len(table.rows)),
                              [len(table.rows) // 3])  # fmt: skip
    test, kept = table.of(held_out).frame, table.of(kept)
    found = [{"trained on": "true rows"} | {q: auc(q, kept.frame, test) for q in QUESTIONS}]
    for epsilon in (1, 10):
        for draw in range(given.draws):
            held = measured("ma20", kept, epsilon, draw)
            rows = dps.synthesize(held, rng=draw).to_frame().astype(np.int64)
            areas = {question: auc(question, rows, test) for question in QUESTIONS}
            found.append({"trained on": f"epsilon {epsilon}"} | areas)
    areas = pd.DataFrame(found).groupby("trained on").agg(["min", "max", "mean"])
    print(areas.round(3).T.to_string())


if __name__ == "__main__":
    given = parsed(__doc__, {"work": ("score", "train", "synthesise"), "folder": [Path]},
                   data=Path, draws=5, only=[str], limit=3_600)  # fmt: skip
    if given.work == "synthesise":
        synthesise(*given.folder, given.draws)
    else:
        {"score": score, "train": train}[given.work](given)
