import pickle

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy import noise


def test_long_tables_are_cut_and_say_so():
    schema = dps.Schema([dps.Category(f"c{i}", list("abcdefghij")) for i in range(2)])
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": rng.choice(list("abcdefghij"), 3000) for i in range(2)})
    plan = dps.plan(schema, {"t": dps.Marginals(["c0", "c1"])}, budget=dps.PureDP(1))
    result = dps.release(plan, frame, rng=0, m=500).infer("t")
    text = result.summary()
    assert "40 more rows in to_frame(); print them with most=" in text
    assert "more rows" not in result.summary(most=100)
    assert "not of all of them jointly" in text
    assert len(result.to_frame()) == 100
    assert "c0=f, c1=j" in text
    assert "c0=g, c1=a" not in text
    assert result._repr_html_().count("<tr") == 61
    lengths = [len(result.summary(most=most).splitlines()) for most in (3, 100)]
    assert lengths[1] - lengths[0] >= 95  # notes depend on the noise
    whole, first = result.conf_int(), result._first(3).conf_int()
    np.testing.assert_allclose(whole[:3], first, rtol=1e-10)


def test_intervals_are_computed_once(schema, survey, monkeypatch):
    plan = dps.plan(schema, {"a": dps.Proportion("smoker == 'yes'")}, budget=dps.PureDP(1))
    result = dps.release(plan, survey, rng=0, m=100).infer("a")
    fresh = pickle.dumps(result)
    first = result.summary()
    ends = result.conf_int()
    others = [result.conf_int(alpha=0.1), result.conf_int(target="table")]
    ends[:] = 7  # of the caller
    kind = type(result.intervals)
    monkeypatch.setattr(kind, "conf_int", None)
    assert result.summary() == first
    assert result.conf_int()[1] < 1
    np.testing.assert_array_equal(result.conf_int(alpha=0.1), others[0])
    np.testing.assert_array_equal(result.conf_int(target="table"), others[1])
    with pytest.raises(TypeError):
        result.conf_int(alpha=0.11)
    assert pickle.dumps(result) == fresh


@pytest.mark.parametrize(("unit", "far"), [("replace", 0), ("add_remove", 99)])
def test_no_cell_has_an_interval_without_width(unit, far, seeded_noise):
    """Cell number `far` is far below zero: its limits are those of a noisy count of zero."""
    schema = dps.Schema([dps.Category(f"c{i}", list("abcdefghij")) for i in range(2)])
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": rng.choice(list("abcdefghij"), 3000) for i in range(2)})
    source = seeded_noise(0)

    def one_far(scale, size):
        return source(scale, size) - 1_000 * (np.arange(size) == far) * (size == 100)

    one_far.uniforms = source.uniforms
    plan = dps.plan(schema, {"t": dps.Marginals(["c0", "c1"])}, budget=dps.PureDP(5), unit=unit)
    with noise._noise_from(one_far):
        result = dps.release(plan, frame, rng=0, m=500).infer("t")
    for options in (
        {}, {"target": "table"}, {"method": "certified"}, {"simultaneous": True},
        {"method": "certified", "target": "table"},
    ):  # fmt: skip
        low, high = np.transpose(result.conf_int(**options))
        assert low[far] == 0 < 0.0002 < high[far]
        assert (high - low).min() > 0.0002
    assert result.test(0.0, term=result.terms[far]).pvalue > (
        0.05 if unit == "add_remove" else 0.99
    )
    assert result.test(0.2, term=result.terms[far]).pvalue < 0.01


def test_tiny_errors_have_limits(schema, survey):
    """They contain certified ones, and limits at larger errors; none says nothing."""
    analyses = {
        "one": dps.Proportion("smoker == 'yes'"),
        "group": dps.Proportion("smoker == 'yes'", given="region == 'south'"),
        "cells": dps.Marginals(["smoker", "region"], degree=1),
        "difference": dps.Difference("smoker == 'yes'", by="region", groups=("north", "south")),
        "mean": dps.Mean("age"),
        "median": dps.Quantile("age", 0.5),
    }
    plan = dps.plan(schema, analyses, budget=dps.PureDP(30), n=len(survey))
    release = dps.release(plan, survey, rng=0, m=100)
    for name in analyses:
        result, joint = release.infer(name), name == "cells"
        ends = np.array([
            np.reshape(result.conf_int(alpha=alpha, simultaneous=joint), (-1, 2))
            for alpha in (1e-6, 1e-9, 3e-12, 1e-12, 1e-13)
        ])  # fmt: skip
        assert np.all(np.diff(ends[..., 0], axis=0) <= 0), name
        assert np.all(np.diff(ends[..., 1], axis=0) >= 0), name
        certified = result.conf_int(alpha=1e-13, method="certified", simultaneous=joint)
        low, high = np.reshape(certified, (-1, 2)).T
        assert np.all((ends[-1, :, 0] <= low) & (high <= ends[-1, :, 1])), name
        widths = np.diff(ends)[..., 0]
        assert np.all(widths[-1] < 5 * widths[0]), name


def test_rows_that_miss_the_answers_are_confessed(schema, survey, seeded_noise):
    plan = dps.plan(schema, {"t": dps.Marginals(["smoker", "age"])}, budget=dps.PureDP(10))
    with noise._noise_from(seeded_noise(0)):  # with some noise 2,000 rows miss by one row too
        measured = dps.measure(plan, survey)
    assert dps.synthesize(measured, rng=0).notes == ()
    (note,) = dps.synthesize(measured, rng=0, k=2).notes
    assert "the rows miss the noisy answer" in note
    assert note.endswith("To come closer, draw more rows (k)")
    (note,) = dps.synthesize(measured, rng=0, k=2, draw="iid").notes
    assert note.endswith("To come closer, use draw='systematic' or draw more rows (k)")


def test_tests_of_shares_have_small_pvalues(schema, survey):
    asked = {
        "all": dps.Proportion("smoker == 'yes'"),
        "group": dps.Proportion("smoker == 'yes'", given="age >= 40"),
        "gap": dps.Difference("smoker == 'yes'", by="region", groups=("north", "south")),
    }
    release = dps.release(dps.plan(schema, asked, budget=dps.PureDP(3)), survey, rng=0, m=100)
    for name in asked:
        plain = release.infer(name).test(0.9)
        assert plain.pvalue < 1e-6
        assert "p-value < 1e-06" in str(plain)
    assert "p-value = 1\n" in str(release.infer("all").test(0.01, "smaller"))


def test_noise_that_hides_everything_is_noted(schema, survey):
    asked = {"t": dps.Marginals(["smoker", "region"])}
    few = dps.plan(schema, asked, budget=dps.PureDP(0.1))
    (note,) = dps.release(few, survey.head(20), rng=0).notes
    assert "say much about so few private rows" in note
    assert dps.release(few, survey, rng=0).notes == ()
