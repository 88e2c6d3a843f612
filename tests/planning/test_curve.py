"""Widths against the budget: those of previews at each budget."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.planning.previews import simulated

SCHEMA = dps.Schema([
    dps.Boolean("smoker"), dps.Number("z", 0, 100, edges=[50], missing=0),
    *(dps.Number(name, 0, 100, missing=0) for name in "xy"),
], dps.Guesses(typical={name: {"mean": 50, "sd": 10} for name in "xy"}))  # fmt: skip
ASKED = {"smoking": dps.Proportion("smoker"), "lasso": dps.Lasso("y ~ x"), "line": dps.OLS("y ~ x")}
N = 2_000


@pytest.fixture(scope="module", autouse=True)
def _few_releases():
    """Simulated by all previews, so that those that are compared have as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated, "_MOST", 8)
        yield


@pytest.fixture(scope="module")
def plan():
    return dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1))


@pytest.fixture(scope="module")
def curve(plan):
    return plan.curve(N, budgets=[5, 0.05])


def test_widths_are_those_of_previews(plan, curve):
    assert curve.budgets.tolist() == [0.05, 5]
    assert list(curve.widths) == ["smoking", "line"]  # those with intervals
    for number, epsilon in enumerate((0.05, 5)):
        outlooks = plan.costing(dps.PureDP(epsilon)).preview(N).outlooks
        widths = {one.name: one.width for one in outlooks if one.name in curve.widths}
        assert {name: found[number] for name, found in curve.widths.items()} == widths
    assert np.isinf(curve.widths["line"][0])
    assert str(curve).count("unbounded") == 1
    frame = curve.to_frame()
    assert frame.columns.tolist() == ["analysis", "of", "epsilon", "width"]
    assert set(frame["of"]) == {"proportion", "x"}
    assert len(frame) == 4
    alone = plan.curve(N, budgets=5, of="smoking")
    assert alone.widths["smoking"] == curve.widths["smoking"][1:]


def test_approximate_privacy_is_in_epsilon():
    asked = {"smoking": ASKED["smoking"]}
    plan = dps.plan(SCHEMA, asked, budget=dps.ApproxDP(1, 1e-6))
    curve = plan.curve(N, budgets=[0.5, 0.1])
    assert (curve.parameter, curve.budgets.tolist()) == ("epsilon", [0.1, 0.5])
    (outlook,) = plan.costing(dps.ApproxDP(0.5, 1e-6)).preview(N).outlooks
    assert curve.widths["smoking"][1] == outlook.width
    little = dps.plan(SCHEMA, asked, budget=dps.ApproxDP(1, 1e-6, rho=1e-3))
    (outlook,) = little.preview(N).outlooks
    assert little.curve(N, budgets=1).widths["smoking"] == [outlook.width]


DESIGN = dps.Design("w", mean=1, cap=2, unit="u", units=range(20))


@pytest.mark.parametrize(("name", "design"), [("odds", None), ("line", DESIGN)])
def test_second_stages_and_contrasts_of_scores_are_at_the_pilots_of_previews(name, design, fast):
    numbers = [dps.Number(name, 0, 100, edges=[40, 60], missing=0) for name in "xy"]
    guesses = dps.Guesses(typical={"x": {"mean": 70, "sd": 10}, "y": {"mean": 20, "sd": 5}})
    schema = dps.Schema([dps.Boolean("z"), *numbers], guesses, design=design)
    asked = {"line": dps.OLS("y ~ x"), "odds": dps.Logistic("z ~ x", stages=1 if design else 2)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(8))
    for n in (N, 3 * N):
        (width,) = plan.curve(n, budgets=[8], of=name).widths[name]
        previewed = {one.name: one.width for one in plan.preview(n).outlooks}
        assert width == previewed[name]
    (width,) = plan.curve(N, budgets=[8], of=name).widths[name]
    assert 7.8 < float(plan.solve(of=name, width=width, n=N).budget.total) <= 8


def test_a_budget_that_buys_nothing_is_said_to(curve):
    assert not curve.notes
    asked = {"median": dps.Quantile("z"), "smoking": ASKED["smoking"]}
    found = dps.plan(SCHEMA, asked, budget=dps.PureDP(1)).curve(N, budgets=[50, 90])
    assert [note.split(":")[0] for note in found.notes] == ["median", "smoking"]


def test_refusals(plan):
    for options, message in (
        ({"of": "lasso"}, "'lasso' has no noise_aware interval"),
        ({"n": None}, "needs a number of rows"),
        ({"of": "none"}, "of= must name an analysis"),
        ({"budgets": [0]}, "epsilon must be"),
        ({"budgets": []}, "give at least one budget"),
        ({"budgets": "12"}, "epsilon .*'12'"),
        ({"budgets": dps.PureDP(2)}, "epsilon must be"),
        ({"of": 3}, "of= must name.*got 3"),
        ({"method": "best"}, "method"),
        ({"alpha": 0.95}, "did you mean"),
    ):
        with pytest.raises(dps.DpstatsError, match=message):
            plan.curve(**{"n": N, **options})
    alone = dps.plan(SCHEMA, {"lasso": ASKED["lasso"]}, budget=dps.PureDP(1))
    with pytest.raises(dps.RequestError, match="no analysis of the plan has intervals"):
        alone.curve(N)
