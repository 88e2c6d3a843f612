"""Coverage, widths, tests and CPU time of all intervals, before and after a change of the package.

    python tests/benchmarks/intervals.py measure FOLDER [--releases 400] [--only share "OLS of one"]
    PYTHONPATH=CODE python tests/benchmarks/intervals.py infer FOLDER OUT.json [--releases 400]
    python tests/benchmarks/intervals.py compare OLD.json NEW.json
    python tests/benchmarks/intervals.py show ONE.json
    python tests/benchmarks/intervals.py page OLD.json NEW.json

`measure` draws rows with a seed and saves their measurements, whose noise has none, so that two
versions infer from the same files: FOLDER/SETTING.zip holds the releases of a setting with the
values of their own rows, SETTING.json those of the population, each with a false value, 2.5
standard deviations of the first estimates away, that tests should reject. `infer` writes estimates,
limits at 95% and, of every eighth release, at 50% and 99%, p-values and CPU seconds; failures are
kept as text. Both leave alone what is there. `--only` takes beginnings of names of settings
(`interval_settings.py`).

`page` prints a row for every analysis, as in docs/explanation/inference/widths.md: limits for the
population, or the first that there are, with the least coverage of several terms and the width of
the first; the largest level and the first power of their tests.

`compare` prints a row for every term and kind of limits, and FAIL where

- coverage of 95% limits is below nominal and by more than .01 lower in the same releases (McNemar
  p < .001), or 3 standard errors below nominal;
- the median width is above 1.03 times the former;
- p-values of the truth are too small (one-sided Kolmogorov-Smirnov, p < 1e-4);
- limits are not nested;
- more inferences fail than before, or CPU time of an analysis grows by a fifth and a millisecond.
"""

import json
import tempfile
import time
import zipfile
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
from interval_settings import SETTINGS
from measuring import markdown, parsed
from scipy import stats

import dpstats as dps

LEVELS = (0.5, 0.05, 0.01)  # of a row of limits: low, high, low, high, low, high
EVERY = 8  # releases of which one has limits at all levels
FIRST, AWAY = 20, 2.5
NO_LIMITS = "no limits"  # of a test alone, in the place of their kind


class FittedDensity:
    """Fits the density that several analyses share, so that none of them has its time."""

    def infer(self, view):
        return view.weights


def archive(folder, name):
    kept = "".join(letter if letter.isalnum() else "-" for letter in name)
    return folder / f"{kept.replace('--', '-')}.zip"


def releases_of(path):
    """Numbers of the releases that were measured."""
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as held:
        return sorted(int(name[:-4]) for name in held.namelist() if name.endswith(".zip"))


def opened(path, number):
    """A release without rows, and the values of its own rows."""
    with zipfile.ZipFile(path) as held, tempfile.NamedTemporaryFile(suffix=".zip") as file:
        own = json.loads(held.read(f"{number}.json"))
        file.write(held.read(f"{number}.zip"))
        file.flush()
        return dps.synthesize(dps.Measurements.load(file.name), m=1, k=1, rng=0), own


def measure_one(name, folder, releases):
    setting, path = SETTINGS[name], archive(folder, name)
    wanted = sorted(set(range(releases)) - set(releases_of(path)))
    truth = path.with_suffix(".json")
    if not wanted and truth.exists():
        return
    population, plan = setting.table(), setting.plan()
    for number in wanted:
        rows = setting.draw(population, np.random.default_rng([zlib.crc32(name.encode()), number]))
        answers = dps.measure(plan, rows).to_bytes()
        own = {key: ask.own(rows) for key, ask in setting.asks.items() if ask.of_table}
        with zipfile.ZipFile(path, "a") as held:
            held.writestr(f"{number}.json", json.dumps(own))
            held.writestr(f"{number}.zip", answers)
    if not truth.exists() or min(wanted) < FIRST:
        truth.write_text(json.dumps(truths(setting, population, path)))


def truths(setting, population, path):
    """The population's values of all terms, each with a false one."""
    known = {key: ask.own(population) for key, ask in setting.asks.items()}
    estimates = defaultdict(list)
    for number in releases_of(path)[:FIRST]:
        release, _ = opened(path, number)
        for key, ask in setting.asks.items():
            view = ask.read(ask.part(release.infer(ask.analysis)))
            for term in ask.terms:
                estimates[key, term].append(view.params[view.terms.index(term)])
    return {
        key: {term: (truth, false_value(truth, setting.asks[key].within, estimates[key, term]))
              for term, truth in values.items()}
        for key, values in known.items()
    }  # fmt: skip


