"""Every registered analysis keeps the contract (tests/test_testing.py has some that do not)."""

import pickle
import re

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats import testing
from dpstats.analyses.base import possible_blocks
from dpstats.analyses.registry import registry
from dpstats.analyses.second_stage import needs
from dpstats.bounds.bounding import UNKNOWN
from dpstats.privacy.noise import _noise_from


def test_every_kind_has_examples_of_itself(examples):
    assert {(example.kind, type(example)) for example in examples.all} == set(registry().items())


@pytest.mark.slow
def test_analyses_keep_the_whole_contract(example, people, monkeypatch):
    """In previews of one release instead of three, and on densities of few points."""
    monkeypatch.setattr("dpstats.planning.previews.simulated.PRETEND_RELEASES", 1)
    monkeypatch.setattr("dpstats.rows.generator.CANDIDATES", 500)
    monkeypatch.setattr("dpstats.rows.loglinear.FIT_ROWS", 1_000)
    testing.check_analysis(example, people.schema, people.rows)


@pytest.fixture(scope="module")
def plan(examples, people):
    """All examples together, in noise that hides everything."""
    asked = {f"example {i}": example for i, example in enumerate(examples.quick)}
    return dps.plan(people.schema, asked, budget=dps.PureDP(1e-4), reference=dps.Uniform())


@pytest.fixture(scope="module")
def release(plan, people):
    return dps.release(plan, people.rows, m=50, k=10, rng=0)


@pytest.fixture(scope="module")
def saved(release, tmp_path_factory):
    path = tmp_path_factory.mktemp("releases") / "release.zip"
    release.save(path)
    return dps.load(path)


def test_analyses_keep_the_contract(quick_example, release, saved, people):
    """What `check_analysis` looks at, on a release that all examples share."""
    schema = people.schema
    testing._check_declaration(quick_example)
    asked = (*needs(quick_example, schema).blocks, *possible_blocks(quick_example, schema))
    found = quick_example.infer(testing._Guarded(release, asked))
    testing._check_result(found, "in noise")
    testing._check_tests(found, "in noise", ordered=False)
    again = saved.infer(quick_example)
    testing._check_same(found, again, "in noise")
    assert again.summary() == pickle.loads(pickle.dumps(again)).summary()


def test_every_analysis_has_a_preview(plan, people, monkeypatch):
    monkeypatch.setattr("dpstats.planning.previews.simulated.PRETEND_RELEASES", 1)
    assert "nan" not in str(plan.preview(n=len(people.rows)))


@pytest.mark.parametrize("kind", ["group_means", "logistic", "quantile"])
def test_results_name_the_rules_of_their_columns(kind, release, examples, people):
    (analysis,) = [example for example in examples.quick if example.kind == kind]
    summary = release.infer(analysis).summary().splitlines()
    (line,) = [text for text in summary if "outside the declaration" in text]
    used, named = analysis.family(people.schema).column_names, re.findall(r"\w+", line)
    for column in people.schema:
        assert (column.name in named) == (column.name in used), line
        assert column.name not in used or column.missing_rule() in line


COMPARED = {  # one of each kind of interval, half of them where the number of rows is measured too
    "add_remove": {
        "share": dps.Proportion("smoker == 'yes'"),
        "difference": dps.Difference("age >= 65", by="smoker"),
        "means in a group": dps.Mean(["pay", "rent"], given="smoker == 'yes'"),
        "correlations": dps.Correlation(["score", "age", "pay"]),
        "line": dps.OLS("pay ~ age + score"),
    },
    "replace": {
        "share in a group": dps.Proportion("rent < 10", given="age >= 40"),
        "cells": dps.Marginals(["smoker", "region"]),
        "means": dps.Mean(["age", "pay", "score"]),
        "two means": dps.MeanDifference("pay", by="region", groups=("south", "north")),
        "group means": dps.GroupMeans("pay", by="region"),
        "covariance": dps.Covariance(["age", "pay"]),
        "components": dps.PCA(["age", "pay", "score"]),
    },
}
RANGES = {
    "share": (0, 1), "share in a group": (0, 1), "cells": (0, 1), "difference": (-1, 1),
    "two means": (-40, 40), "covariance": (0, 3604), "correlations": (-1, 1),
}  # fmt: skip
JOINTLY = {"cells", "covariance", "components", "line"}  # by a law of all terms together


