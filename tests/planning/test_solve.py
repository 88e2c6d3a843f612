"""The least budget or number of rows: closed forms, the preview itself, power, and refusals."""

import math
import re
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.base import answered
from dpstats.inference.simulation import make_generator
from dpstats.planning import measures
from dpstats.planning.measures import Delta, Measure, Subject, pvalue_of, under_alternative
from dpstats.planning.previews.likeness import Likeness
from dpstats.planning.solve import find_least, with_budget

ALONE = dps.Schema([dps.Boolean("smoker")])
SCHEMA = dps.Schema([
    dps.Boolean("smoker"), dps.Category("region", ["north", "south", "east"]),
    *(dps.Number(name, 0, 1, points=65, missing=0) for name in "xy"),
])  # fmt: skip
ASKED = {
    "smoking": dps.Proportion("smoker"),
    "north": dps.Proportion("smoker", given="region == 'north'"),
    "gap": dps.Difference("smoker", by="region", groups=("north", "south")),
    "fit": dps.GoodnessOfFit("region", [0.5, 0.25, 0.25], simulations=199),
    "mean": dps.Mean("x"),
    "line": dps.OLS("y ~ x"),
}


def alone(budget):
    return dps.plan(ALONE, {"smoking": dps.Proportion("smoker")}, budget=budget)


@pytest.fixture(scope="module")
def plan():
    return dps.plan(SCHEMA, ASKED, budget=dps.PureDP(2))


def test_without_noise_the_rows_grow_with_the_inverse_square_of_the_width(fast):
    options = {"of": "smoking", "budget": dps.PureDP(10_000)}
    for width in (0.02, 0.01):
        rows = alone(dps.PureDP(1)).solve(width=width, **options).n
        assert rows == pytest.approx((stats.norm.ppf(0.975) / width) ** 2, rel=0.03)
    certified = alone(dps.PureDP(1)).solve(width=0.01, method="certified", **options)
    assert certified.n > rows


def test_where_noise_dominates_the_budget_follows_from_its_law(fast):
    """A Laplace count of scale 1/epsilon is within log(20)/epsilon with probability 95%."""
    asked = {"width": 0.3, "of": "smoking", "n": 20_000}
    pure = alone(dps.PureDP(1)).solve(**asked)
    assert pure.budget.epsilon == pytest.approx(2 * math.log(20) / (0.3 * 20_000), rel=0.025)
    sigma = 0.3 * 20_000 / (2 * stats.norm.ppf(0.975))
    rho = alone(dps.ZCDP(1, 1e-6)).solve(**asked)
    assert rho.budget.rho == pytest.approx(1 / (2 * sigma**2), rel=0.025)
    assert rho.budget.delta == dps.ZCDP(1, 1e-6).delta
    assert re.search(r"least rho = \S+ \(epsilon = \S+ at delta = 1e-06\)", str(rho))
    approx = alone(dps.ApproxDP(1, 1e-6)).solve(**asked)
    assert approx.budget.rho == rho.budget.rho
    assert approx.budget.epsilon < rho.budget.epsilon_at()
    assert approx.plan.cost() == approx.budget.rho


def test_the_solution_is_what_the_preview_shows_and_less_would_not_do(fast):
    plan = dps.plan(SCHEMA, {name: ASKED[name] for name in ("north", "gap")}, budget=dps.PureDP(2))
    solution = plan.solve(width=0.16, of="north", n=1_000)
    assert isinstance(solution, dps.Solution)
    shown = {o.name: o.width for o in solution.plan.preview(1_000).outlooks}
    assert shown["north"] == solution.reached <= 0.16
    below, width = solution.below
    assert width > 0.16
    assert below.epsilon < solution.budget.epsilon <= Measure.close * below.epsilon
    # From another start.
    far = plan.costing(dps.PureDP(50)).solve(width=0.16, of="north", n=1_000)
    assert far.budget.epsilon == pytest.approx(solution.budget.epsilon, rel=0.02)


