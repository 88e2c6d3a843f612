"""Plausible private tables: their size, their noise and how closely they are fitted."""

import numpy as np
import pandas as pd

import dpstats as dps
from dpstats.measured.combining import Sources
from dpstats.rows import plausible
from dpstats.rows.plausible import PlausibleTables

N = 3_000


def released(budget, m=400, **options):
    """One table of 20 x 20 cells, hardly ten of them with rows."""
    schema = dps.Schema([dps.Category(name, list(range(20))) for name in "ab"])
    codes = np.minimum(np.random.default_rng(1).geometric(0.5, (N, 2)) - 1, 19)
    plan = dps.plan(schema, {"t": dps.Marginals(["a", "b"])}, budget=budget, **options)
    return dps.release(plan, pd.DataFrame(codes, columns=["a", "b"]), m=m, rng=1)


def tables_of(release):
    return PlausibleTables.near(release._sources, release.candidates, release.weights)


def drawn(release, count):
    """(count, cells) shares of plausible tables."""
    tables = tables_of(release)
    values = release.measurements.published.evaluate(tables.candidates)
    return np.array([values.average(tables.counts(s) / N) for s in range(count)])


def errors_of_large(release, count):
    """Errors of draws from the answers to large cells, in noise deviations, (count, cells)."""
    answers = release.answers(release.measurements.published)
    sd = np.sqrt(answers.noise_variances)
    return ((drawn(release, count) - answers.means) / sd)[:, answers.means > 6 * sd]


def test_without_noise_a_draw_is_the_table_itself():
    exact = released(dps.PureDP(200))
    answers = exact.answers(exact.measurements.published)
    assert np.abs(drawn(exact, 3) - answers.means).max() <= 1.01 / N


def test_between_draws_large_cells_have_the_variance_of_the_noise(monkeypatch):
    release = released(dps.PureDP(0.3), m=2_000)
    found = errors_of_large(release, 25)
    assert found.shape[1] >= 6
    assert abs(np.mean(found.std(axis=0, ddof=1)) - 1) < 0.2
    # without shrinkage, and without the bias of the many cells below zero
    assert abs(found.mean()) < 0.25
    # what is cut off at zero must come from somewhere: a close fit takes it from large cells
    monkeypatch.setattr(plausible, "LOOSE", 1.0)
    assert errors_of_large(release, 6).mean() < -0.5


def test_a_hidden_number_of_rows_is_drawn_too():
    release = released(dps.PureDP(0.3), unit="add_remove")
    tables = tables_of(release)
    sizes = [int(tables.counts(seed).sum()) for seed in range(20)]
    spread = np.sqrt(Sources(release.measurements).rows.law.variance)
    assert 0.5 < np.std(sizes) / spread < 1.7
    assert abs(np.mean(sizes) - release.n) < 4 * spread / 20**0.5
