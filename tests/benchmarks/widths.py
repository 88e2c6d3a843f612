"""Widths and coverage of 95% intervals, beside a reference width, where intervals may be too wide.

    python tests/benchmarks/widths.py [--runs 400] [--only proportion cells quantiles groups ...]

Every run draws fresh rows and measures them with the real noise. No density is fitted: where one
tells the sampling part (eigenvalues, covariances), it is that of the rows themselves. Printed are
the share of intervals that hold the value of the population or the table, their median width, and
a reference: "noise" is 3.92 standard deviations of the noise on the estimate, with that of sampling
for the population; "Wald" the same for a risk difference at the true risks and group sizes; "runs"
is 3.92 standard deviations of the estimates over the runs.
"""

import argparse
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import stats

import dpstats as dps
from dpstats.measured.answers import answer

COIN = dps.Schema([dps.Boolean("y")])
RISKS = dps.Schema([dps.Category("g", ["a", "b"]), dps.Boolean("y")])
MEANS = dps.Schema([dps.Category("g", ["a", "b"]), dps.Number("y", -10, 10, missing=0)])
FIVE = [f"x{i}" for i in range(5)]
LIKERT = dps.Schema([dps.Number(name, 1, 5, points=5, missing=3) for name in FIVE])
HEAVY = dps.Schema([dps.Number(name, -1, 1, missing=0) for name in FIVE[:2]])


def results(schema, analysis, draw, budget, unit, runs):
    """Rows and results of so many releases; the density is that of the rows."""
    rng = np.random.default_rng(1)
    plan = None
    for _ in range(runs):
        frame = draw(rng)
        public = len(frame) if unit == "replace" else None
        plan = plan or dps.plan(schema, {"a": analysis}, budget=budget, unit=unit, n=public,
                                reference=dps.Uniform())  # fmt: skip
        held = dps.measure(plan, frame)
        yield frame, analysis.infer(SimpleNamespace(
            schema=schema, n=held.n, budget=budget, measurements=held,
            answers=lambda wanted, held=held, **options: answer(held, wanted, **options),
            candidates={c.name: c.encode(pa.array(frame[c.name])) for c in schema},
            weights=np.full(len(frame), 1 / len(frame)),
        ))  # fmt: skip


def line(name, target, ends, truth, reference, runs):
    """Print coverage, the least of all parameters, and widths."""
    low, high = np.moveaxis(np.reshape(ends, (len(ends), -1, 2)), -1, 0)
    held = np.mean((low <= truth) & (truth <= high), axis=0)
    widths, held = np.median(high - low, axis=0), np.atleast_1d(held)
    print(f"{name:<44} {target:<11}{held.min():>7.3f}{held.mean():>7.3f}  "
          + " ".join(f"{w:.4g} ({w / r:.2f} of {r:.4g})" for w, r in
                     zip(np.atleast_1d(widths), np.atleast_1d(reference), strict=True)),
          flush=True)  # fmt: skip


def two_groups(sizes, shares, rng):
    """Rows of groups of fixed sizes, with risks or, of rows of unit variance, means `shares`."""
    return pd.DataFrame({
        "g": np.repeat(["a", "b"], sizes),
        "y": np.concatenate([rng.random(n) < p for n, p in zip(sizes, shares, strict=True)]),
    })  # fmt: skip


def by_target(name, found, targets, runs):
    """A line per target, (truth, reference)."""
    for target, (truth, reference) in targets.items():
        ends = [result.conf_int(target=target) for _, result in found]
        line(name, target, ends, truth, reference, runs)


def noise_of(result, weights, shares, n):
    """Standard deviations of the noise on weighted sums less these shares of all n rows, over n."""
    answers = result.intervals.answers
    variances = [answers.noise_less_rows(w, p) for w, p in zip(weights, shares, strict=True)]
    return np.sqrt(variances) / n


def proportion(runs):
    """(a) adding or removing a row: T - p N has noise of a known law."""
    n, p, epsilon = 2_000, 0.9, 0.1
    draw = lambda rng: pd.DataFrame({"y": rng.random(n) < p})  # noqa: E731
    found = list(results(COIN, dps.Proportion("y"), draw, dps.PureDP(epsilon), "add_remove", runs))
    own = np.array([[frame["y"].mean()] for frame, _ in found])
    noise = 2 * (2 / epsilon) ** 2 * (1 + p**2) / n**2
    by_target("proportion .9, n 2,000, eps .1, add/remove", found, {
        "population": (p, 3.92 * np.sqrt(noise + p * (1 - p) / n)),
        "table": (own, 3.92 * np.sqrt(noise)),
    }, runs)  # fmt: skip


