"""The figures that vignettes/only-the-rows.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/only_the_rows.py [releases]

Every release is of a fresh table, drawn with replacement from that of the vignette, which is the
population: how often each kind of interval holds its figures, and how wide it is (medians).
"""

import sys

import numpy as np
import pandas as pd
from defined import names_of


def intervals(scope, release):
    """Each method's interval for the two figures."""
    import dpstats as dps

    rows, asked = release.to_frame(), scope["asked"]
    found = {("rows alone", name): ends for name, ends in scope["taken_for_data"](rows).items()}
    corrected = dps.corrected.infer(
        asked["by plan"], rows, radius=release.radius("by plan"), schema=scope["schema"]
    )
    found["rows, n, radius", "by plan"] = corrected.conf_int()[0]
    by_plan = release.infer("by plan")
    found["release", "by plan"] = by_plan.conf_int()[0]
    found["release, certified", "by plan"] = by_plan.conf_int(method="certified")[0]
    share = dps.corrected.infer(
        asked["admitted"], rows, radius=release.radius("admitted"), schema=scope["schema"]
    )
    found["rows, n, radius", "admitted"] = share.conf_int()
    found["release", "admitted"] = release.infer("admitted").conf_int()
    bound = release.bound(scope["question"])
    found["bound", "of the limited"] = next(iter(bound))
    draws = release.draws(20, rng=1)
    found["draws", "by plan"] = np.ravel(draws.combine(scope["difference_of"]).conf_int())
    found["draws", "of the limited"] = np.ravel(draws.combine(scope["limited_of"]).conf_int())
    return found


def main(releases):
    import dpstats as dps

    scope = names_of("only-the-rows")
    table, rng = scope["table"], np.random.default_rng()
    truths = scope["truths"](table) | {"admitted": table["admitted"].mean()}
    print(truths)
    covered, widths, zero = [], [], []
    for _ in range(releases):
        sample = table.sample(len(table), replace=True, random_state=int(rng.integers(2**32)))
        sample = sample.reset_index(drop=True)
        own = truths | scope["truths"](sample)
        found = intervals(scope, dps.release(scope["plan"], sample))
        # a bound is for the private table, all others are for the population
        aim = {key: own if key[0] == "bound" else truths for key in found}
        covered.append({k: low <= aim[k][k[1]] <= high for k, (low, high) in found.items()})
        widths.append({k: high - low for k, (low, high) in found.items()})
        zero.append({k: low > 0 or high < 0 for k, (low, high) in found.items()})
    shown = {
        "covers": pd.DataFrame(covered).mean(),
        "width": pd.DataFrame(widths).median(),
        "excludes zero": pd.DataFrame(zero).mean(),
    }
    print(f"{releases} releases")
    print(pd.DataFrame(shown).sort_index(level=1).round(4).to_string())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
