import math
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.moments.clipping import clipped_share
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.privacy.noise import _noise_from

NAMES = ["age", "pay", "score", "steps"]
SCHEMA = dps.Schema([
    dps.Number("age", 0, 100, points=201, missing=40),
    dps.Number("pay", -10, 30, points=401, missing=0),
    dps.Number("score", values=[0, 1, 2, 5], missing=0),
    dps.Number("steps", 0, 20_000, points=2_001, missing=0),
])  # fmt: skip
HALF = np.array([50, 20, 2.5, 10_000])


def rows(n=800):
    rng = np.random.default_rng(0)
    z = rng.standard_normal(n)
    return pd.DataFrame({
        "age": np.clip(np.round(2 * (50 + 15 * z + 5 * rng.standard_normal(n))) / 2, 0, 100),
        "pay": np.clip(np.round(10 + 6 * z + 3 * rng.standard_normal(n), 1), -10, 30),
        "score": rng.choice([0, 1, 2, 5], n),
        "steps": np.clip(np.round(8_000 - 3_000 * z + 500 * rng.standard_normal(n), -1), 0, 20_000),
    })  # fmt: skip


def infer(analysis, *, epsilon=1.0, n=800, unit="replace", budget=None):
    frame = rows(n)
    count = n if unit == "replace" else None
    budget = dps.PureDP(epsilon) if budget is None else budget
    plan = dps.plan(
        SCHEMA, {"a": analysis}, budget=budget, n=count, unit=unit, reference=dps.Uniform()
    )
    release = dps.release(plan, frame, rng=0, m=50)
    return release.infer("a"), frame, release


def test_zero_noise_covariance_is_numpys(no_noise):
    result, frame, _ = infer(dps.Covariance(NAMES), epsilon=5e6, unit="add_remove")
    numbers = frame[NAMES].to_numpy(dtype=float)
    np.testing.assert_allclose(result.covariance_, np.cov(numbers.T), rtol=1e-8)
    np.testing.assert_allclose(result.location_, numbers.mean(axis=0), rtol=1e-10)
    assert result.terms[:3] == ["var(age)", "cov(age, pay)", "cov(age, score)"]
    assert result.terms[4] == "var(pay)"


def scikit_learn(numbers):
    """`sklearn.decomposition.PCA` in its own steps: centre, SVD, svd_flip, divisor n - 1."""
    centred = numbers - numbers.mean(axis=0)
    _, singular, vt = np.linalg.svd(centred, full_matrices=False)
    largest = np.argmax(np.abs(vt), axis=1)
    vt = vt * np.sign(vt[np.arange(len(vt)), largest])[:, np.newaxis]
    variance = singular**2 / (len(numbers) - 1)
    return variance, variance / variance.sum(), vt, centred @ vt.T


@pytest.mark.parametrize(("standardize", "unit"), [(False, "replace"), (True, "add_remove")])
def test_zero_noise_components_are_scikit_learns(no_noise, standardize, unit):
    result, frame, _ = infer(dps.PCA(NAMES, standardize=standardize), epsilon=5e6, unit=unit)
    numbers = frame[NAMES].to_numpy(dtype=float)
    scale = numbers.std(axis=0) if standardize else HALF
    variance, ratio, components, scores = scikit_learn(numbers / scale)
    if standardize:  # the correlation matrix: n / n
        variance = variance * (len(frame) - 1) / len(frame)
    np.testing.assert_allclose(result.explained_variance_, variance, rtol=1e-8)
    np.testing.assert_allclose(result.explained_variance_ratio_, ratio, rtol=1e-8)
    np.testing.assert_allclose(result.components_, components, atol=1e-8)
    np.testing.assert_allclose(result.scores(frame), scores, atol=1e-8)
    np.testing.assert_allclose(result.mean_, numbers.mean(axis=0), rtol=1e-10)
    if not standardize:
        singular = np.linalg.svd((numbers - numbers.mean(axis=0)) / HALF, compute_uv=False)
        np.testing.assert_allclose(result.singular_values_, singular, rtol=1e-8)
    assert result.n_components_ == result.n_components == 4


def test_sampling_part_is_the_classical_one_without_noise(no_noise):
    """Anderson (1963): the variance of an eigenvalue of normal rows is 2 value^2 / n."""
    result, _, _ = infer(dps.PCA(["age", "pay", "steps"]), epsilon=5e6, n=3_000)
    first = result.explained_variance_[0]
    assert result.bse[0] == pytest.approx(first * np.sqrt(2 / 3_000), rel=0.2)
    low, high = result.conf_int()[0]
    assert high - low == pytest.approx(2 * 1.96 * result.bse[0], rel=0.15)
    assert np.all(result.privacy_share < 1e-6)


