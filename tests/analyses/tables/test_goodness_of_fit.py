import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps

P0 = [0.5, 0.3, 0.2]  # the region column of the survey was drawn from it


def test_zero_noise_is_pearsons_statistic(schema, survey, no_noise, inferred):
    asked = dps.GoodnessOfFit("region", [0.4, 0.3, 0.3])
    result = inferred(schema, survey, asked, dps.PureDP(5))
    counts = survey["region"].value_counts().reindex(["north", "south", "east"]).to_numpy()
    expected = stats.chisquare(counts, 2000 * np.array([0.4, 0.3, 0.3]))
    assert result.pearson == pytest.approx(expected.statistic, rel=1e-8)
    assert result.pearson_pvalue == pytest.approx(expected.pvalue, rel=1e-8)
    np.testing.assert_allclose(result.observed, counts, rtol=1e-9)
    np.testing.assert_allclose(result.expected, [800, 600, 600])
    assert result.df == 2
    assert result.certified.low <= expected.statistic <= result.certified.high
    assert result.certified.verdict == "reject"
    assert result.pvalue == 1 / 5000
    assert result.effect == pytest.approx(np.sqrt(expected.statistic / 2000), rel=1e-2)
    np.testing.assert_array_equal(result.conf_int(), result.effect_interval)
    squares = 2000 * np.square(result.conf_int(method="certified", target="table"))
    assert squares == pytest.approx([result.certified.low, result.certified.high])
    for method, target in (("noise_aware", "table"), ("certified", "population")):
        with pytest.raises(dps.RequestError, match=r"there is no .* interval for Cohen's w of"):
            result.conf_int(method=method, target=target)


NUMBERED = dps.Schema([
    dps.Number("score", values=[17.5, 22.0, 27.0], missing=22.0),
    dps.Category("rate", {"bad": 1, "good": 2}), dps.Category("level", [1, 2]),
])  # fmt: skip


def test_probabilities_go_by_the_value_of_numbers_and_by_labels():
    of_scores = {np.float32(27): 0.5, "17.5": 0.2, np.int64(22): 0.3}
    for column, given, expected in (
        ("score", of_scores, [0.2, 0.3, 0.5]), ("level", {2.0: 0.9, 1: 0.1}, [0.1, 0.9]),
        ("score", pd.Series([0.5, 0.2, 0.3], index=[27.0, 17.5, 22.0]), [0.2, 0.3, 0.5]),
    ):  # fmt: skip
        found = dps.GoodnessOfFit(column, given).expected_shares(NUMBERED)
        assert found.tolist() == pytest.approx(expected, abs=1e-15), column
    for column, wrong, message in (
        ("score", {22: 0.2, "22": 0.3, 17.5: 0.5}, "twice"),
        ("score", {22: 0.2, 22.5: 0.3, 17.5: 0.5}, "unknown labels \\['22.5'\\]"),
        ("score", pd.Series([0.2, 0.3, 0.5]), "unknown labels"),
        ("score", {"22.0": 0.2, "22": 0.2, "27": 0.3, "17.5": 0.3}, "twice"),
        ("rate", {1: 0.5, 2: 0.5}, "unknown labels"),  # stored values are no labels
    ):
        with pytest.raises(dps.RequestError, match=message):
            dps.GoodnessOfFit(column, wrong).family(NUMBERED)


@pytest.mark.parametrize(
    ("budget", "unit"), [(dps.ZCDP(1e-10), "add_remove"), (dps.PureDP(100), "replace")], ids=str
)
def test_noise_far_above_or_below_the_rows_in_overlapping_tables(unit, budget):
    """The counts' noise is singular where tables are combined and n is public."""
    schema = dps.Schema([dps.Category("c", list("uvwxy")), dps.Boolean("a"), dps.Boolean("b")])
    rows = pd.DataFrame({"c": list("uvwxy") * 2, "a": [True, False] * 5, "b": [True] * 10})
    test = dps.GoodnessOfFit("c", [0.2] * 5, simulations=199)
    analyses = {"t": test, "p": dps.Proportion("c == 'u'"), "m": dps.Marginals(["c", "a", "b"])}
    plan = dps.plan(schema, analyses, budget=budget, unit=unit)
    result = dps.release(plan, rows, rng=0, m=50, k=10).infer("t")
    low, high = result.conf_int()
    assert low == 0
    if unit == "replace":  # hardly any noise: the shares are the tested ones
        assert result.pvalue == 1
        assert high < 0.6
    else:
        assert result.pvalue > 1e-6
        assert high == pytest.approx(2)  # the largest effect


def test_a_small_alpha_takes_as_many_draws_as_its_tails_need(schema, survey):
    """99 draws have no quantile at 0.0005."""
    few, many = (
        dps.GoodnessOfFit("region", [0.4, 0.35, 0.25], simulations=draws) for draws in (99, 20_000)
    )
    plan = dps.plan(schema, {"g": few}, budget=dps.PureDP(0.2))
    release = dps.release(plan, survey, rng=0, m=50)
    some, exact = (release.infer(one).conf_int(alpha=0.001) for one in (few, many))
    np.testing.assert_allclose(some, exact, atol=0.02)
    with pytest.raises(dps.RequestError, match=r"alpha=1e-05 is too small .* method='certified'"):
        release.infer(few).conf_int(alpha=1e-5)


ANSWERED = dps.Schema([dps.Category("g", ["a", "b", "c"], allow_missing=True)])


def test_the_rows_with_a_value_are_a_table_of_their_own(no_noise, inferred):
    """With no probability of missing cells, which may have any share."""
    counts = [480, 330, 190]
    rows = pd.DataFrame({"g": np.repeat(np.array([*"abc", None], object), [*counts, 3_000])})
    named = dps.GoodnessOfFit("g", dict(zip("abc", P0, strict=True)))
    result = inferred(ANSWERED, rows, named, dps.PureDP(5), unit="add_remove")
    expected = stats.chisquare(counts, 1000 * np.array(P0))
    assert result.pearson == pytest.approx(expected.statistic, rel=1e-6)
    assert result.pvalue == pytest.approx(expected.pvalue, abs=0.03)
    assert (result.nobs, result.df) == (1000, 2)
    assert result.certified.low <= expected.statistic <= result.certified.high
    assert list(result.to_frame()["g"]) == ["a", "b", "c"]
    every = inferred(ANSWERED, rows, dps.GoodnessOfFit("g", [0.12, 0.08, 0.05, 0.75]))
    assert (every.nobs, every.df) == (4000, 3)


def test_missing_cells_need_no_probability_and_have_none_of_zero():
    with pytest.raises(dps.RequestError, match="leave it out"):
        dps.GoodnessOfFit("g", {"a": 0.5, "b": 0.3, "c": 0.2, "(missing)": 0})
    with pytest.raises(dps.RequestError, match="the test is of the rows that have a value"):
        dps.plan(ANSWERED, {"it": dps.GoodnessOfFit("g", [0.5, 0.5])}, budget=dps.PureDP(1))
    plan = dps.plan(ANSWERED, {"it": dps.GoodnessOfFit("g", P0)}, budget=dps.PureDP(1))
    with pytest.raises(dps.RequestError, match="about the same levels"):
        plan.solve(power=0.8, of="it", alternative=[0.4, 0.3, 0.2, 0.1])
