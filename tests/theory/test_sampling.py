"""Sizes of the theorems: their numbers by hand, both directions, and what they promise."""

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import linprog

from dpstats.errors import RequestError
from dpstats.theory import HistogramSampling, KernelSampling, ReferenceSampling, UniformSampling
from dpstats.theory.sampling import FACES, PEAK

BASE = {"epsilon": 0.5, "gamma": 0.1, "functions": 10}
THEOREMS = [
    ReferenceSampling(**BASE, condition_number=3),
    UniformSampling(**BASE, cells=8),
    UniformSampling(**BASE, cells=8, sensitivity=2),
    HistogramSampling(**BASE, cells=8),
    HistogramSampling(**BASE, cells=8, smallest=0.05, largest=0.3),
    HistogramSampling(**BASE, cells=8, printed=True),
    KernelSampling(**BASE, columns=2),
    KernelSampling(**BASE, columns=1, smallest=0.5, lipschitz=1),
    KernelSampling(**BASE, columns=2, printed=True),
]
# Sizes


def test_the_printed_sizes_of_uniform_sampling():
    """BL24, Theorem B.1, with log(10 / .1) = 4.60517."""
    sizes = UniformSampling(**BASE, cells=8).sizes(0.05)
    assert sizes.least_n["privacy"] == pytest.approx(20 * 4.60517 / (0.5 * 0.05), rel=1e-5)
    assert sizes.n == 3685
    assert sizes.k == 1843  # 400 * 4.60517
    assert sizes.m == 8 * 10 * 400 * 10
    assert sizes.sigma == pytest.approx(0.05 / 4.60517, rel=1e-5)
    assert (sizes.error, sizes.epsilon) == (0.4, 0.5)
    assert sizes.probability == pytest.approx(0.6)
    fewer = UniformSampling(**BASE, cells=8, sensitivity=2).sizes(0.05)
    assert fewer.n == fewer.k == 1843  # 2 instead of 20 leaves sampling


def test_the_printed_sizes_of_the_histogram():
    """BL24, Theorem III.1 and its corollary, every term by itself."""
    theorem = HistogramSampling(**BASE, cells=8, smallest=0.05, largest=0.3, printed=True)
    sizes = theorem.sizes(0.05)
    filled = 8 / 0.0025 * (8 + 2 * 2.302585)
    noise = 8 * 0.05 * 8 * (1 + 0.3 * 8) * 2.0794415 / (0.05 * 0.1 * math.log(200))
    assert sizes.least_n["reference"] == pytest.approx(max(filled, noise), rel=1e-6)
    first = 1 + 57 / 16 * (math.sqrt(2 * 2.302585 / sizes.n) + math.sqrt(8 / sizes.n))
    second = 1 + 57 / 8 * 0.05 * 8 * 3.4 * 2.0794415 / (0.1 * sizes.n * math.log(200))
    assert sizes.condition_number == pytest.approx(math.sqrt(first * second), rel=1e-6)
    assert sizes.m == math.ceil(2 * sizes.condition_number * 10 * 400 * 10)
    assert sizes.probability == pytest.approx(0.7)
    corollary = HistogramSampling(**BASE, cells=8, printed=True).sizes(0.05)
    assert corollary.least_n["reference"] == pytest.approx(8 * 512 + 16 * 64 * 2.302585, rel=1e-6)
    many = HistogramSampling(epsilon=1, gamma=1e-4, functions=1, cells=8, printed=True)
    third = 16 * 0.5 * 64 * 2.0794415 / (1e-4 * math.log(2))
    assert many.sizes(0.5).least_n["reference"] == pytest.approx(third, rel=1e-6)


def test_the_printed_sizes_of_the_kernel_density():
    """BL24, Theorem IV.1: (3 / .5)^3 * 2 / (.5 * 2 pi) * log 10."""
    theorem = KernelSampling(**BASE, columns=2, smallest=0.5, printed=True)
    sizes = theorem.sizes(0.05)
    assert sizes.least_n["reference"] == pytest.approx(216 * 2 / (0.5 * 6.283185) * 2.302585)
    assert sizes.m == math.ceil(2 * (1 + 14 / 3 * 0.5) * 10 * 4000)
    assert sizes.probability == pytest.approx(0.9 - 1 / sizes.n)


