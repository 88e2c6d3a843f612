"""Section G: leaks. The true sums are sentinels; nothing after the private step holds them."""

import ast
import copy
import inspect
import json
import logging
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import types
import warnings
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats import files, measuring, releases, synthesis
from dpstats.density.minimax import SolverError
from dpstats.engines import kernel, local
from dpstats.engines.local import exact_sums, open_source
from dpstats.privacy import noise

PACKAGE = Path(dps.__file__).parent
N = 300_017
RARE = "Sentinel-Quux-village"
SCHEMA = dps.Schema(
    [
        dps.Category("c", ["a", "b", "z"], allow_missing=True),
        dps.Boolean("b"),
        dps.Number("x", 0, 4, points=1025, edges=[1, 3], missing=2),
        dps.Number("unused", 0, 1),
    ]
)
ANALYSES = {
    "cells": dps.Marginals(["c", "x"]),
    "share": dps.Proportion("b"),
    "group": dps.Proportion("b", given="x < 1"),
}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(11)
    frame = pd.DataFrame(
        {
            "c": rng.choice(["a", "b"], N),
            "b": rng.random(N) < 0.31,
            "x": rng.uniform(0, 4, N),
            "unused": rng.random(N),
            RARE: 1,
        }
    )
    frame.loc[17, "c"] = RARE
    return frame


@pytest.fixture(scope="module")
def plan():
    """Noise of scale 10^8 or more, so that no noisy sum is a true one by chance."""
    return dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(4e-8))


def true_sums(plan, data):
    with noise._noise_from(lambda scale, size: np.zeros(size, np.int64)):
        measured = dps.measure(plan, data)
    return {int(total) for block in measured.measured for total in block.sums}


@pytest.fixture(scope="module")
def sentinels(plan, frame):
    """True sums that no other number of a release could be."""
    sums = {total for total in true_sums(plan, frame) if total > 2_000}
    assert len(sums) > 8
    return sums


@pytest.fixture(scope="module")
def release(plan, frame):
    return dps.release(plan, frame, m=500, k=1000, rng=1)


def text_holds(text, sentinels):
    if RARE in text or "Sentinel" in text:
        return True
    numbers = set(re.findall(r"(?<![\d.])\d+(?![\d])", text))
    shares = {repr(total / N) for total in sentinels}
    return bool(numbers & {str(total) for total in sentinels}) or any(s in text for s in shares)


def bytes_hold(content, sentinels):
    packed = [total.to_bytes(8, "little") for total in sentinels]
    packed += [np.float64(total / N).tobytes() for total in sentinels]
    return any(part in content for part in packed) or text_holds(
        content.decode("latin-1"), sentinels
    )


def objects_hold(things, sentinels):
    wanted = np.array(sorted(sentinels))
    for thing in things:
        found = False
        match thing:
            case np.ndarray() if thing.dtype.kind in "iuf":
                flat = thing.astype(np.float64).ravel()
                found = np.isin(flat, wanted).any() or np.isin(flat, wanted / N).any()
            case int() | float() | np.number():
                found = thing in sentinels or thing in {total / N for total in sentinels}
            case str():
                found = text_holds(thing, sentinels)
            case bytes():
                found = bytes_hold(thing, sentinels)
        if found:
            return True
    return False


def texts_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_p70_sentinel_sums_are_in_no_file(release, plan, frame, sentinels, tmp_path):
    release.save(tmp_path / "release.zip")
    release.measurements.save(tmp_path / "measured.zip")
    plan.save(tmp_path / "plan.json")
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))
    dps.measure(plan, frame, ledger=ledger)
    for path in tmp_path.iterdir():
        assert not bytes_hold(path.read_bytes(), sentinels), path.name
    for name in ("release.zip", "measured.zip"):
        for member, text in texts_of(tmp_path / name).items():
            assert not text_holds(text, sentinels), member
    assert len(list(tmp_path.iterdir())) == 4


