"""What a preview says of intervals without ends, and of those that end at declared edges."""

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


def test_every_unbounded_term_is_named():
    found = preview("y ~ x + C(g)", 0.5)
    terms = found.unbounded["line"]
    assert "C(g)[T.d]" in terms
    assert np.isinf(widths(found, terms)).all()
    rest = set(found.widths()["term"]) - set(terms)
    assert np.isfinite(widths(found, rest)).all()
    text = str(found)
    assert "line: likely unbounded intervals of " + ", ".join(terms) in text
    assert "line: what helps: more rows or budget (plan.curve and plan.solve" in text
    for term in terms:
        assert re.search(rf"unbounded +none  .*{re.escape(term)}", text)


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
