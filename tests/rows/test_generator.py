"""Generation from measurements alone, for every kind of reference."""

import json

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import FileFormatError, RequestError
from dpstats.rows import generator, reference_from_dict
from dpstats.rows.entropy import targets
from dpstats.rows.generator import generate, inference_density, number_of_candidates

SCHEMA = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=21, edges=[20, 65], missing=40),
])  # fmt: skip
REFERENCES = [
    dps.Uniform(), dps.PerturbedHistogram(), dps.BernsteinKDE(["age"], k=4), dps.LogLinear(),
]  # fmt: skip


def planned(reference):
    asked = {"t": dps.Marginals(["colour", "smoker"]), "age": dps.Mean("age")}
    return dps.plan(SCHEMA, asked, budget=dps.PureDP(4), n=3_000, reference=reference)


@pytest.mark.parametrize("reference", [REFERENCES[0], REFERENCES[3]], ids=repr)
def test_the_density_of_inference_follows_from_the_measurements_alone(reference):
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({
        "colour": rng.choice(["red", "green", "blue"], 3_000, p=[0.7, 0.2, 0.1]),
        "smoker": rng.random(3_000) < 0.3,
        "age": rng.integers(0, 101, 3_000),
    })  # fmt: skip
    measured = dps.measure(planned(reference), rows)
    (candidates, weights), (again, same) = inference_density(measured), inference_density(measured)
    np.testing.assert_array_equal(same, weights)
    for name, codes in again.codes.items():
        np.testing.assert_array_equal(codes, candidates.codes[name])
    usual = generate(measured, np.random.default_rng(1))
    assert usual.counts.sum() == measured.n
    assert usual.serves_inference == (reference == generator.inference_reference(measured))
    if usual.serves_inference:
        np.testing.assert_array_equal(usual.weights, weights)
    assert not generate(measured, np.random.default_rng(2), m=300).serves_inference


def measured_rows(columns, analysis, n):
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 10, (n, 4)), columns=list("abcd"))
    measured = dps.measure(
        dps.plan(dps.Schema(columns), {"a": analysis}, budget=dps.PureDP(100), n=n), rows
    )
    return measured, reference_from_dict(measured.reference_spec)


def test_rows_are_as_many_as_private_ones_and_exchanged_ones_not_few(monkeypatch):
    levels = [dps.Category(name, list(range(20))) for name in "abcd"]
    for n, m in ((6_000, 6_000), (1_200, 2_000), (1, 2_000)):  # edited; inference has more
        measured, reference = measured_rows(levels, dps.Marginals(list("abcd")), n)
        assert number_of_candidates(measured, reference) == m
        assert number_of_candidates(measured, reference, k=n) == n
        assert number_of_candidates(measured, dps.Uniform()) == generator.CANDIDATES
    numbers = [dps.Number(name, 0, 9, missing=0) for name in "abcd"]
    for n in (30_000, 100):
        measured, reference = measured_rows(numbers, dps.Covariance(list("abcd")), n)
        for k in (None, 10):
            wanted = max(n, generator.CANDIDATES)
            assert number_of_candidates(measured, reference, k=k) == wanted
    monkeypatch.setattr(generator, "CANDIDATES", 2_000)
    # Rows are held nearer to the answers than the density of inference.
    made, (inferred, _) = generate(measured, np.random.default_rng(2)), inference_density(measured)
    assert not made.serves_inference
    rows, points = (
        measured.published.evaluate(codes).average(np.full(len(codes["a"]), 1 / len(codes["a"])))
        for codes in (made.candidates, inferred.codes)
    )
    _, answers, _ = targets(measured)
    assert np.abs(rows - answers).mean() < np.abs(points - answers).mean()


@pytest.mark.parametrize("reference", [
    *REFERENCES, dps.Uniform("grid"), dps.BernsteinKDE(("a", "b"), 20, 0.3, 1, 0.3),
], ids=repr)  # fmt: skip
def test_every_reference_is_read_back_from_a_file(reference):
    plain = json.loads(json.dumps(reference.to_dict()))
    assert reference_from_dict(plain) == reference
    if reference in REFERENCES:
        plan = planned(reference)
        assert dps.Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    with pytest.raises(FileFormatError, match="unknown keys"):
        reference_from_dict({**plain, "bandwidth_of": 0.1})
    with pytest.raises(FileFormatError, match="unknown reference density 'kernel'"):
        reference_from_dict({**plain, "kind": "kernel"})


def test_parameters_of_references_that_are_refused():
    for make, values, message in [
        (lambda v: dps.BernsteinKDE(v), ["age", [], ["a", "a"], [*"abcde"], [1]], "columns|1 to"),
        (lambda v: dps.BernsteinKDE(k=v), [0, 512, 2.0, True], "k=.*at most 511"),
        (lambda v: dps.BernsteinKDE(order=v), [0, 17, None, True, 1.5], "order=.*at most 16"),
        (lambda v: dps.BernsteinKDE(C=v), [0, np.inf, np.nan, True], "never learned"),
        (lambda v: dps.BernsteinKDE(share=v), [0, True, "half", 1, 1.5], "share="),
        (lambda v: dps.Uniform(v), ["bins"], "must be one of"),
    ]:  # fmt: skip
        for value in values:
            with pytest.raises(RequestError, match=message):
                make(value)
