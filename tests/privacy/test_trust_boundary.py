"""The trust boundary, read from the source: who may see rows, draw noise, and import whom."""

import ast
import functools
import graphlib
import inspect
import re
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


@functools.cache
def tree_of(module):
    return ast.parse(SOURCES[module])


# Lists of public names belong to no room: they load when they are used, and no module may import
# them. `dps.corrected.infer` is listed in `dpstats.corrected`, and lives in `releases`.
PUBLIC_ENTRIES = {"dpstats", "dpstats.__main__", "dpstats.corrected", "dpstats.datasets"}
MODULES = [name for name in SOURCES if name not in PUBLIC_ENTRIES]


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
            yield whole if whole in SOURCES else node.module


def order_of(module, text):
    """Imports of one module that are not of its own or an earlier room."""
    ours = [name for name in imports(text) if name.startswith("dpstats.")]
    return [name for name in ours if ROOMS.index(room(name)) > ROOMS.index(room(module))]


def offenders(find, modules=MODULES):
    """What is found in the modules, by module."""
    return {module: found for module in modules if (found := find(module, SOURCES[module]))}


def users_of(start):
    """Modules that import something whose name begins so."""
    return {m for m in SOURCES if any(name.startswith(start) for name in imports(SOURCES[m]))}


def test_only_the_command_line_uses_the_second_opinion():
    users = {name for name in users_of("dpstats.verifying") if room(f"{name}.") != "verifying"}
    assert users == {"dpstats.cli.verify"}


def test_imports_point_to_earlier_rooms():
    assert offenders(order_of) == {}


def test_an_import_of_a_later_room_is_seen():
    for text in [
        "from dpstats.private.measure import measure",
        "from dpstats import planning",
        "def f():\n    from dpstats.releases import load",
        "if TYPE_CHECKING:\n    import dpstats.cli",
    ]:
        assert order_of("dpstats.privacy.noise", text)
    assert not order_of("dpstats.privacy.noise", "from dpstats.errors import NoiseError")


def circle(texts):
    """Modules that import each other in a circle, if any, type-only imports counted."""
    graph = {name: {i for i in imports(text) if i in texts} for name, text in texts.items()}
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    texts = {name: SOURCES[name] for name in MODULES}
    assert circle(texts) == []
    planted = "if TYPE_CHECKING:\n    from dpstats.planning.plan import Plan"
    texts["dpstats.planning.asked"] += f"\n{planted}"
    assert {"dpstats.planning.plan", "dpstats.planning.asked"} <= set(circle(texts))


def test_no_module_imports_through_the_public_names():
    # They load lazily, so that such an import would escape the order.
    for module in MODULES:
        for node in import_statements(SOURCES[module]):
            if isinstance(node, ast.Import):
                assert "dpstats" not in [alias.name for alias in node.names], module
            elif node.module == "dpstats":
                names = {f"dpstats.{alias.name}" for alias in node.names}
                assert names <= {*SOURCES, "dpstats.__version__"}, module


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


def encodes_private_rows(module, text):
    """The same, but for calls on rows that are public, or made."""
    if not any(f"{name}(" in text for name in ("encode", "sums", *ENCODING)):
        return []
    found = encodes(text)
    if module in ("dpstats.releases.published_rows", "dpstats.planning.previews.likeness"):
        public = ("(values", "encode_numbers(numbers)")  # of rows that are public
        found = [call for call in found if not any(one in call for one in public)]
    if module == "dpstats.auditing.pairs":  # of rows that it has made from a schema
        found = [call for call in found if not call.startswith("block.sums({")]
    if room(module) == "schema":  # where it is written how an Arrow array is coded
        written = ("arrow.", "level_codes", "floats", "self.encode_numbers")
        found = [call for call in found if not call.startswith(written)]
    return found


OTHERS = [module for module in MODULES if room(module) != "private"]


def test_only_private_turns_rows_into_codes_and_sums():
    assert offenders(encodes_private_rows, OTHERS) == {}
    for text in [
        "def infer(release, batch):\n    return release.schema.encode(batch)",
        "def f(block, codes):\n    return block.sums(codes)",
        "from dpstats.private import tables\ntables.exact_sums(source, schema, blocks)",
    ]:
        assert encodes(text)
    assert not encodes("'text'.encode(); 'text'.encode('ascii')")


