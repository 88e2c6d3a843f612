"""The noise: its law, its independence, and everything that must be refused."""

import math
import secrets
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.auditing.noise_source import fit_pvalue
from dpstats.errors import BudgetError, NoiseError
from dpstats.privacy import noise
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.noise import add_noise, draw_uniforms, is_private, scale_for

SENTINEL = 918273645


def zeros(d):
    return np.zeros(d, dtype=np.int64)


@pytest.mark.parametrize(
    "scale", [0.0, 0, -1.0, math.nan, math.inf, 2.0**-21, 2.0**53, True, None, "1"], ids=repr
)
def test_p06_a_scale_of_zero_or_nonsense_never_reaches_the_backend(scale, monkeypatch):
    monkeypatch.setattr(noise, "_laplace", lambda scale: pytest.fail("the backend was reached"))
    with pytest.raises(NoiseError, match=r"scale must be a float in \[2\*\*-20, 2\*\*52\]"):
        add_noise(np.array([SENTINEL]), scale)


class Subclass(np.ndarray):
    pass


def test_sums_of_another_type_are_refused_without_a_value():
    of_types = [np.array([SENTINEL], dtype=kind) for kind in ("i4", "u8", float, object, ">i8")]
    for sums in [
        [SENTINEL], np.array([], dtype=np.int64), np.array(SENTINEL), np.array([[SENTINEL]]),
        *of_types, np.ma.array([SENTINEL], mask=[True]), np.array([SENTINEL]).view(Subclass),
    ]:  # fmt: skip
        with pytest.raises(NoiseError, match="sums must be a plain") as caught:
            add_noise(sums, 1.0)
        assert str(SENTINEL) not in str(caught.value)


def test_p52_sums_beyond_the_limit_are_refused_without_a_value():
    for huge in [2**62 + 1, -(2**63)]:
        with pytest.raises(NoiseError, match=r"beyond 2\*\*62") as caught:
            add_noise(np.array([0, huge]), 1.0)
        assert str(abs(huge)) not in str(caught.value)


def assert_no_wrap(sums, scale):
    """Noise is within 700 scales (probability 1 - e**-700) even at the ends of the range."""
    noisy = add_noise(sums, scale)
    for before, after in zip(sums.tolist(), noisy.tolist(), strict=True):
        assert abs(after - before) < 700 * scale  # in Python integers, which do not wrap


ENDS = np.array([2**62, -(2**62)] * 200)


def test_p52_sums_at_the_limit_never_wrap():
    for scale in [1.0, 1e6, 2.0**52]:
        assert_no_wrap(ENDS, scale)


def test_p53_a_planted_wrap_is_seen(monkeypatch):
    def wrapping(scale):
        return lambda sums: (2 * sums + 1).tolist()  # twice 2**62 wraps round to -2**63

    monkeypatch.setattr(noise, "_laplace", wrapping)
    with pytest.raises(AssertionError):
        assert_no_wrap(ENDS, 1e6)


def assert_clean(error):
    assert error.__cause__ is None
    assert error.__context__ is None
    assert str(SENTINEL) not in str(error)


def failing(message):
    def fail(*args, **kwargs):
        raise ValueError(message)

    return fail


@pytest.mark.parametrize(
    "backend",
    [
        failing(f"entropy failed on {SENTINEL}"),
        lambda sums: None,
        lambda sums: sums.tolist()[:1],
        lambda sums: [float(value) for value in sums],
        lambda sums: [2**63] * sums.size,
        lambda sums: sums,
    ],
)
def test_p59_a_failing_backend_releases_nothing(backend, monkeypatch):
    monkeypatch.setattr(noise, "_laplace", lambda scale: backend)
    with pytest.raises(NoiseError, match="nothing was released") as caught:
        add_noise(np.array([SENTINEL, SENTINEL]), 1.0)
    assert_clean(caught.value)


@pytest.mark.parametrize("broken", [failing("no entropy"), lambda size: b"short"])
def test_p59_a_failing_secure_source_releases_nothing(broken, monkeypatch):
    monkeypatch.setattr(secrets, "token_bytes", broken)
    with pytest.raises(NoiseError, match="secure random source failed") as caught:
        draw_uniforms(3)
    assert_clean(caught.value)


def test_a_backend_that_reads_the_scale_otherwise_is_refused(monkeypatch):
    import opendp.prelude as dp

    real = dp.m.make_laplace
    monkeypatch.setattr(dp.m, "make_laplace", lambda *args, scale: real(*args, scale=scale / 2))
    with pytest.raises(NoiseError, match="does not work"):
        add_noise(zeros(1), 1.0)
    real_gaussian = dp.m.make_gaussian
    assert add_noise(zeros(1), 1.0, "gaussian").shape == (1,)
    for wrong in (2, 1 - 1e-12):  # a variance for a standard deviation, or a rounded scale
        monkeypatch.setattr(
            dp.m,
            "make_gaussian",
            lambda *args, scale, w=wrong: real_gaussian(*args, scale=w * scale),
        )
        with pytest.raises(NoiseError, match="does not work"):
            add_noise(zeros(1), 3.0, "gaussian")


