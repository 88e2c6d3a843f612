"""The ledger under kills, many writers, full disks, files that cannot be written, and tampering.

No assertion depends on time: kills come at lines of the program, or between two spendings, and
whatever the moment, what was drawn was written before.
"""

import errno
import itertools
import json
import os
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, main
from dpstats.errors import FileFormatError, RequestError
from dpstats.privacy.budget import PureDP
from dpstats.privacy.ledger import Ledger
from dpstats.private import measure as measuring

PROGRAM = Path(__file__).parent / "programs" / "killed_writers.py"
AMOUNT = Fraction(1, 1000)
KILLED = -9
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "survey.ledger"


@pytest.fixture
def writers(path):
    """Runs the program; gives how its writers ended and how many draws there are so far."""
    drawn = path.with_name("drawn")
    drawn.touch()

    def run(mode, number=0, seed=0):
        environment = os.environ | {"PYTHONPATH": str(Path(dps.__file__).parents[1])}
        done = subprocess.run(
            [sys.executable, str(PROGRAM), mode, str(path), str(drawn), str(number), str(seed)],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return json.loads(done.stdout), drawn.stat().st_size

    return run


THIN_AND_FULL = pytest.mark.parametrize(
    ("kills", "cap"), [(16, 100), pytest.param(200, 1000, marks=pytest.mark.slow)]
)


@needs_fork
@THIN_AND_FULL
def test_kills_never_undercount_and_eight_writers_fill_the_cap_exactly(path, writers, kills, cap):
    """A killed writer may have spent what it never drew: once at most."""
    ledger = Ledger.create(path, PureDP(AMOUNT * cap))
    ended, drawn = writers("kill", kills, seed=1)
    assert ended == [KILLED] * kills
    lines = len(ledger.spendings)
    assert drawn <= lines <= drawn + kills
    assert 0 < lines < cap  # the kills came while there was something to spend
    ended, drawn_at_last = writers("fill")
    assert ended == [0] * 8
    assert ledger.remaining == 0
    assert len(ledger.spendings) == cap
    assert drawn_at_last - drawn == cap - lines  # what the eight believe they took is the rest


@needs_fork
@pytest.mark.parametrize("kills", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_every_measurement_that_drew_noise_is_in_the_ledger(path, writers, kills):
    ledger = Ledger.create(path, PureDP(1))
    ended, drawn = writers("measure", kills, seed=2)
    assert ended == [KILLED] * kills
    assert 0 < drawn <= len(ledger.spendings) <= drawn + kills


@needs_fork
@pytest.mark.parametrize("cut", [1, 60, 150])
def test_a_line_that_a_kill_cut_off_stops_every_spending(path, writers, cut):
    ledger = Ledger.create(path, PureDP(1))
    ledger.spend(PureDP(AMOUNT))
    whole = path.read_bytes()
    ended, drawn = writers("torn", cut)
    assert (ended, drawn) == ([KILLED], 0)
    assert path.read_bytes()[: len(whole)] == whole
    assert len(path.read_bytes()) == len(whole) + cut
    for act in (lambda: Ledger.open(path), lambda: ledger.spend(PureDP(AMOUNT))):
        with pytest.raises(FileFormatError, match="line 3: the line is cut off; restore the file"):
            act()
    path.write_bytes(whole)  # the copy
    ledger.spend(PureDP(AMOUNT))
    assert ledger.spent == 2 * AMOUNT


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_is_full_halfway_leaves_the_ledger_as_it_was(path, monkeypatch, error):
    """Whatever part of the line is written before, in whatever pieces."""
    ledger = Ledger.create(path, PureDP(2))
    ledger.spend(PureDP(0.5))
    before, real = path.read_bytes(), os.write
    for whole_pieces, part in itertools.product((0, 1, 3), (0, 1, 40)):
        left = [whole_pieces]

        def write(handle, data, left=left, part=part):
            if left[0] == 0:
                real(handle, bytes(data)[:part])
                raise OSError(error, os.strerror(error))
            left[0] -= 1
            return real(handle, bytes(data)[:30])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(FileFormatError, match="nothing was spent and the ledger is as it"):
                ledger.spend(PureDP(0.25))
        assert path.read_bytes() == before
    ledger.spend(PureDP(1.5))
    assert ledger.remaining == 0


def test_a_disk_that_takes_lines_in_pieces_gets_whole_lines(path, monkeypatch):
    ledger = Ledger.create(path, PureDP(2))
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data)[:7]))
    ledger.spend(PureDP(0.5))
    assert Ledger.open(path).spent == Fraction(1, 2)


