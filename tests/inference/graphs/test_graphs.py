"""The inverse of noisy moments, its (partial) correlations, trees and sparse pictures."""

from dataclasses import replace

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.graphs.noisy_precision import NoisyPrecision
from dpstats.analyses.graphs.pair_intervals import MarginalIntervals, PairLaws, PartialIntervals
from dpstats.analyses.graphs.sparse_graphs import clime, graphical_lasso, positive_definite
from dpstats.analyses.graphs.tree import spanning_tree, tree_verdicts
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.measured.combining import Sources
from dpstats.measured.view import View
from dpstats.privacy.noise import _noise_from

HALF, NAMES = 200, tuple("abcd")
PAIRS = np.array(np.triu_indices(4, 1))
SCHEMA = dps.Schema([dps.Number(x, -4, 4, points=2 * HALF + 1, missing=0) for x in NAMES])


def chain_rows(n=5_000):
    """Codes of rows whose graph is a chain, roughly."""
    rows = np.random.default_rng(0).standard_normal((n, 4))
    for i in range(1, 4):
        rows[:, i] = 0.1 + 0.6 * rows[:, i - 1] + 0.8 * rows[:, i]
    return np.rint(rows / 4 * HALF)


def covariance_of(epsilon, rows=None, *, unit="replace", clip_norm=None, budget=None):
    """Of coded rows (n, 4) that are the fitted density too, without noise but with its laws."""
    rows = np.clip(chain_rows() if rows is None else rows, -HALF, HALF).astype(np.int64)
    analysis = dps.GraphicalModel(NAMES, clip_norm=clip_norm)
    plan = dps.plan(
        SCHEMA, {"g": analysis}, budget=budget or dps.PureDP(epsilon), unit=unit,
        n=len(rows) if unit == "replace" else None,
    )  # fmt: skip
    with _noise_from(lambda scale, size: np.zeros(size, np.int64)):
        held = dps.measure(plan, SCHEMA.to_frame(dict(zip(NAMES, rows.T, strict=True))))
    view = View(Sources(held), held.n)
    view.candidates = dict(zip(NAMES, rows.T, strict=True))
    view.weights = np.full(len(rows), 1 / len(rows))
    ball = None if clip_norm is None else analysis.family(SCHEMA).blocks[0]
    return NoisyCovariance.of(view, NAMES, ball=ball)


def test_without_noise_it_is_the_inverse():
    """And its bounds for the table are of numpy's divisor."""
    rows = chain_rows(50)
    precision = NoisyPrecision(covariance_of(10**7, rows))
    exact = np.linalg.inv(np.cov((rows / HALF).T))
    np.testing.assert_allclose(precision.matrix, exact * 50 / 49, rtol=1e-3)
    assert not precision.singular
    low, high = precision.bounds(0.05, "table")
    assert np.all((low <= exact + 1e-9) & (exact <= high + 1e-9))
    assert (high - low).max() < 0.01 * np.abs(exact).max()


def test_the_bias_of_the_noise_is_taken_off():
    """The mean over noise of the plain inverse is far off, that of the corrected one is not."""
    covariance = covariance_of(2)
    exact, sd = covariance.plain, np.sqrt(NoisyPrecision(covariance).noise_variances)
    rng, plain, corrected = np.random.default_rng(1), [], []
    for _ in range(600):
        noise = np.triu(rng.standard_normal((4, 4)))
        noisy = replace(covariance)
        noisy.__dict__["plain"] = exact + (noise + np.triu(noise, 1).T) * sd
        precision = NoisyPrecision(noisy)
        precision.__dict__["singular"] = False
        plain.append(np.linalg.inv(noisy.plain))
        corrected.append(precision.matrix)
    off = [
        np.abs(np.mean(found, axis=0) - np.linalg.inv(exact)) / np.std(found, axis=0) * 600**0.5
        for found in (plain, corrected)
    ]
    assert off[0].max() > 4.5
    assert off[1].max() < 4


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_variances_of_the_noise_on_entries_are_those_of_draws(clip_norm):
    covariance = covariance_of(5, clip_norm=clip_norm)
    drawn = np.concatenate(list(covariance.deviations("privacy"))) / covariance.correction
    expected = NoisyPrecision(covariance).noise_variances
    np.testing.assert_allclose(drawn.var(axis=0), expected, rtol=0.2)


