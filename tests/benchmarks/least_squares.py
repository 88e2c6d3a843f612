"""Widths of regression slopes: clamped rows, shrunk rows, and published figures of BinAgg.

    python tests/benchmarks/least_squares.py [--runs 200] [--bias]

Two designs, neighbours that add or remove a row. "two": n = 1,000, y = x1 + 2 x2 + e, all of unit
scale and normal, x declared on -5 to 5 and y on -20 to 20, (1, 1e-5), with and without an
intercept. "three": n = 2,000, x uniform on 0 to 10, y = 1.5 x1 - 2 x2 + .5 x3 + e without an
intercept, y declared on -30 to 30, mu-GDP as `ZCDP(mu^2 / 2)`, for which it is the same Gaussian
noise (the plane passes through the middle of the bounds, towards which rows shrink).

The last column is what was reported of BinAgg (S. Lin, A. Slavkovic and D. R. Bhoomireddy, 2026,
Differentially private linear regression and synthetic data generation with statistical guarantees,
AISTATS; arXiv 2510.16974) for designs without an intercept; it is not run here.

Printed are the median width of the 95% intervals of the slopes (all of them together), the share
without ends, and the coverage of the population's slopes of rows that are *not* shrunk. `--bias`
prints how the slopes of 10^6 shrunk rows differ from these, for norms in root mean squares of |z|.
"""

import argparse

import numpy as np
from measuring import fresh

import dpstats as dps

ROWS_OF_BIAS = 1_000_000


def two(rng, n):
    """Rows of the first design, (n, 3), the response last."""
    x = rng.standard_normal((n, 2))
    return np.column_stack([x, x @ [1, 2] + rng.standard_normal(n)])


def three(rng, n):
    """Rows of the second, (n, 4)."""
    x = rng.uniform(0, 10, (n, 3))
    return np.column_stack([x, x @ [1.5, -2, 0.5] + rng.standard_normal(n)])


def schema_of(*ends):
    """Columns x1, x2, .. and y with these bounds."""
    names = [*(f"x{i}" for i in range(1, len(ends))), "y"]
    return dps.Schema([dps.Number(name, *end, missing=end[0]) for name, end in
                       zip(names, ends, strict=True)])  # fmt: skip


TWO, THREE = schema_of((-5, 5), (-5, 5), (-20, 20)), schema_of(*[(0, 10)] * 3, (-30, 30))
DESIGNS = [
    (f"two, {'no ' * (not one)}intercept", TWO, two, 1_000, dps.ApproxDP(1, 1e-5), (1, 2),
     "y ~ x1 + x2" + " - 1" * (not one), norms, "" if one else 14.8)
    for one, norms in ((True, (None, 0.6, 0.9)), (False, (None, 0.6)))
] + [
    (f"three, mu = {mu}", THREE, three, 2_000, dps.ZCDP(mu**2 / 2), (1.5, -2, 0.5),
     "y ~ x1 + x2 + x3 - 1", (None, 1.3), published)
    for mu, published in ((0.5, 0.487), (1, 0.288), (2, 0.180), (5, 0.104))
]  # fmt: skip


def results(schema, analysis, draw, n, budget, runs):
    """Results on fresh rows with fresh noise; formulas only, no candidates are fitted."""
    plan = dps.plan(schema, {"o": analysis}, budget=budget, unit="add_remove",
                    reference=dps.Uniform())  # fmt: skip

    def codes(rng):
        return {c.name: c.encode_numbers(x) for c, x in zip(schema, draw(rng, n).T, strict=True)}

    for *_, view in fresh(plan, n, codes, runs, 1):
        yield analysis.infer(view)


def compare(runs):
    """Print the table."""
    print("design                 rows          median width  unbounded  coverage  BinAgg")
    for name, schema, draw, n, budget, truth, formula, norms, published in DESIGNS:
        for norm in norms:
            options = {} if norm is None else {"clip_norm": norm}
            analysis = dps.OLS(formula, **options)
            ends = [r.conf_int()[-len(truth):] for r in
                    results(schema, analysis, draw, n, budget, runs)]  # fmt: skip
            low, high = np.moveaxis(np.array(ends), -1, 0)
            held = np.mean((low <= truth) & (truth <= high), axis=0)
            print(
                f"{name:<22} {'clamped' if norm is None else f'norm {norm:g}':<12} "
                f"{np.median(high - low):>13.3f}  {np.mean(np.isinf(high - low)):>9.1%}  "
                f"{held.min():>8.3f}  {published}",
                flush=True,
            )


def bias():
    """Print slopes of shrunk rows over those of the rows themselves."""
    rng = np.random.default_rng(0)
    normal, x = two(rng, ROWS_OF_BIAS), np.clip(rng.standard_t(3, (ROWS_OF_BIAS, 2)), -5, 5)
    tails = np.column_stack([x, x @ [1, 2] + rng.standard_t(3, ROWS_OF_BIAS)])
    skewed = np.exp(rng.normal(0, 0.6, (ROWS_OF_BIAS, 2)))
    skewed = np.column_stack([skewed, skewed @ [1, 2] + rng.standard_normal(ROWS_OF_BIAS)])
    designs = {
        "normal": (normal, 0, [5, 5, 20]), "normal, scales 1, 1, 2.5": (normal, 0, [1, 1, 2.5]),
        "normal, centre one sd off": (normal, [1, 1, 2.5], [1, 1, 2.5]),
        "t with 3 df": (np.clip(tails, -20, 20), 0, [5, 5, 20]),
        "lognormal x": (skewed, [1.2, 1.2, 3.6], [1, 1, 3]),
    }  # fmt: skip
    factors = (1, 1.5, 2, 2.5, 3)
    print(f"{'design':<26}" + "".join(f"{f'R = {f:g} rms':>22}" for f in factors))
    for name, (rows, center, scale) in designs.items():
        z = (rows - center) / scale
        length = np.linalg.norm(z, axis=1)
        unit = np.sqrt(np.mean(length**2))
        own, texts = slopes(rows), []
        for factor in factors:
            shrunk = center + z / np.maximum(1, length / (factor * unit))[:, None] * scale
            worst = np.abs(slopes(shrunk) / own - 1).max()
            texts.append(f"{worst:.1%} ({np.mean(length > factor * unit):.1%} shrunk)")
        print(f"{name:<26}" + "".join(f"{text:>22}" for text in texts), flush=True)


def slopes(rows):
    """Of a least-squares fit with an intercept."""
    x = np.column_stack([np.ones(len(rows)), rows[:, :-1]])
    return np.linalg.solve(x.T @ x, x.T @ rows[:, -1])[1:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--bias", action="store_true")
    given = parser.parse_args()
    bias() if given.bias else compare(given.runs)
