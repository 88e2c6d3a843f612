"""The arrays that dpstats works on, by element type, and the threads that work on them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.int64]  # the coded cells of a column

P = ParamSpec("P")
T = TypeVar("T")


def freeze(value: T) -> T:
    """Make an array, or those of a mapping, read-only: later answers are computed from them."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, Mapping):
        for part in value.values():
            freeze(part)
    return value


def within(low: Floats, high: Floats, least: Any, most: Any) -> tuple[Floats, Floats]:
    """Limits within the range of a parameter, from least to most, of intervals around an estimate.

    One whose middle is beyond an end of the range is moved until its middle is there: cut off as it
    is, it could be that end alone. It only widens by that, and stays nested in alpha.
    """
    finite = np.isfinite(low) & np.isfinite(high)
    middle = np.add(low, high, out=np.zeros(np.shape(low)), where=finite) / 2
    moved = np.where(finite, np.clip(middle, least, most) - middle, 0.0)
    return np.clip(low + moved, least, most), np.clip(high + moved, least, most)


def one_blas_thread(*, of_scipy: bool = True) -> AbstractContextManager[Any]:
    """A block in which BLAS has one thread: small products gain nothing from more.

    Without `of_scipy` only that of numpy: to import the other takes longer than a small release.
    """
    return _blas(of_scipy).limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


def on_one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """A function that decomposes many small matrices, on one thread of numpy's BLAS.

    Threads wait for each other at every matrix: `eigh` of 50 columns takes 25 times the CPU time
    with two.
    """

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_blas_thread(of_scipy=False):
            return function(*args, **kwargs)

    return limited


@cache
def _blas(of_scipy: bool) -> ThreadpoolController:
    """The BLAS libraries, which take long to look for."""
    if of_scipy:
        import scipy.linalg  # noqa: F401

    return ThreadpoolController()