def measured(path, monkeypatch):
    """Measure under a ledger; gives the error, and says whether noise was drawn for the plan."""
    drawn = []
    real = measuring.add_noise

    def add_noise(sums, scale, kind):
        drawn.append(len(sums))
        return real(sums, scale, kind)

    monkeypatch.setattr(measuring, "add_noise", add_noise)
    schema = dps.Schema([dps.Category("c", ["a", "b"])])
    plan = dps.plan(schema, {"t": dps.Marginals(["c"], degree=1)}, budget=PureDP(1))
    with pytest.raises(dps.DpstatsError) as raised:
        dps.measure(plan, pd.DataFrame({"c": ["a", "b"]}), ledger=path)
    assert drawn == [1]  # the trial draw, of nothing
    return raised.value


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_ledger_that_cannot_be_written_stops_a_release_before_noise(path, monkeypatch, error):
    ledger = Ledger.create(path, PureDP(2))
    before, real = path.read_bytes(), Path.open

    def opened(self, mode="r", *arguments, **options):
        if self == path and "+" in mode:
            raise OSError(error, os.strerror(error), str(self))
        return real(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(RequestError, match="cannot open the ledger"):
        ledger.spend(PureDP(1))
    assert os.strerror(error) in str(measured(path, monkeypatch))
    assert path.read_bytes() == before
    assert ledger.remaining == 2  # it can still be read


def test_a_disk_that_is_full_stops_a_release_before_noise(path, monkeypatch):
    Ledger.create(path, PureDP(2))

    def full(handle, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    assert "nothing was spent" in str(measured(path, monkeypatch))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_read_only_files_and_folders(path, monkeypatch):
    ledger = Ledger.create(path, PureDP(2))
    path.parent.chmod(0o555)
    try:
        ledger.spend(PureDP(1))  # nothing but the file is written
        with pytest.raises(RequestError, match=r"cannot write the ledger .*Permission denied"):
            Ledger.create(path.with_name("other"), PureDP(2))
        path.chmod(0o444)
        assert ledger.remaining == 1
        with pytest.raises(RequestError, match=r"cannot open the ledger .*Permission denied"):
            ledger.spend(PureDP(1))
        assert "Permission denied" in str(measured(path, monkeypatch))
        path.chmod(0o000)
        with pytest.raises(RequestError, match=r"cannot open the ledger .*Permission denied"):
            Ledger.open(path)
    finally:
        path.parent.chmod(0o755)
        path.chmod(0o644)


def filled(path, spendings=5, note="release, with ü"):
    ledger = Ledger.create(path, PureDP(2))
    for i in range(spendings):
        ledger.spend(PureDP(Fraction(1, 7 + i)), f"{note} {i}", plan="ab" * 32, data="survey.csv")
    return path.read_bytes()


@pytest.mark.parametrize("bits", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_refused_or_changes_nothing(path, bits):
    """One bit of every byte, or all eight. An escaped character has two spellings."""
    content, rng = filled(path), np.random.default_rng(4)
    spendings, same = Ledger.open(path).spendings, 0
    for place in range(len(content)):
        for bit in rng.choice(8, bits, replace=False).tolist():
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            try:
                same += 1
                assert Ledger.open(path).spendings == spendings
                assert changed.lower() == content.lower()
            except FileFormatError:
                same -= 1
    assert same <= 2 * len(spendings)


def test_lines_that_are_removed_exchanged_repeated_or_from_elsewhere_are_refused(path):
    lines = filled(path, 6).splitlines(keepends=True)
    other = filled(path.with_name("other"), 6, "another survey").splitlines(keepends=True)
    n = len(lines)
    changed = [lines[:i] + lines[j:] for i in range(n) for j in range(i + 1, n)]  # a part removed
    for i, j in itertools.combinations(range(n), 2):  # two exchanged
        swapped = list(lines)
        swapped[i], swapped[j] = lines[j], lines[i]
        changed.append(swapped)
    changed += [[*lines[:i], lines[j], *lines[i:]] for i in range(n + 1) for j in range(n)]
    changed += [[*lines[:i], other[i], *lines[i + 1 :]] for i in range(1, n)]
    changed += [[*lines[:i], b"\n", *lines[i:]] for i in range(n + 1)]
    for several in changed:
        path.write_bytes(b"".join(several))
        with pytest.raises(FileFormatError, match=r"damaged in line|is not a ledger"):
            Ledger.open(path)
    assert len(changed) == 112


def test_lines_removed_from_the_end_show_in_the_last_digest_alone(path):
    content = filled(path)
    last = Ledger.open(path).table().splitlines()[-1]
    path.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
    shorter = Ledger.open(path)  # no file can show this by itself
    assert shorter.table().splitlines()[-1] != last


def test_a_system_without_locks_says_so_when_a_ledger_is_opened(path, monkeypatch, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none where there is a lock
        Ledger.create(path, PureDP(2))
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.warns(RuntimeWarning, match="no lock on this system.*one at a time"):
        ledger = Ledger.open(path)
    ledger.spend(PureDP(1))
    assert ledger.remaining == 1
    with pytest.warns(RuntimeWarning, match="no lock on this system"):
        assert main(["ledger", "show", str(path)]) == DONE