def test_the_corrected_sizes_of_histogram_and_kernel_density():
    histogram = HistogramSampling(**BASE, cells=8, smallest=0.05)
    log80 = 4.3820266
    assert histogram.sizes(0.05).least_n["reference"] == pytest.approx(32 * log80 / 0.05)
    rough = HistogramSampling(**{**BASE, "epsilon": 0.1}, cells=8, smallest=0.05)
    assert rough.sizes(0.05).least_n["reference"] == pytest.approx(16 * log80 / (0.1 * 0.05))
    kernel = KernelSampling(epsilon=1, gamma=0.1, functions=1, columns=1, smallest=0.5, lipschitz=1)
    assert (kernel.steps, kernel.bandwidth) == (36, pytest.approx(1 / 12))
    estimate = 72 * 9.6 * (1.5 + 0.5 / 18) * math.log(2 * 37 / 0.1) / 0.25
    noise = 12 * (36 + 14.4) * math.log(37 / 0.1) / 0.5
    assert kernel.sizes(0.05).least_n["reference"] == pytest.approx(max(estimate, noise))
    small = KernelSampling(
        epsilon=0.01, gamma=0.1, functions=1, columns=1, smallest=0.5, lipschitz=1
    )
    assert small.sizes(0.05).least_n["reference"] == pytest.approx(100 * noise)


def test_the_noise_is_private_and_no_less_rows_would_do():
    for theorem in THEOREMS:
        for delta in (0.01, 0.1, 0.5):
            sizes = theorem.sizes(delta)
            moved = theorem.sensitivity or 2 * theorem.functions
            least = sizes.least_n["privacy"]
            assert moved / (sizes.n * sizes.sigma) <= theorem.epsilon * (1 + 1e-12)
            assert moved / (least * sizes.sigma) == pytest.approx(theorem.epsilon)


# Backwards


def test_the_delta_that_n_affords_is_the_inverse():
    for theorem in THEOREMS:
        own = theorem.sizes(0.5).least_n.get("reference", 0)
        last = math.inf
        for n in (3_000, 20_000, 10**6, 10**8):
            delta = theorem.delta(n)
            assert delta <= last
            if math.isinf(delta):
                assert n < max(own, theorem.sizes(0.5).n)
                continue
            last = delta
            assert theorem.sizes(delta).n <= n
            assert max(theorem.sizes(delta * (1 - 1e-6)).least_n.values()) > n * (1 + 1e-7)
        assert last < 0.01


def test_k_and_m_limit_what_n_affords():
    for theorem in THEOREMS:
        n = 10**7
        free = theorem.delta(n)
        by_rows = theorem.delta(n, k=2_000)
        assert theorem.sizes(by_rows).k == 2_000
        by_candidates = theorem.delta(n, m=10**6)
        assert by_candidates > free
        assert theorem._candidates(by_candidates, n) == pytest.approx(10**6)
        assert math.isinf(theorem.delta(n, m=10))
        assert math.isinf(theorem.delta(1))


# What they promise


def test_the_promise_of_uniform_sampling_holds_and_no_event_is_claimed_too_dearly():
    """Algorithm 1 on {0, 1}^2 at the theorem's sizes, 30 runs: 8 delta is never exceeded.

    sigma is as large as it may be: the largest noise exceeds delta in nearly gamma of all runs.
    """
    cells = np.array([[a, b, a * b] for a in (0, 1) for b in (0, 1)], dtype=float)
    theorem = UniformSampling(epsilon=1, gamma=0.1, functions=3, cells=4)
    delta, rng = 0.05, np.random.default_rng(1)
    sizes = theorem.sizes(delta)
    errors = []
    for _ in range(30):
        nu = rng.dirichlet(np.ones(4))
        truth = rng.multinomial(sizes.n, nu) @ cells / sizes.n
        noisy = truth + rng.laplace(0, sizes.sigma, 3)
        seen = rng.multinomial(sizes.m, np.full(4, 0.25)) > 0
        points = cells[seen].T
        ones = np.ones((3, 1))
        program = linprog(
            [*np.zeros(points.shape[1]), 1],
            A_ub=np.vstack([np.hstack([points, -ones]), np.hstack([-points, -ones])]),
            b_ub=[*noisy, *-noisy],
            A_eq=[[*np.ones(points.shape[1]), 0]],
            b_eq=[1],
        )
        weights = np.clip(program.x[:-1], 0, None)
        rows = rng.multinomial(sizes.k, weights / weights.sum())
        errors.append(np.abs(points @ rows / sizes.k - truth).max())
    assert max(errors) <= sizes.error
    outside = 1 - (1 - math.exp(-delta / sizes.sigma)) ** 3
    assert 0.9 * 0.1 < outside <= 0.1


