"""Widths of regression slopes: clamped rows, shrunk rows, and published figures of BinAgg.

    python tests/benchmarks/least_squares.py [--runs 200] [--bias]

The designs of docs/explanation/regression/bounded-intervals.md; mu-GDP is `ZCDP(mu^2 / 2)`, which
has the same Gaussian noise. Coverage is that of the population's slopes of rows that are *not*
shrunk. The last column is what was reported of BinAgg (S. Lin, A. Slavkovic and D. R. Bhoomireddy,
2026, AISTATS; arXiv 2510.16974); it is not run here. `--bias` prints how the slopes of 10^6 shrunk
rows differ from those of the rows, for norms in root mean squares of |z|.
"""

import numpy as np
from measuring import fresh, markdown, parsed

import dpstats as dps

SLOPES = {"two": (1, 2), "three": (1.5, -2, 0.5)}


def with_response(design, x, error):
    """Rows (n, p + 1), the response last."""
    return np.column_stack([x, x @ SLOPES[design] + error])


def drawn(design, rng, n):
    x = rng.standard_normal((n, 2)) if design == "two" else rng.uniform(0, 10, (n, 3))
    return with_response(design, x, rng.standard_normal(n))


def schema_of(*ends):
    """Columns x1, x2, .. and y with these bounds."""
    names = [*(f"x{i}" for i in range(1, len(ends))), "y"]
    return dps.Schema([dps.Number(name, *end, missing=end[0]) for name, end in
                       zip(names, ends, strict=True)])  # fmt: skip


SCHEMAS = {
    "two": schema_of((-5, 5), (-5, 5), (-20, 20)),
    "three": schema_of(*[(0, 10)] * 3, (-30, 30)),
}
SETTINGS = [  # design, formula, n, budget, norms, published
    ("two", "y ~ x1 + x2", 1_000, dps.ApproxDP(1, 1e-5), (None, 0.6, 0.9), ""),
    ("two", "y ~ x1 + x2 - 1", 1_000, dps.ApproxDP(1, 1e-5), (None, 0.6), 14.8),
    *(("three", "y ~ x1 + x2 + x3 - 1", 2_000, dps.ZCDP(mu**2 / 2), (None, 1.3), published)
      for mu, published in ((0.5, 0.487), (1, 0.288), (2, 0.180), (5, 0.104))),
]  # fmt: skip


def limits(design, analysis, n, budget, runs):
    """Limits of slopes of fresh rows with fresh noise; formulas only, no candidates are fitted."""
    schema = SCHEMAS[design]
    plan = dps.plan(schema, {"o": analysis}, budget=budget, unit="add_remove",
                    reference=dps.Uniform())  # fmt: skip

    def codes(rng):
        rows = drawn(design, rng, n).T
        return {c.name: c.encode_numbers(x) for c, x in zip(schema, rows, strict=True)}

    views = (view for *_, view in fresh(plan, n, codes, runs, 1))
    ends = [analysis.infer(view).conf_int()[-len(SLOPES[design]) :] for view in views]
    return np.moveaxis(np.array(ends), -1, 0)


def compare(runs):
    lines = []
    for design, formula, n, budget, norms, published in SETTINGS:
        for norm in norms:
            options = {} if norm is None else {"clip_norm": norm}
            low, high = limits(design, dps.OLS(formula, **options), n, budget, runs)
            held = np.mean((low <= SLOPES[design]) & (SLOPES[design] <= high), axis=0)
            width, unbounded = np.median(high - low), np.mean(np.isinf(high - low))
            about = [formula, str(budget).split(" (")[0], "clamped" if norm is None else norm]
            lines.append([*about, width, unbounded, held.min(), published])
    head = ["formula", "budget", "norm", "median width", "unbounded", "coverage", "BinAgg"]
    print(markdown(head, lines))


def slopes(rows):
    """Of a least-squares fit with an intercept."""
    x = np.column_stack([np.ones(len(rows)), rows[:, :-1]])
    return np.linalg.solve(x.T @ x, x.T @ rows[:, -1])[1:]


def bias(n=1_000_000):
    """Print slopes of shrunk rows over those of the rows themselves."""
    rng = np.random.default_rng(0)
    normal, x = drawn("two", rng, n), np.clip(rng.standard_t(3, (n, 2)), -5, 5)
    tails = np.clip(with_response("two", x, rng.standard_t(3, n)), -20, 20)
    skewed = with_response("two", np.exp(rng.normal(0, 0.6, (n, 2))), rng.standard_normal(n))
    designs = {
        "normal": (normal, 0, [5, 5, 20]), "normal, scales 1, 1, 2.5": (normal, 0, [1, 1, 2.5]),
        "normal, centre one sd off": (normal, [1, 1, 2.5], [1, 1, 2.5]),
        "t with 3 df": (tails, 0, [5, 5, 20]), "lognormal x": (skewed, [1.2, 1.2, 3.6], [1, 1, 3]),
    }  # fmt: skip
    factors, lines = (1, 1.5, 2, 2.5, 3), []
    for name, (rows, center, scale) in designs.items():
        z = (rows - center) / scale
        length, texts = np.linalg.norm(z, axis=1), []
        for norm in np.array(factors) * np.sqrt(np.mean(length**2)):
            shrunk = center + z / np.maximum(1, length / norm)[:, None] * scale
            worst = np.abs(slopes(shrunk) / slopes(rows) - 1).max()
            texts.append(f"{worst:.1%} ({np.mean(length > norm):.1%} shrunk)")
        lines.append([name, *texts])
    print(markdown(["design", *(f"R = {factor:g} rms" for factor in factors)], lines))


if __name__ == "__main__":
    given = parsed(__doc__, runs=200, bias=False)
    bias() if given.bias else compare(given.runs)
