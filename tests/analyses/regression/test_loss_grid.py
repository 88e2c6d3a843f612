"""M-estimation on a grid: against direct minimisers, coverage, files and refusals."""

import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

import dpstats as dps
from dpstats.analyses.regression.loss_grid import NearMinimisers, RiskSurface, quadratic_minimiser
from dpstats.inference.simulation import draw_from
from dpstats.measured.answers import answer

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=41, missing=0), dps.Number("age", 20, 80, points=61, missing=50),
    dps.Number("pay", 0, 10, points=101, missing=5), dps.Boolean("ill"),
    dps.Number("score", values=[1, 2, 3, 4, 5], missing=3),
])  # fmt: skip
SQUARE = {"Intercept": (-2, 2, 9), "x": (-2, 2, 9)}
LOGISTIC = dps.LossGrid("logistic", "ill ~ x", SQUARE)
HUBER = dps.Huber("pay ~ age", k=1, grid={"Intercept": (3, 7, 9), "age": (-0.1, 0.15, 11)})


def people(n=2_000, seed=0):
    rng = np.random.default_rng(seed)
    x, age = rng.integers(-20, 21, n) / 20, rng.integers(20, 81, n)
    pay = 4.5 + 0.05 * (age - 50) + 0.5 * rng.standard_t(2, n)
    return pd.DataFrame({
        "x": x, "age": age, "pay": pay.clip(0, 10).round(1), "score": rng.integers(1, 6, n),
        "ill": rng.random(n) < 1 / (1 + np.exp(-(0.4 + 0.8 * x))),
    })  # fmt: skip


@pytest.fixture
def fitted(inferred):
    """Infers from `people()`, with next to no noise by default."""

    def of(analysis, budget=None, **options):
        return inferred(SCHEMA, people(), analysis, budget or dps.ZCDP(1e8), **options)

    return of


def logistic_risk(rows):
    sign, x = np.where(rows["ill"], 1, -1), rows["x"].to_numpy()
    return lambda b: np.mean(np.logaddexp(0, -sign * (b[0] + b[1] * x)))


def huber_risk(rows, k=1):
    y, x = rows["pay"].to_numpy(), rows["age"].to_numpy() - 50.0

    def risk(b):
        r = np.abs(y - b[0] - b[1] * x)
        return np.mean(np.where(r <= k, r**2 / 2, k * (r - k / 2)))

    return risk


def minimum(risk, start, **bounds):
    options = {"xatol": 1e-8, "fatol": 1e-14, "maxiter": 2_000}
    return optimize.minimize(risk, start, method="Nelder-Mead", options=options, **bounds).x


def test_without_noise_it_is_the_direct_minimum(no_noise, fitted):
    rows = people()
    for analysis, unit, risk, start in [
        (LOGISTIC, "replace", logistic_risk(rows), (0, 0)),
        (HUBER, "add_remove", huber_risk(rows), (5, 0)),
    ]:
        found, best = fitted(analysis, unit=unit), minimum(risk, start)
        steps = np.array([axis.step for axis in found.surface.block.axes])
        assert np.all(np.abs(np.asarray(found.params) - best) < 0.1 * steps)
        assert found.contains(best)
        ends, wide = found.conf_int(target="table"), found.conf_int(target="population")
        assert np.all((ends[:, 0] <= best) & (best <= ends[:, 1]))
        assert np.all(np.diff(ends)[:, 0] < 4 * steps)
        assert np.diff(wide).sum() > np.diff(ends).sum()
        grid = found.risks()
        exact = [risk(b) for b in grid[found.terms].to_numpy()]
        np.testing.assert_allclose(grid["risk"], exact, atol=found.surface.block.rounding)
        assert np.all((grid["low"] <= exact) & (exact <= grid["high"]))


def test_a_median_and_a_default_box(no_noise, fitted):
    median = fitted(dps.LossGrid(dps.PinballLoss(), "pay ~ 1", {"Intercept": (0, 10, 101)}))
    low, high = median.conf_int()[0]
    assert low <= people()["pay"].median() <= high < low + 0.4
    default = dps.Huber("pay ~ age", k=1).block(SCHEMA)
    ends = [(a.name, a.low, a.high, a.points) for a in default.axes]
    assert ends == [("Intercept", 0, 10, 11), ("age", -5 / 30, 5 / 30, 11)]
    assert dps.Huber("pay ~ 1", k=1).block(SCHEMA).axes[0].points == 41


