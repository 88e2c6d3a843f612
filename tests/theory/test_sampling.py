"""Sizes of the theorems: their numbers by hand, both directions, and what they promise."""

import itertools
import math

import numpy as np
import pytest

from dpstats.errors import RequestError
from dpstats.theory import HistogramSampling, KernelSampling, ReferenceSampling, UniformSampling

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


def test_the_printed_sizes():
    """BL24, Theorems B.1, III.1 with its corollary and IV.1, every term by itself."""
    sizes = UniformSampling(**BASE, cells=8).sizes(0.05)
    assert sizes.least_n["privacy"] == pytest.approx(20 * math.log(100) / (0.5 * 0.05))
    assert sizes.n == 3685
    assert sizes.k == 1843  # 400 * 4.60517
    assert sizes.m == 8 * 10 * 400 * 10
    assert sizes.sigma == pytest.approx(0.05 / math.log(100))
    assert (sizes.error, sizes.epsilon) == (0.4, 0.5)
    assert sizes.probability == pytest.approx(0.6)
    fewer = UniformSampling(**BASE, cells=8, sensitivity=2).sizes(0.05)
    assert fewer.n == fewer.k == 1843  # 2 instead of 20 leaves sampling

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

    sizes = KernelSampling(**BASE, columns=2, smallest=0.5, printed=True).sizes(0.05)
    assert sizes.least_n["reference"] == pytest.approx(216 * 2 / (0.5 * 6.283185) * 2.302585)
    assert sizes.m == math.ceil(2 * (1 + 14 / 3 * 0.5) * 10 * 4000)
    assert sizes.probability == pytest.approx(0.9 - 1 / sizes.n)


def test_the_corrected_sizes_of_histogram_and_kernel_density():
    histogram = HistogramSampling(**BASE, cells=8, smallest=0.05)
    log80 = 4.3820266
    assert histogram.sizes(0.05).least_n["reference"] == pytest.approx(32 * log80 / 0.05)
    assert histogram.sizes(0.05).probability == pytest.approx(1 - 6 * 0.1)
    kernel = KernelSampling(epsilon=1, gamma=0.1, functions=1, columns=1, smallest=0.5, lipschitz=1)
    assert (kernel.steps, kernel.bandwidth) == (36, pytest.approx(1 / 12))
    estimate = 72 * 9.6 * (1.5 + 0.5 / 18) * math.log(2 * 37 / 0.1) / 0.25
    noise = 12 * (36 + 14.4) * math.log(37 / 0.1) / 0.5
    assert kernel.sizes(0.05).least_n["reference"] == pytest.approx(max(estimate, noise))
    assert kernel.sizes(0.05).condition_number == pytest.approx(3 + 2 * 0.5)


def test_sizes_and_delta_are_inverse_and_least():
    """No fewer rows would do, and no smaller delta is afforded by n, k and m."""
    for theorem in THEOREMS:
        sizes = theorem.sizes(0.5)
        own, last = sizes.least_n.get("reference", 0), math.inf
        for n in (3_000, 20_000, 10**6, 10**8):
            delta = theorem.delta(n)
            assert delta <= last
            if math.isinf(delta):
                assert n < max(own, sizes.n)
                continue
            last, sizes = delta, theorem.sizes(delta)
            assert sizes.n <= n
            assert max(theorem.sizes(delta * (1 - 1e-6)).least_n.values()) > n * (1 + 1e-7)
            moved = theorem.sensitivity or 2 * theorem.functions
            assert moved / (sizes.n * sizes.sigma) <= theorem.epsilon * (1 + 1e-12)
            least = sizes.least_n["privacy"] * sizes.sigma
            assert moved / least == pytest.approx(theorem.epsilon)
            # sigma is as large as it may be: the largest noise passes delta in nearly gamma
            inside = (1 - math.exp(-delta / sizes.sigma)) ** theorem.functions
            assert 0.94 * theorem.gamma < 1 - inside <= theorem.gamma * (1 + 1e-9)
        assert last < 0.01
        n = 10**7
        assert theorem.sizes(theorem.delta(n, k=2_000)).k == 2_000
        by_candidates = theorem.delta(n, m=10**6)
        assert by_candidates > theorem.delta(n)
        assert theorem._candidates(by_candidates, n) == pytest.approx(10**6)
        assert math.isinf(theorem.delta(n, m=10))
        assert math.isinf(theorem.delta(1))


def test_what_is_refused():
    far = KernelSampling(**BASE, columns=300, smallest=0.1, lipschitz=3)
    for make, message in [
        (lambda: UniformSampling(**{**BASE, "epsilon": 0}, cells=2), "epsilon must be .* above 0"),
        (lambda: UniformSampling(**BASE, cells=2.5), "cells must be a whole number"),
        (lambda: UniformSampling(**BASE, cells=2, sensitivity=21), "at most 20, got 21"),
        (lambda: UniformSampling(**BASE, cells=2).sizes(0.6), "delta must be .* at most 0.5"),
        (lambda: ReferenceSampling(**BASE, condition_number=0.5), "must be a number of at least 1"),
        (lambda: far.sizes(0.1), "more rows or candidates than floating point holds"),
        (lambda: THEOREMS[-1].bandwidth, "the printed bandwidth"),
        (lambda: HistogramSampling(**BASE, cells=4, smallest=0.3), "at most 0.25, got 0.3"),
        (lambda: HistogramSampling(**BASE, cells=4, largest=0.2), "at least 0.25 and at most 1"),
        (lambda: HistogramSampling(**BASE, cells=4, sensitivity=2, printed=True), "the paper's"),
        (lambda: KernelSampling(**BASE, columns=2, smallest=0.2), "larger Lipschitz constant"),
    ]:
        with pytest.raises(RequestError, match=message):
            make()


# Where the printed paper needs care: counter-examples of the entries of errata.md


def lattice_kernels(p, k, h, rows):
    """Gaussian products exp(-|u - x|^2 / (2 h^2)) at the lattice, ((k + 1)^p, rows)."""
    points = np.array(list(itertools.product(np.arange(k + 1) / k, repeat=p)))
    distances = ((points[:, None] - np.asarray(rows)[None]) ** 2).sum(axis=2)
    return np.exp(-distances / (2 * h**2))


def test_1_the_noise_of_the_bernstein_mechanism_lacks_an_exponent():
    """With p = 2, k = 20, h = .1 it spends 2.4 eps; with (k + 1)^p in place of k + 1, at most 1."""
    for p, k, h, least in ((1, 20, 0.1, 0), (2, 20, 0.1, 2.3), (3, 12, 0.2, 25)):
        near, far = lattice_kernels(p, k, h, [[0.3] * p, [0.7] * p]).T
        moved = np.abs(near - far).sum()  # S(F), that of any two kernels, is at most one
        assert moved / (k + 1) > least
        assert moved <= (k + 1) ** p


def test_10_the_histogram_s_noise_is_not_the_noise_of_the_means():
    """At the printed n one of 16 cells is empty: log(1 - exp(-t) / 2) is concave in a count t."""
    about = {"epsilon": 1e-4, "gamma": 0.05, "functions": 1, "cells": 16}
    printed = HistogramSampling(**about, printed=True).sizes(0.24)
    positive = (1 - math.exp(-1e-4 * printed.n / 32) / 2) ** 16
    assert positive < 0.02 < printed.probability
    assert printed.condition_number < 2
    assert printed.error < 2
    corrected = HistogramSampling(**about).sizes(0.24)
    assert (1 - math.exp(-1e-4 * corrected.n / 32) / 2) ** 16 > 0.999
