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


def test_the_command_line_and_a_plan_need_numpy_at_most():
    assert loaded_after(f"import dpstats.cli\n{PLANNED}").isdisjoint(HEAVY)


def test_a_measurement_of_a_file_needs_the_reader_and_the_noise_at_most(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,x,y\np,True,1,2\nq,,3,?\n")
    measured = f"dps.measure(plan, {str(tmp_path / 'rows.csv')!r})"
    assert loaded_after(PLANNED + measured) & set(HEAVY) == {"opendp", "pyarrow"}
