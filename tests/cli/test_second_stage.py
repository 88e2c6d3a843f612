"""Two stages from the command line: at once, one after the other, and when the second fails."""

import re

import pytest

import dpstats as dps
from dpstats.cli import REFUSED
from dpstats.releases import pilots

RELEASE = "release --unchecked --m 50 --rng 1"


@pytest.fixture(autouse=True)
def with_outcomes(folder, survey, entries):
    """A table, and requests of one and of two stages."""
    table = survey.assign(old=survey["age"] > 50, ill=survey["age"] > 60)
    table.to_csv(folder / "table.csv", index=False)
    columns = entries(
        "column",
        {"name": "smoker", "levels": ["no", "yes"]},
        {"name": "region", "levels": ["north", "south", "east"]},
        {"name": "old", "kind": "boolean"},
        {"name": "ill", "kind": "boolean"},
    )
    risk = {"name": "risk", "kind": "logistic", "formula": "ill ~ smoker + region + old"}
    table = {"name": "ages", "kind": "proportion", "condition": "old"}
    two = risk | {"stages": 2}
    for name, asked in (("one", [risk, table]), ("two", [two]), ("both", [two, table])):
        text = "[budget]\nrho = 0.2\n" + columns + entries("analysis", *asked)
        (folder / f"{name}.toml").write_text(text)


def test_two_stages_at_once_or_one_after_the_other(printed):
    at_once = printed(f"{RELEASE} two.toml table.csv -o two.zip")
    assert "Second stage: 5 sums of the score at a pilot" in at_once
    assert "the rows are read twice" in printed("plan two.toml -o plan.json")
    printed(f"{RELEASE} one.toml table.csv -o one.zip")
    refused = printed("plan both.toml --start one.zip -o later.json", code=REFUSED)
    assert "'ages' has none" in refused
    later = printed("plan two.toml --start one.zip -o later.json")
    assert "Still to be spent: rho = 0.2" in later
    printed("ledger new book --kind zcdp --cap 0.2")
    printed(f"{RELEASE} later.json table.csv --ledger book -o later.zip")
    assert dps.load("later.zip").budget == dps.ZCDP(0.4)
    assert set(dps.load("later.zip").analyses) == {"risk", "ages"}
    refused = printed("plan two.toml --start plan.json -o x.json", code=REFUSED)
    assert "plan.json is a plan, not a release" in refused


def test_a_second_stage_that_fails_leaves_a_file_of_the_first(folder, printed, monkeypatch):
    real = pilots.pilots

    def meanwhile(*given):
        (folder / "table.csv").unlink()
        return real(*given)

    monkeypatch.setattr(pilots, "pilots", meanwhile)
    printed("ledger new book --kind zcdp --cap 1")
    said = printed(f"{RELEASE} two.toml table.csv --ledger book -o two.zip", code=REFUSED)
    assert "could not be read a second time" in said
    assert dps.Ledger.open("book").spent == dps.ZCDP(0.2).rho
    command = re.search(r"finish the release with: dpstats (.*)", said)[1]
    printed(f"{command} --m 50")
    assert "no second stage for this formula" in printed(f"infer {command.split()[-1]}")
