"""Files are checked against themselves: whatever a file holds, a sentence and never a crash."""

import bz2
import copy
import json
import os
import zipfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats import files
from dpstats.cli import main
from dpstats.errors import DpstatsError, FileFormatError, RequestError
from dpstats.measured.strategy import plan_digest
from dpstats.planning.requests import load_request

SCHEMA = dps.Schema([
    dps.Category("smoker", ["no", "yes"], other="no"), dps.Boolean("hiv"),
    dps.Number("age", 0, 100, points=21, edges=[50], missing=40, note="years"),
])  # fmt: skip
ASKED = {
    "smoking": dps.Proportion("smoker == 'yes'", given="age >= 50"),
    "b": dps.Proportion("hiv"),
    "mean": dps.Mean("age"),
    "median": dps.Quantile("age"),
}


@pytest.fixture(scope="module")
def plan():
    return dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1), reference=dps.PerturbedHistogram(0.25))


@pytest.fixture(scope="module")
def release(plan):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({
        "smoker": rng.choice(["no", "yes"], 500), "hiv": rng.random(500) < 0.1,
        "age": rng.uniform(0, 100, 500),
    })  # fmt: skip
    return dps.release(plan, rows, m=30, k=20, rng=0)


@pytest.fixture
def saved(release, tmp_path):
    release.save(tmp_path / "release.zip")
    return tmp_path / "release.zip"


JSON = [
    "[" * 100_000, '{"a":' * 100_000, '{"dpstats": ' + "1" * 5_000 + "}", "{", "\x00", "NaN",
    '{"dpstats": NaN}', '{"dpstats": 1e999}', '{"dpstats": "plan", "dpstats": "plan"}',
    '{"dpstats": "\\ud800"}', '"plan"', "null", "\ufeff{}",
]  # fmt: skip


def test_strange_json_is_refused(release, tmp_path):
    members, path = release._members(), tmp_path / "file"
    for text in JSON:
        for load, content in (
            (dps.load, files.pack({**members, "release.json": text})),
            (dps.load, files.pack({**members, "measurements.json": text})),
            (dps.Plan.load, text.encode()),
            (dps.Plan.load, b"\xff\xfe" + text.encode()),
        ):
            path.write_bytes(content)
            with pytest.raises(FileFormatError):
                load(path)


def test_centers_and_scales_of_clipped_moments_are_exact_fractions():
    schema = dps.Schema([dps.Number(name, -50, 100, missing=40) for name in ("a", "b")])
    clipped = dps.Covariance(["a", "b"], clip_norm=2, center={"a": 0, "b": -5.5}, scale={"a": 25})
    plan = dps.plan(schema, {"clipped": clipped}, budget=dps.PureDP(1))
    document = json.loads(files.to_json(plan.to_dict()))
    assert dps.Plan.from_dict(document) == plan
    number = next(i for i, b in enumerate(document["blocks"]) if b["kind"] == "ball_moments")
    for text in ["1e99999999", "1e400", "9" * 5_000, "1/0", "", "-", 3, None]:
        for key in ("center", "scale", "clip_norm"):
            changed = copy.deepcopy(document)
            changed["blocks"][number][key] = text if key == "clip_norm" else [text, "1"]
            with pytest.raises(FileFormatError, match="must be numbers, one per column"):
                dps.Plan.from_dict(changed)


def test_only_plain_archives_are_read(release, saved):
    members = release._members()
    data = bytearray(files.pack(members))
    for start in (b"PK\x03\x04", b"PK\x01\x02"):  # mark the first member as encrypted
        data[data.index(start) + (6 if start[2] == 3 else 8)] |= 1
    none = (b"", b"PK", bz2.compress(b"x"), b"PK\x05\x06" + b"x" * 18)
    for content, message in [(data, "is encrypted"), *((one, "is not an archive") for one in none)]:
        saved.write_bytes(content)
        with pytest.raises(FileFormatError, match=message):
            dps.load(saved)
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_LZMA) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    with pytest.raises(FileFormatError, match="compressed in a way"):
        dps.load(saved)
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as archive:  # a thousandfold
        for name, text in members.items():
            archive.writestr(name, text + " " * 2**20 * (65 * (name == "release.json")))
    assert saved.stat().st_size < 2**18
    with pytest.raises(FileFormatError, match=r"release\.json in release\.zip would expand from"):
        dps.load(saved)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    for load in (dps.load, dps.Plan.load, dps.Measurements.load, dps.Schema.load):
        for path in (tmp_path, Path("/dev/zero"), "/", tmp_path / "none", tmp_path / ("x" * 300)):
            with pytest.raises(DpstatsError, match="cannot read"):
                load(path)


