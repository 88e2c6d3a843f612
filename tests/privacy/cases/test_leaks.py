"""Section G: leaks. The true sums are sentinels; nothing after the private step holds them."""

import copy
import inspect
import json
import logging
import pickle
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.cli import REFUSED, main
from dpstats.privacy import noise
from dpstats.private import kernel
from dpstats.private import measure as measuring
from dpstats.private import tables as local
from dpstats.private.header import read_header
from dpstats.rows import minimax
from dpstats.rows.minimax import SolverError

PACKAGE = Path(dps.__file__).parent
GLOBALS = Path(__file__).parents[1] / "programs" / "globals_after_a_release.py"


@pytest.fixture(scope="module")
def sentinels(plan, frame, exact):
    """True sums that no other number of a release could be."""
    sums = {total for block in exact(plan, frame) for total in block if total > 2_000}
    assert len(sums) > 8
    return sums


def test_p70_sentinel_sums_are_in_no_file(release, plan, frame, sentinels, tmp_path, search):
    release.save(tmp_path / "release.zip")
    release.measurements.save(tmp_path / "measured.zip")
    plan.save(tmp_path / "plan.json")
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))
    dps.measure(plan, frame, ledger=ledger)
    for path in tmp_path.iterdir():
        assert not search.bytes(path.read_bytes(), sentinels), path.name
    for name in ("release.zip", "measured.zip"):
        for member, text in search.members(tmp_path / name).items():
            assert not search.text(text, sentinels), member
    assert len(list(tmp_path.iterdir())) == 4


def test_p70_sentinel_sums_are_in_no_object(release, sentinels, reachable, search, plan):
    release.accuracy()
    results = [release.infer(name) for name in plan.analyses]
    for thing in (release, release.measurements, plan, *results):
        things = reachable(thing)
        assert len(things) > 20
        assert not search.objects(things, sentinels)
        assert not search.objects(reachable(vars(thing)), sentinels)
        for text in (repr(thing), str(thing), str(vars(thing))):
            assert not search.text(text, sentinels)
        for protocol in (0, pickle.HIGHEST_PROTOCOL):
            assert not search.bytes(pickle.dumps(thing, protocol), sentinels)
    for frame in (release.to_frame(), release.to_frame(weighted=True), results[0].to_frame()):
        assert not search.text(frame.to_csv(), sentinels)


def test_p70_sentinel_sums_are_in_no_module(sentinels, tmp_path):
    """In a process of its own: others hold ranges of integers, which equal any sum."""
    (tmp_path / "sums.json").write_text(json.dumps(sorted(sentinels)))
    command = [sys.executable, GLOBALS, tmp_path / "sums.json"]
    run = subprocess.run(command, check=True, text=True, capture_output=True)
    assert json.loads(run.stdout) == {"after a release": False, "cached": True, "kept": True}


def test_p70_the_search_finds_what_was_planted(release, sentinels, reachable, search):
    total = max(sentinels)
    assert search.text(f"count,{total}\n", sentinels)
    assert search.text(f"{total / search.rows!r}", sentinels)
    assert not search.text(f"0.{total} 1{total}", sentinels)
    digest = f"{total}a{total}b{total}".ljust(64, "c")
    assert not search.text(f'"rows.csv": "{digest}", {digest[:16]}, 0x7f{digest[-10:]}', sentinels)
    assert search.text(f'"rows.csv": "{digest}", "n": {total}', sentinels)
    leaking = copy.copy(release.measurements)
    for planted in (np.array([0, total]), [{"deep": total / search.rows}], lambda: total):
        object.__setattr__(leaking, "planted", planted)
        assert search.objects(reachable(leaking), sentinels)
    object.__setattr__(leaking, "noisy_sums", np.array([0, total]))  # fields are what is pickled
    assert search.bytes(pickle.dumps(leaking), sentinels)


