"""The arrays that dpstats works on, by element type, and the threads that work on them."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.int64]  # the coded cells of a column


def one_blas_thread(*, of_scipy: bool = True) -> AbstractContextManager[Any]:
    """A block in which BLAS has one thread: small products gain nothing from more.

    Without `of_scipy` only that of numpy: to import the other takes longer than a small release.
    """
    return _blas(of_scipy).limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@cache
def _blas(of_scipy: bool) -> ThreadpoolController:
    """The BLAS libraries, which take long to look for."""
    if of_scipy:
        import scipy.linalg  # noqa: F401

    return ThreadpoolController()
