"""Writers of one ledger, some of which are killed: a program for test_ledger.py.

Run as ``python killed_writers.py MODE LEDGER DRAWN NUMBER SEED``. It imports dpstats once and forks
at most eight writers at a time. A writer spends and then draws, which here is one byte more in the
file DRAWN. The modes:

kill : NUMBER writers are killed (SIGKILL), each at its own moment
fill : eight writers spend until the cap refuses them
"""

import json
import os
import random
import signal
import sys
from fractions import Fraction
from pathlib import Path

from dpstats.errors import BudgetError
from dpstats.privacy import ledger, ledger_file
from dpstats.privacy.budget import PureDP
from dpstats.privacy.ledger import Ledger

AMOUNT = Fraction(1, 1000)
WRITERS = 8
FILES = {ledger.__file__, ledger_file.__file__}
MODE, LEDGER, DRAWN = sys.argv[1:4]
NUMBER, SEED = map(int, sys.argv[4:6])


def note_a_draw():
    with open(DRAWN, "ab", buffering=0) as file:
        file.write(b".")


def spend_for_ever():
    book = Ledger.open(LEDGER)
    while True:
        try:
            book.spend(PureDP(AMOUNT))
        except BudgetError:
            return
        note_a_draw()


def die_at(line, function):
    """Kill this process at the so-manieth line that runs in the ledger's modules."""
    left = [line]

    def trace(frame, event, argument):
        code = frame.f_code
        if code.co_filename not in FILES or (function and code.co_name != function):
            return None
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def die_and_spend(line, function):
    die_at(line, function)
    spend_for_ever()


def forked(work, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    return pid


def kill():
    """Keep eight writers at work, each killed at a line of its own; returns how they ended."""
    rng, alive, ended = random.Random(SEED), [], []
    while len(ended) < NUMBER:
        while len(alive) < WRITERS and len(ended) + len(alive) < NUMBER:
            lines = len(Path(LEDGER).read_bytes().splitlines())
            at_the_end = rng.random() < 0.5
            line = rng.randrange(40 if at_the_end else 60 * (lines + 10))
            alive.append(forked(die_and_spend, line, "append" if at_the_end else ""))
        pid = alive.pop(rng.randrange(len(alive)))
        ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return ended


def fill():
    pids = [forked(spend_for_ever) for _ in range(WRITERS)]
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


if __name__ == "__main__":
    ended = kill() if MODE == "kill" else fill()
    sys.stdout.write(json.dumps(ended))
