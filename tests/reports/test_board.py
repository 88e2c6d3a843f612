"""The page for the board: all noisy answers, and a cost that adds up to the budget."""

import html
import re
from fractions import Fraction

import pandas as pd
import pytest

import dpstats as dps
from dpstats.measured.strategy import Strategy


def cells(text, label):
    """Rows of the table with this label."""
    inside = text[text.index(f'aria-label="{label}"') :]
    inside = inside[: inside.index("</table>")]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
            for row in re.findall(r"<tr>(.*?)</tr>", inside)[1:]]  # fmt: skip


@pytest.fixture
def page(tmp_path):
    """The page for the board of a release of 50 rows, and the release."""

    def board(plan, rows):
        made = dps.release(plan, rows, m=50, k=50, rng=0)
        dps.report(made, tmp_path / "board.html", audience="board", overwrite=True)
        return html.unescape((tmp_path / "board.html").read_text()), made

    return board


def test_costs_and_noisy_sums(schema, survey, page):
    for unit in ["replace", "add_remove"]:
        asked = {"p": dps.Proportion("smoker == 'yes'"), "t": dps.Marginals(["region", "age"])}
        text, made = page(dps.plan(schema, asked, budget=dps.PureDP(0.75), unit=unit), survey)
        *each, total = cells(text, "Blocks")
        assert Fraction(total[-1]) == Fraction(3, 4)
        assert float(sum(Fraction(row[-1]) for row in each)) == pytest.approx(0.75, rel=1e-5)
        sums = [int(row[1].replace(",", "")) for row in cells(text, "Noisy answers")]
        assert sums == made.measurements.noisy_sums.tolist()
        assert ("exact number of rows, 2,000" in text) == (unit == "replace")


def test_tables_under_gaussian_noise_are_paid_for_jointly(schema, survey, page):
    asked = {"t": dps.Marginals(["smoker", "region", "age"], 2)}
    *each, together, total = cells(
        page(dps.plan(schema, asked, budget=dps.ZCDP(0.5)), survey)[0], "Blocks"
    )
    assert {row[-1] for row in each} == {"jointly"}
    assert (together[0], together[-1]) == ("all residuals together", "0.5")
    assert (total[0], total[-1]) == ("all blocks", "0.5")


def test_it_shows_what_was_declared_and_asked_and_what_a_row_can_add(page):
    schema = dps.Schema([
        dps.Category("region", ["north", "south"], note="law of 2020"), dps.Boolean("unused"),
        dps.Number("age", 0, 120, points=121, edges=[65], missing=40),
        dps.Number("pay", 0, 90, points=10, missing=0),
    ], rules=[dps.Never("age >= 65 and region == 'south'", set={"region": "north"})],
       totals=[dps.Total("age < 65", 90, of="table")])  # fmt: skip
    asked = {"pay": dps.OLS("pay ~ age"), "north": dps.Proportion("region == 'north'")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(Fraction(1, 3)))
    rows = pd.DataFrame({"region": ["north"] * 90, "age": [30.0] * 90, "pay": [10.0] * 90})
    text, _ = page(plan, rows)
    declared = {row[0]: row[1:] for row in cells(text, "Columns of the schema")}
    assert list(declared) == ["region", "unused", "age", "pay"]
    assert [row[-1] for row in declared.values()] == ["measured", "named only", *2 * ["measured"]]
    rule, total = cells(text, "Rules between columns, public totals, and the design of a survey")
    assert rule[0].startswith("rule 1: never age >= 65")
    assert total == ["total 1: 90 rows of the table have age < 65"]
    held = {row[0]: row[1] for row in cells(text, "Members of the file")}
    assert "rules, totals and notes" in held["measurements.json"]
    assert "exact counts, without noise" in text
    assert "edges, rules and totals chosen without a look" in text
    assert cells(text, "Planned analyses") == [
        ["pay", "dps.OLS('pay ~ age')"], ["north", "dps.Proportion(\"region == 'north'\")"],
    ]  # fmt: skip
    most = {row[0]: int(row[-1].replace(",", "")) for row in cells(text, "Noisy answers")}
    assert (most["age"], most["pay"], most["age*pay"]) == (60, 9, 60 * 9)  # steps, half steps
    assert cells(text, "Blocks")[-1][-1] == "1/3 (about 0.333333)"


def test_a_cost_that_is_not_the_budget_stops_the_page(schema, tmp_path, monkeypatch):
    plan = dps.plan(schema, {"p": dps.Proportion("smoker == 'yes'")}, budget=dps.PureDP(1))
    made = dps.release(plan, pd.DataFrame({"smoker": ["yes"] * 9}), m=9, k=9, rng=0)
    monkeypatch.setattr(Strategy, "cost", lambda self: Fraction(2))
    with pytest.raises(dps.BudgetError, match="spends 2 and its budget is 1"):
        dps.report(made, tmp_path / "b.html", audience="board")
    assert not list(tmp_path.iterdir())


def test_members_and_noisy_answers_are_those_of_the_file(hostile, pages):
    """Counted as rows of answers.csv: also coarse moments, those of a reference and of the rows."""
    board = pages["board"].read_text("utf-8")
    members = {row[0] for row in cells(board, "Members of the file")}
    assert members == {*hostile._members(), "digests.json"}
    held = hostile.measurements
    count = len(held.noisy_sums)
    assert count > hostile.accuracy().noisy.size  # else this shows nothing
    counted = f"{count} noisy answers"
    assert str(hostile).startswith(f"Release: {counted} from")
    assert str(held).startswith(f"Measurements: {counted} from")
    assert counted in board
    assert f"<dt>Noisy answers</dt><dd>{count}</dd>" in pages["analysts"].read_text()


def test_it_names_the_design_of_a_survey(schema, survey, page):
    design = dps.Design("pay", mean=500, cap=900, missing=1, strata="region", unit="school",
                        units={"north": [1, 2, 3], "south": [4, 5]})  # fmt: skip
    rows = survey.assign(school=range(len(survey)), pay=500.0)
    planned = dps.Schema(schema.columns, design=design)
    for unit in ["replace", "add_remove"]:
        asked = {"p": dps.Proportion("smoker == 'yes'")}
        text, made = page(dps.plan(planned, asked, budget=dps.PureDP(1), unit=unit), rows)
        board = " ".join(text.split())
        assert str(design) in board
        assert "also the exact number of rows" not in board
        assert ("number of rows, which the file does not state" in board) == (unit == "replace")
        most = [int(row[-1].replace(",", "")) for row in cells(board, "Noisy answers")]
        assert max(most) == 4096 * int(made.measurements.measured[0].block.bounds.max())
