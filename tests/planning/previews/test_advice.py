"""What is said of intervals without ends, and the change that would help: planned and previewed."""

import ast
import re

import numpy as np
import pytest

import dpstats as dps

SCHEMA = dps.Schema(
    [*(dps.Number(name, 0, 100, missing=0) for name in "xyz"), dps.Category("g", list("abcd"))],
    dps.Guesses(
        typical={name: {"mean": 50, "sd": 8} for name in "xyz"},
        shares={"g": {"d": 0.01}},
        correlations={("x", "y"): 0.5},
    ),
)
N = 3_000
pytestmark = pytest.mark.usefixtures("few_releases")


def preview(formula, epsilon, n=N, **others):
    asked = {"line": dps.OLS(formula), **others}
    return dps.plan(SCHEMA, asked, budget=dps.PureDP(epsilon)).preview(n)


def widths(found, terms):
    table = found.widths().set_index(["analysis", "term"])["width"]
    return [table["line", term] for term in terms]


def test_every_unbounded_term_is_named_with_the_budget_that_would_help():
    found = preview("y ~ x + C(g)", 0.5)
    terms = found.unbounded["line"]
    assert "C(g)[T.d]" in terms
    assert np.isinf(widths(found, terms)).all()
    rest = set(found.widths()["term"]) - set(terms)
    assert np.isfinite(widths(found, rest)).all()
    (more,) = found.advice["line"]
    again = preview("y ~ x + C(g)", float(more.change.removeprefix("epsilon = ")))
    assert list(more.widths.values()) == pytest.approx(widths(again, more.widths))
    text = str(found)
    assert "line: likely unbounded intervals of " + ", ".join(terms) in text
    assert f"line: what would help, the cheapest first:\n  {more.change}: width " in text
    for term in terms:
        assert re.search(rf"unbounded +none  .*{re.escape(term)}", text)


def test_clipping_comes_first_and_its_effect_is_that_of_the_plan_with_it():
    first, second = preview("y ~ x + z", 0.3).advice["line"]
    clip, center, scale = re.fullmatch(
        r"clip_norm=(\S+) with center=(\{.*\}), scale=(\{.*\})", first.change
    ).groups()
    assert (clip, center) == ("3.5", "{'x': 50.0, 'y': 50.0, 'z': 50.0}")
    options = {"center": ast.literal_eval(center), "scale": ast.literal_eval(scale)}
    other = dps.OLS("y ~ x + z", clip_norm=float(clip), **options)
    again = dps.plan(SCHEMA, {"line": other}, budget=dps.PureDP(0.3)).preview(N)
    assert list(first.widths.values()) == pytest.approx(widths(again, first.widths))
    assert second.change.startswith("epsilon = ")


@pytest.mark.parametrize(("edges", "said"), [([18, 40, 65, 80], True), (range(5, 120, 5), False)])
def test_quantiles_whose_intervals_end_at_few_edges_are_told_so(edges, said):
    guesses = dps.Guesses(typical={"age": {"mean": 66, "sd": 12}})
    schema = dps.Schema([dps.Number("age", 0, 120, edges=list(edges), missing=0)], guesses)
    plan = dps.plan(schema, {"it": dps.Quantile("age", [0.25, 0.5])}, budget=dps.PureDP(1))
    finer = (
        "it: intervals of a quantile end at declared edges, here up to 40 apart: declare finer "
        "edges of 'age' in the schema"
    )
    assert (finer in " ".join(str(plan.preview(6_000)).split())) == said


def test_a_plan_for_other_analyses_keeps_the_rest():
    reference = dps.PerturbedHistogram(share=0.25)
    plan = dps.plan(
        SCHEMA, {"g": dps.Marginals(["g"], degree=1)}, budget=dps.ZCDP(0.1), n=100,
        unit="add_remove", reference=reference,
    )  # fmt: skip
    other = plan.asking({"share": dps.Proportion("g == 'a'")})
    assert (other.budget, other.n, other.unit) == (plan.budget, 100, "add_remove")
    assert other.reference == plan.reference
    assert list(other.analyses) == ["share"]
    assert plan.costing(dps.ZCDP(0.2)).cost() == dps.ZCDP(0.2).total