def test_loadings_and_scores():
    result, frame, release = infer(dps.PCA(NAMES, n_components=2), epsilon=20.0)
    assert result.terms[2:5] == ["PC1 ratio", "PC2 ratio", "PC1: age"]
    np.testing.assert_array_equal(result.loadings()["estimate"], result.params[4:])
    scores = result.scores(release.to_frame())
    assert list(scores) == ["PC1", "PC2"]
    assert len(scores) == release.k
    own = scores.cov().to_numpy()
    assert own[0, 0] == pytest.approx(result.explained_variance_[0], rel=0.2)
    assert abs(own[0, 1]) < 0.1 * own[0, 0]
    with pytest.raises(dps.RequestError, match="steps"):
        result.scores(frame.drop(columns="steps"))


@pytest.fixture
def axes():
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.mark.usefixtures("axes")
def test_plots_show_the_intervals():
    result, _, _ = infer(dps.PCA(NAMES, n_components=3))
    for ratio in (False, True):
        ax = dps.plots.scree(result, ratio=ratio)
        part = slice(3, 6) if ratio else slice(0, 3)
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), result.params[part])
        segments = ax.collections[0].get_segments()
        ends = np.array([segment[:, 1] for segment in segments])
        np.testing.assert_allclose(ends, result.conf_int()[part])
    again = dps.plots.loadings(result, components=(1, 3), ax=ax, method="certified")
    assert again is ax
    assert [text.get_text() for text in ax.get_xticklabels()] == NAMES
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), result.components_[2])
    with pytest.raises(dps.RequestError, match="from 1 to 3"):
        dps.plots.loadings(result, components="PC4")


def test_no_end_for_the_population_is_beyond_what_bounds_allow(seeded_noise):
    with _noise_from(seeded_noise(0)):  # the end is lower where all noisy eigenvalues are
        result, *_ = infer(dps.PCA(NAMES), epsilon=1.0, n=5)
    for simultaneous in (False, True):
        top = result.conf_int(simultaneous=simultaneous)[:4, 1]
        assert np.all(top <= 4 / np.arange(1, 5) + 1e-12)  # the eigenvalues' sum is at most p
        assert top[0] == pytest.approx(4)


