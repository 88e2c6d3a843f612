import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, FAILED, OVER_BUDGET, REFUSED, main

REQUEST = """
[budget]
epsilon = 1
[[column]]
name = "smoker"
levels = ["no", "yes"]
[[column]]
name = "age"
low = 0
high = 120
edges = [65]
[[analysis]]
name = "smoking"
kind = "proportion"
condition = "smoker == 'yes'"
[[analysis]]
name = "old"
kind = "proportion"
condition = "smoker == 'yes'"
given = "age >= 65"
"""


@pytest.fixture
def folder(tmp_path, survey, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "request.toml").write_text(REQUEST)
    survey.to_csv(tmp_path / "survey.csv", index=False)
    return tmp_path


def test_from_request_to_answers(folder, capsys):
    assert main(["preview", "request.toml", "--rows", "2000"]) == DONE
    assert "95% width" in capsys.readouterr().out
    assert main(["plan", "request.toml", "-o", "plan.json", "--rows", "2000"]) == DONE
    assert json.loads((folder / "plan.json").read_text())["rows"] == 2000
    assert main(["ledger", "new", "book", "--cap", "3/2"]) == DONE
    release = [
        "release",
        "--unchecked",
        "plan.json",
        "survey.csv",
        "--ledger",
        "book",
        "-o",
        "out.zip",
    ]
    assert main(release) == DONE
    printed = capsys.readouterr()
    assert "delta" in printed.out
    assert "reading rows" in printed.err
    assert "warning" not in printed.err
    assert not list(folder.glob("*.measurements.zip"))
    assert main(["infer", "out.zip", "smoking", "--alpha", "0.1"]) == DONE
    assert "90% noise-aware" in capsys.readouterr().out
    assert main(["infer", "out.zip", "smoking", "--alpha", "1e-9"]) == DONE
    assert "99.9999999% noise-aware" in capsys.readouterr().out
    assert main(["infer", "out.zip"]) == DONE
    assert capsys.readouterr().out.count("Target:") == 2
    assert main(["ledger", "show", "book"]) == DONE
    again = [*release[:-1], "again.zip"]
    assert main(again) == OVER_BUDGET
    assert "remaining" in capsys.readouterr().err
    assert dps.load("out.zip").n == 2000


def test_nothing_is_spent_when_the_output_cannot_be_kept(folder, capsys):
    main(["ledger", "new", "book", "--cap", "5"])
    release = ["release", "--unchecked", "request.toml", "survey.csv", "--ledger", "book", "-o"]
    assert main([*release, "nowhere/out.zip"]) == REFUSED
    assert "nothing was spent" in capsys.readouterr().err
    for option, value in {"--candidates": 0, "--synthetic-rows": 10**11, "--seed": -1}.items():
        assert main([*release, "out.zip", option, str(value)]) == REFUSED
        assert f"dpstats: {option} must be" in capsys.readouterr().err
    assert main([*release, "out.zip", "--solver", "pulp"]) == REFUSED
    said = capsys.readouterr().err
    assert "--solver pulp is for the linear program of --fit minimax; drop --solver, or" in said
    assert dps.Ledger.open("book").spent == 0
    assert main([*release, "out.zip"]) == DONE
    paid = (folder / "out.zip").read_bytes()
    assert main([*release, "out.zip"]) == REFUSED
    assert "is kept; name another file, or replace it with --force;" in capsys.readouterr().err
    assert (folder / "out.zip").read_bytes() == paid
    assert dps.Ledger.open("book").spent == 1
    minimax = ["--fit", "minimax", "--solver", "pulp", "--candidates", "50"]
    assert main([*release, "out.zip", "--force", *minimax]) == DONE
    assert dps.load("out.zip").fit == "minimax"
    assert (folder / "out.zip").read_bytes() != paid


