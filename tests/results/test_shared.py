"""What all results share: names, headline, equality, hash, and their types."""

import copy
import pickle
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.releases import load

ANALYSES = {
    "share": dps.Proportion("smoker == 'yes'"),
    "gap": dps.Difference("smoker == 'yes'", by="region", groups=("north", "south")),
    "fit": dps.GoodnessOfFit("region", [0.5, 0.3, 0.2], simulations=199),
    "link": dps.Independence("smoker", "region", simulations=199),
    "mean": dps.Mean(["age"]),
    "line": dps.OLS("age ~ smoker"),
    "ages": dps.Quantile("age", [0.5, 0.9]),
}


@pytest.fixture(scope="module")
def release(schema, survey):
    plan = dps.plan(schema, ANALYSES, budget=dps.PureDP(20))
    return dps.release(plan, survey, rng=0, m=100)


def results_of(release):
    found = {name: release.infer(name) for name in ANALYSES}
    line = found["line"]
    found["contrast"] = line.t_test(np.eye(2)[1:])
    found["joint"] = line.f_test(np.eye(2)[1:])
    found["prediction"] = line.get_prediction({"smoker": ["no", "yes"]})
    found["test"] = found["share"].test(0.3)
    return found


def test_inferring_twice_gives_equal_results(release, tmp_path):
    release.save(tmp_path / "r.zip")
    first = results_of(release)
    for again in (results_of(release), results_of(load(tmp_path / "r.zip"))):
        for name, result in first.items():
            assert result == again[name], name
            assert hash(result) == hash(again[name])
            assert result is not again[name]
    assert len({*first.values(), *results_of(release).values()}) == len(first)


def test_copies_are_equal_and_other_results_are_not(release):
    found = results_of(release)
    for name, result in found.items():
        for other_name, other in found.items():
            assert (result == other) == (name == other_name)
        for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
            assert again == result
            assert hash(again) == hash(result)
            assert again.summary() == result.summary()
        assert result != "a result"


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_results_of_persons_are_pickled_also_after_their_intervals(unit):
    numbers = dps.Number("x", 0, 9, missing=0), dps.Number("y", 0, 9, missing=0)
    schema = dps.Schema([*numbers, dps.Boolean("b")])
    asked = {
        "mean": dps.Mean("x"), "gap": dps.MeanDifference("x", by="b"), "line": dps.OLS("y ~ x"),
        "share": dps.Proportion("b"), "ridge": dps.OLS("y ~ x", ridge=0.1),
    }  # fmt: skip
    plan = dps.plan(schema, asked, budget=dps.PureDP(50), unit=unit, person="id",
                    rows_per_person=2, person_totals=True)  # fmt: skip
    i = np.arange(400)
    rows = pd.DataFrame({"x": i % 10, "y": i % 7, "b": i % 3 == 0, "id": i // 2})
    release = dps.release(plan, rows, rng=0, m=100)
    for name in asked:
        result = release.infer(name)
        text = result.summary()
        assert pickle.loads(pickle.dumps(result)).summary() == text


@pytest.mark.parametrize("name", ["share", "gap", "fit", "test", "joint"])
def test_a_change_of_any_number_makes_a_difference(release, name):
    result = results_of(release)[name]
    numbers = [
        field.name
        for field in fields(result)
        if field.compare and isinstance(getattr(result, field.name), float | np.ndarray)
    ]
    assert numbers
    for number in numbers:
        changed = copy.deepcopy(result)
        value = getattr(changed, number)
        object.__setattr__(changed, number, value + 1 if np.isscalar(value) else value * 1.001)
        assert changed != result, number


def test_vectors_go_by_name(release):
    line = release.infer("line")
    slope = line.terms[1]
    for vector in (line.params, line.bse, line.tvalues, line.pvalues, line.privacy_share):
        assert vector[slope] == vector[1]
    np.testing.assert_array_equal(line.conf_int()[slope], line.conf_int()[1])
    assert float(release.infer("share")) == release.infer("share").params[0]
    assert float(release.infer("mean")) == release.infer("mean").params["mean of age"]
    with pytest.raises(dps.RequestError, match=r"single parameter; this one has 3"):
        float(release.infer("gap"))


def test_all_results_print_frame_and_have_intervals_or_not(release):
    for name, result in results_of(release).items():
        assert isinstance(result, dps.Result)
        assert len(result.to_frame()) > 0
        tested = name in ("fit", "link", "joint", "test")
        assert result.has_intervals == (not tested)
        frame = result.intervals_frame(alpha=0.1)
        assert list(frame.columns) == ["term", "estimate", "conf_low", "conf_high"]
        assert (len(frame) == 0) == tested
        for target in ("population", "table"):
            text = result.summary(alpha=0.1, target=target)
            assert text.startswith(result.title)
            assert ("the private table" in text) == (target == "table") or name in ("fit", "link")
        if not tested:
            ends = np.reshape(result.conf_int(alpha=0.1), (-1, 2))
            np.testing.assert_array_equal(frame[["conf_low", "conf_high"]], ends)
    for name in ("joint", "test"):
        assert "no test for the private table" in results_of(release)[name].summary(target="table")


def test_a_result_whose_parts_differ_in_length_is_refused(release):
    result = release.infer("mean")
    with pytest.raises(dps.RequestError, match=r"needs params of shape \(1,\), got \(2,\)"):
        replace(result, params=np.zeros(2))
