import numpy as np
import pytest


class NoNoise:
    """The law of 0, for comparison with the binomial itself."""

    lattice = True
    invertible = True
    gaussian = False
    variance = 0.0

    def pmf(self, z):
        return (np.asarray(z) == 0).astype(float)

    def log_characteristic(self, t):
        return np.zeros_like(t)

    def smoothed_cdf(self, t):
        return np.clip(np.asarray(t, float) + 0.5, 0, 1)

    def quantile(self, beta):
        return 0

    def support(self, tail=1e-12):
        return 0


@pytest.fixture
def law_of_zero():
    return NoNoise()
