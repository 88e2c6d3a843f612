"""Sections E and F: sensitivity against the noise that is really drawn, and planted bugs.

The guard is deterministic. A source in place of the noise marks every draw, so that the scale on
every sum is the one that reached the source; the loss between two tables is then exact:
the sum over functions of abs(S_f - S'_f) / scale_f, in rationals, at most epsilon.
"""

import inspect
import itertools
import math
import multiprocessing
import os
import pickle
import random
import re
import secrets
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import chi2

import dpstats as dps
from dpstats import measuring
from dpstats.families import block_from_dict
from dpstats.families.block import Sensitivity
from dpstats.families.cells import Indicator, Table
from dpstats.families.lattice import KernelLattice
from dpstats.inference import corrected
from dpstats.planning import PlannedBlock
from dpstats.privacy import noise
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace

SENTINEL = 918273645
SCHEMA = dps.Schema(
    [
        dps.Category("c", ["a", "b"], allow_missing=True),
        dps.Boolean("b"),
        dps.Boolean("d"),
        dps.Number("x", -1, 1, points=5, edges=[0, 0.75], missing=0),
        dps.Number("y", 0, 2, points=3, edges=[1], missing=1),
        dps.Number("z", values=[17.5, 22, 27], missing=22),
    ]
)
CELLS = {
    "c": ["a", "b", None],
    "b": [False, True],
    "d": [False, True],
    "x": [-1.0, -0.5, 0.0, 0.5, 1.0],
    "y": [0.0, 1.0, 2.0],
    "z": [17.5, 22.0, 27.0],
}
TYPES = {"c": pa.string(), "b": pa.bool_(), "d": pa.bool_()}

CALL, COORDINATE, HALF = 2**42, 2**22, 2**21


class Marked:
    """Noise that tells which call and which coordinate it came from; sums are below 2^21."""

    def __init__(self):
        self.scales = []

    def __call__(self, scale, size):
        self.scales.append(scale)
        return len(self.scales) * CALL + np.arange(size) * COORDINATE


def sums_and_scales(plan, table):
    """Sums of all functions, and the scale of the noise that was really drawn for each."""
    source = Marked()
    with noise._noise_from(source):
        measured = dps.measure(plan, table)
    blocks = [*measured.measured, *([measured.reference] if measured.reference else [])]
    marked = np.concatenate([block.sums for block in blocks])
    sums = (marked + HALF) % COORDINATE - HALF
    marks = marked - sums
    calls = marks // CALL
    assert calls.min() >= 1, "a sum without noise"
    assert len(np.unique(marks)) == len(marks), "noise shared by two sums"
    return sums, [Fraction(source.scales[call - 1]) for call in calls]


def largest_loss(plan):
    """Largest privacy loss of a replaced row, over all pairs of rows of the columns in use.

    Laplace noise: sum of changes over scales. Gaussian: rho, the sum of their squares over two.
    """
    gaussian = plan.budget.noise == "gaussian"
    names = plan.columns.names
    results = []
    for row in itertools.product(*(CELLS[name] for name in names)):
        cells = dict(zip(names, row, strict=True))
        table = pa.table({n: pa.array([v], TYPES.get(n, pa.float64())) for n, v in cells.items()})
        results.append(sums_and_scales(plan, table))
    scales = results[0][1]
    assert all(other == scales for _, other in results), "the noise depends on the data"
    sums = np.stack([total for total, _ in results])
    distinct = sorted(set(scales))
    groups = [np.flatnonzero([s == scale for s in scales]) for scale in distinct]
    largest = Fraction(0)
    for i in range(len(sums)):
        moved = np.abs(sums[i + 1 :] - sums[i]) ** (2 if gaussian else 1)
        per_scale = np.stack([moved[:, group].sum(axis=1) for group in groups], axis=1)
        for changes in {tuple(change) for change in per_scale.tolist()}:
            costs = [2 * s**2 if gaussian else s for s in distinct]
            loss = sum((c / s for c, s in zip(changes, costs, strict=True)), Fraction(0))
            largest = max(largest, loss)
    return largest


def guard(plan):
    loss = largest_loss(plan)
    assert loss <= plan.budget.total, "a replaced row costs more than the budget"
    return loss / plan.budget.total


