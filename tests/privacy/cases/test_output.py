"""Section G: what files, logs and shapes show: on neighbours, after failures, run twice."""

import itertools
import json
import multiprocessing
import os
import re
import socket
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dpstats as dps


def test_p75_a_release_file_holds_no_time_path_host_or_hash(
    plan, frame, tmp_path, monkeypatch, search
):
    """A ledger, which is not published, has the day and the name of the table's file."""
    place = tmp_path / "zz-secret-directory"
    place.mkdir()
    ledger = dps.Ledger.create(place / "zz-secret.ledger", dps.PureDP(1))
    frame.head(2_000).drop(columns=search.rare).to_csv(place / "zz-secret.csv", index=False)
    made = dps.release(plan, place / "zz-secret.csv", ledger=ledger, m=200, k=50, rng=1)
    dps.measure(plan, frame.head(50), ledger=ledger)
    made.save(place / "a.zip")
    monkeypatch.chdir(tmp_path)
    made.save("b.zip")
    plan.save("plan.json")
    assert (place / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile("b.zip") as archive:
        assert archive.comment == b""
        for info in archive.infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.extra == info.comment == b""
    entries = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [entry["data"] for entry in entries[1:]] == ["zz-secret.csv", ""]
    assert {entry["plan"] for entry in entries[1:]} == {plan.digest}
    allowed = ("data", "plan", "digest", "date")
    rest = [value for entry in entries for key, value in entry.items() if key not in allowed]
    members = search.members("b.zip")
    published = "".join(members.values())
    user = Path.home().name
    for text in (published, json.dumps(rest), (tmp_path / "plan.json").read_text()):
        for secret in ("zz-secret", str(tmp_path), socket.gethostname(), f"/{user}",
                       sys.version.split()[0]):  # fmt: skip
            assert secret not in text
        assert not re.search(r"\b(19|20)\d\d-\d\d-\d\d|\d\d:\d\d:\d\d", text)
    digests = json.loads(members.pop("digests.json"))
    for digest in (plan.digest, *digests.values()):  # of the plan and of the other members
        published = published.replace(digest, "")
    assert not re.search(r"\b[0-9a-f]{32,}\b", published)  # a digest of anything else
    keys = {key for name, text in members.items() if "json" in name for key in json.loads(text)}
    assert not [key for key in keys if re.search("time|date|host|user|hash|digest|path|file", key)]


@pytest.mark.parametrize(
    ("step", "error"),
    [("fsync", OSError), ("fsync", KeyboardInterrupt), ("replace", MemoryError)],
)
def test_p79_a_failure_while_saving_leaves_no_file(
    step, error, release, plan, tmp_path, monkeypatch
):
    old = tmp_path / "old"
    old.write_bytes(b"old")

    def failing(*args, **options):
        raise error

    monkeypatch.setattr(os, step, failing)
    for saved in (release, release.measurements, plan):
        for target in (old, tmp_path / "new"):
            with pytest.raises((error, dps.RequestError)):  # a sentence for OSError
                saved.save(target, overwrite=True)
        assert old.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [old]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_p79_a_process_killed_while_saving_leaves_no_file_of_its_name(release, tmp_path):
    def killed():
        os.link = lambda *args: os._exit(9)
        release.save(tmp_path / "release.zip")

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join()
    assert process.exitcode == 9
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(".dpstats.")  # hidden, and never mistaken for a result


def test_p79_p80_a_second_run_draws_fresh_noise_and_adds_to_the_ledger(
    plan, frame, tmp_path, monkeypatch
):
    """It writes nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ledger, rows = dps.Ledger.create("ledger", dps.PureDP(1)), frame.head(2_000)
    runs = []
    for number in range(1, 4):
        runs.append(dps.release(plan, rows, ledger=ledger, m=200, k=50, rng=1).measurements)
        assert ledger.spent == number * plan.budget.total
    for first, second in itertools.combinations(runs, 2):
        for a, b in zip(first.measured, second.measured, strict=True):
            assert not np.any(a.sums == b.sums)  # scales of 10^8: equal once in a million runs
            assert not np.any(a.uniforms == b.uniforms)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]
    _, *entries = map(json.loads, (tmp_path / "ledger").read_text().splitlines())
    assert len(entries) == 3
    for entry in entries:
        assert entry.keys() == {"spent", "date", "plan", "data", "note", "digest"}
        assert (entry["spent"], entry["data"]) == (str(plan.budget.total), "")
        assert (entry["note"], entry["plan"]) == ("; ".join(plan.analyses), plan.digest)
