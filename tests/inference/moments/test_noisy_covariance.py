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


KINDS = pytest.mark.parametrize(
    ("unit", "standardize", "clip_norm"),
    [
        ("replace", False, None), ("add_remove", True, 0.8),
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
        release = dps.release(plan, frame, rng=0, m=300, **options)
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


@KINDS
def test_radii_and_boxes_hold_and_are_not_idle(unit, standardize, clip_norm):
    """At alpha = 1/2, so that a quantile or a norm that is a little too short is seen."""
    epsilon = 20.0 if standardize else 1.0
    found, data = exact(
        unit=unit, standardize=standardize, n=4_000, epsilon=epsilon, clip_norm=clip_norm
    )
    matrix = np.corrcoef(data.T) if standardize else np.cov(data.T, ddof=0)
    covariance = np.cov(data.T)
    runs, rng = 25, np.random.default_rng(1)
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


@KINDS
def test_simulated_errors_have_the_spread_of_real_ones(unit, standardize, clip_norm):
    found, data = exact(unit=unit, standardize=standardize, n=2_000, clip_norm=clip_norm)
    rng = np.random.default_rng(2)
    matrix = np.corrcoef(data.T) if standardize else np.cov(data.T)
    drawn = draw_noise(found.moments.answers, 150, rng)
    errors = np.array([noisy(found, draw).matrix - matrix for draw in drawn])
    simulated = next(found.deviations("privacy"))
    pairs = np.triu_indices(3, 1 if standardize else 0)
    ratio = errors.std(axis=0)[pairs] / simulated.std(axis=0)[pairs]
    np.testing.assert_allclose(ratio, 1, atol=0.2)


def test_population_boxes_hold_for_small_samples():
    """At alpha = 1/2, without noise: the part of sampling alone."""
    found, data = exact(epsilon=1e6, n=300)
    truth, rng, kept = np.cov(data.T, ddof=0), np.random.default_rng(4), 0
    for _ in range(30):
        drawn = data[rng.integers(0, len(data), len(data))]
        bounds = found.moments.answers.bounds
        sums = np.concatenate([drawn.sum(axis=0)] + [
            [(drawn[:, i] * drawn[:, j]).sum() for j in range(i, 3)] for i in range(3)
        ])  # fmt: skip
        one = noisy(found, sums * bounds - found.moments.answers.sums)
        assert np.allclose(one.of_moments(one.moments.matrix), np.cov(drawn.T, ddof=0))
        low, high = CertifiedRadii(one).box(0.5, "population", joint=False)
        kept = kept + ((low <= truth) & (truth <= high))
    assert np.min(kept) >= 15
    assert np.max(high - low) < 0.5
