"""From measurements to a release: repeatable, and no trouble in a fit loses it."""

import itertools
import random
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.privacy.noise import _noise_from
from dpstats.rows import generator, minimax
from dpstats.rows.minimax import SolverError

SCHEMA = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=21, edges=[20, 65]),
])  # fmt: skip
ANALYSES = {
    "pairs": dps.Marginals(["colour", "smoker", "age"]),
    "old": dps.Proportion("age >= 65 and smoker"),
}
N = 300
SIGNS = np.where(np.arange(64) % 3, 1, -1)


def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({
        "colour": rng.choice(["red", "green", "blue"], size=N, p=[0.7, 0.2, 0.1]),
        "smoker": rng.random(N) < 0.3,
        "age": rng.integers(0, 101, size=N),
    })  # fmt: skip


def plan(epsilon=1.0, **options):
    return dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(epsilon), **options)


@pytest.fixture(scope="module")
def held(seeded_noise):
    """The same every time: a rare draw of the noise gives a release one note more."""
    with _noise_from(seeded_noise(0)):
        return dps.measure(plan(), table())


def parts(release):
    return [*release.candidates.values(), release.weights, release.counts]


def same(first, second):
    return all(map(np.array_equal, parts(first), parts(second)))


def test_rng_makes_a_release_repeatable(held):
    random.seed(3)
    for draw, fit in itertools.product(["systematic", "iid"], ["entropy", "minimax"]):
        options = {"fit": fit, "draw": draw, "m": 100}
        # The global random state is neither read nor changed.
        before = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
        first = dps.synthesize(held, rng=1, **options)
        assert random.getstate() == before[0]
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
        np.random.seed(4)  # noqa: NPY002
        assert same(first, dps.synthesize(held, rng=1, **options))
        other = dps.synthesize(held, rng=2, **options)
        assert not np.array_equal(first.counts, other.counts)
        assert (first.fit, first.draw) == (fit, draw)


def test_sizes(held):
    release = dps.synthesize(held, m=200, rng=0)
    assert release.k == N  # the published n
    assert dps.synthesize(held, m=200, k=1, rng=0).k == 1
    one = dps.synthesize(held, m=1, rng=0)
    assert len(one.weights) == 1
    assert one.k == N
    assert one.accuracy().delta > release.accuracy().delta  # and the certificate says how bad


def misfit(release):
    return np.abs(
        release.accuracy(of="weights").synthetic - np.clip(release.measurements.means, 0, 1)
    ).max()


def test_all_solvers_reach_the_same_largest_misfit(held):
    highs, pulp, columns = (
        misfit(dps.synthesize(held, fit="minimax", solver=solver, m=40, rng=3))
        for solver in ("highs", "pulp", "columns")
    )
    assert highs > 1e-3  # out of reach, so that the program decides
    assert pulp == pytest.approx(highs, abs=1e-7)
    assert highs - 1e-7 <= columns <= highs + 1e-3 * held.standard_deviations.min()
    with pytest.raises(RequestError, match="solver='pulp' is for the linear program of fit='min"):
        dps.synthesize(held, solver="pulp")


def test_a_solver_that_fails_falls_back_to_entropy_and_says_so(held, monkeypatch):
    said = "HiGHS did not solve the minimax program"
    monkeypatch.setattr(minimax, "minimax_highs", mock.Mock(side_effect=SolverError(said)))
    release = dps.synthesize(held, fit="minimax", solver="highs", m=100, rng=0)
    assert release.notes == (f"{said}; the entropy fit was used instead",)
    assert np.isfinite(release.accuracy().delta)


def test_a_minimax_fit_comes_with_its_certificate(held, monkeypatch):
    """The note's misfit is that of the weights; one that stops early says how far it came."""
    release = dps.synthesize(held, fit="minimax", m=40, rng=3)
    (note,) = release.notes
    assert f"the largest misfit of the minimax fit is {misfit(release):.6g}; the optimum" in note
    assert "more than" not in note
    monkeypatch.setattr(minimax, "MAX_STEPS", 3)
    (note,) = dps.synthesize(held, fit="minimax", m=40, rng=3).notes
    assert "a thousandth of the noise; the certificate holds" in note


def test_any_noise_gives_rows_and_an_honest_certificate():
    for noise, fit in itertools.product([-(10**12), 10**12, 0], ["entropy", "minimax"]):
        with _noise_from(lambda scale, size, noise=noise: noise * SIGNS[:size]):
            wild = dps.measure(plan(), table())
        release = dps.synthesize(wild, fit=fit, m=100, rng=0)
        assert release.k == N
        assert release.weights.sum() == pytest.approx(1)
        certificate = release.accuracy()
        assert (np.abs(certificate.synthetic - certificate.noisy).max() > 10**8) == (noise != 0)
        assert certificate.delta <= 1  # no share of rows can be further away


def test_no_more_rows_are_drawn_than_a_file_can_hold(schema, survey, monkeypatch):
    """A release whose rows are refused when it is read would be lost after it was paid."""
    asked = {"p": dps.Marginals(["smoker", "region"])}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), unit="add_remove")
    with monkeypatch.context() as patch:
        patch.setattr(generator, "MOST_ROWS", 100)
        release = dps.release(plan, survey, rng=0, m=50)
    assert len(release.to_frame()) == 100
    assert "100 were drawn" in str(release)
    assert abs(release.n - 2000) < 100
    monkeypatch.setattr("dpstats.measured.candidates_file._MOST_BYTES", 20_000)
    made = dps.release(plan, survey, rng=1, k=5_000, m=50)
    size = len(made._members()["rows.csv"])
    assert 10_000 < size <= 20_000 + 1_000  # a header more
    assert any(f"{made.k} rows were drawn and not 5000" in note for note in made.notes)


def test_rows_that_are_all_the_same_can_be_read_again(monkeypatch, tmp_path):
    """Deflated by more than 500 they would be taken for a file made to fill a disk."""
    monkeypatch.setattr("dpstats.files.archives._SMALL", 2**20)
    schema = dps.Schema([dps.Category("smoker", ["n" * 250, "yes"])])
    plan = dps.plan(schema, {"smoking": dps.Marginals(["smoker"], 1)}, budget=dps.PureDP(50))
    rows = pd.DataFrame({"smoker": ["n" * 250] * 70_000})  # more than 2^24 characters
    made = dps.release(plan, rows, rng=1, m=50)
    made.save(tmp_path / "r.zip")
    assert dps.load(tmp_path / "r.zip").k == 70_000
