"""What all results share: equality, copies, frames, kept intervals, and names."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.releases import load
from dpstats.results.named import Named

ANALYSES = {
    "share": dps.Proportion("smoker == 'yes'"),
    "gap": dps.Difference("smoker == 'yes'", by="region", groups=("north", "south")),
    "fit": dps.GoodnessOfFit("region", [0.5, 0.3, 0.2], simulations=199),
    "link": dps.Independence("smoker", "region", simulations=199),
    "line": dps.OLS("age ~ smoker"),
    "ages": dps.Quantile("age", [0.5, 0.9]),
}


@pytest.fixture(scope="module")
def release(schema, survey):
    plan = dps.plan(schema, ANALYSES, budget=dps.PureDP(20))
    return dps.release(plan, survey, rng=0, m=30)


def results_of(release):
    found = {name: release.infer(name) for name in ANALYSES}
    line = found["line"]
    found["contrast"] = line.t_test(np.eye(2)[1:])
    found["joint"] = line.f_test(np.eye(2)[1:])
    found["prediction"] = line.get_prediction({"smoker": ["no", "yes"]})
    found["test"] = found["share"].test(0.3)
    return found


def test_results_are_equal_to_their_copies_alone(release, tmp_path):
    """To those of a copy of the release too."""
    release.save(tmp_path / "r.zip")
    found, reloaded = results_of(release), results_of(load(tmp_path / "r.zip"))
    for name, result in found.items():
        assert [other for other in found if result == found[other]] == [name]
        for again in (reloaded[name], pickle.loads(pickle.dumps(copy.deepcopy(result)))):
            assert result == again, name
            assert hash(result) == hash(again)


def test_long_tables_are_cut_and_say_so():
    levels, rng = list("abcdefghij"), np.random.default_rng(0)
    schema = dps.Schema([dps.Category(name, levels) for name in ("c0", "c1")])
    frame = pd.DataFrame({name: rng.choice(levels, 3000) for name in ("c0", "c1")})
    plan = dps.plan(schema, {"t": dps.Marginals(["c0", "c1"])}, budget=dps.PureDP(1))
    result = dps.release(plan, frame, rng=0, m=50).infer("t")
    text = result.summary()
    assert "40 more rows in to_frame(); print them with most=" in text
    assert "c0=g, c1=a" not in text
    assert "c0=g, c1=a" in result.summary(most=100)
    assert result._repr_html_().count("<tr") == 61
    np.testing.assert_allclose(result.conf_int()[:3], result._first(3).conf_int(), rtol=1e-10)


def test_nothing_that_is_answered_later_can_be_changed(release):
    line = release.infer("line")
    before = line.summary()
    for array in (line.params, line.sampling_variance, line.conf_int(), release.weights,
                  release.candidates["age"], release.measurements.noisy_sums,
                  release.measurements.means, release.measurements.scales):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            array *= 2
    frame = pd.DataFrame({"estimate": line.params})
    frame["estimate"] *= 100
    assert release.infer("line").summary() == before


PARAMS = Named([1.5, -2.0, 4.0], ["Intercept", "age", "pay"])


def test_entries_go_by_number_and_by_name():
    assert (PARAMS["age"], PARAMS[1], PARAMS[-1]) == (-2.0, -2.0, 4.0)
    assert PARAMS[["pay", "age"]].tolist() == [4.0, -2.0]
    assert Named([[0.0, 1.0], [2.0, 3.0]], ["a", "b"])["b"].tolist() == [2.0, 3.0]
    with pytest.raises(dps.RequestError, match=r"no parameter 'height'; the names are .*'age'"):
        PARAMS["height"]
    with pytest.raises(dps.RequestError, match="several parameters are called 'a'; give the num"):
        Named([1.0, 2.0], ["a", "a"])["a"]


def test_what_is_computed_from_them_is_a_plain_array_and_copies_keep_the_names():
    for derive in (np.exp, lambda x: x[x > 0], lambda x: x @ np.eye(3)):
        found = derive(PARAMS)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, derive(np.array([1.5, -2.0, 4.0])))
    for found in (copy.copy(PARAMS), copy.deepcopy(PARAMS), pickle.loads(pickle.dumps(PARAMS))):
        assert found.names == PARAMS.names
        assert not np.shares_memory(found, PARAMS)
