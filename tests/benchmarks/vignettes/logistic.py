"""The figures that vignettes/logistic.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/logistic.py [releases] [with the outcome shuffled]

How often each column is chosen, also where the outcome is shuffled.
"""

import numpy as np
from defined import names_of, numbers, show

import dpstats as dps

scope, rng = names_of("logistic"), np.random.default_rng()
names = scope["names"]
for what, releases in zip(("as it is", "outcome shuffled"), numbers(100, 40), strict=True):
    found = []
    for _ in range(releases):
        table = scope["rows"]
        if what != "as it is":
            table = table.assign(affair=rng.permutation(table["affair"]))
        release = dps.release(scope["seven"], table)
        lasso = release.infer("lasso")
        kept = {t for t, b in zip(lasso.terms, lasso.params, strict=True) if b != 0}
        chosen = {"lasso": kept & set(names), "rows": set(scope["naive"](release.to_frame()))}
        found.append({(way, name): name in own for way, own in chosen.items() for name in names}
                     | {(way, "any"): bool(own) for way, own in chosen.items()})  # fmt: skip
    show(what, found)
print("\nrows of the table itself:", scope["naive"](scope["rows"]))