@pytest.mark.parametrize("unit", COMPARED)
def test_intervals_of_both_methods_and_targets_and_tests_fit_each_other(people, unit, seeded_noise):
    budget = dps.PureDP(300) if unit == "replace" else dps.ZCDP(20)
    plan = dps.plan(people.schema, COMPARED[unit], budget=budget, unit=unit)
    with _noise_from(seeded_noise(1)):
        release = dps.release(plan, people.rows, m=50, k=50, rng=0)
    for name in COMPARED[unit]:
        result = release.infer(name)

        def ends(result=result, **options):
            return np.reshape(result.conf_int(**options), (-1, 2))

        def check_within(inner, outer, name=name):
            assert np.all((outer[:, 0] <= inner[:, 0]) & (inner[:, 1] <= outer[:, 1])), name

        aware = ends()
        check_within(aware, ends(method="certified"))
        if name != "correlations":
            check_within(ends(target="table"), aware)
        assert np.all(np.asarray(result.privacy_variance) > 0)
        if len(result.terms) > 1 and name not in JOINTLY | {"difference"}:
            for options in ({}, {"method": "certified", "target": "table"}):
                together = ends(**options, simultaneous=True)
                shared = ends(**options, alpha=0.05 / len(result.terms))
                np.testing.assert_array_equal(together, shared, name)
        if len(result.terms) > 1:
            check_within(aware, ends(simultaneous=True))
        intervals = result.intervals
        assert all(np.size(end) in (1, len(intervals)) for end in intervals.ranges)
        if name == "components":
            with pytest.raises(dps.RequestError, match="have no p-values"):
                result.test(1.0, term=result.terms[-1])
        else:
            term = None if len(result.terms) == 1 else result.terms[0]
            for end in ends(alpha=0.1)[0]:
                pvalue = result.test(float(end), term=term).pvalue
                assert pvalue == pytest.approx(0.1, rel=1e-2), name
            low, high = RANGES.get(name, (-np.inf, np.inf))
            for value in {low - 0.1, high + 0.1} - {-np.inf, np.inf}:
                with pytest.raises(dps.RequestError, match=f"between {low} and {high}"):
                    result.test(value, term=term)
            if low == 0:  # up to rounding
                assert result.test(-1e-15, term=term).pvalue == result.test(0, term=term).pvalue


def released_of(schema, rows, asked, budget, m, unit="replace"):
    plan = dps.plan(schema, {"it": asked}, budget=budget, unit=unit)
    return dps.release(plan, rows, m=m, k=10, rng=1)


@pytest.fixture(scope="module")
def of_others(people):
    """Releases by the only column that each measures."""
    asked = {name: dps.Marginals([name], 1) for name in ("region", "retired", "score", "age")}
    return {name: released_of(people.schema, people.rows, one, dps.PureDP(3), 50)
            for name, one in asked.items()}  # fmt: skip


def test_an_analysis_of_unmeasured_columns_is_out_of_reach(example, people, of_others):
    used = example.family(people.schema).column_names
    release = next(one for name, one in of_others.items() if name not in used)
    with pytest.raises(dps.NotMeasuredError, match="this release cannot answer"):
        release.infer(example)
    found = release.explain(example)
    assert found.verdict == "out of reach"
    assert np.all(found.bounds.low <= found.bounds.high)
    assert set(found.bounds.known_from) == {UNKNOWN}


UNITS = {"replace": dps.PureDP(3), "add_remove": dps.ZCDP(0.1)}


@pytest.fixture(scope="module")
def of_pairs(people):
    """Releases of all pair tables; pay has no bins, so that nothing is known of it alone."""
    asked = dps.Marginals([c.name for c in people.schema if c.bins > 1])
    return {unit: released_of(people.schema, people.rows, asked, budget, 100, unit)
            for unit, budget in UNITS.items()}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_functions_that_were_not_measured(example, people, of_pairs, unit):
    family = example.family(people.schema).answering
    batch = pa.RecordBatch.from_pandas(people.rows, preserve_index=False)
    sums = np.concatenate(family.sums(people.schema.encode(batch)))
    truth = sums / (len(people.rows) * family.bounds)
    found = of_pairs[unit].bound(family, alpha=1e-5)
    assert np.all((found.low <= truth + 1e-9) & (truth <= found.high + 1e-9))
    nothing = family.column_names == {"pay"} or "combinations of levels" in "".join(found.notes)
    assert found.informative.any() != nothing