def false_value(truth, within, estimates):
    """A value away from the truth, above it where it can be."""
    known = np.array(estimates, dtype=float)
    known = known[np.isfinite(known)]
    if not len(known):
        return np.nan
    away = AWAY * np.subtract(*np.percentile(known, [75, 25])) / 1.349
    false = truth + away if truth + away < within[1] else truth - away
    return false if within[0] < false < within[1] else np.nan


class Timed:
    """Calls whose CPU seconds and failures are kept."""

    def __init__(self):
        self.seconds, self.failures = {}, {}

    def __call__(self, what, function, *given, otherwise=np.nan):
        started = time.process_time()
        try:
            return function(*given)
        except Exception as error:
            self.failures[what] = f"{type(error).__name__}: {error}"[:200]
            return otherwise
        finally:
            self.seconds.setdefault(what, time.process_time() - started)


def infer_ask(ask, release, own, truth, levels):
    """Fields of a row for every kind of limits and every term of one analysis."""

    def read():
        view = ask.read(ask.part(release.infer(ask.analysis)))
        return view, [view.terms.index(term) for term in ask.terms]

    timed, rows = Timed(), {}
    view, places = timed("infer", read, otherwise=(None, [0] * len(ask.terms)))
    for about in ask.about or (NO_LIMITS,):
        nothing = np.full((max(places) + 1, 2), np.nan)
        ends = {alpha: nothing for alpha in LEVELS}
        if view is not None and ask.about:
            ends |= {a: timed(about, view.ends, a, about, otherwise=nothing) for a in levels}
        for term, place in zip(ask.terms, places, strict=True):
            rows[about, term] = row = {
                "estimate": np.nan if view is None else view.params[place],
                "truth": own.get(term, np.nan) if "table" in about else truth[term][0],
                "ends": [end for alpha in LEVELS for end in ends[alpha][place]],
            }
            if about in ("population", NO_LIMITS) and view is not None and view.pvalue:
                values = dict(zip(("null", "false"), truth[term], strict=True))
                if view.of_zero:  # one p-value, of a hypothesis that is true or false
                    values = {"null" if abs(truth[term][0]) < 1e-9 else "false": 0.0}
                for what, value in values.items():
                    if np.isfinite(value):
                        row[what] = timed("test", view.pvalue, term, value)
    for (about, _), row in rows.items():
        row |= {"infer": timed.seconds["infer"], "limits": timed.seconds.get(about, 0.0),
                "test": timed.seconds.get("test", 0.0)}  # fmt: skip
        failed = (timed.failures.get(what) for what in ("infer", about, "test"))
        row["failure"] = "; ".join(filter(None, failed))
    return rows


FIELDS = ("estimate", "truth", "ends", "null", "false", "infer", "limits", "test", "failure")


def infer_one(name, folder, releases):
    """Rows of one setting."""
    setting, path = SETTINGS[name], archive(folder, name)
    found = defaultdict(lambda: {what: [] for what in FIELDS})
    known = json.loads(path.with_suffix(".json").read_text())
    for number in (number for number in releases_of(path) if number < releases):
        release, own = opened(path, number)
        made = {}
        if setting.fitted:
            timed = Timed()
            timed("infer", release.infer, FittedDensity())
            took = {"infer": timed.seconds["infer"], "limits": 0.0, "test": 0.0, "failure": ""}
            made["fitted density", NO_LIMITS, ""] = took
        for key, ask in setting.asks.items():
            levels = LEVELS if number % EVERY == 0 else LEVELS[1:2]
            rows = infer_ask(ask, release, own.get(key, {}), known[key], levels)
            made |= {(key, about, term): row for (about, term), row in rows.items()}
        for key, row in made.items():
            for what in FIELDS:
                missing = [np.nan] * 6 if what == "ends" else np.nan
                found["\t".join(key)][what].append(row.get(what, missing))
    return dict(found)


def measure(folder, names, releases):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        measure_one(name, folder, releases)
        print(name, flush=True)