GRAPH = """
[[column]]
name = "weight"
low = 0
high = 100
missing = 0
[[column]]
name = "height"
low = 0
high = 100
missing = 0
[[analysis]]
name = "graph"
kind = "graphical_model"
columns = ["height", "weight", "smoker"]
[[analysis]]
name = "weights"
kind = "group_means"
column = "weight"
by = "smoker"
[[analysis]]
name = "picture"
kind = "graphical_model"
columns = ["height", "weight", "smoker"]
estimator = "clime"
penalties = [0.1, 0.3]
"""


def test_options_of_summaries(folder, capsys):
    (folder / "graph.toml").write_text(REQUEST + GRAPH)
    survey = pd.read_csv("survey.csv")
    numbers = pd.RangeIndex(len(survey)).to_numpy()
    survey.assign(weight=numbers % 100, height=numbers % 70).to_csv("survey.csv", index=False)
    release = ["release", "--unchecked", "graph.toml", "survey.csv", "-o", "g.zip"]
    assert main([*release, "--candidates", "1000"]) == DONE
    release = dps.load("g.zip")
    capsys.readouterr()

    def printed(*options):
        assert main(["infer", "g.zip", *options]) == DONE
        return capsys.readouterr().out.rstrip()

    graph, picture = release.infer("graph"), release.infer("picture")
    assert printed("graph", "--simultaneous") == graph.summary(simultaneous=True)
    smoking = release.infer("smoking").summary(simultaneous=True)
    assert printed("smoking", "--simultaneous") == smoking
    smoking = release.infer("smoking").summary(method="shortest")
    assert printed("smoking", "--method", "shortest") == smoking
    assert printed("graph", "--adjust", "fdr_bh") == graph.summary(adjust="fdr_bh")
    weights = release.infer("weights")
    pairs = printed("weights", "--adjust", "holm")
    assert pairs == f"{weights.summary()}\n\n{weights.pairwise().summary()}"
    other = next(one for one in (0.1, 0.3) if one != picture.nearest)
    assert f"below: penalty {other}" in printed("picture", "--penalty", str(other))
    assert main(["infer", "g.zip", "graph", "--penalty", "0.3"]) == REFUSED
    assert "--penalty has no meaning for 'graph'" in capsys.readouterr().err
    assert main(["infer", "g.zip", "--adjust", "none"]) == REFUSED
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("rows", ["all", "6", "2"])
def test_long_tables_print_as_many_rows_as_asked_for(folder, capsys, monkeypatch, rows):
    table = '[[analysis]]\nname = "table"\nkind = "marginals"\ncolumns = ["smoker", "age"]'
    (folder / "table.toml").write_text(f"{REQUEST}\n{table}\n")
    release = ["release", "--unchecked", "table.toml", "survey.csv", "-o", "t.zip"]
    assert main([*release, "--candidates", "100"]) == DONE
    capsys.readouterr()
    assert main(["infer", "t.zip", "--rows", rows]) == DONE  # of all analyses, long or not
    text = capsys.readouterr().out
    assert text.count("smoker=") == (2 if rows == "2" else 4)
    assert ("2 more rows in to_frame(); print them with most= (dpstats infer --rows)" in text) == (
        rows == "2"
    )
    for wrong in ("0", "-1", "many", "1.5"):
        with pytest.raises(SystemExit, match="2"):
            main(["infer", "t.zip", f"--rows={wrong}"])
        assert "--rows: give a number of rows, or all" in capsys.readouterr().err


def test_certified_intervals_are_beside_the_others_in_any_case(folder, capsys):
    release = ["release", "--unchecked", "request.toml", "survey.csv", "-o", "t.zip"]
    assert main([*release, "--candidates", "100"]) == DONE
    capsys.readouterr()
    texts = []
    for options in ([], ["--method", "certified"], ["--method", "noise_aware"]):
        assert main(["infer", "t.zip", *options]) == DONE
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert "95% certified" in texts[0]
    assert main(["infer", "t.zip", "smoking", "--method", "shortest"]) == DONE
    text = capsys.readouterr().out
    assert "95% shortest" in text
    assert "noise-aware" not in text