def cells(runs):
    """(a) the cells of a table, whose total is also a measurement of the number of rows."""
    n = 2_000
    shares = np.array([0.09, 0.81, 0.01, 0.09])  # of a and b, each without and with y

    def draw(rng):
        code = rng.choice(4, n, p=shares)
        return pd.DataFrame({"g": np.where(code < 2, "a", "b"), "y": code % 2 == 1})

    for budget in (dps.PureDP(0.1), dps.ApproxDP(0.1, 1e-6)):
        analysis = dps.Marginals(["g", "y"])
        found = list(results(RISKS, analysis, draw, budget, "add_remove", runs))
        own = [np.histogram(2 * (f["g"] == "b") + f["y"], range(5))[0] / n for f, _ in found]
        noise = 3.92 * noise_of(found[0][1], np.eye(4), shares, n)
        by_target(f"cells .09 .81 .01 .09, n 2,000, {budget.noise}", found, {
            "population": (shares, np.hypot(noise, 3.92 * np.sqrt(shares * (1 - shares) / n))),
            "table": (np.array(own), noise),
        }, runs)  # fmt: skip


def quantiles(runs):
    """(a) quantiles of normal rows at declared edges; the reference has no edges."""
    n, epsilon, levels = 2_000, 0.1, np.array([0.1, 0.5, 0.9])
    schema = dps.Schema([dps.Number("x", 0, 100, edges=range(4, 100, 4), missing=0)])
    truth = stats.norm.ppf(levels, 50, 15)
    draw = lambda rng: pd.DataFrame({"x": np.clip(rng.normal(50, 15, n), 0, 100)})  # noqa: E731
    asked = dps.Quantile("x", levels)
    found = list(results(schema, asked, draw, dps.PureDP(epsilon), "add_remove", runs))
    own = np.array([np.quantile(f["x"], levels, method="inverted_cdf") for f, _ in found])
    next_to = np.eye(24)[(np.round(truth / 4) - 1).astype(int)]  # rows up to an edge
    noise = 3.92 * noise_of(found[0][1], next_to, levels, n)
    density = stats.norm.pdf(truth, 50, 15)
    sampling = 3.92 * np.sqrt(levels * (1 - levels) / n)
    by_target(f"quantiles .1 .5 .9, n 2,000, eps {epsilon}", found, {
        "population": (truth, np.hypot(noise, sampling) / density),
        "table": (own, noise / density),
    }, runs)  # fmt: skip


def groups(runs):
    """(b) a share and a mean within a group, about the private table."""
    n, epsilon, p = 400, 0.5, 0.8
    draw = partial(two_groups, (n, n), (p, 0.3))
    asked = dps.Proportion("y", given="g == 'a'")
    for unit in ("replace", "add_remove"):
        found = list(results(RISKS, asked, draw, dps.PureDP(epsilon), unit, runs))
        own = np.array([[f.loc[f["g"] == "a", "y"].mean()] for f, _ in found])
        counts = [result.intervals for _, result in found]
        wide = 3.92 * np.sqrt(counts[0].noise.variance(p)) / n
        name = f"share of a group, {n} of {2 * n}, eps {epsilon}, {unit}"
        line(name, "table", [r.conf_int(target="table") for _, r in found], own, wide, runs)

    def normal(rng):
        return pd.DataFrame({"g": ["a"] * n + ["b"] * n, "y": rng.normal(4, 1, 2 * n)})

    asked = dps.Mean("y", given="g == 'a'")
    for unit in ("replace", "add_remove"):
        found = list(results(MEANS, asked, normal, dps.PureDP(epsilon), unit, runs))
        own = np.array([[f.loc[f["g"] == "a", "y"].mean()] for f, _ in found])
        wide = 3.92 * np.std([r.params[0] - o[0] for (_, r), o in zip(found, own, strict=True)])
        name = f"mean of a group, {n} of {2 * n}, eps {epsilon}, {unit}"
        line(name, "table", [r.conf_int(target="table") for _, r in found], own, wide, runs)


def means(runs):
    """(b) a difference of means of normal columns, within bounds of -10 and 10."""
    analysis = dps.MeanDifference("y", by="g")

    def draw(rng):
        return pd.DataFrame({"g": ["a"] * 400 + ["b"] * 400, "y": rng.normal(0, 1, 800)})

    for epsilon in (1, 0.1):
        found = list(results(MEANS, analysis, draw, dps.PureDP(epsilon), "replace", runs))
        own = np.array([[f.loc[f["g"] == "b", "y"].mean() - f.loc[f["g"] == "a", "y"].mean()]
                        for f, _ in found])  # fmt: skip
        sign = np.sign(np.corrcoef(own[:, 0], [r.params[0] for _, r in found])[0, 1])
        of_noise = 3.92 * np.std([r.params[0] - sign * o[0] for (_, r), o in
                                  zip(found, own, strict=True)])  # fmt: skip
        for target, truth in (("table", sign * own), ("population", 0)):
            ends = [result.conf_int(target=target) for _, result in found]
            wide = of_noise if target == "table" else np.hypot(of_noise, 3.92 * np.sqrt(2 / 400))
            line(f"mean difference, 400 and 400, eps {epsilon}", target, ends, truth, wide, runs)


