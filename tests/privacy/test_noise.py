"""The noise: its law, its independence, and everything that must be refused."""

import math
import secrets
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

from dpstats.auditing.noise_source import fit_pvalue
from dpstats.errors import BudgetError, NoiseError
from dpstats.privacy import noise
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.noise import add_noise, draw_uniforms, is_private, scale_for

SENTINEL = 918273645
SECRET = np.array([SENTINEL, SENTINEL])


def zeros(d):
    return np.zeros(d, dtype=np.int64)


def refused(match, call, *given):
    """With no value and no other error in the error."""
    with pytest.raises(NoiseError, match=match) as caught:
        call(*given)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert str(SENTINEL) not in str(caught.value)


def test_p06_a_scale_of_zero_or_nonsense_never_reaches_the_backend(monkeypatch):
    monkeypatch.setattr(noise, "_laplace", lambda scale: pytest.fail("the backend was reached"))
    for scale in [0.0, 0, -1.0, math.nan, math.inf, 2.0**-21, 2.0**53, True, None, "1"]:
        refused(r"scale must be a float in \[2\*\*-20, 2\*\*52\]", add_noise, SECRET, scale)


def test_p52_sums_of_another_type_or_beyond_the_limit_are_refused_without_a_value():
    for sums in [
        [SENTINEL], SECRET[:0], np.array(SENTINEL), np.array([[SENTINEL]]),
        *(SECRET.astype(kind) for kind in ("i4", "u8", float, object, ">i8")),
        np.ma.array([SENTINEL], mask=[True]), SECRET.view(np.recarray),
    ]:  # fmt: skip
        refused("sums must be a plain", add_noise, sums, 1.0)
    for huge in [2**62 + SENTINEL, -(2**63)]:
        with pytest.raises(NoiseError, match=r"^a sum is beyond 2\*\*62; use a coarser grid$"):
            add_noise(np.array([0, huge]), 1.0)


def assert_no_wrap(sums, scale):
    """Noise is within 700 scales (probability 1 - e**-700) even at the ends of the range."""
    noisy = add_noise(sums, scale)
    for before, after in zip(sums.tolist(), noisy.tolist(), strict=True):
        assert abs(after - before) < 700 * scale  # in Python integers, which do not wrap


def test_p52_p53_sums_at_the_limit_never_wrap_and_a_planted_wrap_is_seen(monkeypatch):
    ends = np.array([2**62, -(2**62)] * 200)
    for scale in [1.0, 1e6, 2.0**52]:
        assert_no_wrap(ends, scale)
    # twice 2**62 wraps round to -2**63
    monkeypatch.setattr(noise, "_laplace", lambda scale: lambda sums: (2 * sums + 1).tolist())
    with pytest.raises(AssertionError):
        assert_no_wrap(ends, 1e6)


def failing(*args, **kwargs):
    raise ValueError(f"entropy failed on {SENTINEL}")


def test_p59_a_failing_backend_or_secure_source_releases_nothing(monkeypatch):
    for backend in [
        failing,
        lambda sums: None,
        lambda sums: sums.tolist()[:1],
        lambda sums: [float(value) for value in sums],
        lambda sums: [2**63] * sums.size,
        lambda sums: sums,
    ]:
        monkeypatch.setattr(noise, "_laplace", lambda scale, backend=backend: backend)
        refused("nothing was released", add_noise, SECRET, 1.0)
    for source in (failing, lambda size: b"short"):
        monkeypatch.setattr(secrets, "token_bytes", source)
        refused("secure random source failed", draw_uniforms, 3)


def test_a_backend_that_reads_the_scale_otherwise_is_refused(monkeypatch):
    assert add_noise(zeros(1), 1.0, "gaussian").shape == (1,)
    # half the scale; a variance for a standard deviation; a rounded scale
    for law, wrong in [("laplace", 0.5), ("gaussian", 2), ("gaussian", 1 - 1e-12)]:
        with monkeypatch.context() as patch:
            name = f"make_{law}"
            make = getattr(dp.m, name)
            other = lambda *given, scale, make=make, w=wrong: make(*given, scale=w * scale)  # noqa: E731
            patch.setattr(dp.m, name, other)
            refused("does not work", add_noise, zeros(1), 3.0, law)


def test_uniforms_fill_the_open_interval(monkeypatch):
    u = draw_uniforms(100_000)
    assert u.dtype == np.float64
    assert np.all(np.abs(u) < 0.5)
    # Kolmogorov-Smirnov: beyond 2.9 / sqrt(size) once in ten million runs.
    steps = np.arange(1, u.size + 1) / u.size
    assert np.abs(np.sort(u) + 0.5 - steps).max() < 2.9 / math.sqrt(u.size)
    for byte, end in [(b"\x00", -0.5), (b"\xff", 0.5)]:
        monkeypatch.setattr(secrets, "token_bytes", lambda size, byte=byte: byte * size)
        assert draw_uniforms(1)[0] == pytest.approx(end, abs=1e-15)
        assert draw_uniforms(1)[0] != end


def test_p02_scales_out_of_range_are_refused():
    for law, power in (("laplace", 1), ("gaussian", 2)):
        highest, lowest = Fraction(2**52) ** power, Fraction(1, 2**20) ** power
        assert (scale_for(highest, 1, law), scale_for(lowest, 1, law)) == (2.0**52, 2.0**-20)
        above = [(highest + Fraction(1, 10), "larger"), (Fraction(10**400), "larger")]
        below = [(lowest - Fraction(1, 2**90), "smaller"), (Fraction(1, 10**400), "smaller")]
        for multiplier, said in above + below:
            with pytest.raises(BudgetError, match=f"a {said} budget"):
                scale_for(multiplier, 1, law)
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


def test_the_seam_injects_noise_in_one_thread_and_says_so():
    assert is_private()
    with noise._noise_from(fixed(3)), ThreadPoolExecutor(1) as pool:
        assert not is_private()
        assert pool.submit(is_private).result()
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
    # noise that could wrap, or does not fit
    for source in [fixed(2**62), lambda _, size: zeros(size + 1), lambda _, size: np.zeros(size)]:
        with noise._noise_from(source), pytest.raises(NoiseError, match="injected source"):
            add_noise(np.array([2**62]), 1.0)
