"""The figures on the lasso that vignettes/logistic.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/logistic.py [releases, 40 of them shuffled at most]

How often each column is chosen, of the table itself and of the table with the outcome shuffled,
which is then unrelated to all columns.
"""

import sys

import numpy as np
import pandas as pd
from defined import names_of


def main(releases):
    import dpstats as dps

    scope = names_of("logistic")
    names, rng = scope["names"], np.random.default_rng()
    for what in ("as it is", "outcome shuffled"):
        found = []
        runs = releases if what == "as it is" else min(releases, 40)
        for _ in range(runs):
            table = scope["rows"]
            if what != "as it is":
                table = table.assign(affair=rng.permutation(table["affair"]))
            release = dps.release(scope["seven"], table)
            lasso = release.infer("lasso")
            kept = {t for t, b in zip(lasso.terms, lasso.params, strict=True) if b != 0}
            naive = scope["naive"](release.to_frame())
            found.append(
                {("lasso", name): name in kept for name in names}
                | {("rows", name): name in naive for name in names}
                | {("lasso", "any"): bool(kept & set(names)), ("rows", "any"): bool(naive)}
            )
        counts = pd.DataFrame(found).sum()
        print(f"\n{what}, {runs} releases", counts.to_string(), sep="\n", flush=True)
    print("\nrows of the table itself:", scope["naive"](scope["rows"]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
