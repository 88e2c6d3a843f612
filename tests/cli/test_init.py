"""dpstats init: a schema to fill in, from the names of the columns alone."""

import dpstats as dps
from dpstats.cli import REFUSED


def test_refusals_and_the_table_is_never_replaced(folder, printed):
    before = (folder / "survey.csv").read_bytes()
    (folder / "rows.csv").write_bytes(before.split(b"\n", 1)[1])
    for options, message in {
        "": "give a table, or --header with the names of its columns, and not both",
        "--header a,a": "--header needs different names",
        "rows.csv": "'rows.csv': the first line does not look like names of columns",
        "none.csv": "there is no file 'none.csv'",
        ".": "files of '.' is a .parquet file; text files are read one at a time",
        "survey.csv --overwrite -o survey.csv": "is the table",
    }.items():
        assert message in printed(f"init -o new.toml {options}", code=REFUSED)
        assert not (folder / "new.toml").exists()
    assert (folder / "survey.csv").read_bytes() == before


def test_a_key_is_not_declared(folder, streams):
    out, err = streams("init --header person_id,age -o new.toml")
    assert out.startswith("1 column written")
    assert "'person_id' looks like a key" in err
    text = (folder / "new.toml").read_text()
    assert '# person = "person_id"' in text
    begun = text.replace("\n# low = ", "\nlow = ").replace("\n# high = ", "\nhigh = ")
    (folder / "new.toml").write_text(begun)
    assert dps.Schema.load(folder / "new.toml").names == ("age",)


def test_a_template_says_how_a_text_file_is_written(folder, printed, streams):
    (folder / "rows.csv").write_bytes("gr\u00f6\u00dfe|ort\n1,5|K\u00f6ln\n".encode("latin-1"))
    refused = printed("init rows.csv -o new.toml", code=REFUSED)
    assert "say which with --encoding, such as latin-1" in " ".join(refused.split())
    command = "init rows.csv -o new.toml --encoding latin-1 --decimal ,"
    said = " ".join(streams(command).err.split())
    assert "If that is a person's row" in said
    assert "add --delimiter '|'" in said
    text = (folder / "new.toml").read_text("utf-8")
    assert '[file]\nencoding = "latin-1"\ndecimal = ","\n# delimiter = "|"' in text
    assert "--delimiter" not in streams(f"{command} --delimiter | --overwrite").err
    text = (folder / "new.toml").read_text("utf-8")
    assert '\ndelimiter = "|"\n' in text
    assert 'name = "gr\u00f6\u00dfe"' in text