def asks(*blocks):
    class Asking:
        kind = "asking"

        def family(self, schema):
            return dps.Family(blocks)

        def infer(self, release):
            return None

    return Asking()


@pytest.fixture(autouse=True)
def _plain_requests(monkeypatch):
    # The analyses of these tests are no dataclasses; files are not what they are about.
    monkeypatch.setattr(measuring, "analysis_to_dict", lambda analysis: {"kind": analysis.kind})


def table(*columns):
    return dps.Cells.table(SCHEMA, list(columns))


def moments(numbers, groups=(), degree=2):
    return dps.Moments.of(SCHEMA, numbers, groups, degree)


PLANS = {
    "proportion": ({"p": dps.Proportion("c == 'a'")}, {}),
    "group": ({"p": dps.Proportion("b", given="c == 'a'"), "q": dps.Proportion("d")}, {}),
    "cells": ({"m": dps.Marginals(["c", "b", "x"]), "p": dps.Proportion("y < 1")}, {}),
    "monomials": ({"m": dps.Marginals(["b", "d"], 2, "monomials")}, {}),
    "numbers": ({"m": asks(moments(["x", "y", "z"]))}, {}),
    "first moments": ({"m": asks(moments(["x", "y"], ["c"], degree=1))}, {}),
    "groups": ({"m": asks(moments(["x"], ["c", "b"]))}, {}),
    "binned groups": ({"m": asks(moments(["y"], ["x"]), table("c", "b"))}, {}),
    "overlapping": (
        {"m": asks(moments(["x"], ["c"])), "k": asks(moments(["x", "y"]), table("x", "c"))},
        {},
    ),
    "shares": (
        {"m": asks(moments(["x", "y"]), table("c")), "p": dps.Proportion("b and x < 0")},
        {"shares": {"m": 0.3, "p": Fraction(1, 7)}},
    ),
    "shares of one block": (
        {"t": dps.Marginals(["c", "b"]), "u": dps.Marginals(["c", "b"]), "p": dps.Proportion("d")},
        {"shares": {"t": 1, "u": 3, "p": 0.1}},
    ),
    "reference": (
        {"m": asks(moments(["x"], ["c"])), "p": dps.Proportion("b")},
        {"reference": dps.PerturbedHistogram(Fraction(1, 3)), "epsilon": 1000},
    ),
    "reference and shares": (
        {"m": asks(moments(["y"], degree=2)), "p": dps.Proportion("c == 'b'")},
        {
            "reference": dps.PerturbedHistogram(0.1),
            "shares": {"m": 1, "p": 2},
            "epsilon": 1000,
        },
    ),
    "lattice": (
        {"m": asks(table("x", "y"))},
        {"reference": dps.BernsteinKDE(["x", "y"], k=2, share=0.9), "n": 1, "epsilon": 1000},
    ),
    "lattice of one column": (
        {"m": asks(moments(["x"]))},
        {"reference": dps.BernsteinKDE(["x"], k=4, share=0.5), "n": 1, "epsilon": 1000},
    ),
}


def make_plan(name, epsilon=None, kind=dps.PureDP):
    analyses, options = PLANS[name]
    options = dict(options)
    epsilon = epsilon or options.pop("epsilon", Fraction(1, 3))
    options.pop("epsilon", None)
    return dps.plan(SCHEMA, analyses, budget=kind(epsilon), **options)


@pytest.mark.parametrize("name", PLANS)
def test_p49_the_loss_of_a_whole_plan_is_at_most_epsilon(name):
    used = guard(make_plan(name))
    # Not vacuous: a budget that is mostly unused would hide a planted bug.
    assert used > 0.5, float(used)


@pytest.mark.parametrize("epsilon", [1 / 3, 0.1, 5, 1e-3])
def test_p49_for_budgets_that_are_no_short_binary_numbers(epsilon):
    assert guard(make_plan("monomials", epsilon)) > 0.999


@pytest.mark.parametrize("name", PLANS)
def test_p49_the_loss_of_a_whole_plan_is_at_most_rho(name):
    assert guard(make_plan(name, kind=dps.ZCDP)) > 0.3  # bounds of groups are not sharp everywhere


@pytest.mark.parametrize("rho", [1 / 3, 0.1, 5, 1e-7])
def test_p49_for_rhos_that_are_no_short_binary_numbers(rho):
    assert guard(make_plan("monomials", rho, dps.ZCDP)) > 0.999


