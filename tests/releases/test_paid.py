"""What a budget has paid for is on disk before anything else happens, and stays there."""

import dataclasses
import os
import signal
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
import dpstats.releases.paid
import dpstats.synthesis
from dpstats.analyses import registry
from dpstats.cli import DONE, FAILED, REFUSED, main
from dpstats.privacy.noise import _noise_from

REQUEST = """budget = {epsilon = 1}
column = [{name = "smoker", levels = ["no", "yes"]}]
analysis = [{name = "a", kind = "proportion", condition = "smoker == 'yes'"}]
"""
RELEASE = ["release", "--unchecked", "plan.json", "survey.csv", "--ledger", "book", "--m", "50"]
SCHEMA = dps.Schema([dps.Category("smoker", ["no", "yes"])])
ASKED = {"smoking": dps.Proportion("smoker == 'yes'")}
PLAN = dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PLAN.save("plan.json")
    pd.DataFrame({"smoker": ["no", "yes", "no", "no"] * 50}).to_csv("survey.csv", index=False)
    assert main(["ledger", "new", "book", "--cap", "5"]) == DONE
    return tmp_path


@pytest.fixture
def run(folder, capsys):
    """Runs a command; its code and what it says."""

    def run(*command):
        code = main(list(command))
        return code, capsys.readouterr().err

    return run


@pytest.fixture
def release(run):
    return lambda output="out.zip", *options: run(*RELEASE, "-o", output, *options)


def spent():
    return dps.Ledger.open("book").spent


def stopping(error):
    def stop(*arguments, **options):
        raise error

    return stop


def signalled(number):
    """A source of zero noise that sends a signal."""

    def source(scale=1, size=1):
        os.kill(os.getpid(), number)
        return np.zeros(size, dtype=np.int64)

    return source


def no_room(number, size=0):
    raise OSError(28, "No space left on device")


def hidden_files():
    return [path for path in Path().glob("**/.*") if path.is_file()]


def test_an_output_that_cannot_be_written_or_is_read_is_refused_before_anything_is_spent(
    folder, release
):
    refused = {
        "nowhere/out.zip": "cannot write to the folder 'nowhere': No such file or directory",
        "survey.csv/out.zip": "Not a directory",
        "x" * 245 + ".zip": "File name too long; nothing was spent",  # with .measurements it is
        "/dev/null": "it is not a file",
    }
    for read in ["plan.json", "survey.csv", "book"]:
        Path(f"link-{read}").symlink_to(read)
        os.link(read, f"same-{read}")
        outputs = (read, f"../{folder.name}/{read}", f"link-{read}", f"same-{read}")
        refused |= dict.fromkeys(outputs, "name another file")
    before = [Path(read).read_bytes() for read in ("plan.json", "survey.csv", "book")]
    for output, sentence in refused.items():
        code, said = release(output, "--overwrite")
        assert code == REFUSED
        assert sentence in said
        assert not hidden_files()
    assert [Path(read).read_bytes() for read in ("plan.json", "survey.csv", "book")] == before
    assert spent() == 0