def test_missing_ledger_is_warned_about(folder, capsys):
    assert main(["release", "--unchecked", "request.toml", "survey.csv", "-o", "out.zip"]) == DONE
    assert "no --ledger" in capsys.readouterr().err


def test_every_kind_of_analysis_from_a_request(folder, capsys):
    more = """
[[analysis]]
name = "fit"
kind = "goodness_of_fit"
column = "smoker"
probabilities = { no = 0.7, yes = 0.3 }
simulations = 199
[[analysis]]
name = "link"
kind = "independence"
a = "smoker"
b = "age"
simulations = 199
[[analysis]]
name = "gap"
kind = "difference"
condition = "age >= 65"
by = "smoker"
[[analysis]]
name = "middle"
kind = "quantile"
column = "age"
[[analysis]]
name = "table"
kind = "marginals"
columns = ["smoker", "age"]
"""
    (folder / "more.toml").write_text(REQUEST + more)
    assert main(["preview", "more.toml", "--rows", "2000"]) == DONE
    assert main(["plan", "more.toml", "-o", "more.json"]) == DONE
    assert main(["release", "--unchecked", "more.json", "survey.csv", "-o", "more.zip"]) == DONE
    capsys.readouterr()
    assert main(["infer", "more.zip"]) == DONE
    text = capsys.readouterr().out
    for part in ("Cramer's V", "risk ratio", "quantile 0.5", "certified at alpha", "smoker=yes"):
        assert part in text
    assert main(["infer", "more.zip", "fit", "--alpha", "0.1"]) == DONE
    text = capsys.readouterr().out
    assert "certified at alpha = 0.1" in text
    assert "90% interval" in text
    assert main(["infer", "more.zip", "--target", "table"]) == DONE
    text = capsys.readouterr().out
    assert text.count("Target: the private table itself") == 7
    assert "Cramer's V of the private table" in text
    assert "Target: the population" not in text
    frame = dps.load("more.zip").intervals()
    assert set(frame["analysis"]) == {"smoking", "old", "gap", "middle", "table"}


def test_seed_repeats_rows_but_never_noise(folder):
    for name in ("a.zip", "b.zip"):
        main(["release", "--unchecked", "request.toml", "survey.csv", "-o", name, "--seed", "1"])
    first, second = dps.load("a.zip"), dps.load("b.zip")
    assert list(first.measurements.means) != list(second.measurements.means)
    pd.testing.assert_frame_equal(pd.DataFrame(first.candidates), pd.DataFrame(second.candidates))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["preview", "none.toml"], "cannot read none.toml"),
        (["preview", "request.toml"], "number of rows"),
        (
            ["release", "--unchecked", "request.toml", "none.csv", "-o", "x.zip"],
            "no file 'none.csv'",
        ),
        (
            ["release", "--unchecked", "request.toml", "request.toml", "-o", "x.zip"],
            "only .csv, .tsv|never be one of the files",
        ),
        (["infer", "survey.csv"], "not a file of dpstats"),
        (["infer", "none.zip"], "cannot read none.zip"),
        (["ledger", "show", "survey.csv"], "survey.csv|line 1"),
    ],
)
def test_refusals_are_one_sentence_and_exit_code_two(folder, capsys, arguments, message):
    assert main(arguments) == REFUSED
    printed = capsys.readouterr()
    assert printed.err.split("dpstats: ")[-1].strip()
    assert "Traceback" not in printed.err
    import re

    assert re.search(message, printed.err)


