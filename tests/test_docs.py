"""The pages that show code: what they show must run."""

import re
from pathlib import Path
from typing import get_args

import dspy
import pytest

import raisf
from raisf import cli
from raisf.commands.experiments import NAMES, REAL
from raisf.experiments.titles import TITLES
from raisf.optimize.compile import OTHERS, PROMPTS
from raisf.programs.registry import PROGRAMS
from raisf.programs.trace import Route

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text("utf-8"), re.DOTALL)


def test_every_name_of_raisf_stands_in_a_page():
    pages = "".join(page.read_text("utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    assert [name for name in raisf.__all__ if not re.search(rf"(raisf\.|`){name}\b", pages)] == []


def test_the_page_about_python_lists_every_way_of_compiling_and_every_program():
    page = (ROOT / "docs/python.md").read_text("utf-8")
    ways = [f'| `{kind.__name__}` | `"prompts"`, `strategy="{name}"` |' for name, kind in PROMPTS.items()]
    ways += [f'| `{kind.__name__}` | `"{name}"` |' for name, kind in OTHERS.items()]
    ways[0] = '| `LabeledJudges` | `"prompts"` |'  # the default
    assert [way for way in ways if way not in page] == []
    programs = [f"`{kind.__name__}` (`{name}`)" for name, kind in PROGRAMS.items()]
    assert [program for program in programs if program not in page] == []


def test_the_page_about_commands_and_the_help_say_what_every_experiment_is(capsys):
    page = (ROOT / "docs/commands.md").read_text("utf-8")
    assert [name for name in (*NAMES, REAL) if f"| `{name}` |" not in page] == []
    assert cli.main(["experiment", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name, title in TITLES.items() if not re.search(rf"^  {name} +{title}$", shown, re.MULTILINE)] == []


def test_the_page_about_viewing_lists_every_route():
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/viewing.md").read_text("utf-8"), re.MULTILINE)
    assert [*get_args(Route)] == [route for route in listed if route in get_args(Route)]


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have on GitHub."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_links_lead_to_files_and_headings_that_are_there(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            there = page.parent / path if path else page
            assert there.exists(), link
            assert not anchor or anchor in anchors(there), link


@pytest.mark.slow
def test_the_page_about_python_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    shown = blocks("docs/python.md")
    assert len(shown) >= 5
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    before = dspy.settings.lm
    try:
        for block in shown:
            exec(compile(block, "docs/python.md", "exec"), names)
    finally:
        dspy.configure(lm=before)
    printed = capsys.readouterr().out
    assert "zero-shot" in printed and "->" in printed
    assert (tmp_path / "artifacts/tuned/manifest.json").is_file()


@pytest.mark.slow
def test_the_readmes_python_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    raisf.write_world("world", seed=7, entities=600, counts={"train": 60, "dev": 20, "test": 1})
    raisf.build_index("world/corpus.jsonl", "indexes/world")
    (block,) = blocks("README.md")
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()
    assert raisf.load("artifacts/tuned") is not None
