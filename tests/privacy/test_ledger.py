"""The ledger: exact, append-only, never over its cap, whatever writers and disks do."""

import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import dpstats as dps
from dpstats import files
from dpstats.cli import DONE, main
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.privacy import ledger as ledgers
from dpstats.privacy import ledger_file
from dpstats.privacy.budget import ZCDP, ApproxDP, PureDP
from dpstats.privacy.ledger import Ledger
from dpstats.private import measure as measuring


@pytest.fixture
def path(tmp_path):
    return tmp_path / "survey.ledger"


def refused(ledger, budget, match):
    """By `check` and by `spend`, with nothing written."""
    before = ledger.path.read_bytes()
    for attempt in (ledger.check, ledger.spend):
        with pytest.raises(BudgetError, match=match):
            attempt(budget)
    assert ledger.path.read_bytes() == before


def test_p04_ten_tenths_fill_a_cap_of_one_exactly(path):
    over = Fraction(1, 10**30)  # floats do not see it
    for number, kind in enumerate((PureDP, ZCDP)):
        ledger = Ledger.create(path.with_name(f"{number}"), kind(1.0))
        refused(ledger, kind(1 + over), "cap would be exceeded")
        for _ in range(10):
            ledger.spend(kind(0.1))
        assert (ledger.spent, ledger.remaining) == (1, 0)
        refused(ledger, kind(over), "remaining 0")


def test_the_file_holds_exact_fractions_that_are_on_disk_before_spend_returns(path, monkeypatch):
    ledger, synced = Ledger.create(path, PureDP(2)), []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    ledger.spend(PureDP(0.1), note='first "release"\nof 2026, ü')
    assert synced == [path.stat().st_size]
    header, entry = map(json.loads, path.read_bytes().decode("ascii").splitlines())
    first, second = header.pop("digest"), entry.pop("digest")
    assert header == {"dpstats_ledger": 2, "kind": "pure", "cap": "2", "unit": "replace"}
    assert first == files.digest(["", header]) != second
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry.pop("date"))
    assert entry == {"spent": "1/10", "plan": "", "data": "", "note": 'first "release"\nof 2026, ü'}
    ledger.spend(PureDP(1), "a\tb", data="\x1b[31mä.csv")
    assert "ä.csv" in ledger.table()
    assert not {"\x1b", "\t"} & set(ledger.table())


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


def test_a_ledger_is_started_once_and_whole(path):
    with full_at(20), pytest.raises(RequestError, match="cannot write the ledger"):
        Ledger.create(path, PureDP(2))
    assert not path.exists()
    Ledger.create(path, PureDP(1)).spend(PureDP(1))
    before = path.read_bytes()
    with pytest.raises(RequestError, match="never overwritten; use it as it is"):
        Ledger.create(path, PureDP(10))
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
    assert f": {whole.of_total(whole.rho * 3 / 4).reading}\nremaining" in str(ledger)
    refused(ledger, ApproxDP(0.5, 1e-6), r"remaining .*: epsilon = 0\.4729 at delta")
    ledger.spend(part)
    assert ledger.remaining == 0


def test_p04_rho_is_counted_whichever_way_it_is_read_and_never_added_to_epsilon(path):
    """ApproxDP releases are zero-concentrated at their rho; ZCDP releases are Gaussian noise."""
    approx = ApproxDP(1, 1e-6)
    for cap, other in [(ZCDP(0.1), approx), (approx, ZCDP(0.01))]:
        ledger = Ledger.create(path.with_name(cap.kind), cap)
        ledger.spend(other)
        assert ledger.remaining == cap.total - other.total
        assert cap.reading in str(ledger).splitlines()[0]
        assert str(ledger).startswith(f"cap       rho = {float(cap.total):.6g}".rstrip("0"))
        refused(ledger, PureDP(Fraction(1, 10**9)), "different kinds cannot be added")
    pure = Ledger.create(path, PureDP(100))
    refused(pure, approx, r"kind 'pure'.*different kinds cannot be added")
    for nonsense in (SimpleNamespace(kind="zcdp", total=Fraction(1, 100)), 0.1, None):
        refused(pure, nonsense, r"budget must be a dps\.PureDP")
        with pytest.raises(BudgetError, match=r"cap must be a dps\.PureDP"):
            Ledger.create(path.with_name("none"), nonsense)


