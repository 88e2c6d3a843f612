"""Coverage, widths, tests and CPU time of all intervals, before and after a change of the package.

    PYTHONPATH=CODE python tests/benchmarks/intervals.py infer OUT.csv [--releases 400] [--jobs 1]
        [--only share "OLS of one"]
    python tests/benchmarks/intervals.py compare NEW.csv [OLD.csv]

`infer` draws rows and noise with seeds, so that two versions see the same, and writes 95% limits,
p-values of the truth and CPU seconds; failures are kept as text, and settings that OUT.csv has are
left alone. `--only` takes beginnings of names of settings (`interval_settings.py`). `compare`
prints a row for every term and kind of limits, and lists those whose coverage is 3 standard errors
below nominal, whose p-values of the truth are too small (Kolmogorov-Smirnov), or which are worse
than before: coverage, width by 3%, failures, CPU time by a fifth.
"""

import time
import zlib
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import pandas as pd
from interval_settings import SETTINGS
from measuring import noise_of, parsed
from scipy import stats

import dpstats as dps
from dpstats.privacy.noise import _noise_from

NO_LIMITS = "no limits"  # of a test alone, in the place of their kind
KEY = ["setting", "analysis", "term", "about"]
FIELDS = [*KEY, "number", "low", "high", "truth", "p", "seconds", "failure"]


class FittedDensity:
    """Fits the density that several analyses share, so that none of them has its time."""

    def infer(self, view):
        return view.weights


def of_ask(ask, release, own, truth):
    """Limits and p-values of one analysis, for every kind of limits and every term."""
    view = ask.read(ask.part(release.infer(ask.analysis)))
    places = [view.terms.index(term) for term in ask.terms]
    for about in ask.about or (NO_LIMITS,):
        values = own if "table" in about else truth
        ends = view.ends(0.05, about) if ask.about else np.full((max(places) + 1, 2), np.nan)
        for term, (low, high) in zip(ask.terms, np.asarray(ends)[places], strict=True):
            row = {"about": about, "term": term, "low": low, "high": high, "truth": values[term]}
            tested = view.pvalue and about in ("population", NO_LIMITS)
            known = np.isfinite(values[term]) and (not view.of_zero or abs(values[term]) < 1e-9)
            yield row | ({"p": view.pvalue(term, values[term])} if tested and known else {})


def infer_one(name, releases):
    setting, found = SETTINGS[name], []
    population, plan = setting.table(), setting.plan()
    truth = {key: ask.own(population) for key, ask in setting.asks.items()}
    for number in range(releases):
        seed = [zlib.crc32(name.encode()), number]
        rows = setting.draw(population, np.random.default_rng(seed))
        with _noise_from(noise_of(plan.budget)([*seed, 1])):
            held = dps.measure(plan, rows)
        release = dps.synthesize(held, m=1, k=1, rng=0)
        if setting.fitted:
            release.infer(FittedDensity())
        for key, ask in setting.asks.items():
            about = {"setting": name, "analysis": key, "number": number}
            own, started = ask.own(rows) if ask.of_table else {}, time.process_time()
            try:
                made = list(of_ask(ask, release, own, truth[key]))
            except Exception as error:
                made = [{"about": NO_LIMITS, "term": "failed", "failure": repr(error)}]
            seconds = time.process_time() - started
            found += [about | row | {"seconds": seconds} for row in made]
    return pd.DataFrame(found, columns=FIELDS)


def infer(out, releases, jobs, only):
    held = [pd.read_csv(out)] if out.exists() else []
    done = set(held[0]["setting"]) if held else set()
    names = [n for n in SETTINGS if n not in done and any(map(n.startswith, only or [""]))]
    with Pool(jobs) as pool:
        every = pool.imap(partial(infer_one, releases=releases), names)
        for name, found in zip(names, every, strict=True):
            held.append(found)
            pd.concat(held).to_csv(out, index=False, float_format="%.7g")
            spent = 1000 * found.groupby("analysis")["seconds"].median()
            print(f"{name:<40} CPU ms: {spent.round(1).to_dict()}", flush=True)


def by_release(path):
    """A row for every release; terms of joint limits count as covered together."""
    rows = pd.read_csv(path, dtype=dict.fromkeys(KEY, str))
    low, high, truth = rows["low"], rows["high"], rows["truth"]
    near = 1e-6 * truth.abs().where(np.isfinite(truth), 0) + 1e-12  # of rounding
    covered = (low <= truth + near) & (truth - near <= high)
    rows["covered"] = covered.where(low.notna() & truth.notna()).astype(float)
    rows["width"] = (high - low).mask(low == high, 0.0)
    rows["term"] = rows["term"].mask(rows["about"] == "jointly", "all")
    rows["failed"] = rows["failure"].notna()
    grouped = rows.groupby([*KEY, "number"], sort=False)
    return grouped.agg({"covered": "min", "width": "mean", "p": "first", "seconds": "first",
                        "failed": "any"})  # fmt: skip


def too_small(pvalues):
    """Whether p-values of the truth are, by the test of Kolmogorov and Smirnov."""
    known = pvalues.dropna()
    if known.nunique() < 2:
        return False
    return stats.kstest(known, "uniform", alternative="greater").pvalue < 1e-4


def figures(path):
    """What every term and kind of limits shows; `small` are p-values of the truth."""
    every = by_release(path)
    rejected = (every["p"] <= 0.05).where(every["p"].notna())
    every = every.assign(unbounded=np.isinf(every["width"]), level=rejected.astype(float),
                         ms=1000 * every["seconds"], releases=every["covered"])  # fmt: skip
    found = every.groupby(KEY, sort=False).agg({
        "covered": "mean", "width": "median", "unbounded": "mean", "level": "mean",
        "ms": "median", "failed": "sum", "releases": "count",
    })  # fmt: skip
    return found.assign(small=every["p"].groupby(KEY, sort=False).agg(too_small))


def compare(new, old=None):
    now = figures(new)
    error = 3 * np.sqrt(0.95 * 0.05 / now["releases"])
    worse = (now["covered"] < 0.95 - error) | (now["failed"] > 0) | now["small"]
    if old is not None:
        before = figures(old)
        same = before.reindex(now.index)
        worse |= (now["width"] > 1.03 * same["width"]) | (now["failed"] > same["failed"])
        worse |= now["covered"] < np.minimum(same["covered"], 0.95) - 0.01
        worse |= now["ms"] > np.maximum(1.2 * same["ms"], same["ms"] + 1)
        now = now.join(before, rsuffix=" before", how="outer")
    print(now.round(4).to_string())
    print("\nworse:", *map(", ".join, worse.index[worse]), sep="\n")


if __name__ == "__main__":
    given = parsed(__doc__, {"work": ("infer", "compare"), "paths": [Path]}, releases=400, jobs=1,
                   only=[str])  # fmt: skip
    if given.work == "infer":
        infer(*given.paths, given.releases, given.jobs, given.only)
    else:
        compare(*given.paths)
