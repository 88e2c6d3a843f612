import dataclasses
import importlib

import numpy as np
import pandas as pd
import pytest
from sklearn import decomposition

import dpstats as dps
from dpstats.analyses.moments.clipping import clipped_share
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance

NAMES = ["age", "pay", "score", "steps"]
SCHEMA = dps.Schema([
    dps.Number("age", 0, 100, points=201, missing=40),
    dps.Number("pay", -10, 30, points=401, missing=0),
    dps.Number("score", values=[0, 1, 2, 5], missing=0),
    dps.Number("steps", 0, 20_000, points=2_001, missing=0),
])  # fmt: skip
HALF = {"age": 50, "pay": 20, "score": 2.5, "steps": 10_000}


def rows(n=800):
    rng = np.random.default_rng(0)
    z = rng.standard_normal(n)
    return pd.DataFrame({
        "age": np.clip(np.round(2 * (50 + 15 * z + 5 * rng.standard_normal(n))) / 2, 0, 100),
        "pay": np.clip(np.round(10 + 6 * z + 3 * rng.standard_normal(n), 1), -10, 30),
        "score": rng.choice([0, 1, 2, 5], n),
        "steps": np.clip(np.round(8_000 - 3_000 * z + 500 * rng.standard_normal(n), -1), 0, 20_000),
    })  # fmt: skip


@pytest.fixture
def infer(inferred):
    def of(analysis, budget=None, n=800, unit="replace"):
        count = n if unit == "replace" else None
        return inferred(SCHEMA, rows(n), analysis, budget, n=count, unit=unit)

    return of


def test_zero_noise_covariance_is_numpys(no_noise, infer):
    result = infer(dps.Covariance(NAMES), dps.PureDP(5e6), unit="add_remove")
    numbers = rows()[NAMES].to_numpy(dtype=float)
    np.testing.assert_allclose(result.covariance_, np.cov(numbers.T), rtol=1e-8)
    np.testing.assert_allclose(result.location_, numbers.mean(axis=0), rtol=1e-10)
    assert result.terms[:5] == ["var(age)", *(f"cov(age, {x})" for x in NAMES[1:]), "var(pay)"]


@pytest.mark.parametrize(("standardize", "unit"), [(False, "replace"), (True, "add_remove")])
def test_zero_noise_components_are_scikit_learns(no_noise, standardize, unit, infer):
    result, n = infer(dps.PCA(NAMES, standardize=standardize), dps.PureDP(5e6), unit=unit), 800
    numbers = rows()[NAMES].to_numpy(dtype=float)
    scaled = numbers / (numbers.std(axis=0) if standardize else list(HALF.values()))
    theirs = decomposition.PCA(svd_solver="full").fit(scaled)
    signs = np.sign(np.sum(theirs.components_ * result.components_, axis=1))
    assert np.all(result.components_[range(4), np.abs(result.components_).argmax(axis=1)] > 0)
    # The correlation matrix: n / n
    variance = theirs.explained_variance_ * ((n - 1) / n if standardize else 1)
    ratio, components = theirs.explained_variance_ratio_, signs[:, np.newaxis] * theirs.components_
    np.testing.assert_allclose(result.explained_variance_, variance, rtol=1e-8)
    np.testing.assert_allclose(result.explained_variance_ratio_, ratio, rtol=1e-8)
    np.testing.assert_allclose(result.components_, components, atol=1e-8)
    scores = result.scores(rows())
    np.testing.assert_allclose(scores, signs * theirs.transform(scaled), atol=1e-8)
    with pytest.raises(dps.RequestError, match="steps"):
        result.scores(rows().drop(columns="steps"))
    with pytest.raises(dps.RequestError, match="noise exceeds a variance"):
        dataclasses.replace(result, spread=np.zeros(4)).scores(rows())
    np.testing.assert_array_equal(result.loadings()["estimate"], result.params[8:])
    np.testing.assert_allclose(result.mean_, numbers.mean(axis=0), rtol=1e-10)
    if not standardize:
        np.testing.assert_allclose(result.singular_values_, theirs.singular_values_, rtol=1e-8)


def test_scores_of_dates(no_noise, inferred):
    """As synthetic rows have them, as text, and as days."""
    first, n = np.datetime64("2024-01-01"), 400
    day, size = np.arange(n) % 366, (np.arange(n) * 7) % 100
    schema = dps.Schema([
        dps.Number("day", "2024-01-01", "2024-12-31", allow_missing=True),
        dps.Number("size", 0, 99, points=100, missing=0),
    ])  # fmt: skip
    frame = pd.DataFrame({"day": (first + day).astype("datetime64[s]"), "size": size})
    result = inferred(schema, frame, dps.PCA(["day", "size"]), dps.PureDP(5e6))
    numbers = frame.assign(day=first.astype(int) + day)
    scores = result.scores(numbers)
    np.testing.assert_allclose(scores.mean(), 0, atol=1e-6)
    for days in (frame["day"].dt.date, frame["day"].astype(str)):
        pd.testing.assert_frame_equal(result.scores(frame.assign(day=days)), scores)
    frame.loc[0, "day"] = None
    missing = result.scores(frame).isna()
    assert missing.loc[0].all()
    assert not missing.loc[1:].any(axis=None)


def test_sampling_part_is_the_classical_one_without_noise(no_noise, infer):
    """Anderson (1963): the variance of an eigenvalue of normal rows is 2 value^2 / n."""
    result = infer(dps.PCA(["age", "pay", "steps"]), dps.PureDP(5e6), n=3_000)
    assert result.bse[0] == pytest.approx(result.params[0] * np.sqrt(2 / 3_000), rel=0.2)
    assert np.ptp(result.conf_int()[0]) == pytest.approx(2 * 1.96 * result.bse[0], rel=0.15)
    assert np.all(result.privacy_share < 1e-6)


