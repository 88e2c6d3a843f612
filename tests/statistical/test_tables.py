"""The limits that tables print are those that fail, and are Clopper and Pearson's."""

from statsmodels.stats.proportion import proportion_confint as clopper_pearson


def passes(check, *row):
    try:
        check("setting", "method", *row)
    except AssertionError:
        return False
    return True


def test_a_row_fails_where_the_runs_rule_its_rate_out(table):
    for runs, rate in ((5, 0.95), (60, 0.94), (200, 0.1)):
        for successes in range(runs + 1):
            low, high = clopper_pearson(successes, runs, alpha=1e-6, method="beta")
            assert passes(table.covers, successes, runs, rate) == (high >= rate)
            assert passes(table.level, successes, runs, rate) == (low <= rate)
    assert not passes(table.covers, 4, 4, 0.95)  # too few runs are seen
    assert not passes(table.check, float("nan"), 2.0, "", 9, 0.25, 0.5)
    table.rows.clear()
