"""Preview, plan and check."""

import tomllib
from pathlib import Path

import pandas as pd

import dpstats as dps
from dpstats.cli import DONE, REFUSED, main

UNREAD = 4


def test_preview_solves_for_a_budget_or_for_rows(folder, capsys):
    solve = ["preview", "request.toml", "--of", "smoking", "--width", "0.05"]
    assert main([*solve, "--n", "2000"]) == DONE
    printed = capsys.readouterr()
    found = dps.plan(
        dps.Schema.from_dict(tomllib.loads((folder / "request.toml").read_text())["column"]),
        {"smoking": dps.Proportion("smoker == 'yes'"),
         "old": dps.Proportion("smoker == 'yes'", given="age >= 65")},
        budget=dps.PureDP(1),
    ).solve(width=0.05, of="smoking", n=2_000)  # fmt: skip
    assert printed.out == f"{found}\n"
    assert "previewing 'smoking' at epsilon = 1" in printed.err
    assert main([*solve, "--budget", "1/2"]) == DONE
    assert "least n = " in capsys.readouterr().out
    main(["release", "--unchecked", "request.toml", "survey.csv", "-o", "a.zip", "--m", "50"])
    capsys.readouterr()
    assert main(["preview", "request.toml", "--n", "2000", "--like", "a.zip"]) == DONE
    assert "drawn from the density of another release" in capsys.readouterr().out


def test_refusals_of_solving_name_the_parameters(folder, printed):
    width, power = ["--of", "smoking", "--width", "0.1"], ["--of", "smoking", "--power", "0.8"]
    for options, message in [
        (["--width", "1"], "give one --of NAME with --width, --delta or --power"),
        ([*width, "--budget", "x"], "--budget: epsilon must be"),
        (power, "power= needs alternative=, an effect size, or like=, a release"),
        ([*power, "--alternative", "a,b"], "--alternative must be a number, or several with comma"),
        (["-o", "a.svg"], "-o is for the figure of --curve"),
        (["--curve", "--width", "1"], "--width and --curve exclude each other"),
        (["--n", "9", "--like", "survey.csv"], "--like takes a release (.zip) or a file with"),
    ]:
        assert f"dpstats: {message}" in printed("preview", "request.toml", *options, code=REFUSED)


def test_a_table_that_does_not_fit_is_seen_before_the_number_is_published(folder, capsys):
    rows = pd.read_csv("survey.csv")
    rows.assign(smoker=(rows["smoker"] == "yes").astype(int)).to_csv("survey.csv", index=False)
    assert main(["check", "request.toml", "survey.csv"]) == UNREAD
    printed = capsys.readouterr().out
    assert printed.startswith("Fit of the schema (not private: do not publish)\n2,000 rows\n")
    assert "smoker: '1': did you mean 'yes'?" in printed
    assert main(["plan", "request.toml", "--n", "1999", "-o", "other.json"]) == DONE
    assert main(["check", "other.json", "survey.csv"]) == REFUSED
    printed = capsys.readouterr()
    assert "the plan was made for n = 1999 rows and the table has 2000" in printed.out
    assert "its number of rows would be refused" in " ".join(printed.err.split())


GUESSES = "[guesses.shares]\nsmoker = { yes = 0.05 }\n"


def test_preview_uses_the_guesses_of_the_request_or_of_a_file(folder, printed):
    preview = ["preview", "request.toml", "--n", "2000"]
    (folder / "guesses.toml").write_text(GUESSES)
    given = printed(*preview, "--like", "guesses.toml")
    assert "rows invented from guesses of smoker and spread evenly over age" in given
    even = printed(*preview)
    assert "rows drawn evenly over the cells" in even
    assert "expected error (delta)" in even
    (folder / "request.toml").write_text((folder / "request.toml").read_text() + GUESSES)
    assert printed(*preview) == given
    columns, rest = (folder / "request.toml").read_text().split("[[analysis]]", 1)
    (folder / "schema.toml").write_text(columns[columns.index("[[column]]") :] + GUESSES)
    text = f'schema = "schema.toml"\n[budget]\nepsilon = 1\n[[analysis]]{rest}'
    (folder / "request.toml").write_text(text.replace("0.05", "0.5"))  # replaces the schema's
    assert "invented from guesses of smoker" in printed(*preview) != given


def test_a_curve_is_a_table_or_a_figure(folder, printed):
    curve = ["preview", "request.toml", "--n", "2000", "--curve", "--of", "old"]
    title, header, *rows = printed(*curve).splitlines()
    assert title.startswith("Median width of noise-aware 0.95 intervals at n = 2000, rows drawn")
    assert header.split("  ") == ["epsilon", "old: proportion"]
    assert [row.split()[0] for row in rows] == ["0.125", "0.25", "0.5", "1", "2", "4", "8"]
    refused = printed(*curve, "-o", "curve.txt", code=REFUSED)
    assert "name the figure .svg, .png, .pdf" in refused


def test_check_refuses_a_table_that_lacks_a_column(folder, capsys):
    assert main(["plan", "request.toml", "-o", "plan.json"]) == DONE
    assert main(["check", "plan.json", "survey.csv"]) == DONE
    lines = Path("survey.csv").read_text().splitlines()
    Path("other.csv").write_text("\n".join([lines[0].replace("smoker", "Smoker"), *lines[1:]]))
    capsys.readouterr()
    assert main(["check", "plan.json", "other.csv"]) == REFUSED
    printed = capsys.readouterr()
    assert "did you mean 'Smoker'?" in printed.out
    assert "it cannot be released under this plan" in printed.err


def test_check_ends_with_its_own_code_where_no_cell_of_a_column_can_be_read(folder, capsys):
    lines = (folder / "survey.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    cells = [";".join([*row[:2], "30,5"]) for row in rows]
    (folder / "survey.csv").write_text("\n".join([lines[0].replace(",", ";"), *cells, ""]))
    assert main(["check", "request.toml", "survey.csv"]) == UNREAD
    assert "declare decimal = ','" in " ".join(capsys.readouterr().out.split())
    # A release says and decides nothing by it.
    command = ["release", "--unchecked", "request.toml", "survey.csv", "-o", "r.zip", "--m", "50"]
    assert main(command) == DONE
    printed = capsys.readouterr()
    assert "decimal" not in printed.out + printed.err


def test_person_totals_are_an_option_of_a_plan(folder, printed):
    text = (folder / "request.toml").read_text()
    (folder / "people.toml").write_text(f'rows_per_person = 2\nperson = "id"\n{text}')
    printed("plan", "people.toml", "-o", "totals.json", "--person-totals")
    assert dps.Plan.load("totals.json").strategy.of_persons
