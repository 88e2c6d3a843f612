"""Generation from measurements alone: the same as `synthesize`, for every kind of reference."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.references import reference_from_dict
from dpstats.references.generator import check_options, generate

SCHEMA = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=21, edges=[20, 65], missing=40),
])  # fmt: skip
ANALYSES = {"t": dps.Marginals(["colour", "smoker"]), "age": dps.Mean("age")}
REFERENCES = {
    "uniform": dps.Uniform(),
    "histogram": dps.PerturbedHistogram(),
    "kernel": dps.BernsteinKDE(["age"], k=4),
    "log-linear": dps.LogLinear(),
}


@pytest.fixture(scope="module", params=REFERENCES)
def measured(request):
    rng = np.random.default_rng(1)
    n = 3_000
    rows = pd.DataFrame({
        "colour": rng.choice(["red", "green", "blue"], n, p=[0.7, 0.2, 0.1]),
        "smoker": rng.random(n) < 0.3,
        "age": rng.integers(0, 101, n),
    })  # fmt: skip
    reference = REFERENCES[request.param]
    plan = dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(4), n=n, reference=reference)
    return dps.measure(plan, rows)


@pytest.mark.parametrize("fit", ["entropy", "minimax"])
def test_what_is_generated_is_what_a_release_holds(measured, fit):
    rng = check_options(fit, "systematic", 400, None, 5)
    made = generate(measured, rng, fit=fit, m=400)
    release = dps.synthesize(measured, fit=fit, m=400, rng=5)
    for name, codes in release.candidates.items():
        np.testing.assert_array_equal(made.candidates[name], codes)
    np.testing.assert_array_equal(made.weights, release.weights)
    np.testing.assert_array_equal(made.counts, release.counts)
    assert made.notes == release.notes
    assert made.counts.sum() == measured.n


def test_every_reference_offers_the_same(measured):
    reference = reference_from_dict(measured.reference_spec)
    reference.check_family(measured.family)
    proposal = reference.candidates(measured, 300, np.random.default_rng(2), stratified=False)
    assert set(proposal.candidates.codes) == set(measured.columns.names)
    assert proposal.candidates.size <= 300
    assert proposal.candidates.weights.sum() == pytest.approx(1)
    assert (proposal.density is not None) == isinstance(reference, dps.LogLinear)
