"""The simulation of Bojkovic & Loh (2024, "Performance evaluation"): CPU seconds and errors.

    python tests/benchmarks/paper_simulation.py [--figure docs/figures/paper-simulation.svg]
    python tests/benchmarks/paper_simulation.py --quick

The setting is that of docs/explanation/paper/simulation.md. Times are of this process and of its
children, so that those of CBC count, from the counts of the private rows to k synthetic rows. Rows
need not be kept: their counts in the 2^p cells are multinomial. Nothing is extrapolated except the
pass over the private rows, which is n times the cost of a row.
"""

import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import paper_methods as methods
from measuring import cpu_seconds, markdown, parsed, sized, svg
from paper_methods import DELTA, EPSILON, WAYS, run, sizes, theorem

EVERY = ("uniform", "histogram", "Bernstein")
MERGED = ("PuLP, merged", "HiGHS, merged", "columns", "entropy")
TABLES = (  # title, part of the runs, references, ways
    ("CPU seconds, the program as printed", "seconds", EVERY, ("PuLP",)),
    ("CPU milliseconds, equal candidates merged", "milliseconds", EVERY[:2], MERGED),
    ("largest error of the rows, as printed", "rows", EVERY, ("PuLP",)),
    ("largest error of the rows, this library", "rows", EVERY[:2], ("columns", "entropy")),
    ("largest error of a release by default", "rows", EVERY[:2], ("release",)),
    ("largest error of the density, as printed", "density", EVERY, ("PuLP",)),
    ("largest error of the density, this library", "density", EVERY[:2],
     ("columns", "entropy", "release")),
)  # fmt: skip


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
    if not values:
        return ""
    low, middle, high = map(brief, np.quantile(values, [0.25, 0.5, 0.75]))
    return f"{middle} ({low}-{high})" if len(values) > 1 else f"{middle} (one run)"


def simulate(largest, runs, seconds):
    """Runs by p, reference and way; a way that took too long ends at that p."""
    found, ended = {}, set()
    for p in range(3, largest + 1):
        for at in [(reference, way) for reference in methods.references(p) for way in WAYS]:
            if at in ended:
                continue
            done = repeated(lambda seed, at=(*at, p): run(*at, seed), runs, seconds)
            found[p, *at] = done
            longest = max(r.seconds for r in done)
            if longest > seconds or len(done) < runs:
                print(f"{', '.join(at)}: {len(done)} of {runs} runs at p = {p}, {longest:.0f} s")
            if longest > seconds:
                ended.add(at)
        for reference, epsilon in (("uniform", EPSILON), ("histogram", 2 * EPSILON)):
            n = sizes(reference, p)[0]
            if n <= methods.COUNTED:
                about = (p, n, epsilon)
                found[p, reference, "release"] = repeated(
                    lambda seed, about=about: methods.released(*about, seed), runs, seconds
                )
    return found


def size_table(largest):
    head = ["p", "\\|F\\|", "k", "sigma", "uniform n", "m", "histogram n", "m", "corrected n"]
    lines = []
    for p in range(3, largest + 1):
        _, k, _, sigma = sizes("uniform", p)
        uniform, histogram, bernstein = (sizes(reference, p)[::2] for reference in EVERY)
        corrected = theorem("histogram", p, False).sizes(DELTA).n
        numbers = (*uniform, *histogram, corrected, *bernstein)
        about = [p, methods.functions(p), k, f"{sigma:.3f}"]
        lines.append([*about, *(f"{size:,}" for size in numbers)])
    return markdown([*head, "Bernstein n", "m"], lines)


def by_p(found, part, references, ways):
    """A table with a line per p: the spread of a part of the runs of each reference and way."""
    every = sorted({p for p, *_ in found})
    at = [(reference, way) for way in ways for reference in references]
    lines = [
        [p, *(spread([getattr(r, part) for r in found.get((p, *one), ())]) for one in at)]
        for p in every
    ]
    return markdown(["p", *map(", ".join, at)], lines)