MORE = {"kind": "proportion", "condition": "hiv and smoker == 'no'"}


def edited(plan, change):
    document = json.loads(files.to_json(plan.to_dict()))
    change(document)
    return dps.Plan.from_dict(document)


def test_a_plan_that_counts_something_else_than_it_says_is_refused():
    own, other = (
        dps.plan(SCHEMA, {"b": dps.Proportion(condition)}, budget=dps.PureDP(1))
        for condition in ("smoker == 'yes'", "hiv")
    )
    (block,), (secret,) = own.to_dict()["blocks"], other.to_dict()["blocks"]
    half = {"multiplier": str(2 * Fraction(block["multiplier"])), "label": "smoker == 'yes'"}
    assert edited(own, lambda document: None) == own
    for blocks, message in [
        ([secret | {"label": "smoker == 'yes'"}], r"not measure .*which analysis 'b' needs"),
        ([block | half, secret | half], "by functions that none of its analyses asks for"),
        ([block | {"label": "hiv"}], "none of its analyses asks for"),
        ([block | {"label": "9" * 400}], r"measures '9{40}'\.\.\. by functions"),
    ]:
        with pytest.raises(dps.RequestError, match=message):
            edited(own, lambda document, blocks=blocks: document.update(blocks=blocks))


def test_a_plan_file_is_what_dps_plan_writes(plan):
    for change, sentence in [
        (lambda d: d.update(extra=1), "extra is not as dps.plan writes it"),
        (lambda d: d["blocks"][0].update(extra=1), r"blocks\[0\].extra is not as"),
        (lambda d: d["schema"][0].update(note=""), r"schema\[0\].note is not as"),
        (lambda d: d["analyses"]["b"].update(given=None), "analyses.b.given is not as"),
        (lambda d: d["budget"].update(epsilon="2/2"), "budget.epsilon is not as"),
        (lambda d: d.update(version=2), "version is not as"),
        (lambda d: d["blocks"][0].update(multiplier="1/100"), "spends .* and its budget is 1"),
        (lambda d: d.pop("unit"), "the plan cannot be read: it lacks 'unit'"),
        (lambda d: d.update(analyses={}), "asks for no analysis"),
        (lambda d: d["analyses"].update(more=MORE), "'more' needs"),
    ]:
        with pytest.raises(DpstatsError, match=sentence):
            edited(plan, change)


def test_a_digest_covers_what_is_measured_and_is_the_same_wherever_it_is(plan, saved):
    assert len(plan.digest) == 64
    assert f"Digest: {plan.digest[:16]}" in str(plan)
    assert dps.load(saved).measurements.plan_digest == plan.digest
    assert plan.digest[:16] in str(dps.load(saved))
    same = dict(budget=dps.PureDP(1), reference=dps.PerturbedHistogram(0.25))
    assert dps.plan(SCHEMA, ASKED, n=500, **same).digest == plan.digest
    noted = dps.Schema([replace(SCHEMA["smoker"], note="a note"), *SCHEMA.columns[1:]])
    others = [
        dps.plan(schema, asked, **same | options)
        for schema, asked, options in [
            (SCHEMA, {"of another name": ASKED["b"], **ASKED}, {}),
            (noted, ASKED, {}),
            (dps.Schema(SCHEMA.columns[::-1]), ASKED, {}),
            (SCHEMA, ASKED, {"budget": dps.PureDP(Fraction(1) + Fraction(1, 10**9))}),
            (SCHEMA, ASKED, {"reference": dps.PerturbedHistogram(0.2)}),
            (SCHEMA, ASKED, {"unit": "add_remove"}),
            # The order of labels is the order of codes.
            *((dps.Schema([dps.Category("c", {label: label * 2 for label in order})]),
               {"t": dps.Marginals(["c"], 1)}, {}) for order in ("xy", "yx")),
        ]
    ]  # fmt: skip
    assert len({plan.digest, *(other.digest for other in others)}) == 1 + len(others)
    assert plan.digest == plan_digest(plan.strategy, plan.requests, plan.reference.to_dict())


def test_strange_requests_are_refused(tmp_path):
    path = tmp_path / "request.toml"
    for text in ("x = " + "[" * 5_000, "x = " + "9" * 5_000, "x", "column = 1", "schema = 3", "=",
                 "schema = '.'", "[[column]]\nname = 2026-01-01", "\xff\xfe\x00"):  # fmt: skip
        path.write_text(text, "latin-1")
        for read in (load_request, dps.Schema.load):
            with pytest.raises(DpstatsError):
                read(path)
    with pytest.raises(RequestError):
        dps.plan(SCHEMA, {"p": dps.OLS("hiv ~ (smoker + c)**30")}, budget=dps.PureDP(1))


