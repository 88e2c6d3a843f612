"""The figures that vignettes/proportions.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/proportions.py [releases]

Every release is of a fresh table, drawn with replacement from that of the vignette.
"""

import numpy as np
from defined import names_of, numbers

(releases,) = numbers(400)
scope = names_of("proportions")
for epsilon in (0.25, 0.5, 1, 4):
    held = scope["coverage"](epsilon, releases, np.random.default_rng())
    print(f"epsilon {epsilon}, {releases} releases", held.round(3).to_string(), sep="\n")