def test_no_size_is_below_what_any_method_needs():
    """Lower bounds, for functions among which is the +-1 indicator of a cell.

    Rows that are all f = 1, or all f = -1, are n replacements from each other: outputs that are
    accurate for one are not for the other, so 1 - 4 gamma <= exp(n eps) 4 gamma. And a cell that
    holds all rows must be among m uniform candidates.
    """
    for theorem in THEOREMS:
        gamma = theorem.gamma
        for delta in (0.02, 0.12):
            sizes = theorem.sizes(delta)
            assert sizes.n >= math.log((1 - 4 * gamma) / (4 * gamma)) / theorem.epsilon
            if isinstance(theorem, UniformSampling):
                missed = math.log(1 / (4 * gamma)) / -math.log1p(-1 / theorem.cells)
                assert sizes.m >= missed


def condition_numbers(nu, n, epsilon, runs, rng):
    """Of nu and its perturbed histogram, (runs,)."""
    counts = rng.multinomial(n, nu, size=runs) + rng.laplace(0, 2 / epsilon, (runs, len(nu)))
    clipped = np.clip(counts, 0, None)
    with np.errstate(divide="ignore"):
        return (nu**2 / (clipped / clipped.sum(axis=1, keepdims=True))).sum(axis=1)


def test_the_condition_number_at_the_edge_of_its_events():
    """A cell with 3/4 of its rows and noise of -1/8 of them, the others with noise of +1/8."""
    cells = 10_000
    counts = np.full(cells, 1 + 0.25 / (cells - 1)) / cells
    noise = np.full(cells, 1 / 8) / cells
    counts[0], noise[0] = 0.75 / cells, -noise[0]
    noisy = counts + noise
    theorem = HistogramSampling(**BASE, cells=cells)
    largest = noisy.sum() / noisy[0] / cells  # of dnu/dmu
    assert largest == pytest.approx(theorem.sizes(0.5).condition_number, rel=1e-3)
    log, tau1 = math.log(cells / BASE["gamma"]), 1 / cells
    n = theorem.sizes(0.5).least_n["reference"]
    assert cells * math.exp(-n * tau1 / 32) <= BASE["gamma"] * (
        1 + 1e-9
    )  # Chernoff, a quarter less
    assert 2 / BASE["epsilon"] * log / n <= tau1 / 8 * (1 + 1e-9)


