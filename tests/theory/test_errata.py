"""Where the printed paper needs care: counter-examples and checks of entries of errata.md.

Names of tests begin with the number of the entry.
"""

import itertools
import math

import numpy as np

from dpstats.theory import HistogramSampling, KernelSampling


def lattice_kernels(p, k, h, rows):
    """Gaussian products exp(-|u - x|^2 / (2 h^2)) at the lattice, ((k + 1)^p, rows)."""
    points = np.array(list(itertools.product(np.arange(k + 1) / k, repeat=p)))
    distances = ((points[:, None] - np.asarray(rows)[None]) ** 2).sum(axis=2)
    return np.exp(-distances / (2 * h**2))


def spent(p, k, h):
    """Epsilons that noise of scale S(F) (k + 1) / eps on the lattice spends, one row replaced.

    S(F), that of any two kernels, is one: both are between 0 and 1.
    """
    near, far = lattice_kernels(p, k, h, [[0.3] * p, [0.7] * p]).T
    return np.abs(near - far).sum() / (k + 1)


def test_1_the_noise_of_the_bernstein_mechanism_lacks_an_exponent():
    """With p = 2, k = 20, h = .1 it spends 2.4 eps; with (k + 1)^p in place of k + 1, at most 1."""
    assert spent(1, 20, 0.1) <= 1
    assert spent(2, 20, 0.1) > 2.3
    assert spent(3, 12, 0.2) > 25
    for p, k, h in ((2, 20, 0.1), (3, 12, 0.2)):
        assert spent(p, k, h) * (k + 1) / (k + 1) ** p <= 1


def test_2_the_sensitivity_of_a_kernel_estimate_has_h_to_the_power_p():
    """It moves by more than 1 / (n h (2 pi)^(p/2)), and by at most that with h^p."""
    p, h, n = 2, 0.1, 50
    near, far = lattice_kernels(p, 10, h, [[0.2, 0.2], [0.8, 0.8]]).T
    moved = np.abs(near - far).max() / (n * h**p * (2 * math.pi) ** (p / 2))
    printed = 1 / (n * h * (2 * math.pi) ** (p / 2))
    assert moved > 9 * printed
    assert moved <= 1 / (n * h**p * (2 * math.pi) ** (p / 2))


def test_6_the_printed_bandwidth_needs_rows_exponential_in_the_printed_number():
    """At the printed n, even with C = 1, the proof's own condition fails; n h^p is log n."""
    theorem = KernelSampling(epsilon=1, gamma=0.05, functions=1, columns=2, printed=True)
    asked = theorem.sizes(0.5).least_n["reference"]
    n = math.ceil(asked)
    h = (math.log(n) / n) ** 0.5
    assert n < asked / h  # Theorem D.2 as cited, 1 / h
    assert n < asked / h**2  # and with the sensitivity of entry 2
    assert math.log(10**11) < asked < math.log(10**12)  # n h^p is log n


def test_10_the_histogram_s_noise_is_not_the_noise_of_the_means():
    """16 cells at the printed n and a small epsilon: some cell is empty, so K is infinite.

    log(1 - exp(-t) / 2) is concave in t and counts sum to n, so all cells are positive with
    probability at most (1 - exp(-eps n / (2 |Omega|)) / 2)^|Omega|.
    """
    about = {"epsilon": 1e-4, "gamma": 0.05, "functions": 1, "cells": 16}
    printed = HistogramSampling(**about, printed=True).sizes(0.24)
    positive = (1 - math.exp(-1e-4 * printed.n / 32) / 2) ** 16
    assert positive < 0.02 < printed.probability
    assert printed.condition_number < 2
    assert printed.error < 2
    corrected = HistogramSampling(**about).sizes(0.24)
    assert (1 - math.exp(-1e-4 * corrected.n / 32) / 2) ** 16 > 0.999