def infer(folder, out, names, releases):
    held = json.loads(out.read_text()) if out.exists() else {}
    for name in names:
        if name not in held and archive(folder, name).exists():
            held[name] = infer_one(name, folder, releases)
            out.write_text(json.dumps(held, default=float))
            print(name, flush=True)


def cpu_of(held):
    """CPU seconds of every analysis in a release: inference, 95% limits of each kind, tests."""
    found = defaultdict(dict)
    for name, rows in held.items():
        for key, row in rows.items():
            ask, about, _ = key.split("\t")
            parts = {"infer": "infer", "test": "test", about: "limits"}
            found[name, ask] |= {part: np.median(row[what]) for part, what in parts.items()}
    return {key: sum(parts.values()) for key, parts in found.items()}


class Row:
    """Figures of one or more terms, which count as covered together."""

    def __init__(self, terms):
        truth = np.array([row["truth"] for row in terms], dtype=float)
        ends = np.array([row["ends"] for row in terms], dtype=float)
        lows, highs = ends[..., ::2], ends[..., 1::2]
        low, high = lows[..., 1], highs[..., 1]
        near = 1e-6 * np.where(np.isfinite(truth), np.abs(truth), 0) + 1e-12  # of rounding
        self.known = ~(np.isnan(low) | np.isnan(truth)).any(axis=0)
        self.covered = ((low <= truth + near) & (truth - near <= high)).all(axis=0)
        with np.errstate(invalid="ignore"):
            self.widths = (high - low).mean(axis=0)[self.known]
        self.widths[np.isnan(self.widths)] = 0.0  # both ends at one infinity
        beyond = (lows[..., 1:] > lows[..., :-1]) | (highs[..., 1:] < highs[..., :-1])
        self.crossed = int(beyond.any(axis=(0, 2)).sum())
        self.null, self.false = (
            np.array(terms[0][what], dtype=float) if len(terms) == 1 else np.empty(0)
            for what in ("null", "false")
        )
        self.null, self.false = (p[~np.isnan(p)] for p in (self.null, self.false))
        self.seconds = [np.nanmedian(terms[0][what]) for what in ("infer", "limits")]
        failures = [text for row in terms for text in row["failure"] if text]
        self.failed, self.failure = len(failures), next(iter(failures), "")
        any_known = self.known.any()
        self.coverage = self.covered[self.known].mean() if any_known else np.nan
        self.width = np.median(self.widths) if any_known else np.nan

    @property
    def cells(self):
        """Texts of the columns of the table."""
        rates = [self.coverage, *(np.mean(found) if len(found) else np.nan for found in (
            np.isinf(self.widths), self.null <= 0.05, self.false <= 0.05))]  # fmt: skip
        coverage, *others = [f"{rate:.3f}" for rate in rates]
        time_taken = " + ".join(f"{1000 * one:.1f}" for one in self.seconds)
        return [coverage, f"{self.width:.3g}", *others, time_taken]

    def failures(self, old):
        """What is wrong with a row, by itself and beside the former one."""
        n = max(self.known.sum(), 1)
        if self.coverage < 0.95 - 3 * np.sqrt(0.95 * 0.05 / n):
            before = "" if old is None else f" (before: {old.coverage:.3f})"
            yield f"coverage {self.coverage:.3f} is 3 standard errors below .95{before}"
        if len(self.null) and np.ptp(self.null):
            p = stats.kstest(self.null, "uniform", alternative="greater").pvalue
            if p < 1e-4:
                yield f"p-values of the truth are too small (p = {p:.1g})"
        if self.crossed:
            yield f"limits of {self.crossed} releases are not nested"
        if self.failed > (0 if old is None else old.failed):
            yield f"{self.failed} releases failed, such as {self.failure}"
        if old is None:
            return
        both = self.known & old.known
        lost, gained = (
            np.sum(both & a.covered & ~b.covered) for a, b in ((old, self), (self, old))
        )
        if self.coverage < 0.95 and lost - gained > 0.01 * both.sum():
            p = stats.binomtest(int(lost), int(lost + gained)).pvalue
            if p < 0.001:
                yield f"coverage {old.coverage:.3f} -> {self.coverage:.3f} (p = {p:.1g})"
        if self.width > 1.03 * old.width:
            yield f"median width {old.width:.3g} -> {self.width:.3g}"


