"""Preview, plan and check."""

import tomllib
from pathlib import Path

import pandas as pd

import dpstats as dps
from dpstats.cli import DONE, REFUSED, main
from dpstats.planning.requests import load_request

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
    main(["release", "--unchecked", "request.toml", "survey.csv", "-o", "a.zip"])
    capsys.readouterr()
    assert main([*solve, "--n", "2000", "--like", "a.zip", "--alpha", "0.2"]) == DONE
    assert "(noise-aware 0.8 interval)" in capsys.readouterr().out
    assert main(["preview", "request.toml", "--n", "2000", "--like", "a.zip"]) == DONE
    assert "drawn from the density of another release" in capsys.readouterr().out


def test_refusals_of_solving_name_the_parameters(folder, printed):
    width, power = ["--of", "smoking", "--width", "0.1"], ["--of", "smoking", "--power", "0.8"]
    for options, message in [
        (["--width", "1"], "give one --of NAME with --width, --delta or --power"),
        (["--of", "x", "--width", "1"], "of= must name an analysis of the plan, one of"),
        (["--of", "smoking"], "give one --of NAME with --width, --delta or --power"),
        ([*width, "--n", "9", "--budget", "1"], "give n= for the least budget, or budget= for"),
        ([*width, "--budget", "x"], "--budget: epsilon must be"),
        (power, "power= needs alternative=, an effect size, or like=, a release"),
        ([*power, "--alternative", "a,b"], "--alternative must be a number, or several with comma"),
        (["--of", "smoking", "--delta", "0.1", "--null", "1"], "null= belongs to power="),
        (["-o", "a.svg"], "-o is for the figure of --curve"),
        (["--curve", "--width", "1"], "--width and --curve exclude each other"),
        (["--n", "9", "--like", "survey.csv"], "--like takes a release (.zip) or a file with"),
        (["--n", "9", "--like", "guesses"], "--like takes a release (.zip) or a file with"),
    ]:
        assert f"dpstats: {message}" in printed("preview", "request.toml", *options, code=REFUSED)


def test_a_table_that_does_not_fit_is_seen_before_the_number_is_published(folder, capsys):
    rows = pd.read_csv("survey.csv")
    rows.assign(smoker=(rows["smoker"] == "yes").astype(int)).to_csv("survey.csv", index=False)
    assert main(["check", "request.toml", "survey.csv"]) == UNREAD
    printed = capsys.readouterr().out
    assert printed.startswith("Fit of the schema (not private: do not publish)\n2,000 rows\n")
    assert "smoker: '1': did you mean 'yes'?" in printed
    assert main(["plan", "request.toml", "-o", "plan.json"]) == DONE
    capsys.readouterr()
    assert main(["check", "plan.json", "survey.csv"]) == UNREAD
    assert capsys.readouterr().out == printed
    lines = (folder / "survey.csv").read_text().splitlines(keepends=True)
    (folder / "rows.csv").write_text("".join(lines[1:]))
    assert main(["check", "plan.json", "rows.csv"]) == REFUSED
    assert main(["check", "plan.json", "none.csv"]) == REFUSED
    assert "there is no file 'none.csv'" in capsys.readouterr().err
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
    printed("plan", "request.toml", "-o", "plan.json")
    assert printed("preview", "plan.json", "--n", "2000") == given


def test_guesses_of_a_request_replace_those_of_its_schema(folder, capsys):
    text = (folder / "request.toml").read_text()
    columns = text[text.index("[[column]]") : text.index("[[analysis]]")]
    (folder / "schema.toml").write_text(columns + GUESSES)
    rest = 'schema = "schema.toml"\n' + text.replace(columns, "")
    widths = []
    for more in ("", "[guesses.shares]\nsmoker = { yes = 0.5 }\n"):
        (folder / "request.toml").write_text(rest + more)
        widths.append(load_request(folder / "request.toml").preview(2_000).outlooks[0].width)
    assert widths[0] < 0.6 * widths[1]


def test_a_curve_is_a_table_or_a_figure(folder, printed):
    curve = ["preview", "request.toml", "--n", "2000", "--curve", "--of", "old"]
    title, header, *rows = printed(*curve).splitlines()
    assert title.startswith("Median width of noise-aware 0.95 intervals at n = 2000, rows drawn")
    assert header.split("  ") == ["epsilon", "old: proportion"]
    assert [row.split()[0] for row in rows] == ["0.125", "0.25", "0.5", "1", "2", "4", "8"]
    printed(*curve, "-o", "curve.svg")
    text = (folder / "curve.svg").read_text()
    assert text.startswith("<?xml")
    assert "<svg" in text
    assert "exists" in printed(*curve, "-o", "curve.svg", code=REFUSED)
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


def test_person_totals_are_an_option_of_a_plan(folder, capsys):
    text = (folder / "request.toml").read_text()
    (folder / "people.toml").write_text(f'rows_per_person = 2\nperson = "id"\n{text}')
    assert main(["plan", "people.toml", "-o", "rows.json"]) == DONE
    assert not dps.Plan.load("rows.json").strategy.of_persons
    assert main(["plan", "people.toml", "-o", "totals.json", "--person-totals"]) == DONE
    assert dps.Plan.load("totals.json").strategy.of_persons
    assert main(["plan", "request.toml", "-o", "no.json", "--person-totals"]) == REFUSED
    assert "name it with" in capsys.readouterr().err


def test_check_ends_with_its_own_code_where_no_cell_of_a_column_can_be_read(folder, capsys):
    lines = (folder / "survey.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    for ages, code in ((["30,5"] * len(rows), UNREAD), (["30,5", "30"] * (len(rows) // 2), DONE)):
        cells = [";".join([*row[:2], age]) for row, age in zip(rows, ages, strict=True)]
        (folder / "survey.csv").write_text("\n".join([lines[0].replace(",", ";"), *cells, ""]))
        assert main(["check", "request.toml", "survey.csv"]) == code
        assert "declare decimal = ','" in " ".join(capsys.readouterr().out.split())
        # A release says and decides nothing by it.
        command = ["release", "--unchecked", "request.toml", "survey.csv", "-o", f"{code}.zip"]
        assert main(command) == DONE
        printed = capsys.readouterr()
        assert "decimal" not in printed.out + printed.err
    with (folder / "request.toml").open("a") as request:
        request.write('[file]\ndecimal = ","\n')
    assert main(["check", "request.toml", "survey.csv"]) == DONE
    assert "every cell that is not missing fits" in capsys.readouterr().out
