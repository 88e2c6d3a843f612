"""Ratios of two sums: those of the rows without noise, honest intervals and errors with it."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import RequestError

SCHEMA = dps.Schema([
    dps.Number("cost", 0, 50, points=1001, allow_missing=True),
    dps.Number("income", 0, 100, points=401, allow_missing=True),
    dps.Number("gain", -10, 10, points=21, missing=0),
    dps.Number("size", 1, 9, points=9, missing=1), dps.Boolean("ill"),
])  # fmt: skip
ASKED = {"all": dps.Ratio("cost", "income"), "gains": dps.Ratio("gain", "size", by="ill")}


def rows(n=1_600):
    rng = np.random.default_rng(8)
    income = rng.gamma(4, 8, n)
    cost = (0.3 * income * rng.gamma(5, 0.2, n)).clip(0, 50)
    return pd.DataFrame({
        "cost": np.where(rng.random(n) < 0.1, np.nan, (20 * cost).round() / 20),
        "income": np.where(rng.random(n) < 0.2, np.nan, (4 * income.clip(0, 100)).round() / 4),
        "gain": rng.integers(-10, 11, n), "size": rng.integers(1, 10, n),
        "ill": rng.random(n) < 0.3,
    })  # fmt: skip


ROWS = rows()


def linearised(y, x):
    """Ratio, and variance of its sampling error as `svyratio` has it for independent rows."""
    ratio = y.sum() / x.sum()
    return ratio, len(y) / (len(y) - 1) * np.sum(((y - ratio * x) / x.sum()) ** 2)


@pytest.mark.parametrize(("unit", "name"), [("replace", "all"), ("add_remove", "gains")])
def test_without_noise_they_are_those_of_the_complete_rows(unit, name, inferred):
    asked = ASKED[name]
    result = inferred(SCHEMA, ROWS, asked, unit=unit)
    known = ROWS[ROWS[["cost", "income"]].notna().all(axis=1)]
    frames = [known] if name == "all" else [ROWS[ROWS["ill"] == ill] for ill in (False, True)]
    wanted = np.array([linearised(f[asked.numerator], f[asked.denominator]) for f in frames])
    np.testing.assert_allclose(result.params, wanted[:, 0], rtol=1e-5)
    # the middle parts of cost and income are rounded, which leaves the sums as they are
    np.testing.assert_allclose(result.sampling_variance, wanted[:, 1], rtol=3e-3)
    if name == "gains":
        assert result.terms == ["ill=False", "ill=True"]
        half = np.diff(result.conf_int())[:, 0] / 2
        t = stats.t.ppf(0.975, [len(f) - 1 for f in frames])
        np.testing.assert_allclose(half, t * np.sqrt(wanted[:, 1]), rtol=2e-2)


def test_a_denominator_that_may_be_zero_gives_an_open_interval(seeded_noise, inferred):
    few, noise = dps.PureDP(0.05), seeded_noise(1)
    result = inferred(SCHEMA, ROWS[:100], ASKED["all"], few, noise_from=noise)
    low, high = result.conf_int()
    assert low < 0.3
    assert high == np.inf
    assert any("some intervals have no ends" in note for note in result.notes)
    gains = inferred(SCHEMA, ROWS, dps.Ratio("gain", "size"), few)
    low, high = gains.conf_int()
    assert -10 <= low < high <= 10  # what the declared bounds allow
    with pytest.raises(RequestError, match="between -10 and 10"):
        gains.test(11)


def test_those_of_persons_from_their_totals(released_for_persons):
    """Without noise the sandwich over persons, with the factor of n / k persons."""
    frame = ROWS.assign(id=np.arange(len(ROWS)) // 4, gain=np.repeat(ROWS["gain"][::4], 4).array)
    asked = {"ill": dps.Ratio("gain", "size", given="ill")}
    own = frame[frame["ill"]]
    result = released_for_persons(SCHEMA, frame, asked, 4, person_totals=True).infer("ill")
    error = own["gain"] - own["gain"].sum() / own["size"].sum() * own["size"]
    wanted = (error.groupby(own["id"]).sum() ** 2).sum() / own["size"].sum() ** 2
    n = len(own)
    assert result.sampling_variance[0] == pytest.approx(wanted * n / (n - 4), rel=1e-3)
