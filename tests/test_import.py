"""`import dpstats` is quick because nothing heavy is loaded before it is used."""

import json
import subprocess
import sys

import dpstats

HEAVY = (
    "duckdb", "matplotlib", "opendp", "pandas", "polars", "pulp", "pyarrow", "scipy",
    "statsmodels",
)  # fmt: skip
LOADED = "import sys, json; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def loaded_after(code):
    """Top-level modules that a fresh interpreter has loaded after running `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOADED}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


ALONE = (
    "import sys, dpstats\n"
    "assert not [name for name in sys.modules if name.startswith('dpstats.')]\n"
    "assert 'importlib.metadata' not in sys.modules  # no entry points are looked for\n"
    "assert not {'numpy', 'pandas'} & sys.modules.keys()\n"
    "from dpstats.analyses.registry import find\nfind('proportion')\n"
    "assert 'dpstats.analyses.counts.proportion' in sys.modules\n"
    "assert 'dpstats.analyses.regression.ols' not in sys.modules\n"
)


def test_an_import_loads_nothing_and_a_kind_of_analyses_no_other():
    assert loaded_after(ALONE).isdisjoint(HEAVY)
    assert set(dpstats.__all__) <= set(dir(dpstats))
    assert not hasattr(dpstats, "nonsense")


PLANNED = (
    "import dpstats as dps\n"
    "numbers = [dps.Number(c, 0, 9, missing=4) for c in 'xy']\n"
    "schema = dps.Schema([dps.Category('a', ['p', 'q']), dps.Boolean('b'), *numbers])\n"
    "asked = {'n': dps.Proportion('b'), 'm': dps.Mean(['x']), 't': dps.Independence('a', 'b'),\n"
    "         'd': dps.Difference('b', 'a'), 'o': dps.Correlation(['x', 'y']),\n"
    "         'c': dps.PCA(['x', 'y']), 'k': dps.Marginals(['a', 'b'])}\n"
    "plan = dps.plan(schema, asked, budget=dps.PureDP(1))\n"
)


def test_a_plan_needs_numpy_at_most_and_a_measurement_the_reader_and_the_noise_too(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,x,y\np,True,1,2\nq,,3,?\n")
    nothing = f"assert not {set(HEAVY)} & sys.modules.keys()\n"
    measured = f"dps.measure(plan, {str(tmp_path / 'rows.csv')!r})"
    loaded = loaded_after(f"import sys, dpstats.cli\n{PLANNED}{nothing}{measured}")
    assert loaded & set(HEAVY) == {"opendp", "pyarrow"}
