"""The limits that tables print are those that fail, and are Clopper and Pearson's."""

import pytest


def passes(check, *row):
    try:
        check("setting", "method", *row)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(("runs", "rate"), [(5, 0.95), (60, 0.94), (300, 0.06)])
def test_a_row_fails_where_the_runs_rule_its_rate_out(runs, rate, table, tools):
    for successes in range(runs + 1):
        low, high = tools.clopper_pearson(successes, runs)
        assert passes(table.covers, successes, runs, rate) == (high >= rate)
        assert passes(table.level, successes, runs, rate) == (low <= rate)
    table.rows.clear()


def test_too_few_runs_are_seen(table):
    assert not passes(table.covers, 4, 4, 0.95)


def test_a_row_shows_its_limits_and_fails_outside_of_them(table):
    assert passes(table.check, 0.5, 2.0, "", 9, 0.25, 0.5)
    assert table.rows[-1][-1] == ">= 0.25, <= 0.5"
    assert not passes(table.check, 0.51, 2.0, "", 9, 0.25, 0.5)
    assert not passes(table.check, float("nan"), 2.0, "", 9, 0.25, 0.5)
    assert len(table.rows) == 2 + 1  # those that fail are shown too
