"""Files that a budget has paid for: never overwritten, never lost when a run stops halfway."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.errors import RequestError
from dpstats.measured.measurements import Measurements
from dpstats.releases.release import load

_SUFFIX = ".measurements.zip"
_ATTACHED = (
    "the budget is spent, and this exception holds the measurements that it paid for: save "
    "error.measurements (sys.last_value.measurements in an interactive session), then finish with "
    "dps.synthesize(measurements)"
)
Write = Callable[[bytes], None]


def place_of_measurements(output: Path) -> Path:
    """Where the measurements are kept until the release at `output` is complete."""
    return Path(str(output).removesuffix(".zip") + _SUFFIX)


def how_to_finish(paid: Path, output: Path, *, overwrite: bool) -> str:
    """Command that makes the release from its measurements.

    It replaces an output only if that was there and was to be replaced; else it names another.
    """
    force = " --overwrite" if overwrite and output.exists() else ""
    output = output if force else _free(output, paid)
    return f"dpstats synthesize {shlex.quote(str(paid))} -o {shlex.quote(str(output))}{force}"


def _free(output: Path, paid: Path | None = None) -> Path:
    """The first of a.zip, a-2.zip, ... where no other run has a release or measurements."""
    end = ".zip" if output.name.endswith(".zip") else ""
    stem = str(output).removesuffix(".zip")
    for number in itertools.count(2):
        kept = place_of_measurements(output)
        if not os.path.lexists(output) and (kept == paid or not os.path.lexists(kept)):
            break
        output = Path(f"{stem}-{number}{end}")
    return output


def check_apart(output: Path, others: Mapping[str, Path | None]) -> None:
    """Refuse an output that is one of the files that the command reads."""
    for what, other in others.items():
        if other is not None and _same(output, other):
            raise RequestError(f"the output {str(output)!r} is the {what}; name another file")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve() or (one.exists() and one.samefile(other))
    except OSError:
        return False


@contextmanager
def places(output: Path, *, overwrite: bool, size: int) -> Iterator[tuple[Write, Write]]:
    """Open the places of the measurements, of `size` bytes, and of the release, before spending."""
    paid = place_of_measurements(output)
    try:
        paid.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise RequestError(
            f"cannot write {paid.name!r}: {error.strerror}; nothing was spent"
        ) from None
    if paid.is_file() and not files.holds_measurements(paid):
        raise RequestError(
            f"{str(paid)!r}, where the measurements are to be kept, is another file; move it, or "
            "name another output"
        )
    if paid.is_file():
        raise RequestError(
            f"{str(paid)!r} holds measurements that a budget has paid for, of a run that was not "
            f"finished; finish it with: {how_to_finish(paid, output, overwrite=overwrite)}; or "
            "name another output"
        )
    with ExitStack() as stack:
        try:
            keep = stack.enter_context(files.reserved(paid, size=size))
            write = stack.enter_context(files.reserved(output, overwrite=overwrite))
        except RequestError as error:
            raise RequestError(f"{error}; nothing was spent") from None
        yield keep, write


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP stop the block as Ctrl-C does, so that no temporary file is left."""
    before = {
        number: handler
        for number, handler in _handlers("SIGTERM", "SIGHUP").items()
        if handler == signal.SIG_DFL
    }
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handlers(*names: str) -> dict[int, Any]:
    """Handlers of the signals that the platform has and that are not ignored."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        return {}
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    return {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}


@contextmanager
def held_interrupts() -> Iterator[Callable[[], None]]:
    """Once the function that this gives is called, signals to stop wait until the block ends."""
    waiting: list[int] = []
    before: dict[int, Any] = {}

    def hold() -> None:
        before.update(_handlers("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"))
        for number in before:
            signal.signal(number, lambda number, frame: waiting.append(number))

    try:
        yield hold
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    for number in waiting:
        handler = before[number]
        if not callable(handler):  # the program would end at once
            raise KeyboardInterrupt
        handler(number, None)


@contextmanager
def unspent(when: str) -> Iterator[None]:
    """An interrupt of the block, which comes before the spending, says so."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        stopped.args = (f"{when}; nothing was spent",)
        raise


@contextmanager
def attached() -> Iterator[list[Measurements]]:
    """Any exception of the block carries the measurements that the budget has paid for."""
    held: list[Measurements] = []
    try:
        yield held
    except BaseException as error:
        if held and not hasattr(error, "measurements"):
            error.measurements = held[0]  # type: ignore[attr-defined]
            error.add_note(_ATTACHED)
        raise


def keep_measurements(measurements: Measurements, keep: Write, output: Path) -> Path:
    """Write the measurements where they are expected, or else where they can be; the place."""
    paid, data = place_of_measurements(output), measurements.to_bytes()
    try:
        keep(data)
        return paid
    except RequestError:
        paid = place_of_measurements(_free(output))
    try:
        files.write_atomically(paid, data)
        return paid
    except RequestError as error:  # such as a disk that is full by now
        failures = [str(error)]
    try:
        paid = Path(tempfile.mkdtemp(prefix="dpstats-")) / paid.name
        files.write_atomically(paid, data)
    except (RequestError, OSError) as error:
        failures.append(str(error))
        raise RequestError(
            f"the budget is spent and the measurements are lost: {'; '.join(failures)}. Free some "
            "space before you ask for another budget"
        ) from None
    return paid


def remove_paid(paid: Path, output: Path, measurements: Measurements) -> bool:
    """Remove measurements beside their output once the release can be read back; whether it did."""
    if not _same(paid, place_of_measurements(output)) or load(output).measurements != measurements:
        return False
    paid.unlink()
    return True
