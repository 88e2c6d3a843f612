"""What benchmarks share: CPU seconds, Markdown tables, figures that do not change by themselves."""

import resource
import time
from contextlib import contextmanager

import numpy as np


def cpu_seconds():
    """CPU time of this process and of the children that have ended, such as those of PuLP."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work, repeats=1):
    """What `work` returns, and its median wall and CPU seconds."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter(), cpu_seconds()
        result = work()
        taken.append((time.perf_counter() - start[0], cpu_seconds() - start[1]))
    return result, *np.median(taken, axis=0)


def markdown(head, lines):
    """A table as text, with a header and a list of cells per line."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])


@contextmanager
def svg(path, rows, columns, size):
    """Axes (rows, columns) of a figure, saved on leaving: equal numbers give equal bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "dpstats", "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure.subplots(rows, columns, squeeze=False)
        figure.savefig(path, format="svg", metadata={"Date": None})


def sized(axis, sizes, legend=None, **labels):
    """Finish a panel over sizes: logarithmic up, a tick per size, a legend with its options."""
    axis.set(yscale="log", **labels)
    axis.minorticks_off()
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7, **(legend or {}))