def test_a_loss_of_your_own(no_noise, fitted):
    def of(**options):
        table = dps.TabulatedLoss.of(
            SCHEMA, ["score"], {"m": (1, 5, 17)}, lambda row, at: abs(row["score"] - at["m"]),
            **options,
        )  # fmt: skip
        return fitted(dps.LossGrid(table))

    convex, lipschitz, certain = of(convex=True), of(lipschitz={"m": 1}), of()
    assert convex.contains({"m": float(people()["score"].median())})
    assert np.ptp(convex.conf_int()) <= 1
    assert np.ptp(lipschitz.conf_int()) > np.ptp(convex.conf_int())
    assert certain.contains(certain.params)
    assert certain.params[0] in np.linspace(1, 5, 17)
    with pytest.raises(dps.RequestError, match="give a value of each of"):
        certain.contains({"x": 1})


def surface(exact, analysis, rng):
    """The mean losses with fresh noise of the strategy's laws."""
    sums = exact.noisy_sums.astype(np.float64)
    scales = np.concatenate(exact.strategy.block_scales)
    for scale in np.unique(scales):
        same = np.flatnonzero(scales == scale)
        sums[same] += draw_from(exact.budget.law(float(scale)), len(same), rng)
    noisy = dataclasses.replace(exact, noisy_sums=sums.astype(np.int64))
    block = analysis.block(SCHEMA)
    return RiskSurface(block, answer(noisy, block))


@pytest.mark.parametrize(("analysis", "budget", "unit", "risk_of", "start"), [
    (LOGISTIC, dps.ZCDP(0.5), "replace", logistic_risk, (0, 0)),
    (HUBER, dps.PureDP(20), "add_remove", huber_risk, (5, 0)),
])  # fmt: skip
def test_bounds_and_sets_hold_jointly(analysis, budget, unit, risk_of, start, no_noise):
    """80 draws, with a seed, at alpha 0.3: a binomial share of 0.7 has a deviation of 0.05."""
    rows = people(1_000)
    risk = risk_of(rows)
    best = minimum(risk, start)
    plan = dps.plan(SCHEMA, {"m": analysis}, budget=budget, unit=unit)
    exact = dps.measure(plan, rows)
    rng, alpha, runs = np.random.default_rng(7), 0.3, 80
    held = inside = halved = 0
    true = np.array([risk(b) for b in surface(exact, analysis, rng).near(alpha, "table").points])
    for _ in range(runs):
        seen = surface(exact, analysis, rng)
        near, scaled = seen.near(alpha, "table"), true * 1_000 / seen.answers.n
        held += bool(np.all((near.low <= scaled) & (scaled <= near.high)))
        inside += bool(near.possible(best[None])[0])
        # A planted bug: half of the noise is seen at once.
        halved += bool(np.all(np.abs(seen.risks - scaled) <= seen.noise(alpha, "table") / 2))
    assert 0.58 * runs <= held <= inside
    assert halved < 0.2 * runs
    if unit == "replace":
        assert held <= 0.82 * runs


def test_a_grid_that_ends_too_early_is_named(fitted):
    grid = {"Intercept": (-2, 0, 5), "x": (-2, 2, 9)}
    narrow = fitted(dps.LossGrid("logistic", "ill ~ x", grid))
    assert "reaches the end of the grid at Intercept = 0" in narrow.summary()


PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "regression" / "m-estimation.md"