def rows_of(held):
    """All rows: those of joint limits together."""
    found = defaultdict(list)
    for name, rows in held.items():
        for key, row in rows.items():
            ask, about, term = key.split("\t")
            if term:
                found[name, ask, "all" if about == "jointly" else term, about].append(row)
    return {key: Row(terms) for key, terms in found.items()}


HEAD = ("setting", "analysis", "term", "about", "coverage", "width", "unbounded", "level", "power",
        "CPU ms")  # fmt: skip


def shown(cells):
    """Texts without figures that are not known; a bar would end a cell."""
    return ["" if set(cell) <= set("nan ->") else cell.replace("|", "given") for cell in cells]


def table(new, old=None):
    """Print the rows, and then what fails."""
    after, before = rows_of(new), {} if old is None else rows_of(old)
    lines, fails = [], [f"{', '.join(key)}: gone" for key in before if key not in after]
    for key, row in after.items():
        former = before.get(key)
        cells = row.cells if former is None else [
            a if a == b else f"{a} -> {b}" for a, b in zip(former.cells, row.cells, strict=True)
        ]  # fmt: skip
        lines.append(shown([*key, *cells]))
        fails += [f"{', '.join(key)}: {text}" for text in row.failures(former)]
    print(markdown(HEAD, lines))
    took, formerly = cpu_of(new), {} if old is None else cpu_of(old)
    for key, seconds in took.items():
        former = formerly.get(key, np.inf)
        if seconds > max(1.2 * former, former + 1e-3):
            fails.append(f"{', '.join(key)}: {1000 * former:.1f} -> {1000 * seconds:.1f} CPU ms")
    totals = " -> ".join(f"{sum(one.values()):.1f}" for one in (formerly, took) if one)
    print(f"\n{len(after)} rows; {totals} CPU s of a release of every setting")
    print("\n".join(f"FAIL {text}" for text in fails) or "nothing fails")


def page(new, old):
    """Print a row for every analysis, before and after."""
    took, formerly, rows, before = cpu_of(new), cpu_of(old), rows_of(new), rows_of(old)
    kinds = defaultdict(list)
    for key in rows:
        kinds[key[0], key[1]].append(key)
    lines = []
    for ask, keys in kinds.items():
        about = next((a for *_, a in keys if a == "population"), keys[0][3])
        cells = []
        for of, time_taken in ((before, formerly), (rows, took)):
            found = [of[key] for key in keys if key[3] in (about, NO_LIMITS) and key in of]
            if not found:
                cells.append([""] * 6)
                continue
            levels = [np.mean(row.null <= 0.05) for row in found if len(row.null)]
            powers = [np.mean(row.false <= 0.05) for row in found if len(row.false)]
            endless = np.mean(np.isinf(found[0].widths)) if len(found[0].widths) else 0
            cells.append([
                short(min(row.coverage for row in found)), f"{found[0].width:.3g}",
                short(endless) if endless else "", short(max(levels, default=np.nan)),
                short(next(iter(powers), np.nan)), f"{1000 * time_taken.get(ask, np.nan):.0f}",
            ])  # fmt: skip
        pairs = [
            new if new == old else f"{old or '-'}, {new or '-'}"
            for old, new in zip(*cells, strict=True)
        ]
        lines.append([*ask, *pairs])
    head = ("setting", "analysis", "coverage", "width", "without an end", "level", "power",
            "CPU ms")  # fmt: skip
    print(markdown(head, lines))


def short(rate):
    """A rate with two digits, as on the page."""
    return "" if np.isnan(rate) else f"{rate:.3f}".lstrip("0") if rate < 1 else "1"


def main():
    places = {"work": ("measure", "infer", "compare", "show", "page"), "paths": [Path]}
    given = parsed(__doc__, places, releases=400, only=[str])
    if given.work in ("measure", "infer"):
        names = [name for name in SETTINGS if name.startswith(tuple(given.only or [""]))]
        {"measure": measure, "infer": infer}[given.work](*given.paths, names, given.releases)
    elif given.work == "page":
        page(*(json.loads(path.read_text()) for path in reversed(given.paths)))
    else:
        table(*(json.loads(path.read_text()) for path in reversed(given.paths)))


if __name__ == "__main__":
    main()
