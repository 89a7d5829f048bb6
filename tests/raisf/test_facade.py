"""`import raisf` as a Python user meets it."""

import ast
import importlib
from pathlib import Path

import dspy
import pytest

import raisf
from raisf.programs.registry import PROGRAMS


@pytest.mark.parametrize("name", raisf.__all__)
def test_every_promised_name_is_there(name):
    assert callable(getattr(raisf, name))
    assert name in dir(raisf)


def test_what_a_type_checker_sees_is_what_there_is():
    """The imports for type checkers are the table that names are found by, and all of them are public."""
    tree = ast.parse(Path(raisf.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert sorted(seen) == sorted(raisf.__all__)
    for name, module in seen.items():
        assert getattr(raisf, name) is getattr(importlib.import_module(module or ""), name)


def test_all_programs_can_be_imported_from_raisf():
    assert len(PROGRAMS) == 14
    for program in PROGRAMS.values():
        assert getattr(raisf, program.__name__) is program
    assert issubclass(raisf.RAISF, raisf.Program)


def test_a_misspelt_name_says_what_there_is():
    with pytest.raises(AttributeError, match="RAISF"):
        raisf.RAISV  # noqa: B018


def test_dspys_own_evaluator_takes_the_metric():
    class Says(dspy.Module):
        def forward(self, question):
            return dspy.Prediction(answer=question)

    rows = [("The Elm River.", ["elm river", "Elm"]), ("Ada", ["Bob"])]
    devset = [dspy.Example(question=said, answers=gold).with_inputs("question") for said, gold in rows]
    evaluate = dspy.Evaluate(devset=devset, metric=raisf.answer_exact_match, num_threads=1)
    assert evaluate(Says()).score == 50.0
