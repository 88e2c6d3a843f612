"""The ledger: exact, append-only, never over its cap, with any number of writers."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest

import dpstats.errors
from dpstats import files
from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.privacy.budget import ZCDP, ApproxDP, PureDP
from dpstats.privacy.ledger import Ledger


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


def test_two_handles_see_each_other(path):
    first, second = Ledger.create(path, PureDP(1)), Ledger.open(path)
    first.spend(PureDP(0.75))
    assert second.spent == Fraction(3, 4)
    with pytest.raises(BudgetError):
        second.spend(PureDP(0.75))


SPENDER = """
import sys
from fractions import Fraction
from dpstats.errors import BudgetError
from dpstats.privacy.budget import ZCDP, PureDP
from dpstats.privacy.ledger import Ledger
ledger, spent = Ledger.open(sys.argv[1]), 0
print("ready", flush=True)
sys.stdin.readline()
for _ in range(100):
    try:
        ledger.spend(PureDP(Fraction(1, 100)))
        spent += 1
    except BudgetError:
        pass
print(spent)
"""


def test_p11_two_processes_at_once_cannot_pass_the_cap(path):
    Ledger.create(path, PureDP(1))
    environment = os.environ | {"PYTHONPATH": str(Path(dpstats.errors.__file__).parents[1])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDER, str(path)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    spent = [int(process.communicate()[0]) for process in processes]
    assert sum(spent) == 100  # what both believe they took is exactly the cap
    assert Ledger.open(path).spent == 1


def test_p11_threads_at_once_cannot_pass_the_cap(path):
    ledger = Ledger.create(path, PureDP(1))

    def spend(_):
        try:
            ledger.spend(PureDP(0.1))
        except BudgetError:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(spend, range(40))) == 10


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


def test_a_missing_ledger_is_not_created(path):
    with pytest.raises(RequestError, match="no ledger"):
        Ledger.open(path)
    assert not path.exists()


class OtherBudget:
    kind = "zcdp"
    total = Fraction(1, 100)


@pytest.mark.parametrize("budget", [OtherBudget(), 0.1, None])
def test_a_budget_of_another_kind_is_refused(path, budget):
    ledger = Ledger.create(path, PureDP(1))
    before = path.read_bytes()
    for call in (ledger.check, ledger.spend):
        with pytest.raises(BudgetError, match=r"budget must be a dps\.PureDP"):
            call(budget)
    assert path.read_bytes() == before
    with pytest.raises(BudgetError, match=r"cap must be a dps\.PureDP"):
        Ledger.create(path, budget)


def test_p04_rho_adds_up_exactly_and_kinds_do_not_mix(path):
    ledger = Ledger.create(path, ZCDP(1))
    for _ in range(10):
        ledger.spend(ZCDP(0.1, delta=1e-5))
    assert ledger.remaining == 0
    assert Ledger.open(path).kind == "zcdp"
    read = ZCDP(1).reading
    assert str(ledger).startswith(f"cap       rho = 1: {read}\nspent     rho = 1: {read}\n")
    assert f"  0.1 (1/10): {ZCDP(0.1).reading}  -  -" in ledger.table()
    assert "\nepsilons do not add; rho does, " in str(ledger)
    assert "do not add" not in str(Ledger.create(path.with_name("pure"), PureDP(1)))
    with pytest.raises(BudgetError, match="remaining 0"):
        ledger.spend(ZCDP(Fraction(1, 10**9)))
    before = path.read_bytes()
    for call in (ledger.check, ledger.spend):
        with pytest.raises(BudgetError, match=r"'zcdp'.*different kinds cannot be added") as raised:
            call(PureDP(Fraction(1, 10**9)))
        assert "plan with dps.ZCDP or dps.ApproxDP, or start another" in str(raised.value)
        started = "'dpstats ledger new FILE --kind pure --cap EPSILON', whose spendings come on top"
        assert started in str(raised.value)
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
    cap, spent, remaining, note, _ = str(ledger).splitlines()
    assert re.fullmatch(r"cap       rho = 0\.027634 \(\S+\): epsilon = 1 at delta = 1e-06", cap)
    assert spent.endswith(f": {whole.of_total(whole.rho * 3 / 4).reading}")
    assert remaining.endswith(f": {part.reading}")
    assert note.startswith("epsilons do not add; rho does")
    assert ledger.table().count(f": {part.reading}  -") == 3
    assert part.reading == "epsilon = 0.4729 at delta = 1e-06"
    with pytest.raises(BudgetError, match=r"remaining \S+ \(\S+\): epsilon = 0\.4729 at delta"):
        ledger.check(ApproxDP(0.5, 1e-6))
    ledger.spend(part)
    assert ledger.remaining == 0
    assert "remaining rho = 0\n" in str(ledger)


def test_p04_rho_of_gaussian_noise_is_counted_whichever_way_it_is_read(path):
    """ApproxDP releases are zero-concentrated at their rho; ZCDP releases are Gaussian noise."""
    zcdp = Ledger.create(path.with_name("zcdp"), ZCDP(0.1))
    zcdp.spend(ApproxDP(1, 1e-6))
    assert zcdp.spent == ApproxDP(1, 1e-6).rho
    with pytest.raises(BudgetError, match="cap would be exceeded"):
        zcdp.spend(ApproxDP(2, 1e-6))
    approx = Ledger.create(path, ApproxDP(1, 1e-6))
    approx.spend(ZCDP(0.02))
    assert approx.remaining == ApproxDP(1, 1e-6).rho - Fraction("0.02")
    for ledger in (zcdp, approx):
        with pytest.raises(BudgetError, match="different kinds cannot be added"):
            ledger.spend(PureDP(Fraction(1, 10**9)))
    pure = Ledger.create(path.with_name("pure"), PureDP(100))
    with pytest.raises(BudgetError, match=r"kind 'pure'.*different kinds cannot be added"):
        pure.spend(ApproxDP(1, 1e-6))


APPROX = {"dpstats_ledger": 2, "kind": "approx", "cap": "1/50", "unit": "replace"}


def test_the_delta_of_a_ledger_is_part_of_it(path):
    def write(content):
        path.write_bytes(line(content, "")[0])

    write(APPROX | {"delta": "1/1000000"})
    ledger = Ledger.open(path)
    for delta in (None, "0", "1", 1e-6, "1e-6", ["1/2"]):
        write(APPROX | {"delta": delta})
        with pytest.raises(FileFormatError, match="line 1: delta must be a fraction between"):
            Ledger.open(path)
    for content in (APPROX, APPROX | {"kind": "zcdp", "delta": "1/1000000"}):
        write(content)
        with pytest.raises(FileFormatError, match="the header of a ledger is missing"):
            Ledger.open(path)
    write(APPROX | {"delta": "1/1000"})
    with pytest.raises(FileFormatError, match="has changed since the ledger was opened"):
        ledger.spend(ZCDP(0.001))


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
    for content, line in [
        (b"", 1),
        (b"\n", 1),
        (HEADER[:-1], 1),
        (ENTRY, 1),
        (HEADER.replace(b"pure", b"other"), 1),
        (HEADER.replace(b'"pure"', b'["pure"]'), 1),
        (HEADER.replace(b'"2"', b"2"), 1),
        (HEADER.replace(b'"2"', b'"0"'), 1),
        (HEADER.replace(b'"2"', b'"9"'), 1),
        (HEADER + ENTRY + LAST[:-1], 3),
        (HEADER + ENTRY + LAST[:9] + b"\n", 3),
        (HEADER + ENTRY + ENTRY, 3),
        (HEADER + LAST, 2),
        (HEADER + ENTRY.replace(b"1/10", b"1/11") + LAST, 2),
        (HEADER + ENTRY + LAST.replace(b"1/10", b"1/11"), 3),
        (HEADER + ENTRY + b"\n" + ENTRY, 3),
        (HEADER + b"[]\n", 2),
        (HEADER + b"\xff\xfe\n", 2),
        (entry(spent=0.1), 2),
        (entry(spent="-1/10"), 2),
        (entry(spent="0"), 2),
        (entry(spent="1/0"), 2),
        (entry(spent="1" * 5_000), 2),
        (entry(note=None), 2),
        (entry(date="yesterday"), 2),
        (entry(data=["survey.csv"]), 2),
        (entry(rows="2000"), 2),
        (HEADER + b'{"spent": ' + b"1" * 5_000 + b"}\n", 2),
        (HEADER + b"[" * 100_000 + b"\n", 2),
        (HEADER + HEADER, 2),
    ]:
        path.write_bytes(content)
        said = f"damaged in line {line}:" if b"dpstats_ledger" in content else "is not a ledger"
        with pytest.raises(FileFormatError, match=said):
            Ledger.open(path)
        assert path.read_bytes() == content


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


def failing(error):
    def fail(*arguments):
        raise error

    return fail


def test_a_spending_that_cannot_be_written_leaves_the_ledger_as_it_was(path, monkeypatch):
    ledger = Ledger.create(path, PureDP(2))
    ledger.spend(PureDP(0.5))
    before = path.read_bytes()
    message = (
        r"cannot write the ledger '.*survey\.ledger': .*nothing was spent and the ledger is as"
    )
    for room in (0, 1, 50):
        with full_at(len(before) + room), pytest.raises(FileFormatError, match=message):
            ledger.spend(PureDP(0.25))
        assert path.read_bytes() == before
    for error, raised in {
        OSError(5, "Input/output error"): FileFormatError,
        KeyboardInterrupt(): KeyboardInterrupt,
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing(error))
            with pytest.raises(raised):
                ledger.spend(PureDP(0.25))
        assert path.read_bytes() == before
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(OSError(5, "Input/output error")))
        patch.setattr(os, "ftruncate", failing(OSError(5, "Input/output error")))
        with pytest.raises(FileFormatError, match=r"nor remove a part.*nothing was released"):
            ledger.spend(PureDP(0.25))
    path.write_bytes(before)
    ledger.spend(PureDP(1.5))
    assert Ledger.open(path).remaining == 0


def test_a_ledger_that_cannot_be_started_leaves_no_file(path):
    with full_at(20), pytest.raises(RequestError, match="cannot write the ledger"):
        Ledger.create(path, PureDP(2))
    assert not path.exists()
    assert Ledger.create(path, PureDP(2)).remaining == 2


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


def test_a_whole_ledger_is_read_with_its_days_plans_and_tables(path):
    path.write_bytes(HEADER + ENTRY + LAST)
    ledger = Ledger.open(path)
    assert ledger.spent == Fraction(1, 5)
    ledger.spend(PureDP(1), "smoking; age", plan="ab" * 32, data="survey.csv")
    first, _, third = ledger.spendings
    assert first.date == "2026-01-31"
    assert (third.amount, third.plan, third.data) == (1, "ab" * 32, "survey.csv")
    shown = ledger.table().splitlines()
    assert shown[1] == "2026-01-31  0.1 (1/10)  -  -  "
    assert shown[3].endswith("  1  abababababababab  survey.csv  smoking; age")
    last = json.loads(path.read_bytes().splitlines()[-1])["digest"]
    assert shown[4] == f"digest of the last line: {last[:16]}"
    ledger.spend(PureDP(Fraction(1, 2)), "a\tb", data="\x1b[31m\u00e4.csv")
    assert ledger.table().splitlines()[4].endswith("  -  \\x1b[31m\u00e4.csv  a\\tb")


def test_a_ledger_of_an_earlier_version_is_refused_with_what_to_do(path):
    path.write_text('{"dpstats_ledger": 1, "kind": "pure", "cap": "2", "unit": "replace"}\n')
    with pytest.raises(FileFormatError, match=r"has version 1.*reads 2; start a new ledger"):
        Ledger.open(path)


def test_what_is_no_ledger_is_refused_without_reading_it(tmp_path):
    for place in (tmp_path, Path("/dev/zero")):
        with pytest.raises((FileFormatError, RequestError), match="not a ledger"):
            Ledger.open(place)
    for place in (b"ledger", None, 3):
        with pytest.raises(RequestError, match="a path must be text"):
            Ledger.open(place)
    with pytest.raises(RequestError, match="cannot write the ledger"):
        Ledger.create(tmp_path / "nowhere" / "ledger", PureDP(1))
    with pytest.raises(RequestError, match="note holds half a surrogate pair"):
        Ledger.create(tmp_path / "ledger", PureDP(1)).spend(PureDP(1), "\ud800")


def test_sums_of_many_digits_are_shown(path):
    amounts = [f"1/{10**1500 + i}" for i in (1, 3, 7, 9)]
    held, last = HEADER, FIRST
    for amount in amounts:
        one, last = line(SPENDING | {"spent": amount}, last)
        held += one
    path.write_bytes(held)
    assert "spent     epsilon = 4.00000e-1500" in str(Ledger.open(path))


def test_any_value_in_a_line_is_refused_with_a_sentence(path):
    for value in [None, True, 0, -1, 2**70, 1.5, "x", "1e9999", [], {}, [[]]]:
        header = {"dpstats_ledger": 2, "kind": "pure", "cap": "2", "unit": "replace"}
        for number, content in ((1, header), (2, SPENDING)):
            for key in content:
                changed = line(content | {key: value}, "" if number == 1 else FIRST)[0]
                path.write_bytes(changed if number == 1 else HEADER + changed)
                if number == 2 and key in ("plan", "data", "note") and isinstance(value, str):
                    assert str(Ledger.open(path))  # any text
                    continue
                with pytest.raises(FileFormatError):
                    Ledger.open(path)


def test_an_approx_ledger_shows_sums_of_long_fractions(tmp_path):
    book = Ledger.create(tmp_path / "ledger", ApproxDP(2, 1e-6))
    for prime in (10**301 + 7, 10**302 + 9, 10**303 + 11):
        book.spend(ZCDP(Fraction(1, 10**3) + Fraction(1, prime)), "long")
    assert "epsilon = " in str(book)
