"""Wall time of `import dpstats` and of `dpstats --help`.

    python tests/benchmarks/import_time.py [--runs 15]

Each run is a fresh interpreter; the runs of all commands take turns, so that a busy moment of the
machine hits them alike. Shown are medians, and what is left after a bare interpreter's start.
"""

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "bare interpreter": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import dpstats": ["-c", "import dpstats"],
    "dpstats --help": ["-m", "dpstats", "--help"],
    "import scipy.stats": ["-c", "import scipy.stats"],
}
TARGETS = {"import dpstats": 0.15, "dpstats --help": 0.3}


def wall(arguments):
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    for arguments in COMMANDS.values():
        wall(arguments)  # writes and warms the compiled files
    times = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, arguments in COMMANDS.items():
            times[name].append(wall(arguments))
    bare = statistics.median(times["bare interpreter"])
    print(f"{'command':<20} {'median':>8} {'fastest':>8} {'beyond bare':>12} {'target':>7}")
    for name, taken in times.items():
        median = statistics.median(taken)
        target = f"{TARGETS[name]:.2f} s" if name in TARGETS else ""
        print(
            f"{name:<20} {median:7.3f}s {min(taken):7.3f}s {median - bare:11.3f}s {target:>7}"
        )  # fmt: skip
    print(f"{runs} runs each")


if __name__ == "__main__":
    main()