def test_a_saved_file_has_the_permissions_of_a_new_file(plan, tmp_path):
    path, before = tmp_path / "plan.json", os.umask(0)
    try:
        for mask in (0o022, 0o077):
            os.umask(mask)
            path.unlink(missing_ok=True)
            plan.save(path)
            assert path.stat().st_mode & 0o777 == 0o666 & ~mask
            assert [one.name for one in tmp_path.iterdir()] == ["plan.json"]
    finally:
        os.umask(before)


@pytest.mark.parametrize("linked", [True, False])
def test_a_file_that_came_into_being_since_its_place_was_reserved_is_kept(
    tmp_path, monkeypatch, linked
):
    if not linked:
        monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError(1, "not permitted")))
    files.write_atomically(tmp_path / "fine", b"mine")
    assert (tmp_path / "fine").read_bytes() == b"mine"
    with files.reserved(tmp_path / "file") as write:
        (tmp_path / "file").write_bytes(b"of another run")
        # it just passed
        monkeypatch.setattr("dpstats.files.places.check_place", lambda path, **_: path)
        with pytest.raises(RequestError, match="come into being in the meantime and is kept"):
            write(b"mine")
    assert (tmp_path / "file").read_bytes() == b"of another run"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_tilde_is_the_home_folder_wherever_a_path_is_read_or_written(
    plan, release, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir("/")
    frame = pd.DataFrame({"smoker": ["no"] * 99, "hiv": [True] * 99, "age": range(99)})
    (tmp_path / "folder").mkdir()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "folder" / "rows.parquet")
    plan.save("~/plan.json")
    assert dps.Plan.load(Path("~/plan.json")) == plan
    ledger = dps.Ledger.create("~/ledger.jsonl", dps.PureDP(9))
    for table in ("~/rows.csv", "~/folder", Path("~/folder/*.parquet")):
        dps.measure(plan, table, ledger="~/ledger.jsonl")
    assert ledger.spent == 3
    release.save("~/release.zip")
    release.to_parquet("~/published.parquet")
    assert dps.load("~/release.zip").k == 20
    (tmp_path / "schema.toml").write_text("[[column]]\nname = 'a'\nlow = 0\nhigh = 1\n")
    text = "schema = '~/schema.toml'\n[budget]\nepsilon = 1\n[[analysis]]\nname = 'q'\n"
    (tmp_path / "folder" / "request.toml").write_text(text + "kind = 'quantile'\ncolumn = 'a'\n")
    with pytest.raises(RequestError, match="bin"):  # of the schema that was found
        load_request("~/folder/request.toml")
    assert main(["verify", "--", "~/plan.json"]) == 0


def test_addresses_are_refused_with_a_sentence_that_does_not_hold_them(plan, capsys, tmp_path):
    plan.save(tmp_path / "plan.json")
    for address in ("s3://user:secret@bucket/rows.parquet", "http://a.b/?secret=1.toml",
                    Path("file:///secret/rows.csv"), Path("abfss://secret@c/rows")):  # fmt: skip
        for use in (lambda a: dps.release(plan, a), plan.save, dps.Plan.load, dps.load,
                    dps.Schema.load, load_request, dps.Schema.from_frictionless):  # fmt: skip
            with pytest.raises(DpstatsError, match=r"^URLs .* are not read or written: open") as no:
                use(address)
            assert "secret" not in str(no.value)
    assert main(["check", str(tmp_path / "plan.json"), "s3://user:secret@bucket/rows.csv"]) == 2
    said = capsys.readouterr().err
    assert "DuckDB, Ibis or Arrow" in " ".join(said.split())
    assert "secret" not in said


def test_a_toml_file_may_begin_with_a_byte_order_mark_and_holds_no_odd_table(tmp_path):
    (tmp_path / "a.toml").write_text("[[column]]\nname = 'é'\nlow = 0\nhigh = 1\n", "utf-8-sig")
    assert dps.Schema.load(tmp_path / "a.toml").names == ("é",)
    fields = json.dumps({"fields": [{"name": "b", "type": "boolean"}]})
    (tmp_path / "a.json").write_text(fields, "utf-8-sig")
    assert dps.Schema.from_frictionless(tmp_path / "a.json").names == ("b",)
    with (tmp_path / "a.toml").open("a") as file:  # nothing reads this table
        file.write("[guesses]\n[gueses]\nx = 1\n")
    for read in (dps.Schema.load, dps.Guesses.load):
        with pytest.raises(dps.SchemaError, match=r"unknown keys \['gueses'\] \(did you mean 'gu"):
            read(tmp_path / "a.toml")
