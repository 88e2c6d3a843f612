"""What the simulations share: data from a hidden-class model, and tables with their tolerances.

What a test allows is what its table prints: `Table.covers`, `level` and `check` write a row with
the limits in its last column, and fail where the figure is outside them.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.inference.simulation import draw_from
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.privacy.gaussian import DiscreteGaussian

FAILURE = 1e-6  # a right method fails one of these checks about once in a million runs


class Gaussian:
    """Discrete Gaussian noise and uniforms with a seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, scale, size):
        return draw_from(DiscreteGaussian(scale), size, self.rng).astype(np.int64)

    def uniforms(self, size):
        return self.rng.random(size) - 0.5


def latent_codes(sizes, n, rng, classes=6):
    """(n,) codes per column: categories independent inside each of some hidden classes."""
    of = rng.choice(classes, n, p=rng.dirichlet(np.full(classes, 3.0)))
    columns = []
    for size in sizes:
        upper = rng.dirichlet(np.full(size, 0.6), classes).cumsum(axis=1)[of]
        columns.append(np.minimum((rng.random((n, 1)) > upper).sum(axis=1), size - 1))
    return columns


def _noise_of(scales, source):
    """One noise per function, of its own scale."""
    noise = np.zeros(len(scales), dtype=np.int64)
    for scale in np.unique(scales):
        same = np.flatnonzero(scales == scale)
        noise[same] = source(float(scale), len(same))
    return noise


def with_noise(exact, source):
    """Measurements whose sums of the family are the exact ones of `exact` plus fresh noise."""
    sums, uniforms = exact.noisy_sums.copy(), exact.uniforms.copy()
    start = 0
    for block in exact.measured:
        piece = slice(start, start := start + block.block.size)
        sums[piece] += _noise_of(block.scales, source)
        uniforms[piece] = source.uniforms(block.block.size)
    return replace(exact, noisy_sums=sums, uniforms=uniforms, not_private=True)


def fresh(plan, n, draw, runs, seed, laplace):
    """What analyses see of fresh rows with fresh noise: what was drawn, measurements and a view.

    `draw(rng)` gives the codes of n rows by column, or the exact sums of the plan's family.
    """
    rng = np.random.default_rng(seed)
    source = (laplace if plan.budget.noise == "laplace" else Gaussian)(seed + 1)
    strategy = plan.strategy if plan.count is not None else replace(plan.strategy, n=n)
    for _ in range(runs):
        drawn = draw(rng)
        sums = [drawn] if isinstance(drawn, np.ndarray) else plan.family.sums(drawn)
        if plan.count is not None:
            (scale,) = plan.strategy.scales_of(plan.count)
            sums = [*sums, n + source(float(scale), 1)]
        sums = np.concatenate(sums)
        exact = Measurements(strategy, sums, np.zeros(len(sums)), not_private=True)
        held = with_noise(exact, source)
        yield drawn, held, SimpleNamespace(
            schema=plan.schema, n=held.n, budget=plan.budget,
            answers=lambda wanted, held=held, **options: answer(held, wanted, **options),
            candidates=dict.fromkeys(plan.schema.names, np.zeros(1, np.int64)), weights=np.ones(1),
        )  # fmt: skip


def clopper_pearson(successes, runs, error=FAILURE):
    """Two-sided limits of a rate."""
    low = stats.beta.ppf(error / 2, successes, runs - successes + 1) if successes else 0.0
    high = stats.beta.isf(error / 2, successes + 1, runs - successes) if successes < runs else 1.0
    return low, high


def at_least(successes, runs, rate):
    """Whether the runs leave it possible that the method holds at `rate` or more."""
    return clopper_pearson(successes, runs)[1] >= rate


class Table:
    """Rows that are printed at the end: a figure, a width, what is claimed and what passes."""

    HEAD = ("setting", "method", "figure", "width", "reference", "runs", "passes")

    def __init__(self, title):
        self.title, self.rows = title, []

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
def tools(seeded_noise):
    """The helpers of this file, since test files cannot import each other."""
    return SimpleNamespace(
        Laplace=seeded_noise,
        Gaussian=Gaussian,
        latent_codes=latent_codes,
        with_noise=with_noise,
        fresh=partial(fresh, laplace=seeded_noise),
        clopper_pearson=clopper_pearson,
        at_least=at_least,
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "simulate(settings, few, runs): `few` of the settings in runs[0] runs, and all "
        "of them, in a slow test, in runs[1]"
    )  # fmt: skip


def pytest_generate_tests(metafunc):
    """A simulation has a fast test, whose few runs can fail, and a slow one that sees more."""
    for mark in metafunc.definition.iter_markers("simulate"):
        settings, few, runs = mark.args[0], mark.kwargs["few"], mark.kwargs["runs"]
        cases = [pytest.param(settings[i], runs[0], id=f"few-{_shown(settings[i])}") for i in few]
        cases += [
            pytest.param(setting, runs[1], id=_shown(setting), marks=pytest.mark.slow)
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
