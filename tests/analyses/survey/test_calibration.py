"""Weights that add up to public totals: no noise in these, and R's variance after `calibrate`."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.survey.calibration import Calibration

FIGURE = json.loads((Path(__file__).parents[2] / "data" / "survey.json").read_text("utf-8"))
FIGURE = FIGURE["survey"]["calibrated"]
EVERYONE, MEN, HILLS, PLAIN = (round(value) for value in FIGURE["known"])


def known(condition, number):
    return dps.Total(condition, int(number), of="population")


TOTALS = [
    known("sex == 'f'", EVERYONE - MEN), known("sex == 'm'", MEN),
    known("region == 'hills'", HILLS), known("region == 'plain'", PLAIN),
]  # fmt: skip
ASKED = {
    "cells": dps.Marginals(["sex", "region", "ill"], 3), "ill": dps.Proportion("ill"),
    "by sex": dps.GroupMeans("income", by="sex"), "ratio": dps.Ratio("income", "age", by="sex"),
    "men": dps.Proportion("sex == 'm'"),
}  # fmt: skip


def schema_of(surveyed, totals=TOTALS, **options):
    design = surveyed.design(**({"high": 8_000} | options))
    return dps.Schema(surveyed.columns, design=design, totals=totals)


def release_of(surveyed, totals, budget, **options):
    schema = schema_of(surveyed, totals, **options)
    plan = dps.plan(schema, ASKED, budget=budget, unit="add_remove", n=len(surveyed.rows))
    return dps.release(plan, surveyed.rows, m=10, rng=0)


def test_totals_of_cells_and_their_variance_are_those_of_r(surveyed):
    released = release_of(surveyed, TOTALS, dps.PureDP(10**10))
    result = released.infer("cells").totals()
    (part,) = result.parts
    exact = surveyed.exact(part, released.schema)
    order = [
        result.terms.index(f"total of ill={bool(i)}, sex={s}, region={r}")
        for i, r, s in itertools.product([0, 1], ["coast", "hills", "plain"], "fm")
    ]
    scale = np.sqrt(np.diag(FIGURE["cov"]))
    np.testing.assert_allclose(exact.params[order], FIGURE["params"], rtol=2e-6)
    cov = exact.sampling_covariance[np.ix_(order, order)] / np.outer(scale, scale)
    np.testing.assert_allclose(cov, FIGURE["cov"] / np.outer(scale, scale), atol=2e-6)


def test_known_totals_have_no_error_and_others_less(surveyed):
    plain, fitted = (release_of(surveyed, t, dps.PureDP(0.5)) for t in ([], TOTALS))
    for name in ("cells", "by sex", "ratio", "ill"):
        without, with_them = plain.infer(name), fitted.infer(name)
        (part,), (before,) = with_them.parts, without.parts
        fixed = part.totals.calibration
        assert len(fixed.names) == {"cells": 5, "by sex": 3, "ratio": 3, "ill": 1}[name]
        np.testing.assert_allclose(fixed.sums @ part.totals.values, fixed.values)
        assert not part.totals.noise(fixed.sums).any()
        every = np.eye(len(part.totals.values))
        noise, larger = (np.diag(one.totals.noise(every)) for one in (part, before))
        assert np.all(noise < 0.99 * larger)
        assert any("public totals" in note for note in with_them.notes)
        if name == "ill":  # certified limits do not use totals
            raw = replace(part, totals=part.totals.uncalibrated)
            np.testing.assert_array_equal(part.certified(0.05), raw.certified(0.05))
    wrong = release_of(surveyed, [known("sex == 'm'", MEN + EVERYONE // 4)], dps.PureDP(5))
    assert "do not add up to" in str(wrong.infer("men"))
    men = fitted.infer("men")
    assert float(men) == pytest.approx(MEN / EVERYONE)
    assert np.ptp(np.asarray(men.conf_int())) < 1e-6


def test_totals_need_weights_that_are_not_cut(surveyed):
    budget = dps.PureDP(1)
    with pytest.raises(dps.RequestError, match=r"no weight is above the cap.*high=12000"):
        release_of(surveyed, TOTALS, budget, high=12_000)
    with pytest.raises(dps.RequestError, match="of='population'"):
        release_of(surveyed, [dps.Total("sex == 'f'", 700, of="table")], budget)
    with pytest.raises(dps.RequestError, match="person"):
        dps.plan(schema_of(surveyed), ASKED, budget=budget, person="key", rows_per_person=3)
    chosen = {"total": surveyed.figures["about"]["weights"], "cap": None, "cv": 0.5, "high": 3_000}
    plan, rows = dps.plan(schema_of(surveyed), ASKED, budget=budget, n=1_518), surveyed.rows
    weights = rows["w"].clip(upper=8_000)[rows["sex"] == "m"].sum()
    assert f"weights here add up to: {round(weights):,}" in str(dps.check(plan, rows))
    schema = surveyed.schema(**chosen)  # the plan's cap cuts no weight
    assert dps.plan(schema, ASKED, budget=dps.PureDP(100), n=1_000).schema.design.is_uncut
    cut = surveyed.schema(**chosen | {"cap": 2_000})  # whose total would tell what the cap cuts off
    for one in (schema, cut):
        with pytest.raises(dps.RequestError, match="may be scaled down"):
            dps.plan(one, ASKED, budget=dps.PureDP(100), n=1_000, person="key")
    with pytest.raises(dps.SchemaError, match="population of 1,000 rows"):
        schema_of(surveyed, total=1_000)


def test_edges_beside_a_known_share_keep_their_sampling_error(surveyed):
    """Sets of bins end at 25, 50 and 75, below which the numbers of people are known."""
    edges, income = [25, 50, 75], surveyed.rows["income"]
    column = dps.Number("income", 0, 100, edges=range(5, 100, 5), missing=0)
    weights, variances = surveyed.rows["w"].clip(upper=8_000), []
    below = [known(f"income < {e}", round(weights[income < e].sum())) for e in edges]
    for totals, whole in (([], None), (below, round(weights.sum()))):
        design = surveyed.design(total=whole, high=8_000)
        schema = dps.Schema([column], design=design, totals=totals)
        result = surveyed.release(dps.Quantile("income"), schema).infer("x")
        variances.append(np.diag(result.intervals.distribution.shares.parts[0].sampling_covariance))
    at = np.isin(np.arange(5, 100, 5), edges)
    plain, fitted = variances
    np.testing.assert_allclose(fitted[at], 0, atol=1e-12 * plain.max())
    assert np.all(fitted[~at] > 0.1 * plain[~at])
    assert np.all(fitted <= plain * (1 + 1e-6))


@pytest.mark.parametrize("equal", [False, True])
def test_known_shares_are_compared_without_error(equal):
    n = 800
    rows = pd.DataFrame({"ill": np.arange(n) % 4 == 0, "sex": np.repeat(["f", "m"], n // 2)})
    rows["w"], rows["u"] = 2.0, np.arange(n) % 20
    if not equal:
        rows.loc[:3, "ill"] = True
    totals = []
    for sex in "fm":
        own = rows["sex"] == sex
        totals.append(known(f"sex == '{sex}'", 2 * own.sum()))
        totals.append(known(f"sex == '{sex}' and ill", 2 * (own & rows["ill"]).sum()))
    design = dps.Design("w", mean=2, high=3, cap=3, unit="u", units=list(range(20)))
    columns = [dps.Boolean("ill"), dps.Category("sex", ["f", "m"])]
    asked = {"means": dps.GroupMeans("ill", by="sex"), "odds": dps.Logistic("ill ~ sex")}
    schema = dps.Schema(columns, design=design, totals=totals)
    release = dps.release(dps.plan(schema, asked, budget=dps.PureDP(1)), rows, m=2, k=10, rng=0)
    for test in (release.infer("means").anova(), release.infer("odds").f_test("sex[T.m] = 0")):
        assert test.pvalue > 0.999 if equal else test.pvalue < 1e-6


def test_levels_that_are_known_to_be_empty_have_no_sampling_error():
    """Noise can make their totals zero or less, which leaves nothing to regress on."""
    n, levels = 800, list("abcde")
    rows = pd.DataFrame({"reg": np.array(levels[:4])[np.arange(n) % 4], "w": 2.0})
    rows["u"] = np.arange(n) // 40
    totals = [known(f"reg == '{level}'", 2 * (rows["reg"] == level).sum()) for level in levels]
    design = dps.Design("w", mean=2, high=4, cap=4, unit="u", units=list(range(20)), total=2 * n)
    schema = dps.Schema([dps.Category("reg", levels)], design=design, totals=totals)
    plan = dps.plan(schema, {"x": dps.Marginals(["reg"], 1)}, budget=dps.PureDP(2))
    for seed in range(4):
        (part,) = dps.release(plan, rows, m=2, k=10, rng=seed).infer("x").parts
        np.testing.assert_allclose(part.params, [0.25] * 4 + [0], atol=1e-9)
        np.testing.assert_allclose(np.diag(part.sampling_covariance), 0, atol=1e-15)


def test_margins_of_joint_totals_are_known(surveyed):
    """Women and men from totals of every sex in every region; none where a cell is missing."""
    of_cells = surveyed.rows.groupby(["sex", "region"])["w"].count()
    text = "sex == '{}' and region == '{}'"
    joint = [known(text.format(*cell), 2_000 * n) for cell, n in of_cells.items()]
    for totals, number in ((joint, 2), (joint[:-1], 1)):
        schema = schema_of(surveyed, totals)
        found = Calibration.of(schema, dps.GroupMeans("income", by="sex").family(schema).blocks[0])
        sums = [total for total in found.values if total < 2_000 * of_cells.sum() / 8_000 * 4096]
        assert len(sums) == number
        women = 2_000 * of_cells["f"].sum() / schema.design.unit_weight
        assert sums[0] == pytest.approx(women)