def test_p49_a_plan_read_from_a_file_costs_the_same(tmp_path):
    plan = make_plan("cells")
    plan.save(tmp_path / "plan.json")
    assert largest_loss(dps.Plan.load(tmp_path / "plan.json")) == largest_loss(plan)


def test_p49_claims_are_what_brute_force_finds_where_they_are_exact():
    for block in (table("c"), table("c", "x"), dps.Cells.condition(SCHEMA, "b or d"),
                  moments(["x"]), moments(["x", "y"]), moments(["x", "y"], degree=1)):  # fmt: skip
        l1, l2 = brute_force(block)
        claimed = block.sensitivity("replace")
        assert l1 <= claimed.l1
        assert l2 <= claimed.l2_squared
        if not isinstance(block, dps.Moments):
            assert (l1, l2) == (claimed.l1, claimed.l2_squared)


def values_of(block):
    """Values f = g / B of all functions at every row, (rows, d) of integers g, and B."""
    names = [column.name for column in block.columns]
    ranges = [range(c.code_range[0], c.code_range[1] + 1) for c in block.columns]
    rows = list(itertools.product(*ranges))
    values = np.stack(
        [
            block.sums({n: np.array([v]) for n, v in zip(names, row, strict=True)})
            for row in rows
        ]
    )  # fmt: skip
    low, high = block.ranges
    return values, np.maximum(abs(low), abs(high))


def norms(change, bounds):
    exact = [Fraction(abs(c), b) for c, b in zip(change.tolist(), bounds.tolist(), strict=True)]
    return sum(exact, Fraction(0)), sum((e * e for e in exact), Fraction(0))


def brute_force(block):
    values, bounds = values_of(block)
    pairs = itertools.combinations(values, 2)
    changes = {tuple((a - b).tolist()) for a, b in pairs}
    found = [norms(np.array(change), bounds) for change in changes]
    return max(l1 for l1, _ in found), max(l2 for _, l2 in found)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("p", "groups"), [(6, 0), (4, 2), (10, 1)])
def test_p50_random_and_coordinate_ascent_search_for_larger_p(p, groups, seed):
    rng = np.random.default_rng(seed)
    numbers = [dps.Number(f"x{i}", 0, 1, points=9, missing=0) for i in range(p)]
    others = [dps.Category(f"g{i}", ["a", "b", "c"]) for i in range(groups)]
    schema = dps.Schema([*numbers, *others])
    block = dps.Moments.of(schema, [c.name for c in numbers], [c.name for c in others])
    low, high = block.ranges
    bounds = np.maximum(abs(low), abs(high))
    claimed = block.sensitivity("replace")

    def difference(pair):
        sums = [block.sums({c.name: row[[i]] for i, c in enumerate(schema)}) for row in pair]
        return (sums[0] - sums[1]) / bounds

    best = [0.0, 0.0]
    for power in (1, 2):
        for _ in range(6):
            pair = np.array([[rng.integers(c.code_range[0], c.code_range[1], endpoint=True)
                              for c in schema] for _ in range(2)])  # fmt: skip
            size = np.sum(np.abs(difference(pair)) ** power)
            improved = True
            while improved:
                improved = False
                for side, (i, column) in itertools.product((0, 1), enumerate(schema)):
                    for code in range(column.code_range[0], column.code_range[1] + 1):
                        before, pair[side, i] = pair[side, i], code
                        new = np.sum(np.abs(difference(pair)) ** power)
                        if new > size + 1e-12:
                            size, improved = new, True
                        else:
                            pair[side, i] = before
            best[power - 1] = max(best[power - 1], size)
    assert best[0] <= float(claimed.l1) + 1e-9
    assert best[1] <= float(claimed.l2_squared) + 1e-9
    assert best[0] > 0.75 * claimed.l1  # the search comes near, so it would notice a bug
    assert best[1] > 0.6 * claimed.l2_squared


@pytest.mark.parametrize(
    "block",
    [table("c", "b"), dps.Cells.condition(SCHEMA, "c == 'a'"), moments(["x", "y"]),
     moments(["x"], ["c"]), moments(["z"], degree=1)],
    ids=lambda block: ",".join(c.name for c in block.columns),
)  # fmt: skip
def test_p51_both_neighbour_relations(block):
    values, bounds = values_of(block)
    added = [norms(value, bounds) for value in values]
    l1, l2 = brute_force(block)
    for unit, most in (
        ("replace", (l1, l2)),
        ("add_remove", (max(a for a, _ in added), max(b for _, b in added))),
    ):
        claimed = block.sensitivity(unit)
        assert most[0] <= claimed.l1
        assert most[1] <= claimed.l2_squared


