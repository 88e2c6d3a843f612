"""The Bernstein density: its operator, its mixture of Betas, its estimate and its sums."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.measured.measurements import NoisyBlock
from dpstats.privacy.noise import _noise_from
from dpstats.rows.bernstein import BernsteinDensity, BernsteinKDE, _bernstein, _iterated

UNIT = [dps.Number(f"x{j}", 0, 1, points=1025, edges=[0.25, 0.5, 0.75], missing=0.5)
        for j in range(4)]  # fmt: skip


def no_noise(scale, size):
    return np.zeros(size, np.int64)


def mixture(shape, seed=0):
    return BernsteinDensity(np.random.default_rng(seed).dirichlet(np.full(math.prod(shape), 0.2))
                            .reshape(shape))  # fmt: skip


# The operator


def exact_basis(k, ell, y):
    return math.comb(k, ell) * y**ell * (1 - y) ** (k - ell)


@pytest.mark.parametrize("order", [1, 5])
def test_coefficients_are_those_of_the_iterated_operator(order):
    """I - (I - B)^j applied to a polynomial, by its definition and in exact fractions."""
    k = 6
    values = [Fraction(v) for v in (3, -1, 4, 1, -5, 9, 2)]

    def bernstein(v):
        return lambda y: sum(v[ell] * exact_basis(k, ell, y) for ell in range(k + 1))

    lattice = [Fraction(i, k) for i in range(k + 1)]
    rest = [values]  # (I - B)^i f at the lattice points, i = 0, 1, ..
    for _ in range(order - 1):
        image = bernstein(rest[-1])
        rest.append([r - image(y) for r, y in zip(rest[-1], lattice, strict=True)])
    # I - (I - B)^j = sum_{i<j} B (I - B)^i
    by_definition = [sum(bernstein(v)(y) for v in rest) for y in lattice]
    coefficients = _iterated(k, order) @ np.array(values, float)
    ours = _bernstein(k, np.array(lattice, float)) @ coefficients
    np.testing.assert_allclose(ours, np.array(by_definition, float), rtol=1e-12, atol=1e-12)
    # and the formula as BL24 prints it, after Micchelli
    m = _bernstein(k, np.arange(k + 1) / k)
    printed = sum(
        math.comb(order, i) * (-1) ** (i - 1) * np.linalg.matrix_power(m, i - 1)
        for i in range(1, order + 1)
    )
    np.testing.assert_allclose(_iterated(k, order), printed, atol=1e-12)


# The mixture


@pytest.mark.parametrize(("shape", "points"), [((33,), 2000), ((13, 13), 150), ((7, 7, 7), 40)])
def test_pdf_is_a_mixture_of_betas_and_integrates_to_one(shape, points):
    density = mixture(shape)
    p, k = len(shape), shape[0] - 1
    middle = (np.arange(points) + 0.5) / points
    grid = np.stack(np.meshgrid(*[middle] * p, indexing="ij"), axis=-1).reshape(-1, p)
    assert np.mean(density.pdf(grid)) == pytest.approx(1, abs=2e-3)
    some = np.random.default_rng(1).random((30, p))
    expected = np.zeros(30)
    for ell in np.ndindex(shape):
        marginals = [stats.beta.pdf(some[:, j], a + 1, k - a + 1) for j, a in enumerate(ell)]
        expected += density.weights[ell] * np.prod(marginals, axis=0)
    np.testing.assert_allclose(density.pdf(some), expected, rtol=1e-9)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_samples_follow_the_pdf(p):
    """40,000 draws; each coordinate given the ones before it is uniform after its own cdf.

    Rosenblatt's transform: for a mixture, weights are updated by the densities of what is known.
    Kolmogorov-Smirnov at 1e-4 per coordinate, and independence of the coordinates.
    """
    k = 6
    density = mixture((k + 1,) * p, seed=3)
    y = density.sample(40_000, np.random.default_rng(0))
    ell = np.arange(k + 1)
    weights = np.broadcast_to(density.weights, (len(y), *density.weights.shape))
    uniforms = []
    for j in range(p):
        cdf = stats.beta.cdf(y[:, [j]], ell + 1, k - ell + 1)
        pdf = stats.beta.pdf(y[:, [j]], ell + 1, k - ell + 1)
        margin = weights.reshape(len(y), k + 1, -1).sum(axis=2)
        uniforms.append(np.sum(margin * cdf, axis=1) / margin.sum(axis=1))
        weights = np.einsum("ml...,ml->m...", weights, pdf)
    for u in uniforms:
        assert stats.kstest(u, "uniform").pvalue > 1e-4
    for a, b in itertools.pairwise(uniforms):
        table = np.histogram2d(a, b, bins=8, range=[[0, 1], [0, 1]])[0]
        assert stats.chi2_contingency(table).pvalue > 1e-4


# The estimate


def estimate(data, noise=None, epsilon=1, **options):
    """The density that a whole private measurement gives, for data in the unit cube."""
    n, p = data.shape
    schema = dps.Schema(UNIT[:p])
    plan = dps.plan(
        schema,
        {f"m{j}": dps.Proportion(f"x{j} < 0.5") for j in range(p)},
        budget=dps.PureDP(epsilon),
        n=n,
        reference=BernsteinKDE(**options),
    )
    frame = pd.DataFrame(data, columns=list(schema.names))
    if noise is None:
        measured = dps.measure(plan, frame)
    else:
        with _noise_from(noise):
            measured = dps.measure(plan, frame)
    return plan.reference.density(measured.reference)


@pytest.mark.parametrize("options", [{}, {"C": 30}, {"k": 4, "order": 1}])
@pytest.mark.parametrize("p", [1, 2])
def test_no_bias_at_the_faces(p, options):
    """Rows spread evenly, no noise: the density is flat up to the faces and corners.

    A kernel that is not reflected would have half the height on a face, a quarter in a corner.
    """
    steps = (np.arange(2000 if p == 1 else 120) + 0.5) / (2000 if p == 1 else 120)
    data = np.stack(np.meshgrid(*[steps] * p), axis=-1).reshape(-1, p)
    if options.get("C"):  # a bandwidth of .11 at p = 1, .74 of the largest one at p = 2
        options = {"C": 30 if p == 1 else 13}
    density = estimate(data, no_noise, **options)
    corners = np.stack(np.meshgrid(*[[0.0, 0.01, 0.5, 0.99, 1.0]] * p), axis=-1).reshape(-1, p)
    np.testing.assert_allclose(density.pdf(corners), 1, atol=0.03)


# The block of sums


@pytest.mark.parametrize("p", [1, 2, 3])
def test_coefficients_along_every_axis(p):
    """Clipped coefficients of noisy sums of every sign, by explicit loops over the lattice."""
    reference = BernsteinKDE(k=3, order=2)
    block = reference.block(dps.Schema(UNIT[:p]), 100)
    sums = np.random.default_rng(p).integers(-900, 1000, block.size)
    density = reference.density(NoisyBlock(block, np.ones(block.size), sums, np.zeros(block.size)))
    along = 2 * np.eye(4) - _bernstein(3, np.arange(4) / 3)  # sum_i C(2, i) (-1)^(i-1) M^(i-1)
    halved = [0.5, 1, 1, 0.5]
    expected = np.zeros(block.shape)
    for to in np.ndindex(block.shape):
        for value, point in zip(sums, np.ndindex(block.shape), strict=True):
            factors = [along[a, i] / halved[i] for a, i in zip(to, point, strict=True)]
            expected[to] += value * math.prod(factors)
    assert expected.min() < 0
    expected = np.clip(expected, 0, None)
    np.testing.assert_allclose(density.weights, expected / expected.sum(), atol=1e-12)


def test_bandwidth_and_lattice_come_from_public_numbers():
    schema = dps.Schema(UNIT)
    for p in (1, 2, 3, 4):
        block = BernsteinKDE(C=1.5).block(dps.Schema(UNIT[:p]), 1000)
        assert block.k == (32, 12, 6, 4)[p - 1]
        wanted = max(1.5 * (math.log(1000) / 1000) ** (1 / p), 1 / (2 * block.k))
        assert block.bandwidth == pytest.approx(wanted, rel=1e-12)
    assert BernsteinKDE(["x1"]).block(schema, 10**6).bandwidth == 1 / 64
    assert BernsteinKDE(["x2", "x0"], k=9).block(schema, 100).columns == (UNIT[0], UNIT[2])
    coarse = dps.Schema([dps.Number("x", 0, 4, points=5)])
    assert BernsteinKDE().block(coarse, 100).k == 4


def test_expected_noise_mass_is_what_noise_alone_gives():
    """200 measurements of no rows at all: the positive mass of noise is .91 of the estimate.

    The estimate takes coefficients as normal; sums of Laplace noises have a smaller positive part
    for their variance, a single one .89 of a normal's.
    """
    schema = dps.Schema(UNIT[:2])
    reference = BernsteinKDE(order=2)
    block = reference.block(schema, 1000)
    multiplier = dps.PureDP(1).multiplier(block.sensitivity("replace"), Fraction(1, 2))
    law = dps.PureDP(1).law(float(multiplier))
    scale = float(multiplier) * int(block.ranges[1][0])
    spread = _iterated(block.k, 2) / block.face_weights
    rng = np.random.default_rng(0)
    noise = rng.laplace(0, scale, (200, *block.shape))
    mass = np.clip(spread @ noise @ spread.T, 0, None).sum(axis=(1, 2)).mean()
    one_row = np.mean([spread @ t for t in block.tables], axis=(0, 2)).sum() ** 2
    rows = mass / one_row  # rows that weigh as much
    reference.check(block, math.ceil(rows / 0.87), law)
    with pytest.raises(RequestError, match="as much noise as data"):
        reference.check(block, math.floor(rows / 0.95), law)
