"""What a budget has paid for, on disk: never overwritten, never lost when a run stops halfway."""

from __future__ import annotations

import shlex
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dpstats import files
from dpstats.errors import RequestError
from dpstats.measured.measurements import Measurements
from dpstats.releases.archive import load

_SUFFIX = ".measurements.zip"
Write = Callable[[bytes], None]


def place_of_measurements(output: Path) -> Path:
    """Where the measurements are kept until the release at `output` is complete."""
    return Path(str(output).removesuffix(".zip") + _SUFFIX)


def how_to_finish(paid: Path, output: Path) -> str:
    """The command that makes the release from its measurements."""
    force = " --force" if output.exists() else ""
    return f"dpstats synthesize {shlex.quote(str(paid))} -o {shlex.quote(str(output))}{force}"


def check_apart(output: Path, others: Mapping[str, Path | None]) -> None:
    """Refuse an output that is one of the files that the command reads.

    Raises
    ------
    RequestError
    """
    for what, other in others.items():
        if other is not None and _same(output, other):
            raise RequestError(f"the output {str(output)!r} is the {what}; name another file")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve() or (one.exists() and one.samefile(other))
    except OSError:
        return False


@contextmanager
def places(output: Path, *, overwrite: bool) -> Iterator[tuple[Write, Write]]:
    """Open the places of the measurements and of the release, before anything is spent.

    Raises
    ------
    RequestError
        If either cannot be written, or measurements of a run that stopped are there.
    """
    paid = place_of_measurements(output)
    if paid.is_file():
        raise RequestError(
            f"{str(paid)!r} holds measurements that a budget has paid for, of a run that was not "
            f"finished; finish it with: {how_to_finish(paid, output)}; or name another output"
        )
    with ExitStack() as stack:
        try:
            keep = stack.enter_context(files.reserved(paid))
            write = stack.enter_context(files.reserved(output, overwrite=overwrite))
        except RequestError as error:
            raise RequestError(f"{error}; nothing was spent") from None
        yield keep, write


@contextmanager
def held_interrupts() -> Iterator[Callable[[], None]]:
    """Once the function that this gives is called, Ctrl-C and SIGTERM wait until the block ends."""
    waiting: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        before.clear()

    def hold() -> None:
        for number in before:
            signal.signal(number, lambda number, frame: waiting.append(number))

    try:
        yield hold
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if waiting:
        raise KeyboardInterrupt


def keep_measurements(measurements: Measurements, keep: Write, paid: Path) -> Path:
    """Write the measurements where they are expected, or else where they can be; the place.

    Raises
    ------
    RequestError
        If no folder takes them.
    """
    try:
        keep(measurements.to_bytes())
    except RequestError:  # such as a disk that is full by now
        paid = Path(tempfile.mkdtemp(prefix="dpstats-")) / paid.name
        measurements.save(paid)
    return paid


def remove_paid(paid: Path, output: Path, measurements: Measurements) -> bool:
    """Remove measurements once the release holds them; whether they were removed.

    Only those that a run left beside its output, and only if the release can be read back.
    """
    if not _same(paid, place_of_measurements(output)) or load(output).measurements != measurements:
        return False
    paid.unlink()
    return True
