"""The pages that show code: what they show must run."""

import re
from pathlib import Path

import pytest

import raisf

ROOT = Path(__file__).parent.parent


def blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text("utf-8"), re.DOTALL)


@pytest.mark.slow
def test_the_page_about_python_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    shown = blocks("docs/python.md")
    assert len(shown) >= 5
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in shown:
        exec(compile(block, "docs/python.md", "exec"), names)
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
