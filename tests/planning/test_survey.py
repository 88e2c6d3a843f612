"""Plans of surveys: the cap, the contrasts, and previews, from public numbers alone."""

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.planning.survey import Guess, best_cap, cap_errors, contrast_plans
from dpstats.privacy.neighbours import Neighbours

UNITS = {h: list(range(m)) for h, m in enumerate([2, 2, 3, 4, 5, 8] * 5)}
CASES = [(dps.PureDP(1), "add_remove"), (dps.ApproxDP(1, 1e-6), "replace")]
N = 4_000


def designed(**options):
    given = {"mean": 3, "cv": 0.7, "strata": "h", "unit": "u", "units": UNITS}
    return dps.Design("w", **(given | options))


def planned(budget=CASES[0][0], unit="add_remove", analyses=None, **options):
    columns = [dps.Boolean("y"), dps.Category("g", list("abc"))]
    asked = {"y": dps.Proportion("y")} if analyses is None else analyses
    schema = dps.Schema(columns, design=designed(**options))
    return dps.plan(schema, asked, budget=budget, unit=unit, n=N)


@pytest.mark.parametrize(("budget", "unit"), CASES)
def test_the_planned_noise_is_that_of_the_plan_and_no_other_plan_is_shorter(budget, unit):
    """Of a share of .15 and weights whose mean is that of capped lognormal ones."""
    plan = planned(budget, unit)
    ((main,), (contrasts,)) = plan.strategy.measured, plan.strategy.contrasts
    (expected,) = contrast_plans(plan.strategy, plan.analyses, N).values()
    design, share = plan.schema.design, 0.15
    sigma = np.sqrt(np.log(1 + 0.7**2))
    u = np.exp(sigma * stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000) - sigma**2 / 2)
    capped = np.minimum(u, design.cap / design.mean)
    total = N * capped.mean() * design.mean / design.unit_weight
    slopes = np.array([1 - share, -share]) / total
    sampling = 2 * (capped**2).mean() / capped.mean() ** 2 * share * (1 - share) / N

    def noise(block, basis):
        (scale,) = set(plan.strategy.scales_of(block))
        return budget.law(scale).variance * np.sum((slopes @ np.linalg.inv(basis)) ** 2) / sampling

    x, of_contrast = noise(main, main.block.basis), noise(contrasts, np.eye(2))

    def width(count, x, of_contrast):
        df = np.clip(count * ((1 + x) / (1 + count * of_contrast)) ** 2, 1, count)
        return df, stats.t.ppf(0.975, df) * np.sqrt(1 + x) / stats.norm.ppf(0.975)

    count = contrasts.block.count
    df, shortest = width(count, x, of_contrast)
    cost, spent = (
        float(of.block.cost(budget, plan.neighbours, of.multiplier)) for of in (main, contrasts)
    )
    assert expected.count == count
    assert expected.share == pytest.approx(spent / float(budget.total), abs=0.03)  # the count's
    assert expected.degrees_of_freedom == pytest.approx(df, rel=1e-3)
    assert expected.width == pytest.approx(shortest, rel=1e-3)
    # No other number of contrasts or share of the budget is planned to be shorter.
    power = 2 if budget.noise == "laplace" else 1
    counts = np.arange(1, design.pairs.count + 1)[:, None]
    share = np.arange(0.1, 0.96, 0.05)
    others = x * (cost / (cost + spent) / (1 - share)) ** power
    of_others = of_contrast * (spent / (cost + spent) / share) ** power
    assert width(counts, others, of_others)[1].min() >= 0.998 * shortest


def test_a_declared_design_effect_is_used_where_intervals_are_planned_shorter():
    noisy, precise = (planned(dps.PureDP(epsilon), deff=2) for epsilon in (0.1, 10))
    assert precise.strategy.contrasts
    assert not noisy.strategy.contrasts
    (expected,) = contrast_plans(noisy.strategy, noisy.analyses, N).values()
    assert (expected.count, expected.degrees_of_freedom) == (0, np.inf)


def test_the_cap_has_the_least_planned_error():
    design, caps = designed(), []
    for epsilon in (0.1, 10):
        given = (dps.PureDP(epsilon), Neighbours("replace"), N, 2)
        cap = best_cap(design, *given)
        errors = cap_errors(design, np.array([cap, 0.9 * cap, 1.1 * cap]), *given)
        assert errors[0] <= errors.min() * 1.001
        caps.append(cap)
    assert caps == sorted(set(caps))
    assert 3 <= best_cap(designed(deff=2), *given) < 30
    assert best_cap(designed(high=4), dps.PureDP(10), Neighbours("replace"), N, 1) == 4


@pytest.mark.parametrize(("budget", "unit"), CASES)
def test_previewed_widths_are_about_the_planned_ones(budget, unit):
    plan = planned(budget, unit)
    (width,) = plan.preview(like=dps.Guesses(shares={"y": 0.15})).widths()["width"]
    (expected,) = contrast_plans(plan.strategy, plan.analyses, N).values()
    base = plan.strategy.contrasts[0].block.base
    guess = Guess.of(base, budget.total, plan.schema.design, budget, plan.neighbours, N)
    ratio = width / (2 * stats.norm.ppf(0.975) * guess.sampling * expected.width)
    assert 0.75 < ratio < 1.35


@pytest.mark.parametrize(("budget", "unit"), CASES)
def test_every_analysis_has_one_block_with_contrasts_of_all_its_functions(budget, unit):
    """Though several others together give these."""
    among = {level: dps.Proportion("y", given=f"g == '{level}'") for level in "abc"}
    fit = dps.GoodnessOfFit("g", [0.2, 0.3, 0.5])
    for other in (dps.GroupMeans("y", by="g"), dps.Difference("y", by="g", groups=["a", "b"])):
        plan = planned(budget, unit, {**among, "other": other, "fit": fit})
        expected = contrast_plans(plan.strategy, plan.analyses, N)
        assert all(one.count for one in expected.values())


@pytest.mark.parametrize(("budget", "unit"), CASES)
def test_contrasts_are_planned_again_for_another_budget_or_number_of_rows(budget, unit, fast):
    """So that what is found is what a plan made for it has."""
    asked = {"y": dps.Proportion("y"), "by": dps.GroupMeans("y", by="g")}
    first, wanted = (
        planned(budget.of_total(budget.total * times), unit, asked, cap=6) for times in (1, 4)
    )
    assert first.costing(wanted.budget).digest == wanted.digest != first.digest
    assert wanted.costing(wanted.budget).digest == wanted.digest
    for given in ({"n": N}, {"budget": budget}):
        found = first.solve(of="by", width=0.15, **given).plan
        again = dps.plan(first.schema, asked, budget=found.budget, unit=unit, n=found.n)
        assert found.digest == again.digest


def test_refusals_name_the_analysis_and_say_what_is_declared():
    twice = {"one": dps.Proportion("y"), "two": dps.Logistic("y ~ g", stages=2)}
    with pytest.raises(RequestError, match="analysis 'two': stages=2 is not available"):
        planned(analyses=twice)
    with pytest.raises(RequestError, match=r"the design is declared with one unit.* two or more"):
        planned(strata=None, units=[1])
    for lonely in ("adjust", "collapse"):  # its distance from the mean of all is 0
        with pytest.raises(RequestError, match="declared with one unit"):
            planned(units={"one": [1]}, lonely=lonely)
    with pytest.raises(RequestError, match="a number of units is at least 10"):
        planned(strata=None, units=9)
