"""PCA and Covariance of rows shrunk to a public norm: numpy's on rows shrunk one by one."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.moments.clipping import clipped_share
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance

NAMES = ["pay", "age", "score", "steps"]
SCHEMA = dps.Schema([
    dps.Number("age", 0, 100, points=201, missing=40),
    dps.Number("pay", -10, 30, points=401, missing=0),
    dps.Number("score", values=[0, 1, 2, 5], missing=0),
    dps.Number("steps", 0, 20_000, points=2_001, missing=0),
])  # fmt: skip
CENTER = {"age": 45, "pay": 12.5, "steps": 8_000}
SCALE = {"age": 15, "pay": 6.25, "score": 1.5, "steps": 3_000}
OPTIONS = {"clip_norm": 2.3, "center": CENTER, "scale": SCALE}
PLAIN = {"clip_norm": 0.6}
MIDDLES = {"age": 50, "pay": 10, "score": Fraction(5, 2), "steps": 10_000}
HALVES = {"age": 50, "pay": 20, "score": Fraction(5, 2), "steps": 10_000}
GRAIN = 8_192  # radius of the ball in integers


def rows(n=800):
    rng = np.random.default_rng(0)
    z = rng.standard_normal(n)
    return pd.DataFrame({
        "age": np.clip(np.round(2 * (50 + 15 * z + 5 * rng.standard_normal(n))) / 2, 0, 100),
        "pay": np.clip(np.round(10 + 6 * z + 3 * rng.standard_normal(n), 1), -10, 30),
        "score": rng.choice([0, 1, 2, 5], n),
        "steps": np.clip(np.round(8_000 - 3_000 * z + 500 * rng.standard_normal(n), -1), 0, 20_000),
    })  # fmt: skip


@cache
def shrunk(centred=True):
    """Rows in units of the scales: cell by cell, in fractions; and which were too long."""
    options = OPTIONS if centred else PLAIN
    center, scale = (usual | options.get(name, {}) for name, usual in
                     (("center", MIDDLES), ("scale", HALVES)))  # fmt: skip
    radius = Fraction(str(options["clip_norm"]))
    found, far = [], []
    for _, row in rows().iterrows():
        whole = []
        for name in NAMES:
            z = (Fraction(str(row[name])) - Fraction(str(center[name]))) / Fraction(
                str(scale[name])
            )
            whole.append(math.floor(z / radius * GRAIN + Fraction(1, 2)))
        square = sum(v * v for v in whole)
        far.append(square > GRAIN**2)
        if far[-1]:
            norm = math.isqrt(square - 1) + 1
            whole = [int(Fraction(v * GRAIN, norm)) for v in whole]  # towards zero
        found.append([float(radius * v / GRAIN) for v in whole])
    return np.array(found), np.array(far)


def infer(analysis, *, epsilon=1.0, n=800, unit="replace", budget=None):
    count = n if unit == "replace" else None
    budget = dps.PureDP(epsilon) if budget is None else budget
    plan = dps.plan(
        SCHEMA, {"a": analysis}, budget=budget, n=count, unit=unit, reference=dps.Uniform()
    )
    release = dps.release(plan, rows(n), rng=0, m=200)
    return release.infer("a"), release


@pytest.mark.parametrize(
    ("unit", "centred", "standardize"), [("replace", True, False), ("add_remove", False, True)]
)
def test_zero_noise_components_are_numpys_on_shrunk_rows(no_noise, unit, centred, standardize):
    (z, far), options = shrunk(centred), OPTIONS if centred else PLAIN
    assert 100 < far.sum() < 700
    analysis = dps.PCA(NAMES, standardize=standardize, **options)
    result, _ = infer(analysis, epsilon=5e6, unit=unit)
    matrix = np.corrcoef(z.T) if standardize else np.cov(z.T)
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(result.explained_variance_, values[::-1], rtol=1e-8)
    np.testing.assert_allclose(
        result.explained_variance_ratio_, values[::-1] / values.sum(), rtol=1e-8
    )
    cosines = np.abs(np.sum(vectors.T[::-1] * result.components_, axis=1))
    np.testing.assert_allclose(cosines, 1, atol=1e-8)


def test_correlations_of_shrunk_rows_hold_those_of_the_table():
    z, _ = shrunk()
    truth = np.corrcoef(z.T)[np.triu_indices(4, 1)]
    analysis = dps.Correlation(NAMES, **OPTIONS)
    result, _ = infer(analysis, unit="add_remove", budget=dps.ZCDP(0.5))
    ends = result.conf_int(alpha=1e-6, method="certified", target="table")
    assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert np.median(np.diff(ends)) < 1.9
    aware = result.conf_int(alpha=1e-3)
    assert np.all((aware[:, 0] <= truth) & (truth <= aware[:, 1]))


def test_a_norm_that_shrinks_nothing_is_the_plain_analysis(no_noise):
    plain, _ = infer(dps.PCA(NAMES), epsilon=5e6)
    wide, _ = infer(dps.PCA(NAMES, clip_norm=2.0), epsilon=5e6)  # the corners of the box
    np.testing.assert_allclose(wide.explained_variance_, plain.explained_variance_, rtol=1e-4)
    np.testing.assert_allclose(wide.mean_, plain.mean_, rtol=1e-4)
    np.testing.assert_allclose(wide.spread, plain.spread, rtol=1e-12)
    values = wide.explained_variance_
    for options in ({}, {"method": "certified", "target": "table"}):
        ends, others = wide.conf_int(**options)[:4], plain.conf_int(**options)[:4]
        assert np.all((ends[:, 0] <= values) & (values <= ends[:, 1]))
        # a ball around the box: certified bounds that use it are no wider than its radius asks
        assert np.all(np.diff(ends) <= 1.5 * np.diff(others) + 1e-3)


def test_the_share_of_shrunk_rows_is_told():
    far = shrunk()[1].mean()
    result, release = infer(
        dps.Covariance(NAMES, **OPTIONS), unit="add_remove", budget=dps.ZCDP(0.02)
    )
    analysis = dps.Covariance(NAMES, **OPTIONS)
    (ball,) = analysis.family(SCHEMA).blocks
    moments = NoisyCovariance.of(release, tuple(NAMES), ball=ball).moments
    low, high = clipped_share(moments, 1e-6)
    assert low <= far <= high
    low, high = clipped_share(moments, 0.05)
    assert 0 < high - low < 0.3
    assert any(f"{low:.1%} to {high:.1%} of the private rows" in note for note in result.notes)


def test_shrunk_rows_are_measured_once_whatever_the_order_of_the_columns():
    both = {"cov": dps.Covariance(NAMES, **OPTIONS), "pca": dps.PCA(NAMES[::-1], **OPTIONS)}
    plan = dps.plan(SCHEMA, both, budget=dps.PureDP(1), n=800)
    assert len(plan.blocks) == 1
    release = dps.release(plan, rows(), rng=0, m=200)
    pca = release.infer("pca")
    assert pca.columns == tuple(NAMES[::-1])
    np.testing.assert_allclose(pca.spread, [SCALE[name] for name in NAMES[::-1]])
    with pytest.raises(dps.NotMeasuredError, match=r"clipped moments of .* with clip_norm=2\.3, "):
        release.infer(dps.PCA(NAMES, clip_norm=2.3))


def test_the_law_of_the_noise():
    analysis = dps.Covariance(NAMES, **OPTIONS)
    _, release = infer(analysis, unit="add_remove")
    (ball,) = analysis.family(SCHEMA).blocks
    moments = NoisyCovariance.of(release, tuple(NAMES), ball=ball).moments
    drawn = moments.noise(4_000, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.std(axis=0), moments.noise_sd, rtol=0.1)
    sd = moments.noise_sd[1:, 1:]  # twice the variance on the diagonal, so the same in every basis
    np.testing.assert_allclose(sd[0, 0] / sd[0, 1], np.sqrt(2), rtol=1e-3)
    np.testing.assert_allclose(moments.noise_sd[0, 1] / sd[0, 0], 2, rtol=1e-3)
