"""Lasso and elastic net: scikit-learn without noise, and verdicts that are never wrong."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn import linear_model

import dpstats as dps
from dpstats.analyses.regression import elastic_net

SCHEMA = dps.Schema([
    *(dps.Number(name, -2, 2, points=401, missing=0) for name in ("a", "b", "c")),
    dps.Number("y", -6, 6, points=1201, missing=0), dps.Category("g", ["n", "s", "w"]),
])  # fmt: skip
FORMULA = "y ~ a + b + c + C(g)"


def rows(n=2_000, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 0.7, (2, n)).clip(-2, 2).round(2)
    c = (0.6 * a + rng.normal(0, 0.5, n)).clip(-2, 2).round(2)
    g = rng.choice(list("nsw"), n)
    y = 0.5 + 1.2 * a - 0.3 * b + 0.8 * (g == "s") + rng.normal(0, 0.8, n)
    return pd.DataFrame({"a": a, "b": b, "c": c, "y": y.clip(-6, 6).round(2), "g": g})


def design(frame):
    groups = [frame["g"] == "s", frame["g"] == "w"]
    x = np.column_stack([*(frame[name] / 2 for name in "abc"), *groups])
    return x.astype(float), frame["y"].to_numpy() / 6


@pytest.mark.parametrize(
    ("unit", "l1_ratio", "alpha"), [("add_remove", 1.0, 0.001), ("replace", 0.5, 0.02)]
)
def test_without_noise_it_is_scikit_learn(unit, l1_ratio, alpha, no_noise, inferred):
    frame = rows()
    x, y = design(frame)
    theirs = linear_model.ElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-10).fit(x, y)
    ours = inferred(SCHEMA, frame, dps.ElasticNet(FORMULA, alpha, l1_ratio), unit=unit)
    np.testing.assert_allclose(ours.basis[1:], theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.params[1:], theirs.coef_ * 6 / [2, 2, 2, 1, 1], atol=1e-6)
    at = {"a": [0.5, 1.0], "b": 0.0, "c": -0.5, "g": "s"}
    unit_scale = np.array([[0.25, 0, -0.25, 1, 0], [0.5, 0, -0.25, 1, 0]])
    np.testing.assert_allclose(ours.predict(at), 6 * theirs.predict(unit_scale), atol=1e-6)
    assert ours.risk()[0] == pytest.approx(36 * np.mean((y - theirs.predict(x)) ** 2), rel=1e-5)


@pytest.mark.parametrize(("budget", "unit"), [
    (dps.PureDP(20), "replace"), (dps.PureDP(60), "add_remove"),
])  # fmt: skip
def test_verdicts_are_those_of_the_table(budget, unit, redrawn):
    """Certified at 95%, with joint bounds: no verdict is wrong in 4 releases, and some speak."""
    frame, alpha = rows(20_000), 0.02
    x, y = design(frame)
    theirs = linear_model.Lasso(alpha=alpha, tol=1e-10).fit(x, y).coef_ != 0
    assert 0 < theirs.sum() < len(theirs)
    spoken = 0
    for ours in redrawn(SCHEMA, frame, dps.Lasso(FORMULA, alpha), budget, 4, unit=unit):
        verdicts = ours.support()["verdict"].to_numpy()[1:]
        assert not np.any((verdicts == "in") & ~theirs)
        assert not np.any((verdicts == "out") & theirs)
        spoken += int(np.sum(verdicts != "undecided"))
        low, high = ours.risk()[1:]
        assert low <= 36 * np.mean((y - x @ ours.basis[1:] - ours.basis[0]) ** 2) <= high
    assert spoken > 0


def test_verdicts_are_on_the_terms_that_are_printed(no_noise, inferred):
    """Without noise all could be told; in original units that of y on a is not zero."""
    numbers = [dps.Number(name, low, 1, points=101, missing=0) for name, low in
               [("a", 0), ("b", 0), ("d", -1)]]  # fmt: skip
    schema = dps.Schema([*numbers, dps.Number("y", 0, 4, points=401, missing=0)])
    a, b = np.repeat(np.arange(101), 101) / 100, np.tile(np.arange(101), 101) / 100
    frame = pd.DataFrame({"a": a, "b": b, "d": 2 * b - 1})
    frame["y"] = (2 + 3 * (a - 0.5) * (b - 0.5)).round(2)
    for formula, wanted in {
        "y ~ a*b": ["undecided"] * 3 + ["in"], "y ~ a*d": ["undecided", "out", "undecided", "in"],
        "y ~ a + b": ["undecided", "out", "out"],
    }.items():  # fmt: skip
        found = inferred(schema, frame, dps.Lasso(formula, 0.02))
        assert found.support()["verdict"].tolist() == wanted
        away = np.asarray(found.params)[np.array(wanted) == "out"]
        np.testing.assert_allclose(away, 0, atol=1e-9)


def test_the_usual_penalty_keeps_out_what_is_not_there(redrawn):
    frame = rows(1_000)
    frame["y"] = np.random.default_rng(1).normal(0, 1, 1_000).clip(-6, 6).round(2)
    found = redrawn(SCHEMA, frame, dps.Lasso(FORMULA), dps.PureDP(3), 8)
    assert sum(np.any(one.basis[1:] != 0) for one in found) <= 2


def test_the_usual_penalty_allows_for_the_noise_on_means(redrawn):
    schema = dps.Schema([dps.Number(name, 0, 1, points=101, missing=0) for name in "aby"])
    table = np.random.default_rng(0).normal(0.9, 0.05, (2_000, 3)).clip(0, 1).round(2)
    frame = pd.DataFrame(table, columns=list("aby"))
    found = redrawn(schema, frame, dps.ElasticNet("y ~ a + b"), dps.PureDP(3), 40)
    assert sum(np.any(one.basis[1:] != 0) for one in found) <= 6


def test_the_usual_penalty_is_larger_where_rows_of_a_person_may_be_alike(inferred):
    budget = dps.PureDP(10**7)
    one, four = (
        inferred(SCHEMA, rows(), dps.Lasso(FORMULA), budget, rows_per_person=k).alpha
        for k in (1, 4)
    )
    assert four == pytest.approx(2 * one, rel=0.05)


def test_paths_begin_with_nothing_and_end_near_least_squares(inferred):
    result = inferred(SCHEMA, rows(), dps.Lasso(FORMULA, 0.02), dps.PureDP(200))
    assert (result.basis == 0).any()
    assert np.all(result.params[result.basis == 0] == 0)
    assert "certified together at 99.9%" in result.summary(alpha=0.001)
    path = result.path(20).pivot(index="alpha", columns="term", values="estimate")
    path = path.drop(columns="Intercept").sort_index()
    assert np.all(path.iloc[-1] == 0)
    assert path["a"].iloc[0] == pytest.approx(1.2, abs=0.2)
    assert np.all((path == 0) | (path.abs() > 1e-9))  # what the solver leaves out is zero


# Certified bounds of the risk, by brute force over the noise that they allow.


@pytest.fixture
def noisy(monkeypatch):
    """Moments of 1, x and y with given noise on the sums, of which |noise| <= q is certain."""

    def build(sums, q, *, public, off=0.0):
        n = max(round(sums[0, 0] + off), 1)
        answers = SimpleNamespace(rows=SimpleNamespace(public=public), n=n, sums=sums[:1, 0])
        matrix = SimpleNamespace(
            matrix=sums / n, n=n, radius=lambda _: np.full((3, 3), q / n), answers=answers
        )
        monkeypatch.setattr(elastic_net, "joint_noise_quantiles", lambda *_: np.array([q]))
        return elastic_net.PenalisedMoments(matrix, np.eye(3), np.array([0.0, 1.0]))

    return build


@pytest.mark.parametrize(("q", "off"), [(2.0, 0.0), (15.0, 0.0), (6.0, 5.0)])
def test_the_risk_of_a_noisy_number_of_rows_is_within_its_bounds(q, off, noisy):
    """Also where the number of rows is estimated otherwise than by the count of the matrix."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], 40)
    table = np.column_stack([np.ones(40), x, rng.choice([-1.0, 1.0], 40)])
    exact, reached = table.T @ table, []
    for b in np.array([(0.0, 0.0), (0.5, 0.1), (-0.2, 0.9)]):
        true = np.mean((table @ [-b[0], -b[1], 1.0]) ** 2)
        for signs in itertools.product((-1, 1), repeat=6):
            noise = np.zeros((3, 3))
            noise[np.triu_indices(3)] = np.multiply(q, signs)
            noise = np.triu(noise) + np.triu(noise, 1).T
            found, low, high = noisy(exact + noise, q, public=False, off=off).risk(b, 0.05)
            assert 0 <= low <= true * (1 + 1e-12) < high * (1 + 2e-12)
            assert found >= 0
            reached.append(max(low / true, true / high))
    assert max(reached) > 0.99 or off


def test_the_risk_of_few_rows_is_open_and_that_of_a_public_number_is_not_divided(noisy):
    for sums, q, public, wanted in (
        ([10.0, 8, 8], 12.0, False, (0.8, 0, np.inf)),  # below the noise
        ([10.0, 8, 8], 2.0, True, (0.8, 0.6, 1)), ([10.0, 8, -4], 2.0, True, (0, 0, 0)),
    ):  # fmt: skip
        found = noisy(np.diag(sums), q, public=public).risk(np.zeros(2), 0.05)
        assert found == pytest.approx(wanted), (sums, public)
