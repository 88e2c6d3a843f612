"""Fixtures that many tests share: a small survey, its schema, and the noise seam."""

import gc
import os
import signal
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

import dpstats as dps
from dpstats.inference.simulation import draw_from
from dpstats.planning.previews import simulated
from dpstats.privacy import noise
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.rows import generator, loglinear

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


# Folders whose tests are of the noise itself, or of programs that draw it.
REAL_NOISE = {"privacy", "private", "auditing", "cli", "verifying", "mutants", "benchmarks"}
SEEDED_NOISE = {"test_audit.py"}  # files in them that draw much of it


@contextmanager
def _noise_of(name: str) -> Iterator[None]:
    """Noise and uniforms with a seed in place of the system's, for a test or a fixture."""
    folders = set(name.partition("::")[0].split("/"))
    if REAL_NOISE & folders and not SEEDED_NOISE & folders:
        yield
        return
    rng = np.random.default_rng(zlib.crc32(name.encode()))

    def add(sums, scale, law):
        if law == "gaussian":
            return sums + draw_from(DiscreteGaussian(scale), len(sums), rng).astype(np.int64)
        p = -np.expm1(-1 / scale)
        return sums + rng.geometric(p, len(sums)) - rng.geometric(p, len(sums))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "_opendp", add)
        patch.setattr(noise, "secrets", SimpleNamespace(token_bytes=rng.bytes))
        yield


# Folders and files whose tests need no density of many points.
FEW_POINTS = {
    "analyses", "bounds", "cli", "docs", "fuzz", "inference", "planning", "plots", "releases",
    "reports", "results", "statistical", "measured", "schema", "verifying", "test_docstrings.py",
    "test_files.py", "test_how_to.py", "test_loglinear.py",
    "test_rows_of_any_table.py", "test_second_stage.py", "test_testing.py",
}  # fmt: skip

# Points of a density: in fast tests, and as the package has them.
POINTS = {
    "dpstats.rows.generator.CANDIDATES": (1_000, generator.CANDIDATES),
    "dpstats.rows.generator.MOST_EQUAL": (1_000, generator.MOST_EQUAL),
    "dpstats.rows.loglinear.FIT_ROWS": (2_000, loglinear.FIT_ROWS),
}


@contextmanager
def _densities_of(name: str, config: pytest.Config) -> Iterator[None]:
    """Densities of a twentieth of the usual points, unless slow tests run too.

    The usual ones for all others: a fixture may be set up inside a test that has few.
    """
    few = FEW_POINTS & set(name.partition("::")[0].split("/"))
    with pytest.MonkeyPatch.context() as patch:
        for target, (fewer, usual) in POINTS.items():
            fast = few and config.option.markexpr == "not slow"
            patch.setattr(target, fewer if fast else usual)
        yield


@contextmanager
def _generators_of(name: str) -> Iterator[None]:
    """Generators without a seed have one each, as those of rows where no `rng` is given."""
    seeds, usual = np.random.SeedSequence(zlib.crc32(name.encode())), np.random.default_rng
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np.random, "default_rng", lambda seed=None: usual(
            seeds.spawn(1)[0] if seed is None else seed
        ))  # fmt: skip
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """No test depends on chance: the noise of each has a seed, which its name decides.

    Around its teardown too: `monkeypatch` puts back what it found, which is what is set here.
    """
    name = item.nodeid
    with _noise_of(name), _generators_of(name), _densities_of(name, item.config):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Fixtures have seeds of their own: tests may come in any order, in several processes."""
    number = getattr(request, "param_index", 0)
    name = f"{fixturedef.baseid}::{fixturedef.argname} {number}"
    with _noise_of(name), _generators_of(name), _densities_of(name, request.config):
        return (yield)


@pytest.fixture
def fast(monkeypatch, request) -> bool:
    """True unless slow tests run too; then previews simulate one release and not three."""
    few = request.config.option.markexpr == "not slow"
    if few:
        monkeypatch.setattr(simulated, "PRETEND_RELEASES", 1)
        monkeypatch.setattr(simulated, "_MOST", 3)
    return few


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


@pytest.fixture(scope="session")
def silent_noise():
    """The source of `no_noise`, for tests that need it for a part: zero, uniforms in the middle."""
    return lambda scale, size: np.zeros(size, dtype=np.int64)


@pytest.fixture
def no_noise(silent_noise) -> Iterator[None]:
    with noise._noise_from(silent_noise):
        yield
