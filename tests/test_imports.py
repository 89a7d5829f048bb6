"""No module imports itself by way of others, not even inside a function."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("optimize", "programs", "signatures", "evaluation", "retrieval", "lm", "data", "utils")


def imports(node: ast.AST) -> Iterator[str]:
    """What a module may import when it runs, in functions too, but not for type checkers alone."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{name.name}" for name in node.names)
        yield node.module
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def test_no_circle_of_imports_lazy_ones_included() -> None:
    files = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for p in PACKAGES
        for path in (ROOT / p).rglob("*.py")
    }
    modules = {f"raisf.{name.removesuffix('.__init__')}": path for path, name in files.items()}
    graph = {
        name: {found for found in imports(ast.parse(path.read_text())) if found in modules} - {name}
        for name, path in modules.items()
    }
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}
    graph = {name: found - packages | (found & {"raisf.lm.pocket"}) for name, found in graph.items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_every_model_is_read_without_code_from_its_folder() -> None:
    """Explicitly: a default may change, and a user's environment may turn it around."""
    for path in (ROOT / "lm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_pretrained":
                spread = [ast.unparse(word.value) for word in node.keywords if word.arg is None]
                given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                source = path.read_text()
                assert given.get("trust_remote_code") == "False" or any(
                    f"{name}: dict[str, Any]" in source and '"trust_remote_code": False' in source for name in spread
                ), f"{path}:{node.lineno}"
