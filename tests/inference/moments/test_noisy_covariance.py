"""Noisy covariance matrices: what their radii, boxes and simulated errors promise."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.inference.simulation import draw_noise
from dpstats.privacy.noise import _noise_from

NAMES = ("a", "b", "c")
SCHEMA = dps.Schema([dps.Number(name, -1, 1, points=201, missing=0) for name in NAMES])


EVERY_PAIR = pytest.mark.parametrize(  # of two options occurs
    ("unit", "standardize", "clip_norm"),
    [
        ("replace", False, None), ("replace", True, 0.8),
        ("add_remove", True, None), ("add_remove", False, 0.8),
    ],
)  # fmt: skip


def rows(n, middle=0.5):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, 1)) * 0.2
    found = middle + z * [1, 1, -0.5] + rng.standard_normal((n, 3)) * [0.1, 0.2, 0.2]
    return pd.DataFrame(np.round(np.clip(found, -1, 1), 2), columns=list(NAMES))


def exact(n=1_500, *, unit="replace", standardize=False, epsilon=1.0, clip_norm=None, **options):
    """The analysis of a release without noise, whose laws are those of epsilon."""
    frame = rows(n)
    analysis = dps.Covariance(NAMES, clip_norm=clip_norm)
    plan = dps.plan(
        SCHEMA, {"a": analysis}, budget=dps.PureDP(epsilon), unit=unit,
        n=n if unit == "replace" else None,
    )  # fmt: skip
    with _noise_from(lambda scale, size: np.zeros(size, np.int64)):
        release = dps.release(plan, frame, rng=0, m=1_000, **options)
    ball = None if clip_norm is None else analysis.family(SCHEMA).blocks[0]
    found = NoisyCovariance.of(release, NAMES, standardize=standardize, ball=ball)
    codes = {name: np.rint(frame[name] * 100).astype(int) for name in NAMES}
    return found, found.moments.unit_rows(codes)


def noisy(found, draw):
    """The same with noise on its sums."""
    answers = found.moments.answers
    count = answers.rows
    if not count.public:
        count = replace(count, estimate=answers.sums[-1] + draw[-1])
    answers = replace(answers, sums=answers.sums + draw, rows=count)
    return replace(found, moments=replace(found.moments, answers=answers))


def spectral(matrix):
    return np.abs(np.linalg.eigvalsh(matrix)).max()


@EVERY_PAIR
def test_radii_and_boxes_hold_and_are_not_idle(unit, standardize, clip_norm):
    """At alpha = 1/2, so that a quantile or a norm that is a little too short is seen."""
    epsilon = 20.0 if standardize else 1.0
    found, data = exact(
        unit=unit, standardize=standardize, n=4_000, epsilon=epsilon, clip_norm=clip_norm
    )
    matrix = np.corrcoef(data.T) if standardize else np.cov(data.T, ddof=0)
    covariance = np.cov(data.T)
    runs, rng = 60, np.random.default_rng(1)
    kept, boxed, joint, errors, lengths = 0, 0, 0, [], []
    for draw in draw_noise(found.moments.answers, runs, rng):
        one = noisy(found, draw)
        radius, of_trace = CertifiedRadii(one).radii(0.5, "table")
        error = one.of_moments(one.moments.matrix) - matrix
        errors.append(spectral(error))
        lengths.append(radius)
        kept += errors[-1] <= radius and abs(np.trace(error)) <= of_trace + 1e-12
        low, high = CertifiedRadii(one).box(0.5, "table", joint=False)
        boxed = boxed + ((low <= covariance) & (covariance <= high))
        low, high = CertifiedRadii(one).box(0.5, "table", joint=True)
        joint += bool(np.all((low <= covariance) & (covariance <= high)))
    assert kept >= 0.5 * runs
    assert np.median(lengths) < (8 if standardize else 2.1) * np.median(errors)
    if not standardize and unit == "replace":
        assert kept < 0.85 * runs
    assert np.min(boxed) >= 0.5 * runs
    assert joint >= 0.5 * runs


@EVERY_PAIR
def test_simulated_errors_have_the_spread_of_real_ones(unit, standardize, clip_norm):
    found, data = exact(unit=unit, standardize=standardize, n=4_000, clip_norm=clip_norm)
    rng = np.random.default_rng(2)
    matrix = np.corrcoef(data.T) if standardize else np.cov(data.T)
    drawn = draw_noise(found.moments.answers, 400, rng)
    errors = np.array([noisy(found, draw).matrix - matrix for draw in drawn])
    simulated = next(found.deviations("privacy"))
    pairs = np.triu_indices(3, 1 if standardize else 0)
    ratio = errors.std(axis=0)[pairs] / simulated.std(axis=0)[pairs]
    np.testing.assert_allclose(ratio, 1, atol=0.15)


def resampled(data):
    """Standard deviations (p, p) of covariances of resampled rows."""
    rng = np.random.default_rng(3)
    return np.std(
        [np.cov(data[rng.integers(0, len(data), len(data))].T) for _ in range(600)], axis=0
    )


@pytest.mark.parametrize(
    "options", [{}, {"fit": "minimax"}, {"fit": "minimax", "solver": "highs"}], ids=str
)
def test_sampling_is_that_of_resampled_rows(options):
    found, data = exact(epsilon=1e6, **options)
    vertex = "solver" in options  # of too few points
    assert found.sampling.laws == (("kurtosis",) if vertex else ("kurtosis", "fitted"))
    for drawn in found.deviations("sampling"):
        np.testing.assert_allclose(drawn.std(axis=0) / resampled(data), 1, atol=0.25)


def test_population_boxes_hold_for_small_samples():
    """At alpha = 1/2, without noise: the part of sampling alone."""
    found, data = exact(epsilon=1e6, n=300)
    truth, rng, kept = np.cov(data.T, ddof=0), np.random.default_rng(4), 0
    for _ in range(60):
        drawn = data[rng.integers(0, len(data), len(data))]
        bounds = found.moments.answers.bounds
        sums = np.concatenate([drawn.sum(axis=0)] + [
            [(drawn[:, i] * drawn[:, j]).sum() for j in range(i, 3)] for i in range(3)
        ])  # fmt: skip
        one = noisy(found, sums * bounds - found.moments.answers.sums)
        assert np.allclose(one.of_moments(one.moments.matrix), np.cov(drawn.T, ddof=0))
        low, high = CertifiedRadii(one).box(0.5, "population", joint=False)
        kept = kept + ((low <= truth) & (truth <= high))
    assert np.min(kept) >= 30
    assert np.max(high - low) < 0.5


def test_tiny_error_probabilities_need_no_draws():
    found, _ = exact(n=4_000)
    radii = [CertifiedRadii(found).radii(alpha, "table")[0] for alpha in (0.5, 0.05, 0.001, 1e-7)]
    assert np.all(np.diff(radii) > 0)
    assert np.isfinite(radii[-1])


def test_a_count_hidden_by_noise_has_no_radius():
    found, _ = exact(n=20, unit="add_remove", epsilon=0.05)
    assert found.unknown
    assert CertifiedRadii(found).radii(0.05, "table") == (np.inf, np.inf)


def test_corrected_eigenvalues_are_nearer_to_the_truth():
    """Noise drives eigenvalues apart; a third of the bias is left at most, here."""
    from dpstats.analyses.moments.eigen_intervals import EigenIntervals

    found, data = exact(n=1_500)
    truth = np.linalg.eigvalsh(np.cov(data.T))[::-1]
    drawn = draw_noise(found.moments.answers, 200, np.random.default_rng(5))
    own = [EigenIntervals(noisy(found, draw), 3) for draw in drawn]
    raw = np.mean([one.values for one in own], axis=0) - truth
    corrected = np.mean([one.corrected for one in own], axis=0) - truth
    assert raw[0] > 0 > raw[2]
    assert abs(corrected[0]) < 0.67 * raw[0]


def test_noise_on_a_kurtosis_raises_it_where_it_is_known():
    found, _ = exact(epsilon=50)
    quiet, unknown = (
        replace(found, power_noise=np.zeros((3, 2))),
        replace(found, powers=np.full((3, 2), np.nan)),
    )
    sd = found.kurtosis_sd
    third, fourth = (found.moments.answers.noise_variances[0], found.power_noise[:, 1])
    assert np.all(fourth > third)  # coarse
    rng = np.random.default_rng(0)
    drawn = [
        replace(
            found, powers=found.powers + np.sqrt(found.power_noise) * rng.standard_normal((3, 2))
        ).noisy_kurtosis
        for _ in range(500)
    ]
    np.testing.assert_allclose(np.std(drawn, axis=0), sd, rtol=0.15)
    assert np.all(found.sampling.kurtosis > quiet.sampling.kurtosis)
    np.testing.assert_array_equal(quiet.sampling.kurtosis, quiet.kurtosis)
    np.testing.assert_array_equal(unknown.sampling.kurtosis, 3.0)
