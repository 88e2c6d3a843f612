import pickle

import numpy as np
import pandas as pd
import pytest

import dpstats as dps


def test_long_tables_are_cut_and_say_so():
    levels, rng = list("abcdefghij"), np.random.default_rng(0)
    schema = dps.Schema([dps.Category(name, levels) for name in ("c0", "c1")])
    frame = pd.DataFrame({name: rng.choice(levels, 3000) for name in ("c0", "c1")})
    plan = dps.plan(schema, {"t": dps.Marginals(["c0", "c1"])}, budget=dps.PureDP(1))
    result = dps.release(plan, frame, rng=0, m=50).infer("t")
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
            for alpha in (1e-6, 1e-13)
        ])  # fmt: skip
        assert np.all(np.diff(ends[..., 0], axis=0) <= 0), name
        assert np.all(np.diff(ends[..., 1], axis=0) >= 0), name
        certified = result.conf_int(alpha=1e-13, method="certified", simultaneous=joint)
        low, high = np.reshape(certified, (-1, 2)).T
        assert np.all((ends[-1, :, 0] <= low) & (high <= ends[-1, :, 1])), name
