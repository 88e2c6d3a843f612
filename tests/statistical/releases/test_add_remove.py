"""Level and coverage where the number of rows is measured: the same methods, with n unknown."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.measured.certificate import certify, published_answers

SCHEMA = dps.Schema([
    dps.Boolean("ill"), dps.Boolean("exposed"), dps.Category("region", ["n", "s", "w"])
])  # fmt: skip
SHARES = np.array([0.5, 0.3, 0.2])
ILL, EXPOSED = 0.2, 0.4  # independent of each other and of the region
ASKED = {
    "one": dps.Proportion("ill"),
    "cells": dps.Marginals(["ill", "exposed", "region"], 2),
    "group": dps.Proportion("ill", given="exposed"),
    "fit": dps.GoodnessOfFit("region", SHARES.tolist(), simulations=399),
    "independence": dps.Independence("exposed", "region", simulations=199),
    "difference": dps.Difference("ill", by="exposed"),
}
SETTINGS = [
    (150, dps.PureDP(1)), (2_000, dps.PureDP(0.2)), (40, dps.PureDP(0.5)), (2_000, dps.ZCDP(0.02))
]  # fmt: skip


def releases(n, budget, runs, tools, seed, asked=ASKED):
    """Measurements of fresh rows with fresh noise, and what analyses see of them."""
    plan = dps.plan(SCHEMA, asked, budget=budget, unit="add_remove")

    def draw(rng):
        return {
            "ill": (rng.random(n) < ILL).astype(np.int64),
            "exposed": (rng.random(n) < EXPOSED).astype(np.int64),
            "region": rng.choice(3, n, p=SHARES),
        }

    for codes, held, view in tools.fresh(plan, n, draw, runs, seed):
        truth = np.concatenate(held.published.sums(codes)) / (n * held.published.bounds)
        yield held, truth, view


def truths(name):
    if name == "cells":
        pairs = [(ILL, EXPOSED), (ILL, None), (EXPOSED, None)]
        both = [np.outer([1 - p, p], SHARES if q is None else [1 - q, q]) for p, q in pairs]
        return np.concatenate([table.ravel() for table in both])
    return {"one": ILL, "group": ILL, "difference": [0, 1, 1]}[name]


@pytest.mark.simulate(SETTINGS, few=(0,), runs=(24, 600))
def test_level_and_coverage(setting, runs, table, tools):
    """All methods; in few runs those that take most of the time in a quarter of them.

    24 runs see a coverage below about .6, 6 of intervals one below .25. The difference does not
    look at the number of rows; its groups are those of "group", which is tested in all runs.
    """
    (n, budget), every = setting, 4 if runs < 100 else 1
    covered, times = {}, {}
    rejected = {"fit": 0, "independence": 0}
    certified = 0

    def add(what, inside):
        covered[what] = covered.get(what, 0.0) + inside
        times[what] = times.get(what, 0) + 1

    for run, (held, truth, release) in enumerate(releases(n, budget, runs, tools, 7)):
        means = published_answers(held).means
        bounds = certify(held, means, alpha=0.05, target="").joint_bounds
        certified += np.all(np.abs(means - truth) <= bounds)
        found = {name: ASKED[name].infer(release) for name in ASKED}
        for name in ("one", "group"):
            add(f"{name}: test", found[name].test(ILL).pvalue > 0.05)
        for name in ("one", "cells", "group", "difference") if run % every == 0 else ():
            for method in ("noise_aware", "certified"):
                low, high = np.atleast_2d(found[name].conf_int(method=method)).T
                add(f"{name}: {method}", np.mean((low <= truths(name)) & (truths(name) <= high)))
        for name in rejected:
            rejected[name] += found[name].pvalue <= 0.05
    table.covers(setting, "certificate", certified, runs)
    for what, share in covered.items():
        # of all parameters on average; those of one release are dependent
        table.covers(setting, what, round(share), times[what])
    for name, wrong in rejected.items():
        table.level(setting, f"{name}: level", wrong, runs, 0.06)
