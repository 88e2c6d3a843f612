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
    with pytest.raises(dps.SchemaError, match=r"new\.toml is not finished; decide:\n"):
        dps.Schema.load("new.toml")


def test_refusals(folder, capsys):
    for options, message in [
        ([], "give a table, or --header with the names of its columns, and not both"),
        (["--header", "a,a"], "--header needs different names"),
        (["rows.csv"], "'rows.csv': the first line does not look like names of columns"),
        (["none.csv"], "there is no file 'none.csv'"),
        (["."], "files of '.' is a .parquet file; text files are read one at a time"),
    ]:
        rows = (folder / "survey.csv").read_text().splitlines(keepends=True)[1:]
        (folder / "rows.csv").write_text("".join(rows))
        assert main(["init", *options, "-o", "new.toml"]) == REFUSED
        assert message in capsys.readouterr().err
        assert not Path("new.toml").exists()


def test_the_table_is_never_replaced(folder, capsys):
    before = (folder / "survey.csv").read_bytes()
    assert main(["init", "survey.csv", "-o", "survey.csv", "--overwrite"]) == REFUSED
    assert "is the table" in capsys.readouterr().err
    assert (folder / "survey.csv").read_bytes() == before


def test_a_key_is_not_declared(folder, capsys):
    assert main(["init", "--header", "person_id,age", "-o", "new.toml"]) == DONE
    printed = capsys.readouterr()
    assert printed.out.startswith("1 column written")
    assert "'person_id' looks like a key" in printed.err
    text = (folder / "new.toml").read_text()
    assert '# person = "person_id"' in text
    begun = text.replace("\n# low = ", "\nlow = ").replace("\n# high = ", "\nhigh = ")
    (folder / "new.toml").write_text(begun)
    assert dps.Schema.load(folder / "new.toml").names == ("age",)


def test_a_template_says_how_a_text_file_is_written(folder, capsys):
    (folder / "rows.csv").write_bytes("gr\u00f6\u00dfe|ort\n1,5|K\u00f6ln\n".encode("latin-1"))
    assert main(["init", "rows.csv", "-o", "new.toml"]) == REFUSED
    assert "say which with --encoding, such as latin-1" in " ".join(capsys.readouterr().err.split())
    command = ["init", "rows.csv", "-o", "new.toml", "--encoding", "latin-1", "--decimal", ","]
    assert main(command) == DONE
    assert "add --delimiter '|'" in " ".join(capsys.readouterr().err.split())
    text = (folder / "new.toml").read_text("utf-8")
    assert '[file]\nencoding = "latin-1"\ndecimal = ","\n# delimiter = "|"' in text
    assert main([*command, "--delimiter", "|", "--overwrite"]) == DONE
    assert "--delimiter" not in capsys.readouterr().err
    text = (folder / "new.toml").read_text("utf-8")
    assert 'name = "gr\u00f6\u00dfe"' in text
    done = "".join(
        line.replace("...", "a", 1).replace("...", "b") + "\n"
        for line in text.replace("\n# levels =", "\nlevels =").splitlines()
    )
    (folder / "new.toml").write_text(done, "utf-8")
    schema = dps.Schema.load("new.toml")
    assert schema.written.to_dict() == {"encoding": "iso8859-1", "decimal": ",", "delimiter": "|"}