def test_preview_solves_for_a_budget_or_for_rows(folder, capsys):
    solve = ["preview", "request.toml", "--solve", "smoking", "--width", "0.05"]
    assert main([*solve, "--rows", "2000"]) == DONE
    printed = capsys.readouterr()
    found = dps.plan(
        dps.Schema.from_dict(tomllib.loads(REQUEST)["column"]),
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
    assert main([*solve, "--rows", "2000", "--like", "a.zip", "--alpha", "0.2"]) == DONE
    assert "(noise-aware 0.8 interval)" in capsys.readouterr().out
    assert main(["preview", "request.toml", "--rows", "2000", "--like", "a.zip"]) == DONE
    assert "drawn from the density of another release" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--width", "1"], "--width needs --solve with the name of an analysis"),
        (["--solve", "x", "--width", "1"], "--solve must name an analysis of the plan, one of"),
        (["--solve", "smoking"], "give exactly one of --width, --delta and --power; got none"),
        (
            ["--solve", "smoking", "--width", "0.1", "--rows", "9", "--budget", "1"],
            "give --rows for the least budget, or --budget for the least n, not both",
        ),
        (["--solve", "smoking", "--width", "0.1", "--budget", "x"], "--budget: epsilon must be"),
        (
            ["--solve", "smoking", "--power", "0.8"],
            "--power needs --alternative, an effect size, or --like, a release",
        ),
        (
            ["--solve", "smoking", "--power", "0.8", "--alternative", "a,b"],
            "--alternative must be a number, or several with commas",
        ),
        (["--solve", "smoking", "--delta", "0.1", "--null", "1"], "--null belongs to --power"),
    ],
)
def test_refusals_of_solving_name_the_flags(folder, capsys, options, message):
    assert main(["preview", "request.toml", *options]) == REFUSED
    assert f"dpstats: {message}" in capsys.readouterr().err


def test_a_table_that_does_not_fit_is_seen_before_the_number_is_published(folder, capsys):
    rows = pd.read_csv("survey.csv")
    rows.assign(smoker=(rows["smoker"] == "yes").astype(int)).to_csv("survey.csv", index=False)
    assert main(["check", "request.toml", "survey.csv"]) == DONE
    printed = capsys.readouterr().out
    assert printed.startswith("Fit of the schema (not private: do not publish)\n2,000 rows\n")
    assert "smoker: '1': did you mean 'yes'?" in printed
    assert main(["plan", "request.toml", "-o", "plan.json"]) == DONE
    capsys.readouterr()
    assert main(["check", "plan.json", "survey.csv"]) == DONE
    assert capsys.readouterr().out == printed
    assert main(["check", "plan.json", "none.csv"]) == REFUSED
    assert "there is no file 'none.csv'" in capsys.readouterr().err


@pytest.mark.parametrize("fits", [True, False])
def test_without_a_terminal_a_flag_says_whether_somebody_looked(folder, fits, capsys, monkeypatch):
    monkeypatch.setattr("dpstats.private.fit_of_schema.check", lambda *a: pytest.fail("it ran"))
    if not fits:
        (folder / "survey.csv").write_text("Ann;44\n")
    main(["ledger", "new", "book", "--cap", "9"])
    release = ["release", "request.toml", "survey.csv", "--ledger", "book", "-o", "out.zip"]
    assert main(release) == REFUSED
    said = capsys.readouterr().err
    assert said == (
        "dpstats: nobody can be asked whether the table fits the schema: look at 'dpstats check "
        "PLAN DATA' and add --checked, or add --unchecked; nothing was spent\n"
    )
    assert dps.Ledger.open("book").spent == 0
    assert main([*release, "--checked"]) == (DONE if fits else REFUSED)
    with pytest.raises(SystemExit, match="2"):
        main([*release, "--checked", "--unchecked"])