def assert_no_wrap(monkeypatch, epsilon):
    """Sums at the ends of the range, through `measure`: the noise moves them, or saturates."""
    ends = np.array([2**62, -(2**62)] * 6)
    planned = dps.plan(SCHEMA, {"m": dps.Marginals(["b", "x"])}, budget=dps.PureDP(epsilon))
    [planned_block] = planned.blocks
    size = planned_block.block.size
    totals = [np.resize(ends, size)]
    monkeypatch.setattr(measuring, "exact_sums", lambda *args: ([totals[0].copy()], 4))
    frame = pd.DataFrame({"b": [True] * 4, "x": [0.0] * 4})
    [held] = dps.measure(planned, frame).measured
    for before, after in zip(totals[0].tolist(), held.sums.tolist(), strict=True):
        # Within 700 scales with probability 1 - e**-700; in Python integers, which do not wrap.
        assert abs(after - before) <= 700 * float(held.scales[0])


@pytest.mark.parametrize("epsilon", [1, 1e-9, Fraction(1, 2**51)])
def test_p52_sums_at_the_ends_of_the_range_never_wrap(epsilon, monkeypatch):
    assert_no_wrap(monkeypatch, epsilon)


def test_p53_an_injected_wrap_is_seen(monkeypatch):
    monkeypatch.setattr(noise, "_laplace", lambda scale: lambda sums: (2 * sums + 1).tolist())
    with pytest.raises(AssertionError):
        assert_no_wrap(monkeypatch, 1)


LEVELS = [str(i) for i in range(448)]
WIDE = dps.Schema([dps.Category("u", LEVELS), dps.Category("v", LEVELS)])
ROWS = pa.table({"u": ["0"] * 3, "v": ["1"] * 3})


def draws_of(epsilon=Fraction(1, 2), size=448 * 448, kind=dps.PureDP):
    """200,704 noises of scale 2 / epsilon = 4, from one call of `measure`."""
    levels = LEVELS[: math.isqrt(size)]
    schema = dps.Schema([dps.Category(name, levels) for name in ("u", "v")])
    plan = dps.plan(schema, {"m": dps.Marginals(["u", "v"])}, budget=kind(epsilon))
    [held] = dps.measure(plan, ROWS).measured
    drawn = held.sums.copy()
    drawn[1] -= 3
    return drawn, held.uniforms, plan.budget.law(float(held.scales[0]))


@pytest.fixture(scope="module")
def drawn():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "analysis_to_dict", lambda analysis: {})
        return draws_of()


def chi_square_pvalue(draws, law):
    """P-value of the draws under the exact law, far values pooled into two cells."""
    edge = law.quantile(40 / draws.size)  # about 20 expected beyond it on either side
    z = np.arange(-edge, edge + 1)
    counts = np.bincount(np.clip(draws, -edge - 1, edge + 1) + edge + 1, minlength=z.size + 2)
    beyond = float(law.tail(edge + 1)) / 2
    expected = draws.size * np.concatenate([[beyond], law.pmf(z), [beyond]])
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), z.size + 1)


def test_p54_what_measure_draws_follows_its_exact_law(drawn):
    draws, _, law = drawn
    assert draws.size > 200_000
    assert law == DiscreteLaplace(4.0)
    assert chi_square_pvalue(draws, law) > 1e-6  # a correct sampler fails once in a million runs


def test_p54_what_measure_draws_under_rho_follows_the_gaussian_law(monkeypatch):
    draws, _, law = draws_of(Fraction(1, 16), kind=dps.ZCDP)
    assert law == DiscreteGaussian(4.0)  # squared L2 sensitivity 2
    assert chi_square_pvalue(draws, law) > 1e-6
    real = measuring.add_noise  # the same scale, of Laplace noise
    monkeypatch.setattr(measuring, "add_noise", lambda sums, scale, noise: real(sums, scale))
    draws, _, law = draws_of(Fraction(1, 16), kind=dps.ZCDP)
    assert chi_square_pvalue(draws, law) < 1e-6