def test_p70_p72_the_noise_is_nowhere_and_no_log_has_a_sum(
    plan, frame, sentinels, monkeypatch, caplog, search, reachable, tmp_path
):
    """Whoever has the noise has the sums."""
    drawn, real = set(), measuring.add_noise

    def recorded(sums, scale, noise):
        noisy = real(sums, scale, noise)
        drawn.update(abs(noisy - sums)[sums != 0].tolist())  # else it is the noisy sum
        return noisy

    monkeypatch.setattr(measuring, "add_noise", recorded)
    with caplog.at_level(logging.DEBUG):
        release = dps.release(plan, frame, m=300, k=100, rng=1)
    assert caplog.records
    assert not search.text(caplog.text, sentinels)
    noise_drawn = {one for one in drawn if one > 10_000}  # its scale is 10^8
    assert len(noise_drawn) > 8
    signed = noise_drawn | {-one for one in noise_drawn}
    release.save(tmp_path / "release.zip")
    texts = [caplog.text, str(release), *search.members(tmp_path / "release.zip").values()]
    assert not any(search.text(text, noise_drawn) for text in texts)
    for thing in (release, plan):
        assert not search.objects(reachable(thing), signed)
        assert not search.bytes(pickle.dumps(thing), noise_drawn)
    assert search.text(f"noise {-min(noise_drawn)}", noise_drawn)


def test_p71_a_pickled_or_copied_release_holds_no_frame_and_no_closure(release, reachable):
    kinds = (
        types.FrameType | types.FunctionType | types.GeneratorType | types.TracebackType
        | types.CodeType | types.MethodType | np.random.Generator | pa.Table | pa.RecordBatch
        | pd.DataFrame | local.Source | kernel.Kernel
    )  # fmt: skip
    release.infer("share").conf_int()
    copies = [copy.copy(release), copy.deepcopy(release), pickle.loads(pickle.dumps(release))]
    for held in (release, *copies):
        assert not [thing for thing in reachable(held) if isinstance(thing, kinds)]
        assert not any(isinstance(thing, Path) for thing in reachable(held))
        assert repr(held) == repr(release)
        np.testing.assert_array_equal(held.measurements.means, release.measurements.means)
    object.__setattr__(copies[0], "planted", lambda: release)
    assert any(isinstance(thing, kinds) for thing in reachable(copies[0]))


