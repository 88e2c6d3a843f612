"""Coverage of weighted shares in the benchmark's samples of units, by contrasts of the units."""

import numpy as np
import pytest
from scipy import stats
from survey import LAWS, MOST, SETTINGS, Weighted, linearised

NAMES = [f"{size}, 0.05, 20, 0.3" for size in ("few 2k", "few 15k", "many 15k")]


@pytest.mark.simulate([(name, *law) for name in NAMES for law in LAWS], few=(0,), runs=(100, 2_000))
def test_intervals_of_a_survey_cover(setting, runs, table):
    """Weights are informative; 100 runs see a coverage below about .75, 2,000 one below .91."""
    name, *law = setting
    population, rng = SETTINGS[name], np.random.default_rng(7)
    survey = Weighted(population, *law)
    errors, widths, plain = [], [], []
    for _ in range(runs):
        sample = population.sample(rng)
        found = survey.result(sample, rng)
        table.hold("share", found.conf_int(), population.truth, 0.94)
        errors.append(float(found) - population.truth)
        widths.append(np.diff(found.conf_int()))
        _, variance, df = linearised(population, sample)
        plain.append(2 * stats.t.ppf(0.975, df) * np.sqrt(variance))
    table.finish(setting)
    most = 1.1 * MOST[name.split(",")[0].split()[1], *law]
    ratio = float(np.median(widths) / np.median(plain))
    table.check(setting, "width by that without privacy", ratio, runs=runs, most=most)
    bias = abs(np.mean(errors)) / np.std(errors)
    table.check(setting, "bias in standard errors", bias, most=0.35 + 5 / np.sqrt(runs))
