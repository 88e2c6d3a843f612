import numpy as np
import pandas as pd
import pytest

import dpstats as dps


def test_monomials_are_the_papers_family():
    schema = dps.Schema([dps.Boolean(f"b{i}") for i in range(5)])
    asked = {"m": dps.Marginals(schema.names, degree=2, form="monomials")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    assert plan.family.size == 5 + 10
    assert {planned.multiplier for planned in plan.blocks} == {15}  # L1 = M, not 2M
    frame = pd.DataFrame(np.random.default_rng(0).random((1_000, 5)) < 0.4, columns=schema.names)
    result = dps.release(plan, frame, rng=0, m=100, k=10).infer("m")
    assert result.terms[:6] == ["b0", "b1", "b2", "b3", "b4", "b0 and b1"]
    assert abs(result.params[0] - frame["b0"].mean()) < 0.15


def test_shares_add_up_to_one_though_most_cells_are_empty():
    """Unbiased answers: small ones are below 0, and nothing is cut off, in any margin."""
    groups = [f"diagnosis {i}" for i in range(120)]
    schema = dps.Schema([dps.Category("group", groups), dps.Category("sex", ["f", "m"])])
    rng, n = np.random.default_rng(0), 20_000
    group = np.array(groups)[(rng.random(n) ** 12 * 120).astype(int)]
    frame = pd.DataFrame({"group": group, "sex": rng.choice(["f", "m"], n)})
    asked = {"m": dps.Marginals(["group", "sex"])}
    plan = dps.plan(schema, asked, budget=dps.PureDP(0.3), unit="add_remove")
    release = dps.release(plan, frame, rng=0, m=100, k=10)
    result = release.infer("m")
    params = np.asarray(result.params)
    assert params.sum() == pytest.approx(1, abs=1 / n)
    assert params.min() < 0
    margin = release.infer(dps.Marginals(["sex"], 1))
    np.testing.assert_allclose(params.reshape(120, 2).sum(axis=0), margin.params, atol=1e-9)
    frame, counts = result.to_frame(), result.crosstab("group", "sex").to_numpy()
    np.testing.assert_array_equal(frame["estimate"], params)
    assert frame["fitted"].min() >= 0
    np.testing.assert_array_equal(counts.ravel(), result.fitted)
    assert counts.sum() == pytest.approx(1)
    assert result.summary().count(f"Note: {np.sum(params < 0)} of 240 estimates ") == 1


def test_intervals_for_the_table_end_at_whole_counts(survey, schema):
    """Combined answers are no integers, the private counts are: at most a row is cut off."""
    asked, n = dps.Marginals(["smoker", "region"]), len(survey)
    plan = dps.plan(schema, {"m": asked}, budget=dps.PureDP(0.2))
    release = dps.release(plan, survey, rng=0, m=100, k=10)
    answers = release.answers(asked)
    q = answers.quantiles(0.05)
    assert not np.allclose(q, np.round(q), atol=1e-6)
    ends = np.array(release.infer("m").conf_int(target="table")) * n
    np.testing.assert_allclose(ends, np.round(ends), atol=1e-6)
    box = np.clip(np.stack([answers.sums - q, answers.sums + q], axis=1), 0, n)
    assert np.all((ends >= box - 1e-6)[:, 0] & (ends <= box + 1e-6)[:, 1])
    assert np.all(np.abs(ends - box) < 1)
