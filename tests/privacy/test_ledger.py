"""The ledger: exact, append-only, never over its cap, whatever writers and disks do.

No assertion depends on time: kills come at lines of the program, or between two spendings, and
whatever the moment, what was drawn was written before.
"""

import errno
import itertools
import json
import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import dpstats as dps
from dpstats import files
from dpstats.cli import DONE, main
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.privacy import ledger_file
from dpstats.privacy.budget import ZCDP, ApproxDP, PureDP
from dpstats.privacy.ledger import Ledger
from dpstats.private import measure as measuring


@pytest.fixture
def path(tmp_path):
    return tmp_path / "survey.ledger"


def test_p04_ten_tenths_fill_a_cap_of_one_exactly(path):
    ledger = Ledger.create(path, PureDP(1.0))
    for _ in range(10):
        ledger.spend(PureDP(0.1))
    assert ledger.spent == 1
    assert ledger.remaining == 0
    with pytest.raises(BudgetError):
        ledger.spend(PureDP(1e-12))


def test_p04_a_spending_above_the_cap_by_less_than_floats_see_is_refused(path):
    ledger = Ledger.create(path, PureDP(1))
    over = PureDP(1 + Fraction(1, 10**30))
    assert float(over.total) == 1
    for attempt in (ledger.check, ledger.spend):
        with pytest.raises(BudgetError, match="cap would be exceeded"):
            attempt(over)
    assert ledger.spent == 0


def test_the_file_holds_exact_fractions_and_nothing_else(path):
    Ledger.create(path, PureDP(2)).spend(PureDP(0.1), note='first "release"\nof 2026, ü')
    header, entry = map(json.loads, path.read_bytes().decode("ascii").splitlines())
    first, second = header.pop("digest"), entry.pop("digest")
    assert header == {"dpstats_ledger": 2, "kind": "pure", "cap": "2", "unit": "replace"}
    assert first == files.digest(["", header])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry.pop("date"))
    assert entry == {"spent": "1/10", "plan": "", "data": "", "note": 'first "release"\nof 2026, ü'}
    assert second != first


def test_a_spending_is_synced_to_disk_before_it_returns(path, monkeypatch):
    ledger = Ledger.create(path, PureDP(1))
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    ledger.spend(PureDP(0.5))
    assert synced == [path.stat().st_size]


def test_a_ledger_is_never_overwritten(path):
    Ledger.create(path, PureDP(1)).spend(PureDP(1))
    before = path.read_bytes()
    with pytest.raises(RequestError, match="never overwritten; use it as it is"):
        Ledger.create(path, PureDP(10))
    assert path.read_bytes() == before


def test_a_budget_of_another_kind_is_refused(path):
    ledger = Ledger.create(path, PureDP(1))
    other = SimpleNamespace(kind="zcdp", total=Fraction(1, 100))
    before = path.read_bytes()
    for budget in (other, 0.1, None):
        for call in (ledger.check, ledger.spend):
            with pytest.raises(BudgetError, match=r"budget must be a dps\.PureDP"):
                call(budget)
        with pytest.raises(BudgetError, match=r"cap must be a dps\.PureDP"):
            Ledger.create(path, budget)
    assert path.read_bytes() == before


def test_p04_rho_adds_up_exactly_and_kinds_do_not_mix(path):
    ledger = Ledger.create(path, ZCDP(1))
    for _ in range(10):
        ledger.spend(ZCDP(0.1, delta=1e-5))
    assert ledger.remaining == 0
    assert Ledger.open(path).kind == "zcdp"
    assert str(ledger).startswith(f"cap       rho = 1: {ZCDP(1).reading}\nspent     rho = 1: ")
    before = path.read_bytes()
    for call in (ledger.check, ledger.spend):
        with pytest.raises(BudgetError, match="remaining 0"):
            call(ZCDP(Fraction(1, 10**9)))
        with pytest.raises(BudgetError, match=r"'zcdp'.*different kinds cannot be added"):
            call(PureDP(Fraction(1, 10**9)))
    assert path.read_bytes() == before


