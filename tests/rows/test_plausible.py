"""Plausible private tables: their size, their noise and how closely they are fitted."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.measured.combining import Sources
from dpstats.rows import plausible
from dpstats.rows.plausible import PlausibleTables

SIZES = {"a": 4, "b": 6}
SCHEMA = dps.Schema([dps.Category(name, list(range(k))) for name, k in SIZES.items()])
N = 3_000


def released(budget, unit="replace", seed=3):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"a": rng.choice(4, N, p=[0.5, 0.3, 0.19, 0.01]),
                         "b": rng.choice(6, N, p=[0.4, 0.3, 0.2, 0.08, 0.01, 0.01])})  # fmt: skip
    plan = dps.plan(SCHEMA, {"t": dps.Marginals(["a", "b"])}, budget=budget, unit=unit)
    return dps.release(plan, rows, m=400, rng=1)


@pytest.fixture(scope="module")
def exact():
    return released(dps.PureDP(200))


@pytest.fixture(scope="module")
def noisy():
    return released(dps.PureDP(0.3))


def tables_of(release):
    return PlausibleTables.near(release._sources, release.candidates, release.weights)


def drawn(release, count=40):
    """(count, cells) shares of plausible tables."""
    tables = tables_of(release)
    values = release.measurements.published.evaluate(tables.candidates)
    return np.array([values.average(tables.counts(s) / N) for s in range(count)])


def test_without_noise_a_draw_is_the_table_itself(exact):
    family = exact.measurements.published
    assert np.abs(drawn(exact, 3) - exact.answers(family).means).max() <= 1.01 / N


def test_between_draws_large_cells_have_the_variance_of_the_noise(noisy):
    family = noisy.measurements.published
    answers = noisy.answers(family)
    found = drawn(noisy)
    sd = np.sqrt(answers.noise_variances)
    large = answers.means > 6 * sd
    assert large.sum() >= 6
    ratio = found.std(axis=0, ddof=1)[large] / sd[large]
    assert abs(np.mean(ratio) - 1) < 0.2  # 40 draws of 6 and more cells
    # without shrinkage, and without the bias of the many cells below zero
    assert abs(np.mean((found.mean(axis=0) - answers.means)[large] / sd[large])) < 0.25


def test_loose_fits_keep_the_errors_of_hidden_cells_from_large_ones(monkeypatch):
    # 20 x 20 cells, hardly ten of them with rows: what is cut off at zero must come from somewhere.
    schema = dps.Schema([dps.Category(name, list(range(20))) for name in "ab"])
    rng = np.random.default_rng(1)
    codes = np.minimum(rng.geometric(0.5, (2, N)) - 1, 19)
    plan = dps.plan(schema, {"t": dps.Marginals(["a", "b"])}, budget=dps.PureDP(0.3))
    release = dps.release(plan, pd.DataFrame({"a": codes[0], "b": codes[1]}), m=2_000, rng=1)
    loose = shift_of_large(release).mean()
    monkeypatch.setattr(plausible, "LOOSE", 1.0)
    assert shift_of_large(release).mean() < min(loose, 0) - 0.3


def shift_of_large(release):
    """How far the mean of draws is from the answers to large cells, in noise deviations."""
    answers = release.answers(release.measurements.published)
    sd = np.sqrt(answers.noise_variances)
    large = answers.means > 6 * sd
    return ((drawn(release, 10).mean(axis=0) - answers.means) / sd)[large]


def test_a_hidden_number_of_rows_is_drawn_too():
    release = released(dps.PureDP(0.3), unit="add_remove")
    tables = tables_of(release)
    sizes = [int(tables.counts(seed).sum()) for seed in range(30)]
    spread = np.sqrt(Sources(release.measurements).rows.law.variance)
    assert 0.5 < np.std(sizes) / spread < 1.7
    assert abs(np.mean(sizes) - release.n) < 4 * spread / 30**0.5
