"""Preview, plan and check."""

import pandas as pd

import dpstats as dps
from dpstats.cli import REFUSED
from dpstats.planning.requests import load_request

UNREAD = 4


def test_preview_solves_for_a_budget_or_for_rows(folder, printed, streams, fast):
    solve = "preview request.toml --of smoking --width 0.05"
    out, err = streams(f"{solve} --n 2000")
    assert out == f"{load_request('request.toml').solve(width=0.05, of='smoking', n=2_000)}\n"
    assert "previewing 'smoking' at epsilon = 1" in err
    assert "least n = " in printed(f"{solve} --budget 1/2")
    printed("release --unchecked request.toml survey.csv -o a.zip --m 50")
    like = printed("preview request.toml --n 2000 --like a.zip")
    assert "drawn from the density of another release" in like


def test_refusals_of_solving_name_the_parameters(folder, printed):
    power = "--of smoking --power 0.8"
    for options, message in {
        "": "preview needs a number of rows",
        "--width 1": "give one --of NAME with --width, --delta or --power",
        "--of smoking --width 0.1 --budget x": "--budget: epsilon must be",
        power: "power= needs alternative=, an effect size, or like=, a release",
        f"{power} --alternative a,b": "--alternative must be a number, or several with comma",
        "-o a.svg": "-o is for the figure of --curve",
        "--curve --width 1": "--width and --curve exclude each other",
        "--n 9 --like survey.csv": "--like takes a release (.zip) or a file with",
        "--n 9 --curve --of old -o curve.txt": "name the figure .svg, .png, .pdf",
    }.items():
        refused = printed(f"preview request.toml {options}", code=REFUSED)
        assert f"dpstats: {message}" in refused


def test_a_table_that_does_not_fit_is_seen_before_the_number_is_published(folder, printed, streams):
    rows = pd.read_csv("survey.csv")
    rows.assign(smoker=(rows["smoker"] == "yes").astype(int)).to_csv("survey.csv", index=False)
    out, _ = streams("check request.toml survey.csv", code=UNREAD)
    assert out.startswith("Fit of the schema (not private: do not publish)\n2,000 rows\n")
    assert "smoker: '1': did you mean 'yes'?" in out
    printed("plan request.toml --n 1999 -o other.json")
    out, err = streams("check other.json survey.csv", code=REFUSED)
    assert "the plan was made for n = 1999 rows and the table has 2000" in out
    assert "its number of rows would be refused" in " ".join(err.split())
    rows.rename(columns={"smoker": "Smoker"}).to_csv("other.csv", index=False)
    out, err = streams("check request.toml other.csv", code=REFUSED)
    assert "did you mean 'Smoker'?" in out
    assert "it cannot be released under this plan" in err


def test_check_ends_with_its_own_code_where_no_cell_of_a_column_can_be_read(folder, streams):
    pd.read_csv("survey.csv").assign(age="30,5").to_csv("survey.csv", sep=";", index=False)
    out, _ = streams("check request.toml survey.csv", code=UNREAD)
    assert "declare decimal = ','" in " ".join(out.split())
    # A release says and decides nothing by it.
    released = streams("release --unchecked request.toml survey.csv -o r.zip --m 50")
    assert "decimal" not in "".join(released)


GUESSES = "[guesses.shares]\nsmoker = { yes = 0.05 }\n"


def test_preview_uses_the_guesses_of_the_request_or_of_a_file(folder, printed, fast):
    preview, request = "preview request.toml --n 2000", (folder / "request.toml").read_text()
    (folder / "guesses.toml").write_text(GUESSES)
    given = printed(f"{preview} --like guesses.toml")
    assert "rows invented from guesses of smoker and spread evenly over age" in given
    even = printed(preview)
    assert "rows drawn evenly over the cells" in even
    assert "expected error (delta)" in even
    (folder / "request.toml").write_text(request + GUESSES)
    assert printed(preview) == given
    columns, rest = request.split("[[analysis]]", 1)
    (folder / "schema.toml").write_text(columns[columns.index("[[column]]") :] + GUESSES)
    text = f'schema = "schema.toml"\n[budget]\nepsilon = 1\n[[analysis]]{rest}{GUESSES}'
    (folder / "request.toml").write_text(text.replace("0.05", "0.5"))  # replaces the schema's
    assert "invented from guesses of smoker" in printed(preview) != given


def test_a_curve_is_a_table(folder, printed, fast):
    title, header, *rows = printed("preview request.toml --n 2000 --curve --of old").splitlines()
    assert title.startswith("Median width of noise-aware 0.95 intervals at n = 2000, rows drawn")
    assert header.split("  ") == ["epsilon", "old: proportion"]
    assert [row.split()[0] for row in rows] == ["0.125", "0.25", "0.5", "1", "2", "4", "8"]


def test_person_totals_are_an_option_of_a_plan(folder, printed):
    text = (folder / "request.toml").read_text()
    (folder / "people.toml").write_text(f'rows_per_person = 2\nperson = "id"\n{text}')
    printed("plan people.toml -o totals.json --person-totals")
    assert dps.Plan.load("totals.json").strategy.of_persons