def test_the_condition_number_of_a_perturbed_histogram():
    """At the least n of the corrected theorem, 2,000 runs; at a fiftieth of it the bound fails."""
    for epsilon in [0.05, 5.0]:
        rng, gamma = np.random.default_rng(2), 0.1
        for nu in (np.full(10, 0.1), np.array([0.02] * 9 + [0.82])):
            theorem = HistogramSampling(
                epsilon=epsilon, gamma=gamma, functions=1, cells=10, smallest=nu.min()
            )
            n = math.ceil(theorem.sizes(0.5).least_n["reference"])
            found = condition_numbers(nu, n, epsilon, 2_000, rng)
            assert (found > theorem.sizes(0.5).condition_number).mean() <= 2 * gamma
            few = condition_numbers(nu, n // 50, epsilon, 2_000, rng)
            assert (few > theorem.sizes(0.5).condition_number).mean() > 2 * gamma


def folded(points, rows, h):
    """Density of x + h U folded into [0, 1], at rows; points (..., 1)."""
    images = [sign * rows + 2 * m for m in range(-3, 4) for sign in (1, -1)]
    normal = sum(np.exp(-0.5 * ((points - image) / h) ** 2) for image in images)
    return normal / (h * math.sqrt(2 * math.pi))


def test_peak_and_row_of_a_folded_kernel():
    """A kernel's largest value and the largest sum of a row over the lattice, by brute force."""
    for h in [0.5, 0.3, 0.1, 0.02]:
        for k in [1, 4, 37]:
            rows = np.linspace(0, 1, 401)
            values = folded(np.linspace(0, 1, 401)[:, None], rows, h)
            np.testing.assert_allclose(trapezoid(values, rows, axis=1), 1, atol=1e-3)
            assert 0.99 * PEAK / h < values.max() <= PEAK / h
            lattice = folded((np.arange(k + 1) / k)[:, None], rows, h).sum(axis=0)
            assert lattice.max() <= k + FACES / h


def test_the_condition_number_of_a_bernstein_density():
    """Density 1/2 + x on [0, 1], 40 runs at the least n: every one within 2 tau / 3."""
    rng, gamma, tau = np.random.default_rng(3), 0.1, 0.5
    theorem = KernelSampling(
        epsilon=0.02, gamma=gamma, functions=1, columns=1, smallest=tau, lipschitz=1
    )
    h, k = theorem.bandwidth, theorem.steps
    n = math.ceil(theorem.sizes(0.5).least_n["reference"])
    y = np.linspace(0, 1, 101)
    basis = np.array([math.comb(k, i) * y**i * (1 - y) ** (k - i) for i in range(k + 1)])
    lattice, nu = (np.arange(k + 1) / k)[:, None], 0.5 + y
    positions = np.linspace(0, 1, 2001)
    table = folded(lattice, positions, h)
    failures = 0
    for _ in range(40):
        rows = (np.sqrt(1 + 8 * rng.random(n)) - 1) / 2
        counts = np.bincount(np.rint(rows * 2000).astype(int), minlength=2001)
        estimate = table @ counts / n
        estimate += rng.laplace(0, 2 * (k + 1.2 / h) / (n * theorem.epsilon), k + 1)
        density = np.clip(estimate, 0, None) @ basis
        number = trapezoid(nu**2 / density, y) * trapezoid(density, y)
        failures += (np.abs(density - nu) > 2 * tau / 3).any()
        assert number <= theorem.sizes(0.5).condition_number
    assert failures <= 40 * 2 * gamma


def test_what_is_beyond_all_floats_promises_nothing():
    assert math.isinf(FAR.delta(10**9))


# Errors

FAR = KernelSampling(**BASE, columns=300, smallest=0.1, lipschitz=3)


def test_what_is_refused():
    for make, message in [
        (lambda: UniformSampling(**{**BASE, "epsilon": 0}, cells=2), "epsilon must be .* above 0"),
        (lambda: UniformSampling(**{**BASE, "functions": 0}, cells=2), "functions must be a whole"),
        (lambda: UniformSampling(**BASE, cells=2.5), "cells must be a whole number"),
        (lambda: UniformSampling(**BASE, cells=2, sensitivity=21), "at most 20, got 21"),
        (lambda: UniformSampling(**BASE, cells=2).sizes(0.6), "delta must be .* at most 0.5"),
        (lambda: UniformSampling(**BASE, cells=2).sizes(True), "delta must be"),
        (lambda: UniformSampling(**BASE, cells=2).delta(10.0), "n must be a whole number"),
        (
            lambda: ReferenceSampling(**BASE, condition_number=0.5),
            "condition_number must be a number of at least 1, got 0.5",
        ),
        (
            lambda: UniformSampling(**BASE, cells=4, sensitivity=2, printed=True),
            "printed=True takes the paper's sensitivity",
        ),
        (lambda: FAR.sizes(0.1), "more rows or candidates than floating point holds"),
        (lambda: UniformSampling(**BASE, cells=10**400).sizes(0.1), "floating point holds"),
        (
            lambda: KernelSampling(**BASE, columns=2, printed=True).bandwidth,
            "the printed bandwidth, .* constants that the paper does not name",
        ),
        (lambda: KernelSampling(**BASE, columns=2, printed=True).steps, "the printed lattice has"),
        (lambda: HistogramSampling(**BASE, cells=4, smallest=0.3), "at most 0.25, got 0.3"),
        (lambda: HistogramSampling(**BASE, cells=4, largest=0.2), "at least 0.25 and at most 1"),
        (
            lambda: HistogramSampling(**BASE, cells=4, sensitivity=2, printed=True),
            "printed=True takes the paper's sensitivity",
        ),
        (lambda: KernelSampling(**BASE, columns=2, smallest=0.2), "larger Lipschitz constant"),
        (lambda: KernelSampling(**BASE, columns=2, lipschitz="1"), "lipschitz must be a number"),
    ]:
        with pytest.raises(RequestError, match=message):
            make()