@pytest.mark.parametrize("unit", ["replace", pytest.param("add_remove", marks=pytest.mark.slow)])
def test_intervals_and_bounds_on_angles_are_nested(unit, seeded_noise):
    """Beyond the draws certified bounds serve, also at the alpha that the largest draw has."""
    rng = np.random.default_rng(0)
    schema = dps.Schema([dps.Number(name, -1, 1, points=201, missing=0) for name in "ab"])
    rows = pd.DataFrame(np.clip(rng.normal(0, [0.5, 0.2], (800, 2)), -1, 1), columns=[*"ab"])
    plan = dps.plan(schema, {"p": dps.PCA([*"ab"])}, budget=dps.PureDP(50), n=800, unit=unit)
    with _noise_from(seeded_noise(6)):
        result = dps.release(plan, rows, m=100, k=10, rng=0).infer("p")
    alphas = (0.05, 6e-4, 1e-6)
    found = [result.angles(alpha=alpha)["vector"].to_numpy() for alpha in alphas]
    assert np.all(np.diff(found, axis=0) >= -1e-9)
    certified = result.angles(alpha=1e-6, method="certified")["vector"].to_numpy()
    assert np.all(found[-1] >= certified - 1e-9)
    ends = np.array([result.conf_int(alpha=alpha) for alpha in alphas])
    least = 5 / (4_000 * 5 // 6)
    assert f"at an alpha below {least:.2g} they are the certified ones" in result.summary()
    for alpha, beyond in ((0.999 * least, True), (1.001 * least, False)):
        aware, sure = (result.conf_int(alpha=alpha, method=m) for m in ("noise_aware", "certified"))
        within = (aware[:, 0] <= sure[:, 0]) & (sure[:, 1] <= aware[:, 1])
        assert np.all(within) == beyond
    slack = 0.004 * np.diff(ends[:-1])[..., 0]  # the accuracy of simulated limits
    assert np.all(np.diff(ends[..., 0], axis=0) <= slack)
    assert np.all(np.diff(ends[..., 1], axis=0) >= -slack)


# Rows shrunk to a public norm: as numpy has it on rows shrunk one by one.

PAY_FIRST = ["pay", "age", "score", "steps"]
CENTER = {"age": 45, "pay": 12.5, "steps": 8_000}
SCALE = {"age": 15, "pay": 6.25, "score": 1.5, "steps": 3_000}
OPTIONS = {"clip_norm": 2.3, "center": CENTER, "scale": SCALE}
PLAIN = {"clip_norm": 0.6}
MIDDLES = {"age": 50, "pay": 10, "score": Fraction(5, 2), "steps": 10_000}
HALVES = {"age": 50, "pay": 20, "score": Fraction(5, 2), "steps": 10_000}
GRAIN = 8_192  # radius of the ball in integers


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
        for name in PAY_FIRST:
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


@pytest.mark.parametrize(
    ("unit", "centred", "standardize"), [("replace", True, False), ("add_remove", False, True)]
)
def test_zero_noise_components_are_numpys_on_shrunk_rows(no_noise, unit, centred, standardize):
    (z, far), options = shrunk(centred), OPTIONS if centred else PLAIN
    assert 100 < far.sum() < 700
    analysis = dps.PCA(PAY_FIRST, standardize=standardize, **options)
    result, _, _ = infer(analysis, epsilon=5e6, unit=unit)
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
    analysis = dps.Correlation(PAY_FIRST, **OPTIONS)
    result, _, _ = infer(analysis, unit="add_remove", budget=dps.ZCDP(0.5))
    ends = result.conf_int(alpha=1e-6, method="certified", target="table")
    assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert np.median(np.diff(ends)) < 1.9
    aware = result.conf_int(alpha=1e-3)
    assert np.all((aware[:, 0] <= truth) & (truth <= aware[:, 1]))


def test_a_norm_that_shrinks_nothing_is_the_plain_analysis(no_noise):
    plain, _, _ = infer(dps.PCA(PAY_FIRST), epsilon=5e6)
    wide, _, _ = infer(dps.PCA(PAY_FIRST, clip_norm=2.0), epsilon=5e6)  # the corners of the box
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
    result, _, release = infer(
        dps.Covariance(PAY_FIRST, **OPTIONS), unit="add_remove", budget=dps.ZCDP(0.02)
    )
    analysis = dps.Covariance(PAY_FIRST, **OPTIONS)
    (ball,) = analysis.family(SCHEMA).blocks
    moments = NoisyCovariance.of(release, tuple(PAY_FIRST), ball=ball).moments
    low, high = clipped_share(moments, 1e-6)
    assert low <= far <= high
    low, high = clipped_share(moments, 0.05)
    assert 0 < high - low < 0.3
    assert any(f"{low:.1%} to {high:.1%} of the private rows" in note for note in result.notes)


def test_shrunk_rows_are_measured_once_whatever_the_order_of_the_columns():
    both = {"cov": dps.Covariance(PAY_FIRST, **OPTIONS), "pca": dps.PCA(PAY_FIRST[::-1], **OPTIONS)}
    plan = dps.plan(SCHEMA, both, budget=dps.PureDP(1), n=800)
    assert len(plan.blocks) == 1
    release = dps.release(plan, rows(), rng=0, m=50)
    pca = release.infer("pca")
    assert pca.columns == tuple(PAY_FIRST[::-1])
    np.testing.assert_allclose(pca.spread, [SCALE[name] for name in PAY_FIRST[::-1]])
    with pytest.raises(dps.NotMeasuredError, match=r"clipped moments of .* with clip_norm=2\.3, "):
        release.infer(dps.PCA(PAY_FIRST, clip_norm=2.3))


def test_the_law_of_the_noise():
    analysis = dps.Covariance(PAY_FIRST, **OPTIONS)
    _, _, release = infer(analysis, unit="add_remove")
    (ball,) = analysis.family(SCHEMA).blocks
    moments = NoisyCovariance.of(release, tuple(PAY_FIRST), ball=ball).moments
    drawn = moments.noise(4_000, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.std(axis=0), moments.noise_sd, rtol=0.1)
    sd = moments.noise_sd[1:, 1:]  # twice the variance on the diagonal, so the same in every basis
    np.testing.assert_allclose(sd[0, 0] / sd[0, 1], np.sqrt(2), rtol=1e-3)
    np.testing.assert_allclose(moments.noise_sd[0, 1] / sd[0, 0], 2, rtol=1e-3)
