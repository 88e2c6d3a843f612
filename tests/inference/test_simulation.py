"""Draws that calibrate tests: their law, and their seeds."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import dpstats as dps
from dpstats.inference.simulation import calibration_generator, calibration_seed, draw_from
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.noise import _noise_from

SIZE = 100_000
LAWS = [
    DiscreteLaplace(3.0),
    DiscreteLaplace(0.5, 6),
    DiscreteGaussian(0.4),
    DiscreteGaussian(1.1, 5),
    DiscreteGaussian(30.0),
    DiscreteGaussian(900.0),
    DiscreteGaussian(5000.0, 2),
]


def pvalue(drawn, law):
    """Chi-square test on 40 cells of about equal probability, and four far out."""
    z = np.arange(-law.support(1e-9), law.support(1e-9) + 1)
    far = np.array([2e-4, 3e-3])
    levels = np.concatenate([far, np.arange(1, 40) / 40, 1 - far[::-1]])
    edges = np.unique(z[np.searchsorted(law.cdf(z), levels)])
    counts = np.bincount(np.searchsorted(edges, drawn), minlength=len(edges) + 1)
    shares = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    return chi2.sf(np.sum((counts - SIZE * shares) ** 2 / (SIZE * shares)), len(edges))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_follow_the_law(law):
    drawn = draw_from(law, SIZE, np.random.default_rng(4))
    assert drawn.shape == (SIZE,)
    assert np.all(drawn == np.rint(drawn))
    assert pvalue(drawn, law) > 1e-6  # a right sampler fails once in a million seeds


SCHEMA = dps.Schema([
    dps.Category("g", list("abc")), dps.Category("h", list("xy")),
    dps.Number("u", -1, 1, points=41, missing=0), dps.Number("v", -1, 1, points=41, missing=0),
])  # fmt: skip
FIT = dps.GoodnessOfFit("g", [0.4, 0.3, 0.3], simulations=199)
PLAN = dps.plan(
    SCHEMA,
    {
        "fit": FIT,
        "independent": dps.Independence("g", "h", simulations=199),
        "mean": dps.Mean(["u", "v"]),
        "groups": dps.MeanDifference("u", by="h"),
        "r": dps.Correlation(["u", "v"]),
        "cov": dps.Covariance(["u", "v"]),
        "ols": dps.OLS("u ~ v + h"),
        "cells": dps.Marginals(["g", "h"]),
    },
    budget=dps.PureDP(4),
)


def rows():
    rng = np.random.default_rng(1)
    return pd.DataFrame({
        "g": rng.choice(list("abc"), 400), "h": rng.choice(list("xy"), 400),
        **{name: rng.uniform(-1, 1, 400).round(1) for name in "uv"},
    })  # fmt: skip


@pytest.fixture(scope="module")
def release(seeded_noise):
    with _noise_from(seeded_noise(5)):
        measured = dps.measure(PLAN, rows())
    return dps.synthesize(measured, m=200, k=20, rng=0)


def with_uniforms(release, shift):
    """The same noisy sums with other uniforms."""
    uniforms = (release.measurements.uniforms + shift + 0.5) % 1 - 0.5
    return replace(release, measurements=replace(release.measurements, uniforms=uniforms))


def numbers(release):
    """What of every analysis depends on draws."""
    found = {}
    for name in PLAN.analyses:
        result = release.infer(name)
        if hasattr(result, "effect_interval"):
            found[name] = [result.pvalue, *result.effect_interval.tolist()]
        else:
            ends = result.conf_int(simultaneous=True), result.conf_int(alpha=0.2)
            found[name] = np.concatenate(ends, axis=None).tolist()
    return found


def names_of_overlapping_tables():
    """Functions of a plan whose tables are merged."""
    schema = dps.Schema([dps.Category(c, list("xyz")) for c in "abcd"])
    asked = {f"{i}": dps.Marginals(["d", "b", "a", "c"][i:], 1 + i % 2) for i in range(3)}
    asked["p"] = dps.Proportion("a == 'x' or b != 'z'")
    return dps.plan(schema, asked, budget=dps.PureDP(1)).family.names


def test_one_release_has_one_result_also_in_another_process(release, tmp_path):
    """Whose hashes of texts are others."""
    first = numbers(release)
    release.save(tmp_path / "r.zip")
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import dpstats as dps, test_simulation;"
        "print(json.dumps([test_simulation.numbers(dps.load(sys.argv[2])),"
        "test_simulation.names_of_overlapping_tables()]))"
    )
    folder = __file__.rsplit("/", 1)[0]
    done = subprocess.run(
        [sys.executable, "-c", code, folder, str(tmp_path / "r.zip")],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "1"},
    )  # fmt: skip
    assert json.loads(done.stdout) == [first, names_of_overlapping_tables()]


def test_other_releases_have_other_draws(release):
    """The sums are the same, so that nothing but the draws can differ."""
    first, other = numbers(release), numbers(with_uniforms(release, 0.1))
    for name in set(PLAN.analyses):
        assert first[name] != other[name], name
        np.testing.assert_allclose(first[name], other[name], atol=0.15)


def test_seeds_depend_on_uniforms_and_purpose_alone(release):
    answers = release.answers(FIT)
    seeds = [calibration_seed(answers, purpose) for purpose in (0, 1, (0, 0), (0, 1), (1, 0))]
    assert len(set(seeds)) == 5
    assert calibration_seed(answers, (1,)) == calibration_seed(answers, 1)
    moved = replace(answers, sums=answers.sums + 1)
    assert calibration_seed(moved) == seeds[0]
    rounded = replace(answers, uniforms=answers.uniforms * (1 + 1e-15))
    assert calibration_seed(rounded) == seeds[0]
    other = replace(answers, uniforms=answers.uniforms + 1e-6)
    assert calibration_seed(other) != seeds[0]
    level = replace(answers, uniforms=np.zeros(3))
    one, two = (calibration_generator(level, purpose).random() for purpose in (0, 1))
    assert one != two
    assert calibration_generator(level).random() == one