def test_the_width_is_that_of_a_named_term(fast):
    plan = dps.plan(SCHEMA, {name: ASKED[name] for name in ("line", "fit")}, budget=dps.PureDP(2))
    usual = plan.solve(width=0.2, of="line", n=2_000)
    assert usual.details == "noise-aware 0.95 interval of 'x'"
    assert "for another give term=, one of ['Intercept', 'x']" in usual.note
    other = plan.solve(width=0.2, of="line", term="Intercept", n=2_000)
    assert (other.details, other.note) == ("noise-aware 0.95 interval of 'Intercept'", "")
    for of, term, sentence in (
        ("line", "z", "'line' has no interval of a term 'z'; its terms: ['Intercept', 'x']"),
        ("fit", "x", "'fit' has no interval of a term 'x'; drop term="),
    ):
        with pytest.raises(dps.RequestError, match=re.escape(sentence)):
            plan.solve(width=0.2, of=of, term=term, n=2_000)


def test_the_plan_of_a_solution_is_the_plan_made_with_its_budget(plan):
    made = dps.plan(SCHEMA, ASKED, budget=dps.PureDP(0.3))
    assert plan.costing(dps.PureDP(0.3)).digest == made.digest
    knowing = dps.plan(ALONE, {"smoking": ASKED["smoking"]}, budget=dps.PureDP(1), n=5_000)
    assert knowing.solve(width=0.05, of="smoking").found == "budget"
    rows = knowing.solve(width=0.05, of="smoking", budget=dps.PureDP(0.5))
    assert (rows.found, rows.plan.n, rows.budget) == ("n", rows.n, dps.PureDP(0.5))
    only = {"smoking": ASKED["smoking"], "mean": ASKED["mean"]}
    options = {"reference": dps.BernsteinKDE(share=0.25), "unit": "add_remove"}
    kde = dps.plan(SCHEMA, only, budget=dps.ZCDP(1), n=1_000, **options)
    moved = replace(kde, strategy=with_budget(kde.strategy, kde.reference, dps.ZCDP(0.2), 80_000))
    made = dps.plan(SCHEMA, only, budget=dps.ZCDP(0.2), n=80_000, **options)
    assert (moved.n, moved.digest) == (80_000, made.digest)


def test_the_certificate_of_a_release_keeps_the_wanted_delta():
    plan = dps.plan(SCHEMA.select(["region"]), {"fit": ASKED["fit"]}, budget=dps.PureDP(1))
    solution = plan.solve(delta=0.02, of="fit", n=2_000, alpha=0.1)
    rows = pd.DataFrame({"region": ["north", "north", "south", "east"] * 500})
    found = dps.release(solution.plan, rows, rng=1).accuracy("fit", alpha=0.1)
    assert 0.98 * 0.02 <= found.joint_radius.max() <= 0.02


def test_the_level_of_the_interval_counts(fast):
    usual, rough = (
        alone(dps.PureDP(1)).solve(of="smoking", width=0.04, n=3_000, alpha=alpha)
        for alpha in (0.05, 0.2)
    )
    assert rough.budget.epsilon < 0.8 * usual.budget.epsilon


def test_power_without_noise_is_that_of_the_textbook(monkeypatch):
    monkeypatch.setattr(measures, "RELEASES", 24)
    monkeypatch.setattr(measures, "FEW_RELEASES", 8)
    options = {"of": "smoking", "alternative": 0.6, "null": 0.5}
    solution = alone(dps.PureDP(1)).solve(power=0.8, budget=dps.PureDP(1_000), **options)
    z = stats.norm.ppf([0.975, 0.8])
    assert solution.n == pytest.approx(((z[0] * 0.5 + z[1] * 0.24**0.5) / 0.1) ** 2, rel=0.2)
    assert solution.reached >= 0.8 > solution.below[1]


