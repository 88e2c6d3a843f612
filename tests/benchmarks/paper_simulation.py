"""The simulation of Bojkovic & Loh (2024, "Performance evaluation"): CPU seconds and errors.

    python tests/benchmarks/paper_simulation.py [--figure docs/figures/paper-simulation.svg]
    python tests/benchmarks/paper_simulation.py --quick

X is uniform on {0,1}^p, F the monomials to degree 2, eps = .2, delta = .5, gamma = .25; n, k and m
are the printed lower bounds (`dps.theory`, printed=True), and every mean gets Laplace noise of
scale delta / log(|F|/gamma), as Algorithm 1 has it. Only the lattice of the Bernstein density has n
and k of the corrected theorem, since at the printed n it holds noise only; its rows are uniform on
[0,1]^p, and x_j > 1/2 is what the Boolean column says.

Times are of this process and of its children, so that those of CBC count, from the counts of the
private rows to k synthetic rows: noise, candidates, density, rows. The pass over the private rows
is listed by itself. Rows need not be kept: their counts in the 2^p cells are multinomial. Nothing
is extrapolated except that pass, which is n times the cost of a row.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from measuring import cpu_seconds, markdown, sized, svg
from paper_methods import (
    COUNTED,
    DELTA,
    EPSILON,
    WAYS,
    functions,
    pass_seconds,
    promised,
    references,
    refused,
    released,
    run,
    sizes,
    theorem,
)


def repeated(one, runs, seconds):
    """Runs of different seeds, at most `runs`, none begun after so many CPU seconds in all."""
    done, started = [], cpu_seconds()
    while len(done) < runs and (not done or cpu_seconds() - started < seconds):
        done.append(one(len(done)))
    return done


def equal_time(reference, p, runs, steps=4):
    """The m at which PuLP takes the CPU time of the histogram at its printed m.

    A few steps in proportion. Both are timed in turn, so that they meet the same load.
    """
    m = sizes("histogram", p)[2]
    for _ in range(steps):
        both = [
            [run("histogram", "PuLP", p, seed), run(reference, "PuLP", p, seed, m)]
            for seed in range(runs)
        ]
        wanted, taken = np.median([[r.seconds for r in pair] for pair in both], axis=0)
        m = max(2, round(m * wanted / taken))
    return m


def brief(value):
    """Two digits, without a power of ten for large numbers."""
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def spread(values):
    """Median and quartiles; one run by itself."""
    low, middle, high = map(brief, np.quantile(values, [0.25, 0.5, 0.75]))
    return f"{middle} ({low}-{high})" if len(values) > 1 else f"{middle} (one run)"


def simulate(largest, runs, seconds, say):
    """Runs by p, reference and way; a way that took too long ends at that p."""
    found, ended = {}, set()
    for p in range(3, largest + 1):
        for at in [(reference, way) for reference in references(p) for way in WAYS]:
            if at in ended:
                continue
            found[p, *at] = repeated(lambda seed, at=(*at, p): run(*at, seed), runs, seconds)
            if len(found[p, *at]) < runs:
                say(f"{', '.join(at)}: {len(found[p, *at])} of {runs} runs at p = {p}")
            longest = max(r.seconds for r in found[p, *at])
            if longest > seconds:
                ended.add(at)
                say(f"{', '.join(at)}: {longest:.0f} s at p = {p}, none beyond")
        for reference, epsilon in (("uniform", EPSILON), ("histogram", 2 * EPSILON)):
            n = sizes(reference, p)[0]
            if n <= COUNTED:
                about = (p, n, epsilon)
                found[p, reference, "release"] = repeated(
                    lambda seed, about=about: released(*about, seed), runs, seconds
                )
    return found


def size_table(largest):
    head = ["p", "\\|F\\|", "k", "sigma", "uniform n", "m", "histogram n", "m", "corrected n"]
    lines = []
    for p in range(3, largest + 1):
        _, k, _, sigma = sizes("uniform", p)
        uniform, histogram, bernstein = (
            sizes(reference, p)[::2] for reference in ("uniform", "histogram", "Bernstein")
        )
        corrected = theorem("histogram", p, False).sizes(DELTA).n
        numbers = (*uniform, *histogram, corrected, *bernstein)
        about = [f"{p}", f"{functions(p)}", f"{k}", f"{sigma:.3f}"]
        lines.append([*about, *(f"{size:,}" for size in numbers)])
    return markdown([*head, "Bernstein n", "m"], lines)


def by_p(found, cells):
    """A table with a line per p: header to what stands in a cell, given p."""
    every = sorted({p for p, *_ in found})
    return markdown(["p", *cells], [[f"{p}", *(cell(p) for cell in cells.values())] for p in every])


def column(found, part, reference, way):
    """The cells of one reference and way: the spread of a part of the runs."""

    def cell(p):
        done = found.get((p, reference, way))
        return spread([getattr(r, part) for r in done]) if done else ""

    return cell


def tables(found, passes):
    """All tables over p, by title."""
    every = ("uniform", "histogram", "Bernstein")

    def columns(part, references, *ways):
        return {
            f"{reference}, {way}": column(found, part, reference, way)
            for way in ways
            for reference in references
        }

    def ratio(p):
        if (p, "uniform", "PuLP") not in found:
            return ""
        slow, fast = (
            np.median([r.seconds for r in found[p, reference, "PuLP"]]) for reference in every[:2]
        )
        return brief(slow / fast)

    def promise(reference):
        return lambda p: brief(promised(reference, p, sizes(reference, p)[0]))

    counting = {"ratio": ratio, "histogram, counting n rows": lambda p: brief(passes[p])}
    promises = {f"promised, {reference}": promise(reference) for reference in every[:2]}
    merging = ("PuLP, merged", "HiGHS, merged", "columns", "entropy")
    return {
        "CPU seconds, the program as printed": columns("seconds", every, "PuLP") | counting,
        "CPU milliseconds, equal candidates merged, uniform": (
            columns("milliseconds", every[:1], *merging)
        ),
        "CPU milliseconds, equal candidates merged, histogram": columns(
            "milliseconds", every[1:2], *merging
        ),
        "largest error of the rows, as printed": columns("rows", every, "PuLP"),
        "largest error of the rows, this library": (
            columns("rows", every[:2], "columns", "entropy")
        ),
        "largest error of a release by default": columns("rows", every[:2], "release") | promises,
        "largest error of the density, as printed": columns("density", every, "PuLP"),
        "largest error of the density, this library": columns(
            "density", every[:2], "columns", "entropy", "release"
        ),
    }


def at_equal_time(p, runs):
    """Lines: every reference with the m that takes the CPU time of the histogram's printed m."""
    lines = []
    for reference in references(p):
        n, k, m, _ = sizes(reference, p)
        if reference != "histogram":
            m = equal_time(reference, p, runs)
        error = 8 * theorem(reference, p).delta(n, k=k, m=m)
        says = f"{error:.2g}" if error < np.inf else "nothing"
        for way in ("PuLP", "columns", "entropy"):
            done = [run(reference, way, p, seed, m) for seed in range(runs)]
            parts = ("milliseconds", "density", "rows")
            cells = (spread([getattr(r, part) for r in done]) for part in parts)
            lines.append([f"{p}", reference, f"{m:,}", way, *cells, says])
    return lines


