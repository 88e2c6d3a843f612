"""Section G: what files, logs and shapes show: on neighbours, after failures, run twice."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dpstats as dps

PACKAGE = Path(dps.__file__).parent


def test_p75_a_release_file_holds_no_time_path_host_or_hash(
    release, plan, frame, tmp_path, monkeypatch, search
):
    place = tmp_path / "zz-secret-directory"
    place.mkdir()
    data = place / "zz-secret-file.csv"
    small = frame.head(2_000).drop(columns=search.rare)
    small.to_csv(data, index=False)
    dps.Ledger.create(place / "zz-secret.ledger", dps.PureDP(1))
    made = dps.release(plan, data, ledger=place / "zz-secret.ledger", m=200, k=50, rng=1)
    made.save(place / "a.zip")
    monkeypatch.chdir(tmp_path)
    made.save("b.zip")
    assert (place / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile("b.zip") as archive:
        assert archive.comment == b""
        for info in archive.infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.extra == info.comment == b""
    text = "".join(search.members("b.zip").values())
    user = Path.home().name
    for secret in ("zz-secret", str(tmp_path), socket.gethostname(), sys.version.split()[0]):
        assert secret not in text
    assert f"/{user}" not in text
    assert not re.search(r"\b(19|20)\d\d-\d\d-\d\d|\d\d:\d\d:\d\d", text)
    published = json.loads(search.members("b.zip")["digests.json"])
    for digest in (plan.digest, *published.values()):  # of the plan and of the other members
        text = text.replace(digest, "")
    assert not re.search(r"\b[0-9a-f]{32,}\b", text)  # a digest of anything else
    documents = [
        json.loads(text)
        for name, text in search.members("b.zip").items()
        if "json" in name and name != "digests.json"
    ]
    keys = {key for document in documents for key in document}
    assert not [key for key in keys if re.search("time|date|host|user|hash|digest|path|file", key)]


def test_p75_the_ledger_and_plan_hold_no_time_or_path(plan, frame, tmp_path):
    """A ledger, which is not published, has the day and the name of the table's file."""
    path, rows = tmp_path / "zz-secret.ledger", tmp_path / "zz-folder" / "rows.csv"
    dps.Ledger.create(path, dps.PureDP(1))
    rows.parent.mkdir()
    frame.head(50).to_csv(rows, index=False)
    dps.measure(plan, frame.head(50), ledger=path)
    dps.measure(plan, rows, ledger=path)
    plan.save(tmp_path / "plan.json")
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry.pop("data") for entry in entries[1:]] == ["", "rows.csv"]
    assert {entry.pop("plan") for entry in entries[1:]} == {plan.digest}
    for entry in entries:
        entry.pop("digest")
        entry.pop("date", None)
    for text in (json.dumps(entries), (tmp_path / "plan.json").read_text()):
        assert "zz-" not in text
        assert str(tmp_path) not in text
        assert not re.search(r"\b20\d\d\b|\d\d:\d\d", text)


FRESH = """
import dpstats as dps
measured = dps.Measurements.load("measured.zip")
release = dps.synthesize(measured, m=300, k=200, rng=1)
release.accuracy()
release.save("again.zip")
release = dps.load("again.zip")
print(release.infer("share").conf_int(), len(release.to_frame()))
"""


def test_p76_synthesis_and_inference_work_with_the_private_file_gone(plan, frame, tmp_path):
    data = tmp_path / "rows.csv"
    frame.head(3_000).to_csv(data, index=False)
    measured = dps.measure(plan, data)
    measured.save(tmp_path / "measured.zip")
    data.unlink()
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    output = subprocess.run([sys.executable, "-c", FRESH], cwd=tmp_path, env=environment,
                            capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert output.split()[-1] == "200"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.zip", "measured.zip"]


@pytest.fixture
def saving(release, plan):
    return {
        "release.zip": release.save,
        "measured.zip": release.measurements.save,
        "plan.json": plan.save,
    }


@pytest.mark.parametrize(
    ("step", "error"), [("fsync", OSError), ("fsync", KeyboardInterrupt), ("replace", MemoryError)]
)
def test_p79_a_failure_while_saving_leaves_no_file(step, error, saving, tmp_path, monkeypatch):
    def failing(*args, **options):
        raise error

    for name, save in saving.items():
        (tmp_path / f"old-{name}").write_bytes(b"old")
        with monkeypatch.context() as patch:
            patch.setattr(os, step, failing)
            for target in (name, f"old-{name}"):
                with pytest.raises((error, dps.RequestError)):  # a sentence for OSError
                    save(tmp_path / target, overwrite=True)
        assert (tmp_path / f"old-{name}").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"old-{n}" for n in saving)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_p79_a_process_killed_while_saving_leaves_no_file_with_sums(
    plan, frame, tmp_path, search, exact
):
    small = frame.head(20_000)
    measured = dps.measure(plan, small)
    pid = os.fork()
    if pid == 0:
        os.link = lambda *args: os._exit(9)
        try:
            measured.save(tmp_path / "measured.zip")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    sums = {total for block in exact(plan, small) for total in block if total > 200}
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(".dpstats.")  # hidden, and never mistaken for a result
    assert not any(search.text(text, sums) for text in search.members(path).values())


def test_p79_measuring_writes_nothing_but_the_ledger(plan, frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dps.Ledger.create("ledger", dps.PureDP(1))
    before = (tmp_path / "ledger").read_bytes()
    measured = dps.measure(plan, frame, ledger="ledger")
    dps.synthesize(measured, m=200, k=50, rng=1)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]
    added = (tmp_path / "ledger").read_bytes().removeprefix(before)
    entry = json.loads(added)
    assert entry.keys() == {"spent", "date", "plan", "data", "note", "digest"}
    assert (entry["spent"], entry["data"]) == (str(plan.budget.total), "")
    assert (entry["note"], entry["plan"]) == ("; ".join(plan.analyses), plan.digest)


def test_p80_a_second_run_draws_fresh_noise_and_adds_to_the_ledger(plan, frame, tmp_path):
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))
    runs = []
    for number in range(1, 4):
        runs.append(dps.release(plan, frame, ledger=ledger, m=200, k=50, rng=1).measurements)
        assert ledger.spent == number * plan.budget.total
    for first, second in ((0, 1), (0, 2), (1, 2)):
        for a, b in zip(runs[first].measured, runs[second].measured, strict=True):
            assert not np.any(a.sums == b.sums)  # scales of 10^8: equal once in a million runs
            assert not np.any(a.uniforms == b.uniforms)
    assert len((tmp_path / "ledger").read_text().splitlines()) == 4