@pytest.mark.parametrize("wrong", [0.95, 1.05])
def test_p54_the_same_test_rejects_a_scale_off_by_five_percent(wrong, monkeypatch):
    backend = noise._laplace
    monkeypatch.setattr(noise, "_laplace", lambda scale: backend(wrong * scale))
    draws, _, law = draws_of()
    assert law == DiscreteLaplace(4.0)  # what is claimed
    assert chi_square_pvalue(draws, law) < 1e-6


def correlated(a, b):
    """Correlation in standard errors: beyond 5.5 four times in 10^8 for independent draws."""
    return abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(a.size) > 5.5


def test_p55_no_correlation_between_coordinates_or_calls(drawn):
    draws, uniforms, _ = drawn
    for lag in (1, 2, 3, 10, len(LEVELS)):
        assert not correlated(draws[:-lag], draws[lag:])
        assert not correlated(np.abs(draws[:-lag]), np.abs(draws[lag:]))
    assert not correlated(draws, uniforms)
    assert not correlated(np.abs(draws), np.abs(uniforms))
    first, second = (draws_of(size=90 * 90) for _ in range(2))
    assert not correlated(first[0], second[0])
    assert not correlated(first[1], second[1])
    assert correlated(draws[:-1], draws[1:] + draws[:-1])  # the test itself can fail


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
    analyses = {"m": dps.Marginals(["c", "b"])}
    return dps.plan(SCHEMA, analyses, budget=dps.PureDP(2e-9))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_p56_processes_draw_distinct_noise(method, small_plan, monkeypatch):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    monkeypatch.undo()
    here = dps.measure(small_plan, FRAME)  # so that a fork inherits a source in use
    with multiprocessing.get_context(method).Pool(2) as pool:
        there = pool.starmap(measuring.measure, [(small_plan, FRAME)] * 4, chunksize=1)
        pool.close()
        pool.join()
    assert distinct([here, *there])


def test_p56_threads_draw_distinct_noise(small_plan):
    with ThreadPoolExecutor(4) as pool:
        assert distinct(list(pool.map(lambda _: dps.measure(small_plan, FRAME), range(12))))


def test_p57_seeds_do_not_move_the_noise(small_plan):
    results = []
    for _ in range(3):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002  (the legacy global state is what is tested)
        results.append(dps.measure(small_plan, FRAME))
    assert distinct(results)


def test_p57_the_hash_seed_does_not_move_the_noise(small_plan, tmp_path):
    small_plan.save(tmp_path / "plan.json")
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    program = (
        "import dpstats as dps\n"
        "m = dps.measure(dps.Plan.load('plan.json'), 'rows.csv')\n"
        "print([b.sums.tolist() for b in m.measured])"
    )
    environment = os.environ | {
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(Path(dps.__file__).parents[1]),
    }
    outputs = [
        subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path,
                       capture_output=True, check=True, text=True).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert outputs[0].startswith("[[")
    assert outputs[0] != outputs[1]


REACHING = re.compile(r"seed|rng|random|noise|noisy|state|source|entropy|generator|uniform", re.I)


def public_callables():
    """Every public function, class and public method that `dps.__all__` leads to."""
    things = {name: getattr(dps, name) for name in dps.__all__}
    things |= {f"corrected.{n}": f for n, f in inspect.getmembers(corrected, inspect.isfunction)
               if f.__module__ == corrected.__name__ and not n.startswith("_")}  # fmt: skip
    for name, thing in things.items():
        if inspect.ismodule(thing):
            continue
        yield name, thing
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            for attribute, _ in inspect.getmembers(thing):
                method = inspect.getattr_static(thing, attribute)
                method = getattr(method, "__func__", method)
                if inspect.isfunction(method) and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", method


