"""Rubin's rules."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps


def test_the_rules_by_hand():
    estimates, variances = [1.0, 2.0, 4.5], [0.5, 0.7, 0.6]
    pooled = dps.pool(estimates, variances)
    mean, between, within = 2.5, np.var(estimates, ddof=1), 0.6
    total = within + 4 / 3 * between
    df = 2 * (1 + within / (4 / 3 * between)) ** 2
    assert pooled.params[0] == pytest.approx(mean)
    assert pooled.bse[0] == pytest.approx(total**0.5)
    assert pooled.df[0] == pytest.approx(df)
    assert pooled.privacy_share[0] == pytest.approx(4 / 3 * between / total)
    reach = stats.t.ppf(0.95, df) * total**0.5
    assert np.asarray(pooled.conf_int(alpha=0.1))[0] == pytest.approx([mean - reach, mean + reach])


def test_degrees_of_freedom_of_small_tables():
    # Barnard & Rubin (1999), equation (3), written out.
    pooled = dps.pool([1.0, 2.0, 4.5], [0.5, 0.7, 0.6], n=30)
    large = dps.pool([1.0, 2.0, 4.5], [0.5, 0.7, 0.6])
    observed = 30 / 32 * 29 * (1 - pooled.privacy_share[0])
    assert pooled.df[0] == pytest.approx(1 / (1 / large.df[0] + 1 / observed))
    assert pooled.df[0] < 29


def test_equal_draws_leave_sampling_alone():
    pooled = dps.pool([0.3] * 5, [0.01] * 5, n=1_000)
    assert pooled.privacy_share[0] == 0
    assert pooled.bse[0] == pytest.approx(0.1)
    assert pooled.df[0] == pytest.approx(999 * 1_000 / 1_002, rel=1e-6)
    none = dps.pool([0.3] * 5, [0.0] * 5)
    assert np.asarray(none.conf_int())[0] == pytest.approx([0.3, 0.3])


def test_intervals_cover_where_draws_add_the_noise_again():
    # estimate = truth + sampling + noise; a draw adds a noise of the same law to it
    rng = np.random.default_rng(8)
    runs, m = 4_000, 20
    centres = rng.normal(0, 1, runs) + rng.normal(0, 2, runs)
    estimates = centres + rng.normal(0, 2, (m, runs))
    low, high = np.asarray(dps.pool(estimates, np.ones((m, runs))).conf_int()).T
    assert abs(np.mean((low <= 0) & (high >= 0)) - 0.95) < 0.015  # 4 standard errors


def test_names_and_text():
    series = [pd.Series({"age": 0.1 * i, "pay": 2.0}) for i in range(4)]
    pooled = dps.pool(series, [[0.01, 0.02]] * 4, n=100)
    assert pooled.terms == ["age", "pay"]
    assert list(pooled.to_frame()["term"]) == ["age", "pay"]
    text = str(pooled)
    assert "Pooled estimates from 4 plausible tables" in text
    assert "By Rubin's rules" in text
    assert '<th scope="row">pay</th>' in pooled._repr_html_()


@pytest.mark.parametrize(
    ("estimates", "variances", "options", "sentence"),
    [
        ([1.0], [1.0], {}, "two or more draws"),
        ([], [], {}, "two or more draws|must be numbers"),
        ([1.0, 2.0], [1.0], {}, "of one shape"),
        ([1.0, 2.0], [1.0, -1.0], {}, "a variance is below zero"),
        ([1.0, "x"], [1.0, 1.0], {}, "must be numbers"),
        ([[1.0], [1.0, 2.0]], [[1.0], [1.0]], {}, "must be numbers"),
        ([1.0, np.nan], [1.0, 1.0], {}, "estimates"),
        ([1.0, 2.0], [1.0, 1.0], {"n": 1.5}, "n must be a whole number"),
    ],
)
def test_what_cannot_be_pooled_is_refused(estimates, variances, options, sentence):
    with pytest.raises(dps.RequestError, match=sentence):
        dps.pool(estimates, variances, **options)
