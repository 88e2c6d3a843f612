"""Fixtures that many tests share: a small survey, its schema, and the noise seam."""

import gc
import os
import signal
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

import dpstats as dps
from dpstats.privacy import noise

# No test may depend on wall time or on chance: every run tries the same examples.
settings.register_profile("dpstats", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("dpstats")
os.environ.pop("COLUMNS", None)  # the command line wraps its lines by it


def pytest_collection_finish() -> None:
    """What is kept to the end, such as all the tests, is no garbage to look through again."""
    gc.freeze()


@pytest.fixture(scope="session")
def schema() -> dps.Schema:
    return dps.Schema(
        [
            dps.Category("smoker", ["no", "yes"]),
            dps.Category("region", ["north", "south", "east"]),
            dps.Number("age", 0, 120, edges=[18, 40, 65], missing=40),
        ]
    )


@pytest.fixture(scope="session")
def survey() -> pd.DataFrame:
    rng = np.random.default_rng(20240509)
    n = 2_000
    return pd.DataFrame(
        {
            "smoker": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
            "region": rng.choice(["north", "south", "east"], n, p=[0.5, 0.3, 0.2]),
            "age": rng.normal(45, 20, n).clip(0, 110).round(1),
        }
    )


@pytest.fixture(scope="session", autouse=True)
def _signals_are_heard() -> None:
    """Shells start what runs in the background with some ignored, and tests send them."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            usual = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
            signal.signal(number, usual)


class _Laplace:
    """Discrete Laplace noise and uniforms with a seed, written down apart from the library."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, scale, size):
        p = -np.expm1(-1 / scale)
        return self.rng.geometric(p, size) - self.rng.geometric(p, size)

    def uniforms(self, size):
        return self.rng.random(size) - 0.5


@pytest.fixture(scope="session")
def seeded_noise() -> type:
    """Sources for the seam: ``seeded_noise(seed)``."""
    return _Laplace


class NoNoise:
    """A source for the test seam: zero noise, uniforms in the middle."""

    def __call__(self, scale: float, size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)


@pytest.fixture(scope="session")
def silent_noise() -> NoNoise:
    """The source of `no_noise`, for tests that need it for a part."""
    return NoNoise()


@pytest.fixture
def no_noise(silent_noise: NoNoise) -> Iterator[None]:
    with noise._noise_from(silent_noise):
        yield