def test_p11_neighbour_relations_do_not_add_up(path):
    """Adding or removing a row at epsilon is up to 2 epsilon for replacing one, not epsilon."""
    ledger = Ledger.create(path, PureDP(2), unit="add_remove")
    assert Ledger.open(path).unit == "add_remove"
    ledger.spend(PureDP(1), unit="add_remove")
    refused(ledger, PureDP(1), "different neighbour relations cannot be added")
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


# Damage


def line(content, previous):
    """A line of a ledger with its digest, which is also given back."""
    digest = files.digest([previous, content])
    return json.dumps({**content, "digest": digest}).encode() + b"\n", digest


TOP = {"dpstats_ledger": 2, "kind": "pure", "cap": "2", "unit": "replace"}
HEADER, FIRST = line(TOP, "")
SPENDING = {"spent": "1/10", "date": "2026-01-31", "plan": "", "data": "", "note": ""}
ENTRY, SECOND = line(SPENDING, FIRST)
LAST, _ = line(SPENDING | {"note": "last"}, SECOND)


def top(**changes):
    """A header that is changed, with the digest of its content."""
    return line(TOP | changes, "")[0]


def entry(**changes):
    """A whole ledger whose only spending is changed, with the digest of its content."""
    return HEADER + line(SPENDING | changes, FIRST)[0]


def test_damaged_files_are_refused_with_their_line(path):
    for content, number in [
        (b"", 1), (HEADER[:-1], 1), (ENTRY, 1), (HEADER.replace(b"pure", b"other"), 1),
        (HEADER.replace(b'"2"', b'"9"'), 1), (top(kind="approx"), 1),
        (top(kind="approx", delta="0"), 1), (HEADER + ENTRY + LAST[:9] + b"\n", 3),
        (HEADER + ENTRY + LAST[:150], 3), (HEADER + ENTRY.replace(b"1/10", b"1/11") + LAST, 2),
        (HEADER + b"[]\n", 2), (HEADER + b"\xff\xfe\n", 2), (entry(spent="-1/10"), 2),
        (entry(spent="1" * 5_000), 2), (entry(date="yesterday"), 2), (entry(rows="2000"), 2),
        (HEADER + b'{"spent": ' + b"1" * 5_000 + b"}\n", 2), (HEADER + b"[" * 100_000 + b"\n", 2),
    ]:  # fmt: skip
        path.write_bytes(content)
        said = f"damaged in line {number}:" if b"dpstats_ledger" in content else "is not a ledger"
        with pytest.raises(FileFormatError, match=said):
            Ledger.open(path)
    path.write_bytes(top(dpstats_ledger=1))
    with pytest.raises(FileFormatError, match="has version 1; this dpstats reads 2"):
        Ledger.open(path)


def test_lines_that_are_removed_exchanged_repeated_or_from_elsewhere_are_refused(path):
    """Of all files of three lines, one of another ledger among them, one is a ledger."""
    lines, (foreign, _) = (HEADER, ENTRY, LAST), line(SPENDING, SECOND[::-1])
    for several in itertools.product([*lines, foreign, b"\n"], repeat=3):
        path.write_bytes(b"".join(several))
        if several == lines:
            assert Ledger.open(path).spent == Fraction(1, 5)
            continue
        with pytest.raises(FileFormatError, match=r"damaged in line|is not a ledger"):
            Ledger.open(path)


def test_damage_after_opening_stops_the_next_spending(path):
    ledger = Ledger.create(path, PureDP(2))
    with path.open("ab") as file:
        file.write(b'{"spent": "1/')
    with pytest.raises(FileFormatError, match="line 2"):
        ledger.spend(PureDP(0.1))
    path.write_bytes(top(cap="9"))
    with pytest.raises(FileFormatError, match="unit has changed"):
        ledger.spend(PureDP(0.1))


def broken(*arguments):
    raise OSError(5, "Input/output error")


def stopped(*arguments):
    raise KeyboardInterrupt


def test_a_spending_that_cannot_be_written_leaves_the_ledger_as_it_was(
    path, monkeypatch, simple_plan
):
    """And stops a release before its noise is drawn."""
    ledger = Ledger.create(path, PureDP(2))
    ledger.spend(PureDP(0.5))
    before = path.read_bytes()

    for room in (0, 50):
        with full_at(len(before) + room), pytest.raises(FileFormatError, match="nothing was spent"):
            ledger.spend(PureDP(0.25))
        assert path.read_bytes() == before
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stopped)
        with pytest.raises(KeyboardInterrupt):
            ledger.spend(PureDP(0.25))
    assert path.read_bytes() == before
    table = pd.DataFrame({"c": ["a"], "b": [True], "x": [1.0]})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        patch.setattr(os, "ftruncate", broken)
        patch.setattr(measuring, "_noisy", lambda *args: pytest.fail("noise was drawn"))
        with pytest.raises(FileFormatError, match=r"nor remove a part.*nothing was released"):
            dps.measure(simple_plan(), table, ledger=ledger)
    path.write_bytes(before)
    ledger.spend(PureDP(1.5))
    assert Ledger.open(path).remaining == 0


