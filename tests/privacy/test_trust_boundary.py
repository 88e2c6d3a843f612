"""The trust boundary, read from the source: who may see rows, draw noise, and import whom."""

import ast
import functools
import inspect
import re
import sys
from pathlib import Path

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
    verifying = {i.split(".")[0] for m in MODULES if room(m) == "verifying"
                 for i in imports(SOURCES[m])}  # fmt: skip
    assert verifying <= {*sys.stdlib_module_names, "dpstats"}  # and no other room, as above
    for pattern, users in WRITTEN_IN.items():
        assert {m for m, text in SOURCES.items() if re.search(pattern, text)} == users, pattern
    for text in ("eval('1')", "pd.read_pickle('x')", "np.load(path)"):
        assert re.search(RUNS, text)
    assert list(imports("def f():\n    import pickle")) == ["pickle"]


# Calls that turn rows into codes or sums. Text is encoded without arguments, or with a name.
CODING = re.compile(
    r"(?<!def )\b(exact_sums|open_source|level_codes|floats|encode_numbers|Kernel)\("
    r"|\.(encode)\((?![\"')])|\.(sums)\("
)
# Of codes, in a block of other blocks; of rows that are public, or made from a schema; and in the
# schema, where it is written how an Arrow array is coded.
CODED_ELSEWHERE = {
    "dpstats.families.block": ["sums"],
    "dpstats.families.contrasts": ["sums"],
    "dpstats.families.tables.residuals": ["sums"],
    "dpstats.releases.published_rows": ["floats", "level_codes", "floats", "encode_numbers"],
    "dpstats.planning.previews.likeness": ["level_codes", "encode"],
    "dpstats.auditing.pairs": ["sums"],
    "dpstats.schema.arrow": ["level_codes"],
    "dpstats.schema.category": ["level_codes"],
    "dpstats.schema.number": ["encode_numbers", "floats", "encode_numbers", "encode_numbers"],
    "dpstats.schema.repairs": ["encode"],
    "dpstats.schema.schema": ["encode"],
}


def coding(module, text):
    return ["".join(names) for names in CODING.findall(text)]


def test_only_private_turns_rows_into_codes_and_sums():
    others = [name for name in MODULES if room(name) != "private"]
    assert offenders(coding, others) == CODED_ELSEWHERE
    for text in ["schema.encode(batch)", "block.sums(codes)", "tables.exact_sums(source, blocks)"]:
        assert coding("planted", text)
    assert not coding("planted", "'text'.encode(); 'text'.encode('ascii')")


def test_an_audit_sees_no_table():
    """It takes a plan, and of what sees rows it knows only what adds noise to sums."""
    assert list(inspect.signature(dps.audit).parameters) == ["plan", "draws", "progress"]
    for text in [SOURCES[module] for module in MODULES if room(module) == "auditing"]:
        seen = {name for name in imports(text) if "dpstats.private" in name}
        assert seen <= {"dpstats.private.measure"}
        assert set(re.findall(r"\bmeasuring\.(\w+)", text)) <= {"_noisy"}


def test_the_fit_of_a_schema_is_only_looked_at():
    assert not re.search("log(ging|ger)", SOURCES[FIT])
    shown = {
        function.name
        for user in IMPORTED_BY[FIT]
        for function in ast.parse(SOURCES[user]).body
        if isinstance(function, ast.FunctionDef) and re.search(r"\bcheck\(", ast.unparse(function))
    }
    assert shown == {"_check", "_let_a_person_look"}


INVENTING = {  # rows for previews, from public guesses
    "dpstats.planning.measures", "dpstats.planning.previews.invented",
    "dpstats.planning.previews.pretended",
}  # fmt: skip
BEFORE_CHANCE = (
    "errors", "files", "error_rates", "schema", "privacy", "measured", "planning", "private",
    "releases",
)  # fmt: skip


def test_nothing_before_synthesis_draws_ordinary_random_numbers():
    early = [module for module in MODULES if room(module) in BEFORE_CHANCE]
    drawing = re.compile(r"np\.random\b(?!\.Generator)|\bmake_generator\(")
    assert set(offenders(lambda _, text: drawing.search(text), early)) == INVENTING
