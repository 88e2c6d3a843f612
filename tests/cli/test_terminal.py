"""What the command line prints fits the terminal: sentences and names wrap, data never."""

import json

import pytest

import dpstats as dps
from dpstats.cli import DONE, main
from dpstats.results.rendering import text_table
from dpstats.terminal import fitted

ROWS = [["smoker == 'yes', given age >= 65", "0.14", "[0.111, 0.167]"],
        ["short", "0.20", "[0.100, 0.300]"]]  # fmt: skip
RULED = text_table(["", "estimate", "95% interval"], ROWS)
TABLE = "\n".join(["Title", "", *RULED, "", "Note: of a table"])


def test_the_names_of_a_table_wrap_and_its_numbers_do_not():
    assert fitted(TABLE, len(RULED[1])) == TABLE
    assert fitted(TABLE, 44).splitlines() == [
        "Title",
        "",
        "                    estimate    95% interval",
        "-" * 44,
        "smoker == 'yes',        0.14  [0.111, 0.167]",
        "  given age >= 65",
        "short                   0.20  [0.100, 0.300]",
        "",
        "Note: of a table",
    ]
    assert fitted(TABLE, 30) == TABLE  # there is no room for names


def test_the_last_column_wraps_where_the_first_is_short():
    table = text_table(["", "clamped", "commonest outside"],
                       [["age", "0", ""], ["pay", "27", "'325000' (8), '251000' (2)"]])  # fmt: skip
    assert fitted("\n".join(table), 32).splitlines() == [
        "     clamped   commonest outside",
        "-" * 32,
        "age        0",
        "pay       27       '325000' (8),",
        "                    '251000' (2)",
    ]


def test_sentences_wrap_and_hang_below_what_they_describe():
    schema = "age     number, 0 to 120, 121 points; missing: counted as 40"
    assert fitted(schema, 40).splitlines() == [
        "age     number, 0 to 120, 121 points;", "        missing: counted as 40",
    ]  # fmt: skip
    command = "dpstats synthesize a.measurements.zip -o another.zip --force"
    said = f"dpstats: the measurements are kept; finish the release with: {command}"
    assert command in fitted(said, 40)
    assert " ".join(fitted(said, 40).split()) == said
    for text in ("", "\n\n", "-----", "x\n-----"):
        assert fitted(text, 40) == text


@pytest.mark.parametrize("columns", ["80", "100"])
def test_what_the_command_line_prints_fits_the_terminal(folder, monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["ledger", "new", "rho.ledger", "--kind", "zcdp", "--cap", "1/3"]) == DONE
    commands = [
        ["plan", "request.toml", "-o", "plan.json"],
        ["check", "plan.json", "survey.csv"],
        ["release", "plan.json", "survey.csv", "--unchecked", "-o", "a.zip", "--candidates", "50"],
        ["infer", "a.zip"],
        ["show", "a.zip"],
        ["show", "plan.json"],
        ["ledger", "show", "rho.ledger"],
        ["explain", "a.zip", "smoking"],
        ["bound", "a.zip", "smoking"],
    ]
    for command in commands:
        assert main(command) == DONE
        printed = capsys.readouterr()
        for line in f"{printed.out}\n{printed.err}".splitlines():
            assert len(line) <= int(columns), command
    assert main(["infer", "a.zip", "smoking"]) == DONE
    shown = capsys.readouterr().out
    whole = dps.load("a.zip").infer("smoking").summary()
    assert " ".join(shown.split()).endswith(" ".join(whole.split("privacy: ")[1].split()))
    assert main(["show", "a.zip", "--croissant"]) == DONE
    assert json.loads(capsys.readouterr().out)["@type"]
    assert main(["infer", "a.zip", "--csv"]) == DONE
    (header, *_) = capsys.readouterr().out.splitlines()
    assert header.startswith("analysis,")
    assert header.endswith(",privacy_share")


def test_what_is_no_terminal_gets_whole_lines(folder, capsys):
    assert main(["plan", "request.toml", "-o", "plan.json"]) == DONE
    assert capsys.readouterr().out == f"{dps.Plan.load('plan.json')}\nwritten to plan.json\n"
