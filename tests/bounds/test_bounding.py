"""Certified intervals for questions outside the plan."""

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses import questions
from dpstats.bounds import bounding, consistent, programs
from dpstats.bounds.bounding import Ends
from dpstats.families.tables.cells import ROWS

ASKED = [
    ("smoker & region == 'north' & age >= 65", {}),
    ("smoker & ill", {"given": "age < 40"}),
    ("smoker | ill", {"minus": "region == 'south'"}),
    ("ill", {"over": "smoker", "given": "region == 'east'"}),
    ("rich & smoker", {"given": "ill"}),
]


def truth_of(rows, condition, given=None, minus=None, over=None):
    used = [text for text in (condition, minus, over) if text]
    known = rows["rich"].notna() | ("rich" not in " ".join(used))
    rows = rows.assign(rich=rows["rich"] == True)[known]  # noqa: E712
    held = rows[rows.eval(given)] if given else rows
    one, *other = (held.eval(text).mean() for text in used)
    return one - other[0] if minus else one / other[0] if over else one


def test_intervals_hold_for_the_private_table(unplanned, survey_rows):
    # At an error of one in 100,000: the noise of these releases is not fixed.
    for target, asked in [("table", ASKED), ("population", ASKED[3:4])]:
        for number, (condition, options) in enumerate(asked):
            truth = truth_of(survey_rows, condition, **options)
            for name in list(unplanned)[number % 2 :: 2]:
                found = unplanned[name].bound(condition, **options, alpha=1e-5, target=target)
                assert found.low[0] - 1e-12 <= truth <= found.high[0] + 1e-12, name


def test_never_wider_than_the_joint_certificate(unplanned):
    for name, release in unplanned.items():
        accuracy = release.accuracy(alpha=0.05)
        own = release.bound(release.measurements.published.answering, alpha=0.05)
        low, high = accuracy.joint_ends
        assert own.terms == accuracy.names
        assert np.all(own.low >= low - 1e-12), name
        assert np.all(own.high <= high + 1e-12), name


def test_without_noise_the_limits_are_those_of_every_table_with_the_same_pairs(no_noise):
    # 12 rows of three Boolean columns: all tables with the same pairs differ along one line.
    schema = dps.Schema([dps.Boolean(name) for name in "abc"])
    cells = np.array(list(itertools.product((False, True), repeat=3)))
    counts = np.array([1, 2, 0, 3, 2, 1, 1, 2])
    rows = pd.DataFrame(np.repeat(cells, counts, axis=0), columns=list("abc"))
    plan = dps.plan(schema, {"pairs": dps.Marginals(list("abc"))}, budget=dps.PureDP(10_000))
    release = dps.release(plan, rows, m=50, rng=1)
    odd = cells.sum(axis=1) % 2 == 1
    most_down, most_up = counts[odd].min(), counts[~odd].min()
    found = release.bound("a & b & c")
    assert found.low[0] * 12 == pytest.approx(2 - most_down)
    assert found.high[0] * 12 == pytest.approx(2 + most_up)
    shares = release.bound("a", given="b & c")
    tables = [2 + t for t in range(-most_down, most_up + 1)]
    held = [x / (counts[3] - (x - 2) + x) for x in tables]  # 011 falls as 111 rises
    assert shares.low[0] == pytest.approx(min(held), abs=1e-6)
    assert shares.high[0] == pytest.approx(max(held), abs=1e-6)


def test_means_use_tables_of_bins_and_measured_moments(unplanned, survey_rows):
    pairs, conditions = unplanned["pairs"], unplanned["conditions"]
    within = pairs.bound(dps.Mean("age", given="smoker"), alpha=1e-5)
    assert within.low[0] <= survey_rows["age"][survey_rows["smoker"]].mean() <= within.high[0]
    assert 20 < within.width[0] < 60  # bins are 18 to 55 years wide
    measured = conditions.bound(dps.Mean("income"), alpha=1e-5)
    assert measured.low[0] <= survey_rows["income"].mean() <= measured.high[0]
    assert measured.width[0] < 2


def test_what_cannot_be_asked_is_refused(unplanned):
    for query, options in [
        (3, {}), (dps.Proportion, {}), (dps.Proportion("ill"), {"given": "smoker"}),
        ("ill", {"minus": "smoker", "over": "rich"}), ("smoker", {"given": "smoker"}),
        ("ill", {"alpha": 0.95}), ("ill", {"target": "rows"}), ("weight > 3", {}),
        ("ill", {"over": "smoker", "given": "not smoker"}), (ROWS, {}), (dps.Family((ROWS,)), {}),
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError):
            unplanned["pairs"].bound(query, **options)


