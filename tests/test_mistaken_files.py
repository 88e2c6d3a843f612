"""A file given in place of another: the message says what it is and what opens it, and no more."""

import gzip
import itertools

import pytest

import dpstats as dps
from dpstats.errors import DpstatsError
from dpstats.planning.requests import load_request

SCHEMA = "[[column]]\nname = 'smoker'\nlevels = ['no', 'yes']\n"
REQUEST = (
    "schema = 'survey.toml'\n[budget]\nepsilon = 1\n[[analysis]]\nname = 'a'\n"
    "kind = 'proportion'\ncondition = \"smoker == 'yes'\"\n"
)
TABLE = "smoker\nno\nsecret\n"
CURES = {  # a part of the message of every file, for all that cannot open it
    "release.zip": "is a release, not {}; open it with dps.load",
    "m.zip": "holds measurements, not {}; open them with dps.Measurements.load",
    "plan.json": "is a plan, not {}; open it with dps.Plan.load",
    "x.ledger": "is a ledger, not {}; open it with dps.Ledger.open",
    "survey.csv": "is a table, not {}; make a plan, and pass both to dps.check or dps.release",
    "survey.tsv.gz": "is a table, not {}; make a plan",
    "rows.data": "is a table, not {}; make a plan",
    "report.html": "is a page, not {}; open it with a browser",
    "survey.xlsx": "is a workbook, not {}; save its table as CSV",
    "survey.toml": "is a schema, not {}; open it with dps.Schema.load",
    "request.toml": "is a request, not {}; make its plan with 'dpstats plan'",
}
OPENERS = {
    "a release": (dps.load, {"release.zip"}),
    "measurements": (dps.Measurements.load, {"m.zip", "release.zip"}),
    "a plan": (dps.Plan.load, {"plan.json"}),
    "a ledger": (dps.Ledger.open, {"x.ledger"}),
    "a schema": (dps.Schema.load, {"survey.toml", "request.toml"}),
    "a request": (load_request, {"survey.toml", "request.toml"}),
    "a file of guesses": (dps.Guesses.load, {"survey.toml", "request.toml"}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("files")
    texts = {"survey.toml": SCHEMA, "request.toml": REQUEST, "survey.csv": TABLE,
             "report.html": "<!DOCTYPE html>secret", "survey.xlsx": "secret"}  # fmt: skip
    for name, text in texts.items():
        (place / name).write_text(text)
    (place / "survey.tsv.gz").write_bytes(gzip.compress(TABLE.encode()))
    (place / "rows.data").write_bytes(b"PAR1secret")
    plan = load_request(place / "request.toml")
    plan.save(place / "plan.json")
    measured = dps.measure(plan, place / "survey.csv")
    measured.save(place / "m.zip")
    dps.synthesize(measured, m=10, k=10).save(place / "release.zip")
    dps.Ledger.create(place / "x.ledger", dps.PureDP(2))
    return place


def test_a_file_of_another_kind_is_named_with_what_opens_it(folder):
    """And what is not recognised is not guessed."""
    (folder / "notes.txt").write_text("secret")
    for (name, cure), (wanted, (load, own)) in itertools.product(
        [*CURES.items(), ("notes.txt", "")], OPENERS.items()
    ):
        if name not in own:
            with pytest.raises(DpstatsError) as refused:
                load(folder / name)
            said = str(refused.value)
            assert said.startswith(f"{name} {cure.format(wanted)}") or not cure
            assert ("; open it with" in said) == ("; open it with" in cure)
            assert "secret" not in said


def test_a_schema_and_a_request_are_not_mixed_up(folder):
    with pytest.raises(dps.SchemaError, match="it is in the file that schema = names"):
        dps.Schema.load(folder / "request.toml")
    with pytest.raises(dps.RequestError, match="a schema, not a request; write a request with"):
        load_request(folder / "survey.toml")