def test_uniforms_fill_the_open_interval():
    u = draw_uniforms(100_000)
    assert u.dtype == np.float64
    assert np.all(np.abs(u) < 0.5)
    # Kolmogorov-Smirnov: beyond 2.9 / sqrt(size) once in ten million runs.
    steps = np.arange(1, u.size + 1) / u.size
    assert np.abs(np.sort(u) + 0.5 - steps).max() < 2.9 / math.sqrt(u.size)


@pytest.mark.parametrize(("byte", "end"), [(b"\x00", -0.5), (b"\xff", 0.5)])
def test_uniforms_never_reach_the_ends(byte, end, monkeypatch):
    monkeypatch.setattr(secrets, "token_bytes", lambda size: byte * size)
    assert draw_uniforms(1)[0] == pytest.approx(end, abs=1e-15)
    assert draw_uniforms(1)[0] != end


@given(st.fractions(Fraction(1, 10**4), 10**9), st.integers(1, 10**6))
@settings(max_examples=30)
def test_p03_scale_is_the_smallest_float_that_suffices(multiplier, bound):
    scale = scale_for(multiplier, bound)
    assert Fraction(scale) >= multiplier * bound
    assert Fraction(math.nextafter(scale, 0)) < multiplier * bound


@given(st.fractions(Fraction(1, 10**6), 10**12), st.integers(1, 10**6))
@settings(max_examples=30)
def test_p03_a_gaussian_scale_is_the_smallest_float_whose_square_suffices(multiplier, bound):
    scale = scale_for(multiplier, bound, "gaussian")
    assert Fraction(scale) ** 2 >= multiplier * bound**2
    assert Fraction(math.nextafter(scale, 0)) ** 2 < multiplier * bound**2


def test_p02_scales_out_of_range_are_refused():
    for law, power in (("laplace", 1), ("gaussian", 2)):
        highest, lowest = Fraction(2**52) ** power, Fraction(1, 2**20) ** power
        assert scale_for(highest, 1, law) == 2.0**52
        assert scale_for(lowest, 1, law) == 2.0**-20
        for above in (highest + Fraction(1, 10), Fraction(10**400)):
            with pytest.raises(BudgetError, match="a larger budget"):
                scale_for(above, 1, law)
        for below in (lowest - Fraction(1, 2**90), Fraction(1, 10**400)):
            with pytest.raises(BudgetError, match="use a smaller budget"):
                scale_for(below, 1, law)
    for multiplier, bound in [(0, 1), (0.5, 1), (True, 1), (Fraction(1), 0), (Fraction(1), 1.0)]:
        with pytest.raises(BudgetError):
            scale_for(multiplier, bound)


def test_p54_the_gaussian_sampler_follows_its_exact_law():
    drawn = add_noise(zeros(40_000), 0.6, "gaussian")
    assert fit_pvalue(drawn, DiscreteGaussian(0.6)) > 1e-6
    scale, size = 1e5 + 1 / 3, 20_000
    drawn, ranks = add_noise(zeros(size), scale, "gaussian"), np.arange(1, size + 1) / size
    gap = np.abs(DiscreteGaussian(scale).cdf(np.sort(drawn)) - ranks).max()
    assert gap < 2.9 / math.sqrt(size) + 1e-5  # beyond it once in ten million runs


def fixed(value):
    return lambda scale, size: np.full(size, value, dtype=np.int64)


def test_the_seam_injects_noise_and_says_so():
    assert is_private()
    with noise._noise_from(fixed(3)):
        assert not is_private()
        assert add_noise(np.array([1, -1]), 1.0).tolist() == [4, 2]
        assert draw_uniforms(2).tolist() == [0, 0]
        source = fixed(5)
        source.uniforms = lambda d: np.full(d, 0.25)
        with noise._noise_from(source):
            assert add_noise(np.array([0]), 1.0).tolist() == [5]
            assert draw_uniforms(2).tolist() == [0.25, 0.25]
        assert add_noise(np.array([0]), 1.0).tolist() == [3]
    with pytest.raises(ZeroDivisionError), noise._noise_from(fixed(3)):
        _ = 1 / 0
    assert is_private()


def test_the_seam_does_not_reach_other_threads():
    with noise._noise_from(fixed(3)), ThreadPoolExecutor(1) as pool:
        assert pool.submit(is_private).result()


def test_the_seam_refuses_noise_that_could_wrap_or_does_not_fit():
    too_many, floats = (lambda scale, size: zeros(size + 1)), (lambda scale, size: np.zeros(size))
    for source in [fixed(2**62), too_many, floats]:
        with noise._noise_from(source), pytest.raises(NoiseError, match="injected source"):
            add_noise(np.array([2**62]), 1.0)