class Terminal(io.StringIO):
    """What a person types, or sees."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("typed", "flags", "ending", "looks", "spends"),
    [
        ("n\ny\n", [], "", False, True),
        ("n\nn\n", [], "dpstats: you declined; nothing was spent\n", False, False),
        ("\n\n", [], "dpstats: you declined; nothing was spent\n", False, False),
        ("", [], "dpstats: you declined; nothing was spent\n", False, False),
        ("y\ny\n", [], "", True, True),
        ("YES\nyes\n", [], "", True, True),
        ("y\nn\n", [], "dpstats: you declined; nothing was spent\n", True, False),
        ("y\n", [], "dpstats: you declined; nothing was spent\n", True, False),
        ("", ["--checked"], "", False, True),
        ("", ["--unchecked"], "", False, True),
    ],
)
def test_on_a_terminal_a_person_decides(folder, monkeypatch, typed, flags, ending, looks, spends):
    seen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", seen)
    release = ["release", "request.toml", "survey.csv", "-o", "out.zip", "--candidates", "50"]
    assert main([*release, *flags]) == (DONE if spends else REFUSED)
    assert (folder / "out.zip").exists() == spends
    text = seen.getvalue()
    assert ("look at the fit of the schema first? [y/N] " in text) == (not flags)
    assert ("not private: do not publish" in text) == looks
    assert ("spend the budget? [y/N] " in text) == (not flags)
    assert text.endswith(ending)


def test_the_terminal_shows_no_number_of_rows_where_it_is_private(folder, monkeypatch, capsys):
    request = (folder / "request.toml").read_text()
    (folder / "request.toml").write_text('unit = "add_remove"\n' + request)
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    rows = pd.read_csv("survey.csv").iloc[:1_987]
    rows.to_csv("rows.csv", index=False)
    rows.to_parquet("rows.parquet")
    for data in ("rows.csv", "rows.parquet"):
        command = ["release", "--unchecked", "request.toml", data, "-o", f"{data}.zip"]
        assert main([*command, "--candidates", "50", "--synthetic-rows", "20"]) == DONE
    assert "reading rows 100%" in seen.getvalue()
    assert "1987" not in seen.getvalue().replace(",", "")


@pytest.mark.parametrize("cap", ["0", "-1", "much", "nan"])
def test_impossible_caps(folder, capsys, cap):
    assert main(["ledger", "new", "book", f"--cap={cap}"]) == REFUSED
    assert "--cap: epsilon must be a positive finite number" in capsys.readouterr().err
    assert not (folder / "book").exists()


def test_a_ledger_and_a_request_of_zero_concentrated_privacy(folder, capsys):
    request = (folder / "request.toml").read_text().replace("epsilon = 1", "rho = 0.1", 1)
    assert "rho = 0.1" in request
    (folder / "request.toml").write_text(request)
    assert main(["ledger", "new", "book", "--kind", "zcdp", "--cap", "0.15"]) == DONE
    assert "cap       rho = 0.15" in capsys.readouterr().out
    release = [
        "release",
        "--unchecked",
        "request.toml",
        "survey.csv",
        "--ledger",
        "book",
        "-o",
        "out.zip",
    ]
    assert main(release) == DONE
    assert "rho = 0.1 (zero-concentrated" in capsys.readouterr().out
    assert main([*release, "--force"]) == OVER_BUDGET
    assert "remaining 0.05 (1/20)" in capsys.readouterr().err
    assert main(["infer", "out.zip", "smoking"]) == DONE
    assert "at delta = 1e-09" in capsys.readouterr().out
    assert main(["ledger", "new", "pure", "--cap", "1"]) == DONE
    assert (
        main(
            [
                "release",
                "--unchecked",
                "request.toml",
                "survey.csv",
                "--ledger",
                "pure",
                "-o",
                "b.zip",
            ]
        )
        == 3
    )
    assert "different kinds cannot be added" in capsys.readouterr().err


def test_a_ledger_and_a_request_of_approximate_privacy(folder, capsys):
    request = (folder / "request.toml").read_text()
    whole = "epsilon = 1\ndelta = 1e-6"
    (folder / "request.toml").write_text(request.replace("epsilon = 1", whole, 1))
    release = ["release", "--unchecked", "request.toml", "survey.csv", "-o", "out.zip"]
    new = ["ledger", "new", "book", "--kind", "approx", "--cap"]
    assert main([*new, "1.2"]) == REFUSED
    assert "give --delta with --kind approx" in capsys.readouterr().err
    assert main([*new, "1.2", "--delta", "2"]) == REFUSED
    assert "--cap: delta must be above 0 and below 1" in capsys.readouterr().err
    assert main(["ledger", "new", "book", "--cap", "1", "--delta", "1e-6"]) == REFUSED
    assert main([*new, "1.2", "--delta", "1e-6"]) == DONE
    assert "epsilon = 1.2 at delta = 1e-06" in capsys.readouterr().out
    assert main([*release, "--ledger", "book"]) == DONE
    assert "epsilon = 1, delta = 1e-06 (approximate" in capsys.readouterr().out
    assert main([*release, "--force", "--ledger", "book"]) == OVER_BUDGET
    assert "requested 0.027634" in capsys.readouterr().err
    assert main(["ledger", "show", "book"]) == DONE
    assert re.search(r"spent .*: epsilon = 1 at delta = 1e-06", capsys.readouterr().out)
    solve = ["preview", "request.toml", "--solve", "smoking", "--width", "0.5"]
    assert main([*solve, "--budget", "0.5"]) == DONE
    assert "(epsilon = 0.5 at delta = 1e-06)" in capsys.readouterr().out
    assert main([*release[:-1], "other.zip"]) == DONE
    assert "--kind approx --cap EPSILON --delta DELTA" in capsys.readouterr().err


def test_help_and_version():
    for flag in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-m", "dpstats", flag], capture_output=True, text=True, check=True
        )
        assert "dpstats" in done.stdout


def test_demo_tells_the_whole_story(tmp_path, capsys):
    assert main(["demo", "-o", str(tmp_path / "demo.zip")]) == DONE
    text = capsys.readouterr().out
    for part in (
        "The schema", "The preview", "before any row is read", "36 tables", "certificate",
        "non-private", "noise-aware", "certified", "naive on rows", "public",
    ):  # fmt: skip
        assert part in text
    opened = dps.load(tmp_path / "demo.zip")
    assert opened.n == 6366
    assert opened.budget == dps.PureDP(1)
    assert not opened.measurements.not_private
    low, high = opened.infer("affair").conf_int(alpha=1e-6)
    assert low < 2053 / 6366 < high  # the published share of women with an affair


def test_a_run_without_standard_streams(folder):
    command = "release --unchecked request.toml survey.csv --candidates 50 -o a.zip <&- >&- 2>&-"
    done = subprocess.run(
        f"{sys.executable} -m dpstats {command}", shell=True, cwd=folder, check=False
    )
    assert done.returncode == DONE
    assert dps.load(folder / "a.zip").n == 2000


def test_a_closed_input_is_no_terminal(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["release", "request.toml", "survey.csv", "-o", "a.zip"]) == REFUSED
    assert "nobody can be asked" in capsys.readouterr().err
    sys.stdin.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_release_that_cannot_be_printed_is_written(folder, monkeypatch, capsys):
    command = ["release", "--unchecked", "request.toml", "survey.csv", "--candidates", "50"]
    for arguments, said in (
        ([*command, "-o", "b.zip"], "b.zip is written; printing failed"),
        (["infer", "b.zip"], "printing failed"),
    ):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert main(arguments) == FAILED
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == f"dpstats: {said}: No space left on device"
    assert dps.load("b.zip").n == 2000


def test_characters_that_the_output_lacks_are_escaped(folder, monkeypatch):
    (folder / "survey.csv").write_text("smoker,age\nj\u00e4,40\n")
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["check", "request.toml", "survey.csv"]) == DONE
    assert b"'j\\xe4' (1)" in out.buffer.getvalue()


class Closed(io.StringIO):
    """A terminal or a pipe whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError


def test_a_reader_that_goes_away_does_not_stop_a_release(folder, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Closed())
    command = ["release", "--unchecked", "request.toml", "survey.csv", "-o", "out.zip"]
    assert main([*command, "--candidates", "50"]) == DONE
    assert dps.load("out.zip").n == 2000
    assert main(["release", "--unchecked", "request.toml", "none.csv", "-o", "x.zip"]) == REFUSED