def frames_of(error):
    """Frames inside dpstats of an error and of everything that is chained to it."""
    chain, frames = [error], []
    while chain:
        link = chain.pop()
        chain += [e for e in (link.__cause__, link.__context__) if e is not None]
        trace = link.__traceback__
        while trace is not None:
            if Path(trace.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
                frames.append(trace.tb_frame)
            trace = trace.tb_next
    return frames


@pytest.fixture
def assert_clean(sentinels, reachable, frame, search):
    """No message, chained error or frame of dpstats holds a sum (the user's own table aside)."""

    def check(error):
        frames = frames_of(error)
        assert frames
        link, chain = error, []
        while link is not None:
            chain += [str(link), repr(link.args)]
            assert link.__cause__ is None
            link = link.__context__
        assert not any(search.text(text, sentinels) for text in chain)
        for inside in frames:
            held = inside.f_locals
            own = [value for value in held.values() if isinstance(value, local.Source)]
            for name, value in held.items():
                things = reachable(value, frame, *own, held)
                place = f"{inside.f_code.co_name}: {name}"
                assert not search.objects(things, sentinels), place

    return check


@pytest.mark.parametrize(
    ("module", "where", "kind"),
    [(noise, "_opendp", ValueError), (noise, "_laplace", MemoryError),
     (noise.secrets, "token_bytes", OSError)],
    ids=["noise", "memory", "uniforms"],
)  # fmt: skip
def test_p72_frames_and_logs_after_a_failing_draw(
    module, where, kind, plan, frame, sentinels, monkeypatch, caplog, search, assert_clean, tmp_path
):
    """The trial before the rows are read succeeds; after it the budget is spent."""
    real, calls = getattr(module, where), []
    ledger = dps.Ledger.create(tmp_path / "ledger", plan.budget)

    def failing(*args):
        calls.append(1)
        if len(calls) == 2:
            raise kind("planted")
        return real(*args)

    monkeypatch.setattr(module, where, failing)
    with caplog.at_level(logging.DEBUG), pytest.raises(dps.NoiseError) as caught:
        dps.measure(plan, frame, ledger=ledger)
    assert len(calls) == 2
    assert ledger.spent == plan.budget.total
    assert caught.value.__context__ is None
    assert_clean(caught.value)
    assert not search.text(caplog.text, sentinels)


def test_p72_frames_after_other_failures(
    plan, frame, sentinels, monkeypatch, tmp_path, caplog, search, assert_clean
):
    path = tmp_path / "ledger"
    ledger = dps.Ledger.create(path, dps.PureDP(1))
    table = pa.Table.from_pandas(frame, preserve_index=False)

    def overspent(self, budget, note="", **options):
        raise dps.BudgetError("planted")

    def late(rows, plan):
        if rows == len(frame):
            raise dps.DataError("planted")

    def many(self, rows):
        if rows > 2**17:
            raise dps.DataError("planted")

    caplog.set_level(logging.DEBUG)
    for target, name, planted in (
        (dps.Ledger, "spend", overspent),
        (measuring, "check_rows", late),
        (kernel.Kernel, "check_rows", many),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, planted)
            with pytest.raises(dps.DpstatsError, match="planted") as caught:
                dps.measure(plan, table.to_reader(), ledger=ledger)
        assert_clean(caught.value)
    assert not search.text(caplog.text, sentinels)
    assert ledger.spent == 0


def test_p72_a_first_line_that_is_a_row_is_not_kept(tmp_path, caplog, capsys):
    """Not in a message, nor in the frames of the traceback."""
    path = tmp_path / "rows.csv"
    path.write_text("zz-name,zz-street,37\nzz-other,zz-road,41\n")
    with caplog.at_level(logging.DEBUG), pytest.raises(dps.DataError) as caught:
        read_header(path)
    assert caught.value.__context__ is None
    held, frame = [str(caught.value), caplog.text], caught.value.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename != __file__:
            held += [repr(value) for value in frame.tb_frame.f_locals.values()]
        frame = frame.tb_next
    assert len(held) > 2  # there are frames to look at
    assert not any("zz-" in text for text in held)
    assert main(["init", str(path), "-o", str(tmp_path / "s.toml")]) == REFUSED
    assert not any("zz-" in text for text in capsys.readouterr())
    assert not (tmp_path / "s.toml").exists()


def test_p77_a_failing_solver_falls_back_on_noisy_values_only(
    plan, frame, sentinels, reachable, monkeypatch, search
):
    measured = dps.measure(plan, frame)
    for name in ("open_source", "exact_sums"):
        monkeypatch.setattr(measuring, name, lambda *args: pytest.fail("rows were read again"))

    def failing(*args, **options):
        raise SolverError("the solver stopped")

    monkeypatch.setattr(minimax, "minimax_columns", failing)
    release = dps.synthesize(measured, fit="minimax", m=300, k=100, rng=1)
    assert "the entropy fit was used instead" in release.notes[0]
    assert not search.objects(reachable(release), sentinels)


def test_p78_no_error_against_the_truth_in_the_release_path(
    plan, frame, monkeypatch, sentinels, reachable, search
):
    measured = dps.measure(plan, frame)
    for module in (measuring, local):
        for name in ("open_source", "exact_sums"):
            monkeypatch.setattr(module, name, lambda *args: pytest.fail("rows were read again"))
    release = dps.synthesize(measured, m=300, k=100, rng=1)
    for of in ("rows", "weights"):
        certificate = release.accuracy(of=of)
        assert not search.objects(reachable(certificate), sentinels)
        assert not search.text(certificate.to_frame().to_csv() + str(certificate), sentinels)
    for name in plan.analyses:
        assert not search.text(str(release.infer(name)), sentinels)
    # After `measure` nothing takes a table of rows.
    for function in (dps.synthesize, dps.load, *(f for _, f in inspect.getmembers(
        dps.Release, inspect.isfunction))):  # fmt: skip
        parameters = set(inspect.signature(function).parameters)
        assert not parameters & {"data", "rows", "table", "frame", "truth", "true", "private"}