def test_the_page_on_m_estimation_runs_and_has_right_figures(capsys):
    pytest.importorskip("matplotlib").use("Agg")
    text, scope = PAGE.read_text("utf-8"), {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        few = code.replace("20_000", "2_000").replace("m=2_000", "m=100, k=10")
        exec(compile(few, PAGE, "exec"), scope)
    assert scope["plan"].family.size == 21
    assert "is due to noise" in capsys.readouterr().out

    x = dps.Schema([dps.Number("x", -1, 1, missing=0), dps.Boolean("y")])
    square = {"Intercept": (-2, 2, 11), "x": (-2, 2, 11)}
    block = dps.LossGrid("logistic", "y ~ x", square).block(x)
    replaced = block.sensitivity("replace")
    shown = f"L1 is {float(replaced.l1):.1f} and L2 is {float(replaced.l2_squared) ** 0.5:.2f}"
    proofs = " ".join((PAGE.parents[1] / "privacy" / "sensitivity.md").read_text("utf-8").split())
    assert shown in proofs
    assert f"the sum of the ranges is {block.size} and" in proofs

    axes, risk = [np.linspace(-2, 2, 21)] * 2, logistic_risk(people(5_000))
    exact = np.array([risk(b) for b in itertools.product(*axes)])
    widths = [np.diff(NearMinimisers(axes, exact, exact, np.ones(2), convex).hull)[1, 0]
              for convex in (True, False)]  # fmt: skip
    said = "within {:.2f} by convexity and within {:.1f} by the".format(*widths)
    assert said in " ".join(text.split())


# The set of possible minimisers holds the minimum whenever the bounds at the grid points hold.


def convex_function(rng, p):
    """A mean of absolute and logistic losses of random rows; its minimum over [-1, 1]^p."""
    rows, kind = rng.normal(0, 1.5, (30, p)), rng.random(30) < 0.5
    shift = rng.normal(0, 1, 30)

    def value(point):
        t = rows @ np.asarray(point) - shift
        return float(np.mean(np.where(kind, np.abs(t), np.logaddexp(0, t) + 0.3 * t**2)))

    start = min(itertools.product(np.linspace(-1, 1, 9), repeat=p), key=value)
    best = minimum(value, start, bounds=[(-1, 1)] * p)
    reach = np.mean(np.abs(rows) * np.where(kind, 1, 1 + 0.6 * 8)[:, None], axis=0)
    return value, best, reach


def test_the_minimum_is_in_the_set_whatever_the_errors_within_the_bounds():
    """9 functions, with errors at the ends of the bounds, also without convexity or constants."""
    rng, missed = np.random.default_rng(0), 0
    for trial in range(9):
        p = 1 + trial % 3
        value, best, reach = convex_function(rng, p)
        axes = [np.linspace(-1, 1, k) for k in rng.integers(3, 7, p)]
        exact = np.array([value(point) for point in itertools.product(*axes)])
        q = rng.choice([1e-9, 0.1, 1.0]) * rng.random(len(exact))
        noisy = exact + q * rng.choice([-1, 1], len(exact))
        for convex, known in [(True, reach), (True, np.full(p, np.inf)), (False, reach)]:
            near = NearMinimisers(axes, noisy - q, noisy + q, known, convex)
            assert near.possible(best[None])[0], (trial, convex)
            low, high = near.hull.T
            assert np.all((low <= best + 1e-6) & (best - 1e-6 <= high))
            points = rng.uniform(-1, 1, (10, p))
            assert np.all(near.lower(points, points) <= [value(b) + 1e-9 for b in points])
        # Without the errors in the bounds the minimum would be missed.
        missed += not NearMinimisers(axes, noisy, noisy, reach).possible(best[None])[0]
    assert missed > 1


def test_without_convexity_or_constants_only_grid_points_are_excluded():
    axes = [np.array([0.0, 1.0, 2.0])]
    near = NearMinimisers(axes, np.array([1.0, 0.0, 1.0]), np.array([1.0, 0.5, 1.0]),
                          np.array([np.inf]), convex=False)  # fmt: skip
    possible = near.possible(np.array([[0.0], [0.3], [1.0], [2.0]]))
    assert possible.tolist() == [False, False, True, False]
    assert near.hull.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("p", [1, 3])
def test_the_quadratic_fit_finds_the_minimum_of_a_quadratic(p):
    rng = np.random.default_rng(p)
    axes = [np.linspace(-1, 2, 7)] * p
    root, least = 0.2 * rng.normal(size=(p, p)) + np.eye(p), rng.uniform(0, 1, p)
    points = np.array(list(itertools.product(*axes)))
    values = np.sum(((points - least) @ root.T) ** 2, axis=1)
    for used in (np.zeros(len(values), bool), np.ones(len(values), bool)):
        np.testing.assert_allclose(quadratic_minimiser(axes, values, used), least, atol=1e-9)
    axes = [np.linspace(0, 1, 5)]  # without a minimum inside, the best grid point
    for values, best in [(axes[0], 0.0), (-(axes[0] ** 2), 1.0), ((axes[0] - 3) ** 2, 1.0)]:
        assert quadratic_minimiser(axes, values, np.zeros(5, bool)).tolist() == [best]
