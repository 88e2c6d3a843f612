"""Synthetic rows of all two-way tables: their errors, cost and use, from little budget to much.

    python tests/benchmarks/rows.py measure FOLDER --data DIR [--draws 5] [--only ma20 wide ..]
    python tests/benchmarks/rows.py score FOLDER --data DIR [--draws 5] [--only ma20 wide ..]
        [--limit 120]
    python tests/benchmarks/rows.py train --data DIR [--epsilon 1 10] [--draws 3]

`measure` saves the measurements of every cell - a data set, a budget, a draw of the noise - as
FOLDER/NAME-BUDGET-DRAW.zip, so that versions of the package can be compared on the same noise;
cells that exist are left alone. Neighbours add or remove a row. The budget is (epsilon, 1e-5) or,
except for `ma20` and `ma30k`, (epsilon, 1e-9); for generated tables it is rho.

`score` synthesises the rows of every saved cell, in a process of its own with one thread, and
prints CPU seconds until the rows are there, imports not included, the peak memory of that process,
and, against the true table: mean total variation of the two-way tables, and of 150 three-way ones;
mean and largest error of a cell of the two-way tables; the share of rows with a pair of levels that
no true row has; distinct rows. Beside them stands the total variation of as many rows of
independent columns, drawn from the one-way answers of the same measurements, and of true rows drawn
with replacement. Means over draws come last, with the ratio of the two-way total variation to that
of independent columns and to that of the next smaller budget. Cells beyond `--limit` CPU seconds
are named and are not in the means.

`train` learns three yes-or-no questions on synthetic rows by gradient boosting, and prints the area
under the ROC curve on true rows held out, beside that of a model that saw the true rows.

DIR has the files that data_sets.py names.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from data_sets import SOURCES, Codes, ma20

import dpstats as dps
from dpstats.measured.answers import answer

TRIPLES, CHUNK = 150, 4096
HEADER = (
    f"{'table':<11}{'budget':>8}{'draw':>5}{'CPU s':>7}{'MB':>6}{'two':>8}{'indep.':>8}{'again':>8}"
    f"{'three':>8}{'again':>8}{'mean':>10}{'max':>9}{'imposs.':>8}{'distinct':>9}"
)


class Truth:
    """The true rows, and how far others are from them."""

    def __init__(self, table):
        self.levels = table.levels
        self.rows = table.rows

    @cached_property
    def first(self):
        """Where the levels of each column start among those of all columns, and where they end."""
        return np.r_[0, np.cumsum(self.levels)]

    def one_hot(self, rows):
        """Indicators of the levels of all columns, by chunks of rows."""
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK] + self.first[:-1]
            indicators = np.zeros((len(chunk), self.first[-1]), np.float32)
            indicators[np.arange(len(chunk))[:, None], chunk] = 1
            yield indicators

    def pairs(self, rows):
        """Shares of all pairs of levels among these rows."""
        counts = sum(chunk.T @ chunk for chunk in self.one_hot(rows))
        return counts.astype(float) / len(rows)

    @cached_property
    def truth(self):
        return self.pairs(self.rows)

    @cached_property
    def between(self):
        """Whether two levels are of different columns."""
        column = np.repeat(np.arange(len(self.levels)), self.levels)
        return column[:, None] != column

    @cached_property
    def triples(self):
        """Up to `TRIPLES` random triples of columns, with the true shares of their cells."""
        every = list(itertools.combinations(range(len(self.levels)), 3))
        chosen = np.random.default_rng(0).permutation(len(every))[:TRIPLES]
        return [(every[i], self.shares(self.rows, every[i])) for i in chosen]

    def shares(self, rows, columns):
        """Shares of the cells of the table of some columns."""
        shape = [self.levels[j] for j in columns]
        cells = np.ravel_multi_index(tuple(rows[:, j] for j in columns), shape)
        return np.bincount(cells, minlength=int(np.prod(shape))) / len(rows)

    def errors(self, rows):
        """Absolute errors of the cells of all tables of two columns, each table twice."""
        return np.abs(self.pairs(rows) - self.truth)[self.between]

    def two_way(self, errors):
        """Mean total variation of the tables of two columns."""
        p = len(self.levels)
        return errors.sum() / (2 * p * (p - 1))

    def three_way(self, rows):
        """Mean total variation of `triples`."""
        return np.mean(
            [np.abs(self.shares(rows, of) - true).sum() / 2 for of, true in self.triples]
        )

    def with_impossible(self, rows):
        """Share of rows with a pair of levels that no true row has."""
        never = ((self.truth == 0) & self.between).astype(np.float32)
        found = [((chunk @ never) * chunk).any(1) for chunk in self.one_hot(rows)]
        return np.concatenate(found).mean()

    def figures(self, rows):
        errors = self.errors(rows)
        return {
            "two": self.two_way(errors),
            "three": self.three_way(rows),
            "mean": errors.mean(),
            "max": errors.max(),
            "impossible": self.with_impossible(rows),
            "distinct": len({row.tobytes() for row in rows}),
        }


def cells(given, name):
    """Budgets of a data set, each with its draws and their files."""
    for size in SOURCES[name].sizes:
        yield (
            size,
            {draw: given.folder / f"{name}-{size:g}-{draw}.zip" for draw in range(given.draws)},
        )


def measure(given):
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.only or SOURCES:
        table = SOURCES[name].read(given.data)
        for size, files in cells(given, name):
            for path in files.values():
                if path.exists():
                    continue
                started = time.process_time()
                SOURCES[name].measure(table, size).save(path)
                print(f"{path.name:<28}{time.process_time() - started:>7.1f} CPU s", flush=True)


def synthesise(given):
    """Make the rows of a file of measurements, save their codes, and print what that took."""
    import scipy.optimize
    import scipy.stats  # noqa: F401

    measured = dps.Measurements.load(given.path)
    started = time.process_time()
    frame = dps.synthesize(measured, rng=given.draw).to_frame()
    used = [time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]
    np.save(given.rows, frame[list(measured.schema.names)].to_numpy(np.int64))
    print(json.dumps(used))


def in_a_process(path, draw, limit):
    """CPU seconds, peak MB and rows of `synthesise`; None where it fails or takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npy"
        done = subprocess.run(
            [sys.executable, __file__, "synthesise", path, str(draw), rows],
            stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
        )  # fmt: skip
        if done.returncode:
            return None
        seconds, peak = json.loads(done.stdout)
        return seconds, peak / 1024, np.load(rows)


