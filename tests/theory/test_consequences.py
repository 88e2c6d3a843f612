"""Errors of statistics from the accuracy of rows: never exceeded, attained where they can be."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpstats import theory
from dpstats.errors import RequestError


def test_the_margin_of_a_proportion_covers():
    """Exact for 50 rows and the worst shift of delta; the bound is Hoeffding's."""
    n, delta = 50, 0.03
    margin = theory.proportion_margin(delta, n, alpha=0.1)
    assert margin == pytest.approx(delta + math.sqrt(math.log(20) / 100))
    counts = np.arange(n + 1)
    for p, shift in itertools.product((0.05, 0.3, 0.5), (-delta, delta)):
        missed = np.abs(counts / n + shift - p) > margin
        assert stats.binom.pmf(counts, n, p)[missed].sum() <= 0.1


def test_chi_square():
    rng = np.random.default_rng(0)
    n, q = 500, np.array([0.1, 0.2, 0.3, 0.4])

    def statistic(p):
        return n * ((p - q) ** 2 / q).sum()

    largest = 0
    for _ in range(100):
        p, delta = rng.dirichlet(q * 30), rng.uniform(0.001, 0.05)
        private = p + delta * np.sign(p - q)  # the farthest within the box
        error = theory.chi_square_error(delta, n, q, statistic(p))
        moved = abs(statistic(private) - statistic(p))
        assert moved <= error * (1 + 1e-12)
        largest = max(largest, moved / error)
    assert largest > 0.9
    even = theory.chi_square_error(0.01, n, np.full(4, 0.25), statistic=0)
    assert even == pytest.approx(500 * 4 * 0.01**2 / 0.25)  # attained at p = q


def test_matrices():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p, delta = int(rng.integers(1, 6)), float(rng.uniform(0.001, 0.05))
        rows = np.clip(rng.uniform(-1, 1, (200, p + 1)) @ (np.eye(p + 1) + 0.3) / 2, -1, 1)
        moved = np.sign(rng.normal(size=(p + 1, p + 1))) * delta
        of_y = rows.T @ rows / 200  # and one with entries within delta of it
        of_x = of_y + np.triu(moved) + np.triu(moved, 1).T
        a, b = of_y[:p, :p], of_x[:p, :p]
        bound = theory.covariance_error(delta, p)
        assert np.linalg.norm(b - a, 2) <= bound * (1 + 1e-12)
        values, vectors = np.linalg.eigh(a)
        turned = np.linalg.eigh(b)[1]
        sines = np.sqrt(np.clip(1 - (vectors * turned).sum(axis=0) ** 2, 0, 1))[::-1]
        assert (sines <= theory.principal_component_sines(delta, values[::-1]) + 1e-9).all()
        error = theory.precision_error(delta, p, values[0])
        if math.isfinite(error):
            difference = np.linalg.inv(b) - np.linalg.inv(a)
            assert np.linalg.norm(difference, 2) <= error * (1 + 1e-9)
        coefficients = np.linalg.solve(a, of_y[:p, p])
        error = theory.least_squares_error(delta, values[0], coefficients)
        if math.isfinite(error):
            private = np.linalg.solve(b, of_x[:p, p])
            assert np.linalg.norm(private - coefficients) <= error * (1 + 1e-9)
    # A centred one moves up to three times as much, at a mean near one.
    delta, mean, square = 1e-4, 0.999, 0.9985
    moved = (square + delta - (mean - delta) ** 2) - (square - mean**2)
    assert theory.covariance_error(delta, 1) < moved
    assert moved <= theory.covariance_error(delta, 1, centred=True) <= 1.001 * moved


def test_nothing_promised_is_an_infinite_bound():
    nothing = 8 * theory.UniformSampling(epsilon=1, gamma=0.05, functions=10, cells=5).delta(5)
    for bound in (
        theory.proportion_margin(nothing, 5),
        theory.chi_square_error(nothing, 5, [0.5, 0.5], 1.0),
        theory.covariance_error(nothing, 3),
        theory.least_squares_error(nothing, 0.3, [0.0]),
        theory.precision_error(nothing, 3, 0.2),
        theory.excess_risk(nothing, 1.0, 0.1, bound=0),
    ):
        assert bound == math.inf
    assert theory.principal_component_sines(nothing, [0.9, 0.3]).tolist() == [1, 1]


def test_the_excess_risk_of_a_minimiser_over_a_grid():
    """Absolute loss |y - b| / 2, b in [0, 1]; X and Y differ by delta at the points of a grid."""
    rng = np.random.default_rng(4)
    mesh, fine = 0.05, np.linspace(0, 1, 2001)
    points = (2 * np.arange(theory.grid_size(1, side=1, mesh=mesh)) + 1) * mesh
    assert np.abs(fine[:, None] - points).min(axis=1).max() <= mesh + 1e-12
    worst = 0
    for _ in range(50):
        private, rows = rng.beta(2, 3, 40), rng.beta(2, 3, 30)
        risk = [np.abs(fine[:, None] - sample).mean(axis=1) / 2 for sample in (private, rows)]
        at = [np.abs(points[:, None] - sample).mean(axis=1) / 2 for sample in (private, rows)]
        delta = np.abs(at[0] - at[1]).max()
        excess = risk[0][risk[1].argmin()] - risk[0].min()
        bound = theory.excess_risk(delta, 0.5, mesh)
        assert np.abs(risk[0] - risk[1]).max() <= bound / 2 + 1e-12
        worst = max(worst, excess / bound)
    assert 0 < worst <= 1


def test_what_is_refused():
    for make, message in [
        (lambda: theory.proportion_margin(-0.1, 10), "delta must not be negative"),
        (lambda: theory.chi_square_error(0.1, 10, [0.5, 0.4], 1), "positive shares with sum one"),
        (lambda: theory.principal_component_sines(0.1, [0.1, 0.2]), "descending order"),
        (lambda: theory.grid_size(2, side=1, mesh=0), "mesh must be positive"),
    ]:
        with pytest.raises(RequestError, match=message):
            make()