def test_what_is_no_ledger_is_refused_without_reading_it(tmp_path, monkeypatch):
    for place in (tmp_path, Path("/dev/zero")):
        with pytest.raises((FileFormatError, RequestError), match="not a ledger"):
            Ledger.open(place)
    with pytest.raises(RequestError, match="a path must be text"):
        Ledger.open(b"ledger")
    with pytest.raises(RequestError, match="cannot write the ledger"):
        Ledger.create(tmp_path / "nowhere" / "ledger", PureDP(1))
    with pytest.raises(RequestError, match="note holds half a surrogate pair"):
        Ledger.create(tmp_path / "ledger", PureDP(1)).spend(PureDP(1), "\ud800")
    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(RequestError, match="cannot open the ledger"):
        Ledger.open(tmp_path / "ledger")


# Writers at once

AMOUNT = Fraction(1, 1000)
KILLED = -signal.SIGKILL
FILES = {ledgers.__file__, ledger_file.__file__}


def spend_for_ever(path, drawn):
    """Spends, and then draws, which here is one byte more in a file, until the cap refuses it."""
    book = Ledger.open(path)
    with suppress(BudgetError), drawn.open("ab", buffering=0) as file:
        while True:
            book.spend(PureDP(AMOUNT))
            file.write(b".")


def die_and_spend(lines, function, *places):
    """The same, killed at the so-manieth line that runs in the ledger's modules."""
    left = itertools.count(lines, -1)

    def trace(frame, event, argument):
        code = frame.f_code
        if code.co_filename not in FILES or (function and code.co_name != function):
            return None
        if next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    spend_for_ever(*places)


def forked(work, *arguments):
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    return process


def end_of(process):
    process.join()
    return process.exitcode


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("kills", "cap"), [(12, 100), pytest.param(200, 1000, marks=pytest.mark.slow)]
)
def test_p11_kills_never_undercount_and_eight_writers_fill_the_cap_exactly(path, kills, cap):
    """At lines of the program. A killed writer may have spent what it never drew: once at most."""
    ledger, drawn = Ledger.create(path, PureDP(AMOUNT * cap)), path.with_name("drawn")
    drawn.touch()
    rng, alive, ended = random.Random(1), [], []
    while len(ended) < kills:
        while len(alive) < 8 and len(ended) + len(alive) < kills:
            append = rng.random() < 0.5  # near the end of a spending
            most = 40 if append else 60 * (len(path.read_bytes().splitlines()) + 10)
            at = rng.randrange(most), "append" if append else ""
            alive.append(forked(die_and_spend, *at, path, drawn))
        ended.append(end_of(alive.pop(rng.randrange(len(alive)))))
    assert ended == [KILLED] * kills
    lines, draws = len(ledger.spendings), drawn.stat().st_size
    assert draws <= lines <= draws + kills
    assert 0 < lines < cap  # the kills came while there was something to spend
    writers = [forked(spend_for_ever, path, drawn) for _ in range(8)]
    assert [end_of(writer) for writer in writers] == [0] * 8
    assert ledger.remaining == 0
    assert len(ledger.spendings) == cap
    assert drawn.stat().st_size - draws == cap - lines  # what the eight believe they took


@pytest.mark.skipif(not ledger_file.has_locks(), reason="needs locks")
def test_p11_a_thread_waits_for_another_that_spends(path):
    ledger = Ledger.create(path, PureDP(1))
    with ThreadPoolExecutor(1) as pool:
        with ledger_file.opened(path, "r+b"):
            spent = pool.submit(ledger.spend, PureDP(1))
            assert not wait([spent], timeout=0.3).done
        spent.result()
    assert ledger.remaining == 0


def test_a_system_without_locks_says_so_when_a_ledger_is_opened(path, monkeypatch, capsys):
    Ledger.create(path, PureDP(2))  # no warning where there is a lock
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.warns(RuntimeWarning, match="no lock on this system.*one at a time"):
        ledger = Ledger.open(path)
    ledger.spend(PureDP(1))
    assert ledger.remaining == 1
    with pytest.warns(RuntimeWarning, match="no lock on this system"):
        assert main(["ledger", "show", str(path)]) == DONE
