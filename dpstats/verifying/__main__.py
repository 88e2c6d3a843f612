"""Run the folder itself: ``python dpstats/verifying release.zip``."""

from __future__ import annotations

import sys
import types
from pathlib import Path

if not __package__:  # run as a folder, wherever it is: these modules, and not those of dpstats
    here = Path(__file__).resolve().parent
    for name in ("dpstats", "dpstats.verifying"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(here)]

from dpstats.verifying.arguing import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