def risks(runs):
    """(c) differences of risks."""
    for sizes, shares, epsilon, unit in (
        ((60, 90), (0.97, 0.99), 3, "add_remove"), ((60, 90), (0.97, 0.99), 3, "replace"),
        ((400, 400), (0.5, 0.5), 0.1, "replace"), ((400, 400), (0.5, 0.2), 0.1, "replace"),
    ):  # fmt: skip
        analysis = dps.Difference("y", by="g", groups=("a", "b"))
        draw = partial(two_groups, sizes, shares)
        found = list(results(RISKS, analysis, draw, dps.PureDP(epsilon), unit, runs))
        own = np.array([[f.loc[f["g"] == "a", "y"].mean() - f.loc[f["g"] == "b", "y"].mean()]
                        for f, _ in found])  # fmt: skip
        # adding or removing a row costs half as much, and the number of rows 1%
        scale = 2 / epsilon if unit == "replace" else 1 / (0.99 * epsilon)
        noise = sum(2 * scale**2 * ((1 - p) ** 2 + p**2) / n**2
                    for n, p in zip(sizes, shares, strict=True))  # fmt: skip
        sampling = sum(p * (1 - p) / n for n, p in zip(sizes, shares, strict=True))
        name = f"risks {shares[0]} {shares[1]}, {sizes}, eps {epsilon}, {unit}"
        for target, truth, variance in (
            ("population", shares[0] - shares[1], noise + sampling), ("table", own, noise)
        ):  # fmt: skip
            ends = [result.conf_int(target=target)[0] for _, result in found]
            line(name, target, ends, truth, 3.92 * np.sqrt(variance), runs)


def eigenvalues(runs):
    """(d) Likert columns with one factor, and the same of equal variances."""
    n, epsilon = 2_000, 3
    for name, loadings in (("one factor", (0.9, 0.8, 0.7, 0.6, 0.5)), ("independent", (0,) * 5)):

        def likert(rng, n, loadings=loadings):
            own = rng.standard_normal((n, 5)) + rng.standard_normal((n, 1)) * 1.2 * loadings
            return np.clip(np.rint(3 + own), 1, 5)

        many = likert(np.random.default_rng(7), 10**6)
        truth = np.linalg.eigvalsh(np.cov(((many - 3) / 2).T))[::-1]
        draw = lambda rng: pd.DataFrame(likert(rng, n), columns=FIVE)  # noqa: E731
        found = [
            r for _, r in results(LIKERT, dps.PCA(FIVE), draw, dps.PureDP(epsilon), "replace", runs)
        ]
        spread = np.std([r.explained_variance_ for r in found], axis=0)
        line(f"eigenvalues, Likert, {name}, n 2,000, eps 3", "population",
             [r.conf_int()[:5] for r in found], truth, 3.92 * spread, runs)  # fmt: skip


def covariances(runs):
    """(f) heavy tails that are clipped."""
    pairs = np.triu_indices(2)
    laws = {
        "t5 over 6": lambda rng, n: rng.standard_t(5, (n, 2)) @ [[1, 0.4], [0, 0.9]] / 6,
        "log-normal": lambda rng, n: np.exp(rng.normal(0, 1, (n, 1)) + rng.normal(0, 0.5, (n, 2)))
        / 10 - 1,
    }  # fmt: skip
    for (name, law), (n, epsilon) in (
        (a, b) for a in laws.items() for b in ((2_000, 20), (20_000, 5))
    ):
        many = np.clip(law(np.random.default_rng(7), 10**6), -1, 1)
        draw = lambda rng: pd.DataFrame(law(rng, n), columns=FIVE[:2])  # noqa: B023, E731
        asked = dps.Covariance(FIVE[:2])
        found = [r for _, r in results(HEAVY, asked, draw, dps.PureDP(epsilon), "replace", runs)]
        spread = np.std([r.covariance_[pairs] for r in found], axis=0)
        line(f"covariances, {name}, n {n:,}, eps {epsilon}", "population",
             [r.conf_int() for r in found], np.cov(many.T)[pairs], 3.92 * spread, runs)  # fmt: skip


PARTS = {
    part.__name__: part
    for part in (proportion, cells, quantiles, groups, means, risks, eigenvalues, covariances)
}


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    print(f"{'setting':<44} {'about':<11}{'least':>7}{'mean':>7}  width (times the reference)")
    for name in given.only:
        PARTS[name](given.runs)


if __name__ == "__main__":
    main()
