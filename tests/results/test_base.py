import pickle

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy import noise

LEVELS = list("abcdefghij")
CELLS = dps.Schema([dps.Category(name, LEVELS) for name in ("c0", "c1")])


def frame_of_cells():
    rng = np.random.default_rng(0)
    return pd.DataFrame({name: rng.choice(LEVELS, 3000) for name in ("c0", "c1")})


def test_long_tables_are_cut_and_say_so():
    plan = dps.plan(CELLS, {"t": dps.Marginals(["c0", "c1"])}, budget=dps.PureDP(1))
    result = dps.release(plan, frame_of_cells(), rng=0, m=50).infer("t")
    text = result.summary()
    assert "40 more rows in to_frame(); print them with most=" in text
    assert "more rows" not in result.summary(most=100)
    assert len(result.to_frame()) == 100
    assert "c0=f, c1=j" in text
    assert "c0=g, c1=a" not in text
    assert result._repr_html_().count("<tr") == 61
    np.testing.assert_allclose(result.conf_int()[:3], result._first(3).conf_int(), rtol=1e-10)


def test_intervals_are_computed_once(schema, survey, monkeypatch):
    plan = dps.plan(schema, {"a": dps.Proportion("smoker == 'yes'")}, budget=dps.PureDP(1))
    result = dps.release(plan, survey, rng=0, m=30).infer("a")
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
    source = seeded_noise(0)

    def one_far(scale, size):
        return source(scale, size) - 1_000 * (np.arange(size) == far) * (size == 100)

    one_far.uniforms = source.uniforms
    plan = dps.plan(CELLS, {"t": dps.Marginals(["c0", "c1"])}, budget=dps.PureDP(5), unit=unit)
    with noise._noise_from(one_far):
        result = dps.release(plan, frame_of_cells(), rng=0, m=50).infer("t")
    for options in ({}, {"target": "table"}, {"method": "certified", "target": "table"}):
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
        "group": dps.Proportion("smoker == 'yes'", given="region == 'south'"),
        "cells": dps.Marginals(["smoker", "region"], degree=1),
        "mean": dps.Mean("age"),
        "median": dps.Quantile("age", 0.5),
    }
    plan = dps.plan(schema, analyses, budget=dps.PureDP(30), n=len(survey))
    release = dps.release(plan, survey, rng=0, m=30)
    for name in analyses:
        result, joint = release.infer(name), name == "cells"
        ends = np.array([
            np.reshape(result.conf_int(alpha=alpha, simultaneous=joint), (-1, 2))
            for alpha in (1e-6, 1e-9, 1e-13)
        ])  # fmt: skip
        assert np.all(np.diff(ends[..., 0], axis=0) <= 0), name
        assert np.all(np.diff(ends[..., 1], axis=0) >= 0), name
        certified = result.conf_int(alpha=1e-13, method="certified", simultaneous=joint)
        low, high = np.reshape(certified, (-1, 2)).T
        assert np.all((ends[-1, :, 0] <= low) & (high <= ends[-1, :, 1])), name
