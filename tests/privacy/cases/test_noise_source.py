"""Sections E and F: the noise has no seed, no argument, no state and no fallback."""

import inspect
import itertools
import multiprocessing
import random
import re
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy import noise
from dpstats.private import measure as measuring

SENTINEL = 918273645
FRAME = pd.DataFrame({"c": ["a", "b", None] * 5, "b": [True, False, True] * 5})


def noise_of(measured):
    return tuple(int(s) for block in measured.measured for s in block.sums)


def distinct(results):
    sums = {noise_of(measured) for measured in results}
    uniforms = {tuple(measured.measured[0].uniforms.tolist()) for measured in results}
    return len(sums) == len(uniforms) == len(results)


@pytest.fixture(scope="module")
def small_plan():
    """Noise of scale 10^9 on every sum: equal results mean equal noise."""
    schema = dps.Schema([dps.Category("c", ["a", "b"], allow_missing=True), dps.Boolean("b")])
    return dps.plan(schema, {"m": dps.Marginals(["c", "b"])}, budget=dps.PureDP(2e-9))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(("method", "workers"), [("fork", 2), ("spawn", 1)])
def test_p56_p57_processes_draw_distinct_noise(method, workers, small_plan):
    """Forks share their hash seed too."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    here = dps.measure(small_plan, FRAME)  # so that a fork inherits a source in use
    with multiprocessing.get_context(method).Pool(workers) as pool:
        there = pool.starmap(measuring.measure, [(small_plan, FRAME)] * 4, chunksize=1)
        pool.close()
        pool.join()
    assert distinct([here, *there])


def test_p56_p57_threads_and_equal_seeds_draw_distinct_noise(small_plan):
    def measured(_):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002  (the legacy global state is what is tested)
        return dps.measure(small_plan, FRAME)

    with ThreadPoolExecutor(4) as pool:
        assert distinct([*map(measured, range(3)), *pool.map(measured, range(12))])


def test_p58_no_public_argument_reaches_the_noise():
    """Of what draws it only `measure` calls anything, see test_trust_boundary.py."""
    for function, taken in [
        (dps.measure, ["plan", "data", "ledger", "order", "progress"]),
        (noise.add_noise, ["sums", "scale", "noise"]),
        (noise.draw_uniforms, ["d"]),
    ]:
        assert list(inspect.signature(function).parameters) == taken
    reaching = re.compile("seed|rng|random|nois|state|source|entropy|generator|uniform", re.I)
    things = {name: getattr(dps, name) for name in dps.__all__}
    called = {name: thing for name, thing in things.items() if inspect.isfunction(thing)}
    for kind in (dps.Plan, dps.Schema, dps.PureDP, dps.ZCDP, dps.ApproxDP, dps.Ledger):
        methods = {n: m for n, m in inspect.getmembers(kind, callable) if n[0] != "_"}
        called |= {kind.__name__: kind} | {f"{kind.__name__}.{n}": m for n, m in methods.items()}
    found = {
        (name, parameter)
        for name, thing in called.items()
        for parameter in inspect.signature(thing).parameters
        if reaching.search(parameter)
    }
    # Rows are drawn after the noise, from densities that are noisy already, or are invented.
    drawing = ("release", "synthesize", "pretend", "Schema.draw_inside")
    assert found == {(name, "rng") for name in drawing}


def broken(*args, **kwargs):
    raise OSError(f"no entropy near {SENTINEL}")


def test_p59_p60_a_failing_source_or_none_is_noticed_before_rows_are_read(attempt, ledger):
    for said, owner, name, planted in [
        (r'no fallback; pip install "opendp>=0\.16,<0\.17"', sys.modules, "opendp", None),
        ("nothing was released", vars(noise), "_laplace", lambda scale: broken),
        ("nothing was released", vars(secrets), "token_bytes", broken),
    ]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(owner, name, planted)
            with pytest.raises(dps.NoiseError, match=said) as caught:
                attempt(ledger=ledger)
        assert str(SENTINEL) not in str(caught.value)
        assert ledger.spent == 0


ONE = pd.DataFrame({"c": ["a"] * 40, "b": [True] * 40, "x": [0.0] * 40})
OTHER = pd.DataFrame({"c": ["b"] * 40, "b": [False] * 40, "x": [4.0] * 40})


@pytest.mark.parametrize(("kind", "unit"), [(dps.PureDP, "replace"), (dps.ZCDP, "add_remove")])
def test_p68_uniforms_are_the_same_with_the_sums_exchanged(small_schema, monkeypatch, kind, unit):
    analyses = {"p": dps.Proportion("b"), "t": dps.Marginals(["c", "x"]), "m": dps.Mean("x")}
    plan = dps.plan(small_schema, analyses, budget=kind(1), unit=unit)
    found = []
    for rows in (ONE, OTHER):
        numbers = itertools.count(1)  # the system's random bytes are those of a counter
        monkeypatch.setattr(noise.secrets, "token_bytes", lambda size, numbers=numbers: (
            np.random.default_rng(next(numbers)).bytes(size)))  # fmt: skip
        found.append(dps.measure(plan, rows))
    one, other = found
    assert not np.array_equal(one.noisy_sums, other.noisy_sums)
    np.testing.assert_array_equal(one.uniforms, other.uniforms)
