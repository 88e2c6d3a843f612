"""What all results share: names, headline, equality, hash, and their types."""

import copy
import pickle

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


def test_inferring_twice_gives_equal_results(release, tmp_path):
    release.save(tmp_path / "r.zip")
    first = results_of(release)
    again = results_of(load(tmp_path / "r.zip"))
    for name, result in first.items():
        assert result == again[name], name
        assert hash(result) == hash(again[name])
    assert len(set(first.values())) == len(first)


def test_copies_are_equal_and_other_results_are_not(release):
    found = results_of(release)
    for name, result in found.items():
        for other_name, other in found.items():
            assert (result == other) == (name == other_name)
        again = pickle.loads(pickle.dumps(copy.deepcopy(result)))
        assert again == result
        assert hash(again) == hash(result)


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
