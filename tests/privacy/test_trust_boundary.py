"""The trust boundary, read from the source: who may see rows, draw noise, and import whom."""

import ast
import functools
import graphlib
import inspect
import re
from pathlib import Path

import pytest

import dpstats as dps

PACKAGE = Path(dps.__file__).parent
# A room imports itself and the rooms before it, type-only imports included.
ROOMS = [
    "verifying",  # imports nothing of the package
    "errors", "arrays", "caching", "checks", "display", "files", "error_rates", "roots",
    "schema", "privacy",
    "families", "corrected", "theory",
    "measured",
    "inference", "rows",
    "results",
    "analyses",
    "planning", "bounds", "releases", "plots",
    "private",
    "auditing",
    "synthesis",
    "testing", "reports", "demo", "terminal", "cli",
]  # fmt: skip
SOURCES = {
    ".".join(["dpstats", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(
        ".__init__"
    ): path.read_text()
    for path in sorted(PACKAGE.rglob("*.py"))
}


# Lists of public names belong to no room: they load when they are used, and no module may import
# them. `dps.corrected.infer` is listed in `dpstats.corrected`, and lives in `releases`.
PUBLIC_ENTRIES = {"dpstats", "dpstats.__main__", "dpstats.corrected", "dpstats.datasets"}
MODULES = [name for name in SOURCES if name not in PUBLIC_ENTRIES]
NOISE = "dpstats.privacy.noise"


def room(module):
    return module.split(".")[1]


# On lines of their own, as ruff has them; inside functions and for types too.
IMPORT = re.compile(r"^[ \t]*(from [\w.]+ import (?:\([^)]*\)|[^\n(]*)|import [^\n]*)", re.M)


@functools.cache
def import_statements(text):
    """Those of a module; only they are parsed."""
    return ast.parse("\n".join(IMPORT.findall(text))).body


def imports(text):
    """Modules that a module imports anywhere."""
    for node in import_statements(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            continue
        assert node.level == 0, "relative import"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            if whole != "dpstats.__version__":
                yield whole if whole in SOURCES else node.module


def order_of(module, text):
    """Imports of one module that are not of its own or an earlier room, or of public names.

    Those load lazily, so that what is behind them would escape the order.
    """
    rank = ROOMS.index(room(module))
    ours = [name for name in imports(text) if name.split(".")[0] == "dpstats"]
    return [name for name in ours if name == "dpstats" or ROOMS.index(room(name)) > rank]


def offenders(find, modules=MODULES):
    """What is found in the modules, by module."""
    return {module: found for module in modules if (found := find(module, SOURCES[module]))}


def test_imports_point_to_earlier_rooms():
    assert offenders(order_of) == {}
    for text in [
        "from dpstats.private.measure import measure",
        "from dpstats import planning",
        "from dpstats import plan",
        "import dpstats as dps",
        "def f():\n    from dpstats.releases import load",
        "if TYPE_CHECKING:\n    import dpstats.cli",
    ]:
        assert order_of(NOISE, text)
    assert not order_of(NOISE, "from dpstats.errors import NoiseError")


def test_no_modules_import_each_other_in_a_circle():
    """Type-only imports counted; one that would close a circle is planted."""
    graph = {name: {i for i in imports(SOURCES[name]) if i in MODULES} for name in MODULES}
    graphlib.TopologicalSorter(graph).prepare()
    graph["dpstats.planning.asked"].add("dpstats.planning.plan")
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(graph).prepare()


FIT = "dpstats.private.fit_of_schema"  # its result alone holds cells, for a person to look at
PRIVATE = {name for name in MODULES if room(name) == "private"}
ADAPTERS = ("kernel", "tables", "sources", "delimited", "data_frames", "likely_meaning")
PICKLES = ("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib")
IMPORTED_BY = {
    "opendp": {NOISE},
    "secrets": {NOISE},
    "dpstats.verifying": {"dpstats.cli.verify"},  # a second opinion is of the command line alone
    FIT: {"dpstats.cli.plan", "dpstats.cli.release"},
    **{f"dpstats.private.{name}": PRIVATE for name in ADAPTERS},
    **{name: set() for name in ("random", *PICKLES)},
}
RUNS = r"(?<![\w.])(eval|exec|compile|__import__|breakpoint|input)\(|\bnp\.load\(|\w_pickle\("
WRITTEN_IN = {
    RUNS: set(),
    r"urandom|SystemRandom": set(),
    r"(?<!def )\b(add_noise|draw_uniforms)\(": {"dpstats.private.measure"},
    # `check_analysis` tests analyses, on public data; what it releases is marked not private.
    r"_noise_from|_injected": {NOISE, "dpstats.testing"},
}


def test_what_only_few_modules_use():
    for start, users in IMPORTED_BY.items():
        others = {name for name in SOURCES if not name.startswith(start)}
        found = {m for m in others if any(name.startswith(start) for name in imports(SOURCES[m]))}
        assert found <= users if users is PRIVATE else found == users, start
    for pattern, users in WRITTEN_IN.items():
        assert {m for m, text in SOURCES.items() if re.search(pattern, text)} == users, pattern
    for text in ("eval('1')", "pd.read_pickle('x')", "np.load(path)"):
        assert re.search(RUNS, text)
    assert list(imports("def f():\n    import pickle")) == ["pickle"]


def calls(tree):
    """Every call with the name of the function or method, and the function it stands in."""

    def visit(node, inside):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = node.name
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield name, isinstance(node.func, ast.Attribute), node, inside
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(tree, "")


ENCODING = ("exact_sums", "open_source", "level_codes", "floats", "encode_numbers", "Kernel")


def encodes(text):
    """Calls that would turn private rows into codes or sums outside ``private``."""
    found = []
    for name, is_method, node, inside in calls(ast.parse(text)):
        # Text is encoded without arguments, or with the name of an encoding.
        plain = not node.args or isinstance(node.args[0], ast.Constant)
        encoded = name == "encode" and is_method and not plain and inside != "encode"
        summed = name == "sums" and is_method and inside != "sums"
        if encoded or summed or name in ENCODING:
            found.append(ast.unparse(node))
    return found


# What is written in some modules, whose rows are public, or made from a schema.
PUBLIC = {
    "dpstats.releases.published_rows": ("(values", "encode_numbers(numbers)"),
    "dpstats.planning.previews.likeness": ("(values", "encode_numbers(numbers)"),
    "dpstats.auditing.pairs": ("block.sums({",),
}
# Where it is written how an Arrow array is coded.
OF_SCHEMA = re.compile(r"arrow\.|level_codes|floats|self\.encode_numbers")


def encodes_private_rows(module, text):
    """The same, but for calls on rows that are public, or made."""
    if not any(f"{name}(" in text for name in ("encode", "sums", *ENCODING)):
        return []
    found = encodes(text)
    if room(module) == "schema":
        found = [call for call in found if not OF_SCHEMA.match(call)]
    return [call for call in found if not any(part in call for part in PUBLIC.get(module, ()))]


def test_only_private_turns_rows_into_codes_and_sums():
    assert offenders(encodes_private_rows, set(MODULES) - PRIVATE) == {}
    for text in [
        "def infer(release, batch):\n    return release.schema.encode(batch)",
        "def f(block, codes):\n    return block.sums(codes)",
        "from dpstats.private import tables\ntables.exact_sums(source, schema, blocks)",
    ]:
        assert encodes(text)
    assert not encodes("'text'.encode(); 'text'.encode('ascii')")


def test_an_audit_sees_no_table():
    """It takes a plan, and of what sees rows it knows only what adds noise to sums."""
    assert list(inspect.signature(dps.audit).parameters) == ["plan", "draws", "progress"]
    for text in [SOURCES[module] for module in MODULES if room(module) == "auditing"]:
        seen = {name for name in imports(text) if "dpstats.private" in name}
        assert seen <= {"dpstats.private.measure"}
        assert set(re.findall(r"\bmeasuring\.(\w+)", text)) <= {"_noisy"}


def test_the_fit_of_a_schema_is_only_looked_at():
    assert not [name for name in imports(SOURCES[FIT]) if name.startswith("logging")]
    shown = {inside for user in IMPORTED_BY[FIT] for name, _, _, inside in
             calls(ast.parse(SOURCES[user])) if name == "check" and inside}  # fmt: skip
    assert shown == {"_check", "_let_a_person_look"}


BEFORE_CHANCE = (
    "errors", "files", "error_rates", "schema", "privacy", "measured", "planning", "private",
    "releases",
)  # fmt: skip


def test_nothing_before_synthesis_draws_ordinary_random_numbers():
    early = [module for module in MODULES if room(module) in BEFORE_CHANCE]
    early.remove("dpstats.planning.previews.invented")
    drawing = re.compile(r"np\.random\b(?!\.Generator)")
    assert offenders(lambda _, text: drawing.search(text), early) == {}