def test_bounds_hold_for_every_error_within_the_radius(monkeypatch):
    covariance = covariance_of(10_000)
    precision, rng = NoisyPrecision(covariance), np.random.default_rng(0)
    centre, (_, vectors) = np.linalg.inv(covariance.plain), np.linalg.eigh(covariance.plain)
    for radius in (0.001, 0.01):
        monkeypatch.setattr(type(precision.radii), "radii", lambda *_, r=radius: (r, r))
        low, high = precision.bounds(0.05, "population")
        moved = []
        for trial in range(100):
            error = rng.standard_normal((4, 4))
            error += error.T
            if trial % 2:  # the worst direction shrinks the least eigenvalue
                error = np.outer(vectors[:, 0], vectors[:, 0]) + 0.1 * error
            error *= radius / np.abs(np.linalg.eigvalsh(error)).max()
            moved.append(np.linalg.inv(covariance.plain - error))
        assert np.all((low <= np.array(moved) + 1e-9) & (np.array(moved) <= high + 1e-9))
        reached = np.abs(np.array(moved) - centre)[:, 0, 0].max()
        assert reached > 0.3 * (high - low)[0, 0] / 2  # the bound is not idle
    monkeypatch.setattr(type(precision.radii), "radii", lambda *_: (0.05, 0.05))
    assert precision.least_eigenvalue < 0.05
    assert np.isinf(precision.bounds(0.05, "population")[1]).all()


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_much_noise_is_nearly_singular(unit):
    """Also where the matrix is that of the rows: the law of the noise alone says so."""
    precision = NoisyPrecision(covariance_of(0.05, unit=unit))
    assert precision.singular
    assert np.isnan(precision.matrix).all()
    assert np.isinf(precision.bounds(0.05, "table")[1]).all()


def correlations(matrix):
    root = np.sqrt(np.abs(np.diag(matrix)))
    return (matrix / np.outer(root, root))[tuple(PAIRS)]


def partials(matrix):
    return correlations(-np.linalg.inv(matrix))


@pytest.mark.parametrize(
    ("value", "budget", "unit"),
    [(partials, dps.PureDP(20), "add_remove"), (correlations, dps.ZCDP(5), "replace")],
)
def test_gradients_and_variances_of_the_noise_on_pairs_are_those_of_draws(value, budget, unit):
    """2,000 draws: a variance has an error of 4 to 5%."""
    covariance = covariance_of(None, budget=budget, unit=unit)
    laws = (
        PairLaws.partial(NoisyPrecision(covariance)) if value is partials
        else PairLaws.marginal(covariance)
    )  # fmt: skip
    at, moments = laws.correlations[tuple(PAIRS)], covariance.moments
    errors = moments.noise(2_000, np.random.default_rng(0))
    found = [value(covariance.of_moments(moments.matrix + e)) for e in errors]
    expected = laws.error(PAIRS, at, sampling=False).variances
    np.testing.assert_allclose(expected, np.var(np.arctanh(found), axis=0), rtol=0.2)
    [(_, gradients)] = list(laws._gradients(PAIRS, at))
    for change in np.random.default_rng(0).standard_normal((10, 5, 5)):
        change, step = change + change.T, 1e-6
        up, down = (
            value(covariance.of_moments(moments.matrix + s * step * change)) for s in (1, -1)
        )
        moved = np.einsum("fij,ij->f", gradients, change)
        np.testing.assert_allclose((up - down) / (2 * step), moved, atol=2e-3, rtol=2e-3)


