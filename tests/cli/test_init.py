"""dpstats init: a schema to fill in, from the names of the columns alone."""

from pathlib import Path

import pytest

import dpstats as dps
from dpstats.cli import DONE, REFUSED, main


def test_a_template_is_written_from_the_header(folder, capsys):
    assert main(["init", "survey.csv", "-o", "new.toml"]) == DONE
    printed = capsys.readouterr()
    assert printed.out == "3 columns written to new.toml; complete it before you plan\n"
    assert "If that is a person's row" in printed.err
    text = (folder / "new.toml").read_text()
    assert [line for line in text.splitlines() if line.startswith("name")] == [
        f'name = "{name}"' for name in ("smoker", "region", "age")
    ]
    assert main(["init", "survey.csv", "-o", "new.toml"]) == REFUSED
    assert "exists" in capsys.readouterr().err
    assert main(["init", "survey.csv", "-o", "new.toml", "--force"]) == DONE
    with pytest.raises(dps.SchemaError, match="give levels"):
        dps.Schema.load("new.toml")


def test_a_template_is_written_without_a_file(folder, capsys):
    assert main(["init", "--header", "smoker,region,age", "-o", "a.toml"]) == DONE
    assert capsys.readouterr().err == ""
    assert main(["init", "survey.csv", "-o", "b.toml"]) == DONE
    assert (folder / "a.toml").read_text() == (folder / "b.toml").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give a table, or --header with the names of its columns, and not both"),
        (["survey.csv", "--header", "a"], "and not both"),
        (["--header", "a,a"], "--header needs different names"),
        (["rows.csv"], "'rows.csv': the first line does not look like names of columns"),
        (["none.csv"], "there is no file 'none.csv'"),
    ],
)
def test_refusals(folder, capsys, options, message):
    rows = (folder / "survey.csv").read_text().splitlines(keepends=True)[1:]
    (folder / "rows.csv").write_text("".join(rows))
    assert main(["init", *options, "-o", "new.toml"]) == REFUSED
    assert message in capsys.readouterr().err
    assert not Path("new.toml").exists()


def test_the_table_is_never_replaced(folder, capsys):
    before = (folder / "survey.csv").read_bytes()
    assert main(["init", "survey.csv", "-o", "survey.csv", "--force"]) == REFUSED
    assert "is the table" in capsys.readouterr().err
    assert (folder / "survey.csv").read_bytes() == before
