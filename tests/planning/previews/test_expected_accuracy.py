"""The expected error of rows in a preview."""

import numpy as np

import dpstats as dps
from dpstats.inference.simulation import draw_from

SCHEMA = dps.Schema([
    dps.Category("a", list("pqr")), dps.Category("b", list("stuv")), dps.Boolean("c"),
])  # fmt: skip
TABLES = {"one": dps.Marginals(["a", "b"]), "two": dps.Marginals(["b", "c"])}


def test_expected_delta_is_the_median_of_the_largest_noise():
    """The median of 4,000 draws, seeded."""
    n, rng = 2_000, np.random.default_rng(0)
    plan = dps.plan(SCHEMA, TABLES, budget=dps.PureDP(0.5), n=n, weights="equal")
    expected = plan.preview().accuracy
    assert expected.functions == plan.family.size == 20
    law = plan.budget.law(float(plan.strategy.scales[0]))
    largest = np.abs(draw_from(law, 80_000, rng)).reshape(-1, 20).max(axis=1) / n
    assert abs(np.median(largest) - expected.delta) <= 1 / n


def test_promised_widths_are_those_of_releases(schema, survey):
    """Of noise and of sampling, from guesses of about the right size."""
    guesses = dps.Guesses(
        typical={"age": {"mean": 45, "sd": 20}}, shares={"smoker": {"no": 0.7, "yes": 0.3}}
    )
    guessed = dps.Schema(schema.columns, guesses)
    asked = {"line": dps.OLS("age ~ C(smoker)"), "share": dps.Proportion("smoker == 'yes'")}
    for epsilon in (0.2, 20):
        plan = dps.plan(guessed, asked, budget=dps.PureDP(epsilon), n=len(survey))
        promised = plan.preview().widths().set_index("term")["width"]
        release = dps.release(plan, survey, m=200, k=1, rng=0)
        for name in asked:
            found = release.infer(name).intervals_frame().set_index("term")
            ratio = (found["conf_high"] - found["conf_low"]) / promised[found.index]
            assert ratio.between(1 / 1.8, 1.8).all(), (epsilon, ratio)