def test_too_many_levels_and_contradictions_leave_what_is_possible(monkeypatch, unplanned):
    query = "smoker & region == 'north' & ill"
    with monkeypatch.context() as patch:
        patch.setattr(programs.Program, "least_sum", mock.Mock(side_effect=programs.Contradiction))
        found = unplanned["pairs"].bound(query)
    assert list(found) == [(0.0, 1.0)]
    assert found.notes == (bounding.CONTRADICTION,)
    monkeypatch.setattr(consistent, "SMALL", 1)
    monkeypatch.setattr(consistent, "MOST_STATES", 1)
    monkeypatch.setattr(consistent, "MOST_POSSIBLE", 5)
    found = unplanned["pairs"].bound(query)
    assert list(found) == [(0.0, 1.0)]
    assert found.known_from == ["no limit from measured functions of smoker, region, age, ill"]
    assert not found.informative.any()
    assert "distinguishes 8 combinations of levels" in found.notes[0]


def test_what_is_possible_anyway_is_no_knowledge(unplanned):
    for query, options, possible in [
        (dps.Mean("income", given="income < 50"), {}, [(0, 49)]),
        (dps.GroupMeans("income", by="rich", groups=(True, False)), {}, [(0, 100)] * 2),
        (dps.MeanDifference("income", by="rich", groups=(True, False)), {}, [(-100, 100)]),
        ("rich & income < 20", {"minus": "rich"}, [(-1, 0)]),
        ("rich & income < 20", {"over": "rich"}, [(0, 1)]),
        ("rich", {"over": "rich & income < 20"}, [(1, np.inf)]),
        (dps.Difference("rich", by="income", groups=("[0, 20)", "[20, 50)")), {},
         [(-1, 1), (0, np.inf), (0, np.inf)]),
    ]:  # fmt: skip
        for target in ["table", "population"]:
            found = unplanned["pairs"].bound(query, **options, target=target)
            assert np.array(list(found)) == pytest.approx(np.array(possible, dtype=np.float64))
            assert set(found.known_from) == {bounding.UNKNOWN}
            assert not found.informative.any()


def test_means_of_groups_that_were_not_measured(unplanned, survey_rows):
    for name, target in [("pairs", "table"), ("pairs, n hidden", "population")]:
        release, options = unplanned[name], {"alpha": 1e-5, "target": target}
        means = survey_rows.groupby("region", observed=True)["age"].mean()
        asked = dps.GroupMeans("age", by="region", groups=("south", "north", "east"))
        found = release.bound(asked, **options)
        assert found.terms == [f"mean of age, region={level}" for level in asked.groups]
        for level, (low, high) in zip(asked.groups, found, strict=True):
            assert low <= means[level] <= high
        difference = dps.MeanDifference("age", by="region", groups=("east", "north"))
        gap = release.bound(difference, **options)
        assert gap.low[0] <= means["east"] - means["north"] <= gap.high[0]
        assert gap.informative.all()
        # At half of alpha each, so wider than the two at alpha.
        (low, high), (least, most) = list(found)[2], list(found)[1]
        assert gap.low[0] < low - most < high - least < gap.high[0]


def test_products_of_numbers_have_extremes_at_the_ends_of_bins(unplanned):
    # Of 121 x 101 codes: the ends of four bins, of three, and what is next to 0.
    schema = unplanned["pairs"].schema
    moments = dps.Moments.of(schema, ["age", "income"])
    found = unplanned["pairs"].bound(moments)
    assert found.informative.tolist() == ["age" in name for name in moments.names]
    every = questions.questions_of_family(moments)
    for question, low, high in zip(every, found.low, found.high, strict=True):
        exact = unplanned["pairs"]._sources, replace(question, monotone=False), 0.05
        tables = consistent.consistent(*exact)
        ends = Ends(question, tables).interval(0)
        assert (low, high) == pytest.approx(ends, abs=1e-6)


def test_a_condition_inside_another_has_the_share_of_it_as_ratio(unplanned):
    for target in ["table", "population"]:
        # Over what contains it, a condition has the interval that it has given that.
        release, options = unplanned["pairs"], {"target": target}
        ratio = release.bound("smoker & ill & age >= 65", over="smoker & ill", **options)
        share = release.bound("age >= 65", given="smoker & ill", **options)
        assert np.array(list(ratio)) == pytest.approx(np.array(list(share)))
        assert ratio.informative.all()


def test_a_planned_analysis_goes_by_its_name(unplanned):
    release = unplanned["conditions"]
    assert release.bound("m") == release.bound(dps.Mean("income"))
    assert release.explain("m").ask == "dps.Mean('income')"
    # What reads as a condition is one, whatever the plan calls its analyses.
    plan = dps.plan(release.schema, {"ill": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    named = dps.release(plan, pd.DataFrame({"smoker": [True] * 50}), m=20, rng=1)
    assert named.bound("ill").terms == ["ill"]
    assert named.bound("ill") == named.bound(dps.Proportion("ill"))
    with pytest.raises(dps.ConditionError):
        release.bound("m", given="smoker")