def beside(found, passes):
    """How much longer uniform candidates take PuLP, the pass over rows, and promised errors."""
    lines = []
    for p, seconds in passes.items():
        done = [found.get((p, one, "PuLP"), ()) for one in EVERY[:2]]
        taken = [np.median([r.seconds for r in runs]) for runs in done if runs]
        ratio = brief(taken[0] / taken[1]) if len(taken) == 2 else ""
        promised = (methods.promised(one, p, sizes(one, p)[0]) for one in EVERY[:2])
        lines.append([p, ratio, *map(brief, (seconds, *promised))])
    head = ["p", "uniform over histogram, PuLP", "histogram, counting n rows"]
    return markdown([*head, "promised, uniform", "promised, histogram"], lines)


def at_equal_time(p, runs):
    """Lines: every reference with the m that takes the CPU time of the histogram's printed m."""
    lines = []
    for reference in methods.references(p):
        n, k, m, _ = sizes(reference, p)
        if reference != "histogram":
            m = equal_time(reference, p, runs)
        error = 8 * theorem(reference, p).delta(n, k=k, m=m)
        says = f"{error:.2g}" if error < np.inf else "nothing"
        for way in ("PuLP", "entropy"):
            done = [run(reference, way, p, seed, m) for seed in range(runs)]
            parts = ("milliseconds", "density", "rows")
            cells = (spread([getattr(r, part) for r in done]) for part in parts)
            lines.append([p, reference, f"{m:,}", way, *cells, says])
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
LABELS = {"columns": "merged, column generation", "entropy": "entropy fit",
          "release": "default release"}  # fmt: skip


def draw(found, passes, path):
    every = list(passes)
    with svg(path, 1, 2, (11, 4.6)) as axes:
        time, error = axes[0]
        for number, ((reference, way), style) in enumerate(DRAWN.items()):
            runs = {p: done for p in every if (done := found.get((p, reference, way)))}
            style = {"label": f"{reference}, {LABELS.get(way, way)}", "ms": 4, **style}
            if way in ("PuLP", "columns"):
                seconds = [np.median([r.seconds for r in done]) for done in runs.values()]
                time.plot(list(runs), seconds, **style)
            if way != "columns":
                errors = [[r.rows for r in done] for done in runs.values()]
                quartiles = [np.quantile(one, [0.25, 0.5, 0.75]) for one in errors]
                low, middle, high = np.transpose(quartiles)
                places = np.array(list(runs)) + 0.05 * (number - 3)
                error.errorbar(places, middle, (middle - low, high - middle), lw=1, **style)
        time.plot(every, list(passes.values()), color="0.5", ls="--",
                  label="histogram, counting its n rows")  # fmt: skip
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
    given = parsed(__doc__, largest=10, runs=15, seconds=40.0, figure=Path, quick=False)
    if given.quick:
        given.largest, given.runs, given.seconds = min(given.largest, 5), 3, 3
    for way in ("HiGHS, merged", "PuLP", "columns", "entropy"):  # what they import is not timed
        run("histogram", way, 2, 0)
    started = cpu_seconds()
    print(f"largest p {given.largest}, {given.runs} runs; load {os.getloadavg()[0]:.1f}\n")
    print(size_table(given.largest), "\n", flush=True)
    for p in (3, 4):
        print(f"p = {p}: {methods.refused(p)}")
    found = simulate(given.largest, given.runs, given.seconds)
    every = range(3, given.largest + 1)
    passes = {p: methods.pass_seconds(p, sizes("histogram", p)[0]) for p in every}
    for title, *about in TABLES:
        print(f"\n{title}\n\n{by_p(found, *about)}", flush=True)
    print(f"\nbeside them\n\n{beside(found, passes)}", flush=True)
    compared = [p for p in ((4,) if given.quick else (4, 6, 8)) if p <= given.largest]
    lines = [line for p in compared for line in at_equal_time(p, given.runs)]
    head = ["p", "reference", "m", "way", "CPU ms", "error, density", "error, rows", "promised"]
    print(f"\nat equal time\n\n{markdown(head, lines)}")
    if given.figure:
        draw(found, passes, given.figure)
    print(f"\n{cpu_seconds() - started:.0f} CPU seconds in all")


if __name__ == "__main__":
    main()