@pytest.mark.slow
def test_power_of_a_noisy_count_is_that_of_its_law():
    """At n = 2000 and a shift of 200 rows the noise decides; sampling adds its variance."""
    options = {"of": "smoking", "alternative": 0.6, "null": 0.5}
    solution = alone(dps.ZCDP(1)).solve(power=0.5, n=2_000, **options)
    error = 200 / stats.norm.ppf(0.975)  # half of the power: the shift is 1.96 standard errors
    rho = 1 / (2 * (error**2 - 2_000 * 0.25))
    assert float(solution.budget.rho) == pytest.approx(rho, rel=0.2)


def test_a_pvalue_needs_a_hypothesis_and_a_term(plan):
    release = dps.release(plan, dps.pretend(SCHEMA, 500, rng=0), m=300, rng=0)
    share, fit = release.infer("smoking"), release.infer("fit")
    assert pvalue_of(share, "smoking", 0.5, None) == share.test(0.5).pvalue
    assert pvalue_of(fit, "fit", None, None) == fit.pvalue
    line = release.infer("line")
    assert pvalue_of(line, "line", None, "x") == line.pvalues["x"]
    for name, null, term, sentence in (
        ("smoking", None, None, "needs null="),
        ("fit", 0.2, None, "has its own hypothesis; drop null="),
        ("line", None, None, "several terms; give term=, one of ['Intercept', 'x']"),
        ("line", None, "z", "not 'z'"),
        ("fit", None, "x", "single test; drop term='x'"),
    ):
        with pytest.raises(dps.RequestError, match=re.escape(sentence)):
            pvalue_of(release.infer(name), name, null, term)


def test_rows_follow_the_alternative():
    codes, density = Likeness().points(SCHEMA, make_generator(0))
    for name, effect, expected in (
        ("smoking", 0.2, [0.2]),
        ("gap", 0.3, [0.65 / 3, 0.35 / 3, 0.35 / 3, 0.65 / 3]),
        ("gap", [0.1, 0.3], [0.1 / 3, 0.9 / 3, 0.3 / 3, 0.7 / 3]),
        ("north", 0.25, [0.25 / 3, 0.75 / 3]),
        ("fit", [0.2, 0.2, 0.6], [0.2, 0.2, 0.6]),
        ("fit", {"north": 0.2, "east": 0.6, "south": 0.2}, [0.2, 0.2, 0.6]),
    ):
        tilted = under_alternative(ASKED[name], SCHEMA, codes, density, effect)
        assert tilted.sum() == pytest.approx(1)
        assert tilted.min() >= 0
        shares = answered(ASKED[name], SCHEMA).evaluate(codes).average(tilted)
        exact = name in ("smoking", "fit")
        np.testing.assert_allclose(shares, expected, atol=1e-9 if exact else 0.01)
        if name == "north":
            assert shares[0] == pytest.approx(0.25 * shares.sum())


def test_rows_out_of_reach_and_budgets_that_always_suffice(fast):
    schema = dps.Schema([dps.Number("x", 0, 10, edges=[2, 4, 6, 8], missing=0)])
    plan = dps.plan(schema, {"half": dps.Quantile("x", 0.5)}, budget=dps.PureDP(1))
    with pytest.raises(dps.RequestError, match=r"not even n = 10+ .*finer edges of 'x'"):
        plan.solve(width=0.5, of="half")
    with pytest.raises(dps.RequestError, match="; no number of rows would do with the plan's own"):
        plan.solve(width=0.5, of="half", n=1_000)
    with pytest.raises(dps.RequestError, match="; ask for a larger delta"):
        plan.solve(delta=1e-12, of="half")
    wide = alone(dps.PureDP(1)).solve(width=1.5, of="smoking", n=100)
    assert (wide.budget, wide.below) == (dps.PureDP(0.0001), None)


