"""Draws that calibrate tests: their law, and their seeds."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.inference.simulation import calibration_generator, calibration_seed, draw_from
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace

SIZE = 50_000


@pytest.mark.parametrize("law", [
    DiscreteLaplace(3.0), DiscreteLaplace(0.5, 6), DiscreteGaussian(1.1, 5), DiscreteGaussian(900.0)
], ids=str)  # fmt: skip
def test_draws_follow_the_law(law):
    """Chi-square on 40 cells of about equal probability, and four far out."""
    drawn = draw_from(law, SIZE, np.random.default_rng(4))
    assert np.all(drawn == np.rint(drawn))
    z = np.arange(-law.support(1e-9), law.support(1e-9) + 1)
    levels = [2e-4, 3e-3, *np.arange(1, 40) / 40, 1 - 3e-3, 1 - 2e-4]
    edges = np.unique(z[np.searchsorted(law.cdf(z), levels)])
    counts = np.bincount(np.searchsorted(edges, drawn), minlength=len(edges) + 1)
    expected = SIZE * np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    pvalue = stats.chisquare(counts, expected).pvalue
    assert pvalue > 1e-6  # a right sampler fails once in a million seeds


SCHEMA = dps.Schema([
    dps.Category("g", list("abc")), dps.Number("u", -1, 1, points=41, missing=0),
    dps.Number("v", -1, 1, points=41, missing=0),
])  # fmt: skip
FIT = dps.GoodnessOfFit("g", [0.4, 0.3, 0.3], simulations=199)
ASKED = {"fit": FIT, "ols": dps.OLS("u ~ v + g")}


@pytest.fixture(scope="module")
def release():
    rng = np.random.default_rng(1)
    plan = dps.plan(SCHEMA, ASKED, budget=dps.PureDP(4), reference=dps.Uniform())
    rows = pd.DataFrame(rng.uniform(-1, 1, (400, 2)).round(1), columns=["u", "v"])
    return dps.release(plan, rows.assign(g=rng.choice(list("abc"), 400)), m=50, k=20, rng=0)


def numbers(release):
    """What of every analysis depends on draws."""
    fit, line = release.infer("fit"), release.infer("ols")
    ends = fit.effect_interval, line.conf_int(simultaneous=True)
    return [fit.pvalue, *np.concatenate(ends, axis=None).tolist()]


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


def test_seeds_depend_on_uniforms_and_purpose_alone(release):
    answers = release.answers(FIT)
    seeds = [calibration_seed(answers, purpose) for purpose in (0, 1, (0, 0), (0, 1), (1, 0))]
    assert len(set(seeds)) == 5
    assert calibration_seed(answers, (1,)) == seeds[1]
    for same in ({"sums": answers.sums + 1}, {"uniforms": answers.uniforms * (1 + 1e-15)}):
        assert calibration_seed(replace(answers, **same)) == seeds[0]
    other = replace(answers, uniforms=answers.uniforms + 1e-6)
    assert calibration_seed(other) != seeds[0]
    one, two, again = (calibration_generator(answers, purpose).random() for purpose in (0, 1, 0))
    assert again == one != two