def test_p58_no_public_argument_reaches_the_noise():
    reaching = {
        (name, parameter)
        for name, thing in public_callables()
        if not (inspect.isclass(thing) and issubclass(thing, Exception))
        for parameter in inspect.signature(thing).parameters
        if REACHING.search(parameter)
    }
    # Candidate rows are drawn after the noise, from densities that are public or already noisy.
    drawing = {("Category.draw_inside", "rng"), ("Boolean.draw_inside", "rng"),
               ("Number.draw_inside", "rng"), ("Uniform.draw", "rng"),
               ("PerturbedHistogram.draw", "rng"), ("BernsteinKDE.draw", "rng"),
               # These two simulate a published law to calibrate a test.
               ("GoodnessOfFit", "seed"), ("Independence", "seed")}  # fmt: skip
    assert reaching - drawing == {("release", "rng"), ("synthesize", "rng")}
    assert list(inspect.signature(dps.measure).parameters) == ["plan", "data", "ledger", "progress"]


@pytest.mark.parametrize("rng", [0, 7, np.random.SeedSequence(1)], ids=str)
def test_p58_rng_repeats_rows_but_not_noise(rng, small_plan):
    results = [dps.release(small_plan, FRAME, rng=rng, m=50) for _ in range(3)]
    assert distinct([release.measurements for release in results])
    measured = results[0].measurements
    rows = [dps.synthesize(measured, rng=1, m=50).to_frame() for _ in range(2)]
    pd.testing.assert_frame_equal(*rows)
    assert noise_of(measured) == noise_of(results[0].measurements)


def fail(*args, **kwargs):
    raise OSError(f"no entropy near {SENTINEL}")


@pytest.mark.parametrize("part", ["backend", "uniforms", "short"])
def test_p59_a_failing_entropy_source_is_noticed_before_rows_are_read(
    part, monkeypatch, attempt, tmp_path
):
    path = tmp_path / "ledger"
    dps.Ledger.create(path, dps.PureDP(1))
    match part:
        case "backend":
            monkeypatch.setattr(noise, "_laplace", lambda scale: fail)
        case "uniforms":
            monkeypatch.setattr(secrets, "token_bytes", fail)
        case "short":
            monkeypatch.setattr(secrets, "token_bytes", lambda size: b"")
    with pytest.raises(dps.NoiseError, match="nothing was released") as caught:
        attempt(ledger=path)
    assert str(SENTINEL) not in str(caught.value)
    assert dps.Ledger.open(path).spent == 0


def test_p59_a_source_that_fails_later_releases_nothing(monkeypatch, small_plan, tmp_path):
    path = tmp_path / "ledger"
    dps.Ledger.create(path, dps.PureDP(1))
    real, calls = secrets.token_bytes, []

    def token_bytes(size):
        calls.append(size)
        return real(size) if len(calls) == 1 else fail()

    monkeypatch.setattr(secrets, "token_bytes", token_bytes)
    with pytest.raises(dps.NoiseError, match="nothing was released") as caught:
        dps.measure(small_plan, FRAME, ledger=path)
    assert caught.value.__context__ is None
    assert dps.Ledger.open(path).spent == small_plan.budget.total


def test_p60_a_missing_backend_has_no_fallback(monkeypatch, attempt, tmp_path):
    path = tmp_path / "ledger"
    dps.Ledger.create(path, dps.PureDP(1))
    monkeypatch.setitem(sys.modules, "opendp", None)
    with pytest.raises(dps.NoiseError, match=r'no fallback; pip install "opendp>=0\.16,<0\.17"'):
        attempt(ledger=path)
    assert dps.Ledger.open(path).spent == 0


def test_p61_planted_halved_sensitivity_fails_the_guard(monkeypatch):
    for kind in (Table, Indicator, dps.Moments):
        real = kind.sensitivity
        monkeypatch.setattr(
            kind,
            "sensitivity",
            lambda self, unit, real=real: Sensitivity(
                real(self, unit).l1 / 2, real(self, unit).l2_squared / 4
            ),
        )
    for name in ("cells", "monomials", "numbers", "reference and shares"):
        with pytest.raises(AssertionError, match="costs more than the budget"):
            guard(make_plan(name))


def test_p62_planted_double_epsilon_fails_the_guard(monkeypatch):
    real = dps.PureDP.multiplier
    monkeypatch.setattr(dps.PureDP, "multiplier", lambda *args: real(*args) / 2)
    with pytest.raises(dps.BudgetError, match="spends"):  # the plan recomputes its own cost
        make_plan("cells")
    monkeypatch.setattr(dps.Plan, "check", lambda self, n=None: None)
    for name in ("cells", "numbers", "shares of one block"):
        with pytest.raises(AssertionError, match="costs more than the budget"):
            guard(make_plan(name))