def test_p04_rho_adds_up_to_an_epsilon_at_the_ledgers_delta(path):
    """Four releases of mu / 2 each are one of mu, by the curve and not by adding epsilons."""
    whole = ApproxDP(1, 1e-6)
    ledger = Ledger.create(path, whole)
    part = whole.of_total(whole.rho / 4)
    assert part.epsilon > 0.4
    for _ in range(3):
        ledger.spend(part)
    assert Ledger.open(path) == ledger
    assert (ledger.kind, ledger.cap, ledger.delta) == ("approx", whole.rho, whole.delta)
    _, spent, remaining, *_ = str(ledger).splitlines()
    assert spent.endswith(f": {whole.of_total(whole.rho * 3 / 4).reading}")
    assert remaining.endswith(f": {part.reading}")
    with pytest.raises(BudgetError, match=r"remaining \S+ \(\S+\): epsilon = 0\.4729 at delta"):
        ledger.check(ApproxDP(0.5, 1e-6))
    ledger.spend(part)
    assert ledger.remaining == 0


def test_p04_rho_of_gaussian_noise_is_counted_whichever_way_it_is_read(path):
    """ApproxDP releases are zero-concentrated at their rho; ZCDP releases are Gaussian noise."""
    approx = ApproxDP(1, 1e-6)
    for name, cap, other in [("zcdp", ZCDP(0.1), approx), ("approx", approx, ZCDP(0.01))]:
        ledger = Ledger.create(path.with_name(name), cap)
        ledger.spend(other)
        assert ledger.remaining == cap.total - other.total
        with pytest.raises(BudgetError, match="different kinds cannot be added"):
            ledger.spend(PureDP(Fraction(1, 10**9)))
    pure = Ledger.create(path, PureDP(100))
    with pytest.raises(BudgetError, match=r"kind 'pure'.*different kinds cannot be added"):
        pure.spend(approx)


def line(content, previous):
    """A line of a ledger with its digest, which is also given back."""
    digest = files.digest([previous, content])
    return json.dumps({**content, "digest": digest}).encode() + b"\n", digest


HEADER, FIRST = line({"dpstats_ledger": 2, "kind": "pure", "cap": "2", "unit": "replace"}, "")
SPENDING = {"spent": "1/10", "date": "2026-01-31", "plan": "", "data": "", "note": ""}
ENTRY, SECOND = line(SPENDING, FIRST)
LAST, _ = line(SPENDING, SECOND)


def entry(**changes):
    """A whole ledger whose only spending is changed, with the digest of its content."""
    return HEADER + line(SPENDING | changes, FIRST)[0]


def test_damaged_files_are_refused_with_their_line(path):
    header = {"dpstats_ledger": 2, "kind": "approx", "cap": "1/50", "unit": "replace"}
    for content, number in [
        (b"", 1), (HEADER[:-1], 1), (ENTRY, 1), (HEADER.replace(b"pure", b"other"), 1),
        (HEADER.replace(b'"2"', b'"9"'), 1), (line(header, "")[0], 1),
        (line(header | {"delta": "0"}, "")[0], 1), (HEADER + ENTRY + LAST[:9] + b"\n", 3),
        (HEADER + ENTRY + LAST[:150], 3), (HEADER + ENTRY.replace(b"1/10", b"1/11") + LAST, 2),
        (HEADER + b"[]\n", 2), (HEADER + b"\xff\xfe\n", 2), (entry(spent="-1/10"), 2),
        (entry(spent="1" * 5_000), 2), (entry(date="yesterday"), 2), (entry(rows="2000"), 2),
        (HEADER + b'{"spent": ' + b"1" * 5_000 + b"}\n", 2), (HEADER + b"[" * 100_000 + b"\n", 2),
    ]:  # fmt: skip
        path.write_bytes(content)
        said = f"damaged in line {number}:" if b"dpstats_ledger" in content else "is not a ledger"
        with pytest.raises(FileFormatError, match=said):
            Ledger.open(path)


