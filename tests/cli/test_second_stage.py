"""Two stages from the command line: at once, one after the other, and when the second fails."""

import re

import pytest

import dpstats as dps
from dpstats.cli import DONE, REFUSED, main
from dpstats.releases import pilots

TWO_STAGES = """
[budget]
rho = 0.2
[[column]]
name = "smoker"
levels = ["no", "yes"]
[[column]]
name = "region"
levels = ["north", "south", "east"]
[[column]]
name = "old"
kind = "boolean"
[[column]]
name = "ill"
kind = "boolean"
[[analysis]]
name = "risk"
kind = "logistic"
formula = "ill ~ smoker + region + old"
"""


@pytest.fixture
def with_outcomes(folder, survey):
    """A folder with a table of this request."""
    table = survey.assign(old=survey["age"] > 50, ill=survey["age"] > 60)
    table.to_csv(folder / "table.csv", index=False)
    return folder


def test_two_stages_at_once_or_one_after_the_other(with_outcomes, capsys):
    (with_outcomes / "one.toml").write_text(TWO_STAGES)
    (with_outcomes / "two.toml").write_text(TWO_STAGES + "stages = 2\n")
    run = ["release", "--unchecked", "--m", "50", "--rng", "1"]
    assert main([*run, "two.toml", "table.csv", "-o", "two.zip"]) == DONE
    assert "Second stage: 5 sums of the score at a pilot" in capsys.readouterr().out
    assert main(["plan", "two.toml", "-o", "plan.json"]) == DONE
    assert "the rows are read twice" in capsys.readouterr().out
    assert main([*run, "one.toml", "table.csv", "-o", "one.zip"]) == DONE
    assert main(["plan", "two.toml", "--start", "one.zip", "-o", "later.json"]) == DONE
    assert "Still to be spent: rho = 0.2" in capsys.readouterr().out
    assert main(["ledger", "new", "book", "--kind", "zcdp", "--cap", "0.2"]) == DONE
    assert main([*run, "later.json", "table.csv", "--ledger", "book", "-o", "later.zip"]) == DONE
    assert dps.load("later.zip").budget == dps.ZCDP(0.4)
    assert main(["plan", "two.toml", "--start", "plan.json", "-o", "x.json"]) == REFUSED
    assert "plan.json is a plan, not a release" in capsys.readouterr().err


def test_a_second_stage_that_fails_leaves_a_file_of_the_first(with_outcomes, capsys, monkeypatch):
    (with_outcomes / "two.toml").write_text(TWO_STAGES + "stages = 2\n")
    real = pilots.pilots

    def meanwhile(*given):
        (with_outcomes / "table.csv").unlink()
        return real(*given)

    monkeypatch.setattr(pilots, "pilots", meanwhile)
    assert main(["ledger", "new", "book", "--kind", "zcdp", "--cap", "1"]) == DONE
    run = ["release", "--unchecked", "two.toml", "table.csv", "--ledger", "book", "-o", "two.zip"]
    assert main(run) == REFUSED
    said = capsys.readouterr().err
    assert "could not be read a second time" in said
    assert dps.Ledger.open("book").spent == dps.ZCDP(0.2).rho
    command = re.search(r"finish the release with: dpstats (.*)", said)[1].split()
    assert main([*command, "--m", "50"]) == DONE
    assert main(["infer", command[-1]]) == DONE
    assert "no second stage for this formula" in capsys.readouterr().out
