"""Noisy covariance matrices of numbers and signs: what radii, boxes and simulated errors promise.

Signs are two-level columns, as -1 and 1.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.inference.simulation import draw_noise
from dpstats.privacy.noise import _noise_from

NUMBERS, SIGNS = ("a", "b", "c"), ("s", "t", "u")
SCHEMA = dps.Schema([
    *(dps.Number(name, -1, 1, points=201, missing=0) for name in NUMBERS),
    dps.Boolean("s"), dps.Category("t", ["no", "yes"]), dps.Boolean("u"),
    dps.Category("group", ["x", "y"]),
])  # fmt: skip


def rows(n):
    """Numbers and signs that depend on each other; s is rare."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, 1))
    numbers = 0.5 + 0.2 * z * [1, 1, -0.5] + rng.standard_normal((n, 3)) * [0.1, 0.2, 0.2]
    frame = pd.DataFrame(np.round(np.clip(numbers, -1, 1), 2), columns=list(NUMBERS))
    z = z[:, 0]
    return frame.assign(
        s=rng.random(n) < 0.1 + 0.1 * (z > 0),
        t=np.where(z + rng.standard_normal(n) > 0.2, "yes", "no"), u=rng.random(n) < 0.6,
        group=rng.choice(["x", "y"], n, p=[0.8, 0.2]),
    )  # fmt: skip


def exact(n, columns=NUMBERS, *, unit="replace", standardize=False, epsilon=1.0, clip_norm=None,
          given=None):  # fmt: skip
    """The analysis of a release without noise, whose laws are those of epsilon, and unit rows."""
    frame = rows(n)
    analysis = dps.GraphicalModel(columns, clip_norm=clip_norm)
    if given is not None:
        analysis = dps.Correlation(columns, given=given)
    plan = dps.plan(
        SCHEMA, {"a": analysis}, budget=dps.PureDP(epsilon), unit=unit,
        n=n if unit == "replace" else None,
    )  # fmt: skip
    with _noise_from(lambda scale, size: np.zeros(size, np.int64)):
        release = dps.release(plan, frame, rng=0, m=300)
    block = analysis.family(SCHEMA).blocks[0]
    ball, group = (None, block.given) if clip_norm is None else (block, None)
    found = NoisyCovariance.of(release, columns, standardize=standardize, ball=ball, given=group)
    kept = frame if given is None else frame.query(given)
    codes = {name: np.rint(kept[name] * 100).astype(int) for name in NUMBERS}
    codes |= {name: kept[name].isin([True, "yes"]).astype(int) for name in SIGNS}
    return found, found.moments.unit_rows(codes)


def noisy(found, draw):
    """The same with noise on its sums."""
    answers = found.moments.answers
    count = answers.rows
    if not count.public:
        count = replace(count, estimate=answers.sums[-1] + draw[-1])
    answers = replace(answers, sums=answers.sums + draw, rows=count)
    return replace(found, moments=replace(found.moments, answers=answers))


@pytest.mark.parametrize("options", [
    {}, {"unit": "add_remove", "standardize": True, "clip_norm": 0.8},
    {"columns": ("a", *SIGNS), "unit": "add_remove"}, {"columns": SIGNS},
    {"standardize": True, "given": "group == 'x'"},
])  # fmt: skip
def test_values_and_simulated_errors_have_the_spread_of_real_ones(options):
    found, data = exact(2_500, **options)
    matrix = np.corrcoef(data.T) if found.standardize else np.cov(data.T)
    np.testing.assert_allclose(found.matrix, matrix, rtol=1e-9)
    moments, rng = found.moments, np.random.default_rng(2)
    drawn = draw_noise(moments.answers, 150, rng)
    errors = np.array([noisy(found, draw).matrix - matrix for draw in drawn])
    simulated = next(found.deviations("privacy"))
    pairs = np.triu_indices(found.p, 1 if found.standardize else 0)
    ratio = errors.std(axis=0)[pairs] / simulated.std(axis=0)[pairs]
    np.testing.assert_allclose(ratio, 1, atol=0.2)
    # of the moments themselves: the stated deviations, and a radius that holds for all entries
    drawn = moments.noise(2_000, rng)
    np.testing.assert_allclose(drawn.std(axis=0), moments.noise_sd, rtol=0.1)
    inside = np.all(np.abs(drawn) <= moments.radius(0.1) + 1e-12, axis=(1, 2))
    assert 0.88 < inside.mean() < 0.95
    ones = np.insert([name in SIGNS for name, _ in moments.features], 0, True)
    assert np.all(drawn[:, ones, ones] == drawn[:, :1, 0])  # a sign times itself is one


@pytest.mark.parametrize(("unit", "standardize", "clip_norm"), [
    ("replace", False, None), ("add_remove", True, 0.8),
])  # fmt: skip
def test_radii_and_boxes_hold_and_are_not_idle(unit, standardize, clip_norm):
    """At alpha = 1/2, so that a quantile or a norm that is a little too short is seen."""
    options = {"unit": unit, "standardize": standardize, "clip_norm": clip_norm}
    found, data = exact(4_000, epsilon=20.0 if standardize else 1.0, **options)
    matrix = np.corrcoef(data.T) if standardize else np.cov(data.T, ddof=0)
    covariance, runs, held, norms = np.cov(data.T), 25, [], []
    for draw in draw_noise(found.moments.answers, runs, np.random.default_rng(1)):
        one = noisy(found, draw)
        radii = CertifiedRadii(one)
        radius, of_trace = radii.radii(0.5, "table")
        error = one.of_moments(one.moments.matrix) - matrix
        norms.append((radius, np.abs(np.linalg.eigvalsh(error)).max()))
        kept = norms[-1][1] <= radius and abs(np.trace(error)) <= of_trace + 1e-12
        each, together = (
            (low <= covariance) & (covariance <= high)
            for low, high in (radii.box(0.5, "table", joint=joint) for joint in (False, True))
        )
        held.append([kept, together.all(), *each.ravel()])
    rates, (wide, usual) = np.mean(held, axis=0), np.median(norms, axis=0)
    assert np.min(rates) >= 0.5
    assert wide < (8 if standardize else 2.1) * usual
    assert standardize or rates[0] < 0.85


def test_population_boxes_hold_for_small_samples():
    """At alpha = 1/2, without noise: the part of sampling alone."""
    found, data = exact(300, epsilon=1e6)
    truth, rng, held = np.cov(data.T, ddof=0), np.random.default_rng(4), []
    answers = found.moments.answers
    for _ in range(30):
        drawn = data[rng.integers(0, len(data), len(data))]
        sums = np.concatenate([drawn.sum(axis=0), (drawn.T @ drawn)[np.triu_indices(3)]])
        one = noisy(found, sums * answers.bounds - answers.sums)
        assert np.allclose(one.of_moments(one.moments.matrix), np.cov(drawn.T, ddof=0))
        low, high = CertifiedRadii(one).box(0.5, "population", joint=False)
        held.append((low <= truth) & (truth <= high))
    assert np.min(np.mean(held, axis=0)) >= 0.5
    assert np.max(high - low) < 0.5
