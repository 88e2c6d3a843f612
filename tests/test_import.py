"""`import dpstats` is quick because nothing heavy is loaded before it is used."""

import json
import subprocess
import sys

import pytest

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


def test_import_loads_nothing_heavy():
    extra = loaded_after("import dpstats") - loaded_after("")
    assert "dpstats" in extra
    assert extra.isdisjoint({*HEAVY, "numpy"})


@pytest.mark.parametrize(
    "code",
    [
        "import dpstats; dpstats.Schema([dpstats.Boolean('smoker')])",
        "import dpstats; dpstats.PureDP(1)",
        "import dpstats.cli",
    ],
)
def test_describing_a_table_needs_numpy_at_most(code):
    assert loaded_after(code).isdisjoint(HEAVY)


PLANNED = (
    "import dpstats as dps\n"
    "numbers = [dps.Number(c, 0, 9, missing=4) for c in 'xy']\n"
    "schema = dps.Schema([dps.Category('a', ['p', 'q']), dps.Boolean('b'), *numbers])\n"
    "asked = {'n': dps.Proportion('b'), 'm': dps.Mean(['x']), 't': dps.Independence('a', 'b'),\n"
    "         'd': dps.Difference('b', 'a'), 'o': dps.Correlation(['x', 'y']),\n"
    "         'c': dps.PCA(['x', 'y']), 'k': dps.Marginals(['a', 'b'])}\n"
    "plan = dps.plan(schema, asked, budget=dps.PureDP(1))\n"
)


def test_a_plan_needs_numpy_at_most():
    assert loaded_after(PLANNED).isdisjoint(HEAVY)


def test_a_measurement_of_a_file_needs_the_reader_and_the_noise_at_most(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,x,y\np,True,1,2\nq,,3,?\n")
    measured = f"dps.measure(plan, {str(tmp_path / 'rows.csv')!r})"
    assert loaded_after(PLANNED + measured) & set(HEAVY) == {"opendp", "pyarrow"}


def test_every_public_name_loads_and_is_listed():
    code = (
        "import dpstats\n"
        "assert set(dpstats.__all__) <= set(dir(dpstats))\n"
        "for name in dpstats.__all__: getattr(dpstats, name)\n"
        "assert not hasattr(dpstats, 'nonsense')\n"
    )
    assert "dpstats" in loaded_after(code)


def test_completion_shows_public_names_only():
    import dpstats

    assert set(dir(dpstats)) == set(dpstats.__all__)
    for module in (dpstats.corrected, dpstats.plots, dpstats.testing, dpstats.theory):
        assert dir(module) == sorted(module.__all__)


def test_the_check_sees_a_heavy_import():
    assert "scipy" in loaded_after("import dpstats, scipy")