def test_a_run_that_stopped_is_finished_with_the_command_that_it_prints(run, release, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(dpstats.synthesis, "synthesize", stopping(dps.RequestError("no memory")))
        code, said = release("my out.zip")
    command = "dpstats synthesize 'my out.measurements.zip' -o 'my out.zip'"
    assert code == REFUSED
    assert command in said
    paid = Path("my out.measurements.zip").read_bytes()
    measurements = dps.Measurements.load("my out.measurements.zip")
    for force in ([], ["--overwrite"]):  # a second run neither overwrites nor spends
        code, said = release("my out.zip", *force)
        assert code == REFUSED
        assert command in said
    Path("my out.zip").write_text("of an earlier run")
    assert f"{command} --overwrite" in release("my out.zip", "--overwrite")[1]
    Path("my out.zip").unlink()
    assert Path("my out.measurements.zip").read_bytes() == paid

    finish = ["synthesize", "my out.measurements.zip", "-o", "my out.zip", "--m", "50"]
    with monkeypatch.context() as patch:
        patch.setattr(dpstats.synthesis, "synthesize", stopping(KeyboardInterrupt()))
        code, said = run(*finish)
    assert code == FAILED
    assert command in said
    assert run(*finish)[0] == DONE
    assert dps.load("my out.zip").measurements == measurements
    assert not Path("my out.measurements.zip").exists()
    assert spent() == 1


def test_measurements_are_kept_until_the_release_can_be_read_back(folder):
    output = Path("out.zip")
    measured, other = dps.measure(PLAN, "survey.csv"), dps.measure(PLAN, "survey.csv")
    paid = dpstats.releases.paid.place_of_measurements(output)
    measured.save(paid)
    dps.synthesize(other, k=20, m=50).save(output)  # of another measurement
    assert not dpstats.releases.paid.remove_paid(paid, output, measured)
    output.write_bytes(output.read_bytes()[:-40])  # cut off
    with pytest.raises(dps.FileFormatError):
        dpstats.releases.paid.remove_paid(paid, output, other)
    assert dps.Measurements.load(paid) == measured
    output.unlink()
    dps.synthesize(measured, k=20, m=50).save(output)
    assert dpstats.releases.paid.remove_paid(paid, output, measured)
    assert not paid.exists()


@pytest.mark.parametrize(("name", "place"), [
    ("SIGTERM", "private.measure.exact_sums"), ("SIGINT", "noise"), ("SIGQUIT", "noise"),
    ("SIGHUP", "synthesis.synthesize"),
])  # fmt: skip
def test_a_signal_stops_a_run_in_order(release, silent_noise, monkeypatch, name, place):
    """While noise is drawn it waits until the answers are on disk; no temporary file is left."""
    number = getattr(signal, name)
    before = signal.getsignal(number)
    if place != "noise":
        monkeypatch.setattr(f"dpstats.{place}", lambda *_, **options: signalled(number)())
    with _noise_from(signalled(number) if place == "noise" else silent_noise):
        code, said = release()
    assert code == FAILED
    assert "interrupted" in said
    assert not hidden_files()
    assert signal.getsignal(number) is before
    assert Path("out.measurements.zip").exists() == spent() == (name != "SIGTERM")
    if spent():
        assert "dpstats synthesize out.measurements.zip -o out.zip" in said
        assert dps.Measurements.load("out.measurements.zip").n == 200


def test_a_signal_that_is_ignored_stays_ignored(release):
    """Such as SIGHUP under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _noise_from(signalled(signal.SIGHUP)):
            assert release()[0] == DONE
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_before_the_spending_stops_at_once_and_spends_nothing(
    run, release, monkeypatch
):
    monkeypatch.setattr("dpstats.private.measure.exact_sums", stopping(KeyboardInterrupt()))
    code, said = release()
    assert code == FAILED
    assert said.endswith("\ndpstats: interrupted while reading rows; nothing was spent\n")
    assert "measurements" not in said
    monkeypatch.setattr("dpstats.cli.release.attended", stopping(KeyboardInterrupt()))
    code, said = run(*(one for one in RELEASE if one != "--unchecked"), "-o", "out.zip")
    assert code == FAILED
    assert "interrupted before any row was measured; nothing was spent" in said
    assert spent() == 0


@pytest.mark.parametrize("full", [False, True])
def test_measurements_go_elsewhere_if_their_place_takes_them_no_more(
    folder, release, monkeypatch, full
):
    monkeypatch.setattr(dpstats.releases.paid.tempfile, "tempdir", str(folder / "rescue"))
    (folder / "rescue").mkdir()

    def fill(scale, size):
        Path("out.measurements.zip").write_text("of another run")
        if full:
            monkeypatch.setattr("dpstats.files.places.check_place", refusing_beside)
        return np.zeros(size, dtype=np.int64)

    def refusing_beside(path, **options):
        if Path(path).parent == Path():
            raise dps.RequestError("No space left on device")
        return Path(path)

    monkeypatch.setattr(dpstats.synthesis, "synthesize", stopping(KeyboardInterrupt()))
    with _noise_from(fill):
        code, said = release()
    place = next((folder / "rescue").rglob("*.zip")) if full else "out-2.measurements.zip"
    assert code == FAILED
    assert f"dpstats synthesize {place} -o out-2.zip\n" in said
    assert dps.Measurements.load(place).n == 200
    assert Path("out.measurements.zip").read_text() == "of another run"


@pytest.mark.parametrize("force", [[], ["--overwrite"]])
def test_the_advice_after_two_runs_at_once_spares_the_release_of_the_other(
    run, release, monkeypatch, force
):
    def beaten(measurements, **options):
        Path("out.zip").write_text("of another run")
        if force:
            raise dps.RequestError("too little memory")
        return made(measurements, m=50, k=10)

    made = dpstats.synthesis.synthesize
    with monkeypatch.context() as patch:
        patch.setattr(dpstats.synthesis, "synthesize", beaten)
        code, said = release("out.zip", *force)
    assert code == REFUSED
    assert "synthesize out.measurements.zip -o out-2.zip\n" in said
    assert ("has come into being in the meantime and is kept" in said) == (not force)
    assert "--overwrite" not in said
    assert "synthesize out.measurements.zip -o out-2.zip;" in release()[1]
    Path("out-2.zip").write_text("of a third run")
    finish = ["synthesize", "out.measurements.zip", "--m", "50", "-o"]
    assert run(*finish, "out-2.zip")[0] == REFUSED
    assert run(*finish, "out-3.zip")[0] == DONE
    assert Path("out.zip").read_text() == "of another run"
    assert spent() == 1


def test_force_replaces_no_ledger_and_no_measurements_without_a_release(run):
    dps.measure(PLAN, "survey.csv").save("paid.zip")
    dps.measure(PLAN, "survey.csv").save("other.zip")
    dps.Ledger.create("l", dps.PureDP(3)).spend(dps.PureDP(2))
    Path("link").symlink_to("l")
    Path("request.toml").write_text(REQUEST)
    for output, kind in {
        "l": "is a ledger", "link": "is a ledger", "paid.zip": "is an archive of measurements"
    }.items():  # fmt: skip
        before = Path(output).read_bytes()
        for command in (["plan", "request.toml"], RELEASE, ["synthesize", "other.zip"], ["demo"]):
            code, said = run(*command, "-o", output, "--overwrite")
            assert code == REFUSED
            assert kind in said
            assert "is never replaced; name another output" in said
        assert Path(output).read_bytes() == before
        with pytest.raises(dps.RequestError, match="never replaced"):
            dps.Measurements.load("other.zip").save(output, overwrite=True)
    dps.Measurements.load("paid.zip").save("paid.zip", overwrite=True)  # the same once more
    assert spent() == 0
    assert run("plan", "request.toml", "-o", "plan.json")[0] == REFUSED
    assert dps.Plan.load("plan.json") == PLAN
    assert run("plan", "request.toml", "-o", "plan.json", "--overwrite")[0] == DONE
    code, said = run("synthesize", "paid.zip", "-o", "paid.zip", "--overwrite")
    assert code == REFUSED
    assert "the output 'paid.zip' is the file of the measurements" in said
    assert run("synthesize", "paid.zip", "--m", "50", "-o", "r.zip")[0] == DONE
    assert Path("paid.zip").exists()  # which no run left
    assert run("synthesize", "other.zip", "--m", "50", "-o", "r.zip", "--overwrite")[0] == DONE
    assert dps.load("r.zip").measurements == dps.Measurements.load("other.zip")


def test_options_are_checked_before_anything_is_spent(folder):
    measurements = dps.measure(PLAN, "survey.csv")
    for name, value in [
        ("m", 10**11), ("k", 10**11), ("m", True), ("rng", -1), ("progress", "x"), ("fit", None),
        ("solver", 1), ("draw", "x"),
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError, match=f"{name} must be"):
            dps.release(PLAN, "survey.csv", ledger="book", **{name: value})
        with pytest.raises(dps.RequestError, match=f"{name} must be"):
            dps.synthesize(measurements, **{name: value})
    for size in (10**11, 10**5_000):
        for call in (lambda n: dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1), n=n), PLAN.preview):
            with pytest.raises(dps.RequestError, match="n must be a whole number of at"):
                call(size)
    assert spent() == 0


@pytest.mark.parametrize("stage", ["drawing noise", "while noise is drawn", "drawing candidates"])
def test_an_exception_after_the_spending_carries_the_measurements(folder, stage):
    def progress(text, done, total):
        if text == stage:
            raise ZeroDivisionError("mine")

    source = signalled(signal.SIGINT) if stage[0] == "w" else lambda _, size: np.zeros(size, int)
    with _noise_from(source), pytest.raises((ZeroDivisionError, KeyboardInterrupt)) as caught:
        dps.release(PLAN, "survey.csv", ledger="book", progress=progress, m=10)
    paid = getattr(caught.value, "measurements", None)
    assert spent() == (paid is not None) == (stage != "drawing noise")
    if paid is not None:
        assert "save error.measurements" in caught.value.__notes__[0]
        paid.save("paid.zip")
        assert dps.synthesize(dps.Measurements.load("paid.zip"), m=10).n == 200


def test_a_full_disk_is_seen_before_anything_is_spent(release, monkeypatch):
    written = []

    def filling(file, data):
        written.append(len(data))
        if data:
            no_room(0)

    with monkeypatch.context() as patch:
        patch.setattr("dpstats.files.places._fill", filling)
        code, said = release()
    assert code == REFUSED
    full = "cannot write 'out.measurements.zip': No space left on device; nothing was spent"
    assert full in said
    assert spent() == 0
    dps.measure(PLAN, "survey.csv").save("m.zip")
    assert Path("m.zip").stat().st_size < written[0] < 20_000


def test_measurements_that_no_folder_takes_are_reported(folder, release, monkeypatch):
    def fill(scale, size):
        monkeypatch.setattr("dpstats.files.places._fill", no_room)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(dpstats.releases.paid.tempfile, "tempdir", str(folder))
    with _noise_from(fill):
        code, said = release()
    assert code == REFUSED
    assert "the budget is spent and the measurements are lost: cannot write 'out.meas" in said
    assert "No space left on device" in said
    assert not hidden_files()
    assert spent() == 1


def test_measurements_that_no_file_could_hold_are_refused_before_the_budget_is_spent(
    folder, monkeypatch
):
    monkeypatch.setattr(registry, "_registered", {})

    @dps.register
    @dataclasses.dataclass(frozen=True)
    class Mine:
        kind: ClassVar[str] = "mine"
        text: str  # any
        family = staticmethod(ASKED["smoking"].family)
        infer = staticmethod(ASKED["smoking"].infer)

    plan = dps.plan(SCHEMA, {"mine": Mine("\ud800")}, budget=dps.PureDP(1))
    with pytest.raises(dps.RequestError, match="could not be kept in a file"):
        dps.measure(plan, "survey.csv", ledger="book")
    assert spent() == 0


def test_paths_that_are_none_are_refused_and_nothing_is_overwritten_unasked(folder):
    measurements = dps.measure(PLAN, "survey.csv")
    things = (PLAN, measurements, dps.synthesize(measurements, m=10, k=10))
    loads = (dps.load, dps.Plan.load, dps.Measurements.load, dps.Schema.load, dps.Ledger.open)
    for path in [b"x.zip", None, "", "a\0b", "\ud800", Path("nowhere/x.zip")]:
        for thing in things:
            with pytest.raises(dps.RequestError, match=r"a path must|cannot (name|write)|no text"):
                thing.save(path)
        for load in (*loads, lambda path: dps.Ledger.create(path, dps.PureDP(1))):
            with pytest.raises(dps.DpstatsError):
                load(path)
    for data in (None, b"survey.csv", 3, "nowhere/survey.csv", "."):
        with pytest.raises(dps.DataError):
            dps.measure(PLAN, data, ledger="book")
    assert spent() == 0
    for thing in things:
        Path("x").write_text("kept")
        with pytest.raises(dps.RequestError, match=r"exists and is kept.*overwrite=True"):
            thing.save("x")
        assert Path("x").read_text() == "kept"
        thing.save("x", overwrite=True)
        assert Path("x").read_bytes() != b"kept"
    Path("y").symlink_to("missing")  # a link is something, even to nothing
    with pytest.raises(dps.RequestError, match="exists"):
        PLAN.save("y")