def test_p61_planted_halved_squared_sensitivity_fails_the_guard(monkeypatch):
    real = dps.ZCDP.price
    monkeypatch.setattr(dps.ZCDP, "price", lambda self, sensitivity: real(self, sensitivity) / 2)
    for name in ("cells", "monomials"):
        with pytest.raises(AssertionError, match="costs more than the budget"):
            guard(make_plan(name, kind=dps.ZCDP))


def test_p62_planted_smaller_scale_at_the_draw_fails_the_guard(monkeypatch):
    real = measuring.noise_scales
    monkeypatch.setattr(measuring, "noise_scales", lambda *args: real(*args) * 0.999)
    with pytest.raises(AssertionError, match="costs more than the budget"):
        guard(make_plan("monomials"))


def test_p63_planted_block_left_out_of_the_sensitivity_fails_the_guard(monkeypatch):
    real = dps.Family.sensitivity
    monkeypatch.setattr(
        dps.Family,
        "sensitivity",
        lambda self, unit: real(dps.Family(self.blocks[1:] or self.blocks), unit),
    )
    with pytest.raises(dps.BudgetError, match="spends"):
        make_plan("cells")
    monkeypatch.setattr(dps.Plan, "check", lambda self, n=None: None)
    with pytest.raises(AssertionError, match="costs more than the budget"):
        guard(make_plan("monomials"))


def test_p63_planted_reference_that_is_not_paid_for_fails_the_guard(monkeypatch):
    plan = make_plan("reference and shares")
    blocks = tuple(PlannedBlock(p.block, p.multiplier * Fraction(9, 10)) for p in plan.blocks)
    object.__setattr__(plan, "blocks", blocks)
    with pytest.raises(dps.BudgetError, match="edited by hand"):
        guard(plan)
    monkeypatch.setattr(dps.Plan, "check", lambda self, n=None: None)
    with pytest.raises(AssertionError, match="costs more than the budget"):
        guard(plan)


def test_p63_a_plan_file_that_repeats_functions_is_refused():
    plain = dps.plan(
        SCHEMA, {"m": asks(moments(["x", "y"]))}, budget=dps.PureDP(1)
    ).blocks[0].block.to_dict()  # fmt: skip
    assert block_from_dict(plain, SCHEMA) == moments(["x", "y"])
    x, y, a = ["x", None], ["y", None], ["c", 0]
    for terms in (
        [*plain["terms"], [x]],  # one function twice
        [*plain["terms"], [y, x]],  # a product in another order
        [[x, y, y]],
        [[["c", None]]],  # a category is not a number
        [[["c", 7]]],
        [[["x", 0]]],
        [[]],
        [],
    ):
        with pytest.raises(dps.RequestError, match="distinct terms"):
            block_from_dict(plain | {"terms": terms}, SCHEMA)
    for terms in ([[a, a]], [[a, ["c", 1]]]):
        with pytest.raises(dps.RequestError, match="distinct terms"):
            block_from_dict(
                {"kind": "moments", "numbers": [], "groups": ["c"], "terms": terms}, SCHEMA
            )
    with pytest.raises(dps.RequestError, match="distinct terms"):
        block_from_dict(
            {"kind": "moments", "numbers": ["x"], "groups": ["x"], "terms": [[x]]}, SCHEMA
        )


def test_p64_planted_shared_noise_fails_the_guard(monkeypatch):
    real = measuring.add_noise
    monkeypatch.setattr(
        measuring,
        "add_noise",
        lambda sums, scale, noise: sums + real(np.zeros(1, np.int64), scale, noise),
    )
    for name in ("cells", "numbers"):
        with pytest.raises(AssertionError, match="noise shared"):
            guard(make_plan(name))


def test_p64_planted_noise_shared_by_blocks_fails_the_guard(monkeypatch):
    real, kept = measuring.add_noise, {}

    def remembered(sums, scale, noise):
        key = (scale, sums.size)
        if key not in kept:
            kept[key] = real(np.zeros_like(sums), scale)
        return sums + kept[key]

    monkeypatch.setattr(measuring, "add_noise", remembered)
    with pytest.raises(AssertionError, match="noise shared"):
        guard(make_plan("monomials"))