ADAPTERS = tuple(
    f"dpstats.private.{name}"
    for name in ("kernel", "tables", "sources", "delimited", "data_frames", "likely_meaning")
)
FIT = "dpstats.private.fit_of_schema"  # its result alone holds cells, for a person to look at


def test_only_private_imports_the_adapters():
    for module in OTHERS:
        for node in import_statements(SOURCES[module]):
            if isinstance(node, ast.ImportFrom) and node.module in ADAPTERS:
                assert {alias.name for alias in node.names} <= {"Progress"}, module


def test_an_audit_sees_no_table():
    """It takes a plan, and of what sees rows it knows only what adds noise to sums."""
    assert list(inspect.signature(dps.audit).parameters) == ["plan", "draws", "progress"]
    for module in MODULES:
        if room(module) == "auditing":
            seen = {name for name in imports(SOURCES[module]) if "dpstats.private" in name}
            assert seen <= {"dpstats.private.measure"}, module
            used = {
                node.attr
                for node in ast.walk(tree_of(module))
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "measuring"
            }
            assert used <= {"_noisy"}, module


def test_the_fit_of_a_schema_is_looked_at_by_the_command_line_alone():
    users = users_of(FIT)
    assert users == {"dpstats.cli.plan", "dpstats.cli.release"}
    assert not [name for name in imports(SOURCES[FIT]) if name.startswith("logging")]
    shown = {inside for user in users for name, _, _, inside in calls(tree_of(user))
             if name == "check" and inside}  # fmt: skip
    assert shown == {"_check", "_let_a_person_look"}


def test_only_noise_imports_the_backend_and_the_secure_source():
    assert users_of("opendp") | users_of("secrets") == {"dpstats.privacy.noise"}
    for module, text in SOURCES.items():
        if module != "dpstats.privacy.noise":
            assert "urandom" not in text, module
            assert "SystemRandom" not in text, module


def test_only_measure_draws_noise():
    drawing = re.compile(r"\b(add_noise|draw_uniforms)\(")
    users = {
        module
        for module, text in SOURCES.items()
        if drawing.search(re.sub(r"def (add_noise|draw_uniforms)\(", "", text))
    }
    assert users == {"dpstats.private.measure"}


def test_the_test_only_seam_is_used_by_no_module():
    for module, text in SOURCES.items():
        # `check_analysis` tests analyses, on public data; what it releases is marked not private.
        if module not in ("dpstats.privacy.noise", "dpstats.testing"):
            assert "_noise_from" not in text, module
            assert "_injected" not in text, module


BEFORE_CHANCE = (
    "errors", "files", "error_rates", "schema", "privacy", "measured", "planning", "private",
    "releases",
)  # fmt: skip


def draws_ordinary_numbers(_, text):
    if "np.random" not in text:
        return False
    return "np.random" in ast.unparse(ast.parse(text)).replace("np.random.Generator", "")


def test_nothing_before_synthesis_draws_ordinary_random_numbers():
    early = [module for module in MODULES if room(module) in BEFORE_CHANCE]
    early.remove("dpstats.planning.previews.invented")
    assert offenders(draws_ordinary_numbers, early) == {}


FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}
FORBIDDEN_IMPORTS = {"random", "pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
SUSPECT = re.compile(rf"\b({'|'.join(FORBIDDEN_CALLS)}|print|seed|load|\w+_pickle)\(")


def forbidden(module, text):
    found = [name for name in imports(text) if name.split(".")[0] in FORBIDDEN_IMPORTS]
    if not SUSPECT.search(text):
        return found
    for name, is_method, node, _ in calls(ast.parse(text)):
        called = {"print"} if room(module) not in ("terminal", "demo") else set()
        if name in FORBIDDEN_CALLS | called and not is_method:
            found.append(ast.unparse(node))
        if ast.unparse(node.func).endswith(("random.seed", "np.load", "read_pickle", "to_pickle")):
            found.append(ast.unparse(node))
    return found


def test_no_print_no_global_seed_no_execution_of_files():
    assert offenders(forbidden) == {}
    for text in ["print(1)", "from random import gauss", "np.random.seed(1)", "eval('1')",
                 "def f():\n    import pickle", "pd.read_pickle('x')"]:  # fmt: skip
        assert forbidden("dpstats.schema.planted", text)
