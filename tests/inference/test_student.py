"""Student's t at many points: the series of normal scores against the incomplete beta function."""

import numpy as np
import pytest
from scipy import stats

from dpstats.inference.confidence_law import student_cdf


@pytest.mark.parametrize("df", [1.0, 3.5, 49.9, 50.0, 100.0, 1e6, 1e12])
def test_it_is_students_t(df):
    t = np.concatenate([-np.geomspace(1e-4, 1e9, 300), np.linspace(-9, 9, 301)])
    found, exact = student_cdf(df, t), stats.t.cdf(t, df)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-13)
    seen = exact > 1e-18
    np.testing.assert_allclose(found[seen], exact[seen], rtol=1e-6)


def test_each_point_has_its_own_degrees_of_freedom():
    df, t = np.array([60.0, 300.0, 1e5]), np.array([-2.0, 1.0, 3.0])
    for least in (60.0, 5.0):  # by the series, and without it
        df[0] = least
        np.testing.assert_allclose(student_cdf(df, t), stats.t.cdf(t, df), rtol=1e-9)