def test_p64_planted_missing_noise_fails_the_guard(monkeypatch):
    real = measuring.add_noise

    def only_the_first(sums, scale, noise):
        noisy = real(sums, scale, noise)
        noisy[1:] = sums[1:]
        return noisy

    monkeypatch.setattr(measuring, "add_noise", only_the_first)
    with pytest.raises(AssertionError, match="a sum without noise"):
        guard(make_plan("cells"))


def test_p65_planted_floating_noise_is_refused_or_seen(monkeypatch):
    rng = np.random.default_rng(1)
    floats = lambda scale: lambda sums: (sums + rng.laplace(0, scale, sums.size)).tolist()  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(noise, "_laplace", floats)
        with pytest.raises(dps.NoiseError, match="nothing was released"):
            draws_of(size=100)
    # Behind the checks floats would be cut to integers: the law is then another one.
    monkeypatch.setattr(noise, "_opendp", lambda sums, scale, _: np.array(floats(scale)(sums)))
    draws, _, law = draws_of(size=200 * 200)
    assert chi_square_pvalue(draws, law) < 1e-6


def test_p66_planted_rounded_noise_is_seen(monkeypatch):
    rng = np.random.default_rng(1)
    monkeypatch.setattr(
        noise,
        "_opendp",
        lambda sums, scale, _: sums + np.rint(rng.laplace(0, scale, sums.size)).astype(np.int64),
    )
    draws, _, law = draws_of(epsilon=2, size=200 * 200)
    assert law == DiscreteLaplace(1.0)
    assert chi_square_pvalue(draws, law) < 1e-6


def test_p66_the_same_number_of_correct_draws_passes():
    draws, _, law = draws_of(epsilon=2, size=200 * 200)
    assert chi_square_pvalue(draws, law) > 1e-6


@pytest.mark.parametrize("budget", [dps.PureDP(1e-4), dps.ZCDP(1e-8)], ids=["laplace", "gaussian"])
def test_p67_the_exact_n_is_nowhere_under_add_remove(budget, tmp_path, caplog):
    """Noise of this size leaves it as it is once in 20,000 times."""
    rows = 48_611
    frame = pd.DataFrame({"c": np.resize(["u", "v"], rows)})
    schema = dps.Schema([dps.Category("c", ["u", "v", "w"])])
    analyses = {"t": dps.Proportion("c == 'u'"), "g": dps.GoodnessOfFit("c", [0.4, 0.4, 0.2])}
    plan = dps.plan(schema, analyses, budget=budget, unit="add_remove")
    with caplog.at_level("DEBUG"):
        release = dps.release(plan, frame, rng=0, m=50)
    release.save(tmp_path / "release.zip")
    with zipfile.ZipFile(tmp_path / "release.zip") as archive:
        texts = [archive.read(name).decode() for name in archive.namelist()]
    texts += [str(release), str(release.accuracy()), release.infer("t").summary(), caplog.text]
    texts += [release.infer("g").summary(), repr(pickle.loads(pickle.dumps(release)))]
    found = {int(number) for text in texts for number in re.findall(r"\d+", text)}
    assert rows not in found
    assert release.measurements.count.sums[0] != rows
    assert release.n == max(1, release.measurements.count.sums[0])


def test_p69_planted_printed_bernstein_scale_fails_the_guard(monkeypatch):
    """BL24 Algorithm 3 prints S(F) (k + 1), with S(F) the sensitivity at one lattice point."""

    def printed(self, unit):
        at_one_point = 1  # in units of the largest kernel value
        return Sensitivity(Fraction(at_one_point * (self.k + 1)), Fraction(self.k + 1))

    assert guard(make_plan("lattice")) > 0.9
    monkeypatch.setattr(KernelLattice, "sensitivity", printed)
    with pytest.raises(AssertionError, match="costs more than the budget"):
        guard(make_plan("lattice"))


def holds_state(things):
    """Whether a source of random numbers is among objects."""
    kinds = np.random.Generator | np.random.BitGenerator | np.random.RandomState | random.Random
    return any(isinstance(thing, kinds) for thing in things)


def test_p68_the_state_of_the_noise_is_not_stored(small_plan, reachable):
    release = dps.release(small_plan, FRAME, rng=np.random.default_rng(1), m=50)
    assert not holds_state(reachable(release))
    object.__setattr__(release.measurements, "planted", {"deep": [np.random.default_rng(1)]})
    assert holds_state(reachable(release))
