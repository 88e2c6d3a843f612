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


def test_results_of_persons_are_pickled_also_after_their_intervals():
    numbers = dps.Number("x", 0, 9, missing=0), dps.Number("y", 0, 9, missing=0)
    schema = dps.Schema([*numbers, dps.Boolean("b")])
    asked = {"gap": dps.MeanDifference("x", by="b"), "line": dps.OLS("y ~ x")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(50), person="id",
                    rows_per_person=2, person_totals=True)  # fmt: skip
    i = np.arange(400)
    rows = pd.DataFrame({"x": i % 10, "y": i % 7, "b": i % 3 == 0, "id": i // 2})
    release = dps.release(plan, rows, rng=0, m=30)
    for name in asked:
        result = release.infer(name)
        text = result.summary()
        assert pickle.loads(pickle.dumps(result)).summary() == text


def test_all_results_print_frame_and_have_intervals_or_not(release):
    for name, result in results_of(release).items():
        assert isinstance(result, dps.Result)
        assert len(result.to_frame()) > 0
        tested = name in ("fit", "link", "joint", "test")
        assert result.has_intervals == (not tested)
        frame = result.intervals_frame(alpha=0.1)
        assert list(frame.columns) == ["term", "estimate", "conf_low", "conf_high"]
        assert (len(frame) == 0) == tested
        text = result.summary(alpha=0.1, target="table")
        assert text.startswith(result.title)
        assert "the private table" in text or name in ("fit", "link")
        if not tested:
            ends = np.reshape(result.conf_int(alpha=0.1), (-1, 2))
            np.testing.assert_array_equal(frame[["conf_low", "conf_high"]], ends)


def test_long_tables_are_cut_and_say_so():
    levels, rng = list("abcdefghij"), np.random.default_rng(0)
    schema = dps.Schema([dps.Category(name, levels) for name in ("c0", "c1")])
    frame = pd.DataFrame({name: rng.choice(levels, 3000) for name in ("c0", "c1")})
    plan = dps.plan(schema, {"t": dps.Marginals(["c0", "c1"])}, budget=dps.PureDP(1))
    result = dps.release(plan, frame, rng=0, m=50).infer("t")
    text = result.summary()
    assert "40 more rows in to_frame(); print them with most=" in text
    assert "c0=f, c1=j" in text
    assert "c0=g, c1=a" not in text
    assert "more rows" not in result.summary(most=100)
    assert len(result.to_frame()) == 100
    assert result._repr_html_().count("<tr") == 61
    np.testing.assert_allclose(result.conf_int()[:3], result._first(3).conf_int(), rtol=1e-10)


def test_intervals_are_computed_once(release, monkeypatch):
    result = release.infer("share")
    fresh, first, ends = pickle.dumps(result), result.summary(), result.conf_int()
    asked = {"alpha": 0.1}, {"target": "table"}
    others = [result.conf_int(**options) for options in asked]
    with pytest.raises(ValueError, match="read-only"):
        ends[:] = 7
    monkeypatch.setattr(type(result.intervals), "conf_int", None)
    assert result.summary() == first
    assert result.conf_int()[1] < 1
    for options, other in zip(asked, others, strict=True):
        np.testing.assert_array_equal(result.conf_int(**options), other)
    with pytest.raises(TypeError):
        result.conf_int(alpha=0.11)
    assert pickle.dumps(result) == fresh


def test_nothing_that_is_answered_later_can_be_changed(release):
    line = release.infer("line")
    before = line.summary()
    for array in (line.params, line.sampling_variance, release.weights,
                  release.candidates["age"], release.measurements.noisy_sums,
                  release.measurements.means, release.measurements.scales):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            array *= 2
        pd.Series(array).mul(2)
    own = line.params.copy()
    own *= 100
    frame = pd.DataFrame({"estimate": line.params})
    frame["estimate"] *= 100
    np.testing.assert_array_equal(own, frame["estimate"])
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


@pytest.mark.parametrize("derive", [
    np.asarray, np.exp, lambda x: x[1:], lambda x: 2 * x, lambda x: x[x > 0],
    lambda x: x @ np.eye(3), lambda x: np.add(x, 1, out=x.copy()),
])  # fmt: skip
def test_what_is_computed_from_them_is_a_plain_array(derive):
    found = derive(PARAMS)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, derive(np.array([1.5, -2.0, 4.0])))


def test_copies_and_files_keep_the_names():
    for found in (copy.copy(PARAMS), copy.deepcopy(PARAMS), pickle.loads(pickle.dumps(PARAMS))):
        assert found.names == PARAMS.names
        assert found["pay"] == 4.0
        assert not np.shares_memory(found, PARAMS)