def test_p70_sentinel_sums_are_in_no_object(release, sentinels, reachable):
    release.accuracy()
    results = [release.infer(name) for name in ANALYSES]
    for thing in (release, release.measurements, *results):
        things = reachable(thing)
        assert len(things) > 20
        assert not objects_hold(things, sentinels)
        assert not objects_hold(reachable(vars(thing)), sentinels)
        for text in (repr(thing), str(thing), str(vars(thing))):
            assert not text_holds(text, sentinels)
        for protocol in (0, pickle.HIGHEST_PROTOCOL):
            assert not bytes_hold(pickle.dumps(thing, protocol), sentinels)
    for frame in (release.to_frame(), release.to_frame(weighted=True), results[0].to_frame()):
        assert not text_holds(frame.to_csv(), sentinels)


def test_p70_the_search_finds_what_was_planted(release, sentinels, reachable):
    total = max(sentinels)
    assert text_holds(f"count,{total}\n", sentinels)
    assert text_holds(f"{total / N!r}", sentinels)
    assert not text_holds(f"0.{total} 1{total}", sentinels)
    leaking = copy.copy(release.measurements)
    for planted in (
        np.array([0, total]),
        [{"deep": total}],
        total / N,
        lambda: total,
        f"{total} rows",
    ):
        object.__setattr__(leaking, "planted", planted)
        assert objects_hold(reachable(leaking), sentinels)
    object.__setattr__(leaking, "planted", np.array([0, total]))
    assert bytes_hold(pickle.dumps(leaking), sentinels)
    with noise._noise_from(lambda scale, size: np.zeros(size, np.int64)):
        assert objects_hold([np.array([total])], sentinels)