def independent(measured, n, rng):
    """Rows of independent columns with the shares of the one-way answers, as even as can be."""
    tables = dps.Marginals(measured.schema.names, degree=1).family(measured.schema)
    means = np.maximum(answer(measured, tables).means, 0)
    columns = []
    for share in np.split(means, np.cumsum([table.size for table in tables.blocks[:-1]])):
        ends = np.cumsum(share if share.any() else share + 1)
        code = np.searchsorted(ends / ends[-1], (np.arange(n) + rng.random()) / n)
        columns.append(rng.permutation(code))
    return np.stack(columns, 1)


def figures(path, draw, truth, limit):
    """Figures of one cell; None as above."""
    made = in_a_process(path, draw, limit)
    if made is None:
        return None
    seconds, peak, rows = made
    apart = independent(dps.Measurements.load(path), len(rows), np.random.default_rng(draw))
    beside = truth.two_way(truth.errors(apart))
    return {"cpu": seconds, "mb": peak, "independent": beside} | truth.figures(rows)


def score(given):
    means = []
    print(HEADER)
    for name in given.only or SOURCES:
        truth = Truth(SOURCES[name].read(given.data))
        n = len(truth.rows)
        again = truth.figures(truth.rows[np.random.default_rng(5).integers(n, size=n)])
        again = {f"{key} again": again[key] for key in ("two", "three")}
        for size, files in cells(given, name):
            runs = []
            for draw, path in files.items():
                if not path.exists():
                    continue
                run = figures(path, draw, truth, given.limit)
                if run is None:
                    text = f"  failed, or took over {given.limit} CPU s"
                    print(f"{name:<11}{size:>8g}{draw:>5}{text}", flush=True)
                    continue
                runs.append(run | again)
                print(line(name, size, draw, runs[-1]), flush=True)
            if runs:
                mean = {key: np.mean([run[key] for run in runs]) for key in runs[0]}
                means.append((name, size, len(runs), mean))
    print(f"\nMeans over draws, whose number is under 'draw'\n{HEADER}{'/ indep.':>9}{'/ less':>8}")
    smaller = {}
    for name, size, draws, mean in means:
        less = f"{mean['two'] / smaller[name]:.3f}" if name in smaller else ""
        smaller[name] = mean["two"]
        ratio = mean["two"] / mean["independent"]
        print(f"{line(name, size, draws, mean)}{ratio:>9.3f}{less:>8}")


def line(name, size, draw, of):
    totals = "".join(
        f"{of[key]:>8.4f}" for key in ("two", "independent", "two again", "three", "three again")
    )
    return (
        f"{name:<11}{size:>8g}{draw:>5}{of['cpu']:>7.1f}{of['mb']:>6.0f}{totals}{of['mean']:>10.6f}"
        f"{of['max']:>9.5f}{of['impossible']:>8.4f}{of['distinct']:>9.0f}"
    )


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
    order = np.random.default_rng(0).permutation(len(table.rows))
    held_out = table.frame.iloc[order[: len(order) // 3]]
    measured = Codes(table.names, table.levels, table.rows[order[len(order) // 3 :]])
    print(f"{'trained on':<24}" + "".join(f"{question:>30}" for question in QUESTIONS))
    found = [auc(question, measured.frame, held_out) for question in QUESTIONS]
    print(f"{'true rows':<24}" + "".join(f"{value:>30.3f}" for value in found), flush=True)
    for epsilon in given.epsilon:
        runs = []
        for draw in range(given.draws):
            answers = SOURCES["ma20"].measure(measured, epsilon)
            rows = dps.synthesize(answers, rng=draw).to_frame().astype(np.int64)
            runs.append([auc(question, rows, held_out) for question in QUESTIONS])
        texts = [f"{r.min():.3f} to {r.max():.3f}, mean {r.mean():.3f}" for r in np.transpose(runs)]
        print(f"{f'epsilon {epsilon:g}':<24}" + "".join(f"{t:>30}" for t in texts), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for work in (measure, score, train):
        command = commands.add_parser(work.__name__)
        command.set_defaults(work=work)
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--draws", type=int, default=3 if work is train else 5)
        if work is train:
            command.add_argument("--epsilon", type=float, nargs="+", default=[1, 10])
            continue
        command.add_argument("folder", type=Path)
        command.add_argument("--only", nargs="+", choices=list(SOURCES))
        if work is score:
            command.add_argument("--limit", type=int, default=3_600, help="CPU seconds of a cell")
    command = commands.add_parser("synthesise", help="one cell; what `score` calls")
    command.set_defaults(work=synthesise)
    command.add_argument("path", type=Path)
    command.add_argument("draw", type=int)
    command.add_argument("rows", type=Path)
    given = parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
