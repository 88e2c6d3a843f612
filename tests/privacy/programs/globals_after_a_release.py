"""Whether the package's modules and classes hold a true sum after a release: printed as JSON.

Run alone, with the file of the sums: ``python globals_after_a_release.py sums.json``. Two planted
sums show that the search finds them.
"""

import importlib.util
import json
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np

import dpstats as dps
from dpstats.private import kernel


def globals_of_the_package() -> list[dict[str, object]]:
    """What its modules and classes hold, caches of functions included."""
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "dpstats"]
    classes = {thing for module in modules for thing in vars(module).values()
               if isinstance(thing, type) and thing.__module__.startswith("dpstats")}  # fmt: skip
    return [dict(vars(thing)) for thing in (*modules, *classes)]


def main(path: str) -> None:
    spec = importlib.util.spec_from_file_location(
        "shared", Path(__file__).parents[1] / "conftest.py"
    )
    assert spec is not None
    assert spec.loader is not None
    shared = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = shared
    spec.loader.exec_module(shared)
    dps.release(shared.sentinel_plan(), shared.sentinel_rows(), m=300, k=100, rng=1)
    sums = set(json.loads(Path(path).read_text()))

    def found() -> bool:
        return shared.Search().objects(shared._reachable(globals_of_the_package(), ()), sums)

    seen = {"after a release": found()}
    kept = lru_cache(lambda total: {"deep": total})
    kept(max(sums))
    for name, planted in (("cached", kept), ("kept", [np.array(sorted(sums))])):
        kernel.Kernel.kept = planted  # type: ignore[attr-defined]
        seen[name] = found()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
