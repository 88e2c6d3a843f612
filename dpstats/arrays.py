"""The arrays that dpstats works on, by element type."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.int64]  # the coded cells of a column
