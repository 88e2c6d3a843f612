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
    assert "40 more rows are in to_frame()" in text
    assert "not all of them at once" in text
    assert len(result.to_frame()) == 100
    assert "c0=f, c1=j" in text
    assert "c0=g, c1=a" not in text
    assert result._repr_html_().count("<tr") == 61
    assert len(result.summary(most=3).splitlines()) < 15
    whole, first = result.conf_int(), result._first(3).conf_int()
    np.testing.assert_allclose(whole[:3], first, rtol=1e-12)


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


def test_an_interval_of_width_zero_is_explained(schema, survey):
    def far_below(scale, size):
        return np.full(size, -10_000, dtype=np.int64)

    plan = dps.plan(schema, {"a": dps.Proportion("smoker == 'yes'")}, budget=dps.PureDP(1))
    with noise._noise_from(far_below):
        result = dps.release(plan, survey, rng=0, m=100).infer("a")
    assert tuple(result.conf_int()) == (0, 0)
    assert "trust the certified interval" in result.summary()


def test_results_show_themselves(schema, survey):
    plan = dps.plan(schema, {"a": dps.Proportion("smoker == 'yes'")}, budget=dps.PureDP(1))
    release = dps.release(plan, survey, rng=0, m=100)
    for shown in (plan, plan.preview(2000), release.infer("a"), release.accuracy()):
        assert repr(shown) == str(shown)
    assert "smoker: missing or undeclared: counted as 'no'" in str(plan)
    assert "smoker: missing or undeclared: counted as 'no'" in str(release)
    assert "<dpstats Release" in repr(release)


def test_options_are_checked_before_anything_is_spent(schema, survey, tmp_path):
    plan = dps.plan(schema, {"a": dps.Proportion("smoker == 'yes'")}, budget=dps.PureDP(1))
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(3))
    for wrong in ({"fit": "x"}, {"draw": "x"}, {"m": 0}, {"k": 0}, {"rng": "a"}):
        with pytest.raises(dps.RequestError, match=next(iter(wrong))):
            dps.release(plan, survey, ledger=ledger, **wrong)
    assert ledger.spent == 0


def test_rows_that_miss_the_answers_are_confessed(schema, survey):
    plan = dps.plan(schema, {"t": dps.Marginals(["smoker", "age"])}, budget=dps.PureDP(10))
    measured = dps.measure(plan, survey)
    assert dps.synthesize(measured, rng=0).notes == ()
    (note,) = dps.synthesize(measured, rng=0, k=2).notes
    assert "too few candidates or rows" in note


@pytest.mark.parametrize("epsilon", [1e-9, 0.001, 100, 10_000, 500_000])
@pytest.mark.parametrize("fit", ["entropy", "minimax"])
def test_no_budget_loses_a_release(schema, survey, epsilon, fit):
    plan = dps.plan(
        schema,
        {"a": dps.Proportion("smoker == 'yes'"), "t": dps.Marginals(["region", "age"])},
        budget=dps.PureDP(epsilon),
    )
    release = dps.release(plan, survey, rng=0, m=300, fit=fit)
    assert release.k == len(survey)
    low, high = release.infer("a").conf_int()
    assert 0 <= low <= high <= 1
    if epsilon >= 100:
        shares = survey["region"].value_counts(normalize=True)
        rows = release.to_frame()["region"].value_counts(normalize=True)
        assert abs(rows - shares).max() < 0.01
