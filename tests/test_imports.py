"""No module imports itself by way of others, not even inside a function."""

import ast
import graphlib
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    # A package beside src is a link in src/raisf, which is not followed: each file counts once.
    inside = [ROOT / "src/raisf", *(path for path in (ROOT / "src/raisf").iterdir() if not path.is_symlink())]
    files = [*inside[0].glob("*.py"), *(file for folder in inside[1:] for file in folder.rglob("*.py"))]
    names = {path: path.relative_to(ROOT / "src/raisf") for path in files}
    names |= {path: path.relative_to(ROOT) for p in PACKAGES for path in (ROOT / p).rglob("*.py")}
    modules = {
        ".".join(["raisf", *name.with_suffix("").parts]).removesuffix(".__init__"): path for path, name in names.items()
    }
    assert {"raisf.cli", "raisf.commands.index", "raisf.retrieval.index"} <= modules.keys()
    graph = {
        name: {found for found in imports(ast.parse(path.read_text())) if found in modules} - {name}
        for name, path in modules.items()
    }
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}
    graph = {name: found - packages | (found & {"raisf.lm.pocket"}) for name, found in graph.items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_every_model_is_read_without_code_from_its_folder() -> None:
    """Explicitly: a default may change, and a user's environment may turn it around."""
    calls = 0
    for path in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        tree = ast.parse(path.read_text())
        options = {
            ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]): ast.unparse(node.value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_pretrained":
                calls += 1
                spread = [ast.unparse(word.value) for word in node.keywords if word.arg is None]
                given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert given.get("trust_remote_code") == "False" or any(
                    "'trust_remote_code': False" in options.get(name, "") for name in spread
                ), f"{path}:{node.lineno}"
    assert calls >= 6


@pytest.mark.parametrize("bench", sorted(path.stem for path in (ROOT / "bench").glob("*.py")))
def test_what_measures_runs_with_what_it_measures(bench: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    assert importlib.import_module(f"bench.{bench}").main


def test_windows_is_told_where_it_runs():
    code = "import sys; sys.platform = 'win32'; import raisf"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stderr.endswith("ImportError: raisf runs on Linux and macOS; on Windows use WSL\n")