def test_refusals_are_one_sentence(plan, monkeypatch, fast):
    monkeypatch.setattr(measures, "RELEASES", 30)
    monkeypatch.setattr(measures, "FEW_RELEASES", 10)
    for options, sentence in (
        ({}, "give exactly one of width=, delta= and power=; got none"),
        ({"width": 0.1, "delta": 0.1}, "exactly one of .*; got width=, delta="),
        ({"width": 0.1, "of": "nobody"}, r"of= must name an analysis .*'smoking'.*; got 'nobody'"),
        ({"width": -1}, "width must be a positive number, got -1"),
        ({"delta": 0.1, "term": "x"}, "term= belongs to width= and power=; drop it for delta="),
        ({"delta": 0.1, "method": "certified"}, "method= belongs to width=; drop it for delta="),
        ({"width": 0.1, "null": 0.5}, "null= belongs to power="),
        ({"width": 0.1, "budget": dps.PureDP(1)}, "not both; to see the widths"),
        ({"width": 0.1, "n": None, "budget": dps.ZCDP(1)}, "plan's own kind.*dps.PureDP"),
        ({"power": 0.8}, "needs alternative=, an effect size, or like="),
        ({"power": 0.04, "alternative": 0.2}, "power=0.04 is out of range: more than alpha=0.05"),
        ({"power": 0.8, "alternative": 1.2}, r"alternative of a Proportion is in .*; got 1.2"),
        ({"power": 0.8, "alternative": 2, "of": "gap"}, "or both risks; got 2"),
        ({"power": 0.8, "alternative": 0.2, "of": "mean"}, r"for dps.Mean\('x'\) give like="),
        ({"power": 0.8, "alternative": [0.5, 0.5], "of": "fit"}, "2 probabilities were given"),
        (
            {"width": 0.01},
            "not even epsilon = 10000 gives 'smoking' a width of 0.01 at n = 1000: it "
            "gives 0.06.*, from sampling alone; with the plan's own budget, epsilon = 2, n = 38",
        ),
        ({"power": 0.8, "alternative": 0.5, "null": 0.5}, "alternative=0.5 is the null hypothesis"),
    ):
        with pytest.raises(dps.RequestError, match=sentence):
            plan.solve(**{"of": "smoking", "n": 1_000, **options})
    for budget in (dps.ZCDP(1), dps.ApproxDP(1, 1e-6), 3):  # noise in proportion would not cost it
        with pytest.raises(dps.RequestError, match=r"budget.* must be .*dps.PureDP"):
            plan.costing(budget)


def test_rounding_turns_no_hit_into_a_miss():
    """A target that previews reach exactly is reached, though a sum of them is an ulp above."""
    strategy = alone(dps.PureDP(1)).strategy
    measure = Delta(Subject(strategy, ASKED["smoking"], "smoking", Likeness(), 0.05))
    assert measure.shortfall(0.010000000000000064, 0.01) == 0
    assert measure.shortfall(0.01 * (1 + 1e-8), 0.01) > 0


def digits(value):
    return float(f"{value:.3g}")


def search(curve, start=1.0, ends=(1e-4, 1e4), grid=digits):
    """The least value that suffices, the one below, and all that were tried."""
    shortfall = Mock(side_effect=curve)
    found = find_least(shortfall, ends, grid, start, power=0.0)
    return *found, [value for (value,), _ in shortfall.call_args_list]


@pytest.mark.parametrize("curve", [
    lambda ratio: math.copysign(1.0, ratio - 1 + 1e-12),  # a step
    lambda ratio: math.log(ratio) if ratio < 3 else math.inf,
    lambda ratio: -700.0 if ratio < 1 else 1e-6,  # a width of zero
    lambda ratio: math.log(ratio) ** 3,
])  # fmt: skip
def test_other_curves_only_take_longer(curve):
    for root in (0.5, 1.004, 77.0):
        hit, miss, tried = search(lambda value, root=root: curve(root / value))
        assert curve(root / hit) <= 0 < curve(root / miss)
        assert hit <= miss * Measure.close * (1 + 1e-12)
        assert len(tried) <= 40


def test_whole_numbers_end_at_neighbours_and_none_is_tried_twice():
    hit, miss, tried = search(
        lambda value: 0.02 * math.log(14.5 / value), 10, ends=(10, 1e9),
        grid=lambda value: float(int(digits(value))),
    )  # fmt: skip
    assert (hit, miss) == (15, 14)
    assert len(tried) == len(set(tried))
