"""Section G: leaks. The true sums are sentinels; nothing after the private step holds them."""

import copy
import inspect
import json
import logging
import os
import pickle
import random
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.privacy import noise
from dpstats.private import kernel
from dpstats.private import measure as measuring
from dpstats.private import tables as local
from dpstats.rows import minimax
from dpstats.rows.minimax import SolverError

PACKAGE = Path(dps.__file__).parent


@pytest.fixture(scope="module")
def sentinels(plan, frame, exact):
    """True sums that no other number of a release could be."""
    sums = {total for block in exact(plan, frame) for total in block if total > 2_000}
    assert len(sums) > 8
    return sums


@pytest.fixture(scope="module")
def leaked(search, sentinels):
    """True of what holds a sentinel."""
    return search(sentinels)


def test_p70_sentinel_sums_are_in_no_file(release, plan, frame, leaked, ledger, tmp_path):
    release.save(tmp_path / "release.zip")
    release.measurements.save(tmp_path / "measured.zip")
    plan.save(tmp_path / "plan.json")
    dps.measure(plan, frame, ledger=ledger)
    paths = list(tmp_path.iterdir())
    assert len(paths) == 4
    assert not [path.name for path in paths if leaked(path)]


def test_p70_sentinel_sums_are_in_no_object(release, plan, leaked, reachable):
    release.accuracy()
    results = [release.infer(name) for name in plan.analyses]
    for thing in (release, release.measurements, plan, *results):
        assert len(reachable(thing)) > 20
        texts = [repr(thing), str(thing), str(vars(thing))]
        pickles = [pickle.dumps(thing, protocol) for protocol in (0, pickle.HIGHEST_PROTOCOL)]
        assert not any(map(leaked, (thing, vars(thing), texts, pickles)))
    for frame in (release.to_frame(), release.to_frame(weighted=True), results[0].to_frame()):
        assert not leaked(frame.to_csv())


GLOBALS = """
import json, sys
from functools import lru_cache
import conftest
import dpstats as dps
from dpstats.private import kernel

dps.release(conftest.sentinel_plan(), conftest.sentinel_rows(), m=300, k=100, rng=1)
sums = json.loads(sys.argv[1])
leaked = conftest.Search(sums)

def in_the_package():
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "dpstats"]
    held = [thing for module in modules for thing in vars(module).values()]
    classes = {thing for thing in held if isinstance(thing, type)}
    own = [thing for thing in classes if thing.__module__.startswith("dpstats")]
    return leaked([dict(vars(thing)) for thing in (*modules, *own)])

found = [in_the_package()]
cached = lru_cache(lambda total: {"deep": total})
cached(max(sums))
for kernel.Kernel.kept in (cached, [conftest.np.array(sums)]):
    found.append(in_the_package())
print(json.dumps(found))
"""


def test_p70_sentinel_sums_are_in_no_module(sentinels):
    """The last two are planted. Other processes hold ranges of integers, which equal any sum."""
    paths = os.pathsep.join([str(PACKAGE.parent), str(Path(__file__).parents[1])])
    command = [sys.executable, "-c", GLOBALS, json.dumps(sorted(sentinels))]
    environment = os.environ | {"PYTHONPATH": paths}
    run = subprocess.run(command, env=environment, check=True, text=True, capture_output=True)
    assert json.loads(run.stdout) == [False, True, True]


def test_p70_the_search_finds_what_was_planted(release, sentinels, leaked):
    total = max(sentinels)
    share = total / leaked.rows
    digest = f"{total}a{total}b{total}".ljust(64, "c")
    for text in (f"count,{total}\n", f"{share!r}", f'"rows.csv": "{digest}", "n": {total}'):
        assert leaked(text)
    for text in (f"0.{total} 1{total}", f'"rows.csv": "{digest}", 0x7f{digest[-10:]}'):
        assert not leaked(text)
    leaking = copy.copy(release.measurements)
    for planted in (np.array([0, total]), [{"deep": share}], lambda: total, leaked.rare):
        object.__setattr__(leaking, "planted", planted)
        assert leaked(leaking)
    object.__setattr__(leaking, "noisy_sums", np.array([0, total]))  # fields are what is pickled
    assert leaked(pickle.dumps(leaking))


