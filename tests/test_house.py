"""The rules of the house (docs/design/house.md), read off the source."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "harmonicgp"
#: Rooms from the ground up: each imports only from those before it. Rooms in one entry do not import each other.
LAYERS = [
    ("_version", "_extras", "_validation"),
    ("backend",),
    ("io",),
    ("groups",),
    ("actions",),
    ("kernels",),
    ("testing",),
    ("inducing",),
    ("features",),
    ("likelihoods",),
    ("inference",),
    ("training",),
    ("tables",),
    ("symmetry",),
    ("estimators",),
    ("globe",),
    ("planes",),
    ("report",),
    ("loading",),
    ("diagnostics",),
    ("cli",),
    ("__main__", "__init__"),
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
MODULES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


def name_of(path):
    return str(path.relative_to(ROOT / "src").with_suffix("")).replace("/", ".").removesuffix(".__init__")


def room_of(module):
    """The room of a dotted name below harmonicgp."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(tree):
    """Every harmonicgp module that is imported, at the top or inside a function, but for type checking, and its line."""
    skipped = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.unparse(test.test)
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "harmonicgp":
            if node.module == "harmonicgp":
                yield from ((f"harmonicgp.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name.startswith("harmonicgp."))


def test_every_room_has_a_place():
    rooms = {path.stem if path.suffix == ".py" else path.name for path in SOURCE.iterdir()}
    rooms -= {"py.typed", "py", "__pycache__"}
    assert rooms == set(LEVEL)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_rooms_import_downwards(path):
    """Also inside functions: no import hides a cycle."""
    room = room_of(name_of(path))
    for module, line in imports(TREES[path]):
        target = room_of(module)
        if target != room and target in LEVEL:  # a class such as harmonicgp.Cyclic has no room of its own here
            assert LEVEL[target] < LEVEL[room], f"{name_of(path)}:{line} imports {module}, which lies above it"


#: Private names that are third-party conventions.
FOREIGN = {"_fields_", "_version", "_replace", "_asdict", "_transform", "_inv_transform", "_get_param_names", "_name_"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_reads_private_names_of_other_objects(path):
    """Only a class touches its own `_names`: through self, cls, super(), or another value of the class it is written in."""
    tree = TREES[path]
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    defined = {
        item.name
        for c in ast.walk(tree)
        if isinstance(c, ast.ClassDef)
        for item in c.body
        if isinstance(item, ast.FunctionDef)
    }
    assigned = {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    fields = {
        item.target.id
        for c in classes
        for item in c.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    inside = defined | assigned | fields  # names of the classes of this very module
    foreign = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if not alias.name.startswith("harmonicgp")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id in ("self", "cls"):
                continue
            root = owner
            while isinstance(root, ast.Attribute):
                root = root.value
            if node.attr in inside or node.attr in FOREIGN or (isinstance(root, ast.Name) and root.id in foreign):
                continue
            raise AssertionError(f"{name_of(path)}:{node.lineno} reads {ast.unparse(node)}")


def test_no_private_name_is_imported():
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("harmonicgp."):
                private = [alias.name for alias in node.names if alias.name[:1] == "_" and alias.name[:2] != "__"]
                assert not private, f"{name_of(path)}:{node.lineno} imports {private}"


def test_no_two_classes_share_a_name():
    places = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


#: Methods that look for words.
SEARCHES = ("startswith", "endswith", "search", "match", "fullmatch", "find")


def test_nothing_branches_on_the_text_of_a_message():
    """No comparison, search or match on `str(error)`, `warning.message` or the like."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            sides = []
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
                sides = [node.func.value, *node.args]
            for side in sides:
                words = ast.unparse(side)
                found = any(part in words for part in ("str(error)", "error.args", "warning.message", "str(warning"))
                assert not found, f"{name_of(path)}:{node.lineno} branches on words: {ast.unparse(node)}"


def test_functions_fit_a_screen():
    """At most 60 lines of code, docstring not counted; at most 10 parameters but for constructors, fit and option lists."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            start = node.body[1].lineno if ast.get_docstring(node) and len(node.body) > 1 else node.lineno
            length = node.end_lineno - start + 1
            where = f"{name_of(path)}:{node.lineno} {node.name}"
            options = node.name == "__init__" or (path.parent.name == "cli" and path.stem == "commands")
            assert length <= 60 or options, f"{where} has {length} lines"
            a = node.args
            parameters = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg not in ("self", "cls")]
            assert len(parameters) <= 10 or options or node.name == "fit", f"{where} has {len(parameters)} parameters"


#: Decorators that keep values where the caller does not see them.
CACHES = ("lru_cache", "cache", "cached_property")
#: Process-wide facts, not values of the mathematics: the compiled library, the C library, threads, a temporary folder.
PROCESS = {"backend.native", "backend.lapack", "backend.threads", "backend.memory"}


def test_no_hidden_caches():
    """Derived values are held by the object that the caller holds: an immutable value may compute one of its own once."""
    for path, tree in TREES.items():
        name = name_of(path).removeprefix("harmonicgp.")
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            words = [ast.unparse(d) for d in node.decorator_list]
            functions = [
                w for w in words if any(w.split("(")[0].endswith(c) for c in CACHES[:2]) and "cached_property" not in w
            ]
            assert not functions or name in PROCESS, f"{name}:{node.lineno} {node.name} has a cache of its own"


#: Functions of PyTorch that make a tensor on the default device unless they are told otherwise.
FACTORIES = {
    "arange",
    "as_tensor",
    "asarray",
    "empty",
    "eye",
    "full",
    "linspace",
    "logspace",
    "ones",
    "rand",
    "randint",
}
FACTORIES |= {"randn", "randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros"}


def test_every_tensor_names_its_device():
    """Nothing depends on PyTorch's default device: a tensor is made where its inputs are, a draw on the CPU."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FACTORIES:
                named = ast.unparse(node.func.value) != "torch" or any(k.arg in ("device", None) for k in node.keywords)
                assert named, f"{name_of(path)}:{node.lineno} {ast.unparse(node)} has no device="


def test_tests_mirror_the_tree():
    """Every room has a folder of tests, every module a file in it, and every file is named for a module."""
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= folders
    assert folders - rooms == {"benchmarks", "experiments"}
    for room in sorted(rooms):
        modules = {path.stem for path in (SOURCE / room).glob("*.py")} - {"__init__", "__main__"}
        tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / room).glob("test_*.py")}
        strange = {name for name in tested if not any(name == m or name.startswith(f"{m}_") for m in modules)}
        assert not strange, f"tests/{room} has tests of {sorted(strange)}, and no module of that name"
        missing = {m for m in modules if not any(name == m or name.startswith(f"{m}_") for name in tested)}
        assert not missing, f"tests/{room}: {sorted(missing)} have no file of tests"


@pytest.mark.parametrize("path", [path for path in MODULES if path.stem != "__main__"], ids=name_of)
def test_every_public_name_has_an_example(path):
    """Classes, protocols and functions in `__all__`; nothing else is public but the version."""
    module = importlib.import_module(name_of(path))
    for name in set(getattr(module, "__all__", ())) - {"__version__"}:
        value = getattr(module, name)
        assert inspect.isclass(value) or inspect.isroutine(value), f"{name_of(path)}.{name} is no class or function"
        assert ">>>" in (value.__doc__ or ""), f"{name_of(path)}.{name} has no example"
