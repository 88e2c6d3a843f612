"""What the simulations share: data from a hidden-class model, tables, tolerances."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from dpstats.inference.simulation import draw_from
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
    """Measurements whose sums are the exact ones of `exact` plus fresh noise."""
    return replace(
        exact,
        measured=tuple(
            replace(
                block,
                sums=block.sums + _noise_of(block.scales, source),
                uniforms=source.uniforms(block.block.size),
            )
            for block in exact.measured
        ),
        not_private=True,
    )


def clopper_pearson(successes, runs, error=FAILURE):
    """Two-sided limits of a rate."""
    low = stats.beta.ppf(error / 2, successes, runs - successes + 1) if successes else 0.0
    high = stats.beta.isf(error / 2, successes + 1, runs - successes) if successes < runs else 1.0
    return low, high


def at_least(successes, runs, rate):
    """Whether the runs leave it possible that the method holds at `rate` or more."""
    return clopper_pearson(successes, runs)[1] >= rate


class Table:
    """Rows of (setting, method, coverage, width, reference figure, runs), printed at the end."""

    def __init__(self, title):
        self.title, self.rows = title, []

    def row(self, setting, method, coverage="", width="", reference="", runs=""):
        texts = [f"{x:.4f}" if isinstance(x, float) else str(x) for x in (coverage, width)]
        self.rows.append((setting, method, *texts, str(reference), str(runs)))

    def show(self):
        head = ("setting", "method", "coverage", "width", "reference", "runs")
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
        clopper_pearson=clopper_pearson,
        at_least=at_least,
    )
