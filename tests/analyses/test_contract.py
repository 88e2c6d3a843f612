"""Every registered analysis keeps the contract; tests/test_testing.py has some that do not."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.registry import registry
from dpstats.privacy.noise import _noise_from
from dpstats.testing import check_analysis


def test_every_kind_has_examples_of_itself(examples):
    assert set(examples) == set(registry())
    for kind, some in examples.items():
        assert some
        assert {type(example) for example in some} == {registry()[kind]}


def test_analyses_keep_the_contract(example, people, monkeypatch):
    """In previews of one release instead of three, and on densities of few points."""
    monkeypatch.setattr("dpstats.planning.previews.simulated.PRETEND_RELEASES", 1)
    monkeypatch.setattr("dpstats.rows.generator.CANDIDATES", 500)
    monkeypatch.setattr("dpstats.rows.loglinear.FIT_ROWS", 1_000)
    check_analysis(example, people.schema, people.rows)


def test_a_release_infers_by_name_and_by_analysis_and_names_the_rules_of_columns(examples, people):
    """The published candidates are few, so that no shown number may depend on them."""
    kinds = ("group_means", "logistic", "marginals", "quantile")
    asked = {kind: examples[kind][-1] for kind in kinds}
    plan = dps.plan(people.schema, asked, budget=dps.PureDP(50))
    release = dps.synthesize(dps.measure(plan, people.rows), rng=0, m=200, k=50)
    for kind, analysis in asked.items():
        summary = release.infer(kind).summary()
        assert analysis.infer(release).summary() == summary, kind
        (line,) = [text for text in summary.splitlines() if "outside the declaration" in text]
        used = analysis.family(people.schema).column_names
        rules = line.replace(",", "").replace(":", "").split()
        for column in people.schema:
            assert (column.name in rules) == (column.name in used), (kind, line)
            assert column.name not in used or column.missing_rule() in line


COMPARED = {
    "share": dps.Proportion("smoker == 'yes'"),
    "share in a group": dps.Proportion("rent < 10", given="age >= 40"),
    "difference": dps.Difference("age >= 65", by="smoker"),
    "cells": dps.Marginals(["smoker", "region"]),
    "means": dps.Mean(["age", "pay", "score"]),
    "means in a group": dps.Mean(["pay", "rent"], given="smoker == 'yes'"),
    "two means": dps.MeanDifference("pay", by="region", groups=("south", "north")),
    "group means": dps.GroupMeans("pay", by="region"),
    "rates": dps.GroupMeans("smoker == 'yes'", by="region"),
    "correlations": dps.Correlation(["score", "age", "pay"]),
    "covariance": dps.Covariance(["age", "pay"]),
    "components": dps.PCA(["age", "pay", "score"]),
    "line": dps.OLS("pay ~ age + score"),
    "ratio": dps.Ratio("pay", "age"),
}
JOINTLY = {"share", "cells", "covariance", "components", "line"}  # by a law of all terms together


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_intervals_of_both_methods_and_targets_and_tests_fit_each_other(people, unit, seeded_noise):
    budget = dps.PureDP(300) if unit == "replace" else dps.ZCDP(20)
    plan = dps.plan(people.schema, COMPARED, budget=budget, unit=unit)
    with _noise_from(seeded_noise(1)):
        release = dps.release(plan, people.rows, m=200, k=50, rng=0)
    for name in COMPARED if unit == "replace" else set(COMPARED) - {"ratio"}:  # which takes long
        result = release.infer(name)

        def ends(result=result, **options):
            return np.reshape(result.conf_int(**options), (-1, 2))

        aware, certified, table = ends(), ends(method="certified"), ends(target="table")
        assert np.all((certified[:, 0] <= aware[:, 0]) & (aware[:, 1] <= certified[:, 1])), name
        if name != "correlations":
            assert np.all((aware[:, 0] <= table[:, 0]) & (table[:, 1] <= aware[:, 1])), name
        assert np.all(np.asarray(result.privacy_variance) > 0)
        for options in ({}, {"method": "certified"}, {"target": "table"},
                        {"method": "certified", "target": "table"}):  # fmt: skip
            together = ends(**options, simultaneous=True)
            if name not in JOINTLY and (name != "difference" or not options):
                shared = ends(**options, alpha=0.05 / len(result.terms))
                np.testing.assert_array_equal(together, shared, name)
        together = ends(simultaneous=True)
        assert np.all((together[:, 0] <= aware[:, 0]) & (aware[:, 1] <= together[:, 1])), name
        if name != "components":
            term = None if len(result.terms) == 1 else result.terms[0]
            for end in ends(alpha=0.1)[0]:
                pvalue = result.test(float(end), term=term).pvalue
                assert pvalue == pytest.approx(0.1, rel=1e-2), name