DRAWN = {
    ("uniform", "PuLP"): dict(color="C0", marker="o"),
    ("histogram", "PuLP"): dict(color="C1", marker="o"),
    ("Bernstein", "PuLP"): dict(color="C2", marker="o"),
    ("uniform", "columns"): dict(color="C0", marker="s", ls=":"),
    ("histogram", "columns"): dict(color="C1", marker="s", ls=":"),
    ("uniform", "entropy"): dict(color="C4", marker="^"),
    ("uniform", "release"): dict(color="C3", marker="D"),
}
LABELS = {
    "PuLP": "PuLP",
    "columns": "merged, column generation",
    "entropy": "entropy fit",
    "release": "default release",
}


def draw(found, passes, path):
    """Two panels: CPU seconds and the error of the rows against p."""
    every = sorted({p for p, *_ in found})
    with svg(path, 1, 2, (11, 4.6)) as axes:
        time, error = axes[0]
        for (reference, way), style in DRAWN.items():
            shown = [p for p in every if (p, reference, way) in found]
            label = f"{reference}, {LABELS[way]}"
            runs = [found[p, reference, way] for p in shown]
            if way in ("PuLP", "columns"):
                seconds = [np.median([r.seconds for r in done]) for done in runs]
                time.plot(shown, seconds, ms=4, label=label, **style)
            if way != "columns":
                low, middle, high = np.array(
                    [np.quantile([r.rows for r in done], [0.25, 0.5, 0.75]) for done in runs]
                ).T
                beside = 0.05 * (list(DRAWN).index((reference, way)) - 3)
                bars = (middle - low, high - middle)
                error.errorbar(
                    np.array(shown) + beside, middle, bars, ms=4, lw=1, label=label, **style
                )
        pass_label = "histogram, counting its n rows"
        time.plot(every, [passes[p] for p in every], color="0.5", ls="--", label=pass_label)
        sized(time, every, xlabel="columns p", ylabel="CPU seconds")
        error.axhline(8 * DELTA, color="0.3", ls="--", lw=1, label="promised, 8 delta")
        error.axhline(1, color="0.6", ls=":", lw=1, label="largest possible")
        ticks = (0.03, 0.1, 0.3, 1, 4)
        between = {"ncols": 2, "loc": "upper center", "bbox_to_anchor": (0.5, 0.92)}
        title = "largest error of the rows over F"
        sized(error, every, between, xlabel="columns p", ylabel=title)
        error.set(ylim=(0.02, 6))
        error.set_yticks(ticks, [f"{tick:g}" for tick in ticks])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=10, help="largest p")
    parser.add_argument("--runs", type=int, default=15, help="runs of every p, reference and way")
    parser.add_argument("--seconds", type=float, default=40, help="CPU seconds to end runs after")
    parser.add_argument("--figure", type=Path, help="the SVG file to write")
    parser.add_argument("--quick", action="store_true", help="p to 5, three runs")
    options = parser.parse_args()
    if options.largest < 3 or options.runs < 1:
        parser.error("--largest must be at least 3, --runs at least 1")
    if options.figure and not options.figure.parent.is_dir():
        parser.error(f"--figure: there is no folder {options.figure.parent}")
    if options.quick:
        options.largest, options.runs, options.seconds = min(options.largest, 5), 3, 3
    for way in ("HiGHS, merged", "PuLP", "columns", "entropy"):  # what they import is not timed
        run("histogram", way, 2, 0)
    started = cpu_seconds()
    print(f"largest p {options.largest}, {options.runs} runs; load {os.getloadavg()[0]:.1f}\n")
    print(size_table(options.largest), "\n", flush=True)
    for p in (3, 4):
        print(f"p = {p}: {refused(p)}")
    found = simulate(options.largest, options.runs, options.seconds, print)
    every = sorted({p for p, *_ in found})
    passes = {p: pass_seconds(p, sizes("histogram", p)[0]) for p in every}
    for title, cells in tables(found, passes).items():
        print(f"\n{title}\n\n{by_p(found, cells)}", flush=True)
    compared = [p for p in ((4,) if options.quick else (4, 6, 8)) if p <= options.largest]
    lines = [line for p in compared for line in at_equal_time(p, options.runs)]
    head = ["p", "reference", "m", "way", "CPU ms", "error, density", "error, rows", "promised"]
    print(f"\nat equal time\n\n{markdown(head, lines)}")
    if options.figure:
        draw(found, passes, options.figure)
    print(f"\n{cpu_seconds() - started:.0f} CPU seconds in all")


if __name__ == "__main__":
    main()
