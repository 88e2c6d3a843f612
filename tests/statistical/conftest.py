"""What the simulations share: data from a hidden-class model, and tables with their tolerances.

What a test allows is what its table prints: `Table.covers`, `level` and `check` write a row with
the limits in its last column, and fail where the figure is outside them.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import dpstats as dps
from dpstats.measured.combining import Sources
from dpstats.measured.view import View

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
interval_settings = import_module("interval_settings")  # populations, plans and truths
measuring = import_module("measuring")

FAILURE = 1e-6  # a right method fails one of these checks about once in a million runs


def latent_codes(sizes, n, rng, classes=6):
    """(n,) codes per column: categories independent inside each of some hidden classes."""
    of = rng.choice(classes, n, p=rng.dirichlet(np.full(classes, 3.0)))
    columns = []
    for size in sizes:
        upper = rng.dirichlet(np.full(size, 0.6), classes).cumsum(axis=1)[of]
        columns.append(np.minimum((rng.random((n, 1)) > upper).sum(axis=1), size - 1))
    return columns


class Measured:
    """Inference without a fit: the density is that of the private rows."""

    def __init__(self, held, rows):
        self.view = View(Sources(held), held.n)
        columns = {column.name: column for column in held.schema if column.name in rows}
        self.view.candidates = {x: c.encode(pa.array(rows[x])) for x, c in columns.items()}
        self.view.weights = np.full(len(rows), 1 / len(rows))

    def infer(self, analysis):
        return analysis.infer(self.view)


def simulated(setting, runs, fitted):
    """The population of a setting of the benchmarks, and rows and a release, in every run.

    In few runs the population has a tenth of its rows, which takes less time.
    """
    rng = np.random.default_rng(1)
    with pytest.MonkeyPatch.context() as patch:
        if runs < 100:
            patch.setattr(interval_settings, "POPULATION", interval_settings.POPULATION // 10)
        population, plan = setting.table(), setting.plan()
    for run in range(runs):
        rows = setting.draw(population, rng)
        held = dps.measure(plan, rows)
        fit = dps.synthesize(held, m=1, k=1, rng=run) if fitted else Measured(held, rows)
        yield population, rows, fit


class Table:
    """Rows that are printed at the end: a figure, a width, what is claimed and what passes."""

    HEAD = ("setting", "method", "figure", "width", "reference", "runs", "passes")

    def __init__(self, title):
        self.title, self.rows = title, []
        self.held, self.rejected = {}, {}

    def row(self, setting, method, figure="", width="", reference="", runs="", passes=""):
        """A row for the reader: nothing is compared."""
        texts = [f"{x:.4f}" if isinstance(x, float) else str(x) for x in (figure, width)]
        self.rows.append((str(setting), method, *texts, str(reference), str(runs), passes))

    def check(
        self, setting, method, figure, width="", reference="", runs="", least=-np.inf, most=np.inf
    ):
        """A row whose figure must lie between two limits."""
        passes = [f"{sign} {end:.6g}" for sign, end in ((">=", least), ("<=", most))
                  if np.isfinite(end)]  # fmt: skip
        self.row(setting, method, float(figure), width, reference, runs, ", ".join(passes))
        assert least <= figure <= most, (setting, method, figure, *passes)

    def covers(self, setting, method, successes, runs, rate=0.95, width=""):
        """A row of coverage: fails where the runs rule out that it is `rate` or more."""
        least = stats.binom.ppf(FAILURE / 2, runs, rate) / runs
        assert least > 0, f"{runs} runs pass whatever they show"
        reference = f">= {rate:g}"
        self.check(setting, method, int(successes) / runs, width, reference, runs, least=least)

    def level(self, setting, method, rejections, runs, rate=0.05):
        """A row of the share of false rejections: fails where the runs rule out `rate` or less."""
        most = stats.binom.isf(FAILURE / 2, runs, rate) / runs
        self.check(setting, method, int(rejections) / runs, "", f"<= {rate:g}", runs, most=most)

    def hold(self, what, ends, truth, rate=0.95, jointly=False):
        """Note which intervals (..., 2) of one run hold their values; `finish` compares."""
        low, high = np.moveaxis(np.asarray(ends, dtype=float), -1, 0)
        inside, widths = np.ravel((low <= truth) & (truth <= high)), np.ravel(high - low)
        noted = ([inside.all()], [widths.mean()]) if jointly else (inside, widths)
        self.held.setdefault(what, (rate, []))[1].append(noted)

    def reject(self, what, pvalue, rate=0.05, alpha=0.05):
        """Note whether the test of one run rejects what is true."""
        self.rejected.setdefault(what, (rate, []))[1].append(pvalue <= alpha)

    def finish(self, setting, usual=None):
        """Compare all that was noted with the rates that were asked for, and usual widths."""
        for what, (rate, runs) in self.held.items():
            inside, widths = map(np.array, zip(*runs, strict=True))
            several = inside.shape[1] > 1
            for i, width in enumerate(np.median(widths, axis=0)):
                name = f"{what} {i}" if several else what
                self.covers(setting, name, inside[:, i].sum(), len(runs), rate, float(width))
                if name in (usual or {}):
                    wide = f"{name}, median width"
                    self.check(setting, wide, width, runs=len(runs), most=1.2 * usual[name])
        for what, (rate, runs) in self.rejected.items():
            self.level(setting, what, np.sum(runs), len(runs), rate)

    def show(self):
        head = self.HEAD
        widths = [max(map(len, column)) for column in zip(head, *self.rows, strict=True)]
        print(f"\n{self.title}")
        for row in (head, *self.rows):
            print("  " + "  ".join(f"{text:<{w}}" for text, w in zip(row, widths, strict=True)))


@pytest.fixture
def table(request):
    """A table that prints when the test ends, also when it fails (pytest -s shows it)."""
    shown = Table(request.node.name)
    yield shown
    if shown.rows:
        shown.show()


@pytest.fixture(scope="session")
def tools():
    """The helpers of this file, since test files cannot import each other."""
    names = "Laplace", "noise_of", "with_noise", "fresh"
    shared = {name: getattr(measuring, name) for name in names}
    return SimpleNamespace(latent_codes=latent_codes, simulated=simulated, **shared)


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "simulate(settings, few, runs): some settings, by number, in runs[0] runs, or a "
        "mapping of settings to runs; and all of them, in a slow test, in runs[1], or what it "
        "gives for the setting"
    )  # fmt: skip


def pytest_generate_tests(metafunc):
    """A simulation has a fast test, whose few runs can fail, and a slow one that sees more."""
    for mark in metafunc.definition.iter_markers("simulate"):
        settings, few, runs = mark.args[0], mark.kwargs["few"], mark.kwargs["runs"]
        fast = (
            [(settings[i], runs[0]) for i in few] if isinstance(few, tuple | list) else few.items()
        )
        cases = [pytest.param(*case, id=f"few-{_shown(case[0])}") for case in fast]
        many = runs[1] if callable(runs[1]) else lambda _, same=runs[1]: same
        cases += [
            pytest.param(setting, many(setting), id=_shown(setting), marks=pytest.mark.slow)
            for setting in settings
        ]
        metafunc.parametrize(("setting", "runs"), cases)


def _shown(setting):
    """A name that is the same in every process, as those of parallel tests must be."""
    if isinstance(setting, tuple | list):
        return "-".join(filter(None, map(_shown, setting)))
    if isinstance(setting, dps.PureDP | dps.ZCDP | dps.ApproxDP):
        return str(setting).split(" (")[0]
    if callable(setting):
        return setting.__name__
    return "" if isinstance(setting, np.ndarray | dps.Schema) else str(setting)