def test_p71_a_pickled_or_copied_release_holds_no_frame_and_no_closure(release, reachable):
    kinds = (
        types.FrameType | types.FunctionType | types.GeneratorType | types.TracebackType
        | types.CodeType | types.MethodType | np.random.Generator | pa.Table | pa.RecordBatch
        | local.Source | kernel.Kernel
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


def assert_clean(error, sentinels, reachable, data):
    """No message, chained error or frame of dpstats holds a sum (the user's own table aside)."""
    frames = frames_of(error)
    assert frames
    chain = []
    link = error
    while link is not None:
        chain += [str(link), repr(link.args)]
        assert link.__cause__ is None
        link = link.__context__
    assert not any(text_holds(text, sentinels) for text in chain)
    for frame in frames:
        held = frame.f_locals
        own = [value for value in held.values() if isinstance(value, local.Source)]
        for name, value in held.items():
            things = reachable(value, data, *own, held)
            assert not objects_hold(things, sentinels), f"{frame.f_code.co_name}: {name}"


@pytest.mark.parametrize("where", ["_opendp", "_laplace", "uniforms"])
@pytest.mark.parametrize("kind", [ValueError, dps.NoiseError, MemoryError])
@pytest.mark.parametrize("call", [2, 4])
def test_p72_frames_and_logs_after_a_failing_draw(
    where, kind, call, plan, frame, sentinels, reachable, monkeypatch, caplog
):
    name = "token_bytes" if where == "uniforms" else where
    module = noise.secrets if where == "uniforms" else noise
    real, calls = getattr(module, name), []

    def failing(*args):
        calls.append(1)
        if len(calls) == call:
            raise kind("planted")
        return real(*args)

    monkeypatch.setattr(module, name, failing)
    with caplog.at_level(logging.DEBUG), pytest.raises(dps.NoiseError) as caught:
        dps.measure(plan, frame)
    assert len(calls) == call
    assert caught.value.__context__ is None
    assert_clean(caught.value, sentinels, reachable, frame)
    assert not text_holds(caplog.text, sentinels)


def test_p72_frames_after_other_failures(
    plan, frame, sentinels, reachable, monkeypatch, tmp_path, caplog
):
    path = tmp_path / "ledger"
    ledger = dps.Ledger.create(path, dps.PureDP(1))
    table = pa.Table.from_pandas(frame, preserve_index=False)

    def overspent(self, budget, note=""):
        raise dps.BudgetError("planted")

    def late(rows, plan):
        if rows == N:
            raise dps.DataError("planted")

    def many(self, rows):
        if rows > 2**17:
            raise dps.DataError("planted")

    caplog.set_level(logging.DEBUG)
    for target, name, planted in (
        (dps.Ledger, "spend", overspent),
        (measuring, "_check_rows", late),
        (kernel.Kernel, "check_rows", many),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, planted)
            with pytest.raises(dps.DpstatsError, match="planted") as caught:
                dps.measure(plan, table.to_reader(), ledger=ledger)
        assert_clean(caught.value, sentinels, reachable, frame)
    assert not text_holds(caplog.text, sentinels)
    assert ledger.spent == 0


def test_p72_the_search_of_frames_finds_planted_sums(
    plan, frame, sentinels, reachable, monkeypatch
):
    def leaking(*args):
        raise KeyboardInterrupt

    blocks = [planned.block for planned in plan.blocks]
    totals, _ = exact_sums(open_source(frame, plan.columns), plan.columns, blocks)
    monkeypatch.setattr(measuring, "draw_uniforms", leaking)
    with pytest.raises(KeyboardInterrupt) as caught:  # below `measure`, which clears its frames
        list(map(partial(measuring._noisy, noise=plan.budget.noise), plan.blocks, totals))
    with pytest.raises(AssertionError):
        assert_clean(caught.value, sentinels, reachable, frame)


def test_p72_debug_logs_of_a_whole_release(plan, frame, sentinels, caplog):
    seen = []
    with caplog.at_level(logging.DEBUG):
        dps.release(plan, frame, m=300, k=100, rng=1, progress=lambda *args: seen.append(args))
    assert caplog.records  # there is something to look at
    assert not text_holds(caplog.text, sentinels)
    assert not any(text_holds(repr(args), sentinels) for args in seen)


NEIGHBOURS = [
    ["a", True, 0.5],
    [RARE, None, 1e308],
    [None, "text", float("nan")],
    [["nested"], 2, float("-inf")],
    [b"\xff", object(), 10**400],
    ["x" * 10**6, np.array([]), 1 + 2j],
]


def neighbour(row):
    frame = pd.DataFrame({"c": ["a", "b"] * 20, "b": [True, False] * 20, "x": [0.0, 3.5] * 20})
    frame = frame.astype(object)
    for name, cell in zip(frame, row, strict=True):
        frame.at[7, name] = cell
    return frame


@pytest.fixture
def neighbours():
    return [neighbour(row) for row in NEIGHBOURS]


def test_p73_warnings_and_logs_are_equal_on_neighbours(plan, neighbours, caplog):
    caplog.set_level(logging.DEBUG)
    heard = []
    for frame in neighbours:
        caplog.clear()
        calls = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dps.measure(plan, frame, progress=lambda *args, calls=calls: calls.append(args))
        logs = [(record.levelname, record.getMessage()) for record in caplog.records]
        heard.append(([str(w.message) for w in caught], logs, calls))
    assert all(other == heard[0] for other in heard)
    assert heard[0][0] == []
    assert [call[0] for call in heard[0][2]] == ["reading rows"]


def test_p74_shape_keys_and_order_are_equal_on_neighbours(plan, neighbours):
    shapes = []
    for frame in neighbours:
        measured = dps.measure(plan, frame)
        members = measured.to_members()
        answers = files.from_csv(members["answers.csv"], ("block", "function", "name",
                                                          "noisy_sum", "uniform"), "")  # fmt: skip
        release = dps.synthesize(measured, m=200, k=50, rng=1)
        results = [release.infer(name).to_frame() for name in ANALYSES]
        shapes.append(
            (
                list(members),
                members["measurements.json"],  # to the last byte: it holds no data at all
                [line[:3] for line in answers],
                [block.sums.shape for block in measured.measured],
                list(release.to_frame()),
                release.to_frame().dtypes.to_dict(),
                len(release.to_frame()),
                list(vars(release)),
                [(list(r), r.shape, r["term"].tolist()) for r in results],
            )
        )
    assert all(other == shapes[0] for other in shapes)


def test_p75_a_release_file_holds_no_time_path_host_or_hash(
    release, plan, frame, tmp_path, monkeypatch
):
    place = tmp_path / "zz-secret-directory"
    place.mkdir()
    data = place / "zz-secret-file.csv"
    small = frame.head(2_000).drop(columns=RARE)
    small.to_csv(data, index=False)
    dps.Ledger.create(place / "zz-secret.ledger", dps.PureDP(1))
    made = dps.release(plan, data, ledger=place / "zz-secret.ledger", m=200, k=50, rng=1)
    made.save(place / "a.zip")
    monkeypatch.chdir(tmp_path)
    made.save("b.zip")
    assert (place / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    reopened = dps.load("b.zip")
    reopened.save("c.zip")
    assert (tmp_path / "b.zip").read_bytes() == (tmp_path / "c.zip").read_bytes()
    with zipfile.ZipFile("b.zip") as archive:
        assert archive.comment == b""
        for info in archive.infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.extra == info.comment == b""
    text = "".join(texts_of("b.zip").values())
    user = Path.home().name
    for secret in ("zz-secret", str(tmp_path), socket.gethostname(), sys.version.split()[0]):
        assert secret not in text
    assert f"/{user}" not in text
    assert not re.search(r"\b(19|20)\d\d-\d\d-\d\d|\d\d:\d\d:\d\d", text)
    assert not re.search(r"\b[0-9a-f]{32,}\b", text)  # a digest
    documents = [json.loads(text) for name, text in texts_of("b.zip").items() if "json" in name]
    keys = {key for document in documents for key in document}
    assert not [key for key in keys if re.search("time|date|host|user|hash|digest|path|file", key)]


def test_p75_the_ledger_and_plan_hold_no_time_or_path(plan, frame, tmp_path):
    path = tmp_path / "zz-secret.ledger"
    dps.Ledger.create(path, dps.PureDP(1))
    dps.measure(plan, frame.head(50), ledger=path)
    plan.save(tmp_path / "plan.json")
    plan.save(tmp_path / "again.json")
    assert (tmp_path / "plan.json").read_bytes() == (tmp_path / "again.json").read_bytes()
    for text in (path.read_text(), (tmp_path / "plan.json").read_text()):
        assert "zz-secret" not in text
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


@pytest.mark.parametrize("fit", ["entropy", "minimax"])
def test_p77_wild_noise_still_gives_a_release(fit, plan, frame):
    def wild(scale, size):
        return np.resize(np.array([2**61, -(2**61), 0, 1]), size)

    with noise._noise_from(wild):
        measured = dps.measure(plan, frame.head(100))
    release = dps.synthesize(measured, fit=fit, m=300, rng=1)
    assert len(release.to_frame()) == 100
    assert np.isfinite(release.weights).all()
    assert release.weights.sum() == pytest.approx(1)


def test_p77_a_failing_solver_falls_back_on_noisy_values_only(
    plan, frame, sentinels, reachable, monkeypatch
):
    measured = dps.measure(plan, frame)
    for name in ("open_source", "exact_sums"):
        monkeypatch.setattr(measuring, name, lambda *args: pytest.fail("rows were read again"))

    def failing(*args, **options):
        raise SolverError("the solver stopped")

    monkeypatch.setattr(synthesis, "minimax_highs", failing)
    release = dps.synthesize(measured, fit="minimax", m=300, k=100, rng=1)
    assert "the entropy fit was used instead" in release.notes[0]
    assert not objects_hold(reachable(release), sentinels)


def test_p78_no_error_against_the_truth_in_the_release_path(
    plan, frame, monkeypatch, sentinels, reachable
):
    measured = dps.measure(plan, frame)
    for module in (measuring, local):
        for name in ("open_source", "exact_sums"):
            monkeypatch.setattr(module, name, lambda *args: pytest.fail("rows were read again"))
    release = dps.synthesize(measured, m=300, k=100, rng=1)
    for of in ("rows", "weights"):
        certificate = release.accuracy(of=of)
        assert not objects_hold(reachable(certificate), sentinels)
        assert not text_holds(certificate.to_frame().to_csv() + str(certificate), sentinels)
    for name in ANALYSES:
        assert not text_holds(str(release.infer(name)), sentinels)
    # After `measure` nothing takes a table of rows.
    for function in (dps.synthesize, dps.load, *(f for _, f in inspect.getmembers(
        dps.Release, inspect.isfunction))):  # fmt: skip
        parameters = set(inspect.signature(function).parameters)
        assert not parameters & {"data", "rows", "table", "frame", "truth", "true", "private"}
    # What is held is weighed with noisy sums, never with true ones: no such name is computed.
    for module in (releases, synthesis, sys.modules["dpstats.accuracy"]):
        names = {node.id for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
                 if isinstance(node, ast.Name)}  # fmt: skip
        assert not names & {"exact_sums", "open_source", "totals", "truth", "true_sums"}


@pytest.fixture
def saving(release, plan):
    return {
        "release.zip": release.save,
        "measured.zip": release.measurements.save,
        "plan.json": plan.save,
    }


@pytest.mark.parametrize("step", ["fsync", "replace", "fdopen"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, MemoryError])
def test_p79_a_failure_while_saving_leaves_no_file(step, error, saving, tmp_path, monkeypatch):
    def failing(*args, **options):
        raise error

    for name, save in saving.items():
        (tmp_path / f"old-{name}").write_bytes(b"old")
        with monkeypatch.context() as patch:
            patch.setattr(os, step, failing)
            for target in (name, f"old-{name}"):
                with pytest.raises(error):
                    save(tmp_path / target)
        assert (tmp_path / f"old-{name}").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"old-{n}" for n in saving)


def test_p79_a_failure_while_the_content_is_made_leaves_no_file(saving, tmp_path, monkeypatch):
    def failing(*args, **options):
        raise MemoryError

    monkeypatch.setattr(files, "to_json", failing)
    for name, save in saving.items():
        with pytest.raises(MemoryError):
            save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys
import dpstats as dps
from dpstats import files
plan = dps.Plan.load("plan.json")
measured = dps.measure(plan, "rows.csv")
setattr(os, sys.argv[1], lambda *args: os._exit(9))
measured.save("measured.zip")
"""


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_p79_a_process_killed_while_saving_leaves_no_file_with_sums(step, plan, frame, tmp_path):
    plan.save(tmp_path / "plan.json")
    small = frame.head(20_000)
    small.to_csv(tmp_path / "rows.csv", index=False)
    before = set(tmp_path.iterdir())
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", KILLED, step], cwd=tmp_path, env=environment,
                            capture_output=True)  # fmt: skip
    assert killed.returncode == 9
    assert not (tmp_path / "measured.zip").exists()
    sums = {total for total in true_sums(plan, small) if total > 200}
    for path in set(tmp_path.iterdir()) - before:
        assert path.name.startswith(".measured.zip.")  # hidden, and never mistaken for a result
        if zipfile.is_zipfile(path):
            assert not any(text_holds(text, sums) for text in texts_of(path).values())


def test_p79_measuring_writes_nothing_but_the_ledger(plan, frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dps.Ledger.create("ledger", dps.PureDP(1))
    before = (tmp_path / "ledger").read_bytes()
    measured = dps.measure(plan, frame, ledger="ledger")
    dps.synthesize(measured, m=200, k=50, rng=1)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]
    added = (tmp_path / "ledger").read_bytes().removeprefix(before)
    assert json.loads(added) == {"spent": str(plan.budget.total), "note": "; ".join(plan.analyses)}


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
