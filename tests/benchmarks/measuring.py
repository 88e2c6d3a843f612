"""What benchmarks share: command lines, seeded noise, processes, CPU seconds, tables and figures.

The simulations of tests/statistical use the seeded noise too.
"""

import argparse
import json
import resource
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from dpstats.inference.simulation import draw_from
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.privacy.gaussian import DiscreteGaussian


def parsed(doc, places=None, **options):
    """The command line of a script: places by name and options by their defaults, with their types.

    A tuple lists what may be chosen, an option's default first; a list is of several values; a
    type has no default; False is a flag.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in [*(places or {}).items(), *((f"--{o}", d) for o, d in options.items())]:
        if default is False:
            parser.add_argument(name, action="store_true")
            continue
        several = isinstance(default, list)
        one = default[0] if isinstance(default, list | tuple) else default
        about = {"type": one if isinstance(one, type) else type(one)}
        if isinstance(default, tuple):
            about["choices"] = default
        if several:
            about["nargs"] = "*"
        if name.startswith("--"):
            about["default"] = None if isinstance(one, type) else default if several else one
        parser.add_argument(name, **about)
    return parser.parse_args()


class Gaussian:
    """Discrete Gaussian noise and uniforms with a seed: repeatable, and not private."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, scale, size):
        return draw_from(DiscreteGaussian(scale), size, self.rng).astype(np.int64)

    def uniforms(self, size):
        return self.rng.random(size) - 0.5


class Laplace(Gaussian):
    """The same with discrete Laplace noise."""

    def __call__(self, scale, size):
        p = -np.expm1(-1 / scale)
        return self.rng.geometric(p, size) - self.rng.geometric(p, size)


def noise_of(budget):
    return Laplace if budget.noise == "laplace" else Gaussian


def noise_of_scales(scales, source):
    """One noise per function, of its own scale."""
    noise = np.zeros(len(scales), dtype=np.int64)
    for scale in np.unique(scales):
        same = np.flatnonzero(scales == scale)
        noise[same] = source(float(scale), len(same))
    return noise


def with_noise(exact, source):
    """Measurements whose sums of the family are the exact ones of `exact` plus fresh noise."""
    sums, uniforms = exact.noisy_sums.copy(), exact.uniforms.copy()
    start = 0
    for block in exact.measured:
        piece = slice(start, start := start + block.block.size)
        sums[piece] += noise_of_scales(block.scales, source)
        uniforms[piece] = source.uniforms(block.block.size)
    return replace(exact, noisy_sums=sums, uniforms=uniforms, not_private=True)


def fresh(plan, n, draw, runs, seed):
    """What analyses see of fresh rows with fresh noise: what was drawn, measurements and a view.

    `draw(rng)` gives the codes of n rows by column, or the exact sums of the plan's family.
    """
    rng = np.random.default_rng(seed)
    source = noise_of(plan.budget)(seed + 1)
    strategy = plan.strategy if plan.count is not None else replace(plan.strategy, n=n)
    for _ in range(runs):
        drawn = draw(rng)
        sums = [drawn] if isinstance(drawn, np.ndarray) else plan.family.sums(drawn)
        if plan.count is not None:
            (scale,) = plan.strategy.scales_of(plan.count)
            sums = [*sums, n + source(float(scale), 1)]
        sums = np.concatenate(sums)
        exact = Measurements(strategy, sums, np.zeros(len(sums)), not_private=True)
        held = with_noise(exact, source)
        yield drawn, held, SimpleNamespace(
            schema=plan.schema, n=held.n, budget=plan.budget,
            answers=lambda wanted, held=held, **options: answer(held, wanted, **options),
            candidates=dict.fromkeys(plan.schema.names, np.zeros(1, np.int64)), weights=np.ones(1),
        )  # fmt: skip


def apart(script, *given, limit=None):
    """What a script prints last, as JSON, in a process of its own; None if it fails at a limit.

    The limit is in CPU seconds.
    """
    bounded = limit and (lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)))
    done = subprocess.run([sys.executable, script, *map(str, given)], stdout=subprocess.PIPE,
                          text=True, check=not limit, preexec_fn=bounded)  # fmt: skip
    return None if done.returncode else json.loads(done.stdout.splitlines()[-1])


def peak():
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cpu_seconds():
    """CPU time of this process and of the children that have ended, such as those of PuLP."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work, repeats=1):
    """What `work` returns, and its median CPU seconds."""
    taken = []
    for _ in range(repeats):
        start = cpu_seconds()
        result = work()
        taken.append(cpu_seconds() - start)
    return result, np.median(taken)


def markdown(head, lines):
    """A table as text, with a header and a list of cells per line; three digits of a number."""
    every = [head, ["---"] * len(head), *lines]
    shown = [[f"{x:.3g}" if isinstance(x, float) else str(x) for x in line] for line in every]
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


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
