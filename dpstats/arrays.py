"""The arrays that dpstats works on, by element type."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.int64]  # what the cells of a column are coded to
