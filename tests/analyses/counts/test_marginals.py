import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy import noise


def test_monomials_are_the_papers_family():
    schema = dps.Schema([dps.Boolean(f"b{i}") for i in range(5)])
    plan = dps.plan(
        schema,
        {"m": dps.Marginals(schema.names, degree=2, form="monomials")},
        budget=dps.PureDP(1),
    )
    assert plan.family.size == 5 + 10
    assert {planned.multiplier for planned in plan.blocks} == {15}  # L1 = M, not 2M
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"b{i}": rng.random(1000) < 0.4 for i in range(5)})
    result = dps.release(plan, frame, rng=0, m=100, k=10).infer("m")
    assert result.terms[:6] == ["b0", "b1", "b2", "b3", "b4", "b0 and b1"]
    assert abs(result.params[0] - frame["b0"].mean()) < 0.15


def test_shares_add_up_to_one_though_most_cells_are_empty(seeded_noise):
    """Unbiased answers: small ones are below 0, and nothing is cut off, in any margin."""
    groups = [f"diagnosis {i}" for i in range(120)]
    schema = dps.Schema([dps.Category("group", groups), dps.Category("sex", ["f", "m"])])
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "group": [groups[i] for i in (rng.random(20_000) ** 12 * 120).astype(int)],
        "sex": rng.choice(["f", "m"], 20_000),
    })  # fmt: skip
    asked = dps.Marginals(["group", "sex"])
    plan = dps.plan(schema, {"m": asked}, budget=dps.PureDP(1), unit="add_remove")
    with noise._noise_from(seeded_noise(3)):
        release = dps.release(plan, frame, rng=0, m=100, k=10)
    result = release.infer("m")
    params = np.asarray(result.params)
    assert params.sum() == pytest.approx(1, abs=1 / 20_000)
    assert params.min() < 0
    margin = release.infer(dps.Marginals(["sex"], 1))
    np.testing.assert_allclose(params.reshape(120, 2).sum(axis=0), margin.params, atol=1e-9)
    frame, counts = result.to_frame(), result.crosstab("group", "sex").to_numpy()
    np.testing.assert_array_equal(frame["estimate"], params)
    assert frame["fitted"].min() >= 0
    np.testing.assert_array_equal(counts.ravel(), result.fitted)
    assert counts.sum() == pytest.approx(1)
    below = int(np.sum(params < 0))
    assert result.summary().count(f"Note: {below} of 240 estimates ") == 1


def test_intervals_for_the_table_end_at_whole_counts(survey, schema):
    """Combined answers are no integers, the private counts are: at most a row is cut off."""
    asked = dps.Marginals(["smoker", "region"])
    plan = dps.plan(schema, {"m": asked}, budget=dps.PureDP(0.2))
    release = dps.release(plan, survey, rng=0, m=100, k=10)
    answers, n = release.answers(asked), len(survey)
    q = answers.quantiles(0.05)
    assert not np.allclose(q, np.round(q), atol=1e-6)
    ends = np.array(release.infer("m").conf_int(target="table")) * n
    np.testing.assert_allclose(ends, np.round(ends), atol=1e-6)
    box = np.clip(np.stack([answers.sums - q, answers.sums + q], axis=1), 0, n)
    assert np.all((ends >= box - 1e-6)[:, 0] & (ends <= box + 1e-6)[:, 1])
    assert np.all(np.abs(ends - box) < 1)