def test_p70_p72_the_noise_is_nowhere_and_no_log_has_a_sum(
    plan, frame, leaked, monkeypatch, caplog, search, tmp_path
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
    assert not leaked(caplog.text)
    drawn = {one for one in drawn if one > 10_000}  # its scale is 10^8
    assert len(drawn) > 8
    noisy = search(drawn)
    assert noisy(f"noise {-min(drawn)}")
    release.save(tmp_path / "release.zip")
    texts = [caplog.text, str(release), *search.members(tmp_path / "release.zip").values()]
    assert not any(map(noisy, (texts, pickle.dumps(release), pickle.dumps(plan))))
    signed = search(drawn | {-one for one in drawn})
    assert not any(map(signed, (release, plan)))


def test_p68_p71_a_release_or_a_copy_holds_no_frame_closure_or_generator(release, reachable):
    kinds = (
        types.FrameType | types.FunctionType | types.GeneratorType | types.TracebackType
        | types.CodeType | types.MethodType | pa.Table | pa.RecordBatch | pd.DataFrame
        | local.Source | kernel.Kernel | Path | random.Random
        | np.random.Generator | np.random.BitGenerator | np.random.RandomState
    )  # fmt: skip
    release.infer("share").conf_int()
    copies = [copy.copy(release), copy.deepcopy(release), pickle.loads(pickle.dumps(release))]
    for held in (release, *copies):
        assert not [thing for thing in reachable(held) if isinstance(thing, kinds)]
        assert repr(held) == repr(release)
        np.testing.assert_array_equal(held.measurements.means, release.measurements.means)
    for planted in (lambda: release, {"deep": [np.random.default_rng(1)]}):
        object.__setattr__(copies[0], "planted", planted)
        assert any(isinstance(thing, kinds) for thing in reachable(copies[0]))


def frames_of(error):
    """Frames inside dpstats of an error and of everything that is chained to it."""
    while error is not None:
        assert error.__cause__ is None
        trace = error.__traceback__
        while trace is not None:
            if Path(trace.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
                yield trace.tb_frame
            trace = trace.tb_next
        error = error.__context__


@pytest.fixture
def assert_clean(leaked, frame, caplog):
    """No message, chained error, frame or log holds a sum (the user's own table aside)."""
    caplog.set_level(logging.DEBUG)

    def check(error):
        frames = list(frames_of(error))
        assert frames
        for inside in frames:
            held = inside.f_locals
            own = [value for value in held.values() if isinstance(value, local.Source)]
            for name, value in held.items():
                assert not leaked(value, frame, *own, held), f"{inside.f_code.co_name}: {name}"
        while error is not None:
            assert not leaked([str(error), repr(error.args)])
            error = error.__context__
        assert not leaked(caplog.text)

    return check


FAILING = [
    (noise, "_opendp", 2, ValueError), (noise, "_opendp", 3, KeyboardInterrupt),
    (noise, "_laplace", 2, MemoryError), (noise.secrets, "token_bytes", 2, OSError),
]  # fmt: skip


@pytest.mark.parametrize("failing", FAILING, ids=lambda failing: failing[3].__name__)
def test_p12_p72_a_failing_draw_is_spent_and_leaves_no_sum(
    failing, plan, frame, monkeypatch, assert_clean, ledger
):
    """The trial before the rows are read succeeds; after it the budget is spent."""
    (module, where, number, error), calls = failing, []
    real = getattr(module, where)

    def fails(*args):
        calls.append(1)
        if len(calls) == number:
            raise error("planted")
        return real(*args)

    monkeypatch.setattr(module, where, fails)
    with pytest.raises((dps.NoiseError, KeyboardInterrupt)) as caught:
        dps.measure(plan, frame, ledger=ledger)
    assert len(calls) == number
    assert ledger.spent == plan.budget.total
    assert caught.type is KeyboardInterrupt or "counts as spent" in str(caught.value)
    assert caught.value.__context__ is None
    assert_clean(caught.value)


def test_p72_frames_after_other_failures(plan, frame, monkeypatch, ledger, assert_clean):
    table = pa.Table.from_pandas(frame, preserve_index=False)

    def fails(when):
        def planted(*given, **options):
            if when(*given):
                raise dps.DataError("planted")

        return planted

    for target, name, when in (
        (dps.Ledger, "spend", lambda *given: True),
        (measuring, "check_rows", lambda rows, plan: rows == len(frame)),
        (kernel.Kernel, "check_rows", lambda kept, rows: rows > 2**17),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, fails(when))
            with pytest.raises(dps.DpstatsError, match="planted") as caught:
                dps.measure(plan, table.to_reader(), ledger=ledger)
        assert_clean(caught.value)
    assert ledger.spent == 0


def test_p76_p77_p78_no_error_against_the_truth_where_a_solver_fails(
    plan, frame, leaked, monkeypatch, tmp_path
):
    """With the private file gone: nothing reads rows again, and nothing takes a table of them."""
    data, kept = tmp_path / "rows.parquet", tmp_path / "measured.zip"
    frame.to_parquet(data)
    dps.measure(plan, data).save(kept)
    data.unlink()
    assert list(tmp_path.iterdir()) == [kept]
    measured = dps.Measurements.load(kept)
    for module in (measuring, local):
        for name in ("open_source", "exact_sums"):
            monkeypatch.setattr(module, name, lambda *args: pytest.fail("rows were read again"))

    def failing(*args, **options):
        raise SolverError("the solver stopped")

    monkeypatch.setattr(minimax, "minimax_columns", failing)
    release = dps.synthesize(measured, fit="minimax", m=300, k=100, rng=1)
    assert "the entropy fit was used instead" in release.notes[0]
    certificates = [release.accuracy(of=of) for of in ("rows", "weights")]
    texts = [certificate.to_frame().to_csv() + str(certificate) for certificate in certificates]
    texts += [str(release.infer(name)) for name in plan.analyses]
    assert not any(map(leaked, (release, certificates, texts)))
    for function in (dps.synthesize, dps.load, *(f for _, f in inspect.getmembers(
        dps.Release, inspect.isfunction))):  # fmt: skip
        parameters = set(inspect.signature(function).parameters)
        assert not parameters & {"data", "rows", "table", "frame", "truth", "true", "private"}
