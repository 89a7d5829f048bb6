"""Promises about the whole repository."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from raisf.cli import make_parser

ROOT = Path(__file__).parent.parent
PACKAGES = ("src", "optimize", "programs", "signatures", "evaluation", "retrieval", "lm", "data", "utils")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _names(tree: ast.AST):
    """Every dotted call in a file, such as `pickle.load`, with its keyword arguments that are plain constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            constants = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            yield ast.unparse(node.func), constants


def test_opening_a_file_never_runs_code_hidden_in_it():
    # A user opens artifacts, indexes and checkpoints that others made.
    for path in SOURCES:
        for name, constants in _names(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(ROOT)} calls {name}"
            assert name not in {
                "pickle.load",
                "pickle.loads",
                "torch.load",
                "joblib.load",
                "dill.load",
                "eval",
                "exec",
            }, where
            assert not constants.get("trust_remote_code"), where
            assert not constants.get("allow_pickle"), where


def test_every_file_can_be_read_in_one_sitting():
    for path in [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= 350, f"{path.relative_to(ROOT)} has {lines} lines: split it"


def test_every_room_module_says_what_it_is():
    for path in SOURCES:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), (
            f"{path.relative_to(ROOT)} has no docstring"
        )


def test_imports_go_down_the_house_only():
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def _shown_commands(document: str) -> list[str]:
    """The `raisf ...` lines of a document's code blocks, continued lines joined."""
    text = (ROOT / document).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.strip() for line in re.findall(r"^ *(?:\$ )?(raisf .*)$", text, flags=re.MULTILINE)]


@pytest.mark.parametrize(
    "document",
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/finetuning.md", "docs/retrieval.md"],
)
def test_a_command_copied_from_the_documents_is_understood(document):
    import shlex

    for line in _shown_commands(document):
        words = shlex.split(line, comments=True)[1:]
        words = words[: words.index("|")] if "|" in words else words
        make_parser().parse_args(words)


def test_the_readme_shows_every_command():
    shown = re.findall(r"\braisf ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    commands = next(a for a in make_parser()._subparsers._group_actions if a.dest == "command")  # type: ignore[union-attr]
    assert set(commands.choices) <= set(shown)
