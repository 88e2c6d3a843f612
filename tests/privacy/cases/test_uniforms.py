"""The uniforms beside the noisy sums carry nothing of the sums."""

import itertools

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy import noise

ONE = pd.DataFrame({"c": ["a"] * 40, "b": [True] * 40, "x": [0.0] * 40})
OTHER = pd.DataFrame({"c": ["b"] * 40, "b": [False] * 40, "x": [4.0] * 40})


@pytest.fixture
def fixed_entropy(monkeypatch):
    """The system's random bytes are those of a counter, from the start of each measurement."""

    def restart():
        numbers = itertools.count(1)

        def token_bytes(size):
            return np.random.default_rng(next(numbers)).bytes(size)

        monkeypatch.setattr(noise.secrets, "token_bytes", token_bytes)

    return restart


@pytest.mark.parametrize("kind", [dps.PureDP, dps.ZCDP])
@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_p68_uniforms_are_the_same_with_the_sums_exchanged(columns, fixed_entropy, kind, unit):
    analyses = {"p": dps.Proportion("b"), "t": dps.Marginals(["c", "x"]), "m": dps.Mean("x")}
    plan = dps.plan(dps.Schema(columns()), analyses, budget=kind(1), unit=unit)
    found = []
    for rows in (ONE, OTHER):
        fixed_entropy()
        found.append(dps.measure(plan, rows))
    one, other = found
    assert not np.array_equal(one.noisy_sums, other.noisy_sums)
    np.testing.assert_array_equal(one.uniforms, other.uniforms)