def test_a_ledger_of_an_earlier_version_is_refused(path):
    path.write_bytes(line({"dpstats_ledger": 1, "kind": "pure", "cap": "2"}, "")[0])
    with pytest.raises(FileFormatError, match="has version 1; this dpstats reads 2"):
        Ledger.open(path)


def test_a_table_of_spendings_writes_no_control_characters(path):
    ledger = Ledger.create(path, PureDP(2))
    ledger.spend(PureDP(1), "a\tb", data="\x1b[31mä.csv")
    assert "ä.csv" in ledger.table()
    assert not {"\x1b", "\t"} & set(ledger.table())


def test_damage_after_opening_stops_the_next_spending(path):
    ledger = Ledger.create(path, PureDP(2))
    with path.open("ab") as file:
        file.write(b'{"spent": "1/')
    with pytest.raises(FileFormatError, match="line 2"):
        ledger.spend(PureDP(0.1))
    header = {"dpstats_ledger": 2, "kind": "pure", "cap": "9", "unit": "replace"}
    path.write_bytes(line(header, "")[0])
    with pytest.raises(FileFormatError, match="unit has changed"):
        ledger.spend(PureDP(0.1))


@contextmanager
def full_at(size):
    """No file grows beyond `size` bytes."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_ledger_that_is_not_written_whole_is_no_file(path):
    with full_at(20), pytest.raises(RequestError, match="cannot write the ledger"):
        Ledger.create(path, PureDP(2))
    assert not path.exists()


def failing(error):
    def fail(*arguments):
        raise error

    return fail


def test_a_spending_that_cannot_be_written_leaves_the_ledger_as_it_was(path, monkeypatch):
    ledger = Ledger.create(path, PureDP(2))
    ledger.spend(PureDP(0.5))
    before, broken = path.read_bytes(), OSError(5, "Input/output error")
    for room in (0, 50):
        with full_at(len(before) + room), pytest.raises(FileFormatError, match="nothing was spent"):
            ledger.spend(PureDP(0.25))
        assert path.read_bytes() == before
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            ledger.spend(PureDP(0.25))
    assert path.read_bytes() == before
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(broken))
        patch.setattr(os, "ftruncate", failing(broken))
        with pytest.raises(FileFormatError, match=r"nor remove a part.*nothing was released"):
            ledger.spend(PureDP(0.25))
    path.write_bytes(before)
    ledger.spend(PureDP(1.5))
    assert Ledger.open(path).remaining == 0


def test_p11_neighbour_relations_do_not_add_up(path):
    """Adding or removing a row at epsilon is up to 2 epsilon for replacing one, not epsilon."""
    ledger = Ledger.create(path, PureDP(2), unit="add_remove")
    assert Ledger.open(path).unit == "add_remove"
    ledger.spend(PureDP(1), unit="add_remove")
    for act in (ledger.check, ledger.spend):
        with pytest.raises(BudgetError, match="different neighbour relations cannot be added"):
            act(PureDP(1))
    other = Ledger.create(path.with_name("replace"), PureDP(2))
    with pytest.raises(BudgetError, match="--kind zcdp --cap RHO --unit add_remove'"):
        other.check(ZCDP(1), unit="add_remove")
    of_persons = Ledger.create(path.with_name("persons"), PureDP(2), person="id")
    of_persons.spend(PureDP(1), person="id", rows_per_person=9)  # all rows, however many
    for book, person in ((other, "id"), (of_persons, None), (of_persons, "key")):
        with pytest.raises(BudgetError, match="for rows and for persons, for persons known by"):
            book.check(PureDP(1), person=person)
    assert ledger.spent == of_persons.spent == 1
    with pytest.raises(RequestError, match="'replace' or 'add_remove'"):
        Ledger.create(path.with_name("other"), PureDP(2), unit="person")


def test_what_is_no_ledger_is_refused_without_reading_it(tmp_path):
    for place in (tmp_path, Path("/dev/zero")):
        with pytest.raises((FileFormatError, RequestError), match="not a ledger"):
            Ledger.open(place)
    with pytest.raises(RequestError, match="a path must be text"):
        Ledger.open(b"ledger")
    with pytest.raises(RequestError, match="cannot write the ledger"):
        Ledger.create(tmp_path / "nowhere" / "ledger", PureDP(1))
    with pytest.raises(RequestError, match="note holds half a surrogate pair"):
        Ledger.create(tmp_path / "ledger", PureDP(1)).spend(PureDP(1), "\ud800")


# Kills, full disks, tampering

PROGRAM = Path(__file__).parent / "programs" / "killed_writers.py"
AMOUNT = Fraction(1, 1000)
KILLED = -9


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize(
    ("kills", "cap"), [(12, 100), pytest.param(200, 1000, marks=pytest.mark.slow)]
)
def test_p11_kills_never_undercount_and_eight_writers_fill_the_cap_exactly(
    path, writers, kills, cap
):
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


@pytest.mark.skipif(not ledger_file.has_locks(), reason="needs locks")
def test_p11_a_thread_waits_for_another_that_spends(path):
    ledger = Ledger.create(path, PureDP(1))
    with ThreadPoolExecutor(1) as pool:
        with ledger_file.opened(path, "r+b"):
            spent = pool.submit(ledger.spend, PureDP(1))
            assert not wait([spent], timeout=0.3).done
        spent.result()
    assert ledger.remaining == 0


def test_a_ledger_that_cannot_be_written_stops_a_release_before_noise(path, monkeypatch):
    ledger, real = Ledger.create(path, PureDP(2)), Path.open

    def opened(self, mode="r", *arguments, **options):
        if self == path and "+" in mode:
            raise OSError(errno.EROFS, "read-only", str(self))
        return real(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(measuring, "_noisy", lambda *args: pytest.fail("noise was drawn"))
    plan = dps.plan(dps.Schema([dps.Boolean("b")]), {"p": dps.Proportion("b")}, budget=PureDP(1))
    with pytest.raises(RequestError, match="cannot open the ledger"):
        dps.measure(plan, pd.DataFrame({"b": [True, False]}), ledger=path)
    assert ledger.remaining == 2  # it can still be read


def filled(path, spendings=5, note="release, with ü"):
    ledger = Ledger.create(path, PureDP(2))
    for i in range(spendings):
        ledger.spend(PureDP(Fraction(1, 7 + i)), f"{note} {i}", plan="ab" * 32, data="survey.csv")
    return path.read_bytes()


def test_lines_that_are_removed_exchanged_repeated_or_from_elsewhere_are_refused(path):
    lines = filled(path, 4).splitlines(keepends=True)
    other = filled(path.with_name("other"), 4, "another survey").splitlines(keepends=True)
    n = len(lines)
    changed = [lines[:i] + lines[j:] for i in range(n) for j in range(i + 1, n)]  # a part removed
    for i, j in itertools.combinations(range(n), 2):
        changed.append([*lines[:i], lines[j], *lines[i + 1 : j], lines[i], *lines[j + 1 :]])
    changed += [[*lines[:i], lines[j], *lines[i:]] for i in range(n + 1) for j in range(n)]
    changed += [[*lines[:i], other[i], *lines[i + 1 :]] for i in range(1, n)]
    changed += [[*lines[:i], b"\n", *lines[i:]] for i in range(n + 1)]
    for several in changed:
        path.write_bytes(b"".join(several))
        with pytest.raises(FileFormatError, match=r"damaged in line|is not a ledger"):
            Ledger.open(path)


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
