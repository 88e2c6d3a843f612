"""The figures that vignettes/only-the-rows.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/only_the_rows.py [releases]

Every release is of a fresh table, drawn with replacement from that of the vignette.
"""

import numpy as np
from defined import names_of, numbers, show

import dpstats as dps


def intervals(scope, release):
    rows, asked = release.to_frame(), scope["asked"]
    found = {("rows alone", name): ends for name, ends in scope["taken_for_data"](rows).items()}
    for name in ("by plan", "admitted"):
        about = {"radius": release.radius(name), "schema": scope["schema"]}
        corrected = dps.corrected.infer(asked[name], rows, **about)
        result = release.infer(name)
        found["rows, n, radius", name] = np.ravel(corrected.conf_int())[:2]
        found["release", name] = np.ravel(result.conf_int())[:2]
    found["bound", "of the limited"] = next(iter(release.bound(scope["question"])))
    draws = release.draws(20, rng=1)
    found["draws", "by plan"] = np.ravel(draws.combine(scope["difference_of"]).conf_int())
    found["draws", "of the limited"] = np.ravel(draws.combine(scope["limited_of"]).conf_int())
    return found


(releases,) = numbers(200)
scope = names_of("only-the-rows")
table, found = scope["table"], []
truths = scope["truths"](table) | {"admitted": table["admitted"].mean()}
print(truths)
for _ in range(releases):
    sample = table.sample(len(table), replace=True).reset_index(drop=True)
    own, figures = scope["truths"](sample), {}
    for key, (low, high) in intervals(scope, dps.release(scope["plan"], sample)).items():
        # a bound is for the private table, all others are for the population
        value = (own if key[0] == "bound" else truths)[key[1]]
        figures |= {(*key, "covers"): low <= value <= high, (*key, "width"): high - low,
                    (*key, "excludes zero"): low > 0 or high < 0}  # fmt: skip
    found.append(figures)
show("fresh tables", found)
