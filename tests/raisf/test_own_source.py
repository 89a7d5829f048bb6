"""If these failed, answers of a program of one's own would be taken for those of its changed code, or be asked again
for no change."""

import sys

import pytest

from raisf.experiments.opening import open_program

PROGRAM = """
import dspy
{imports}
class Mine(dspy.Module):
    def forward(self, question):
        {inside}
        return dspy.Prediction(answer="42")
"""
FILES = {
    "flat_one.py": PROGRAM.format(imports="import json, helpers_of_hers.words as words", inside="pass"),
    "flat_two.py": PROGRAM.format(imports="", inside="from lazy_of_hers import answer"),
    "pack_of_hers/__init__.py": "",
    "pack_of_hers/rag.py": PROGRAM.format(imports="from .steps import *", inside="from . import late"),
    "pack_of_hers/steps.py": "import beside_of_hers",
    "pack_of_hers/late.py": "from ..... import nowhere",
    "pack_of_hers/other.py": PROGRAM.format(imports="", inside="pass"),
    "helpers_of_hers/__init__.py": "",
    "helpers_of_hers/words.py": "",
    "lazy_of_hers.py": "answer = 42",
    "beside_of_hers.py": "import pack_of_hers.rag",
    "factory_of_hers.py": PROGRAM.format(imports="def make(k):\n return type('M', (Mine,), {'k': k})", inside="pass"),
    "variant_of_hers.py": "from factory_of_hers import make\nimport lib_of_hers.words\nMade = make(5)",
    "elsewhere/lib_of_hers/words.py": "",
    "unrelated_of_hers.py": "this is no Python",
}
LEADS_TO = {
    "flat_one:Mine": {"flat_one.py", "helpers_of_hers/__init__.py", "helpers_of_hers/words.py"},
    "flat_two:Mine": {"flat_two.py", "lazy_of_hers.py"},
    "pack_of_hers.rag:Mine": {
        *(f"pack_of_hers/{name}.py" for name in ("__init__", "rag", "steps", "late")),
        "beside_of_hers.py",
    },
    "variant_of_hers:Made": {"variant_of_hers.py", "factory_of_hers.py", "elsewhere/lib_of_hers/words.py"},
    "pack_of_hers.other:Mine": {"pack_of_hers/__init__.py", "pack_of_hers/other.py"},
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder that she works in."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path, str(tmp_path / "elsewhere")])
    yield tmp_path
    for name in {name.removeprefix("elsewhere/").split("/")[0].removesuffix(".py") for name in FILES}:
        for loaded in [one for one in sys.modules if one.partition(".")[0] == name]:
            del sys.modules[loaded]


def _sources() -> dict[str, str]:
    return {name: open_program(name).source_sha256 for name in LEADS_TO}


def test_a_programs_code_is_all_that_its_imports_lead_to_and_nothing_else(home):
    """Imports in functions, modules beside a package or in another folder of the path, and the one that she named where
    its class was made by another, were missed; what another program had loaded was not."""
    before = _sources()
    assert len(set(before.values())) == len(before)
    for name, text in FILES.items():
        (home / name).write_text(f"{text}\n# changed")
        changed = {one for one, source in _sources().items() if source != before[one]}
        assert changed == {one for one, files in LEADS_TO.items() if name in files}, name
        (home / name).write_text(text)


def test_the_order_of_programs_decides_nothing(home):
    alone = open_program("flat_two:Mine").source_sha256
    open_program("flat_one:Mine")
    assert open_program("flat_two:Mine").source_sha256 == alone