def test_heavy_tails_have_a_larger_sampling_part():
    """The variance over draws of rows, which normal theory understates."""
    rng = np.random.default_rng(3)
    population = rng.standard_normal((50_000, 4)) / np.sqrt(rng.chisquare(5, (50_000, 1)) / 5)
    population[:, 1] += population[:, 0]
    codes = np.clip(np.rint(population / 8 * HALF), -HALF, HALF)
    laws = PairLaws.partial(NoisyPrecision(covariance_of(10_000, codes[:20_000])))
    law = laws.error(PAIRS, laws.correlations[tuple(PAIRS)])
    found = [
        np.arctanh(partials(np.cov(codes[rng.integers(0, 50_000, 2_000)].T))) for _ in range(200)
    ]
    spread = np.var(found, axis=0) * 2_000
    ratio = law.normal * 20_000 / spread
    assert np.all((ratio > 0.75) & (ratio < 1.5))
    assert spread.max() > 1.3


@pytest.mark.parametrize("kind", [PartialIntervals, MarginalIntervals])
def test_pvalues_are_those_of_the_intervals(kind):
    """Also of values beyond a strong correlation, where the distance of atanh is too long."""
    rows = chain_rows(3_000)
    rows[:, 1] = np.rint(rows[:, 0] + 0.3 * np.random.default_rng(1).permutation(rows[:, 3]))
    intervals = kind(covariance_of(None, rows, budget=dps.ZCDP(1)), PAIRS)
    assert intervals.known.all()
    for alpha in (0.05, 0.001):
        low, high = intervals.noise_aware(alpha, "population")
        for ends, beyond in ((low, "larger"), (high, "smaller")):
            inside = np.flatnonzero(np.abs(ends) < 1)
            assert inside.size
            for d in inside.tolist():
                for alternative, level in (("two-sided", alpha), (beyond, alpha / 2)):
                    found = intervals.pvalues(ends[d], alternative)[d]
                    assert found == pytest.approx(level, rel=1e-4)


def test_verdicts_hold_for_all_weights_and_say_all_that_can_be_said():
    """Sure: in the tree even at its lower end, with all others at the upper one; and so on."""
    rng, kinds = np.random.default_rng(0), set()
    for run in range(45):
        p, width = int(rng.integers(3, 7)), (0.02, 0.2, 1.0)[run % 3]
        pairs = np.array(np.triu_indices(p, 1))
        centre, below, above = rng.random((3, pairs.shape[1])) * np.array([[1], [width], [width]])
        low, high = centre - below, centre + above
        verdicts = tree_verdicts(low, high, pairs, p)
        kinds |= set(verdicts)
        for d, verdict in enumerate(verdicts):
            own = np.arange(len(low)) == d
            assert (verdict == "sure") == spanning_tree(np.where(own, low, high), pairs, p)[d]
            assert (verdict == "impossible") != spanning_tree(np.where(own, high, low), pairs, p)[d]
    assert kinds == {"sure", "impossible", "undecided"}


def test_clime_is_the_inverse_without_a_penalty_and_else_within_its_constraint():
    inverse = np.eye(6) - np.diag(np.full(5, 0.4), 1) - np.diag(np.full(5, 0.4), -1)
    matrix = np.linalg.inv(inverse)
    exact, sparse = clime(matrix, [1e-9])[0], clime(matrix, [0.1])[0]
    np.testing.assert_allclose(exact, inverse, atol=1e-6)
    # The symmetric matrix keeps the entries that are smaller: the constraint holds to a factor.
    assert np.abs(matrix @ sparse - np.eye(6)).max() < 0.3


def test_an_indefinite_matrix_is_lifted():
    whole, noisy = np.eye(3), np.eye(3)
    noisy[0, 1] = noisy[1, 0] = 0.99
    noisy[0, 2] = noisy[2, 0] = -0.9
    assert np.linalg.eigvalsh(noisy)[0] < 0
    lifted = positive_definite(noisy)
    assert np.linalg.eigvalsh(lifted)[0] > 0
    np.testing.assert_allclose(np.diag(lifted), 1)
    assert positive_definite(whole) is whole
    assert np.all(np.isfinite(graphical_lasso(lifted, [0.1])))