def test_plots_show_the_intervals(infer):
    pytest.importorskip("matplotlib").use("agg")
    result = infer(dps.PCA(NAMES, n_components=3), dps.PureDP(1))
    for ratio, part in ((False, slice(0, 3)), (True, slice(3, 6))):
        ax = dps.plots.scree(result, ratio=ratio)
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), result.params[part])
        ends = np.array(ax.collections[0].get_segments())[..., 1]
        np.testing.assert_allclose(ends, result.conf_int()[part])
    assert dps.plots.loadings(result, components=(1, 3), ax=ax, method="certified") is ax
    assert [text.get_text() for text in ax.get_xticklabels()] == NAMES
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), result.components_[2])
    importlib.import_module("matplotlib.pyplot").close("all")


def test_no_end_for_the_population_is_beyond_what_bounds_allow(seeded_noise, inferred):
    # With other noise the end is lower, where all noisy eigenvalues are.
    one = {"n": 5, "noise_from": seeded_noise(0)}
    result = inferred(SCHEMA, rows(5), dps.PCA(NAMES), dps.PureDP(1), **one)
    for simultaneous in (False, True):
        top = result.conf_int(simultaneous=simultaneous)[:4, 1]
        assert np.all(top <= 4 / np.arange(1, 5) + 1e-12)  # the eigenvalues' sum is at most p
        assert top[0] == pytest.approx(4)


@pytest.mark.parametrize("unit", ["replace", pytest.param("add_remove", marks=pytest.mark.slow)])
def test_intervals_and_bounds_on_angles_are_nested(unit, seeded_noise, inferred):
    """Beyond the draws certified bounds serve, also at the alpha that the largest draw has."""
    rng = np.random.default_rng(0)
    schema = dps.Schema([dps.Number(name, -1, 1, points=201, missing=0) for name in "ab"])
    rows = pd.DataFrame(np.clip(rng.normal(0, [0.5, 0.2], (800, 2)), -1, 1), columns=[*"ab"])
    options = {"n": 800, "unit": unit, "noise_from": seeded_noise(6)}
    result = inferred(schema, rows, dps.PCA([*"ab"]), dps.PureDP(50), **options)
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
GRAIN = 8_192  # radius of the ball in integers


def shrunk(clip_norm, center=None, scale=None):
    """Rows in units of the scales, and which of them were too long."""
    middle = {"age": 50, "pay": 10, "score": 2.5, "steps": 10_000} | (center or {})
    unit = HALF | (scale or {})
    z = np.array([(rows()[name] - middle[name]) / unit[name] / clip_norm for name in PAY_FIRST]).T
    whole = np.floor(z * GRAIN + 0.5).astype(int)
    square = np.sum(whole**2, axis=1)
    far, norm = square > GRAIN**2, np.ceil(np.sqrt(square)).astype(int)
    short = np.sign(whole) * (np.abs(whole) * GRAIN // norm[:, np.newaxis])  # towards zero
    return clip_norm * np.where(far[:, np.newaxis], short, whole) / GRAIN, far


@pytest.mark.parametrize(("unit", "options", "standardize"), [
    ("replace", OPTIONS, False), ("add_remove", {"clip_norm": 0.6}, True),
])  # fmt: skip
def test_zero_noise_components_of_shrunk_rows(no_noise, unit, options, standardize, infer):
    z, far = shrunk(**options)
    assert 100 < far.sum() < 700
    analysis = dps.PCA(PAY_FIRST, standardize=standardize, **options)
    result = infer(analysis, dps.PureDP(5e6), unit=unit)
    values, vectors = np.linalg.eigh(np.corrcoef(z.T) if standardize else np.cov(z.T))
    np.testing.assert_allclose(result.explained_variance_, values[::-1], rtol=1e-8)
    ratio = values[::-1] / values.sum()
    np.testing.assert_allclose(result.explained_variance_ratio_, ratio, rtol=1e-8)
    cosines = np.abs(np.sum(vectors.T[::-1] * result.components_, axis=1))
    np.testing.assert_allclose(cosines, 1, atol=1e-8)


def test_correlations_of_shrunk_rows_hold_those_of_the_table(infer):
    truth = np.corrcoef(shrunk(**OPTIONS)[0].T)[np.triu_indices(4, 1)]
    result = infer(dps.Correlation(PAY_FIRST, **OPTIONS), dps.ZCDP(0.5), unit="add_remove")
    certified = result.conf_int(alpha=1e-6, method="certified", target="table")
    assert np.median(np.diff(certified)) < 1.9
    for low, high in (certified.T, result.conf_int(alpha=1e-3).T):
        assert np.all((low <= truth) & (truth <= high))


def test_the_share_of_shrunk_rows_is_told():
    asked = dps.Covariance(PAY_FIRST, **OPTIONS)
    plan = dps.plan(SCHEMA, {"it": asked}, budget=dps.ZCDP(0.02), unit="add_remove")
    release = dps.release(plan, rows(), rng=0, m=50, k=10)
    (ball,) = asked.family(SCHEMA).blocks
    moments = NoisyCovariance.of(release, tuple(PAY_FIRST), ball=ball).moments
    low, high = clipped_share(moments, 1e-6)
    assert low <= shrunk(**OPTIONS)[1].mean() <= high
    low, high = clipped_share(moments, 0.05)
    assert 0 < high - low < 0.3
    notes = release.infer("it").notes
    assert any(f"{low:.1%} to {high:.1%} of the private rows" in note for note in notes)
