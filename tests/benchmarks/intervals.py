"""Coverage, widths, tests and CPU time of all intervals, before and after a change of the package.

    PYTHONPATH=CODE python tests/benchmarks/intervals.py infer OUT.csv [--releases 400] [--jobs 1]
        [--only share "OLS of one"]
    python tests/benchmarks/intervals.py compare NEW.csv [OLD.csv]

`infer` draws rows and noise with seeds, so that two versions see the same, and writes 95% limits,
p-values of the truth and CPU seconds; failures are kept as text, and settings that OUT.csv has are
left alone. `--only` takes beginnings of names of settings (`interval_settings.py`). `compare`
prints a row for every term and kind of limits, and FAIL with what `failures` finds: coverage below
nominal or below that of the same releases before, wider intervals, p-values that are too small,
more failures, more CPU time.
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
    """All rows of one setting."""
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


def figures(releases):
    """Coverage, median width, share without an end, level and CPU ms of every term."""
    rejected = (releases["p"] <= 0.05).where(releases["p"].notna())
    every = releases.assign(
        unbounded=np.isinf(releases["width"]), level=rejected.astype(float),
        ms=1000 * releases["seconds"],
    )  # fmt: skip
    return every.groupby(KEY, sort=False).agg({
        "covered": "mean", "width": "median", "unbounded": "mean", "level": "mean",
        "ms": "median", "failed": "sum",
    })  # fmt: skip


def failures(key, now, row, before, former):
    """What is wrong with a term: releases and figures, and the former ones or None."""
    n = max(now["covered"].count(), 1)
    if row["covered"] < 0.95 - 3 * np.sqrt(0.95 * 0.05 / n):
        yield f"coverage {row['covered']:.3f} is 3 standard errors below .95"
    null = now["p"].dropna()
    if len(null) and np.ptp(null):
        p = stats.kstest(null, "uniform", alternative="greater").pvalue
        if p < 1e-4:
            yield f"p-values of the truth are too small (p = {p:.1g})"
    if row["failed"] > (0 if former is None else former["failed"]):
        yield f"{row['failed']:.0f} releases failed"
    if former is None:
        return
    change = (now["covered"] - before["covered"]).dropna()
    lost, gained = (change < 0).sum(), (change > 0).sum()
    if row["covered"] < 0.95 and lost - gained > 0.01 * len(change):
        p = stats.binomtest(int(lost), int(lost + gained)).pvalue
        if p < 0.001:
            yield f"coverage {former['covered']:.3f} -> {row['covered']:.3f} (p = {p:.1g})"
    if row["width"] > 1.03 * former["width"]:
        yield f"median width {former['width']:.3g} -> {row['width']:.3g}"
    if row["ms"] > max(1.2 * former["ms"], former["ms"] + 1):
        yield f"{former['ms']:.1f} -> {row['ms']:.1f} CPU ms"


def compare(new, old=None):
    """Print the figures, and then what fails."""
    now, before = by_release(new), None if old is None else by_release(old)
    table, former = figures(now), None if old is None else figures(before)
    fails = []
    shown = table if old is None else table.join(former, rsuffix=" before", how="outer", sort=False)
    print(shown.round(4).to_string())
    for key, row in table.iterrows():
        known = former is not None and key in former.index
        beside = (before.loc[key], former.loc[key]) if known else (None, None)
        fails += [f"FAIL {', '.join(key)}: {t}" for t in failures(key, now.loc[key], row, *beside)]
    gone = [] if former is None else former.index.difference(table.index)
    print("\n".join([*fails, *(f"FAIL {', '.join(key)}: gone" for key in gone)]) or "nothing fails")


if __name__ == "__main__":
    given = parsed(__doc__, {"work": ("infer", "compare"), "paths": [Path]}, releases=400, jobs=1,
                   only=[str])  # fmt: skip
    if given.work == "infer":
        infer(*given.paths, given.releases, given.jobs, given.only)
    else:
        compare(*given.paths)
