"""The coverage that vignettes/proportions.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/proportions.py [releases]

Every release is of a fresh table, drawn with replacement from that of the vignette.
"""

import sys

import numpy as np
from defined import names_of


def main(releases):
    scope = names_of("proportions")
    print(f"\n{releases} releases each")
    for epsilon in (0.25, 0.5, 1, 4):
        held = scope["coverage"](epsilon, releases, np.random.default_rng())
        print(f"epsilon {epsilon}", held.round(3).to_string(), sep="\n", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
